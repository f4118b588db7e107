"""Interleaved stages that are not equal: what ranks hold and how long a step takes, against the schedule worked off with each stage's own layers."""

from __future__ import annotations

import pytest

import flopkit as fk
from flopkit.models import transformer
from flopkit.parallel import Layout, cluster, pipeline, step
from flopkit.parallel.pipelines import of_each_stage
from flopkit.parallel.plans import Plan, Setting
from flopkit.parallel.ranks import stages
from flopkit.parallel.shares import shares

CASES = [
    ("llama-3.1-405b", 16, 8, 16), ("llama-3.1-405b", 16, 8, 32), ("llama-3.1-405b", 4, 2, 12), ("llama-3-8b", 17, 2, 34), ("deepseek-v3", 3, 3, 9), ("deepseek-v3", 7, 3, 14),
    ("gemma-2-9b", 4, 11, 8), ("gemma-2-9b", 2, 7, 6),
]  # fmt: skip


def of_stages(model, p, v):
    """The layers of each stage of a pipeline, by kind."""
    return [stage.kinds for stage in stages(shares(model, 512, "flash", False), p * v, 1)]


def orders(p, v, m):
    """What each rank does, in turn: ("forward" or "backward", micro-batch, stage)."""
    run = pipeline(stages=p, micro_batches=m, virtual=v, schedule="interleaved").timeline()
    turn = sorted(run, key=lambda work: work.start)
    return [[(work.kind, work.micro_batch, work.stage) for work in turn if work.rank == rank] for rank in range(p)]


def most_held(order, weight):
    """The most that a rank holds, where a stage's activations weigh something of their own."""
    held = most = 0
    for kind, _, stage in order:
        held += weight[stage] if kind == "forward" else -weight[stage]
        most = max(most, held)
    return most


def took(work, seconds):
    """When the last rank is done, where a stage takes so long forward, and twice as long backward."""
    done, clock, at, last = {}, [0.0] * len(work), [0] * len(work), len(seconds) - 1
    while any(at[rank] < len(order) for rank, order in enumerate(work)):
        for rank, order in enumerate(work):
            while at[rank] < len(order):
                kind, micro_batch, stage = order[at[rank]]
                before = [("forward", micro_batch, stage - 1)] if kind == "forward" else [("backward", micro_batch, stage + 1), ("forward", micro_batch, stage)]  # fmt: skip
                needs = [each for each in before if 0 <= each[2] <= last]
                if any(each not in done for each in needs):
                    break
                start = max([clock[rank], *(done[each] for each in needs)])
                clock[rank] = done[order[at[rank]]] = start + seconds[stage] * (1 if kind == "forward" else 2)
                at[rank] += 1
    return max(clock)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("name, p, v, m", CASES)
def test_each_rank_holds_what_the_schedule_says(name, p, v, m, recompute):
    """Each layer weighs what a layer of its kind keeps on a device alone, or with full recompute what a layer gets. The mean of a rank's stages is another number."""
    model = fk.load(name)
    layout = Layout(pipeline=p, virtual=v, recompute=recompute)
    plan = Plan(Setting(model, cluster("dgx-h100"), 512, m, memory=1e15), layout)
    of_kinds = [
        model.__class__(name="one", d_model=model.d_model, vocab=model.vocab, blocks=((block, 1),), norm=model.norm).train_memory(seq=512, recompute=recompute).layers
        for block, _ in model.blocks
    ]  # fmt: skip
    weight = [sum(n * each for n, each in zip(kinds, of_kinds, strict=True)) for kinds in of_stages(model, p, v)]
    for rank, order in enumerate(orders(p, v, m)):
        assert plan.memory_of(rank).layers == most_held(order, weight), rank


def test_which_stages_a_rank_holds_when_it_holds_most():
    """By hand: eleven passes forward, of the stages 000 111 222 00; then one back (of the stages 222 111 000) for each forward (0 111 222). DeepSeek-V3's first of
    nine stages has three dense layers and three with experts, its last six."""
    assert of_each_stage(3, 9, 3, rank=0) == ((5, 3, 3), (6, 3, 2), (6, 4, 1), (6, 5, 0))
    model = fk.load("deepseek-v3")
    assert of_stages(model, 3, 3)[0] == (3, 3) and of_stages(model, 3, 3)[3] == (0, 7)
    assert of_stages(model, 3, 3)[8] == (0, 6)


@pytest.mark.parametrize("name, p, v, m", CASES)
def test_a_step_takes_as_long_as_the_schedule(name, p, v, m):
    """Links are so fast that arithmetic alone counts; each stage takes what its layers and the head do. No rank can begin before the first stages before it are
    through, nor end before they are through again."""
    model = fk.load(name)
    fast = cluster("dgx-h100").replace(link=1e25, network=1e25)
    found = step(model, Layout(pipeline=p, virtual=v), fast, seq=512, batch=m, memory=1e15)
    numbers = shares(model, 512, "flash", False)
    peak = fk.device("h100-sxm").peak("bf16")
    seconds = [sum(n * (3 * kind.flops.total + kind.again) for n, kind in zip(kinds, numbers.kinds, strict=True)) / peak / 3 for kinds in of_stages(model, p, v)]  # fmt: skip
    seconds[-1] += numbers.head_flops / peak
    exact = took(orders(p, v, m), seconds)
    assert found.seconds == pytest.approx(exact, rel=1e-9) or (name == "gemma-2-9b" and found.seconds < exact)


def test_an_empty_first_stage_makes_nobody_wait():
    """Six layers on eight stages: the first has the embedding alone and the last the head alone. A rank waits for one layer of each rank between."""
    model = transformer(name="six", d_model=256, heads=4, layers=6, vocab=64, d_ff=512)
    fast = cluster("dgx-h100").replace(link=1e25, network=1e25)
    found = step(model, Layout(pipeline=4, virtual=2), fast, seq=512, batch=8, memory=1e15)
    work = found.parts["arithmetic"] + found.parts["recompute"]
    assert found.parts["bubble"] / work == pytest.approx(1 / 16)  # the third rank waits for one of 8 · 2 layers
