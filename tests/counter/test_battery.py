"""Small programs and the FLOPs that they cost, derived by hand: products, convolutions, recurrent layers, transforms.

A line is a program (made on a device, then run), what its forward pass takes, and what its backward pass takes; each runs with and
without gradients, on the CPU, on meta and with fake tensors.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from batteries import REAL, WAYS, call, counted, g, learns, made, t
from torch import nn

import flopkit as fk

CASES = {}
C64 = torch.complex64


def case(name, build, forward, backward=0, ways=WAYS, executed=1):
    """*executed*: the share of its FLOPs that torch carries out."""
    assert name not in CASES
    CASES[name] = (build, forward, backward, ways, executed)


# fmt: off: a table
# -- products ----------------------------------------------------------------------------------------------------

case("mm", lambda: call(torch.mm, g(3, 5), g(5, 7)), 2 * 3 * 5 * 7, 2 * (2 * 3 * 5 * 7))
case("mm, left only", lambda: call(torch.mm, g(3, 5), t(5, 7)), 210, 210)
case("mm, right only", lambda: call(torch.mm, t(3, 5), g(5, 7)), 210, 210)
case("mm, inner size 1", lambda: call(torch.mm, g(3, 1), g(1, 7)), 2 * 3 * 7, 2 * 2 * 3 * 7)
case("a column times a row, broadcast", lambda: call(torch.mul, g(3, 1), g(1, 7)), 0, 0)
case("outer", lambda: call(torch.outer, g(3), g(7)), 0, 0)
case("the same twice", lambda: call(lambda a: a @ a, g(4, 4)), 2 * 4**3, 4 * 4**3)
case("bmm", lambda: call(torch.bmm, g(2, 3, 5), g(2, 5, 7)), 2 * 210, 4 * 210)
case("baddbmm", lambda: call(torch.baddbmm, g(2, 3, 7), g(2, 3, 5), g(2, 5, 7)), 2 * 210, 4 * 210)
case("addmm", lambda: call(torch.addmm, g(7), g(3, 5), g(5, 7), beta=2, alpha=3), 210, 420)
case("addbmm", lambda: call(torch.addbmm, g(3, 7), g(2, 3, 5), g(2, 5, 7)), 2 * 210, 4 * 210)
case("mv", lambda: call(torch.mv, g(5, 7), g(7)), 2 * 5 * 7, 2 * 5 * 7)  # the matrix's gradient is a broadcast multiply
case("addmv", lambda: call(torch.addmv, g(5), g(5, 7), g(7)), 2 * 5 * 7, 2 * 5 * 7)
case("addr", lambda: call(torch.addr, t(5, 7), t(5), t(7)), 2 * 5 * 7)
case("dot", lambda: call(torch.dot, g(9), g(9)), 18, 0)
case("vdot of complex", lambda: call(torch.vdot, t(9, dtype=C64), t(9, dtype=C64)), 8 * 9)
case("inner", lambda: call(torch.inner, g(3, 5), g(7, 5)), 210, 420)
case("matmul 1-D × 1-D", lambda: call(torch.matmul, t(9), t(9)), 18)
case("matmul 1-D × 4-D", lambda: call(torch.matmul, t(5), t(2, 3, 5, 7)), 2 * 2 * 3 * 5 * 7)
case("matmul 4-D × 1-D", lambda: call(torch.matmul, t(2, 3, 7, 5), t(5)), 2 * 2 * 3 * 5 * 7)
case("matmul 4-D × 2-D", lambda: call(torch.matmul, g(2, 3, 4, 5), g(5, 7)), 2 * 6 * 4 * 5 * 7, 4 * 6 * 4 * 5 * 7)
case("matmul 2-D × 4-D", lambda: call(torch.matmul, g(4, 5), g(2, 3, 5, 7)), 2 * 6 * 4 * 5 * 7, 4 * 6 * 4 * 5 * 7)
case("matmul that broadcasts both", lambda: call(torch.matmul, g(2, 1, 4, 5), g(1, 3, 5, 7)), 1680, 2 * 1680)
case(
    "matmul of an expanded one",
    lambda: call(lambda a, b: a.expand(6, 4, 5) @ b, g(1, 4, 5), g(6, 5, 7)),
    1680,
    2 * 1680,
)
case("matmul of transposed ones", lambda: call(lambda a, b: a.t() @ b.t(), g(5, 3), g(7, 5)), 210, 420)
case("matmul, nothing inside", lambda: call(torch.matmul, g(3, 0), g(0, 5)), 0, 0)
case("matmul, empty batch", lambda: call(torch.matmul, g(0, 3, 5), g(0, 5, 7)), 0, 0)
case("matrix_power 5", lambda: call(torch.linalg.matrix_power, t(4, 4), 5), 3 * 2 * 4**3)
case("multi_dot", lambda: call(torch.linalg.multi_dot, [t(2, 9), t(9, 3), t(3, 8)]), 2 * 2 * 9 * 3 + 2 * 2 * 3 * 8)
case(
    "chain_matmul of four", lambda: call(lambda a, b: a @ b @ b.t() @ a.t(), t(2, 3), t(3, 4)), 48 + 48 + 2 * 2 * 3 * 2
)
case("einsum ij,jk", lambda: call(torch.einsum, "ij,jk->ik", g(3, 5), g(5, 7)), 210, 420)
case("einsum bhqd,bhkd", lambda: call(torch.einsum, "bhqd,bhkd->bhqk", g(2, 3, 4, 5), g(2, 3, 6, 5)), 1440, 2880)
case(
    "einsum with a sum", lambda: call(torch.einsum, "ij,jk->", t(3, 5), t(5, 7)), 2 * 5
)  # both are summed to a vector first
case("einsum of three", lambda: call(torch.einsum, "ab,bc,cd->ad", t(2, 3), t(3, 4), t(4, 5)), 2 * (24 + 40))
case("einsum, no contraction", lambda: call(torch.einsum, "ij,ij->ij", t(3, 5), t(3, 5)), 0)
case("einsum trace", lambda: call(torch.einsum, "ii->", t(4, 4)), 0)
case("tensordot", lambda: call(torch.tensordot, g(2, 3, 4, 5), g(4, 5, 6), 2), 2 * 6 * 20 * 6, 4 * 6 * 20 * 6)
case("kron", lambda: call(torch.kron, t(2, 3), t(4, 5)), 0)
case("complex mm", lambda: call(torch.mm, g(3, 5, dtype=C64), g(5, 7, dtype=C64)), 8 * 105, 16 * 105)
case("complex bmm", lambda: call(torch.bmm, t(2, 3, 5, dtype=C64), t(2, 5, 7, dtype=C64)), 8 * 210)
case("bfloat16", lambda: call(torch.mm, g(3, 5, dtype=torch.bfloat16), g(5, 7, dtype=torch.bfloat16)), 210, 420)
case("float16", lambda: call(torch.mm, g(3, 5, dtype=torch.half), g(5, 7, dtype=torch.half)), 210, 420)
case("float64", lambda: call(torch.mm, g(3, 5, dtype=torch.double), g(5, 7, dtype=torch.double)), 210, 420)
case("integers", lambda: call(torch.mm, torch.ones(3, 5, dtype=torch.int64), torch.ones(5, 7, dtype=torch.int64)), 210)
case(
    "int8",
    lambda: call(torch._int_mm, torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 24, dtype=torch.int8)),
    2 * 32 * 16 * 24,
)
case("out=", lambda: call(torch.mm, t(3, 5), t(5, 7), out=torch.empty(3, 7)), 210)
case("in place", lambda: call(torch.Tensor.addmm_, t(3, 7), t(3, 5), t(5, 7)), 210)
case("linear", lambda: call(nn.Linear(5, 7), g(3, 5)), 210, 420)
case("linear, first layer", lambda: call(nn.Linear(5, 7), t(3, 5)), 210, 210)
case("linear without bias", lambda: call(nn.Linear(5, 7, bias=False), g(3, 5)), 210, 420)
case("linear of 4-D", lambda: call(nn.Linear(5, 7), g(2, 3, 4, 5)), 24 * 70, 48 * 70)
case("linear of 1-D", lambda: call(nn.Linear(5, 7), g(5)), 70, 140)
case("linear of complex", lambda: call(nn.Linear(5, 7, dtype=C64), g(3, 5, dtype=C64)), 840, 1680)
case("linear, frozen", lambda: call(nn.Linear(5, 7).requires_grad_(False), g(3, 5)), 210, 210)
case("F.linear without weight's gradient", lambda: call(F.linear, g(3, 5), t(7, 5), g(7)), 210, 210)
case("linear of a strided input", lambda: call(nn.Linear(5, 7), g(3, 10)[:, ::2]), 210, 420)
case("linear of channels last", lambda: call(nn.Linear(5, 7), t(2, 5, 4, 3).permute(0, 2, 3, 1)), 24 * 70, 24 * 70)
case("bilinear", lambda: call(nn.Bilinear(3, 4, 5), t(6, 3), t(6, 4)), 2 * 6 * 5 * 3 * 4, 2 * 6 * 5 * 3 * 4)
case(
    "tied weights",
    lambda: call(lambda e, i: F.linear(e(i), e.weight), nn.Embedding(11, 4), torch.zeros(6, dtype=torch.long)),
    2 * 6 * 4 * 11,
    4 * 6 * 4 * 11,
)
case("embedding", lambda: call(nn.Embedding(11, 4), torch.zeros(6, dtype=torch.long)), 0, 0)
case("embedding bag", lambda: call(nn.EmbeddingBag(11, 4), torch.zeros(6, 3, dtype=torch.long)), 0, 0)


def lora(x, w, a, b):
    return F.linear(x, w) + F.linear(F.linear(x, a), b)


case(
    "LoRA",
    lambda: call(lora, g(6, 8), t(10, 8), g(2, 8), g(10, 2)),
    2 * 6 * (80 + 16 + 20),
    2 * 6 * (80 + 2 * 16 + 2 * 20),
)
case("LoRA, first layer", lambda: call(lora, t(6, 8), t(10, 8), g(2, 8), g(10, 2)), 2 * 6 * 116, 2 * 6 * (16 + 2 * 20))


def experts(x, w, ends):
    return F.grouped_mm(x, w, offs=ends) * 2


if hasattr(F, "grouped_mm"):
    case(
        "grouped_mm",
        lambda: call(
            experts,
            g(8, 16, dtype=torch.bfloat16),
            g(3, 16, 24, dtype=torch.bfloat16),
            torch.tensor([2, 2, 8], dtype=torch.int32),
        ),
        2 * 8 * 16 * 24,
        4 * 8 * 16 * 24,
    )

# -- distances ---------------------------------------------------------------------------------------------------

case("cdist of few rows", lambda: call(torch.cdist, t(2, 6, 5), t(2, 7, 5)), 2 * 2 * 6 * 7 * 5)
case("cdist of many rows", lambda: call(torch.cdist, t(40, 5), t(30, 5)), 2 * 40 * 30 * 5)
case("cdist with p = 1", lambda: call(torch.cdist, t(40, 5), t(30, 5), p=1.0), 2 * 40 * 30 * 5)

# -- convolutions ------------------------------------------------------------------------------------------------

case("conv1d", lambda: call(nn.Conv1d(3, 5, 4, stride=2), g(2, 3, 16)), 2 * 2 * 5 * 7 * 3 * 4, 4 * 2 * 5 * 7 * 3 * 4)
case("conv2d", lambda: call(nn.Conv2d(3, 5, 3, padding=1), g(2, 3, 8, 9)), 2 * 2 * 5 * 72 * 3 * 9, 4 * 2 * 5 * 72 * 27)
case(
    "conv2d, first layer",
    lambda: call(nn.Conv2d(3, 5, 3, padding=1), t(2, 3, 8, 9)),
    2 * 2 * 5 * 72 * 27,
    2 * 2 * 5 * 72 * 27,
)
case("conv3d", lambda: call(nn.Conv3d(2, 4, 3), g(1, 2, 5, 6, 7)), 2 * 4 * 60 * 2 * 27, 4 * 4 * 60 * 54)
case("conv2d, unbatched", lambda: call(nn.Conv2d(3, 5, 3), g(3, 8, 8)), 2 * 5 * 36 * 27, 4 * 5 * 36 * 27)
case("conv2d, empty batch", lambda: call(nn.Conv2d(3, 5, 3), g(0, 3, 8, 8)), 0, 0)
case(
    "conv2d, groups",
    lambda: call(nn.Conv2d(6, 9, 3, groups=3), g(2, 6, 8, 8)),
    2 * 2 * 9 * 36 * 2 * 9,
    4 * 2 * 9 * 36 * 18,
)
case(
    "conv2d, depthwise",
    lambda: call(nn.Conv2d(6, 6, 3, groups=6), g(2, 6, 8, 8)),
    2 * 2 * 6 * 36 * 9,
    4 * 2 * 6 * 36 * 9,
)
case(
    "conv2d, multiplier 2",
    lambda: call(nn.Conv2d(6, 12, 3, groups=6), g(2, 6, 8, 8)),
    2 * 2 * 12 * 36 * 9,
    4 * 2 * 12 * 36 * 9,
)
case(
    "conv2d, dilation", lambda: call(nn.Conv2d(3, 5, 3, dilation=2), g(1, 3, 8, 9)), 2 * 5 * 4 * 5 * 27, 4 * 5 * 20 * 27
)
case(
    "conv2d, stride",
    lambda: call(nn.Conv2d(3, 5, (3, 2), stride=(2, 3)), g(1, 3, 8, 9)),
    2 * 5 * 9 * 18,
    4 * 5 * 9 * 18,
)
case("conv2d, 1 × 1", lambda: call(nn.Conv2d(3, 5, 1), g(2, 3, 8, 8)), 2 * 2 * 5 * 64 * 3, 4 * 2 * 5 * 64 * 3)
case(
    "conv2d, same, even kernel",
    lambda: call(nn.Conv2d(3, 5, 4, padding="same"), g(1, 3, 8, 8)),
    2 * 5 * 64 * 48,
    4 * 5 * 64 * 48,
)
case(
    "conv1d, same, dilated",
    lambda: call(nn.Conv1d(3, 5, 4, padding="same", dilation=3), g(1, 3, 16)),
    2 * 5 * 16 * 12,
    4 * 5 * 16 * 12,
)
case(
    "conv1d, circular",
    lambda: call(nn.Conv1d(3, 5, 3, padding=1, padding_mode="circular"), g(2, 3, 16)),
    2 * 2 * 5 * 16 * 9,
    4 * 2 * 5 * 16 * 9,
)
case(
    "conv2d, channels last",
    lambda: call(nn.Conv2d(3, 5, 3), t(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)),
    2 * 2 * 5 * 36 * 27,
    2 * 2 * 5 * 36 * 27,
)
case(
    "conv2d, complex",
    lambda: call(nn.Conv2d(3, 5, 3, bias=False, dtype=C64), t(1, 3, 8, 8, dtype=C64)),
    8 * 5 * 36 * 27,
    8 * 5 * 36 * 27,
    executed=3 / 4,
)  # torch makes three real ones of it, not four
case(
    "conv2d, bfloat16",
    lambda: call(nn.Conv2d(3, 5, 3, dtype=torch.bfloat16), g(1, 3, 8, 8, dtype=torch.bfloat16)),
    2 * 5 * 36 * 27,
    4 * 5 * 36 * 27,
)
case(
    "transposed 1-D",
    lambda: call(nn.ConvTranspose1d(3, 5, 4, stride=2), g(2, 3, 9)),
    2 * 2 * 3 * 9 * 5 * 4,
    4 * 2 * 3 * 9 * 20,
)
case(
    "transposed 2-D",
    lambda: call(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), g(2, 4, 5, 5)),
    2 * 2 * 4 * 25 * 3 * 9,
    4 * 2 * 4 * 25 * 27,
)
case(
    "transposed 3-D",
    lambda: call(nn.ConvTranspose3d(2, 3, 2, dilation=2), g(1, 2, 3, 3, 3)),
    2 * 2 * 27 * 3 * 8,
    4 * 2 * 27 * 24,
)
case(
    "unfold and a product",
    lambda: call(lambda x, w: w @ F.unfold(x, 3), t(2, 3, 8, 8), g(5, 27)),
    2 * 2 * 5 * 27 * 36,
    2 * 2 * 5 * 27 * 36,
)
case("conv_tbc", lambda: call(torch.conv_tbc, t(9, 2, 3), t(4, 3, 5), t(5)), 2 * 6 * 2 * 5 * 3 * 4)
case(
    "batch norm, pool, relu",
    lambda: call(nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)), g(2, 3, 8, 8)),
    0,
    0,
)

# -- recurrent cells and layers: gates · (inputs + hidden) a step -------------------------------------------------

case(
    "LSTM cell", lambda: call(nn.LSTMCell(4, 6), t(3, 4), (g(3, 6), g(3, 6))), 2 * 3 * 24 * 10, 2 * 3 * 24 * (4 + 2 * 6)
)
case("GRU cell", lambda: call(nn.GRUCell(4, 6), g(3, 4), g(3, 6)), 2 * 3 * 18 * 10, 4 * 3 * 18 * 10)
case("RNN cell", lambda: call(nn.RNNCell(4, 6), g(3, 4), g(3, 6)), 2 * 3 * 6 * 10, 4 * 3 * 6 * 10)
case("LSTM", lambda: call(nn.LSTM(4, 6), g(5, 3, 4), (g(1, 3, 6), g(1, 3, 6))), 2 * 15 * 24 * 10, 4 * 15 * 24 * 10)
case(
    "LSTM, two layers, two directions",
    lambda: call(
        nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True), g(3, 5, 4), (g(4, 3, 6), g(4, 3, 6))
    ),
    2 * 15 * 2 * 24 * (10 + 18),
    4 * 15 * 2 * 24 * (10 + 18),
)
case(
    "LSTM with a projection",
    lambda: call(nn.LSTM(4, 6, proj_size=2), g(5, 3, 4), (g(1, 3, 2), g(1, 3, 6))),
    2 * 15 * (24 * (4 + 2) + 6 * 2),
    4 * 15 * (24 * (4 + 2) + 6 * 2),
)
case("GRU", lambda: call(nn.GRU(4, 6), g(5, 3, 4), g(1, 3, 6)), 2 * 15 * 18 * 10, 4 * 15 * 18 * 10)
case("RNN", lambda: call(nn.RNN(4, 6, nonlinearity="tanh"), g(5, 3, 4), g(1, 3, 6)), 2 * 15 * 6 * 10, 4 * 15 * 6 * 10)
case(
    "RNN with relu, unbatched",
    lambda: call(nn.RNN(4, 6, nonlinearity="relu"), g(5, 4), g(1, 6)),
    2 * 5 * 60,
    4 * 5 * 60,
)
case(
    "LSTM, packed",
    lambda: call(
        lambda m, p: m(p)[0].data, nn.LSTM(4, 6), nn.utils.rnn.pack_padded_sequence(t(5, 2, 4), torch.tensor([5, 2]))
    ),
    2 * 7 * 24 * 10,
    2 * 7 * 24 * 10 + 2 * 5 * 24 * 6,
    ways=REAL,
)

# -- Fourier transforms: 5·N·log₂N each ---------------------------------------------------------------------------

case("fft of 8", lambda: call(torch.fft.fft, t(3, 8, dtype=C64)), 3 * 5 * 8 * 3)
case("fft of 2", lambda: call(torch.fft.fft, t(3, 2, dtype=C64)), 3 * 10)  # one butterfly
case("fft of 1", lambda: call(torch.fft.fft, t(3, 1, dtype=C64)), 0)
case("rfft of 8", lambda: call(torch.fft.rfft, g(3, 8)), 3 * 120, 3 * 120)
case("irfft to 8", lambda: call(torch.fft.irfft, t(3, 5, dtype=C64)), 3 * 120)
case("fft of 12", lambda: call(torch.fft.fft, t(12, dtype=C64)), 216)  # 5·12·3.58496… = 215.098: nearest even 216
case("fft of 9", lambda: call(torch.fft.fft, t(9, dtype=C64)), 142)  # 5·9·3.169925 = 142.65: nearest even 142
case("fft2 of 4 × 8", lambda: call(torch.fft.fft2, t(4, 8, dtype=C64)), 5 * 32 * 5)
case("fft of padded input", lambda: call(torch.fft.fft, t(3, 5, dtype=C64), n=8), 3 * 120)

# -- linear algebra, by the leading order -------------------------------------------------------------------------


def spd(n, batch=1):
    return torch.eye(n).expand(batch, n, n) * 2


case("cholesky", lambda: call(torch.linalg.cholesky, spd(6, 4)), 4 * 72)  # n³/3
case("cholesky, odd", lambda: call(torch.linalg.cholesky, spd(5, 4)), 4 * 42)  # 125/3 = 41.67: nearest even 42
case("lu", lambda: call(torch.linalg.lu_factor, spd(6, 4)), 4 * 144)  # 2n³/3
case("solve", lambda: call(torch.linalg.solve, spd(6, 4), t(4, 6, 5)), 4 * (144 + 2 * 36 * 5))  # 2n³/3 + 2n²·k
case("inv", lambda: call(torch.linalg.inv, spd(6, 4)), 4 * 432)  # 2n³
case(
    "triangular solve", lambda: call(torch.linalg.solve_triangular, spd(6, 4), t(4, 6, 5), upper=True), 4 * 36 * 5
)  # n²·k
case("det", lambda: call(torch.linalg.det, spd(6, 4)), 4 * 144)
case("singular values", lambda: call(torch.linalg.svdvals, t(4, 6, 6)), 4 * 576)  # 4·m·n² − 4n³/3, without vectors
case("eigenvalues of a symmetric one", lambda: call(torch.linalg.eigvalsh, spd(6, 4)), 4 * 288)  # 4n³/3
case("cov", lambda: call(torch.cov, t(4, 9)), 2 * 4 * 4 * 9, ways=REAL)
case("corrcoef", lambda: call(torch.corrcoef, t(4, 9)), 2 * 4 * 4 * 9, ways=REAL)

# -- sparse ------------------------------------------------------------------------------------------------------

case("sparse × dense", lambda: call(torch.sparse.mm, torch.eye(6).to_sparse(), t(6, 5)), 2 * 6 * 5, ways=REAL)
case(
    "dense × sparse, backward",
    lambda: call(torch.sparse.mm, torch.eye(6).to_sparse(), g(6, 5)),
    2 * 6 * 5,
    2 * 6 * 5,
    ways=("cpu", "no_grad"),
)
case("csr × vector", lambda: call(torch.mv, torch.eye(6).to_sparse_csr(), t(6)), 2 * 6, ways=REAL)


# fmt: on
# -- running them ------------------------------------------------------------------------------------------------


def floats(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [x for part in result for x in floats(part)]


def differentiate(result):
    wanted = [x for x in floats(result) if x.requires_grad]
    if wanted:
        sum((torch.view_as_real(x) if x.is_complex() else x).sum() for x in wanted).backward()


@pytest.mark.filterwarnings("ignore:.*in beta state", "ignore:.*even kernel lengths", "ignore:LSTM with projections")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_flops(name, way):
    build, forward, backward, ways, executed = CASES[name]
    if way not in ways:
        pytest.skip("its result depends on the data")
    with made(way):
        run = build()
        with counted(way) as report:
            result = run()
            if learns(way) and backward is not None:
                differentiate(result)
    assert report.uncounted == [] and report.coverage == 1
    whole = forward + backward * learns(way)
    assert report.model_flops == whole
    assert (report.forward.flops, report.backward.flops) == (forward * executed, (whole - forward) * executed)
    assert report.hardware_flops == report.forward.flops + report.backward.flops + report.recompute.flops
    assert type(report.model_flops) is int and report.macs * 2 == report.flops
    exact = report.under(fk.conventions.EXACT)
    assert (exact.model_flops, exact.hardware_flops) == (report.model_flops, report.hardware_flops)
