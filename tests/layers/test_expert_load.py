"""What routing changes: the busiest expert, the busiest device, dropped tokens. Against loads that are counted expert by expert."""

import itertools
import math
import random

import numpy
import pytest
import sympy
import vega

import flopkit as fk
from flopkit.arithmetic import vega as expression_of

QUANTITIES = ("imbalance", "rank_imbalance", "slowdown", "dropped", "empty")


def drawn(seed):
    """Sizes, a skew and a capacity that go together."""
    rng = random.Random(seed)
    experts = rng.randint(1, 80)
    top_k = rng.randint(1, experts)
    ranks = rng.choice([n for n in range(1, experts + 1) if experts % n == 0])
    most = experts / top_k
    skew = rng.choice([1, 1 + rng.random() * (most - 1), most])
    if skew * top_k > experts:  # by rounding
        skew = 1
    capacity = rng.choice([0.5, 1, 1.1, 1.25, 2, 3])
    sizes = {"tokens": rng.randint(1, 500), "experts": experts, "top_k": top_k, "ranks": ranks}
    return sizes | {"skew": skew, "capacity": capacity}


def expert_by_expert(tokens, experts, top_k, ranks, skew, capacity):
    """The same load without a closed form: a list of the experts' tokens, the busiest first."""
    a = 1 - (math.log(skew) / math.log(experts) if experts > 1 else 0)
    first = [tokens * top_k * ((i / experts) ** a if i else 0) for i in range(experts + 1)]
    loads = [after - before for before, after in itertools.pairwise(first)]
    mean, each = tokens * top_k / experts, experts // ranks
    limit = math.ceil(round(capacity * mean, 9))
    kept = sum(min(load, limit) for load in loads)
    return {
        "imbalance": max(loads) / mean,
        "rank_imbalance": max(sum(loads[i : i + each]) for i in range(0, experts, each)) / (each * mean),
        "slowdown": experts * limit / (tokens * top_k),
        "dropped": 1 - kept / (tokens * top_k),
        "empty": 1 - kept / (experts * limit),
    }


@pytest.mark.parametrize("seed", range(300))
def test_a_skewed_load_expert_by_expert(seed):
    given = drawn(seed)
    load, right = fk.expert_load(**given), expert_by_expert(**given)
    for name in QUANTITIES:
        assert math.isclose(getattr(load, name), right[name], rel_tol=1e-9, abs_tol=1e-9), (name, given)
    assert math.isclose(load.imbalance, given["skew"])


def test_counts_by_hand():
    """Experts of 9, 1, 2 and 4 tokens, two on each device: the average expert has 4 and takes 5."""
    load = fk.expert_load([9, 1, 2, 4], ranks=2, capacity=1.25)
    assert (load.assignments, load.experts, load.limit, load.overflow) == (16, 4, 5, 4)
    assert (load.imbalance, load.rank_imbalance) == (9 / 4, 10 / 8)
    assert (load.dropped, load.slowdown, load.empty) == (4 / 16, 20 / 16, 1 - 12 / 20)
    alone = fk.expert_load([9, 1, 2, 4])  # all experts on one device, which waits for nobody
    assert (alone.rank_imbalance, alone.slowdown, alone.imbalance) == (1, 1, 9 / 4)
    assert fk.expert_load(tokens=64, experts=16, top_k=2, skew=2).slowdown == 1
    assert fk.expert_load([1, 3, 8, 4], ranks=2).rank_imbalance == 1.5  # the second device has 12 of 16
    free = fk.expert_load([9, 1, 2, 4], ranks=2)
    assert (free.dropped, free.empty, free.limit, free.slowdown) == (0, 0, None, 10 / 8)
    assert fk.expert_load(numpy.array([9, 1, 2, 4]), ranks=2, capacity=1.25) == load


def test_a_balanced_load_costs_nothing():
    load = fk.expert_load(tokens=64, experts=16, top_k=2, ranks=4, capacity=1)
    assert (load.imbalance, load.rank_imbalance, load.slowdown, load.dropped, load.empty) == (1, 1, 1, 0, 0)


def test_one_and_two_experts_by_hand():
    one = fk.expert_load(tokens=10, experts=1, top_k=1, capacity=0.5)  # takes 5 of its 10 tokens
    assert (one.dropped, one.empty, one.slowdown) == (0.5, 0, 0.5)
    two = fk.expert_load(tokens=100, experts=2, top_k=1, skew=1.5, ranks=2, capacity=1)  # 75 and 25, each takes 50
    assert math.isclose(two.rank_imbalance, 1.5) and math.isclose(two.dropped, 0.25)
    assert fk.expert_load(tokens=100, experts=2, top_k=1, skew=1.5).dropped == 0  # without a capacity


@pytest.mark.parametrize("names", [("skew", "tokens"), ("skew", "tokens", "experts", "top_k", "ranks", "capacity")])
def test_four_readings(names):
    import altair

    rows = [row for row in map(drawn, range(60)) if row["experts"] % row["ranks"] == 0][:12]
    if names[-1] == "tokens":
        rows = [rows[0] | {name: row[name] for name in names} | {"skew": 1 + i / 9} for i, row in enumerate(rows[:5])]
        rows = [row | {"experts": 64, "ranks": 8, "top_k": 4, "capacity": 1.25} for row in rows]
    fixed = {name: value for name, value in rows[0].items() if name not in names}
    rows = [{name: row[name] for name in names} for row in rows]
    exact = [fk.expert_load(**fixed, **row) for row in rows]
    sweep = fk.expert_load(**fixed, **{name: numpy.array([float(row[name]) for row in rows]) for name in names})
    symbols = {name: sympy.Symbol(name, positive=True) for name in names}
    formula = fk.expert_load(**fixed, **symbols)
    drawing = fk.expert_load(**fixed, **{name: altair.param(name=name, value=1) for name in names})
    for i, (row, right) in enumerate(zip(rows, exact, strict=True)):
        for name in QUANTITIES:
            value = getattr(right, name)
            others = {
                "numpy": numpy.broadcast_to(getattr(sweep, name), len(rows))[i],
                "sympy": sympy.sympify(getattr(formula, name)).subs({symbols[key]: row[key] for key in row}),
                "vega": vega.evaluate(expression_of(getattr(drawing, name)), row),
            }
            for reading, found in others.items():
                assert math.isclose(float(found), value, rel_tol=1e-9, abs_tol=1e-9), (reading, name, row)


def test_the_limit_is_the_rows_of_the_layer():
    """A capacity means the same in both: rows that fk.moe pays for are those that fk.expert_load fills."""
    sizes = {"tokens": 100, "experts": 6, "top_k": 2}
    for capacity in (0.5, 1, 1.1, 1.25, 3):
        load = fk.expert_load(**sizes, capacity=capacity)
        layer = fk.moe(**sizes, d_model=4, d_ff=5, capacity=capacity)
        assert layer.macs_by_kind["products"] == 6 * load.limit * 3 * 4 * 5
    assert fk.expert_load(tokens=5, experts=4, top_k=4, capacity=1.1).limit == 6  # of 5.5
    # 1.1 is taken as it is printed; as the double that it is, it would give 12
    assert fk.expert_load(tokens=10, experts=4, top_k=4, capacity=1.1).limit == 11


def test_padded_rows_read_every_expert():
    """One token reaches two experts; with a capacity the others compute a row of padding each, so their weights are read, too."""
    sizes = {"tokens": 1, "d_model": 4, "d_ff": 5, "experts": 8, "top_k": 2, "shared": 1}
    ends = 2 * (2 * 4 + 4 * 8)  # input, output and router
    assert fk.moe(**sizes).bytes == ends + 2 * 3 * 3 * 4 * 5
    assert fk.moe(**sizes, capacity=1).bytes == ends + 2 * 9 * 3 * 4 * 5
    assert fk.moe(**sizes, capacity=1).macs_by_kind["products"] == 9 * 3 * 4 * 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "pass counts, or tokens, experts, top_k"),
        ({"tokens": 4, "experts": 4}, "pass counts, or top_k"),
        ({"counts": [1, 2], "tokens": 4}, "counts are given, so tokens must not be"),
        ({"counts": [1, 2], "skew": 2}, "counts are given, so skew must not be"),
        ({"counts": [1, -2]}, r"counts\[1\]=-2"),
        ({"counts": [0, 0]}, "must hold at least one token"),
        ({"counts": [1, 2, 3], "ranks": 2}, "ranks=2 does not divide experts=3"),
        ({"tokens": 4, "experts": 4, "top_k": 5}, "top_k=5 is more than experts=4"),
        ({"tokens": 4, "experts": 8, "top_k": 2, "skew": 4.5}, "skew=4.5: must be at most experts / top_k = 8 / 2"),
        ({"tokens": 4, "experts": 8, "top_k": 2, "skew": 0.5}, "skew=0.5: must be at least 1"),
        ({"tokens": 4, "experts": 8, "top_k": 2, "ranks": 3}, "ranks=3 does not divide experts=8"),
        ({"tokens": 4, "experts": 8, "top_k": 2, "capacity": 0}, "capacity=0: must be a finite number above 0"),
        ({"tokens": 4, "experts": 8, "top_k": 2, "capacity": math.nan}, "capacity=nan: must be a finite"),
        ({"tokens": 4, "experts": 8, "top_k": 2, "capacity": "1"}, "capacity='1': must be a number, not str"),
        ({"tokens": 4, "experts": 8, "top_k": 2, "capacity": True}, "capacity=True: must be a number, not bool"),
        ({"tokens": 4, "experts": 8, "top_k": 2, "capacity": numpy.array([1.0, -1])}, "capacity contains -1: each must be"),
    ],
)  # fmt: skip
def test_what_is_no_load(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fk.expert_load(**given)


def test_experts_without_a_capacity_cost_the_same_under_any_routing():
    """No argument of fk.moe says how tokens spread: its FLOPs cannot depend on it. A program that routes for real does them, too."""
    import torch

    tokens, experts, top_k, d, d_ff = 24, 6, 2, 8, 12
    up, down = torch.randn(experts, d_ff, d), torch.randn(experts, d, d_ff)
    x, router = torch.randn(tokens, d), torch.randn(experts, d)

    def layer(bias):
        chosen = (x @ router.T + bias).topk(top_k).indices
        for e in range(experts):
            rows = x[(chosen == e).any(-1)]
            torch.nn.functional.silu(rows @ up[e].T) @ down[e].T
        return chosen

    right = fk.moe(tokens=tokens, d_model=d, d_ff=d_ff, experts=experts, top_k=top_k, gated=False).flops
    spread = set()
    for bias in (torch.zeros(experts), torch.linspace(9, 0, experts), torch.tensor([50.0, 40, 0, 0, 0, 0])):
        chosen = layer(bias)
        spread.add(fk.expert_load(torch.bincount(chosen.flatten(), minlength=experts)).imbalance)
        assert fk.count(layer, bias).flops == right
    assert max(spread) == experts / top_k and len(spread) > 1
