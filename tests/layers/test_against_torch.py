"""The layers as torch runs them: the same shapes, the same bytes, the same parameters.

The tensors are on the meta device, so sizes may be those of real models. torch.utils.flop_counter is compared with only
where it is known to be right (products, forward convolutions, attention that counts every pair).
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import flopkit as fk

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="meta")


def traffic(*tensors):
    """Bytes of tensors that are each moved once."""
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def moved(op, *inputs):
    """What an operator run by itself has to move: its inputs and its output."""
    return traffic(*inputs, op(*inputs))


def parameters(module):
    return sum(p.numel() for p in module.parameters())


# -- bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_of_products(dtype):
    kind = DTYPES[dtype]
    a, b = empty(2, 50, 30, dtype=kind), empty(2, 30, 70, dtype=kind)
    assert fk.matmul(m=50, k=30, n=70, batch=2, dtype=dtype).bytes == moved(torch.matmul, a, b)
    x, weight, bias = empty(6, 40, dtype=kind), empty(80, 40, dtype=kind), empty(80, dtype=kind)
    assert fk.dense(tokens=6, d_in=40, d_out=80, dtype=dtype).bytes == moved(F.linear, x, weight)
    assert fk.dense(tokens=6, d_in=40, d_out=80, bias=True, dtype=dtype).bytes == moved(F.linear, x, weight, bias)


@pytest.mark.parametrize("groups", [1, 4, 16])
@pytest.mark.parametrize("bias", [False, True])
def test_bytes_and_params_of_a_convolution(groups, bias):
    layer = nn.Conv2d(
        16, 32, (3, 5), stride=2, padding=1, groups=groups, bias=bias, device="meta", dtype=torch.bfloat16
    )
    x = empty(8, 16, 57, 64)
    y = layer(x)
    cost = fk.conv2d(
        batch=8, c_in=16, c_out=32, h_out=y.shape[2], w_out=y.shape[3], kernel=(3, 5), groups=groups, stride=2,
        h_in=57, w_in=64, bias=bias,
    )  # fmt: skip
    assert cost.bytes == traffic(x, *layer.parameters(), y)
    assert cost.params == parameters(layer)
    assert cost.vector_flops == (y.numel() if bias else 0)


@pytest.mark.parametrize("groups", [1, 4])
def test_bytes_and_params_of_a_transposed_convolution(groups):
    layer = nn.ConvTranspose2d(16, 32, 4, stride=2, padding=1, groups=groups, device="meta", dtype=torch.bfloat16)
    x = empty(8, 16, 7, 9)
    y = layer(x)
    cost = fk.conv_transpose2d(batch=8, c_in=16, c_out=32, h_in=7, w_in=9, kernel=4, groups=groups, stride=2, bias=True)
    assert tuple(y.shape[2:]) == (14, 18)  # input times stride, the default
    assert (cost.bytes, cost.params) == (traffic(x, *layer.parameters(), y), parameters(layer))


@pytest.mark.parametrize(("kv_heads", "v_head_dim"), [(8, 64), (2, 64), (1, 64)])
def test_bytes_of_attention(kv_heads, v_head_dim):
    q, k, v = empty(2, 8, 100, 64), empty(2, kv_heads, 300, 64), empty(2, kv_heads, 300, v_head_dim)
    sizes = dict(batch=2, q=100, kv=300, heads=8, head_dim=64, kv_heads=kv_heads)
    assert fk.attention(**sizes).bytes == moved(
        lambda *qkv: F.scaled_dot_product_attention(*qkv, enable_gqa=True), q, k, v
    )
    scores = empty(2, 8, 100, 300)
    assert fk.attention(**sizes, kernel="math").bytes == fk.attention(**sizes).bytes + 4 * traffic(scores)


def test_bytes_of_windowed_attention_are_those_of_the_rows_somebody_sees():
    for q, kv, w in [(1, 1000, 128), (100, 1000, 128), (500, 500, 128), (5, 3, 2)]:
        seen = {j for i in range(q) for j in range(kv) if kv - q + i - w < j <= kv - q + i}
        cost = fk.attention(batch=2, q=q, kv=kv, heads=8, head_dim=64, kv_heads=2, mask=fk.window(w))
        rows = len(seen) if q <= kv else min(kv, q + w - 1)
        assert cost.bytes == 2 * (2 * 2 * 8 * q * 64) + 2 * (2 * 2 * 2 * rows * 64), (q, kv, w)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("shifted", [False, True])
def test_bytes_and_params_of_norms(scaled, shifted):
    x, d, image = empty(6, 40), (40,), empty(3, 40, 7, 7)
    weight, bias = empty(40) if scaled else None, empty(40) if shifted else None
    layer = fk.layer_norm(tokens=6, d=40, weight=scaled, bias=shifted)
    assert layer.bytes == moved(lambda x, w, b: F.layer_norm(x, d, w, b), x, weight, bias)
    assert layer.params == 40 * (scaled + shifted)
    if not shifted:
        rms = fk.rms_norm(tokens=6, d=40, weight=scaled)
        assert (rms.bytes, rms.params) == (moved(lambda x, w: F.rms_norm(x, d, w), x, weight), 40 * scaled)
    if scaled == shifted:
        group = fk.group_norm(batch=3, channels=40, positions=49, groups=8, affine=scaled)
        assert group.bytes == moved(lambda x, w, b: F.group_norm(x, 8, w, b), image, weight, bias)
        batch = fk.batch_norm(batch=3, channels=40, positions=49, affine=scaled)
        mean, variance = empty(40), empty(40)
        running = moved(lambda *given: F.batch_norm(given[0], *given[1:]), image, mean, variance, weight, bias)
        assert batch.bytes == running
        in_training = fk.batch_norm(batch=3, channels=40, positions=49, affine=scaled, training=True)
        assert in_training.bytes == running + traffic(mean, variance)  # written back
        assert group.params == batch.params == in_training.params == 40 * (scaled + shifted)


def test_bytes_of_pointwise_work():
    x, y = empty(6, 40), empty(6, 40)
    assert fk.activation("gelu", elements=240).bytes == moved(F.gelu, x)
    for kind, gated in (
        ("swiglu", F.silu), ("geglu", F.gelu), ("geglu_tanh", F.gelu), ("reglu", F.relu), ("swiglu_clamped", F.silu), ("swiglu_oai", F.silu)
    ):  # fmt: skip
        assert fk.activation(kind, elements=240).bytes == moved(lambda gate, up, gated=gated: gated(gate) * up, x, y)
    assert fk.softmax(rows=6, columns=40).bytes == moved(lambda x: x.softmax(-1), x)
    assert fk.residual(elements=240).bytes == moved(torch.add, x, y)
    assert fk.scale(elements=240).bytes == moved(lambda x: x * 0.5, x)
    assert fk.dropout(elements=240).bytes == moved(lambda x: F.dropout(x, 0.1), x)
    logits, answers = empty(6, 40, dtype=torch.float32), empty(6, dtype=torch.int64)
    assert fk.cross_entropy(tokens=6, vocab=40, dtype="fp32").bytes == moved(F.cross_entropy, logits, answers)
    image = empty(3, 8, 11, 15)
    pooled = fk.max_pool2d(batch=3, channels=8, h_out=5, w_out=7, kernel=3, stride=2, h_in=11, w_in=15)
    assert pooled.bytes == moved(lambda x: F.max_pool2d(x, 3, 2), image)
    mean = fk.avg_pool2d(batch=3, channels=8, h_out=1, w_out=1, kernel=(11, 15))
    assert mean.bytes == moved(lambda x: F.adaptive_avg_pool2d(x, 1), image)


def test_bytes_of_embeddings():
    ids, table = empty(6, dtype=torch.int64), empty(1000, 40)
    rows = F.embedding(ids, table)
    assert fk.embedding(tokens=6, vocab=1000, d_model=40).bytes == traffic(ids, rows, rows)  # as many read as written
    x = empty(2, 6, 3, 40)
    assert fk.rotary(batch=2, seq=6, heads=3, head_dim=40).bytes == traffic(x, x, empty(6, 20), empty(6, 20))
    features = empty(2, 6, 40)
    learned = fk.learned_positions(batch=2, seq=6, positions=100, d_model=40)
    assert learned.bytes == moved(torch.add, features, empty(6, 40))


# -- parameters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "module"),
    [
        (fk.dense(tokens=1, d_in=40, d_out=80), nn.Linear(40, 80, bias=False, device="meta")),
        (fk.dense(tokens=1, d_in=40, d_out=80, bias=True), nn.Linear(40, 80, device="meta")),
        (fk.conv1d(batch=1, c_in=8, c_out=12, l_out=1, kernel=5, groups=4, bias=True), nn.Conv1d(8, 12, 5, groups=4, device="meta")),
        (fk.conv3d(batch=1, c_in=8, c_out=12, d_out=1, h_out=1, w_out=1, kernel=(1, 2, 3)), nn.Conv3d(8, 12, (1, 2, 3), bias=False, device="meta")),
        (fk.conv_transpose1d(batch=1, c_in=8, c_out=12, l_in=1, kernel=5, groups=4), nn.ConvTranspose1d(8, 12, 5, groups=4, bias=False, device="meta")),
        (fk.conv_transpose3d(batch=1, c_in=8, c_out=12, d_in=1, h_in=1, w_in=1, kernel=2), nn.ConvTranspose3d(8, 12, 2, bias=False, device="meta")),
        (fk.layer_norm(tokens=1, d=40), nn.LayerNorm(40, device="meta")),
        (fk.layer_norm(tokens=1, d=40, bias=False), nn.LayerNorm(40, bias=False, device="meta")),
        (fk.layer_norm(tokens=1, d=40, weight=False, bias=False), nn.LayerNorm(40, elementwise_affine=False, device="meta")),
        (fk.rms_norm(tokens=1, d=40), nn.RMSNorm(40, device="meta")),
        (fk.batch_norm(batch=1, channels=40, positions=1), nn.BatchNorm2d(40, device="meta")),
        (fk.batch_norm(batch=1, channels=40, positions=1, affine=False), nn.BatchNorm2d(40, affine=False, device="meta")),
        (fk.group_norm(batch=1, channels=40, positions=1, groups=8), nn.GroupNorm(8, 40, device="meta")),
        (fk.embedding(tokens=1, vocab=1000, d_model=40), nn.Embedding(1000, 40, device="meta")),
        (fk.multi_head_attention(batch=1, q=1, kv=1, d_model=48, heads=4, qkv_bias=True, out_bias=True), nn.MultiheadAttention(48, 4, device="meta")),
        (fk.multi_head_attention(batch=1, q=1, kv=1, d_model=48, heads=4), nn.MultiheadAttention(48, 4, bias=False, device="meta")),
    ],
    ids=lambda thing: thing.name if isinstance(thing, fk.Cost) else None,
)  # fmt: skip
def test_params(cost, module):
    assert cost.params == parameters(module)


# -- torch's own counter, where it is right ----------------------------------------------------------------------


def counted_by_torch(op, *inputs):
    with FlopCounterMode(display=False) as counter:
        op(*inputs)
    return counter.get_total_flops()


def test_torch_counts_the_same_products():
    assert fk.matmul(m=50, k=30, n=70, batch=2).flops == counted_by_torch(torch.bmm, empty(2, 50, 30), empty(2, 30, 70))
    dense = fk.dense(tokens=6, d_in=40, d_out=80, bias=True)
    assert dense.flops == counted_by_torch(F.linear, empty(6, 40), empty(80, 40), empty(80))


@pytest.mark.parametrize("groups", [1, 4, 16])
def test_torch_counts_the_same_forward_convolutions(groups):
    x, weight = empty(8, 16, 57, 64), empty(32, 16 // groups, 3, 3)
    cost = fk.conv2d(batch=8, c_in=16, c_out=32, h_out=29, w_out=32, kernel=3, groups=groups, stride=2)
    assert cost.flops == counted_by_torch(lambda *given: F.conv2d(*given, None, 2, 1, 1, groups), x, weight)


def test_torch_counts_the_same_transposed_convolutions():
    cost = fk.conv_transpose2d(batch=8, c_in=16, c_out=32, h_in=7, w_in=9, kernel=4, stride=2)
    assert cost.flops == counted_by_torch(
        lambda *given: F.conv_transpose2d(*given, None, 2, 1), empty(8, 16, 7, 9), empty(16, 32, 4, 4)
    )


@pytest.mark.parametrize("causal", [False, True])
def test_torch_counts_every_pair_of_attention(causal):
    """is_causal or not: this is the convention TORCH."""
    q = empty(2, 8, 100, 64)
    cost = fk.attention(batch=2, q=100, kv=100, heads=8, head_dim=64, mask="causal" if causal else "full")
    counted = counted_by_torch(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=causal), q)
    assert cost.under(fk.conventions.TORCH).flops == counted
    assert (cost.flops < counted) == causal


def test_the_gradient_of_a_convolution_to_its_input_is_a_transposed_convolution():
    """Ungrouped, where torch's counter is right: the whole backward is that and as much again for the weight."""
    x = empty(8, 16, 28, 28).requires_grad_()
    weight = empty(32, 16, 3, 3)  # a constant: only the gradient to the input runs
    y = F.conv2d(x, weight, padding=1)
    counted = counted_by_torch(lambda g: torch.autograd.grad(y, x, g), empty(*y.shape))
    back = fk.conv_transpose2d(batch=8, c_in=32, c_out=16, h_in=28, w_in=28, kernel=3)
    forward = fk.conv2d(batch=8, c_in=16, c_out=32, h_out=28, w_out=28, kernel=3)
    assert counted == back.flops == forward.flops
