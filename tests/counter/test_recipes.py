"""What an element of each operator takes: its definition, carried out on numbers that count, gives torch's values in as many operations."""

import math

import pytest
import torch

import flopkit as fk
from flopkit import tally
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas import rule_for
from flopkit.counter.formulas.elementwise import RECIPES
from flopkit.counter.formulas.losses_optimizers import LOSSES
from flopkit.counter.formulas.reductions import SIMPLE
from flopkit.counter.registry import FORMULAS
from flopkit.tally.ledger import record
from flopkit.tally.scalar import Tally


class Absent:
    """An operator that this torch does not have."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, overload):
        return self

    def __str__(self):
        return f"aten.{self.name}"


class Operators:
    def __getattr__(self, name):
        return getattr(torch.ops.aten, name, None) or Absent(name)


aten = Operators()


def known(op):
    if isinstance(op, Absent):
        pytest.skip(f"this torch has no {op}")
    rule = rule_for(getattr(op, "default", op))
    if rule.composite and rule.own_kernel is None:
        pytest.skip(f"this torch writes {op} out")
    return op


def once(function):
    """A function whose evaluation is one operation."""

    def evaluated(*given):
        record("exponentials")
        return Tally(function(*tally.plain(given)))

    return evaluated


floor, trunc, rounded, log1p, exp2, atan2 = map(
    once, (math.floor, math.trunc, round, math.log1p, math.exp2, math.atan2)
)
log2_of_1_and = once(lambda x: math.log2(1 + x))


def size_of(x):  # a change of sign is none
    return Tally(abs(x.value))


def larger(x, y):
    return Tally(x if x > y else y)


def smaller(x, y):
    return Tally(x if x < y else y)


def either(condition, x, y):
    """Both are computed, one is taken."""
    return x if condition else y


def inside(x, low, high):
    """Two compares."""
    return (x > low) & (x < high)


def logistic(x):
    return 1 / ((-x).exp() + 1)


def logaddexp(x, y):
    top = larger(x, y)
    return top + log1p((-size_of(x - y)).exp())


def logaddexp2(x, y):
    top = larger(x, y)
    return top + log2_of_1_and(exp2(-size_of(x - y)))


def sinc(x):
    angle = x * math.pi
    return angle.sin() / angle


def softshrink(x):
    above, below = x > 0.5, x < -0.5
    return x - (0.5 if above else -0.5 if below else x)


def nan_to_num(x):
    nan, high, low = x == math.nan, x == math.inf, x == -math.inf
    return either(nan | high | low, Tally(0.0), x)


def silu_backward(g, x):
    s = logistic(x)
    return g * s * (x * (1 - s) + 1)


def gelu_backward(g, x):
    below = ((x * math.sqrt(0.5)).erf() + 1) * 0.5
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))  # two multiplies in the exponent
    return g * (below + x * density)


def gelu_tanh(x):
    return x * 0.5 * (((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).tanh() + 1)


def gelu_tanh_backward(g, x):
    a, b = math.sqrt(2 / math.pi), 0.044715
    square = x * x
    t = ((x + square * x * b) * a).tanh()
    return g * ((t + 1) * 0.5 + x * 0.5 * (1 - t * t) * ((square * (3 * b) + 1) * a))


def softplus(x, beta):
    scaled = x * beta
    return either(scaled > 20, x, log1p(scaled.exp()) / beta)


def softplus_backward(g, x, beta):
    scaled = x * beta
    z = scaled.exp()
    return either(scaled > 20, g, g * z / (z + 1))


def mish_backward(g, x):
    """torch has a kernel for it on some devices only; on the others softplus, β = 1, is an operator of its own."""
    t = softplus(x, 1.0).tanh()
    return g * (t + x * logistic(x) * (1 - t * t))


def log_sigmoid_backward(g, x, buffer):
    negative, share = x < 0, buffer / (buffer + 1)
    return g * (float(negative) - (share if negative else -share))


def hardswish_backward(g, x):
    low, high, between = x < -3, x > 3, g * (x / 3 + 0.5)
    return Tally(0) if low else g if high else between


def heaviside(x, at_zero):
    below, zero = x < 0, x == 0
    return at_zero if zero else Tally(not below)


def prelu_backward(g, x, w):
    positive, of_input, of_weight = x > 0, g * w, g * x
    return (g, Tally(0)) if positive else (of_input, of_weight)


def smooth_l1_backward(g, x, y):
    d = x - y
    side = either(d > 0.7, 1, 0) - either(d < -0.7, 1, 0)
    near = d * (1 / 40) * g / 0.7  # the longer way is counted; beyond, it is ±g/40
    return g.value * side / 40 if side else near


def huber_backward(g, x, y):
    d = x - y
    side = either(d > 0.7, 1, 0) - either(d < -0.7, 1, 0)
    near = d * (1 / 40) * g
    return g.value * side * 0.7 / 40 if side else near


def soft_margin_backward(g, x, y):
    z = (-(x * y)).exp()
    return -(y * (1 / 40) * g * z / (z + 1))


def drawn(*shape, low=-2.0, high=2.0, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * (high - low) + low


X, Y, G = (drawn(4, 10, seed=seed) for seed in (1, 2, 3))
P, Q = drawn(4, 10, low=0.1, high=0.9, seed=4), drawn(4, 10, low=0.1, high=3.0, seed=5)
SIGNS = torch.where(Y > 0, 1.0, -1.0).double()
ONE = torch.tensor(0.7, dtype=torch.float64)

# Name, arguments, what is done to an element of each tensor among them.
DEFINITIONS = [
    (aten.neg, (X,), lambda x: -x), (aten.abs, (X,), size_of), (aten.copysign.Tensor, (X, Y), lambda x, y: Tally(math.copysign(x.value, y.value))),
    (aten.add.Tensor, (X, Y), lambda x, y: x + y), (aten.add.Tensor, (X, Y, {"alpha": 3}), lambda x, y: x + y * 3),
    (aten.sub.Tensor, (X, Y), lambda x, y: x - y), (aten.sub.Tensor, (X, Y, {"alpha": 3}), lambda x, y: x - y * 3),
    (aten.rsub.Tensor, (X, Y), lambda x, y: y - x), (aten.rsub.Tensor, (X, Y, {"alpha": 3}), lambda x, y: y - x * 3),
    (aten._add_relu.Tensor, (X, Y), lambda x, y: larger(x + y, 0)), (aten._add_relu.Tensor, (X, Y, {"alpha": 3}), lambda x, y: larger(x + y * 3, 0)),
    (aten.addcmul, (X, Y, Q), lambda x, y, z: x + y * z), (aten.addcmul, (X, Y, Q, {"value": 3}), lambda x, y, z: x + y * z * 3),
    (aten.addcdiv, (X, Y, Q), lambda x, y, z: x + y / z), (aten.addcdiv, (X, Y, Q, {"value": 3}), lambda x, y, z: x + y / z * 3),
    (aten.lerp.Scalar, (X, Y, 0.3), lambda x, y: x + (y - x) * 0.3),
    (aten.div.Tensor, (X, Q), lambda x, y: x / y), (aten.div.Tensor_mode, (X, Q, {"rounding_mode": "floor"}), lambda x, y: floor(x / y)),
    (aten.floor_divide, (X, Q), lambda x, y: floor(x / y)), (aten.remainder.Tensor, (X, Q), lambda x, y: x - y * floor(x / y)),
    (aten.fmod.Tensor, (X, Q), lambda x, y: x - y * trunc(x / y)), (aten.frac, (X,), lambda x: x - trunc(x)),
    (aten.rsqrt, (P,), lambda x: 1 / x.sqrt()), (aten.hypot, (X, Y), lambda x, y: (x * x + y * y).sqrt()),
    (aten.ldexp.Tensor, (X, Y), lambda x, y: x * exp2(y)),
    (aten.clamp, (X, -1, 1), lambda x: smaller(larger(x, -1), 1)), (aten.clamp, (X, -1), lambda x: larger(x, -1)),
    (aten.clamp, (X, None, 1), lambda x: smaller(x, 1)),
    (aten.heaviside, (X, Y), heaviside), (aten.nan_to_num, (X,), nan_to_num),
    (aten.logaddexp, (X, Y), logaddexp), (aten.logaddexp2, (X, Y), logaddexp2), (aten.logit, (P,), lambda x: (x / (1 - x)).log()),
    (aten.logit_backward, (G, P), lambda g, x: g / (x * (1 - x))), (aten.xlogy.Tensor, (X, Q), lambda x, y: x * y.log()),
    (aten.special_xlog1py, (X, Q), lambda x, y: x * log1p(y)), (aten.special_entr, (P,), lambda x: -(x * x.log())), (aten.sinc, (X,), sinc),
    # activations
    (aten.relu, (X,), lambda x: larger(x, 0)), (aten.leaky_relu, (X, 0.1), lambda x: either(x > 0, x, x * 0.1)), (aten.sigmoid, (X,), logistic),
    (aten.tanh, (X,), Tally.tanh), (aten.silu, (X,), lambda x: x / ((-x).exp() + 1)),
    (aten.hardsigmoid, (X * 2,), lambda x: smaller(larger(x + 3, 0), 6) / 6), (aten.hardswish, (X * 2,), lambda x: x * (smaller(larger(x + 3, 0), 6) / 6)),
    (aten.gelu, (X,), lambda x: x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1)), (aten.gelu, (X, {"approximate": "tanh"}), gelu_tanh),
    (aten.hardtanh, (X,), lambda x: smaller(larger(x, -1), 1)), (aten.threshold, (X, 0.5, 7), lambda x: either(x > 0.5, x, Tally(7))),
    (aten.hardshrink, (X,), lambda x: either(inside(x, -0.5, 0.5), Tally(0), x)), (aten.softshrink, (X,), softshrink),
    (aten._prelu_kernel, (X, Y), lambda x, w: either(x > 0, x, w * x)),
    (aten.rrelu_with_noise, (X, Y, 0.1, 0.5), lambda x, _: either(x > 0, x, x * 0.3)),
    (aten.elu, (X, 2), lambda x: either(x > 0, x, (x.exp() - 1) * 2)), (aten.celu, (X, 2), lambda x: either(x > 0, x, ((x / 2).exp() - 1) * 2)),
    (aten.softplus, (X, 2), lambda x: softplus(x, 2)), (aten.mish, (X,), lambda x: x * log1p(x.exp()).tanh()),
    (aten.log_sigmoid_forward, (X,), lambda x: smaller(x, 0) - log1p((-size_of(x)).exp())),
    # their gradients
    (aten.sigmoid_backward, (G, P), lambda g, y: g * y * (1 - y)), (aten.tanh_backward, (G, P), lambda g, y: g * (1 - y * y)),
    (aten.silu_backward, (G, X), silu_backward), (aten.gelu_backward, (G, X), gelu_backward),
    (aten.gelu_backward, (G, X, {"approximate": "tanh"}), gelu_tanh_backward), (aten.mish_backward, (G, X), mish_backward),
    (aten.threshold_backward, (G, X, 0.5), lambda g, x: either(x > 0.5, g, Tally(0))),
    (aten.leaky_relu_backward, (G, X, 0.1, False), lambda g, x: either(x > 0, g, g * 0.1)),
    (aten._prelu_kernel_backward, (G, X, Y), prelu_backward),
    (aten.hardtanh_backward, (G, X, -1, 1), lambda g, x: either(inside(x, -1, 1), g, Tally(0))),
    (aten.hardshrink_backward, (G, X, 0.5), lambda g, x: either(inside(x, -0.5, 0.5), Tally(0), g)),
    (aten.softshrink_backward, (G, X, 0.5), lambda g, x: either(inside(x, -0.5, 0.5), Tally(0), g)),
    (aten.hardswish_backward, (G, X * 2), hardswish_backward),
    (aten.hardsigmoid_backward, (G, X * 2), lambda g, x: either(inside(x, -3, 3), g / 6, Tally(0))),
    (aten.rrelu_with_noise_backward, (G, X, Y, 0.1, 0.5, True, False), lambda g, x, noise: g * noise),
    (aten.rrelu_with_noise_backward, (G, X, Y, 0.1, 0.5, False, False), lambda g, x, noise: either(x > 0, g, g * 0.3)),
    (aten.elu_backward, (G, 2, 1, 1, False, X), lambda g, x: either(x > 0, g, g * 2 * x.exp())),
    (aten.elu_backward, (G, 2, 1, 0.5, False, X), lambda g, x: either(x > 0, g, g * (2 * 0.5) * (x * 0.5).exp())),
    (aten.elu_backward, (G, 2, 1, 1, True, X), lambda g, y: either(y > 0, g, g * (y + 2))),
    (aten.softplus_backward, (G, X, 2, 20), lambda g, x: softplus_backward(g, x, 2)), (aten.log_sigmoid_backward, (G, X, Q), log_sigmoid_backward),
    (aten.native_dropout_backward, (G, X > 0, 2.0), lambda g, kept: g * kept * 2),
    # losses, each a mean of forty
    (aten.binary_cross_entropy_backward, (ONE, P, X), lambda g, p, y: g * (1 / 40) * (p - y) / larger(p * (1 - p), 1e-12)),
    (aten.binary_cross_entropy_backward, (ONE, P, X, None, 0), lambda g, p, y: g * (p - y) / larger(p * (1 - p), 1e-12)),
    (aten.mse_loss_backward, (ONE, X, Y, 1), lambda g, x, y: (x - y) * (2 / 40) * g), (aten.smooth_l1_loss_backward, (ONE, X, Y, 1, 0.7), smooth_l1_backward),
    (aten.huber_loss_backward, (ONE, X, Y, 1, 0.7), huber_backward), (aten.soft_margin_loss_backward, (ONE, X, SIGNS, 1), soft_margin_backward),
]  # fmt: skip


def seen(op, *args):
    """What torch gives, and the vector FLOPs of that one operator."""
    args, named = (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})
    known(op)
    with torch.no_grad(), fk.counting(strict=True) as report:
        out = op(*args, **named)
    assert [row["operator"] for row in report.by_op()] == [
        op._schema.name.removeprefix("aten::") if hasattr(op, "_schema") else op.__name__
    ]
    return out, report.vector_flops


@pytest.mark.parametrize(
    "op, args, definition", DEFINITIONS, ids=lambda value: str(value) if "aten" in str(value) else ""
)
def test_an_element_takes_what_its_definition_takes(op, args, definition):
    out, flops = seen(op, *args)
    elements = zip(
        *(t.flatten().tolist() for t in torch.broadcast_tensors(*(a for a in args if isinstance(a, torch.Tensor)))),
        strict=True,
    )
    values, taken = [], set()
    for each in elements:
        with tally.counting() as ledger:
            values.append(tally.plain(definition(*map(Tally, each))))
        taken.add(ledger.operations)
    results = [t for t in (out if isinstance(out, tuple) else (out,)) if t.shape == X.shape]
    right = torch.tensor(values, dtype=torch.float64).reshape(40, -1).unbind(1)
    for result, expected in zip(results, right, strict=False):
        torch.testing.assert_close(result.double().flatten(), expected, rtol=1e-6, atol=1e-9)
    assert {flops} == {40 * each for each in taken}


def test_a_gradient_with_a_kernel_of_its_own_is_one_operator():
    """torch can also write these two out, and on some devices must: where it need not, two tensors are read and one is written."""
    for device, op in (("cpu", aten.silu_backward), ("meta", aten.silu_backward), ("cpu", aten.mish_backward)):
        report = fk.count(op, torch.empty(40, device=device), torch.empty(40, device=device), strict=True)
        assert report.bytes == 3 * 40 * 4
    report = fk.count(aten.mish_backward, torch.empty(40, device="meta"), torch.empty(40, device="meta"), strict=True)
    assert report.vector_flops == 15 * 40 and report.bytes > 3 * 40 * 4


# -- quantisation ---------------------------------------------------------------------------------------------


def quantised(x):
    return smaller(larger(rounded(x / 0.1) + 3, -128), 127)


def restored(x):
    return (quantised(x) - 3) * 0.1


def taken(definition, *given):
    with tally.counting() as ledger:
        definition(*given)
    return ledger.operations


F32, SCALE, ZERO = X.float(), torch.tensor([0.1]), torch.tensor([3])
SCALES, ZEROS = SCALE.expand(10).contiguous(), ZERO.expand(10).contiguous()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    "op, args, definition",
    [
        (aten.quantize_per_tensor, (F32, 0.1, 3, torch.qint8), quantised),
        (aten.quantize_per_channel, (F32, SCALES.double(), ZEROS, 1, torch.qint8), quantised),
        (aten.quantize_per_tensor_dynamic, (F32, torch.qint8, False), lambda x: quantised(smaller(larger(x, -2), 2))),  # and its extremes
        (aten.fake_quantize_per_tensor_affine_cachemask, (F32, 0.1, 3, -128, 127), restored),
        (aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams, (F32, SCALE, ZERO.int(), torch.ones(1).long(), -128, 127), restored),
        (aten.fake_quantize_per_channel_affine_cachemask, (F32, SCALES, ZEROS.int(), 1, -128, 127), restored),
    ],
)  # fmt: skip
def test_an_element_that_is_quantised(op, args, definition):
    out, flops = seen(op, *args)
    first = out[0] if isinstance(out, tuple) else out
    if definition is restored:
        torch.testing.assert_close(
            first.flatten(), torch.tensor([tally.plain(restored(Tally(x))) for x in F32.flatten().tolist()])
        )
    elif first.is_quantized and first.qscheme() is torch.per_tensor_affine and first.q_zero_point() == 3:
        assert first.int_repr().flatten().tolist() == [tally.plain(quantised(Tally(x))) for x in F32.flatten().tolist()]
    assert flops == 40 * taken(definition, Tally(0.3))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_a_number_is_restored_from_its_code():
    codes = torch.quantize_per_tensor(F32, 0.1, 3, torch.qint8)
    assert seen(aten.dequantize.self, codes)[1] == 40 * taken(lambda q: (q - 3) * 0.1, Tally(5))


# -- operators that no kernel here runs, or whose result is drawn ---------------------------------------------


def by_hand(op, out, *args, **named):
    op = getattr(known(op), "default", op)
    return rule_for(op).formula(OpCall(op, args, named, out)).vector["elementwise"]


@pytest.mark.parametrize(
    "op, args, definition",
    [
        (aten._masked_scale, (X, Y, 2.0), lambda x, kept=1: x * kept * 2),
        (aten.native_dropout, (X, 0.3, True), lambda x: either(Tally(0.5) > 0.3, x * 2, Tally(0))),
        (aten.native_dropout, (X, 0.3, False), lambda x: x), (aten.native_dropout, (X, 0.3, None), lambda x: either(Tally(0.5) > 0.3, x * 2, Tally(0))),
        (aten._fused_dropout, (X, 0.3), lambda x: either(Tally(0.5) > 0.3, x * 2, Tally(0))),
        (aten._standard_gamma_grad, (X, X), once(lambda x: x)), (aten._dirichlet_grad, (X, X, X), once(lambda x: x)),
        (torch.ops.quantized.relu6, (X,), lambda x: smaller(larger(x, 0), 6)),
        (torch.ops.quantized.prelu, (X, Y, 0.1, 3), lambda x: either(x > 0, x, x * 2)),
        # a scale that is halved where infinities were found, and doubled after a while without
        (aten._amp_update_scale, (X, Y, Y, 2.0, 0.5, 9), lambda x: x * (0.5 if x > 1 else 2.0 if x > 2 else 1.0)),
    ],
)  # fmt: skip
def test_an_element_without_a_kernel_here(op, args, definition):
    assert by_hand(op, X, *args) == 40 * taken(definition, Tally(0.5))


def test_pairs_and_triples():
    """A gated unit takes two numbers for one: a·σ(b). A vector product takes two of each for one: a₁·b₂ − a₂·b₁."""
    out, flops = seen(aten.glu, X, 1)
    pairs = zip(X[:, :5].flatten().tolist(), X[:, 5:].flatten().tolist(), strict=True)
    with tally.counting() as ledger:
        values = [tally.plain(Tally(a) * logistic(Tally(b))) for a, b in pairs]
    torch.testing.assert_close(out.flatten(), torch.tensor(values, dtype=torch.float64))
    assert flops == ledger.operations
    assert seen(aten.__irshift__, torch.arange(7), 1)[1] == 7
    a, b = X[:, :3], Y[:, :3]
    assert seen(aten.linalg_cross, a, b)[1] == 12 * taken(lambda a, b, c, d: a * b - c * d, *tally.numbers(4))


# -- losses before their sum ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, args, definition",
    [
        ("mse_loss", (X, Y, {"reduction": 0}), lambda x, y: (d := x - y) * d),
        ("smooth_l1_loss", (X, Y, {"reduction": 0, "beta": 0.7}), lambda x, y: d * 0.5 * d / 0.7 if (d := size_of(x - y)) < 0.7 else d - 0.35),
        ("huber_loss", (X, Y, {"reduction": 0, "delta": 0.7}), lambda x, y: d * 0.5 * d if (d := size_of(x - y)) < 0.7 else (d - 0.35) * 0.7),
        ("soft_margin_loss", (X, SIGNS, {"reduction": 0}), lambda x, y: log1p((-(x * y)).exp())),
        ("binary_cross_entropy", (P, Q / 3, {"reduction": 0}), lambda p, y: (y - 1) * larger(log1p(-p), -100) - y * larger(p.log(), -100)),
        (
            "binary_cross_entropy_with_logits", (X, P, {"reduction": 0}),
            lambda x, y: (1 - y) * x - (smaller(x, 0) - log1p((-size_of(x)).exp())),
        ),
    ],
)  # fmt: skip
def test_an_element_of_a_loss(name, args, definition):
    op = getattr(aten, name).default
    out = op(*args[:-1], **args[-1])
    values, most = [], 0
    for each in zip(*(t.flatten().tolist() for t in args[:-1]), strict=True):
        with tally.counting() as ledger:
            values.append(tally.plain(definition(*map(Tally, each))))
        most = max(most, ledger.operations)  # of two ways the longer one is counted
    torch.testing.assert_close(out.flatten(), torch.tensor(values, dtype=torch.float64))
    assert by_hand(op, out, *args[:-1], **args[-1]) == 40 * most == 40 * LOSSES[name][0]
    # A sum is an add each, a mean a division more.
    for reduction, more in ((2, 40), (1, 41)):
        assert by_hand(op, ONE, *args[:-1], **{**args[-1], "reduction": reduction}) == 40 * most + more


# -- complex numbers ------------------------------------------------------------------------------------------


class Pair:
    """A complex number, of two that count."""

    def __init__(self, re, im):
        self.re, self.im = re, im

    def __mul__(self, other):
        return Pair(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def squared(self):
        return self.re * self.re + self.im * self.im


def divided(x, y):
    top, below = x * Pair(y.re, -y.im), y.squared()
    return Pair(top.re / below, top.im / below)


def inverted(x):
    below = x.squared()
    return Pair(x.re / below, -x.im / below)


def direction(x):
    length = x.squared().sqrt()
    return Pair(x.re / length, x.im / length)


COMPLEXES = torch.complex(X, Y), torch.complex(P, Q)


@pytest.mark.parametrize(
    "op, other, definition",
    [
        (aten.mul.Tensor, COMPLEXES[1], lambda x, y: x * y), (aten.mul.Tensor, Q, lambda x, y: Pair(x.re * y.re, x.im * y.re)),
        (aten.mul.Tensor, 3.0, lambda x: Pair(x.re * 3, x.im * 3)), (aten.mul.Tensor, 1j + 2, lambda x: x * Pair(Tally(2), Tally(1))),
        (aten.div.Tensor, COMPLEXES[1], divided), (aten.div.Tensor, 3.0, lambda x: Pair(x.re / 3, x.im / 3)),
        (aten.add.Tensor, COMPLEXES[1], lambda x, y: Pair(x.re + y.re, x.im + y.im)), (aten.neg, None, lambda x: Pair(-x.re, -x.im)),
        (aten.eq.Tensor, COMPLEXES[1], lambda x, y: (x.re == y.re) & (x.im == y.im)),
        (aten.ne.Tensor, COMPLEXES[1], lambda x, y: (x.re != y.re) | (x.im != y.im)),
        (aten.abs, None, lambda x: x.squared().sqrt()), (aten.angle, None, lambda x: atan2(x.im, x.re)), (aten.reciprocal, None, inverted),
        (aten.sgn, None, direction),
    ],
)  # fmt: skip
def test_an_element_that_is_complex(op, other, definition):
    a, b = COMPLEXES
    out, flops = seen(op, a, *([] if other is None else [other]))
    values = []
    for x, y in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True):
        given = [Pair(Tally(n.real), Tally(n.imag)) for n in ((x, y) if isinstance(other, torch.Tensor) else (x,))]
        with tally.counting() as ledger:
            found = definition(*given)
        values.append(complex(found.re.value, found.im.value) if isinstance(found, Pair) else tally.plain(found))
    if other is not Q:
        torch.testing.assert_close(out.flatten(), torch.tensor(values, dtype=out.dtype))
    assert flops == 40 * ledger.operations


# -- reductions -----------------------------------------------------------------------------------------------


def running(step, start, last=lambda total, n: total):
    """A row of numbers, each joined to what was found so far."""

    def whole(row):
        total = start
        for x in row:
            total = step(total, x)
        return last(total, len(row))

    return whole


def largest(row):
    return running(larger, -math.inf)(row)


def smallest(row):
    return running(smaller, math.inf)(row)


def both_ends(row):
    return smallest(row), largest(row)


def total_of(row):
    return running(lambda total, x: total + x, Tally(0.0))(row)


def root_mean(take):
    def whole(row):
        mean = total_of(row) / len(row)
        return take(running(lambda total, x: total + (d := x - mean) * d, Tally(0.0))(row) / (len(row) - 1))

    return whole


def logsumexp(row):
    top = largest(row)
    return running(lambda total, x: total + (x - top).exp(), Tally(0.0))(row).log() + top


def also(join):
    return running(lambda found, x: Tally(once(join)(found, x)), True)


def without_nan(total, x):
    return either(x == math.nan, total, total + x)


def bins(row):
    found = [Tally(0.0) for _ in range(4)]
    for x in row:
        place = int(floor((x - -2.0) * 1.0).value)
        found[place] = found[place] + 1
    return found


ROOT = Tally.sqrt
ROWS = [
    ("sum", aten.sum.dim_IntList, ([1],), total_of), ("nansum", aten.nansum, ([1],), running(without_nan, Tally(0.0))),
    ("prod", aten.prod.dim_int, (1,), running(lambda total, x: total * x, Tally(1.0))), ("mean", aten.mean.dim, ([1],), lambda row: total_of(row) / 10),
    ("max", aten.max.dim, (1,), largest), ("min", aten.min.dim, (1,), smallest), ("amax", aten.amax, ([1],), largest),
    ("amin", aten.amin, ([1],), smallest), ("aminmax", aten.aminmax, ({"dim": 1},), both_ends), ("_aminmax", aten._aminmax.dim, (1,), both_ends),
    ("argmax", aten.argmax, (1,), largest), ("argmin", aten.argmin, (1,), smallest),
    ("all", aten.all.dim, (1,), also(lambda a, b: bool(a and b))), ("any", aten.any.dim, (1,), also(lambda a, b: bool(a or b))),
    ("count_nonzero", aten.count_nonzero.dim_IntList, ([1],), running(lambda total, x: either(x != 0, total + 1, total), Tally(0.0))),
    ("linalg_vector_norm", aten.linalg_vector_norm, (2, [1]), running(lambda total, x: total + x * x, Tally(0.0), lambda total, n: total.sqrt())),
    ("linalg_vector_norm", aten.linalg_vector_norm, (1, [1]), running(lambda total, x: total + size_of(x), Tally(0.0))),
    ("linalg_vector_norm", aten.linalg_vector_norm, (math.inf, [1]), lambda row: largest([size_of(x) for x in row])),
    ("linalg_vector_norm", aten.linalg_vector_norm, (0, [1]), running(lambda total, x: either(x != 0, total + 1, total), Tally(0.0))),
    ("norm", aten.norm.ScalarOpt_dim, (2, [1]), running(lambda total, x: total + x * x, Tally(0.0), lambda total, n: total.sqrt())),
    ("norm", aten.norm.ScalarOpt_dim, (1, [1]), running(lambda total, x: total + size_of(x), Tally(0.0))),
    ("native_norm", aten.native_norm.ScalarOpt_dim_dtype, (2, [1], False, None), running(lambda t, x: t + x * x, Tally(0.0), lambda t, n: t.sqrt())),
    ("linalg__powsum", aten.linalg__powsum, (2, [1]), running(lambda total, x: total + x * x, Tally(0.0))),
    ("var", aten.var.correction, ([1],), root_mean(lambda v: v)), ("std", aten.std.correction, ([1],), root_mean(ROOT)),
    ("var_mean", aten.var_mean.correction, ([1],), root_mean(lambda v: v)), ("std_mean", aten.std_mean.correction, ([1],), root_mean(ROOT)),
    ("logsumexp", aten.logsumexp, ([1],), logsumexp),
    ("cumsum", aten.cumsum, (1,), total_of), ("cumprod", aten.cumprod, (1,), running(lambda total, x: total * x, Tally(1.0))),
    ("cummax", aten.cummax, (1,), largest), ("cummin", aten.cummin, (1,), smallest), ("_cummax_helper", aten._cummax_helper, (X, X, 1), largest),
    ("_cummin_helper", aten._cummin_helper, (X, X, 1), smallest), ("logcumsumexp", aten.logcumsumexp, (1,), running(logaddexp, Tally(-math.inf))),
    ("_logcumsumexp", aten._logcumsumexp, (1,), running(logaddexp, Tally(-math.inf))), ("histc", aten.histc, (4, -2, 2), bins),
    ("kthvalue", aten.kthvalue, (2, 1), largest), ("median", aten.median.dim, (1,), largest), ("nanmedian", aten.nanmedian.dim, (1,), largest),
    ("mode", aten.mode, (1,), largest),
    ("_sparse_sum", aten._sparse_sum.dim, ([1],), total_of), ("_sparse_csr_sum", aten._sparse_csr_sum.dim_dtype, ([1],), total_of),
    ("_sparse_csr_prod", aten._sparse_csr_prod.dim_dtype, ([1],), running(lambda total, x: total * x, Tally(1.0))),
]  # fmt: skip
# What these tell is a place, a code or the numbers as they are, and not what was compared or added on the way.
VALUELESS = {"argmax", "argmin", "all", "any", "kthvalue", "median", "nanmedian", "mode", "histc", "cumsum", "cumprod",
             "cummax", "cummin", "logcumsumexp", "_logcumsumexp"}  # fmt: skip
UNRUN = {"native_norm", "_sparse_sum", "_sparse_csr_sum", "_sparse_csr_prod", "_cummax_helper", "_cummin_helper"}


@pytest.mark.parametrize("name, op, args, algorithm", ROWS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_row_takes_what_its_algorithm_takes(name, op, args, algorithm):
    """Four rows of ten. A sum starts from zero, a maximum from −∞: ten steps for ten numbers."""
    with tally.counting() as ledger:
        values = [algorithm([Tally(x) for x in row]) for row in X.tolist()]
    if name in UNRUN:
        assert by_hand(op, X[:, 0], X, *args) == ledger.operations
        return
    out, flops = seen(op, X, *args)
    assert flops == ledger.operations
    if name not in VALUELESS:
        expected = torch.tensor([tally.plain(value) for value in values], dtype=torch.float64).reshape(4, -1).unbind(1)
        for result, right in zip(out if isinstance(out, tuple) else (out,), expected, strict=False):
            torch.testing.assert_close(result.double(), right)


def test_sums_of_other_kinds():
    """One bin more for each number; the numbers on a diagonal are added; whether all are true; norms of several tensors."""
    assert seen(aten.bincount, torch.arange(7))[1] == 7
    square = drawn(4, 6)
    report = fk.count(torch.trace, square, strict=True)
    assert (report.vector_flops, report.bytes) == (4, 8 * (4 + 1))
    assert fk.count(torch.trace, torch.complex(square, square)).vector_flops == 2 * 4
    for op in (aten._is_all_true, aten._is_any_true):
        assert seen(op, X > 0)[1] == 40
    for p, flops in ((2, 2 * 47 + 2), (1, 47), (math.inf, 47)):
        with torch.no_grad(), fk.counting(strict=True) as report:
            torch._foreach_norm([X, X[0, :7]], p)
        assert report.vector_flops == flops
    with torch.no_grad(), fk.counting(strict=True) as report:
        torch._foreach_max([X, X[0, :7]])
    assert report.vector_flops == 47


# -- nothing left out -----------------------------------------------------------------------------------------

ELSEWHERE = {"bincount", "trace", "_is_all_true", "_is_any_true"}  # in the test above
# Of the first argument (4 × 10 numbers) and of the result (2 × 10): a sum of t taps takes t multiplies and t − 1 adds in each dimension; on
# the way back a tap takes a multiply for each dimension, and an add. The rest by what stands beside it.
TAPS = {"linear1d": (1, 2), "bilinear2d": (2, 2), "trilinear3d": (3, 2), "bicubic2d": (2, 4)}
ASKED = {
    **{f"upsample_{kind}": sum(t**d * (2 * t - 1) for d in range(n)) * 20 for kind, (n, t) in TAPS.items()},
    **{f"upsample_{kind}_backward": t**n * (n + 1) * 40 for kind, (n, t) in TAPS.items()},
    **{f"{start}{n}d_backward": 40 for start in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)},
    **dict.fromkeys(("unfold_backward", "col2im", "equal"), 40),  # one operation for each number that is read
    **dict.fromkeys(("softmax", "_softmax", "_safe_softmax", "_masked_softmax", "_sparse_softmax", "_nested_tensor_softmax_with_shape"), 5 * 40),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data", "_masked_softmax_backward", "_sparse_softmax_backward_data",
                     "_sparse_log_softmax_backward_data", "batch_norm_backward_reduce"), 4 * 40),
    "histogram": 4 * 40, "batch_norm_stats": 4 * 40 + 5 * 20, "batch_norm_backward_elemt": 6 * 40, "glu_backward": 7 * 40,
    "_transform_bias_rescale_qkv": 40 + 20, "_amp_foreach_non_finite_check_and_unscale": 2 * 40,
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_a_row_that_is_asked_by_hand(name):
    call = OpCall(getattr(aten, name), (X,), {}, X[:2])
    assert FORMULAS[f"aten::{name}"](call).vector == {"elementwise": ASKED[name]}


HERE = {
    "dequantize", "glu", "linalg_cross", "__irshift__", "_masked_scale", "native_dropout", "_fused_dropout", "_standard_gamma_grad",
    "_dirichlet_grad", "relu6", "prelu", "_amp_update_scale", "batch_norm_elemt", "quantized_batch_norm", "_compute_linear_combination",
}  # fmt: skip


def test_each_recipe_has_a_definition():
    names = {str(op).removeprefix("aten.").split(".")[0] for op, *_ in DEFINITIONS} | HERE
    assert {name for name in RECIPES if "quantize_" not in name} <= names
    assert set(SIMPLE) <= {name for name, *_ in ROWS} | ELSEWHERE | set(ASKED)


@pytest.mark.parametrize("p", [0, 1, 2, 3, math.inf])
def test_norms_of_complex_numbers(p):
    a = COMPLEXES[0]
    out, flops = seen(aten.linalg_vector_norm, a, p)
    with tally.counting() as ledger:
        total = Tally(0.0)
        for z in a.flatten().tolist():
            x = Pair(Tally(z.real), Tally(z.imag))
            if p == 0:
                total = either((x.re != 0) | (x.im != 0), total + 1, total)
            elif p == 1:
                total = total + x.squared().sqrt()
            elif p == 2:
                total = total + x.squared()
            elif p == 3:
                total = total + once(pow)(x.squared().sqrt(), 3)
            else:
                total = larger(total, x.squared().sqrt())
        total = total.sqrt() if p == 2 else once(pow)(total, 1 / 3) if p == 3 else total
    torch.testing.assert_close(out.item(), total.value)
    assert flops == ledger.operations


@pytest.mark.parametrize(
    "p, each, root", [(2, 2, 1), (3, 2, 1), (1, 1, 0), (0, 2, 0), (math.inf, 1, 0), (-math.inf, 1, 0), (None, 2, 1)]
)
def test_norms_of_several_tensors(p, each, root):
    """Power and add, and a root of each; an add alone; a compare and an add; a compare."""
    X2 = [X, X[0, :7]]
    out = [ONE, ONE]
    assert by_hand(aten.norm.ScalarOpt_dim, X[0], X, p, [1]) == each * 40 + root * 10
    if p is not None:
        assert by_hand(aten._foreach_norm.Scalar, out, X2, p) == each * 47 + root * 2
        assert by_hand(aten._foreach_powsum.Scalar, out, X2, p) == by_hand(aten.linalg__powsum, ONE, X2, p) == each * 47


def test_a_norm_whose_power_is_not_said_is_a_root_of_squares():
    assert (
        by_hand(aten.norm.ScalarOpt_dim, X[0], COMPLEXES[0], None, [1])
        == by_hand(aten.norm.ScalarOpt_dim, X[0], COMPLEXES[0], 2, [1])
        == 4 * 40 + 10
    )
