"""The figures of chapter 18: the bubble against schedules that are worked off, the layouts against searches of their own."""

import random

import pytest

import flopkit as fk
from flopkit.book.gallery import layouts, pipeline_playground
from flopkit.book.gallery.layouts import CONTEXT, DEGREES, LIMITS, MOST_GB, MOST_SECONDS, OVERLAP, told
from flopkit.book.gallery.parallel_step import KEPT
from flopkit.book.gallery.pipelines import GPIPE, ONE, SCHEDULES, SEVERAL, ZERO

PIPELINE, LAYOUTS = pipeline_playground(), layouts()
PUBLISHED = fk.parallel.Layout(tensor=8, pipeline=16, data=128, virtual=8)


# -- a pipeline ---------------------------------------------------------------------------------------------------


def small(count):
    rng = random.Random(18)
    yield from PIPELINE.presets.values()
    for _ in range(count):
        stages, name = rng.choice([2, 3, 4, 8]), rng.choice([GPIPE, ONE, SEVERAL])
        batches = stages * rng.choice([1, 2, 5]) if name == SEVERAL else rng.choice([1, 2, 3, 7, 12])
        yield {"stages": stages, "micro_batches": batches, "virtual": rng.choice([1, 2, 3]), "schedule": name, "ratio": rng.choice([1, 2, 3])}  # fmt: skip


@pytest.mark.parametrize("state", list(small(20)))
def test_the_bubble_is_that_of_a_schedule_worked_off(state):
    """Piece after piece: the step ends with the last backward pass; a rank holds what went forward and not yet back."""
    found, p, m = PIPELINE.at(**state), state["stages"], state["micro_batches"]
    virtual = state["virtual"] if state["schedule"] == SEVERAL else 1
    run = fk.parallel.pipeline(
        stages=p, micro_batches=m, virtual=virtual, schedule=SCHEDULES[state["schedule"]], forward=1, backward=state["ratio"]
    )  # fmt: skip
    work = run.timeline()
    assert found["refused"] == ""
    end = max(each.end for each in work)
    assert found["step"] == pytest.approx(float(end))
    busy = sum(each.end - each.start for each in work if each.rank == 0)
    assert found["share"] == pytest.approx(float(1 - busy / end))
    assert found["of_work"] == pytest.approx(float(end / busy - 1))
    holds, most = 0, 0
    for each in sorted((each for each in work if each.rank == 0), key=lambda each: each.start):
        holds += 1 if each.kind == "forward" else -1
        most = max(most, holds)
    assert found["held"] == pytest.approx(most / virtual)


def test_the_zero_bubble_by_hand():
    """(p−1)·(F + B − 2W)/V with W = B/2: the gradients of weights fill the rest, and 15/8 forward passes are left."""
    found = PIPELINE.at(stages=16, micro_batches=16, virtual=8, schedule=ZERO, ratio=2)
    assert (found["bubble"], found["work"], found["held"]) == (15 / 8, 16 * 3, 16)


def test_interleaving_needs_groups_of_micro_batches():
    refused = {"stages": 16, "micro_batches": 8, "schedule": SEVERAL}
    assert "16 stages do not divide 8 micro-batches" in PIPELINE.description(**refused)
    assert not PIPELINE.at(**{**refused, "schedule": ONE})["refused"]
    with pytest.raises(ValueError, match="micro_batches=8"):
        fk.parallel.pipeline(stages=16, micro_batches=8, virtual=2, schedule="interleaved")


def test_the_curves_meet_the_dot_and_begin_with_a_group():
    rows = {row["each"]: row for row in PIPELINE.rows(stages=16, micro_batches=32, virtual=8)}
    for name, curve in ((GPIPE, "plain"), (ONE, "plain"), (SEVERAL, "several"), (ZERO, "zero")):
        assert rows[32][curve] == pytest.approx(
            PIPELINE.at(stages=16, micro_batches=32, virtual=8, schedule=name)["share"]
        )
    assert [each for each, row in rows.items() if row["several"] == row["several"]] == [16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]  # fmt: skip
    assert all(row["plain"] > row["several"] > row["zero"] for each, row in rows.items() if each % 16 == 0)


@pytest.mark.parametrize("name", SCHEDULES)
def test_its_python_answers_the_same(name, capsys):
    state = {"stages": 4, "micro_batches": 8, "virtual": 2, "schedule": name, "ratio": 1.5}
    exec(PIPELINE.python(**state), {})
    found = PIPELINE.at(**state)
    said = [float(word) for word in capsys.readouterr().out.split()]
    assert said == pytest.approx([found[each] for each in ("share", "of_work", "held", "bubble", "step")])


# -- layouts ------------------------------------------------------------------------------------------------------


def asked(state, **more):
    room = (
        {} if state["limit"].endswith("an H100") else {"memory": LIMITS[state["limit"]]}
    )  # the device's own is the default
    return fk.parallel.search(
        "llama-3.1-405b", "llama-3", 16384, seq=8192, batch=2048, fused=bool(KEPT[state["kept"]]), overlap=OVERLAP[state["overlap"]],
        context=range(1, CONTEXT[state["context"]] + 1), **room, **more,
    )  # fmt: skip


def settings(count):
    rng = random.Random(405)
    yield from LAYOUTS.presets.values()
    for _ in range(count):
        yield {name: rng.choice(control.options) for name, control in LAYOUTS.controls.items()}


@pytest.mark.parametrize("state", list(settings(6)))
def test_the_answers_are_those_of_a_search(state):
    found, search = LAYOUTS.at(**state), asked(state)
    assert found["fit"] == len(search) and found["tried"] == search.tried
    assert found["best"] == told(search[0].layout)
    assert (found["least"], found["held"]) == (search[0].seconds, float(search[0].memory.peak))
    try:
        place = f"place {search.place(PUBLISHED)}"
    except ValueError:
        place = "does not fit"
    assert found["place"] == place
    for row, step in zip(LAYOUTS.rows(**state), search.steps, strict=False):
        assert (row["seconds"], row["memory"]) == (step.seconds, float(step.memory.peak))
        assert row["layout"] == told(step.layout)


def test_where_the_published_layout_stands():
    """First at 80 GB. In all of an H100 half as many pipeline ranks fit, context-parallel ranks send less, and with
    all activations it does not fit."""
    places = {name: LAYOUTS.at(**state)["place"] for name, state in LAYOUTS.presets.items()}
    assert places == {
        "As published": "place 1",
        "All of an H100": "place 2",
        "All activations kept": "does not fit",
        "Context-parallel, too": "place 4",
        "Tensor-parallel sums hidden": "place 1",
    }
    step = fk.parallel.step("llama-3.1-405b", PUBLISHED, "llama-3", seq=8192, batch=2048, fused=True)
    found = LAYOUTS.at()
    assert (found["own"], found["own_held"]) == (step.seconds, float(step.memory.peak))
    assert "276 layouts" in LAYOUTS.caption and "ranks 741" in LAYOUTS.caption


def test_the_dots_are_layouts_of_the_search():
    (dots,) = [rows for layer in LAYOUTS.spec()["layer"] if len(rows := layer.get("data", {}).get("values", ())) > 50]
    assert 200 < len(dots) < 320
    state = {**LAYOUTS.settings(), "context": "1 or 2 ranks", "limit": "no limit"}
    found = {told(step.layout): step for step in asked(state).steps}
    every = {told(step.layout): step for step in asked({**state, "kept": list(KEPT)[1]}).steps}
    assert len(found) == 741, "no two layouts have the same words"
    for dot in dots:
        step = found[dot["layout"]]
        assert dot["look"] == f"TP {step.layout.tensor}" and dot["look"] in DEGREES
        assert dot["c"] == step.layout.context and dot["s"][0] == pytest.approx(step.seconds, abs=1e-4)
        assert dot["b"] == pytest.approx(
            [float(each[dot["layout"]].memory.peak) / 1e9 for each in (found, every)], abs=1e-3
        )
    shown = {name for name, step in found.items() if step.seconds <= MOST_SECONDS and step.memory.peak <= 1e9 * MOST_GB}
    assert shown <= {dot["layout"] for dot in dots}
    assert {dot["look"] for dot in dots} == set(DEGREES), "the key names what is drawn"


@pytest.mark.parametrize("name", list(LAYOUTS.presets))
def test_its_python_searches_the_same(name, capsys):
    state = LAYOUTS.presets[name]
    exec(LAYOUTS.python(**state), {})
    said, found = capsys.readouterr().out, LAYOUTS.at(**state)
    assert said.startswith(f"{found['fit']} of {found['tried']} layouts fit")
    place = found["place"].removeprefix("place ")
    assert said.splitlines()[1:] == ([] if place == "does not fit" else [place])
