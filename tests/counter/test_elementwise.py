"""Vector FLOPs of operators that no layer of flopkit stands for: by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

import flopkit as fk
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas import registry, rule_for

META = torch.device("meta")


def numbers(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device=META)


def whole(*shape):
    return numbers(*shape, dtype=torch.int64)


def vector(fn, *args, **kwargs):
    with torch.no_grad():
        report = fk.count(fn, *args, strict=True, **kwargs)
    assert report.flops == 0
    return report.vector_flops


def backward(fn, *args):
    """Vector FLOPs of the backward pass alone, for a gradient that is given."""
    out = fn(*args)
    with fk.counting(strict=True) as report:
        torch.autograd.grad(out, [a for a in args if a.requires_grad], torch.empty_like(out))
    return report.backward.vector_flops


def by_hand(name, out, *args, **kwargs):
    """The work of an operator that no kernel here runs, given the tensors that it would get and return."""
    operator = getattr(torch.ops.aten, name).default
    work = registry.FORMULAS.get(f"aten::{name}") or rule_for(operator).formula
    return work(OpCall(operator, args, kwargs, out))


X, Y = numbers(4, 10), numbers(4, 10)


@pytest.mark.parametrize(
    "each, fn",
    [
        (1, lambda: X + Y), (1, lambda: X + 2), (2, lambda: torch.add(X, Y, alpha=3)), (1, lambda: torch.add(X, Y, alpha=1)),
        (1, lambda: 1 - X), (2, lambda: torch.sub(X, Y, alpha=0.5)), (1, lambda: X * Y), (1, lambda: X / 2),
        (2, lambda: torch.div(X, Y, rounding_mode="floor")), (2, lambda: X // 3), (4, lambda: X % 3), (0, lambda: -X), (0, lambda: X.abs()),
        (1, lambda: X.exp()), (1, lambda: X.sqrt()), (2, lambda: X.rsqrt()), (1, lambda: X**2), (1, lambda: X > 0), (1, lambda: X == Y),
        (3, lambda: (X > 0) & (Y > 0)), (2, lambda: X.clamp(0, 1)), (1, lambda: X.clamp(min=0)), (1, lambda: X.clamp(max=0)),
        (1, lambda: X.clamp_min(0)), (1, lambda: torch.maximum(X, Y)), (1, lambda: torch.max(X, Y)), (3, lambda: torch.lerp(X, Y, 0.3)),
        (2, lambda: torch.addcmul(X, X, Y)), (3, lambda: torch.addcmul(X, X, Y, value=0.1)), (3, lambda: torch.addcdiv(X, X, Y, value=-0.1)),
        (4, lambda: F.elu(X)), (5, lambda: F.softplus(X)), (4, lambda: F.mish(X)), (2, lambda: F.prelu(X, numbers(1))),
        (2, lambda: F.hardtanh(X)), (4, lambda: F.logsigmoid(X)), (1, lambda: torch.relu_(X)), (1, lambda: X.mul_(2)),
        (0, lambda: X.to(torch.float64)), (0, lambda: X.clone()), (0, lambda: torch.tril(X)),
        (0, lambda: X.masked_fill(numbers(4, 10, dtype=torch.bool), 0)), (0, lambda: torch.zeros_like(X)), (0, lambda: X.T.contiguous()),
    ],
)  # fmt: skip
def test_an_element(each, fn):
    assert vector(fn) == each * 40


def test_a_scalar_that_changes_the_work_is_not_taken_for_another():
    """Calls with the same shapes are looked at once; what a scalar changes must not be lost by that."""
    with fk.counting() as report:
        torch.add(X, Y, alpha=1), torch.add(X, Y, alpha=2), torch.add(X, Y), X.clamp(0, 1), X.clamp(0), X.clamp(max=1)
        F.gelu(X), F.gelu(X, approximate="tanh")
    assert report.vector_flops == 40 * (1 + 2 + 1 + 2 + 1 + 1 + 5 + 9)


def test_a_scalar_that_changes_the_result_is_not_taken_for_another():
    """On meta the result of shapes that were seen is made up: an int times a float is none of ints."""
    n = whole(3)
    with fk.counting():
        assert [(n * 2).dtype, (n * 2.5).dtype, (n * True).dtype, (n * 1j).dtype] == [
            torch.int64, torch.float32, torch.int64, torch.complex64,
        ]  # fmt: skip
        assert [X.to(torch.float64).dtype, X.to(torch.bfloat16).dtype] == [torch.float64, torch.bfloat16]
        assert [X.sum(0).shape, X.sum(1).shape] == [(10,), (4,)]


def test_complex_numbers():
    z = numbers(10, dtype=torch.complex64)
    assert vector(lambda: z + z) == 2 * 10
    assert vector(lambda: z * z) == 6 * 10  # four multiplies, an add, a subtract
    assert vector(lambda: z * 2.0) == 2 * 10
    assert vector(lambda: z.abs()) == 4 * 10
    assert vector(lambda: z.sum()) == 2 * 10
    assert vector(lambda: z.sigmoid()) == 2 * vector(lambda: X[0].sigmoid()) == 2 * 3 * 10


@pytest.mark.parametrize(
    "flops, fn",
    [
        (40, lambda: X.sum()), (40, lambda: X.sum(0)), (40 + 4, lambda: X.mean(1)), (40, lambda: X.amax(0)), (40, lambda: X.max(1)),
        (80, lambda: X.aminmax()), (40, lambda: X.argmax()), (4 * 40 + 2 * 4, lambda: X.var(1)), (4 * 40 + 3 * 4, lambda: X.std(1)),
        (80 + 1, lambda: X.norm()), (80 + 4, lambda: torch.linalg.vector_norm(X, dim=1)), (4 * 40 + 2 * 4, lambda: X.logsumexp(1)),
        (40, lambda: X.cumsum(1)), (40, lambda: X.cumsum_(1)), (40, lambda: X.prod()), (80, lambda: torch.count_nonzero(X)),
        (40 * 4, lambda: X.sort(1)), (40 * 2, lambda: X.sort(0)), (40 + 4 * 3 * 2, lambda: X.topk(3, 1)),
        (40, lambda: X.topk(3, 1, sorted=False)), (40 * 4, lambda: torch.searchsorted(numbers(15), X)),
        (40 * 3, lambda: torch.bucketize(X, numbers(4))), (40, lambda: torch.equal(torch.ones(4, 10), torch.ones(4, 10))),
    ],
)  # fmt: skip
def test_reductions(flops, fn):
    assert vector(fn) == flops


def test_searches_and_distances():
    """Looked up among n sorted numbers: ⌈log₂(n + 1)⌉ compares. A bin: subtract, multiply, round, add. ‖x - y‖: subtract, power, add, and a root.
    Close: subtract, multiply, add, compare, and. A sum of matrices with coefficients: multiply and add for each."""
    found = numbers(4, 10, dtype=torch.bool)
    for n, compares in ((1, 1), (3, 2), (4, 3), (7, 3), (8, 4)):
        call = OpCall(torch.ops.aten.isin.Tensor_Tensor, (X, numbers(n)), {}, found)
        assert registry.FORMULAS["aten::isin"](call).vector == {"elementwise": 40 * compares}
    call = OpCall(torch.ops.aten.isin.Tensor_Scalar, (X, 3), {}, found)
    assert registry.FORMULAS["aten::isin"](call).vector == {"elementwise": 40}
    call = OpCall(torch.ops.aten.histogram.bin_ct, (X, 5), {}, (numbers(5), numbers(6)))
    assert registry.FORMULAS["aten::histogram"](call).vector == {"elementwise": 4 * 40}
    assert by_hand("dist", torch.empty((), device=META), X, Y).vector == {"elementwise": 3 * 40 + 1}
    assert by_hand("allclose", True, X, Y).vector == {"elementwise": 5 * 40}
    row, rows = numbers(1, 10), numbers(4, 10)  # either may be broadcast
    for pair in ((row, rows), (rows, row)):
        assert by_hand("allclose", True, *pair, 1e-5, 1e-8).vector == {"elementwise": 5 * 40}
        assert by_hand("dist", numbers(1), *pair).vector == {"elementwise": 3 * 40 + 1}
    for terms in (1, 5):
        work = by_hand("_compute_linear_combination", numbers(2, 7, 7), numbers(terms, 7, 7), numbers(2, terms))
        assert work.vector == {"elementwise": 2 * (2 * terms) * 49}


def test_what_two_results_share_is_counted_once():
    assert vector(torch.var_mean, X, 1) == 4 * 40 + 2 * 4
    assert vector(torch.std_mean, X, 1) == 4 * 40 + 3 * 4
    assert vector(torch.sort, torch.empty((), device=META)) == 0  # one number is sorted
    assert by_hand("unique_consecutive", (X[0], X[0], X[0]), X).vector == {"elementwise": 40}
    both = OpCall(
        torch.ops.aten.max.other, (numbers(4, 1), numbers(1, 10)), {}, X
    )  # the larger of two: a compare a result
    assert registry.FORMULAS["aten::max"](both).vector == {"elementwise": 40}


def test_losses():
    target = numbers(4, 10)
    for loss, each in (
        (F.mse_loss, 2),
        (F.smooth_l1_loss, 5),
        (F.huber_loss, 4),
        (F.binary_cross_entropy_with_logits, 7),
    ):
        assert vector(loss, X, target, reduction="none") == each * 40, loss
        assert vector(loss, X, target, reduction="sum") == (each + 1) * 40, loss
        assert vector(loss, X, target) == (each + 1) * 40 + 1, loss
    assert vector(F.l1_loss, X, target) == 40 + 0 + 40 + 1  # subtract; a change of sign; the mean
    answers = whole(4)
    assert vector(F.nll_loss, X, answers) == 4 + 1
    assert vector(F.nll_loss, X, answers, reduction="none") == 0
    assert (
        vector(F.nll_loss, X, answers, weight=numbers(10)) == 3 * 4 + 1
    )  # weighed, weights summed, losses summed; one division


def test_losses_with_weights():
    """Of logits: a weight is one multiply an element; that of the positives, (1 + (p - 1)·y), a subtract, a multiply, an add, a multiply."""
    w = numbers(4, 10)
    for given, more in (({}, 0), ({"weight": w}, 1), ({"pos_weight": w}, 4), ({"weight": w, "pos_weight": w}, 5)):
        assert vector(F.binary_cross_entropy_with_logits, X, Y, reduction="none", **given) == (7 + more) * 40
    # Each of four log-probabilities is weighed; in a sum the weights are summed, too.
    answers, weights, one, total = whole(4), numbers(10), torch.empty((), device=META), torch.empty((), device=META)
    for reduction, out, flops in ((0, numbers(4), 4), (2, one, 4 + 2 * 4), (1, one, 4 + 2 * 4 + 1)):
        work = by_hand("nll_loss_forward", (out, total), X, answers, weights, reduction, -100)
        assert (work.vector, work.bytes) == ({"elementwise": flops}, 4 * (4 + 4) + 8 * 4 + 4 * (out.numel() + 1))
    # Backward: the zeros around each number are written, too; a mean divides, a weight multiplies.
    for reduction, given, flops in ((2, None, 0), (1, None, 4), (2, weights, 4), (1, weights, 8)):
        work = by_hand("nll_loss_backward", X, one, X, answers, given, reduction, -100, total)
        assert work.vector == {"elementwise": flops}
        assert work.bytes == 4 * (1 + 1) + 8 * 4 + 4 * 40 + (4 * 4 if given is not None else 0)


def test_cross_entropy_of_two_classes():
    """Forward: two logarithms, each compared with its least; subtract, two multiplies, an add. Backward: two subtracts, a multiply, a
    compare, a multiply, a divide. A weight is one multiply more, in each."""
    p, y, w = numbers(4, 10).requires_grad_(), numbers(4, 10), numbers(4, 10)
    for weight in (None, w):
        more = 40 * (weight is not None)
        assert vector(F.binary_cross_entropy, p, y, weight, reduction="none") == 8 * 40 + more
        assert (
            backward(lambda p, weight=weight: F.binary_cross_entropy(p, y, weight, reduction="none"), p)
            == 6 * 40 + more
        )


def test_pooling_in_other_sizes():
    assert vector(F.max_pool1d, numbers(2, 3, 12), 3) == 2 * 3 * 4 * 3
    assert vector(F.avg_pool1d, numbers(2, 3, 12), 3) == 2 * 3 * 4 * (3 + 1)
    assert vector(F.max_pool3d, numbers(2, 3, 4, 4, 4), 2) == 2 * 3 * 8 * 8
    assert vector(F.avg_pool3d, numbers(2, 3, 4, 4, 4), (2, 1, 2)) == 2 * 3 * (2 * 4 * 2) * (4 + 1)
    # A window said by one number is that long in each dimension.
    assert by_hand("avg_pool2d", numbers(2, 3, 2, 2), numbers(2, 3, 6, 6), [3]).vector == {"elementwise": 24 * (9 + 1)}
    assert by_hand("avg_pool1d", numbers(2, 3, 4), numbers(2, 3, 12), [3]).vector == {"elementwise": 24 * (3 + 1)}
    # From 5 to 3 windows of 2 (0–1), 3 (1–3) and 2 (3–4) elements; from 6 to 2, two of 3.
    assert vector(F.adaptive_avg_pool2d, numbers(2, 3, 5, 6), (3, 2)) == 6 * ((2 + 3 + 2) * 6 + 3 * 2)
    assert vector(F.adaptive_max_pool2d, numbers(2, 3, 5, 6), (3, 2)) == 6 * (2 + 3 + 2) * 6


def test_sampling():
    image = numbers(2, 3, 4, 5)
    assert vector(F.interpolate, image, scale_factor=2) == 0  # nearest
    assert vector(F.interpolate, image, scale_factor=2, mode="bilinear") == 9 * 2 * 3 * 8 * 10
    assert vector(F.interpolate, image, scale_factor=2, mode="bicubic") == 35 * 2 * 3 * 8 * 10
    assert vector(F.interpolate, numbers(2, 3, 5), scale_factor=2, mode="linear") == 3 * 2 * 3 * 10
    assert vector(F.grid_sample, image, numbers(2, 7, 8, 2), align_corners=False) == 18 * 2 * 56 + 7 * 2 * 3 * 56


def test_gathering_adds_nothing_and_scattering_adds_what_it_is_told_to():
    rows, index = numbers(4, 10), whole(4)
    assert vector(F.embedding, whole(4), numbers(100, 10)) == 0
    assert vector(lambda: rows[index]) == vector(lambda: rows.gather(1, whole(4, 3))) == 0
    assert vector(lambda: rows.scatter(1, whole(4, 3), numbers(4, 3))) == 0
    assert vector(lambda: rows.scatter_add(1, whole(4, 3), numbers(4, 3))) == 12
    assert vector(lambda: rows.index_add(0, whole(6), numbers(6, 10))) == 60
    assert vector(lambda: rows.index_add(0, whole(6), numbers(6, 10), alpha=2)) == 120
    assert vector(lambda: torch.index_put(rows, [whole(6)], numbers(6, 10), accumulate=True)) == 60
    assert vector(lambda: torch.index_put(rows, [whole(6)], numbers(6, 10))) == 0


def test_how_many_numbers_are_added_to():
    """Whole rows by their places, every place under a mask, and places that are broadcast against each other."""
    added = lambda *args: by_hand("index_put", X, X, *args, numbers(1), True).vector["elementwise"]
    some, mask = whole(4), numbers(4, dtype=torch.bool)
    assert added([some]) == added([mask]) == 4 * 10
    assert added([numbers(4, 10, dtype=torch.bool)]) == 40
    assert added([whole(3, 1), some]) == 3 * 4
    assert added([whole(1, 4), some]) == added([some, whole(1, 4)]) == 4
    assert added([whole(0), whole(1)]) == added([whole(0)]) == 0
    assert added([None, some]) == 4 * 4
    for target, places, numbers_named in (
        (numbers(1, 10), 4, 4 * 10),
        (torch.empty((), device=META), 1, 1),
        (numbers(2, 10), 3, 3 * 10),
    ):
        assert by_hand("index_add", target, target, 0, whole(places), numbers(places)).vector == {
            "elementwise": numbers_named
        }


def test_embedding_bag():
    table, tokens, starts = torch.ones(100, 10), torch.zeros(12, dtype=torch.int64), torch.tensor([0, 4, 8])
    for mode, flops in (("sum", 120), ("mean", 120 + 30), ("max", 120)):
        assert vector(F.embedding_bag, tokens, table, starts, mode=mode) == flops


def test_backward_of_activations():
    for fn, each in (
        (torch.relu, 1),
        (F.silu, 8),
        (torch.sigmoid, 3),
        (torch.tanh, 3),
        (F.gelu, 11),
        (F.leaky_relu, 2),
        (F.hardswish, 5),
    ):
        assert backward(fn, numbers(4, 10).requires_grad_()) == each * 40, fn
    assert backward(lambda x: F.gelu(x, approximate="tanh"), numbers(4, 10).requires_grad_()) == 18 * 40
    assert backward(F.glu, numbers(4, 20).requires_grad_()) == 7 * 40
    assert backward(lambda x: F.softmax(x, -1), numbers(4, 10).requires_grad_()) == 4 * 40
    assert backward(lambda x: F.log_softmax(x, -1), numbers(4, 10).requires_grad_()) == 4 * 40


def test_attention_s_inputs():
    """Queries, keys and values: a bias each, and the queries a scale."""
    parts = (numbers(2, 2, 5, 4),) * 3
    assert by_hand("_transform_bias_rescale_qkv", parts, numbers(2, 5, 24), numbers(24), 2).vector == {
        "elementwise": 240 + 80
    }


def test_backward_of_normalisations():
    """By what is asked for: see the docstrings of `flopkit.counter.formulas.normalisations`."""
    x, w, b = (numbers(*shape).requires_grad_() for shape in ((4, 10), (10,), (10,)))
    free = numbers(4, 10)
    assert backward(lambda x, w, b: F.layer_norm(x, (10,), w, b), x, w, b) == (2 + 2 + 1 + 8) * 40 + 2 * 4
    assert backward(lambda x: F.layer_norm(x, (10,)), x) == (2 + 7) * 40 + 2 * 4
    assert backward(lambda w, b: F.layer_norm(free, (10,), w, b), w, b) == (2 + 2 + 1) * 40
    running = numbers(10), numbers(10)
    assert backward(lambda x, w, b: F.batch_norm(x, *running, w, b, training=True), x, w, b) == 9 * 40 + 3 * 10
    assert backward(lambda x, w, b: F.batch_norm(x, *running, w, b), x, w, b) == 6 * 40 + 4 * 10
    assert backward(lambda x: F.batch_norm(x, *running), x) == 40 + 4 * 10
    # No gradient of the input: x̂ (2), Σ g·x̂ (2) and Σ g (1); of the bias alone, the last.
    for trains in (True, False):
        assert backward(lambda w, b, t=trains: F.batch_norm(free, *running, w, b, t), w, b) == (2 + 2 + 1) * 40
        assert backward(lambda b, t=trains: F.batch_norm(free, *running, free[0], b, t), b) == 40
    assert backward(lambda b: F.layer_norm(free, (10,), free[0], b), b) == 40


def test_backward_of_group_norm():
    """60 numbers, 2 images, 3 groups, 6 channels: x̂ (2), Σ g·x̂ (2), Σ g (1); the input's (4), with a weight (1) more, and for each image 2 a
    group and 4 a channel."""
    x, w, b = (numbers(*shape).requires_grad_() for shape in ((2, 6, 5), (6,), (6,)))
    free = numbers(2, 6, 5)
    rest = 2 * (2 * 3 + 4 * 6)
    assert backward(lambda x, w, b: F.group_norm(x, 3, w, b), x, w, b) == (2 + 2 + 1 + 4 + 1) * 60 + rest
    assert backward(lambda x: F.group_norm(x, 3), x) == (2 + 2 + 1 + 4) * 60 + rest
    assert backward(lambda w: F.group_norm(free, 3, w, free[0, :, 0]), w) == (2 + 2) * 60
    assert backward(lambda b: F.group_norm(free, 3, free[0, :, 0], b), b) == 60


@pytest.mark.skipif(
    not hasattr(torch.ops.aten, "_fused_rms_norm_backward"), reason="torch has had the operator since 2.9"
)
def test_backward_of_rms_norm_in_one_kernel():
    """x̂ (1), Σ g·x̂ (2); the input's: g·w (1), its sum with x̂ (2), a multiply, a subtract, a multiply (3); a division a row."""
    x, w, root = numbers(4, 10), numbers(10), numbers(4, 1)
    for mask, flops in (
        ([True, True], (1 + 2 + 1 + 2 + 3) * 40 + 4), ([True, False], (1 + 1 + 2 + 3) * 40 + 4), ([False, True], (1 + 2) * 40)
    ):  # fmt: skip
        work = by_hand("_fused_rms_norm_backward", (x, w), x, x, [10], root, w, mask)
        assert work.vector == {"elementwise": flops}


def test_batch_norm_over_several_devices():
    """40 numbers in 10 channels. Statistics: add, subtract, multiply, add; of a channel two divisions, then add, root, divide."""
    x, c, both = numbers(4, 10), numbers(10), (numbers(10), numbers(10))
    work = by_hand("batch_norm_stats", both, x, 1e-5)
    assert (work.vector, work.bytes) == ({"elementwise": 4 * 40 + (2 + 3) * 10}, 4 * (40 + 2 * 10))
    for given, each in (((None, None), 2), ((c, None), 3), ((c, c), 4)):
        assert by_hand("batch_norm_elemt", x, x, *given, c, c, 1e-5).vector == {"elementwise": each * 40}
    gathered = numbers(8, 10)  # of eight devices
    work = by_hand("batch_norm_gather_stats", both, x, gathered, numbers(8, 10), *both, 0.1, 1e-5, 4)
    assert (work.vector, work.bytes) == ({"elementwise": 10 * 80}, 4 * (2 * 80 + 20 + 20))
    # Σ g (1), and of g·(x − mean) a subtract, a multiply, an add.
    assert by_hand("batch_norm_backward_reduce", (c, c, c, c), x, x, c, c, c, True, True, True).vector == {
        "elementwise": 4 * 40
    }
    assert by_hand("batch_norm_backward_elemt", x, x, x, c, c, c, c, c, whole(1)).vector == {"elementwise": 6 * 40}


def test_batch_norm_that_returns_its_running_statistics():
    """Read: image, weight, bias, two running statistics. Written: the image, what backward needs, the new running statistics."""
    c = [torch.ones(10) for _ in range(4)]
    report = fk.count(torch.ops.aten._native_batch_norm_legit_functional, torch.ones(4, 10), *c, True, 0.1, 1e-5)
    row = next(r for r in report.by_op() if r["operator"] == "_native_batch_norm_legit_functional")
    assert row["bytes"] == 4 * ((40 + 4 * 10) + (40 + 2 * 10 + 2 * 10))
    report = fk.count(torch.ops.aten._native_batch_norm_legit_functional, torch.ones(4, 10), *c, False, 0.1, 1e-5)
    assert report.bytes == 4 * ((40 + 4 * 10) + 40)  # without training nothing is kept


def test_weight_norm():
    """‖v‖ of 4 rows of 10: a multiply and an add a number; a root and a division a row; then a multiply. Backward: Σ g·v, two multiplies and a
    subtraction a number, three divisions and a multiplication a row."""
    v, g = torch.ones(4, 10, requires_grad=True), torch.ones(4, 1, requires_grad=True)
    assert vector(torch._weight_norm_interface, v, g) == 3 * 40 + 2 * 4
    assert backward(lambda v, g: torch._weight_norm_interface(v, g)[0], v, g) == 5 * 40 + 4 * 4


def test_rows_of_a_logarithm_of_softmax():
    """Five FLOPs a number, and a logarithm a row: a row may have one number, no number, or be no row but a number."""
    for shape, dim, flops in (
        ((6, 1), 1, 5 * 6 + 6),
        ((4, 0), 1, 0),
        ((), 0, 5 + 1),
        ((7,), 0, 5 * 7 + 1),
        ((2, 3), 0, 5 * 6 + 3),
    ):
        assert vector(F.log_softmax, torch.empty(shape, device=META), dim) == flops


def test_backward_of_pooling_and_of_an_embedding():
    image = numbers(2, 3, 8, 8).requires_grad_()
    assert backward(lambda x: F.max_pool2d(x, 2), image) == 2 * 3 * 16
    assert backward(lambda x: F.avg_pool2d(x, 2), image) == 2 * 3 * 16 * (4 + 1)
    # From 5 × 6 to 3 × 2: windows of 2, 3 and 2 rows, of 3 and 3 columns; an add for each of their elements, and a division.
    image, gradient = numbers(2, 3, 5, 6), numbers(2, 3, 3, 2)
    work = by_hand("_adaptive_avg_pool2d_backward", image, gradient, image)
    assert (work.vector, work.bytes) == ({"elementwise": 6 * ((2 + 3 + 2) * 6 + 3 * 2)}, 4 * 6 * (6 + 30))
    table = numbers(100, 10).requires_grad_()
    assert backward(lambda w: F.embedding(whole(4), w), table) == 40


@pytest.mark.parametrize(
    "kind, sizes, each",
    # for each tap of an element a multiplication a dimension, and an add
    [
        ("linear", (6,), 2 * 2),
        ("bilinear", (6, 8), 4 * 3),
        ("trilinear", (6, 8, 4), 8 * 4),
        ("bicubic", (6, 8), 16 * 3),
        ("nearest", (6, 8), 1),
    ],
)
def test_backward_of_upsampling(kind, sizes, each):
    image = numbers(2, 3, *(n // 2 for n in sizes)).requires_grad_()
    assert backward(lambda x: F.interpolate(x, sizes, mode=kind), image) == each * 6 * math.prod(sizes)


@pytest.mark.parametrize(
    "kind, old, new, columns, rows",
    # taps: 2·⌈support·scale⌉ + 1, the scale at least 1, the support 1 for bilinear, 2 for bicubic
    [
        ("bilinear2d", (8, 12), (4, 4), 2 * 3 + 1, 2 * 2 + 1),
        ("bicubic2d", (8, 12), (4, 4), 2 * 6 + 1, 2 * 4 + 1),
        ("bilinear2d", (4, 4), (8, 12), 2 * 1 + 1, 2 * 1 + 1),
        ("bilinear2d", (7, 5), (4, 4), 2 * 2 + 1, 2 * 2 + 1),
    ],
)
def test_antialiased_images(kind, old, new, columns, rows):
    """Each column of the result from the old rows, then each row: a sum of t taps is t multiplies and t - 1 adds. Backward the same."""
    if not hasattr(torch.ops.aten, f"_upsample_{kind}_aa"):
        pytest.skip("torch does not have it")
    small, large = numbers(2, 3, *old), numbers(2, 3, *new)
    flops = 6 * (old[0] * new[1] * (2 * columns - 1) + new[0] * new[1] * (2 * rows - 1))
    assert by_hand(f"_upsample_{kind}_aa", large, small, list(new), False).vector == {"elementwise": flops}
    if hasattr(torch.ops.aten, f"_upsample_{kind}_aa_backward"):
        work = by_hand(f"_upsample_{kind}_aa_backward", small, large, list(new), [2, 3, *old], False)
        assert work.vector == {"elementwise": flops}


def test_backward_of_sampling_at_a_grid():
    """70 positions, 210 elements. For each tap of an element a multiply and an add to the image; two and one multiply more to each coordinate."""
    image, grid = numbers(2, 3, 8, 8), numbers(2, 5, 7, 2)
    for mode, place, taps in (("bilinear", 18, 4), ("bicubic", 60, 16)):
        sample = lambda x, g, mode=mode: F.grid_sample(x, g, mode=mode, align_corners=False)
        x, g = numbers(2, 3, 8, 8).requires_grad_(), numbers(2, 5, 7, 2).requires_grad_()
        assert backward(sample, x, g) == 70 * place + 210 * (2 * taps + 2 * 3 * taps)
        assert backward(lambda x, f=sample: f(x, grid), x) == 70 * place + 210 * 2 * taps
        assert by_hand("grid_sampler_2d_backward", (None, g), numbers(2, 3, 5, 7), image, g, {4: 0, 16: 2}[taps], 0, False, [False, True]).vector == {
            "elementwise": 70 * place + 210 * 2 * 3 * taps
        }  # fmt: skip
    x, g = numbers(2, 3, 8, 8).requires_grad_(), numbers(2, 5, 7, 2).requires_grad_()
    # The nearest pixel does not move with the grid.
    assert backward(lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False), x, g) == 70 * 10 + 210 * 2
    x, g = numbers(2, 3, 8, 8, 8).requires_grad_(), numbers(2, 5, 7, 2, 3).requires_grad_()
    assert backward(lambda x, g: F.grid_sample(x, g, align_corners=False), x, g) == 140 * 37 + 420 * (2 * 8 + 3 * 3 * 8)
    nearest = lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False)
    assert backward(nearest, x, g) == 140 * 15 + 420 * 2
    assert by_hand("cudnn_grid_sampler", numbers(2, 3, 5, 7), image, grid).vector == {"elementwise": 70 * 18 + 210 * 7}


def test_a_grid_is_a_product():
    """Two images, 35 positions of two coordinates, each of three multiply-adds."""
    theta, grid = numbers(2, 2, 3), numbers(2, 5, 7, 2)
    work = by_hand("affine_grid_generator", grid, theta, [2, 3, 5, 7], False)
    assert (work.model, work.bytes) == ({"products": 2 * 35 * 2 * 3}, 4 * (2 * 6 + 2 * 35 * 2))


def test_a_bag_of_rows_with_weights():
    """Two bags of three rows of ten: an add for each number, and a multiply with the sample's weight; read are the rows, their places, the bags'
    starts and the weights. The gradient of a sample's weight multiplies and adds as many."""
    table, places, starts, samples = numbers(100, 10), whole(6), whole(2), numbers(6)
    out = numbers(2, 10), whole(0), whole(0), whole(0)
    work = by_hand("_embedding_bag_forward_only", out, table, places, starts, False, 0, False, samples)
    assert (work.vector, work.bytes) == ({"elementwise": 2 * 60}, 4 * 60 + 8 * 6 + 8 * 2 + 4 * 6 + 4 * 20)
    work = by_hand("_embedding_bag_forward_only", out, table, places, starts, False, 1)
    assert (work.vector, work.bytes) == ({"elementwise": 60 + 20}, 4 * 60 + 8 * 6 + 8 * 2 + 4 * 20)
    work = by_hand(
        "_embedding_bag_per_sample_weights_backward", samples, numbers(2, 10), table, places, starts, whole(6), 0
    )
    assert (work.vector, work.bytes) == ({"elementwise": 2 * 60}, 4 * 60 + 4 * 20 + 8 * (6 + 2 + 6) + 4 * 6)
    table_gradient = numbers(100, 10)
    for mode, given, each in ((0, None, 1), (0, samples, 2), (1, None, 2)):
        work = by_hand(
            "_embedding_bag_dense_backward",
            table_gradient,
            numbers(2, 10),
            places,
            whole(6),
            whole(2),
            whole(2),
            100,
            False,
            mode,
            given,
        )
        assert work.vector == {"elementwise": each * 60}


STEP = 13  # Adam without any extras
OPTIMIZERS = [
    (torch.optim.SGD, {}, 2), (torch.optim.SGD, {"weight_decay": 0.1}, 4), (torch.optim.SGD, {"momentum": 0.9}, 4),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, 8), (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5}, 5),
    (torch.optim.Adam, {}, STEP), (torch.optim.Adam, {"weight_decay": 0.1}, STEP + 2), (torch.optim.Adam, {"amsgrad": True}, STEP + 1),
    (torch.optim.AdamW, {"weight_decay": 0.1}, STEP + 1), (torch.optim.AdamW, {"weight_decay": 0.0}, STEP),
    (torch.optim.Adagrad, {}, 7), (torch.optim.Adagrad, {"weight_decay": 0.1}, 9),
]  # fmt: skip


@pytest.mark.parametrize("kind, options, each", OPTIMIZERS)
def test_a_fused_optimizer_counts_what_its_algorithm_does(kind, options, each):
    """The second step, for momentum's first one only copies."""
    weights = [torch.ones(30, requires_grad=True), torch.ones(7, requires_grad=True)]
    optimizer = kind(weights, lr=0.1, fused=True, **options)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    with fk.counting(strict=True) as report:
        optimizer.step()
    rows = [row for row in report.by_op() if row["operator"].startswith("_fused")]
    assert [row["vector_flops"] for row in rows] == [each * 37]
    assert report.optimizer.vector_flops == report.vector_flops


def test_adam_written_out_counts_as_much_as_in_one_operator():
    """Operator by operator over lists: lerp 3, multiply 1 and addcmul 3, root, divide, add, addcdiv 3."""
    weights = [torch.ones(30, requires_grad=True), torch.ones(7, requires_grad=True)]
    optimizer = torch.optim.Adam(weights, lr=0.1, foreach=True)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    with fk.counting(strict=True) as report:
        optimizer.step()
    steps = 2  # each counter of steps is a number on its own
    assert report.vector_flops == STEP * 37 + steps


def test_bytes_of_a_fused_optimizer():
    """Parameters and states are read and written, gradients read, counters of steps read here and moved on by an operator of their own."""
    weight = torch.ones(30, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], fused=True)
    weight.grad = torch.ones(30)
    with fk.counting() as report:
        optimizer.step()
    row = next(row for row in report.by_op() if row["operator"] == "_fused_adamw_")
    assert row["bytes"] == 4 * (30 * (2 + 1 + 2 + 2) + 1)
    for momentum, reads_and_writes in ((0.0, 2 + 1), (0.9, 2 + 1 + 1)):
        weight = torch.ones(30, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=momentum, fused=True)
        for more in (0, bool(momentum)):  # the first step only writes the buffer
            weight.grad = torch.ones(30)
            with fk.counting() as report:
                optimizer.step()
            row = next(row for row in report.by_op() if row["operator"] == "_fused_sgd_")
            assert row["bytes"] == 4 * 30 * (reads_and_writes + more)


def test_gradients_that_are_unscaled():
    """37 weights, two moments of each, two step counts. Unscaled by the step itself: a division more, and the gradients are written back. A third
    moment that is not used is not read."""
    group = lambda: [numbers(30), numbers(7)]
    options = dict(lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False)
    weights, rest = group(), (group(), group(), group())
    steps = [numbers(1), numbers(1)]
    for third in ([], group()):
        work = by_hand("_fused_adam_", None, weights, *rest, third, steps, **options)
        assert (work.vector, work.bytes) == ({"elementwise": 13 * 37}, 4 * (4 * 37 + 2 + 3 * 37))
        work = by_hand("_fused_adam_", None, weights, *rest, third, steps, **options, grad_scale=numbers(1))
        assert (work.vector, work.bytes) == ({"elementwise": 14 * 37}, 4 * (4 * 37 + 2 + 3 * 37 + 37 + 1))
    # By itself: a multiply, and whether the number is finite.
    work = by_hand("_amp_foreach_non_finite_check_and_unscale_", None, weights, numbers(1), numbers(1))
    assert work.vector == {"elementwise": 2 * 37}


def test_images_between_their_pixels():
    """A sum of t taps is t multiplies and t - 1 adds: of two taps 3, of four 7. Two dimensions: a sum in each row, then one of the rows; three likewise."""
    for mode, sizes, each in (
        ("linear", (6,), 3), ("bilinear", (6, 8), 2 * 3 + 3), ("trilinear", (6, 8, 4), 4 * 3 + 2 * 3 + 3), ("bicubic", (6, 8), 4 * 7 + 7),
        ("nearest", (6,), 0), ("nearest", (6, 8), 0), ("nearest", (6, 8, 4), 0), ("nearest-exact", (6,), 0), ("nearest-exact", (6, 8), 0),
        ("nearest-exact", (6, 8, 4), 0),
    ):  # fmt: skip
        small = numbers(2, 3, *(n // 2 for n in sizes))
        report = fk.count(F.interpolate, small, sizes, mode=mode, strict=True)
        assert (report.vector_flops, report.bytes) == (
            each * 6 * math.prod(sizes),
            4 * 6 * (math.prod(sizes) + small.numel() // 6),
        )
        if not each:  # an add for each gradient
            assert backward(
                lambda x, s=sizes, m=mode: F.interpolate(x, s, mode=m), small.requires_grad_()
            ) == 6 * math.prod(sizes)


def test_positions_of_a_grid():
    """A pixel of a coordinate from -1 to 1: add, multiply, subtract, divide. It is rounded. Between pixels: two distances a coordinate, and of each
    corner a weight, a multiply in two dimensions and two in three; then a sum of the corners."""
    for dims, place, corners in ((2, 4 * 2 + 2, 4), (3, 4 * 3 + 3, 8)):
        image, grid = numbers(2, 3, *(8,) * dims), numbers(2, *(5,) * dims, dims)
        positions = 2 * 5**dims
        nearest = vector(F.grid_sample, image, grid, mode="nearest", align_corners=False)
        assert nearest == place * positions
        between = vector(F.grid_sample, image, grid, align_corners=False)
        assert between == (place + 2 * dims + corners * (dims - 1)) * positions + (2 * corners - 1) * 3 * positions
    # Bicubic: 16 taps of an element; of a position, the pixel and its rounding (10), and 25 for the four weights of each coordinate.
    image, grid = numbers(2, 3, 8, 8), numbers(2, 5, 5, 2)
    assert (
        vector(F.grid_sample, image, grid, mode="bicubic", align_corners=False)
        == (10 + 2 * 25) * 50 + (4 * 7 + 7) * 150
    )
    assert by_hand("cudnn_grid_sampler", numbers(2, 3, 5, 5), image, grid).vector == {"elementwise": 18 * 50 + 7 * 150}


def test_gradients_of_padding_that_repeats():
    """Each gradient is added to the number that it came from; the image itself is not read."""
    for mode in ("reflect", "replicate"):
        for dims in (1, 2, 3):
            image = numbers(2, 3, *(6,) * dims).requires_grad_()
            padded = 6 * 8**dims
            out = F.pad(image, (1, 1) * dims, mode=mode)
            with fk.counting(strict=True) as report:
                torch.autograd.grad(out, image, torch.empty_like(out))
            row = next(r for r in report.by_op() if "pad" in r["operator"])
            assert (row["vector_flops"], row["bytes"]) == (padded, 4 * (padded + image.numel()))


def test_what_is_sorted():
    """Ten columns of four numbers: ⌈log₂ 4⌉ compares each. A list of TorchScript's is no tensor."""
    assert vector(torch.msort, X) == 40 * 2
    assert vector(torch.argsort, X, 0) == 40 * 2 and vector(torch.argsort, X) == 40 * 4
    assert by_hand("unique_dim", X, X, 0).vector == {"elementwise": 40 * 2}
    assert by_hand("_unique", X, X).vector == {"elementwise": 40 * 6}
    call = OpCall(torch.ops.aten.sort.int, ([3, 1, 2],), {}, None)
    assert registry.FORMULAS["aten::sort"](call).vector == {"elementwise": 0}


def test_windows_of_adaptive_pooling_side_by_side():
    """One window of seven rows, four of two columns: each element is under one of them."""
    assert vector(F.adaptive_avg_pool2d, numbers(2, 3, 7, 8), (1, 4)) == 6 * (7 * 8 + 4)


def test_bytes_of_the_gradients_of_pooling():
    """96 gradients are read, with the places of their maxima (eight bytes each), and 384 are written."""
    for pool, places in ((F.max_pool2d, 8 * 96), (F.avg_pool2d, 0)):
        image = numbers(2, 3, 8, 8).requires_grad_()
        out = pool(image, 2)
        with fk.counting(strict=True) as report:
            torch.autograd.grad(out, image, numbers(2, 3, 4, 4))
        assert next(r["bytes"] for r in report.by_op() if "pool" in r["operator"]) == 4 * 96 + places + 4 * 384
