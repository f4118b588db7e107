"""A convention says what a multiply-add of each kind is worth."""

import dataclasses
from fractions import Fraction

import pytest

import flopkit as fk
from flopkit.arithmetic import divided
from flopkit.conventions import EXACT, FVCORE, KINDS, PRESETS, TORCH, VECTOR_KINDS, Convention

COST = fk.Cost(
    "one of each",
    macs_by_kind={kind: 10**place for place, kind in enumerate(KINDS)},
    vector_by_kind={kind: 10**place for place, kind in enumerate(VECTOR_KINDS)},
)
HALF = Convention("HALF", "a test", scores=0.5, hidden=0.5)


def digits(kinds, total):
    """What each kind is worth, read off the digits of the total."""
    return dict(zip(kinds, map(int, str(total)[::-1].ljust(len(kinds), "0")), strict=True))


def worth(convention):
    return digits(KINDS, COST.under(convention).flops)


def vector_worth(convention):
    return digits(VECTOR_KINDS, COST.under(convention).vector_flops)


def test_presets():
    beside = ("padding", "embedding", "tied", "vectors", "positions", "idle", "unused", "balance", "pairs")
    executed = {"products": 2, "scores": 2, "hidden": 0, "router": 2, "head": 2, "recompute": 2}
    everything = executed | {"index": 2, "hidden_index": 0} | dict.fromkeys(beside, 0)
    all_pairs = {**everything, "hidden": 2, "hidden_index": 2}
    assert worth(EXACT) == everything
    assert worth(TORCH) == all_pairs
    assert worth(FVCORE) == {kind: int(n > 0) for kind, n in all_pairs.items()}


def test_an_indexer_s_scores_count_like_attention_s_but_where_parameters_do():
    half = worth(HALF)
    assert (half["index"], half["hidden_index"]) == (1, 1)
    for name in ("PALM", "LLM_FOUNDRY", "NANOGPT", "TORCHTITAN", "TORCHTITAN_2024", "SIX_N", "SIX_N_ACTIVE"):
        found = worth(fk.conventions.PRESETS[name])
        assert (found["index"], found["hidden_index"], found["balance"]) == (0, 0, 2)


SHARES = [
    "scores",
    "hidden",
    "router",
    "head",
    "embedding",
    "recompute",
    "tied",
    "vectors",
    "positions",
    "idle",
    "unused",
    "balance",
    "pairs",
]


@pytest.mark.parametrize("kind", SHARES)
def test_a_field_is_the_share_of_a_kind(kind):
    for fma in (1, 2):
        assert worth(Convention("in", "a test", fma=fma, **{kind: 1}))[kind] == fma
        assert worth(Convention("out", "a test", fma=fma, **{kind: 0}))[kind] == 0
    assert worth(Convention("half", "a test", **{kind: 0.5}))[kind] == 1


def test_padding_is_hardware_flops_and_nobody_s_share():
    """Each expert of Mixtral gets 16 of 64 tokens' choices and computes 20 rows; backward is twice forward. Counted once, whatever counts."""
    by_hand = 3 * 32 * 8 * (20 - 16) * 2 * 3 * 4096 * 14336  # passes, layers, experts, rows, FLOPs of a row
    every = Convention("every kind", "a test", **dict.fromkeys(SHARES, 1))
    step = fk.load("mixtral-8x7b").train_step(seq=64, capacity=1.25)
    for convention in (EXACT, TORCH, FVCORE, every):
        each = step.under(convention)
        assert each.padding.flops == by_hand * convention.fma // 2
        assert each.hardware_flops == each.model_flops + each.recompute.flops + each.padding.flops
        assert each.model_flops == fk.load("mixtral-8x7b").train_step(seq=64).under(convention).model_flops
    assert not hasattr(every, "padding") and every.share("padding") == 0


def test_half_of_the_scores():
    assert [worth(HALF)[kind] for kind in ("scores", "hidden")] == [1, 1]
    cost = fk.attention(batch=1, q=100, kv=100, heads=1, head_dim=8, mask="causal")
    assert 2 * cost.under(HALF).flops == cost.under(TORCH).flops


def test_half_of_a_multiply_add_that_counts_as_one():
    """Whole where the halves add up, a half where they do not, exact beyond what a double holds."""
    half = Convention("half MACs", "a test", fma=1, scores=0.5, hidden=0.5)
    assert half.flops({"products": 7, "scores": 3, "hidden": 1}) == 9 and half.flops({"scores": 3}) == 1.5
    big = 2**80 + 1
    assert half.flops({"products": big, "scores": big, "hidden": big}) == 2 * big
    cost = fk.attention(batch=1, q=100, kv=100, heads=1, head_dim=8, mask="causal").under(half)
    assert 2 * cost.flops == cost.under(FVCORE).flops and 4 * cost.flops == cost.under(TORCH).flops


def test_half_of_an_odd_count_is_exact_at_any_size():
    half = Convention("half MACs", "a test", fma=1, scores=0.5)
    assert half.flops({"scores": 3**40}) == Fraction(3**40, 2) and half.flops({"scores": 3**700}) == Fraction(3**700, 2)
    assert "FLOPs" in repr(fk.Cost("odd", {"scores": 3**40}, convention=half))


def test_vector_work_follows_the_work_that_it_goes_with():
    everything = {"elementwise": 1, "norm": 1, "softmax": 1, "hidden_softmax": 0, "routing": 1}
    assert vector_worth(EXACT) == everything
    assert vector_worth(TORCH) == {**everything, "hidden_softmax": 1}
    assert vector_worth(Convention("no router", "a test", router=0)) == {**everything, "routing": 0}
    pairs = sum(10**place for place, kind in enumerate(VECTOR_KINDS) if kind in ("softmax", "hidden_softmax"))
    assert COST.under(HALF).vector_flops == COST.under(TORCH).vector_flops - pairs / 2
    odd = fk.Cost("odd", vector_by_kind={"softmax": 3, "elementwise": 1}, convention=HALF)
    assert odd.vector_flops == 2.5


@pytest.mark.parametrize("mask", ["full", "causal", fk.window(7)])
def test_half_of_the_scores_is_half_of_their_softmax_too(mask):
    cost = fk.attention(batch=2, q=99, kv=99, heads=3, head_dim=8, mask=mask)
    half = cost.under(HALF)
    assert 2 * half.flops == cost.under(TORCH).flops and 2 * half.vector_flops == cost.under(TORCH).vector_flops
    assert type(half.vector_flops) is int


def test_half_in_other_readings():
    numpy, sympy = pytest.importorskip("numpy"), pytest.importorskip("sympy")
    n = sympy.Symbol("n", positive=True, integer=True)
    sizes = dict(batch=1, heads=1, head_dim=8, mask="causal")
    assert sympy.expand(fk.attention(q=n, kv=n, **sizes).under(HALF).vector_flops) == 3 * n**2
    assert fk.attention(q=numpy.array([2, 5]), kv=5, **sizes).under(HALF).vector_flops.tolist() == [30, 75]


def test_vector_work_does_not_know_what_a_multiply_add_is_worth():
    assert COST.under(FVCORE).vector_flops == COST.under(TORCH).vector_flops  # one each, also where an FMA is one


def test_a_convention_may_be_given_by_name():
    for name in ("TORCH", "torch", "Torch"):
        assert COST.under(name) == COST.under(TORCH)
    assert fk.Cost("named", convention="FVCORE").convention is FVCORE
    with pytest.raises(ValueError, match="convention='torsh' is not a convention; did you mean TORCH"):
        COST.under("torsh")


def test_macs_are_the_multiply_adds_that_count():
    assert COST.macs == COST.flops // 2
    assert COST.under(FVCORE).macs == COST.under(FVCORE).flops == COST.under(TORCH).macs


def test_each_preset_names_its_source():
    for convention in (EXACT, TORCH, FVCORE):
        assert len(convention.source) > 20 and str(convention) == convention.name
        assert getattr(fk.conventions, convention.name) is convention


def test_a_preset_has_its_name_in_the_data_and_in_the_module():
    here = {name: value for name, value in vars(fk.conventions).items() if isinstance(value, Convention)}
    assert here == dict(PRESETS) and set(PRESETS) <= set(fk.conventions.__all__)
    assert all(each.name == name and len(each.source) > 20 for name, each in PRESETS.items())


def test_a_convention_has_a_share_of_every_kind_that_leaves_a_choice():
    fields = [field.name for field in dataclasses.fields(Convention)]
    assert set(fields) - {"name", "source", "fma", "outside_again"} == {
        name for name, kind in KINDS.items() if len(kind.shares) > 1 and not kind.goes_with
    }
    assert [kind.name for kind in (KINDS | VECTOR_KINDS).values()] == [*KINDS, *VECTOR_KINDS]
    assert {kind.goes_with for kind in VECTOR_KINDS.values()} - {""} <= set(KINDS)


def test_three_flops_a_position_are_for_the_softmax_of_chinchilla_alone():
    assert Convention("softmax", "a test", pairs=1.5).flops({"pairs": 10}) == 30
    with pytest.raises(ValueError, match="pairs=2: a share is 1 .*, here 1.5 too"):
        Convention("wrong", "a test", pairs=2)
    with pytest.raises(
        ValueError, match=r"idle=1.5: a share is 1 \(counts\), 0 \(does not count\) or 0.5 \(half of it counts\)$"
    ):
        Convention("wrong", "a test", idle=1.5)


def test_a_convention_is_a_value():
    assert dataclasses.replace(TORCH) == TORCH != EXACT
    assert len({EXACT, TORCH, dataclasses.replace(EXACT)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        EXACT.fma = 1


@pytest.mark.parametrize(("fields", "message"), [
    (dict(fma=3), "fma=3: a multiply-add counts as 2 FLOPs or as 1"),
    (dict(fma=2.0), "fma=2.0: a multiply-add counts as 2 FLOPs or as 1"),
    (dict(fma=True), "fma=True: a multiply-add counts as 2 FLOPs or as 1"),
    (dict(scores="some"), "scores='some': a share is 1"),
    (dict(router=2), "router=2: a share is 1"),
    (dict(embedding=0.25), "embedding=0.25: a share is 1"),
    (dict(hidden=[0]), "hidden=.*: a share is 1"),
])  # fmt: skip
def test_what_is_no_convention(fields, message):
    with pytest.raises(ValueError, match=message):
        Convention("wrong", "a test", **fields)


@pytest.mark.parametrize(("fields", "message"), [
    (dict(name=3), "name=3, source='a test': must be text"),
    (dict(source=None), "name='wrong', source=None: must be text"),
])  # fmt: skip
def test_what_is_no_field(fields, message):
    with pytest.raises(TypeError, match=message):
        Convention(**{"name": "wrong", "source": "a test", **fields})


def test_unknown_kinds_are_refused():
    with pytest.raises(KeyError, match="kind='product' is not a kind of work; did you mean products"):
        EXACT.share("product")
    with pytest.raises(ValueError, match="kind='product' is not a kind of work here; did you mean products"):
        fk.Cost("wrong", macs_by_kind={"product": 1})
    with pytest.raises(ValueError, match="kind='products' is not a kind of work here; known: elementwise, norm"):
        fk.Cost("wrong", vector_by_kind={"products": 1})


def test_a_quotient_is_a_double_where_a_double_is_exact():
    half, exact = divided(2**52 + 1, 2), divided(2**53 + 1, 2)
    assert type(half) is float and half == 2**51 + 0.5
    assert type(exact) is Fraction and exact == Fraction(2**53 + 1, 2)


def test_macs_are_no_convention():
    for name in ("MACS", "mac"):
        with pytest.raises(ValueError, match=f"convention='{name}': MACs are a unit.*FVCORE.*macs is their number"):
            COST.under(name)
