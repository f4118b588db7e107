"""The counting scalar, and that the naive algorithms compute the right thing (torch, in float64, is asked)."""

import random
import re
from pathlib import Path

import altair
import numpy
import pytest
import sympy
import torch
import torch.nn.functional as F
from formulas import FORMULAS

import flopkit as fk
from flopkit import tally
from flopkit.layers.pointwise import ACTIVATIONS
from flopkit.tally import Tally, contraction, counting, elementwise, numbers


def tensors(counted):
    """The inputs of a run as tensors; whole numbers stay whole."""
    return {
        name: torch.tensor(values) if name in ("ids", "answers") else torch.tensor(values, dtype=torch.float64)
        for name, values in counted.inputs.items()
    }


def check(counted, right):
    torch.testing.assert_close(torch.tensor(counted.output, dtype=torch.float64), right, rtol=1e-12, atol=1e-12)


# -- the scalar -----------------------------------------------------------------------------------------------


def test_each_operation_is_written_once():
    x, y = Tally(3.0), Tally(2.0)
    with counting() as ledger:
        results = [
            x + y,
            x - y,
            x * y,
            x / y,
            1 - x,
            1 / x,
            x > y,
            x >= 3,
            x < 1,
            x <= y,
            x == y,
            x.exp(),
            x.sqrt(),
            x**3,
        ]
    assert [r.value if isinstance(r, Tally) else r for r in results][:11] == [
        5,
        1,
        6,
        1.5,
        -2,
        1 / 3,
        True,
        True,
        False,
        False,
        False,
    ]
    assert (ledger.adds, ledger.subtracts, ledger.multiplies, ledger.divides) == (1, 2, 3, 2)
    assert (ledger.comparisons, ledger.exponentials, ledger.square_roots) == (5, 1, 1)
    assert ledger.operations == 15


def test_what_is_free():
    with counting() as ledger:
        -Tally(3)
        sum([Tally(1)])
        2 + 3
        numbers(4)
    assert ledger.operations == 0


def test_nothing_is_counted_outside_a_block():
    with counting() as ledger:
        Tally(1) + 1
    Tally(1) + 1
    assert ledger.operations == 1


def test_blocks_nest_and_each_counts():
    with counting() as outer:
        Tally(1) + 1
        with counting() as inner:
            Tally(1) * 2
        Tally(1) / 2
    assert (outer.operations, inner.operations) == (3, 1)


def test_a_block_closes_after_an_error():
    with pytest.raises(ZeroDivisionError), counting() as ledger:
        Tally(1) / 0
    Tally(1) + 1
    assert ledger.operations == 1


@pytest.mark.parametrize("length", [2, 3, 7])
def test_a_dot_product_by_hand_is_recognised(length):
    """However the sum is written, K products that go into it are K multiply-adds."""
    x, y = numbers(length, seed=1), numbers(length, seed=2)

    def from_the_first():
        total = x[0] * y[0]
        for a, b in zip(x[1:], y[1:], strict=True):
            total = total + a * b

    def from_zero():
        total = Tally(0)
        for a, b in zip(x, y, strict=True):
            total = a * b + total

    def by_sum():
        sum(a * b for a, b in zip(x, y, strict=True))

    def by_halves(low=0, high=length):
        if high - low == 1:
            return x[low] * y[low]
        middle = (low + high) // 2
        return by_halves(low, middle) + by_halves(middle, high)

    for way in (from_the_first, from_zero, by_sum, by_halves):
        with counting() as ledger:
            way()
        assert (ledger.macs, ledger.vector_flops) == (length, 0), way.__name__
        assert ledger.adds == (length if way is from_zero else length - 1)


def test_what_is_no_contraction():
    with counting() as ledger:
        y = [a * 2 for a in numbers(4)]  # a product that goes into no sum
        y = [a + 1 for a in numbers(4)]  # a sum that takes up no product
        sum(y)
    assert (ledger.macs, ledger.vector_flops) == (0, 11)
    with counting() as ledger:
        x = numbers(4)
        biased = sum(a * b for a, b in zip(x, x, strict=True)) + x[0]
    assert (ledger.macs, ledger.vector_flops) == (4, 1), biased


def test_said_what_for():
    with counting() as ledger:
        with contraction("router"):
            Tally(2) * 3
        with elementwise("softmax"):
            Tally(2) * 3 + 1
    assert ledger.macs_by_kind == {"router": 1} and ledger.vector_by_kind == {"softmax": 2}


def test_numpy_arrays_of_tally_numbers_are_counted():
    a, b = numpy.array(numbers(3, 4, seed=1)), numpy.array(numbers(4, 2, seed=2))
    with counting() as ledger:
        numpy.exp(a @ b)
    assert (ledger.macs, ledger.flops, ledger.exponentials) == (24, 48, 6)


def test_math_functions_do_not_swallow_a_tally_silently():
    import math

    with pytest.raises(TypeError):
        math.exp(Tally(1))


@pytest.mark.parametrize("power", [0, -1, 0.5])
def test_unsupported_powers_say_what_to_do(power):
    with pytest.raises(TypeError, match=f"power={power}.*sqrt"):
        Tally(2) ** power


def test_it_prints_what_a_student_can_read():
    text = str(tally.matmul(m=5, k=3, n=7))
    assert "multiplications" in text and "105" in text and "70" in text and "210 FLOPs" in text
    page = tally.dense(tokens=1, d_in=2, d_out=2, bias=True)._repr_html_()
    assert "<table" in page and "2 vector FLOPs" in page
    assert "no arithmetic" in str(tally.embedding(tokens=1, vocab=2, d_model=2))


def test_sizes_too_large_to_count_by_hand_are_refused():
    with pytest.raises(ValueError, match="choose smaller sizes"):
        tally.matmul(m=4096, k=4096, n=4096)
    with pytest.raises(ValueError, match="closed form"), counting() as ledger:
        ledger._limit = 10
        sum(numbers(100))


# -- the values -----------------------------------------------------------------------------------------------


def test_matmul_values():
    counted = tally.matmul(m=2, k=3, n=4, batch=2)
    given = tensors(counted)
    check(counted, given["a"] @ given["b"])


@pytest.mark.parametrize("bias", [False, True])
def test_dense_values(bias):
    counted = tally.dense(tokens=3, d_in=4, d_out=2, bias=bias)
    given = tensors(counted)
    check(counted, F.linear(given["x"], given["weight"], given.get("bias")))


CONVS = [
    ("conv1d", dict(l_out=4, kernel=3, padding=2, dilation=2)),
    ("conv2d", dict(h_out=3, w_out=4, kernel=(3, 2), stride=(2, 1), padding=(1, 0))),
    ("conv2d", dict(h_out=2, w_out=2, kernel=3, groups=2, stride=2, dilation=2, padding=1, bias=True)),
    ("conv3d", dict(d_out=2, h_out=2, w_out=3, kernel=2, groups=2)),
]


@pytest.mark.parametrize(("name", "sizes"), CONVS)
def test_convolution_values(name, sizes):
    counted = getattr(tally, name)(batch=2, c_in=4, c_out=6, **sizes)
    rest = {k: sizes[k] for k in ("groups", "stride", "dilation", "padding") if k in sizes}
    given = tensors(counted)
    check(counted, getattr(F, name)(given["x"], given["weight"], given.get("bias"), **rest))


def test_convolution_of_a_given_input():
    counted = tally.conv1d(batch=1, c_in=1, c_out=1, l_out=3, l_in=8, kernel=3, stride=2)  # the last position is unused
    given = tensors(counted)
    check(counted, F.conv1d(given["x"], given["weight"], stride=2))
    with pytest.raises(ValueError, match="l_in=4 does not give l_out=3: pass 7"):
        tally.conv1d(batch=1, c_in=1, c_out=1, l_out=3, l_in=4, kernel=3, stride=2)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("conv_transpose1d", dict(l_in=3, kernel=3, stride=2)),
        ("conv_transpose2d", dict(h_in=3, w_in=2, kernel=(2, 3), stride=(3, 1), padding=1, groups=2, bias=True)),
        ("conv_transpose2d", dict(h_in=2, w_in=2, kernel=3, dilation=2, groups=2)),
        ("conv_transpose3d", dict(d_in=2, h_in=1, w_in=2, kernel=2, groups=2)),
    ],
)
def test_transposed_convolution_values(name, sizes):
    counted = getattr(tally, name)(batch=2, c_in=4, c_out=6, **sizes)
    rest = {k: sizes[k] for k in ("groups", "stride", "dilation", "padding") if k in sizes}
    given = tensors(counted)
    check(counted, getattr(F, name)(given["x"], given["weight"], given.get("bias"), **rest))


def sees(q, kv, mask):
    """The mask as torch wants it, from its definition."""
    rows, columns = torch.arange(q)[:, None] + kv - q, torch.arange(kv)[None]
    if mask == "full":
        return torch.ones(q, kv, dtype=torch.bool)
    return (columns <= rows) & (columns > rows - getattr(mask, "width", kv + q))


@pytest.mark.parametrize("mask", ["full", "causal", fk.window(2)], ids=str)
@pytest.mark.parametrize(("q", "kv"), [(3, 3), (1, 4), (2, 5)])
def test_attention_values(q, kv, mask):
    """Shared key-value heads, and values of another size than keys."""
    counted = tally.attention(batch=2, q=q, kv=kv, heads=4, head_dim=3, kv_heads=2, v_head_dim=5, mask=mask)
    given = tensors(counted)
    right = F.scaled_dot_product_attention(
        given["q"], given["k"], given["v"], attn_mask=sees(q, kv, mask), enable_gqa=True
    )
    check(counted, right)


def test_multi_head_attention_values():
    counted = tally.multi_head_attention(batch=2, q=3, kv=3, d_model=8, heads=2, qkv_bias=True, out_bias=True)
    given = tensors(counted)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([given["wq"], given["wk"], given["wv"]]))
        layer.in_proj_bias.copy_(torch.cat([given["bq"], given["bk"], given["bv"]]))
        layer.out_proj.weight.copy_(given["wo"])
        layer.out_proj.bias.copy_(given["bo"])
        check(counted, layer(given["x"], given["x"], given["x"])[0])


@pytest.mark.parametrize(("q", "kv", "kv_new"), [(1, 4, None), (2, 3, 3)])
def test_a_cache_and_another_sequence(q, kv, kv_new):
    """Decoding with a cache, and cross-attention; two key-value heads for four query heads."""
    counted = tally.multi_head_attention(
        batch=2, q=q, kv=kv, d_model=8, heads=4, kv_heads=2, kv_new=kv_new, mask="causal"
    )
    given = tensors(counted)
    fresh = given["x"] if kv_new is None else given["memory"]

    def split(rows, heads):
        return rows.unflatten(-1, (heads, 2)).transpose(1, 2)

    keys, values = fresh @ given["wk"].T, fresh @ given["wv"].T
    if kv_new is None:
        keys, values = torch.cat([given["k_cache"], keys], 1), torch.cat([given["v_cache"], values], 1)
    mixed = F.scaled_dot_product_attention(
        split(given["x"] @ given["wq"].T, 4), split(keys, 2), split(values, 2), sees(q, kv, "causal"), enable_gqa=True
    )
    check(counted, mixed.transpose(1, 2).flatten(2) @ given["wo"].T)


def turned(x, positions):
    """Rotary embedding as transformers does it: x·cos + rotate_half(x)·sin."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10_000 ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


@pytest.mark.parametrize("form", ["expanded", "absorbed"])
@pytest.mark.parametrize("q_lora", [None, 3])
@pytest.mark.parametrize(("q", "kv"), [(3, 3), (1, 3)])
def test_mla_values(q, kv, q_lora, form):
    sizes = dict(heads=2, kv_lora=4, qk_nope=3, qk_rope=2, v_head_dim=5)
    counted = tally.mla(batch=2, q=q, kv=kv, d_model=6, q_lora=q_lora, form=form, **sizes)
    given = tensors(counted)
    eps = tally.normalisations.EPSILON
    x = given["x"]
    queries = (
        x @ given["q_proj"].T
        if q_lora is None
        else F.rms_norm(x @ given["q_down"].T, (3,), given["q_norm"], eps) @ given["q_up"].T
    )
    nope, rope = queries.unflatten(-1, (2, 5)).transpose(1, 2).split([3, 2], -1)
    latents, rope_keys = (x @ given["kv_down"].T).split([4, 2], -1)
    latents = F.rms_norm(latents, (4,), given["kv_norm"], eps)
    rope_keys = turned(rope_keys, torch.arange(kv - q, kv))
    if kv > q:
        latents, rope_keys = torch.cat([given["latents"], latents], 1), torch.cat([given["rope_keys"], rope_keys], 1)
    keys = torch.einsum("btl,hnl->bhtn", latents, given["key_up"])
    values = torch.einsum("btl,hvl->bhtv", latents, given["value_up"])
    keys = torch.cat([keys, rope_keys[:, None].expand(-1, 2, -1, -1)], -1)
    queries = torch.cat([nope, turned(rope, torch.arange(kv - q, kv))], -1)
    mixed = F.scaled_dot_product_attention(queries, keys, values, sees(q, kv, "causal"))
    check(counted, mixed.transpose(1, 2).flatten(2) @ given["out"].T)


ALGORITHMS = [("recurrent", 64), ("chunked", 2), ("chunked", 3), ("chunked", 8)]


@pytest.mark.parametrize(("algorithm", "chunk"), ALGORITHMS)
def test_gated_delta_values(algorithm, chunk):
    """Yang et al. 2024, equation 10, as it is printed: S(α(1 − βkkᵀ)) + βvkᵀ; and the last chunk is not full."""
    counted = tally.gated_delta(
        batch=2, seq=5, heads=4, k_dim=3, v_dim=2, k_heads=2, algorithm=algorithm, chunk=chunk
    )  # fmt: skip
    given = tensors(counted)
    q, k = (given[name].repeat_interleave(2, 1) for name in "qk")
    state, right = torch.zeros(2, 4, 2, 3, dtype=torch.float64), []
    for t in range(5):
        decay, weight = (given[name][:, :, t, None, None] for name in ("decay", "weight"))
        key, value = k[:, :, t, None, :], given["v"][:, :, t, :, None]
        state = state @ (decay * (torch.eye(3, dtype=torch.float64) - weight * key.mT @ key)) + weight * value @ key
        right.append((state @ q[:, :, t, :, None])[..., 0] / 3**0.5)
    check(counted, torch.stack(right, 2))


@pytest.mark.parametrize(("algorithm", "chunk"), ALGORITHMS)
def test_state_space_values(algorithm, chunk):
    """Dao and Gu 2024, equation 2: a decay and an input for each token, in two groups of two heads."""
    counted = tally.state_space(
        batch=2, seq=5, heads=4, head_dim=3, state=2, groups=2, algorithm=algorithm, chunk=chunk
    )  # fmt: skip
    given = tensors(counted)
    b, c = (given[name].repeat_interleave(2, 1) for name in "bc")
    state, right = torch.zeros(2, 4, 3, 2, dtype=torch.float64), []
    for t in range(5):
        decay, step = (given[name][:, :, t, None, None] for name in ("decay", "step"))
        state = decay * state + step * given["x"][:, :, t, :, None] @ b[:, :, t, None, :]
        right.append((state @ c[:, :, t, :, None])[..., 0])
    check(counted, torch.stack(right, 2))


def test_selective_scan_values():
    """Gu and Dao 2023, equation 2, with a decay for each number of a state."""
    counted = tally.selective_scan(batch=2, seq=5, channels=3, state=2)
    given = tensors(counted)
    state, right = torch.zeros(2, 3, 2, dtype=torch.float64), []
    for t in range(5):
        step = given["step"][:, :, t, None]
        state = torch.exp(step * given["a"]) * state + step * given["b"][:, None, t] * given["x"][:, :, t, None]
        right.append((state * given["c"][:, None, t]).sum(-1))
    check(counted, torch.stack(right, 2))


@pytest.mark.parametrize("gated", [True, False])
def test_moe_values(gated):
    counted = tally.moe(tokens=4, d_model=3, d_ff=5, experts=6, top_k=2, shared=1, gated=gated)
    given = tensors(counted)

    def expert(rows, e):
        hidden = rows @ given["up"][e].T
        hidden = F.silu(rows @ given["gate"][e].T) * hidden if gated else F.silu(hidden)
        return hidden @ given["down"][e].T

    chances, chosen = (given["x"] @ given["router"].T).softmax(-1).topk(2)
    right = torch.stack([expert(row, 6) for row in given["x"]])
    for i, row in enumerate(given["x"]):
        for chance, e in zip(chances[i] / chances[i].sum(), chosen[i], strict=True):
            right[i] += chance * expert(row, e)
    check(counted, right)


@pytest.mark.parametrize("capacity", [0.5, 1, 3])
def test_moe_drops_what_comes_late(capacity):
    """Of the tokens that choose an expert the first fill its rows: ceil(capacity · 7 · 2 / 4) of them."""
    counted = tally.moe(tokens=7, d_model=3, d_ff=5, experts=4, top_k=2, capacity=capacity)
    given = tensors(counted)
    rows = {0.5: 2, 1: 4, 3: 11}[capacity]
    assert counted.macs_by_kind["products"] == 4 * rows * 3 * 3 * 5
    chances, chosen = (given["x"] @ given["router"].T).softmax(-1).topk(2)
    right, filled = torch.zeros_like(given["x"]), [0] * 4
    for i, row in enumerate(given["x"]):
        for chance, e in zip(chances[i] / chances[i].sum(), chosen[i].tolist(), strict=True):
            filled[e] += 1
            if filled[e] <= rows:
                hidden = F.silu(row @ given["gate"][e].T) * (row @ given["up"][e].T)
                right[i] += chance * (hidden @ given["down"][e].T)
    assert (max(filled) > rows) == (capacity < 3)
    check(counted, right)


def oai(gate, up):
    """As transformers' gpt-oss has it."""
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return (up + 1) * (gate * torch.sigmoid(gate * 1.702))


TORCH_ACTIVATIONS = {
    "relu": F.relu, "relu6": F.relu6, "leaky_relu": F.leaky_relu, "relu2": lambda x: F.relu(x) ** 2,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish,
    "swiglu": lambda gate, up: F.silu(gate) * up, "geglu": lambda gate, up: F.gelu(gate) * up,
    "geglu_tanh": lambda gate, up: F.gelu(gate, approximate="tanh") * up, "reglu": lambda gate, up: F.relu(gate) * up,
    "swiglu_clamped": lambda gate, up: F.silu(gate.clamp(max=10)) * up.clamp(-10, 10), "swiglu_oai": lambda gate, up: oai(gate, up),
}  # fmt: skip


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activation_values(kind):
    counted = tally.activation(kind, elements=9)
    check(counted, TORCH_ACTIVATIONS[kind](*tensors(counted).values()))


def test_pointwise_values():
    soft, added = tally.softmax(rows=2, columns=5), tally.residual(elements=4)
    check(soft, tensors(soft)["x"].softmax(-1))
    check(added, sum(tensors(added).values()))
    scaled, dropped = tally.scale(elements=4, by=0.25), tally.dropout(elements=20, p=0.25)
    check(scaled, tensors(scaled)["x"] * 0.25)
    given = tensors(dropped)
    check(dropped, given["x"] * (given["chance"] > -0.5) / 0.75)
    loss = tally.cross_entropy(tokens=3, vocab=5)
    check(loss, F.cross_entropy(tensors(loss)["logits"], tensors(loss)["answers"]))


@pytest.mark.parametrize(("weight", "bias"), [(True, True), (True, False), (False, False)])
def test_norm_values(weight, bias):
    eps = tally.normalisations.EPSILON
    layer = tally.layer_norm(tokens=3, d=5, weight=weight, bias=bias)
    given = tensors(layer)
    check(layer, F.layer_norm(given["x"], (5,), given.get("weight"), given.get("bias"), eps))
    rms = tally.rms_norm(tokens=3, d=5, weight=weight)
    given = tensors(rms)
    check(rms, F.rms_norm(given["x"], (5,), given.get("weight"), eps))
    group = tally.group_norm(batch=2, channels=4, positions=3, groups=2, affine=weight)
    given = tensors(group)
    check(group, F.group_norm(given["x"], 2, given.get("weight"), given.get("bias"), eps))
    batch = tally.batch_norm(batch=2, channels=4, positions=3, affine=weight)
    given = tensors(batch)
    check(
        batch,
        F.batch_norm(
            given["x"], given["running_mean"], given["running_var"], given.get("weight"), given.get("bias"), eps=eps
        ),
    )


def test_batch_norm_in_training():
    counted = tally.batch_norm(batch=2, channels=4, positions=3, training=True)
    given = tensors(counted)
    mean, variance = given["running_mean"], given["running_var"]
    y = F.batch_norm(
        given["x"], mean, variance, given["weight"], given["bias"], training=True, eps=tally.normalisations.EPSILON
    )
    for name, right in {"y": y, "running_mean": mean, "running_var": variance}.items():
        torch.testing.assert_close(
            torch.tensor(counted.output[name], dtype=torch.float64), right, rtol=1e-12, atol=1e-12
        )


def test_embedding_values():
    looked_up = tally.embedding(tokens=4, vocab=5, d_model=3)
    given = tensors(looked_up)
    check(looked_up, F.embedding(given["ids"], given["table"]))
    learned = tally.learned_positions(batch=2, seq=3, positions=5, d_model=4)
    given = tensors(learned)
    check(learned, given["x"] + given["table"][:3])
    fixed = tally.sinusoidal_positions(batch=2, seq=3, d_model=4)
    given = tensors(fixed)
    check(fixed, given["x"] + given["table"])
    assert given["table"][2, :2].tolist() == [torch.tensor(2.0).double().sin(), torch.tensor(2.0).double().cos()]
    turning = tally.rotary(batch=2, seq=3, heads=2, head_dim=4)
    x = tensors(turning)["x"].transpose(1, 2)
    check(turning, turned(x, torch.arange(3)).transpose(1, 2))


def test_pooling_values():
    sizes = dict(batch=2, channels=2, h_out=3, w_out=2, kernel=3, stride=2, padding=1)
    largest, mean = tally.max_pool2d(**sizes), tally.avg_pool2d(**sizes)
    check(largest, F.max_pool2d(tensors(largest)["x"], 3, 2, 1))
    check(mean, F.avg_pool2d(tensors(mean)["x"], 3, 2, 1))


def test_the_values_of_every_algorithm_are_compared_above():
    called = {formula.function.__name__ for formula in FORMULAS.values()}
    source = Path(__file__).read_text("utf8")
    tried = {name for name in called if re.search(rf"\btally\.{name}\(|^ +\(\"{name}\", ", source, re.M)}
    assert called == tried, "what torch computes there is not asked"


@pytest.mark.parametrize("name", FORMULAS)
def test_an_algorithm_runs_on_numbers(name):
    """A sweep, a symbol and a parameter are refused by name, and not taken for a number on the way."""
    sizes = FORMULAS[name].draw(random.Random(1), 3)
    for make in (
        lambda key: numpy.array([1, 1]),
        lambda key: sympy.Symbol(key, positive=True, integer=True),
        lambda key: altair.param(name=key, value=1),
    ):
        for wrong in sizes:
            arguments = {key: make(key) if key == wrong else value for key, value in sizes.items()}
            if "window" in arguments:
                arguments["mask"] = fk.window(arguments.pop("window"))
            with pytest.raises(
                TypeError, match=f"^{'width' if wrong == 'window' else wrong}=.*not a sweep or a symbol"
            ):
                getattr(tally, FORMULAS[name].function.__name__)(*FORMULAS[name].args, **arguments)


@pytest.mark.parametrize("p", [-7, 1, 2.0, True, "0.5", float("nan")])
def test_a_probability_is_one(p):
    with pytest.raises(ValueError, match="must be a probability from 0 to below 1"):
        tally.dropout(elements=4, p=p)
