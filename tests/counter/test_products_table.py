"""A table of small programs with matrix products, and the FLOPs that they take, by hand.

A row is a program (made on a device, then run), what its forward pass takes, and what its backward pass takes; each runs with and
without gradients, on the CPU, on meta and with fake tensors.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import REAL, WAYS, Table, call, g, t
from torch import nn

import flopkit as fk

TABLE = Table()
case = TABLE.case
C64 = torch.complex64


# fmt: off
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
case("matmul of an expanded one", lambda: call(lambda a, b: a.expand(6, 4, 5) @ b, g(1, 4, 5), g(6, 5, 7)), 1680, 2 * 1680)
case("matmul of transposed ones", lambda: call(lambda a, b: a.t() @ b.t(), g(5, 3), g(7, 5)), 210, 420)
case("matmul, nothing inside", lambda: call(torch.matmul, g(3, 0), g(0, 5)), 0, 0)
case("matmul, empty batch", lambda: call(torch.matmul, g(0, 3, 5), g(0, 5, 7)), 0, 0)
case("matrix_power 5", lambda: call(torch.linalg.matrix_power, t(4, 4), 5), 3 * 2 * 4**3)
case("multi_dot", lambda: call(torch.linalg.multi_dot, [t(2, 9), t(9, 3), t(3, 8)]), 2 * 2 * 9 * 3 + 2 * 2 * 3 * 8)
case("chain_matmul of four", lambda: call(lambda a, b: a @ b @ b.t() @ a.t(), t(2, 3), t(3, 4)), 48 + 48 + 2 * 2 * 3 * 2)
case("einsum ij,jk", lambda: call(torch.einsum, "ij,jk->ik", g(3, 5), g(5, 7)), 210, 420)
case("einsum bhqd,bhkd", lambda: call(torch.einsum, "bhqd,bhkd->bhqk", g(2, 3, 4, 5), g(2, 3, 6, 5)), 1440, 2880)
case("einsum with a sum", lambda: call(torch.einsum, "ij,jk->", t(3, 5), t(5, 7)), 2 * 5)  # both are summed to a vector first
case("einsum of three", lambda: call(torch.einsum, "ab,bc,cd->ad", t(2, 3), t(3, 4), t(4, 5)), 2 * (24 + 40))
case("einsum, no contraction", lambda: call(torch.einsum, "ij,ij->ij", t(3, 5), t(3, 5)), 0)
case("einsum trace", lambda: call(torch.einsum, "ii->", t(4, 4)), 0)
case("tensordot", lambda: call(torch.tensordot, g(2, 3, 4, 5), g(4, 5, 6), 2), 2 * 6 * 20 * 6, 4 * 6 * 20 * 6)
case("kron", lambda: call(torch.kron, t(2, 3), t(4, 5)), 0)
case("cov", lambda: call(torch.cov, t(4, 9)), 2 * 4 * 4 * 9, ways=REAL)
case("corrcoef", lambda: call(torch.corrcoef, t(4, 9)), 2 * 4 * 4 * 9, ways=REAL)
case("complex mm", lambda: call(torch.mm, g(3, 5, dtype=C64), g(5, 7, dtype=C64)), 8 * 105, 16 * 105)
case("complex bmm", lambda: call(torch.bmm, t(2, 3, 5, dtype=C64), t(2, 5, 7, dtype=C64)), 8 * 210)
case("bfloat16", lambda: call(torch.mm, g(3, 5, dtype=torch.bfloat16), g(5, 7, dtype=torch.bfloat16)), 210, 420)
case("float16", lambda: call(torch.mm, g(3, 5, dtype=torch.half), g(5, 7, dtype=torch.half)), 210, 420)
case("float64", lambda: call(torch.mm, g(3, 5, dtype=torch.double), g(5, 7, dtype=torch.double)), 210, 420)
case("integers", lambda: call(torch.mm, torch.ones(3, 5, dtype=torch.int64), torch.ones(5, 7, dtype=torch.int64)), 210)
case("int8", lambda: call(torch._int_mm, torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 24, dtype=torch.int8)), 2 * 32 * 16 * 24)
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
case("tied weights", lambda: call(lambda e, i: F.linear(e(i), e.weight), nn.Embedding(11, 4), torch.zeros(6, dtype=torch.long)), 2 * 6 * 4 * 11, 4 * 6 * 4 * 11)
case("embedding", lambda: call(nn.Embedding(11, 4), torch.zeros(6, dtype=torch.long)), 0, 0)
case("embedding bag", lambda: call(nn.EmbeddingBag(11, 4), torch.zeros(6, 3, dtype=torch.long)), 0, 0)


def lora(x, w, a, b):
    return F.linear(x, w) + F.linear(F.linear(x, a), b)


case("LoRA", lambda: call(lora, g(6, 8), t(10, 8), g(2, 8), g(10, 2)), 2 * 6 * (80 + 16 + 20), 2 * 6 * (80 + 2 * 16 + 2 * 20))
case("LoRA, first layer", lambda: call(lora, t(6, 8), t(10, 8), g(2, 8), g(10, 2)), 2 * 6 * 116, 2 * 6 * (16 + 2 * 20))


def experts(x, w, ends):
    return F.grouped_mm(x, w, offs=ends) * 2


if hasattr(F, "grouped_mm"):
    case("grouped_mm", lambda: call(experts, g(8, 16, dtype=torch.bfloat16), g(3, 16, 24, dtype=torch.bfloat16), torch.tensor([2, 2, 8], dtype=torch.int32)),
         2 * 8 * 16 * 24, 4 * 8 * 16 * 24)
# fmt: on


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TABLE)
def test_flops(name, way):
    TABLE.check(name, way)


def test_counts_beyond_64_bits_are_exact():
    n = 10**7 + 1
    a = torch.empty(n, n, device="meta")
    report = fk.count(lambda: a @ a)
    assert report.flops == report.model_flops == 2 * n**3 > 2**63
    assert type(report.flops) is type(report.macs) is type(report.bytes) is int
    assert report.bytes == 4 * 2 * n * n  # the same matrix twice is read once
    assert "2 ZFLOPs of the model" in repr(report)
