"""The backward pass by cases. Truth: gradients computed one multiply-add at a time, then a program that is counted as it runs."""

import itertools
import random

import numpy
import pytest
import sympy
import vega

import flopkit as fk
from flopkit.arithmetic import vega as expression_of
from flopkit.tally import contraction, counting, elementwise, numbers

torch = pytest.importorskip("torch")

CONVENTIONS = (fk.conventions.EXACT, fk.conventions.TORCH, fk.conventions.FVCORE)
SWITCHES = [dict(zip(("input", "weight", "bias"), on, strict=True)) for on in itertools.product((0, 1), repeat=3)]


# -- one multiply-add at a time ---------------------------------------------------------------------------------


def zeros(*shape):
    return [zeros(*shape[1:]) for _ in range(shape[0])] if shape else 0


def tensor(values):
    return torch.tensor(
        numpy.vectorize(lambda one: float(getattr(one, "value", one)))(numpy.array(values, dtype=object))
    )


@pytest.mark.parametrize("sizes", [(3, 4, 5), (1, 2, 6), (7, 1, 1)])
def test_dense_one_multiply_add_at_a_time(sizes):
    tokens, d_in, d_out = sizes
    x, w, dy = (numbers(*shape, seed=i) for i, shape in enumerate([(tokens, d_in), (d_in, d_out), (tokens, d_out)]))
    dx, dw, db = zeros(tokens, d_in), zeros(d_in, d_out), zeros(d_out)
    ledgers = {}
    with counting() as ledgers["input"], contraction():
        for i, j, k in itertools.product(range(tokens), range(d_in), range(d_out)):
            dx[i][j] = dx[i][j] + dy[i][k] * w[j][k]
    with counting() as ledgers["weight"], contraction():
        for i, j, k in itertools.product(range(tokens), range(d_in), range(d_out)):
            dw[j][k] = dw[j][k] + x[i][j] * dy[i][k]
    for i, k in itertools.product(range(tokens), range(d_out)):
        db[k] = db[k] + dy[i][k]
    inputs = [tensor(one).requires_grad_() for one in (x, w)]
    b = torch.zeros(d_out, dtype=inputs[0].dtype, requires_grad=True)
    right = torch.autograd.grad(inputs[0] @ inputs[1] + b, [*inputs, b], tensor(dy))
    for found, gradient in zip((dx, dw, db), right, strict=True):
        assert torch.allclose(tensor(found), gradient)
    sizes = {"tokens": tokens, "d_in": d_in, "d_out": d_out}
    assert fk.training.dense_backward(**sizes).flops == sum(ledger.flops for ledger in ledgers.values())
    assert fk.training.dense_backward(**sizes, weight=False).flops == ledgers["input"].flops
    assert fk.training.dense_backward(**sizes, input=False).flops == ledgers["weight"].flops
    assert fk.training.dense_backward(**sizes, bias=True).vector_flops == tokens * d_out


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolution_one_multiply_add_at_a_time(groups):
    """Each multiply-add of the forward pass comes back twice, taps on padding included, whatever the groups."""
    batch, c_in, c_out, side, kernel = 2, 4, 4, 3, 3
    x = numbers(batch, c_in, side + 2, side + 2, seed=1)  # one row and column of padding on each side
    w, dy = numbers(c_out, c_in // groups, kernel, kernel, seed=2), numbers(batch, c_out, side, side, seed=3)
    dx, dw = zeros(batch, c_in, side + 2, side + 2), zeros(c_out, c_in // groups, kernel, kernel)
    with counting() as ledger, contraction():
        for n, o, i, j in itertools.product(range(batch), range(c_out), range(side), range(side)):
            first = o // (c_out // groups) * (c_in // groups)
            for c, a, b in itertools.product(range(c_in // groups), range(kernel), range(kernel)):
                g = dy[n][o][i][j]
                dx[n][first + c][i + a][j + b] = dx[n][first + c][i + a][j + b] + g * w[o][c][a][b]
                dw[o][c][a][b] = dw[o][c][a][b] + g * x[n][first + c][i + a][j + b]
    inputs = [tensor(one).requires_grad_() for one in (x, w)]
    right = torch.autograd.grad(torch.nn.functional.conv2d(*inputs, groups=groups), inputs, tensor(dy))
    assert torch.allclose(tensor(dx), right[0]) and torch.allclose(tensor(dw), right[1])
    sizes = {
        "batch": batch,
        "c_in": c_in,
        "c_out": c_out,
        "h_out": side,
        "w_out": side,
        "kernel": kernel,
        "groups": groups,
    }
    assert fk.training.conv2d_backward(**sizes).flops == ledger.flops == 2 * fk.conv2d(**sizes).flops
    assert fk.training.conv2d_backward(**sizes, bias=True).vector_flops == batch * c_out * side * side


def attention_by_hand(mask, d, dv, length=4):
    """One head, forward and back, pair by pair: the gradients, and what a math and a flash kernel had to do."""
    seen = [[j for j in range(length) if mask == "full" or j <= i] for i in range(length)]
    q, k, v = numbers(length, d, seed=1), numbers(length, d, seed=2), numbers(length, dv, seed=3)
    do = numbers(length, dv, seed=4)
    scale = d**-0.5
    gone = {name: zeros(length, width) for name, width in (("q", d), ("k", d), ("v", dv))}
    with counting() as again:
        with contraction("scores"):
            scores = [
                {j: sum((q[i][f] * k[j][f] for f in range(1, d)), q[i][0] * k[j][0]) for j in seen[i]}
                for i in range(length)
            ]
        with elementwise("scores"):
            top = [max(one.value for one in row.values()) for row in scores]
            sums = [
                sum(numpy.exp((one.value - top[i]) * scale) for one in row.values()) for i, row in enumerate(scores)
            ]
            p = [
                {j: (one * scale - (top[i] * scale + float(numpy.log(sums[i])))).exp() for j, one in row.items()}
                for i, row in enumerate(scores)
            ]
    with counting() as math:
        with contraction("scores"):
            dp = [{j: zeros() for j in seen[i]} for i in range(length)]
            for i in range(length):
                for j in seen[i]:
                    for f in range(dv):
                        gone["v"][j][f] = gone["v"][j][f] + p[i][j] * do[i][f]
                        dp[i][j] = dp[i][j] + do[i][f] * v[j][f]
        with elementwise("scores"):
            ds = []
            for i in range(length):
                total = 0.0
                for j in seen[i]:
                    total = p[i][j] * dp[i][j] + total
                ds.append({j: p[i][j] * (dp[i][j] - total) * scale for j in seen[i]})
        with contraction("scores"):
            for i in range(length):
                for j in seen[i]:
                    for f in range(d):
                        gone["q"][i][f] = gone["q"][i][f] + ds[i][j] * k[j][f]
                        gone["k"][j][f] = gone["k"][j][f] + ds[i][j] * q[i][f]
    inputs = [tensor(one).requires_grad_() for one in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*(t[None, None] for t in inputs), is_causal=mask == "causal")
    right = torch.autograd.grad(out, inputs, tensor(do)[None, None])
    for found, gradient in zip(gone.values(), right, strict=True):
        assert torch.allclose(tensor(found), gradient)
    return math, again


@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize(("d", "dv"), [(3, 3), (4, 2)])
def test_attention_pair_by_pair(mask, d, dv):
    math, again = attention_by_hand(mask, d, dv)
    sizes = {"batch": 1, "q": 4, "kv": 4, "heads": 1, "head_dim": d, "v_head_dim": dv, "mask": mask}
    kept, flash = fk.training.attention_backward(**sizes, kernel="math"), fk.training.attention_backward(**sizes)
    assert kept.flops == math.flops == 2 * fk.attention(**sizes).flops
    assert kept.vector_flops == math.vector_flops
    gradients, scores = flash.parts
    assert gradients.flops == kept.flops
    assert (scores.flops, scores.vector_flops) == (again.flops, again.vector_flops)
    # dO·O instead of P·dP gives the sum of a row: a multiply and an add for each output, not for each pair
    pairs = fk.visible_pairs(4, 4, mask)
    assert gradients.vector_flops == math.vector_flops - 2 * pairs + 2 * 4 * dv


def in_two_passes(mask, d, dv, length=4):
    """One head, back as FlexAttention's kernel does it: a loop over queries for dQ, a loop over keys for dK and dV, nothing shared."""
    q, k, v = numbers(length, d, seed=1), numbers(length, d, seed=2), numbers(length, dv, seed=3)
    do = numbers(length, dv, seed=4)
    inputs = [tensor(one).requires_grad_() for one in (q, k, v)]
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1) & (mask == "causal")
    scores = (inputs[0] @ inputs[1].T * d**-0.5).masked_fill(hidden, -torch.inf)
    out = scores.softmax(-1) @ inputs[2]
    # Handed over by the forward pass and by a kernel before this one; the sum of a row is charged by itself.
    logsum, row_sum = scores.logsumexp(-1).tolist(), (out * tensor(do)).sum(-1).tolist()

    def again(i, j):
        with contraction("scores"):
            score, dp = q[i][0] * k[j][0], do[i][0] * v[j][0]
            for f in range(1, d):
                score = score + q[i][f] * k[j][f]
            for f in range(1, dv):
                dp = dp + do[i][f] * v[j][f]
        with elementwise("scores"):
            p = (score * d**-0.5 - logsum[i]).exp()
            return p, p * (dp - row_sum[i]) * d**-0.5

    gone = {name: zeros(length, width) for name, width in (("q", d), ("k", d), ("v", dv))}
    seen = [(i, j) for i in range(length) for j in range(length) if mask == "full" or j <= i]
    with counting() as ledger:
        for i, j in seen:
            _, ds = again(i, j)
            with contraction("scores"):
                for f in range(d):
                    gone["q"][i][f] = gone["q"][i][f] + ds * k[j][f]
        for j, i in sorted((j, i) for i, j in seen):
            p, ds = again(i, j)
            with contraction("scores"):
                for f in range(dv):
                    gone["v"][j][f] = gone["v"][j][f] + p * do[i][f]
                for f in range(d):
                    gone["k"][j][f] = gone["k"][j][f] + ds * q[i][f]
    for found, gradient in zip(gone.values(), torch.autograd.grad(out, inputs, tensor(do)), strict=True):
        assert torch.allclose(tensor(found), gradient)
    return ledger


@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize(("d", "dv"), [(3, 3), (4, 2)])
def test_attention_in_two_passes(mask, d, dv):
    ledger = in_two_passes(mask, d, dv)
    sizes = {"batch": 1, "q": 4, "kv": 4, "heads": 1, "head_dim": d, "v_head_dim": dv, "mask": mask}
    flex = fk.training.attention_backward(**sizes, kernel="flex")
    assert flex.flops == ledger.flops
    assert flex.vector_flops == ledger.vector_flops + 2 * 4 * dv  # and dO·O, a multiply and an add for each output
    assert flex.parts[0] == fk.training.attention_backward(**sizes).parts[0]


def test_the_gradients_of_hidden_rows_are_written():
    """Two queries, the last of ten positions, each seeing three keys: four rows of K and V are read, ten of dK and dV written."""
    q = torch.ones(1, 1, 2, 4, dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.ones(1, 1, 10, 4, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    back = torch.tensor([[8 + i - j for j in range(10)] for i in range(2)])
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=(back >= 0) & (back < 3))
    gradients = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    rows = [int((one != 0).any(-1).sum()) for one in gradients]
    assert rows[2] == 4  # the rest of dV is zeros
    read = q.nbytes + 2 * rows[2] * 4 * 2 + 2 * out.nbytes
    written = sum(one.nbytes for one in gradients)
    sizes = {"batch": 1, "q": 2, "kv": 10, "heads": 1, "head_dim": 4, "mask": fk.window(3)}
    assert fk.training.attention_backward(**sizes).bytes == read + written == 288


# -- a program that runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SWITCHES, ids=str)
def test_a_dense_layer_of_torch(case):
    layer = torch.nn.Linear(5, 7, bias=bool(case["bias"]))
    layer.weight.requires_grad_(bool(case["weight"]))
    x = torch.ones(3, 5, requires_grad=bool(case["input"]))
    if not any(case.values()):
        return
    y = layer(x)
    report = fk.count(lambda: y.backward(torch.ones_like(y)))
    ours = fk.training.dense_backward(tokens=3, d_in=5, d_out=7, dtype="fp32", **case)
    assert report.backward.flops == ours.flops
    products = [row for row in report.by_op() if row["operator"] in ("mm", "sum")]
    assert sum(row["bytes"] for row in products) == ours.bytes


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("case", SWITCHES[1:], ids=str)
def test_a_convolution_of_torch(case, groups):
    layer = torch.nn.Conv2d(6, 6, 3, padding=1, groups=groups, bias=bool(case["bias"]))
    layer.weight.requires_grad_(bool(case["weight"]))
    y = layer(torch.ones(2, 6, 4, 5, requires_grad=bool(case["input"])))
    report = fk.count(lambda: y.backward(torch.ones_like(y)))
    ours = fk.training.conv2d_backward(
        batch=2, c_in=6, c_out=6, h_out=4, w_out=5, kernel=3, groups=groups, dtype="fp32", **case
    )
    assert report.backward.flops == ours.flops
    assert report.backward.vector_flops == ours.vector_flops
    read_once = 4 * y.numel() * (sum(case.values()) - 1)  # one operator makes all three gradients
    [row] = [row for row in report.by_op() if row["operator"] == "convolution_backward"]
    assert row["bytes"] == ours.bytes - read_once


@pytest.mark.parametrize("kernel", ["flash", "math"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_torch(kernel, causal):
    q, k, v = (torch.ones(2, 3, 8, d, requires_grad=True) for d in (4, 4, 4))
    with fk.counting(attention=kernel) as report:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        out.backward(torch.ones_like(out))
    ours = fk.training.attention_backward(
        batch=2, q=8, kv=8, heads=3, head_dim=4, mask="causal" if causal else "full", kernel=kernel, dtype="fp32"
    )
    rows = {row["phase"]: row for row in report.by_op() if row["operator"] == "scaled_dot_product_attention"}
    del rows["forward"]
    parts = dict(zip(("backward", "recompute"), ours.under(fk.conventions.TORCH).parts, strict=False))
    assert rows.keys() == parts.keys()
    for phase, part in parts.items():
        found = rows[phase]
        assert (found["flops"], found["vector_flops"], found["bytes"]) == (part.flops, part.vector_flops, part.bytes)
    if kernel == "flash":  # it skips what is hidden
        exact = report.under(fk.conventions.EXACT)
        assert exact.hardware_flops - exact.forward.flops == ours.flops


# -- the four readings ------------------------------------------------------------------------------------------

QUANTITIES = ("flops", "macs", "vector_flops", "bytes")
DRAWN = {
    "dense_backward": (fk.training.dense_backward, ("tokens", "d_in", "d_out"), ({}, {"bias": True}, {"input": False}, {"weight": False})),
    "conv2d_backward": (
        fk.training.conv2d_backward, ("batch", "h_out", "w_out", "kernel", "stride"),
        ({"c_in": 6, "c_out": 4, "groups": 2}, {"c_in": 3, "c_out": 5, "bias": True, "input": False}),
    ),
    "attention_backward": (
        fk.training.attention_backward, ("batch", "q", "kv", "heads", "head_dim", "v_head_dim"),
        ({}, {"mask": "causal"}, {"mask": "causal", "kernel": "math"}, {"mask": "causal", "kernel": "flex"}, {"mask": fk.window(3)}),
    ),
    "adam_step": (fk.training.adam_step, ("params",), ({}, {"weight_decay": False}, {"precision": "bf16"})),
}  # fmt: skip
READ = [(name, variant) for name, (_, _, variants) in DRAWN.items() for variant in variants]


def read(cost):
    return [getattr(cost.under(one), quantity) for one in CONVENTIONS for quantity in QUANTITIES]


@pytest.mark.parametrize(("name", "variant"), READ, ids=[f"{name} {variant}" for name, variant in READ])
def test_one_formula_four_readings(name, variant):
    import altair

    function, sizes, _ = DRAWN[name]
    rng = random.Random(name)
    rows = [{size: rng.randint(1, 30) for size in sizes} for _ in range(4)]
    exact = [read(function(**row, **variant)) for row in rows]
    assert all(type(value) is int for values in exact for value in values)
    arrays = read(function(**{size: numpy.array([row[size] for row in rows]) for size in sizes}, **variant))
    symbols = {size: sympy.Symbol(size, positive=True, integer=True) for size in sizes}
    formulas = read(function(**symbols, **variant))
    drawn = read(function(**{size: altair.param(name=size, value=1) for size in sizes}, **variant))
    for place, (row, values) in enumerate(zip(rows, exact, strict=True)):
        put = {symbols[size]: n for size, n in row.items()}
        assert [numpy.broadcast_to(one, len(rows))[place] for one in arrays] == values
        assert [sympy.sympify(one).subs(put) for one in formulas] == values
        assert [vega.evaluate(expression_of(one), row) for one in drawn] == values


@pytest.mark.parametrize("case", SWITCHES, ids=str)
def test_a_switch_may_be_a_parameter(case):
    import altair

    sizes = {"tokens": 3, "d_in": 4, "d_out": 5}
    cost = fk.training.dense_backward(**sizes, **{name: altair.param(name=name, value=1) for name in case})
    switches = {name: sympy.Symbol(name, integer=True) for name in case}
    symbols = fk.training.dense_backward(**sizes, **switches)
    exact = fk.training.dense_backward(**sizes, **case)
    for quantity in QUANTITIES:
        right = getattr(exact, quantity)
        assert vega.evaluate(expression_of(getattr(cost, quantity)), case) == right
        assert (
            sympy.sympify(getattr(symbols, quantity)).subs({switches[name]: on for name, on in case.items()}) == right
        )


# -- laws, and bad input ----------------------------------------------------------------------------------------


def test_three_products_over_the_same_three_tensors():
    sizes = {"tokens": 12, "d_in": 30, "d_out": 7}
    forward, backward = fk.dense(**sizes), fk.training.dense_backward(**sizes)
    assert [(part.flops, part.bytes) for part in backward.parts] == 2 * [(forward.flops, forward.bytes)]
    assert backward.params == 0
    tokens, d_in, d_out = sizes.values()
    by_hand = fk.matmul(m=tokens, k=d_out, n=d_in) + fk.matmul(m=d_in, k=tokens, n=d_out)
    assert (backward.flops, backward.bytes) == (by_hand.flops, by_hand.bytes)


def test_grouped_heads_save_bytes_only():
    sizes = {"batch": 1, "q": 16, "kv": 16, "heads": 8, "head_dim": 4}
    alone, shared = fk.training.attention_backward(**sizes), fk.training.attention_backward(**sizes, kv_heads=2)
    assert alone.flops == shared.flops and alone.bytes > shared.bytes


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: fk.training.dense_backward(tokens=0, d_in=1, d_out=1), ValueError, "tokens=0"),
        (lambda: fk.training.dense_backward(tokens=1, d_in=1, d_out=1, input="yes"), TypeError, "input='yes'"),
        (
            lambda: fk.training.conv2d_backward(batch=1, c_in=4, c_out=4, h_out=1, w_out=1, kernel=1, groups=3),
            ValueError,
            "groups=3",
        ),
        (
            lambda: fk.training.attention_backward(batch=1, q=1, kv=1, heads=1, head_dim=1, kernel="cudnn"),
            ValueError,
            "kernel='cudnn'",
        ),
        (
            lambda: fk.training.attention_backward(batch=1, q=1, kv=1, heads=1, head_dim=1, mask="left"),
            ValueError,
            "mask='left'",
        ),
    ],
)
def test_bad_input(call, error, said):
    with pytest.raises(error, match=said.replace("(", "\\(")):
        call()


def test_the_gradient_of_a_complex_bias_adds_two_numbers_each():
    layer = dict(tokens=3, d_in=4, d_out=5, bias=True)
    assert [fk.training.dense_backward(**layer, dtype=dtype).vector_flops for dtype in ("fp32", "complex64")] == [
        3 * 5,
        2 * 3 * 5,
    ]


def test_the_math_kernel_s_backward_reads_every_row_too():
    sizes = dict(batch=1, q=4, kv=64, heads=2, head_dim=8)
    windowed, full = (
        fk.training.attention_backward(**sizes, mask=mask, kernel="math").bytes for mask in (fk.window(2), "full")
    )
    assert windowed == full == 2 * (2 * (4 + 64 + 64 + 4) * 8 * 2) + 7 * 2 * 4 * 64 * 2


def test_a_convolution_has_one_group_and_steps_by_one_unless_it_is_said():
    # 2 · outputs · taps · channels in, and as many for the weight: 2 · 2 (images·outputs) · 6 · 9 · 6 · 20
    assert fk.training.conv2d_backward(batch=2, c_in=6, c_out=6, h_out=4, w_out=5, kernel=3).flops == 2 * (
        2 * 2 * 20 * 6 * 9 * 6
    )
    one = {f"{axis}_out": 1 for axis in "hw"} | {f"{axis}_in": 4 for axis in "hw"}
    plain = fk.training.conv2d_backward(batch=1, c_in=1, c_out=1, kernel=4, **one)  # taps without gaps fill the input
    assert plain.macs == 2 * 16
    with pytest.raises(ValueError, match="reaches over 7 positions"):
        fk.training.conv2d_backward(batch=1, c_in=1, c_out=1, kernel=4, dilation=2, **one)
    sides = fk.training.conv2d_backward(batch=1, c_in=1, c_out=1, h_out=4, w_out=4, kernel=1, dtype="int8")
    assert sides.bytes == 16 + 1 + 16 + 16 + 16 + 1  # dY, W, dX; X, dY, dW: as many positions in as out


@pytest.mark.parametrize(
    "how", [{"seq": 2048}, {"seq": 2048, "recompute": "full", "precision": "bf16"}, {"seq": 300_000}]
)
def test_the_largest_batch_fits_and_one_more_does_not(how):
    model, room = fk.load("llama-3.2-1b"), fk.device("h100-sxm").available
    found = fk.training.largest_batch(model, "h100-sxm", **how)
    assert model.train_memory(batch=found + 1, **how).peak > room
    assert (found == 0) == (how["seq"] == 300_000)
    assert not found or model.train_memory(batch=found, **how).peak <= room


def test_the_largest_batch_of_images_and_what_it_cannot_find():
    resnet = fk.load("resnet50")
    found = fk.training.largest_batch(resnet, "t4")
    assert (
        resnet.train_memory(batch=found).total <= fk.device("t4").available < resnet.train_memory(batch=found + 1).total
    )
    with pytest.raises(TypeError, match="batch=8: the batch is what largest_batch finds"):
        fk.training.largest_batch(resnet, "t4", batch=8)
    with pytest.raises(ValueError, match="memory is not known"):
        fk.training.largest_batch(resnet, fk.Device("mine", peak={"bf16": 1e12}, bandwidth=1e12))
