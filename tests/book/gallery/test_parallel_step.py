"""The figure of a step on many devices against `flopkit.parallel.step`, in Python and in Vega."""

import random
import re
from functools import cache

import pytest

import flopkit as fk
from flopkit.book.gallery.parallel_step import (
    CLUSTERS,
    KEPT,
    LLAMA_3,
    META,
    MODELS,
    NAMES,
    OVERLAP,
    ZERO,
    parallel_step,
)
from flopkit.book.gallery.step_bars import HELD

FIGURE = parallel_step()
LAYOUT = ("tensor", "pipeline", "virtual", "micro_batch", "recompute")


def answered(settings):
    """What `step` says, or None where there is no such layout."""
    name, seq = MODELS[settings["model"]]
    overlap = tuple(each for each in ("tensor", "pipeline", "data") if OVERLAP[settings["overlap"]][each])
    try:
        layout = fk.parallel.Layout(
            data=settings["data_ranks"],
            zero=ZERO[settings["zero"]]["stage"],
            **{each: settings[each] for each in LAYOUT},
        )
        return fk.parallel.step(
            name, layout, CLUSTERS[settings["cluster"]], seq=seq, batch=settings["batch"], overlap=overlap, fused=bool(KEPT[settings["fused"]])
        )  # fmt: skip
    except ValueError:
        return None


@cache
def states(count, seed):
    rng = random.Random(seed)

    odd = {
        "tensor": [1, 1, 2, 4, 8, 3, 16],
        "pipeline": [1, 2, 3, 4, 5, 7, 8, 16, 32],
        "virtual": [1, 1, 1, 2, 4, 5, 8],
    }

    def near(control):
        if control.name in odd:
            return rng.choice(odd[control.name])
        return rng.choice([*control.options, 3 * control.value] if control.kind == "slider" else control.options)

    drawn = [{name: near(control) for name, control in FIGURE.controls.items()} for _ in range(count)]
    for state in drawn[::2] + drawn[1::4]:  # most of them such that the batch divides
        state["batch"] = state["data_ranks"] * state["micro_batch"] * state["pipeline"] * rng.choice([1, 2, 3])
    return [{**FIGURE.settings(), **preset} for preset in FIGURE.presets.values()] + drawn


def test_the_figure_is_step_or_says_why_not():
    made = refused = 0
    for settings in states(300, 1):
        found, truth = FIGURE.at(**settings), answered(settings)
        if settings["tensor"] > 8:
            assert found["refused"]
            continue
        assert bool(found["refused"]) == (truth is None), (found["refused"], settings)
        if truth is None:
            refused += 1
            continue
        made += 1
        close = {"rel": 1e-11, "abs": 1e-12}
        assert found["seconds"] == pytest.approx(truth.seconds, **close), settings
        assert found["mfu"] == pytest.approx(truth.mfu, **close)
        assert found["memory"] == pytest.approx(float(truth.memory.peak), **close), settings
        assert found["fits"] == ("yes" if truth.fits else "no")
        for name in NAMES:
            assert found[f"part_{name}"] == pytest.approx(truth.parts[name], **close), (name, settings)
        held = {name: getattr(truth.memory, name) for name in HELD}
        held["activations"] += truth.memory.peak - truth.memory.total  # the gradients of the loss
        for name in HELD:
            assert found[f"held_{name}"] == pytest.approx(float(held[name]), **close), (name, settings)
    assert made > 80 and refused > 80


def test_vega_reads_it_as_python_does():
    convert, altair = pytest.importorskip("vl_convert"), pytest.importorskip("altair")
    from flopkit.charts.readings import Signals

    s = Signals(FIGURE, altair)
    FIGURE.model(s, **s.controls())
    names = [
        "seconds",
        "mfu",
        "memory",
        "published",
        *(f"part_{name}" for name in NAMES),
        *(f"held_{name}" for name in HELD),
    ]
    updates = [{"name": name, "update": text} for name, text in s.expressions().items()]
    mark = {"type": "text", "encode": {"enter": {"text": {"signal": "'<<' + " + " + ' ' + ".join(names) + " + '>>' + refused + '!'"}}}}  # fmt: skip
    made = 0
    for settings in states(5, 2)[2:]:
        here = [{"name": name, "value": value} for name, value in settings.items()]
        spec = {"$schema": "https://vega.github.io/schema/vega/v6.json", "signals": here + updates, "marks": [mark]}
        numbers, refused = re.search(r"&lt;&lt;(.*?)&gt;&gt;(.*?)!", convert.vega_to_svg(spec)).groups()
        found = FIGURE.at(**settings)
        assert bool(refused) == bool(found["refused"])
        if not refused:
            made += 1
            assert [float(each) for each in numbers.split()] == pytest.approx([found[name] for name in names], rel=1e-9)
    assert made >= 4


def test_llama_3s_published_step_stands_beside_the_bound():
    """The printed 400 TFLOP/s of 16,384 GPUs: all weights but the table's, and half of the scores of 126 layers, which are 16,384 wide."""
    found = FIGURE.at()
    a_token = 6 * (405.853e9 - 128256 * 16384) + 6 * 126 * 16384 * 8192
    assert found["published"] == pytest.approx(a_token * 8192 * 2048 / (400e12 * 16384), rel=1e-4)
    assert found["seconds"] < found["published"] and found["fits"] == "yes" and found["devices"] == 16384
    assert FIGURE.at(data_ranks=64)["published"] > 0
    for other in ({"batch": 4096}, {"data_ranks": 32}, {"model": "GPT-3 175B"}, {"cluster": list(CLUSTERS)[1]}):
        assert FIGURE.at(**other)["published"] == 0
    assert FIGURE.settings()["model"] == LLAMA_3 and FIGURE.settings()["cluster"] == META


def test_the_same_in_python_answers_the_same():
    for settings in states(0, 0):
        space = {}
        exec(FIGURE.code.text(settings), {"print": lambda *_: None}, space)
        assert space["step"].seconds == pytest.approx(FIGURE.at(**settings)["seconds"], rel=1e-11)
        assert space["step"].memory.peak == pytest.approx(FIGURE.at(**settings)["memory"])
