"""What is no size, switch, format, mask or convention is refused, by name, with its value and a way out."""

import itertools
import math
import operator
import random
import re
import tomllib
import typing
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import altair
import numpy
import pandas
import pytest
import sympy
import torch
from formulas import FORMULAS

import flopkit as fk
from flopkit.layers.pointwise import ACTIVATIONS
from flopkit.names import plain

NO_SIZES = [0, -1, math.nan, math.inf, -math.inf, True, "4", 4.0, 4.5, Fraction(4), Decimal(4), 4j, [4], {}, object]
REMEDY = re.compile(r"must be|pass |give ")


def arguments(name):
    formula = FORMULAS[name]
    sizes = formula.draw(random.Random(name), 6)
    inputs = {}
    for optional, value in formula.optional.items():
        letter, _, end = optional.rpartition("_")
        other = f"{letter}_{'out' if end == 'in' else 'in'}"  # where both are sizes, they go together
        inputs[optional] = sizes[other] * sizes.get("stride", 1) if end in ("in", "out") and other in sizes else value
    return sizes | inputs


SIZES = [(name, size) for name in FORMULAS for size in arguments(name) if not name.startswith("activation ")]
SIZES += [("activation gelu", "elements")]


def refusal(call, *given, **named):
    """The message of the error, which has to be one that a caller expects."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call(*given, **named)
    return str(caught.value)


@pytest.mark.parametrize(("name", "size"), SIZES, ids=[" ".join(pair) for pair in SIZES])
def test_no_size(name, size):
    for bad in NO_SIZES:
        if size == "shared" and bad == 0 and bad is not False:
            continue  # no shared experts is an ordinary case
        if size in ("kernel", "stride", "dilation") and isinstance(bad, list):
            continue  # one size an axis: see below
        message = refusal(FORMULAS[name].cost, arguments(name) | {size: bad})
        spoken = "width" if size == "window" else size
        value = str(bad) if isinstance(bad, (int, float)) else repr(bad)
        assert message.startswith(f"{spoken}={value}"), (bad, message)
        assert REMEDY.search(message), message


def test_a_list_is_a_kernel():
    """One size an axis may stand in a list as well as in a tuple; the message then names the axis."""
    sizes = dict(batch=1, c_in=1, c_out=1, h_out=4, w_out=4)
    assert fk.conv2d(**sizes, kernel=[3, 1]).flops == fk.conv2d(**sizes, kernel=(3, 1)).flops
    assert refusal(fk.conv2d, **sizes, kernel=(3, 0)) == "kernel[1]=0: a size must be at least 1"
    assert refusal(fk.conv2d, **sizes, kernel=(3, 3, 3)) == "kernel=(3, 3, 3): give one size, or 2 of them"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (numpy.array([4, 0]), "tokens contains 0: each size must be a whole number of at least 1"),
        (numpy.array([4, -1]), "tokens contains -1: each size must"),
        (numpy.array([4.0, 4.5]), "tokens contains 4.5: each size must"),
        (numpy.array([4.0, math.nan]), "tokens contains nan: each size must"),
        (numpy.array([4.0, math.inf]), "tokens contains inf: each size must"),
        (numpy.array([True, False]), "tokens has dtype bool: a sweep of sizes must be"),
        (numpy.array(["4"]), "tokens has dtype <U1: a sweep of sizes must be"),
        (numpy.array([4 + 1j]), "tokens has dtype complex128: a sweep of sizes must be"),
        (numpy.array(["2020-01-01"], dtype="datetime64[D]"), "tokens has dtype datetime64"),
        (numpy.float64(4.0), "tokens=4.0: a size must be an int, not a float; pass 4"),
        (numpy.bool_(True), "tokens=True: a size must be a whole number, not a bool"),
        (sympy.Integer(0), "tokens=0: a size must"),
        (sympy.Rational(1, 2), "tokens=1/2: a size must"),
        (sympy.oo, "tokens=oo: a size must"),
        (sympy.nan, "tokens=nan: a size must"),
        ([1, 2, 4], "tokens=[1, 2, 4]: for a sweep pass a NumPy array"),
    ],
)
def test_no_sweep_and_no_symbol(values, message):
    assert refusal(fk.dense, tokens=values, d_in=4, d_out=4).startswith(message)


def test_sweeps_that_do_not_divide():
    message = refusal(fk.conv1d, batch=1, c_in=8, c_out=8, l_out=1, kernel=1, groups=numpy.array([1, 3]))
    assert message == "groups must divide c_in everywhere in the sweep, and 3 does not divide 8"
    message = refusal(fk.group_norm, batch=1, channels=numpy.array([8, 9]), positions=1, groups=4)
    assert message == "groups must divide channels everywhere in the sweep, and 4 does not divide 9"


MHA = dict(batch=1, d_model=8, heads=2)
MLA = dict(batch=1, d_model=8, heads=2, kv_lora=4, qk_nope=4, v_head_dim=4)
CONV = dict(batch=1, c_in=1, c_out=1, w_out=4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda n: fk.moe(tokens=1, d_model=1, d_ff=1, experts=n([8, 4]), top_k=n([2, 5])), "top_k=5 is more than experts=4"),
        (lambda n: fk.learned_positions(batch=1, seq=n([4, 9]), positions=n([8, 8]), d_model=1), "seq=9 is longer than the table of positions=8"),
        (lambda n: fk.rotary(batch=1, seq=1, heads=1, head_dim=n([4, 3])), "head_dim=3: features are turned in pairs"),
        (lambda n: fk.mla(q=1, kv=1, qk_rope=n([4, 3]), **MLA), "qk_rope=3: features are turned in pairs"),
        (lambda n: fk.mla(q=n([4, 5]), kv=n([4, 4]), qk_rope=2, **MLA), "q=5 is more than kv=4"),
        (lambda n: fk.multi_head_attention(q=1, kv=n([4, 4]), kv_new=n([4, 5]), **MHA), "kv_new=5 is more than kv=4"),
        (lambda n: fk.conv2d(h_in=n([3, 3]), h_out=n([3, 2]), kernel=7, **CONV), "kernel=7 reaches over 7 positions and the input has h_in=3"),
        (lambda n: fk.conv2d(h_in=n([6, 60]), h_out=n([4, 4]), kernel=3, **CONV), "h_out=4: a kernel of 3 with stride 1 over h_in=60 gives 58"),
        (lambda n: fk.conv_transpose1d(batch=1, c_in=1, c_out=1, l_in=n([5, 5]), kernel=2, stride=2, l_out=n([11, 12])), "l_out=12: .* at most 11 positions"),
        (lambda n: fk.max_pool2d(batch=1, channels=1, w_out=1, kernel=2, h_in=n([9, 10]), h_out=n([4, 4])), "h_out=4: a window of 2 with stride 2 leaves positions of h_in=10 unread"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_go_together_in_every_reading(call, message):
    """The last row of each sweep is wrong, whether it stands alone or in the sweep; without it all is well."""
    for take in (lambda values: values[-1], numpy.array):
        with pytest.raises(ValueError, match=f"^{message}"):
            call(take)
    assert call(lambda values: values[0]).bytes > 0
    symbols = itertools.count()
    assert call(lambda values: sympy.Symbol(f"n{next(symbols)}", positive=True, integer=True)).bytes != 0


def test_an_array_is_a_sweep_also_of_kernels():
    sizes = dict(batch=1, c_in=1, c_out=1, h_out=4, w_out=4)
    swept = fk.conv2d(**sizes, kernel=numpy.array([3, 5]))
    assert swept.flops.tolist() == [fk.conv2d(**sizes, kernel=side).flops for side in (3, 5)]
    for pair in ((3, 5), [3, 5], (numpy.int64(3), 5)):
        assert fk.conv2d(**sizes, kernel=pair).flops == 2 * 16 * 15
    assert fk.conv2d(**sizes, kernel=(numpy.array([1, 3]), 5)).flops.tolist() == [2 * 16 * 5, 2 * 16 * 15]


def test_a_parameter_is_no_name():
    """It is equal to everything."""
    n, sizes = altair.param(name="n", value=1), dict(batch=1, q=2, kv=2, heads=1, head_dim=4)
    for wrong in (n, n + 1, numpy.array(["math", "flash"]), None, ["flash"], 1):
        assert refusal(fk.attention, **sizes, kernel=wrong).startswith("kernel=")
        assert refusal(fk.attention, **sizes, mask=wrong).startswith("mask=")
        assert refusal(fk.activation, wrong, elements=1).startswith("kind=")
        assert refusal(fk.mla, q=1, kv=1, qk_rope=2, form=wrong, **MLA).startswith("form=")


@pytest.mark.parametrize("bad", [2, -1, 0.5, "yes", "", None, math.nan, [True], numpy.array([0, 1])])
def test_no_switch(bad):
    for name, formula in FORMULAS.items():
        for switch in formula.switches:
            message = refusal(formula.cost, arguments(name), **{switch: bad})
            assert message.startswith(f"{switch}=") and "must be True or False" in message


@pytest.mark.parametrize("name", FORMULAS)
def test_no_format(name):
    message = refusal(FORMULAS[name].cost, arguments(name), dtype="bf17")
    assert message.startswith("dtype='bf17' is not a known number format; did you mean bf16")
    for bad in (None, 16, ["bf16"]):
        assert refusal(FORMULAS[name].cost, arguments(name), dtype=bad).startswith(f"dtype={bad!r} is not a known")


@pytest.mark.parametrize("name", FORMULAS)
def test_no_convention_among_the_arguments(name):
    """A formula answers under EXACT; a convention is asked for with .under()."""
    message = refusal(FORMULAS[name].cost, arguments(name), convention=fk.conventions.TORCH)
    assert "answers under EXACT" in message and ".under(convention)" in message


def test_what_is_no_convention():
    for bad in (None, 2, ["EXACT"]):
        message = refusal(fk.Cost, "wrong", convention=bad)
        assert message.startswith(f"convention={bad!r}: must be a flopkit.Convention or the name of one")


def test_sizes_by_place_and_by_another_library_s_name():
    assert refusal(fk.dense, 4, 8, 16) == "dense takes its sizes by name: dense(tokens=4, d_in=8, d_out=16)"
    assert (
        refusal(fk.dense, tokens=4, in_features=8, d_out=16)
        == "dense has no argument 'in_features'; did you mean d_in?"
    )
    assert "did you mean kernel?" in refusal(fk.conv2d, kernel_size=3)
    assert "did you mean d_out" in refusal(fk.dense, d_outs=3)
    assert "known: m, k, n, batch, dtype" in refusal(fk.matmul, whatever=3)


def test_groups_that_do_not_divide():
    sizes = dict(batch=1, c_in=6, c_out=8, h_out=1, w_out=1, kernel=1)
    assert refusal(fk.conv2d, **sizes, groups=4) == "groups=4 does not divide c_in=6: near sizes that do are 2 and 3"
    assert refusal(fk.conv2d, **sizes, groups=3) == "groups=3 does not divide c_out=8: near sizes that do are 2 and 4"
    message = refusal(fk.group_norm, batch=1, channels=10, positions=1, groups=4)
    assert message == "groups=4 does not divide channels=10: near sizes that do are 2 and 5"


def test_an_unknown_name_has_near_ones():
    with pytest.raises(AttributeError, match=r"no attribute 'conv2'; did you mean .*conv2d"):
        fk.conv2
    with pytest.raises(ImportError, match="sofmax"):
        exec("from flopkit import sofmax")
    with pytest.raises(AttributeError, match=r"no attribute 'Devise'; did you mean Device, device"):
        fk.Devise


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("linear", "here it is fk.dense(tokens=, d_in=, d_out=)"),
        ("BMM", "here it is fk.matmul(m=, k=, n=, batch=)"),
        ("sdpa", "here it is fk.attention(...)"),
        ("FlopCounterMode", "here it is with fk.counting() as report"),
    ],
)
def test_a_name_of_another_library_is_understood(name, says):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'.*{re.escape(says)}"):
        getattr(fk, name)


def test_the_answers_to_names_of_other_libraries_exist():
    answers = tomllib.loads((Path(fk.__file__).parent / "data" / "elsewhere.toml").read_text("utf-8"))
    elsewhere = [plain(name) for names in answers.values() for name in names]
    assert len(elsewhere) == len(set(elsewhere)), "one name with two answers"
    here = {plain(name) for name in fk.__all__}
    for name in elsewhere:
        hidden = [own for own in here if own == name or (name.endswith("*") and own.startswith(name[:-1]))]
        assert not hidden, f"{hidden} has this name here and needs no answer"
    for answer in answers:
        tree = re.findall(r"fk((?:\.\w+)+)", answer)
        assert tree, answer
        for path in tree:
            assert operator.attrgetter(path[1:])(fk) is not None


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: fk.load("resnet51"), r"is not a known model; did you mean resnet50"),
        (lambda: fk.load("vgg"), r"did you mean vgg11, vgg13, vgg16 or vgg19\?"),
        (lambda: fk.models.cnn("llama-3-8b"), r"here it is fk\.load\(name\)"),
        (lambda: fk.load("h100-sxm"), r"here it is fk\.device\(name\)"),
        (lambda: fk.device("gpt2"), r"here it is fk\.load\(name\)"),
        (lambda: fk.lstm, r"here it is fk\.count\(torch\.nn\.LSTM"),
        (lambda: fk.mlp, r"here it is fk\.dense\("),
        (lambda: fk.PALM, r"here it is fk\.conventions"),
        (lambda: fk.palm_540b, r"here it is fk\.load\(name\)"),
        (lambda: fk.h100, r"here it is fk\.device\(name\)"),
        (lambda: fk.vgg16, r"here it is fk\.load\(name\)"),
        (lambda: fk.load("llama-5-scout"), r"did you mean llama-.* or \d+ more\?"),
        (lambda: fk.load("zzz"), r"known: (\S+, ){8}\d+ more"),
    ],
)
def test_one_registry_knows_of_the_others(ask, says):
    with pytest.raises((AttributeError, ValueError), match=says):
        ask()


def test_every_name_of_a_registry_is_known_to_the_face():
    """By its own name or by that of its family."""
    registries = {"fk.load(": fk.models.cnn_names(), "fk.conventions": fk.conventions.PRESETS}
    for answer, names in registries.items():
        for name in names:
            with pytest.raises(AttributeError, match=re.escape(f"here it is {answer}")):
                getattr(fk, name)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_an_activation_by_its_name_is_told_its_own_kind(kind):
    with pytest.raises(AttributeError, match=rf'here it is fk\.activation\("{kind}", elements=\)$'):
        getattr(fk, kind)


def test_tools_that_probe_for_names_get_no_advice():
    with pytest.raises(AttributeError, match=r"no attribute '__wrapped__'$"):
        fk.__wrapped__


@pytest.mark.parametrize(("h_in", "h_out", "stride"), [(10, 1000, 1), (1000, 10, 1), (9, 3, 2), (9, 9, 2)])
def test_no_output_that_no_padding_gives(h_in, h_out, stride):
    """9 rows under a kernel of 2 with stride 2 give 4 rows, or up to 6 with padding; never 3 or 9."""
    with pytest.raises(ValueError, match=rf"h_out={h_out}: a kernel of 2 .* over h_in={h_in} gives"):
        fk.conv2d(batch=1, c_in=1, c_out=1, h_in=h_in, w_in=4, h_out=h_out, w_out=4, kernel=(2, 1), stride=(stride, 1))


def test_no_transposed_output_beyond_the_kernel_s_reach():
    """5 rows, stride 2, kernel 2: torch gives 10, or 11 with output_padding=1."""
    assert fk.conv_transpose2d(batch=1, c_in=1, c_out=1, h_in=5, w_in=5, kernel=2, stride=2, h_out=11, w_out=10).flops
    with pytest.raises(ValueError, match="h_out=12: .* at most 11 positions"):
        fk.conv_transpose2d(batch=1, c_in=1, c_out=1, h_in=5, w_in=5, kernel=2, stride=2, h_out=12, w_out=10)


@pytest.mark.parametrize("q", [0, -4, 2.5, "ab", True, [1, 2]])
def test_no_pairs_of_what_is_no_size(q):
    with pytest.raises((TypeError, ValueError), match="q="):
        fk.visible_pairs(q, 5, "causal")


MIXED = {
    "dense": lambda one, other: fk.dense(tokens=one, d_in=other, d_out=1),
    "attention": lambda one, other: fk.attention(batch=1, q=one, kv=other, heads=1, head_dim=1, mask="causal"),
    "layer_norm": lambda one, other: fk.layer_norm(tokens=one, d=other),
    "moe": lambda one, other: fk.moe(tokens=one, d_model=1, d_ff=1, experts=other, top_k=1),
    "roofline": lambda one, other: fk.roofline(fk.residual(elements=one), SimpleNamespace(peak=other, bandwidth=other)),
}
KINDS_OF_SIZE = {
    "symbol": sympy.Symbol("t"),
    "array": numpy.array([1, 2]),
    "parameter": altair.param(name="n", value=1),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(KINDS_OF_SIZE, 2)))
def test_one_kind_of_value_in_one_formula(name, one, other):
    with pytest.raises(TypeError, match="cannot mix .* use one kind for all sizes"):
        MIXED[name](KINDS_OF_SIZE[one], KINDS_OF_SIZE[other])


def test_a_symbol_that_is_no_size():
    with pytest.raises(ValueError, match="tokens=t"):
        fk.dense(tokens=sympy.Symbol("t", negative=True), d_in=1, d_out=1)


def test_a_part_of_a_total_is_a_cost():
    with pytest.raises(TypeError, match="parts hold 3"):
        fk.Cost.total("both", [fk.dense(tokens=1, d_in=1, d_out=1), 3])


def test_what_looks_like_a_symbol_and_is_no_size():
    for bad in (sympy.Matrix([1]), sympy.true):
        assert refusal(fk.dense, tokens=bad, d_in=1, d_out=1).startswith("tokens=")
    assert "must be True or False" in refusal(fk.dense, tokens=1, d_in=1, d_out=1, bias=sympy.Integer(5))


def test_more_by_place_than_there_are():
    assert refusal(fk.window, 3, 4) == "window got 1 more arguments than it takes: 4"


def test_a_cost_that_a_parameter_has_swallowed_goes_no_further():
    swallowed = altair.param(name="n", value=1) * fk.dense(tokens=1, d_in=2, d_out=3)
    for use in (
        lambda: fk.dense(tokens=1, d_in=2, d_out=3) + swallowed,
        lambda: fk.dense(tokens=swallowed, d_in=1, d_out=1),
        lambda: fk.Cost("x", bytes=swallowed),
        lambda: fk.roofline(swallowed, "h100-sxm"),
    ):
        with pytest.raises(TypeError, match=r"write cost \* parameter"):
            use()


def test_annotations_can_be_read():
    for name in ("dense", "attention", "mla", "conv2d"):
        assert typing.get_type_hints(getattr(fk, name))["dtype"]


class Odd:
    """Somebody's own class, which does not show itself."""

    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    "value, message",
    [
        (10**400, "tokens=1e[+]400: a size must be at most 1e[+]30"),
        (10**5000, "tokens=1e[+]5000: a size must be at most 1e[+]30"),  # more digits than Python prints
        (-(10**5000), "tokens=-1e[+]5000: a size must be at least 1"),
        (numpy.array([1, 1e300]), "tokens contains 1e[+]300: a size must be at most 1e[+]30"),
        (sympy.Integer(10) ** 400, "tokens=1e[+]400: a size must be at most 1e[+]30"),
        (sympy.Symbol("n") > 0, "tokens=n > 0: a size must be a whole number or a symbol"),
        (altair.expr("p * 2"), "tokens=.*: must be a parameter, such as altair.param"),
        (torch.tensor(8, device="meta"), "tokens=.*: a tensor on meta has no value; pass an int"),
        (Odd(), "tokens=<Odd>: a size must be a whole number, not Odd"),
        ("x" * 10**6, "tokens='x+[.]{3}: a size must be a whole number, not text"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_what_can_be_no_size(value, message):
    """Named in one short line, in each formula: so large that a sweep overflows, or no number at all."""
    for call in (
        lambda: fk.dense(tokens=value, d_in=numpy.array([2.0]), d_out=3),
        lambda: fk.dense(tokens=value, d_in=2, d_out=3),
    ):
        with pytest.raises((ValueError, TypeError), match=message) as caught:
            call()
        assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)
    assert fk.dense(tokens=10**30, d_in=2, d_out=3).flops == 12 * 10**30


@pytest.mark.parametrize(
    "value",
    [
        sympy.Matrix([1, 2]), Decimal("sNaN"), sympy.true, pandas.NA, sympy.Symbol("n") > 0, torch.tensor(1, device="meta"), Odd(),
        altair.expr("p"), None, 2, "no", [True],
    ],
    ids=lambda value: str(type(value).__name__),
)  # fmt: skip
def test_what_is_no_flag(value):
    with pytest.raises(TypeError, match="^bias=.*: must be True or False$"):
        fk.dense(tokens=1, d_in=1, d_out=1, bias=value)


@pytest.mark.parametrize("value", [10**400, 1e308, numpy.array([1e300])], ids=["int", "float", "sweep"])
def test_a_factor_that_is_too_large(value):
    with pytest.raises(ValueError, match="capacity.*1e[+][34]0?[08].*at most 1e[+]30"):
        fk.expert_load(tokens=8, experts=8, top_k=2, capacity=value)
