"""Bubbles and micro-batches in flight: closed forms against schedules that are worked off, ours and torch's own."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction

import pytest

import flopkit as fk
from flopkit.parallel import pipeline

CASES = [
    (schedule, v, p, m, times)
    for (schedule, v), p, m, times in itertools.product(
        [("gpipe", 1), ("1f1b", 1), ("interleaved", 1), ("interleaved", 2), ("interleaved", 3)],
        (1, 2, 4, 8),
        (1, 2, 8, 24),
        ((1, 2), (3, 7)),
    )
    if schedule != "interleaved" or m % p == 0
]


def held(works, rank):
    """The most pieces of work that *rank* has gone forward with and not back."""
    now = most = 0
    for work in sorted((work for work in works if work.rank == rank), key=lambda work: work.start):
        now += 1 if work.kind == "forward" else -1
        most = max(most, now)
    return most


@pytest.mark.parametrize("schedule, v, p, m, times", CASES)
def test_the_closed_forms_are_what_the_schedule_takes(schedule, v, p, m, times):
    forward, backward = map(Fraction, times)
    found = pipeline(stages=p, micro_batches=m, virtual=v, schedule=schedule, forward=forward, backward=backward)
    works = found.timeline()
    assert max(work.end for work in works) == found.total
    assert {sum(work.end - work.start for work in works if work.rank == rank) for rank in range(p)} == {found.ideal}
    assert [Fraction(held(works, rank), v) for rank in range(p)] == [found.in_flight(rank) for rank in range(p)]


def torchs(name, p, m, v, times):
    """When torch's own table is worked off. A forward and a backward pass that it overlaps take the sum of their times, and both are done at its end."""
    visual = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    kinds = pytest.importorskip("torch.distributed.pipelining.schedules")._ComputationType
    forward, inputs, weights = kinds.FORWARD, kinds.BACKWARD_INPUT, kinds.BACKWARD_WEIGHT
    length = dict(zip((forward, inputs, weights), times, strict=True))
    length[kinds.FULL_BACKWARD] = length[inputs] + length[weights]
    rows = [[a.sub_actions or [a] for a in row if a is not None] for row in visual.get_schedule_ops(name, p, m, v)]
    rows = [[a for a in row if a[0].computation_type in length] for row in rows]
    if name == "1F1B":  # torch 2.13 numbers the forwards of its last rank from 1
        first = min(a[0].microbatch_index for a in rows[-1] if a[0].computation_type == forward)
        rows[-1] = [
            [
                one._replace(microbatch_index=one.microbatch_index - first * (one.computation_type == forward))
                for one in a
            ]
            for a in rows[-1]
        ]
    last = max(one.stage_index for row in rows for a in row for one in a)

    def needs(one):
        stage, i = one.stage_index, one.microbatch_index
        if one.computation_type == forward:
            return [("F", stage - 1, i)] if stage else []
        if one.computation_type == weights:
            return [("I", stage, i)]
        return [("F", stage, i)] + ([("I", stage + 1, i)] if stage < last else [])

    done, clock, at = {}, [Fraction(0)] * p, [0] * p
    while any(at[r] < len(row) for r, row in enumerate(rows)):
        before = list(at)
        for r, row in enumerate(rows):
            while at[r] < len(row) and all(each in done for one in row[at[r]] for each in needs(one)):
                start = max([clock[r], *(done[each] for one in row[at[r]] for each in needs(one))])
                clock[r] = start + sum(length[one.computation_type] for one in row[at[r]])
                for one in row[at[r]]:
                    if one.computation_type != weights:
                        what = "F" if one.computation_type == forward else "I"
                        done[what, one.stage_index, one.microbatch_index] = clock[r]
                at[r] += 1
        assert before != at, "the table waits for itself"
    return max(clock)


@pytest.mark.parametrize("times", [(1, 1, 1), (2, 3, 1), (1, 1, 2), (10, 11, 9)])
@pytest.mark.parametrize("p, m", [(2, 4), (4, 8), (8, 24)])
@pytest.mark.parametrize(
    "name, schedule, v",
    [
        ("GPipe", "gpipe", 1),
        ("1F1B", "1f1b", 1),
        ("Interleaved1F1B", "interleaved", 2),
        ("Interleaved1F1B", "interleaved", 3),
        ("InterleavedZeroBubble", "interleaved-zero-bubble", 2),
        ("InterleavedZeroBubble", "interleaved-zero-bubble", 4),
    ],
)
def test_torchs_own_tables_take_as_long(name, schedule, v, p, m, times):
    forward, inputs, weights = map(Fraction, times)
    found = pipeline(
        stages=p, micro_batches=m, virtual=v, schedule=schedule, forward=forward, backward=inputs + weights, weights=weights
    )  # fmt: skip
    assert torchs(name, p, m, v, [each / v for each in (forward, inputs, weights)]) == found.total


def test_llama_3s_bubble_and_a_threads():
    """arXiv:2407.21783 prints (PP−1)/(V·M); a thread's "71 steps" of p = 8, m = 32 are 78: 0.1795 for GPipe and 1F1B alike."""
    assert pipeline(stages=16, micro_batches=16, virtual=8, schedule="interleaved").share_of_ideal == Fraction(15, 128)
    for schedule in ("gpipe", "1f1b"):
        assert round(float(pipeline(stages=8, micro_batches=32, schedule=schedule).share), 4) == 0.1795


@pytest.mark.parametrize("p, m", [(2, 8), (4, 16), (8, 24)])
def test_dualpipes_formula_is_what_torchs_v_takes(p, m):
    """DualPipeV puts both stages of a rank of DualPipe on half as many ranks (arXiv:2412.19437, table 2; deepseek-ai/DualPipe): each has twice the work."""
    found = pipeline(stages=2 * p, micro_batches=m, schedule="dualpipe", forward=1, backward=2)
    assert torchs("DualPipeV", p, m, 2, [Fraction(1)] * 3) - 2 * found.ideal == found.bubble


def test_a_figure_can_read_it():
    alt = pytest.importorskip("altair")
    p, m = alt.param(name="p", value=4), alt.param(name="m", value=8)
    found = pipeline(stages=p, micro_batches=m).share_of_ideal
    assert {"p", "m"} <= set(json.dumps(found.to_dict()).replace("(", " ").replace(")", " ").replace('"', " ").split())


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"schedule": "zigzag"}, "schedule='zigzag'"),
        ({"virtual": 2}, "choose schedule='interleaved'"),
        ({"virtual": 2, "schedule": "interleaved", "micro_batches": 6}, "a multiple of its 4 ranks, such as 8"),
        ({"weights": 3}, "weights=3"),
        ({"schedule": "dualpipe"}, "backward = 2·forward"),
        ({"stages": 0}, "stages=0"),
        ({"forward": 0}, "forward=0"),
    ],
)
def test_bad_input_names_the_way_out(wrong, said):
    if wrong == {"schedule": "dualpipe"}:
        wrong = wrong | {"weights": 2}
    with pytest.raises(ValueError, match=said):
        pipeline(**{"stages": 4, "micro_batches": 8} | wrong)


def test_the_room_is_found_from_the_face():
    assert fk.parallel.pipeline(stages=4, micro_batches=8).stages == 4
