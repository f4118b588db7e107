"""Experts: the same FLOPs under any load, by the closed form and by hand, and the loads that are promised."""

import pytest

import flopkit as fk
from flopkit.experiments import Bench, experts
from flopkit.experiments.experts import chosen

D, FF, E, K = 32, 64, 8, 2  # at toy scale


@pytest.fixture(scope="module")
def records(toy):
    return {(r["params"]["tokens"], r["params"]["load"]): r for r in toy("experts")[1]}


def test_cases(records):
    assert list(records) == [(tokens, load) for tokens in (16, 64) for load in ("balanced", "skewed", "dense")]
    assert all(each["verdict"] == "ok" and each["error"] < 1e-5 for each in records.values())


def test_counts(records):
    for (tokens, load), each in records.items():
        dense = 2 * tokens * K * 3 * D * FF
        router = 0 if load == "dense" else 2 * tokens * D * E
        assert each["counted"]["flops"] == dense + router
        if router:
            assert each["counted"]["flops"] == fk.moe(tokens=tokens, d_model=D, d_ff=FF, experts=E, top_k=K).flops


def test_a_load_changes_no_flops_and_the_experts_have_more_weights(records):
    for tokens in (16, 64):
        balanced, skewed, dense = (records[tokens, load] for load in ("balanced", "skewed", "dense"))
        assert balanced["counted"] == skewed["counted"]
        assert balanced["extra"]["weights"] == dense["extra"]["weights"] * E / K
        assert skewed["extra"]["busiest"] == 4 * balanced["extra"]["busiest"] == tokens


@pytest.mark.parametrize(("tokens", "experts_", "top_k"), [(16, 8, 2), (128, 16, 2), (1024, 64, 8), (16384, 64, 8)])
@pytest.mark.parametrize("skew", [1, 4])
def test_loads(tokens, experts_, top_k, skew):
    counts = chosen(tokens, experts_, top_k, skew)
    wanted = fk.expert_load(tokens=tokens, experts=experts_, top_k=top_k, skew=skew)
    assert sum(counts) == wanted.assignments and len(counts) == experts_
    assert counts[0] == pytest.approx(wanted.busiest) == pytest.approx(skew * tokens * top_k / experts_)
    assert max(counts) <= tokens and min(counts) >= 1


def test_each_token_has_its_experts_each_once(monkeypatch):
    made = []
    monkeypatch.setattr(Bench, "case", lambda self, name, params, make, *rest, **how: made.append((params, make())))
    list(experts.run(Bench("cpu", "toy")))
    for params, (_layer, x, *_weights, order, owner) in (each for each in made if each[0]["load"] != "dense"):
        assert len(x) == params["tokens"] and order.bincount().eq(K).all()
        assert len(set(zip(order.tolist(), owner.tolist(), strict=True))) == K * len(x)


def test_each_expert_gets_its_share(monkeypatch):
    """Against every expert on every token, weighed by the router where it was chosen."""
    import torch

    made = []
    monkeypatch.setattr(Bench, "case", lambda self, name, params, make, *rest, **how: made.append((params, make())))
    list(experts.run(Bench("cpu", "toy")))
    layer, x, router, gate_up, down, order, owner = next(case for params, case in made if params["load"] == "skewed")
    gate, up = torch.einsum("td,edf->tef", x, gate_up).chunk(2, -1)
    every = torch.einsum("tef,efd->ted", torch.nn.functional.silu(gate) * up, down)
    here = torch.zeros(len(x), E).index_put((order, owner), torch.ones(1))
    wanted = torch.einsum("te,ted->td", (x @ router).softmax(-1) * here, every)
    torch.testing.assert_close(layer(x, router, gate_up, down, order, owner), wanted)
