"""Gaps: items add up to the step, are those of a hand's arithmetic, and no published step is below its bound; calibrated times are as close as claimed."""

from __future__ import annotations

from functools import cache
from statistics import median

import pytest

import flopkit as fk
from flopkit.parallel import Layout, gap
from flopkit.parallel.gaps import ITEMS
from flopkit.published import parallel_runs
from flopkit.recordings import bridge_runs, calibrated_seconds, calibration, calibration_errors, published_gaps

LLAMA_3 = Layout(tensor=8, pipeline=16, data=128, virtual=8)


@cache
def llama_3(**rate):
    return gap("llama-3.1-405b", LLAMA_3, "llama-3", seq=8192, batch=2048, **(rate or {"tflops_per_device": 400, "convention": "SIX_N"}))  # fmt: skip


def test_items_of_llama_3_by_hand():
    """Eight layers a rank, sixteen micro-batches, and 794.5 of 989.4 TFLOP/s measured for the best product (MAMF)."""
    found = llama_3()
    assert [item.name for item in found.items] == list(ITEMS)
    assert sum(item.seconds for item in found.items) == found.step_seconds
    assert sum(item.points for item in found.items) == pytest.approx(100, rel=1e-12)
    model = fk.load("llama-3.1-405b")
    assert found.step_seconds == pytest.approx(6 * model.params * 8192 * 2048 / (400e12 * 16384), rel=1e-12)
    assert found["tensor"].seconds == pytest.approx(8 * 16 * 4 * 2 * 7 / 8 * 2 * 8192 * 16384 / 450e9, rel=1e-9)
    arithmetic = found["arithmetic"].seconds
    assert arithmetic == pytest.approx(model.train_step(seq=8192, batch=2048).model_flops / 16384 / 989.4e12, rel=1e-9)
    assert found["products"].seconds == pytest.approx(arithmetic * (989.4 / 794.5 - 1), rel=1e-3)
    assert found.mfu == arithmetic / found.step_seconds
    # fifteen of sixteen ranks wait for an eighth of a micro-batch each; the first and the last have seven layers, not eight
    work = sum(found[name].seconds for name in ("arithmetic", "products", "recompute", "imbalance", "tensor"))
    assert 0.85 < found["bubble"].seconds / (work * 15 / (8 * 16)) < 1


def test_memory_of_one_rank_by_hand():
    """Llama-3-8B on one device: states of Adam twice, gradients read and weights written; a norm reads and writes, a sum reads two and writes one."""
    seq, model = 4096, fk.load("llama-3-8b")
    found = gap(model, Layout(zero=0), "dgx-h100", seq=seq, batch=1, step_seconds=1)
    states = model.params * (2 * 12 + 4 + 2)
    stream, queries, wide = 4096 * seq * 2, 32 * 128, 14336
    of_layer = 2 * 2 * stream + 2 * 3 * stream + 2 * (queries + 8 * 128) * seq * 2 + 3 * wide * seq * 2
    assert found["memory"].seconds == pytest.approx((states + 3 * 32 * of_layer) / 3.35e12, rel=0.01)


@pytest.mark.parametrize("convention", ["EXACT", "SIX_N", "MEGATRON_2022"])
def test_rates_of_one_step_are_one_gap(convention):
    """What is unexplained is the same whichever way the step's time is said."""
    whole = fk.load("llama-3.1-405b").train_step(seq=8192, batch=2048)
    flops = whole.under(convention).model_flops
    ways = [
        {"step_seconds": 6.0}, {"tokens_per_s_per_device": 8192 * 2048 / 16384 / 6},
        {"tflops_per_device": flops / 6 / 16384 / 1e12, "convention": convention},
        {"mfu": flops / 6 / 16384 / fk.device("h100-sxm").peak("bf16"), "convention": convention},
    ]  # fmt: skip
    found = [llama_3(**way)["unexplained"].seconds for way in ways]
    assert found == pytest.approx([found[0]] * 4, rel=1e-9)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({}, "no rate given"),
        ({"step_seconds": 6, "mfu": 0.4}, "step_seconds= and mfu= given"),
        ({"mfu": 41}, "mfu=0.41"),
        ({"tflops_per_device": 400e12}, "10¹²"),
        ({"step_seconds": -1}, "step_seconds=-1"),
        ({"mfu": 0.4, "products": 1.2}, "products=1.2"),
    ],
)
def test_what_is_no_rate(wrong, said):
    with pytest.raises((TypeError, ValueError), match=said):
        gap("llama-3.1-405b", LLAMA_3, "llama-3", seq=8192, batch=2048, **wrong)


def test_no_published_step_is_below_its_bound():
    """The 187 rows of papers, logs and READMEs, and the 155 of Megatron-Bridge that have a layout."""
    rows = published_gaps()
    assert len(rows) == len(parallel_runs()) + len(bridge_runs()) == 187 + 155
    assert [row["run"] for row in rows if row["bound"] > row["seconds"]] == []
    assert {row["largest known"] for row in rows} <= set(ITEMS) - {"arithmetic", "unexplained"}
    assert max(row["bound"] / row["seconds"] for row in rows) > 0.65  # it is near enough to fail


def test_the_long_row_of_llama_3_counts_its_scores():
    """By 6N the step of 131,072 tokens would be shorter than what it needs at the measured share of the peak."""
    run = next(run for run in parallel_runs() if run.run.endswith("131,072 tokens"))
    asked = {"seq": run.seq, "batch": run.batch, **run.rate}
    assert gap(run.model, run.layout, run.cluster, convention="SIX_N", **asked)["unexplained"].seconds < 0
    assert run.gap()["unexplained"].seconds > 0


def test_calibrated_seconds_do_not_carry_over_to_other_programs():
    """The docstring of `calibrated_seconds` says by how much."""
    off = {}
    for run in parallel_runs():
        off.setdefault(run.table, []).append(abs(calibrated_seconds(run) / run.seconds - 1))
    said = {"bloom": 15, "megascale": 40, "torchtitan": 40}
    for table, percent in said.items():
        assert median(off[table]) > percent / 100
        assert f"{percent} %" in calibrated_seconds.__doc__


def test_calibrated_seconds_are_as_close_as_claimed():
    """On releases on which nothing was fitted."""
    known = calibration()
    assert not set(known["claimed"]) & set(known["fitted_on"])
    for release, claimed in known["claimed"].items():
        found = median(abs(row["error"]) for row in calibration_errors(release))
        assert claimed / 2 < found <= claimed, release


RUN = {
    "model": "llama-3-70b",
    "device": "h100-sxm",
    "count": 64,
    "seq": 8192,
    "global_batch": 256,
    "tokens_per_s_per_device": 800,
}


def test_the_doctor_gives_the_gap():
    layout = Layout(tensor=4, pipeline=8, data=2, virtual=5)
    found = fk.doctor(**RUN, parallel=layout)
    asked = {"seq": 8192, "batch": 256, "tokens_per_s_per_device": 800}
    assert found.gap == gap("llama-3-70b", layout, "dgx-h100", **asked)
    assert "unexplained" in str(found) and found.gap.mfu == pytest.approx(found.mfu, rel=1e-9)
    assert fk.doctor(**{**RUN, "global_batch": None}, parallel=layout).gap is None


@pytest.mark.parametrize(
    "layout, other, said",
    [
        ({"data": 32}, {}, "32 ranks, and count=64"),
        ({"tensor": 16, "data": 4}, {}, "8 key-value heads"),
        ({"pipeline": 64}, {"model": "llama-3-8b"}, "32 layers .* cannot be divided into 64 stages"),
        ({"data": 64, "expert": 32}, {"model": "mixtral-8x7b"}, "must divide the 8 experts"),
        ({"data": 64}, {"device": "mi300x"}, "neither its links"),
        ({"data": 64}, {"cluster": "dgx-a100"}, "has a100-sxm-80gb"),
        ({"data": 64}, {"global_batch": 100}, "batch=100"),
        ({"data": 64}, {"trained": fk.LoRA(rank=8)}, "where all is trained"),
        ({"data": 64}, {"recompute": "full"}, "recompute='full'"),
    ],
)
def test_layouts_that_the_doctor_refuses(layout, other, said):
    with pytest.raises(ValueError, match=said):
        fk.doctor(**{**RUN, **other}, parallel=Layout(**layout))
