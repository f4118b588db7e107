"""The element-wise layers of flopkit, and the counter running torch's: the same vector FLOPs and bytes, or the difference is said."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopkit as fk
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas import rule_for
from flopkit.layers.pointwise import ACTIVATIONS

WIDTHS = {"bf16": torch.bfloat16, "fp32": torch.float32}


def numbers(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


def counted(fn, *args, **kwargs):
    """Vector FLOPs and bytes of a call; nothing in it may be unknown."""
    with torch.no_grad():
        report = fk.count(fn, *args, strict=True, **kwargs)
    assert report.flops == 0
    return report.vector_flops, report.bytes


def formula(cost):
    return cost.vector_flops, cost.bytes


@pytest.mark.parametrize("dtype", WIDTHS)
def test_activations_that_torch_has_as_one_operator(dtype):
    x = numbers(6, 50, dtype=WIDTHS[dtype])
    torchs = {
        "relu": F.relu, "relu6": F.relu6, "leaky_relu": F.leaky_relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "silu": F.silu,
        "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish,
    }  # fmt: skip
    for kind, function in torchs.items():
        assert counted(function, x) == formula(fk.activation(kind, elements=300, dtype=dtype)), kind
    assert set(ACTIVATIONS) - set(torchs) == {
        "relu2", "quick_gelu", "swiglu", "geglu", "geglu_tanh", "reglu", "swiglu_clamped", "swiglu_oai"
    }  # fmt: skip


def test_activations_that_torch_has_not():
    """In two operators the number between them is written and read; the FLOPs are the same."""
    x, y = numbers(6, 50), numbers(6, 50)
    between = 2 * 300 * 4
    gated = {"swiglu": F.silu, "geglu": F.gelu, "geglu_tanh": lambda a: F.gelu(a, approximate="tanh"), "reglu": F.relu}
    for kind, inner in gated.items():
        cost = fk.activation(kind, elements=300, dtype="fp32")
        assert counted(lambda a, b, inner=inner: inner(a) * b, x, y) == (cost.vector_flops, cost.bytes + between)

    def clamped(a, b):
        return F.silu(a.clamp(max=10.0)) * b.clamp(-10.0, 10.0)

    def oai(a, b):
        g = a.clamp(max=7.0)
        return (b.clamp(-7.0, 7.0) + 1) * (g * torch.sigmoid(g * 1.702))

    for kind, written in (("swiglu_clamped", clamped), ("swiglu_oai", oai)):
        assert counted(written, x, y)[0] == fk.activation(kind, elements=300).vector_flops
    cost = fk.activation("quick_gelu", elements=300, dtype="fp32")
    assert counted(lambda a: F.silu(1.702 * a), x) == (cost.vector_flops, cost.bytes + between)
    cost = fk.activation("relu2", elements=300, dtype="fp32")
    assert counted(lambda a: F.relu(a).square(), x) == (cost.vector_flops, cost.bytes + between)


def test_glu_is_swiglu_without_the_multiplication_by_the_gate():
    assert counted(F.glu, numbers(6, 100)) == (4 * 300, 4 * (600 + 300))  # a·σ(b): exponential, add, divide, multiply


@pytest.mark.parametrize("dtype", WIDTHS)
def test_softmax_and_residual(dtype):
    x = numbers(6, 50, dtype=WIDTHS[dtype])
    assert counted(F.softmax, x, dim=-1) == formula(fk.softmax(rows=6, columns=50, dtype=dtype))
    assert counted(torch.add, x, numbers(6, 50, dtype=WIDTHS[dtype])) == formula(fk.residual(elements=300, dtype=dtype))


def test_scale():
    x = numbers(6, 50)
    assert counted(lambda x: x * 0.5, x) == formula(fk.scale(elements=300, dtype="fp32"))
    assert counted(torch.mul, x, numbers(6, 1)) == formula(fk.scale(elements=300, factors=6, dtype="fp32"))


@pytest.mark.parametrize("d", [50, 1])
@pytest.mark.parametrize("weight, bias", [(True, True), (True, False), (False, False)])
def test_layer_norm(weight, bias, d):
    layer = nn.LayerNorm(d, elementwise_affine=weight, bias=bias, device="meta")
    cost = fk.layer_norm(tokens=6, d=d, weight=weight, bias=bias, dtype="fp32")
    statistics = 2 * 6 * 4  # the kernel also writes each row's mean and reciprocal deviation, for a backward pass
    assert counted(layer, numbers(2, 3, d)) == (cost.vector_flops, cost.bytes + statistics)


@pytest.mark.parametrize("weight", [True, False])
def test_rms_norm(weight):
    """In six operators where torch has no kernel for it: square, mean, add, reciprocal root, and two products."""
    layer = nn.RMSNorm(50, elementwise_affine=weight, device="meta")
    cost = fk.rms_norm(tokens=6, d=50, weight=weight, dtype="fp32")
    whole, rows = 4 * 300, 4 * 6
    apart = (2 * whole) + (whole + rows) + 2 * rows + 2 * rows + (2 * whole + rows) + weight * (2 * whole + 4 * 50)
    assert counted(layer, numbers(2, 3, 50)) == (cost.vector_flops, apart)


@pytest.mark.skipif(not hasattr(torch.ops.aten, "_fused_rms_norm"), reason="torch has had the operator since 2.9")
@pytest.mark.parametrize("weight", [True, False])
def test_rms_norm_in_one_operator(weight):
    cost = fk.rms_norm(tokens=6, d=50, weight=weight, dtype="fp32")
    root = 6 * 4  # each row's reciprocal root is written, too, for a backward pass
    args = (numbers(2, 3, 50), [50], numbers(50) if weight else None, 1e-5)
    operator = (
        torch.ops.aten._fused_rms_norm.default
    )  # a kernel on CUDA alone: elsewhere torch takes it apart before anybody sees it
    work = rule_for(operator).own_kernel.formula(OpCall(operator, args, {}, (numbers(2, 3, 50), numbers(2, 3, 1))))
    assert (sum(work.vector.values()), work.bytes) == (cost.vector_flops, cost.bytes + root)


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_with_running_statistics(affine):
    layer = nn.BatchNorm2d(16, affine=affine, device="meta").eval()
    cost = fk.batch_norm(batch=2, channels=16, positions=35, affine=affine, dtype="fp32")
    assert counted(layer, numbers(2, 16, 5, 7)) == formula(cost)


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_in_training(affine):
    layer = nn.BatchNorm2d(16, affine=affine, device="meta").train()
    cost = fk.batch_norm(batch=2, channels=16, positions=35, affine=affine, training=True, dtype="fp32")
    tracked = (1, 16)  # num_batches_tracked += 1, an int64 that is read and written
    saved = 2 * 16 * 4  # mean and reciprocal deviation of each channel, for the backward pass
    assert counted(layer, numbers(2, 16, 5, 7)) == (cost.vector_flops + tracked[0], cost.bytes + tracked[1] + saved)


def test_batch_norm_in_training_without_running_statistics():
    layer = nn.BatchNorm1d(16, track_running_stats=False, device="meta").train()
    # 7 an element; a channel: two divisions for mean and variance, add epsilon, root, divide.
    assert counted(layer, numbers(30, 16)) == (7 * 480 + 5 * 16, 4 * (2 * 480 + 2 * 16 + 2 * 16))


@pytest.mark.parametrize("groups", [1, 4, 16])
def test_group_norm(groups):
    layer = nn.GroupNorm(groups, 16, device="meta")
    cost = fk.group_norm(batch=2, channels=16, positions=35, groups=groups, dtype="fp32")
    statistics = 2 * 2 * groups * 4
    assert counted(layer, numbers(2, 16, 5, 7)) == (cost.vector_flops, cost.bytes + statistics)


def test_dropout():
    """One operator where torch has a kernel of its own; its mask of bools is written, too."""
    cost = fk.dropout(elements=300, dtype="fp32")
    assert counted(torch.native_dropout, numbers(6, 50), 0.5, True) == (cost.vector_flops, cost.bytes + 300)
    # On the CPU: a mask of floats is drawn (written), divided by 1 − p (read, written), and multiplied with (two read, one written).
    vector, moved = counted(F.dropout, torch.ones(6, 50), 0.5, True)
    assert vector == cost.vector_flops and moved == 300 * 4 * (1 + 2 + 3)
    assert counted(F.dropout, numbers(6, 50), 0.5, False) == (0, 0)


def test_cross_entropy():
    """torch writes all log-probabilities, picks one of each row, and averages."""
    tokens, vocab = 6, 50
    cost = fk.cross_entropy(tokens=tokens, vocab=vocab, dtype="fp32")
    vector, moved = counted(
        F.cross_entropy, numbers(tokens, vocab), torch.empty(tokens, dtype=torch.int64, device="meta")
    )
    # The logarithm of a row's sum is subtracted from each logit, not from the right one alone; the maximum need not come back.
    assert vector == cost.vector_flops + tokens * vocab - 2 * tokens
    between = 4 * tokens * vocab  # log-probabilities, written
    picked = 4 * tokens  # read
    count = 4  # how many answers there were, for the backward pass
    assert moved == cost.bytes + between + picked + count


@pytest.mark.parametrize("kernel, stride, padding", [(3, 2, 1), (2, 2, 0), ((3, 5), (2, 1), (1, 2))])
def test_pooling(kernel, stride, padding):
    x = numbers(2, 3, 14, 16)
    y = F.avg_pool2d(x, kernel, stride, padding)
    sizes = dict(
        batch=2,
        channels=3,
        h_out=y.shape[2],
        w_out=y.shape[3],
        kernel=kernel,
        stride=stride,
        h_in=14,
        w_in=16,
        dtype="fp32",
    )
    ones = torch.ones(1, 1, 14, 16)
    padded = F.pad(ones, [padding] * 4 if isinstance(padding, int) else [padding[1]] * 2 + [padding[0]] * 2)
    # The formulas know of no padding: they count it as part of the image.
    outside = 6 * sum(
        int(F.avg_pool2d(image, kernel, stride, divisor_override=1).sum())
        for image in (torch.ones_like(padded), -padded)
    )
    assert (outside > 0) is (padding != 0)
    cost = fk.avg_pool2d(**sizes)
    assert counted(F.avg_pool2d, x, kernel, stride, padding) == (cost.vector_flops - outside, cost.bytes)
    cost = fk.max_pool2d(**sizes)
    positions = 8 * y.numel()  # of the maxima, as int64: the kernel writes them in any case
    assert counted(F.max_pool2d, x, kernel, stride, padding) == (cost.vector_flops - outside, cost.bytes + positions)


def test_global_average_pooling_is_a_mean():
    x = numbers(2, 3, 7, 7)
    cost = fk.avg_pool2d(batch=2, channels=3, h_out=1, w_out=1, kernel=7, h_in=7, w_in=7, dtype="fp32")
    assert counted(nn.AdaptiveAvgPool2d(1), x) == formula(cost)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_embedding(dtype):
    layer = nn.Embedding(1000, 32, device="meta", dtype=WIDTHS[dtype])
    tokens = torch.empty(2, 9, dtype=torch.int64, device="meta")
    assert counted(layer, tokens) == formula(fk.embedding(tokens=18, vocab=1000, d_model=32, dtype=dtype))


def test_learned_positions():
    """Added in an operator of its own, which reads the rows once for all sequences."""
    x, table = numbers(2, 9, 32), numbers(100, 32)
    cost = fk.learned_positions(batch=2, seq=9, positions=100, d_model=32, dtype="fp32")
    assert counted(lambda x, t: x + t[:9], x, table) == formula(cost)


def test_rotary():
    """Written out as programs do it: four products and a sum of whole halves, whose numbers in between are written and read."""
    batch, seq, heads, d = 2, 9, 4, 16
    x = numbers(batch, heads, seq, d)
    cos, sin = numbers(seq, d // 2), numbers(seq, d // 2)

    def turned(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    cost = fk.rotary(batch=batch, seq=seq, heads=heads, head_dim=d, dtype="fp32")
    half, table = 4 * x.numel() // 2, 4 * seq * d // 2
    products, sums, joined = 4 * (2 * half + table), 2 * 3 * half, 2 * (2 * half)
    assert counted(turned, x, cos, sin) == (cost.vector_flops, products + sums + joined)
