"""A convention says what a multiply-add of each kind is worth."""

import dataclasses

import pytest

import flopkit as fk
from flopkit.conventions import EXACT, FVCORE, KINDS, TORCH, Convention

COST = fk.Cost(
    "one of each",
    macs_by_kind={kind: 10**place for place, kind in enumerate(KINDS)},
    vector_by_kind={kind: 10**place for place, kind in enumerate(KINDS)},
)
PLACES = {kind: place for place, kind in enumerate(KINDS)}


def worth(convention):
    """What each kind is worth, read off the digits of the total."""
    digits = str(COST.under(convention).flops)[::-1].ljust(len(KINDS), "0")
    return {kind: int(digits[place]) for kind, place in PLACES.items()}


def test_presets():
    everything = {"products": 2, "scores": 2, "hidden": 0, "router": 2, "head": 2, "embedding": 0, "recompute": 2}
    assert worth(EXACT) == everything
    assert worth(TORCH) == {**everything, "hidden": 2}
    assert worth(FVCORE) == {kind: int(n > 0) for kind, n in {**everything, "hidden": 2}.items()}


@pytest.mark.parametrize("kind", ["router", "head", "embedding", "recompute"])
def test_a_field_takes_a_kind_in_or_out(kind):
    assert worth(Convention("in", "a test", **{kind: True}))[kind] == 2
    assert worth(Convention("out", "a test", **{kind: False}))[kind] == 0


def test_scores():
    assert [worth(Convention("c", "a test", scores="visible"))[kind] for kind in ("scores", "hidden")] == [2, 0]
    assert [worth(Convention("c", "a test", scores="full"))[kind] for kind in ("scores", "hidden")] == [2, 2]
    assert [worth(Convention("c", "a test", scores="half"))[kind] for kind in ("scores", "hidden")] == [1, 1]
    cost = fk.attention(batch=1, q=100, kv=100, heads=1, head_dim=8, mask="causal")
    assert 2 * cost.under(Convention("c", "a test", scores="half")).flops == cost.under(TORCH).flops


def test_vector_work_follows_its_kind():
    assert COST.vector_flops == sum(10 ** PLACES[kind] for kind in KINDS if kind not in ("hidden", "embedding"))
    half = COST.under(Convention("c", "a test", scores="half"))
    pairs = 10 ** PLACES["scores"] + 10 ** PLACES["hidden"]
    assert half.vector_flops == COST.under(TORCH).vector_flops - pairs // 2
    odd = fk.Cost("odd", vector_by_kind={"scores": 3, "products": 1}, convention=half.convention)
    assert odd.vector_flops == 2.5


@pytest.mark.parametrize("mask", ["full", "causal", fk.window(7)])
def test_half_of_the_scores_is_half_of_their_softmax_too(mask):
    cost = fk.attention(batch=2, q=99, kv=99, heads=3, head_dim=8, mask=mask)
    half = cost.under(Convention("c", "a test", scores="half"))
    assert 2 * half.flops == cost.under(TORCH).flops and 2 * half.vector_flops == cost.under(TORCH).vector_flops
    assert type(half.vector_flops) is int


def test_half_in_other_readings():
    numpy, sympy = pytest.importorskip("numpy"), pytest.importorskip("sympy")
    half, n = Convention("c", "a test", scores="half"), sympy.Symbol("n", positive=True, integer=True)
    sizes = dict(batch=1, heads=1, head_dim=8, mask="causal", convention=half)
    assert sympy.expand(fk.attention(q=n, kv=n, **sizes).vector_flops) == 3 * n**2
    assert fk.attention(q=numpy.array([2, 5]), kv=5, **sizes).vector_flops.tolist() == [30, 75]


def test_vector_work_does_not_know_what_a_multiply_add_is_worth():
    assert COST.under(FVCORE).vector_flops == COST.under(TORCH).vector_flops  # one each, also where an FMA is one


def test_macs_are_the_multiply_adds_that_count():
    assert COST.macs == COST.flops // 2
    assert COST.under(FVCORE).macs == COST.under(FVCORE).flops == COST.under(TORCH).macs


def test_each_preset_names_its_source():
    for convention in (EXACT, TORCH, FVCORE):
        assert len(convention.source) > 20 and str(convention) == convention.name
        assert getattr(fk.conventions, convention.name) is convention


def test_a_convention_is_a_value():
    assert dataclasses.replace(TORCH) == TORCH != EXACT
    assert len({EXACT, TORCH, dataclasses.replace(EXACT)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        EXACT.fma = 1


@pytest.mark.parametrize(("fields", "message"), [
    (dict(fma=3), "fma=3: a multiply-add counts as 2 FLOPs or as 1"),
    (dict(fma=2.0), "fma=2.0: a multiply-add counts as 2 FLOPs or as 1"),
    (dict(fma=True), "fma=True: a multiply-add counts as 2 FLOPs or as 1"),
    (dict(scores="some"), "scores='some': must be 'visible', 'full' or 'half'"),
    (dict(fma=1, scores="half"), "no whole-number weights"),
])  # fmt: skip
def test_what_is_no_convention(fields, message):
    with pytest.raises(ValueError, match=message):
        Convention("wrong", "a test", **fields)


@pytest.mark.parametrize(("fields", "message"), [
    (dict(router="no"), "router='no': must be True or False"),
    (dict(embedding=1), "embedding=1: must be True or False"),
    (dict(name=3), "name=3, source='a test': must be text"),
    (dict(source=None), "name='wrong', source=None: must be text"),
])  # fmt: skip
def test_what_is_no_field(fields, message):
    with pytest.raises(TypeError, match=message):
        Convention(**{"name": "wrong", "source": "a test", **fields})


def test_unknown_kinds_are_refused():
    with pytest.raises(KeyError, match="kind='product' is not a kind of work; known: products"):
        EXACT.weight("product")
    with pytest.raises(ValueError, match="kind='product' is not a kind of work; known: products"):
        fk.Cost("wrong", macs_by_kind={"product": 1})
