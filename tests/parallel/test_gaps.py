"""Gaps: items add up to the step, are those of a hand's arithmetic, and no published step is below its bound; calibrated times are as close as claimed."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from math import prod
from statistics import mean, median
from types import SimpleNamespace

import pytest

import flopkit as fk
from flopkit.parallel import Layout, gap, step
from flopkit.parallel.gaps import ITEMS
from flopkit.parallel.plans import OVERLAPS
from flopkit.parallel.traffic import expected_nodes
from flopkit.published import parallel_runs
from flopkit.published.rows import read
from flopkit.recordings import bridge_runs, calibrated_seconds, calibration, calibration_errors, published_gaps
from flopkit.recordings.bridge import SEQUENCES
from flopkit.recordings.calibration import GENERATIONS, terms
from flopkit.recordings.published_data import dataset

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
    """The 190 rows of papers, logs and READMEs, and the 226 of Megatron-Bridge that have a layout."""
    rows = published_gaps()
    assert len({(row["table"], row["run"]) for row in rows}) == len(rows)
    assert len(rows) == len(parallel_runs()) + len(bridge_runs()) == 190 + 226
    assert [row["run"] for row in rows if row["bound"] > row["seconds"]] == []
    assert {row["largest known"] for row in rows} <= set(ITEMS) - {"arithmetic", "unexplained"}
    assert max(row["bound"] / row["seconds"] for row in rows) > 0.65  # it is near enough to fail


def test_a_bound_sends_a_token_once():
    """DeepSeek-V3 on B200s, 26.04.01: its 32 ranks of experts lie in four nodes, and DeepEP sends a token to each of these once. A copy for each expert would take the
    network half as long again as the whole step."""
    [run] = [run for run in bridge_runs() if "256 × DGX-B200, fp8, pp8 vp2 ep32" in run.run]
    asked = {"seq": run.seq, "batch": run.batch, "precision": run.precision, "dtype": "fp8", "overlap": OVERLAPS}
    copies = step(run.model, run.layout, run.cluster, **asked)
    assert copies.seconds > 1.4 * run.seconds > run.seconds > run.gap().bound.seconds
    found, unsaid = run.gap(), run.gap(expert_nodes=None)
    assert found["unexplained"].seconds > 0 and unsaid.items == found.items
    assert run.gap(expert_nodes=4)["expert"].seconds > found["expert"].seconds  # by chance it is 3.6 nodes
    said = "a copy of a token for each of its experts would take longer than the step"
    assert said in unsaid.supposes and said not in found.supposes


@pytest.mark.parametrize("experts, nodes, chosen", [(8, 2, 2), (8, 4, 3), (12, 3, 5), (6, 6, 6), (8, 1, 3)])
def test_expected_nodes_by_trying_all_choices(experts, nodes, chosen):
    kind = SimpleNamespace(experts=experts, chosen=chosen)
    reached = [len({each % nodes for each in those}) for those in combinations(range(experts), chosen)]
    assert expected_nodes(nodes, kind) == pytest.approx(mean(reached), rel=1e-12)


def test_expected_nodes_in_a_step():
    """Qwen3-30B on two nodes: of 128 experts 8, so that 1.99 nodes have one; over the network go those of the other node."""
    layout = Layout(data=16, expert=16)
    asked = {"seq": 4096, "batch": 16, "overlap": ()}
    sent = {
        nodes: step("qwen3-30b-a3b", layout, "dgx-h100", **asked, expert_nodes=nodes).sent["expert"]
        for nodes in (1, "expected", 2)
    }
    far = 48 * 4 * 4096 * 2048 * 2 / 2  # layers, all-to-alls, tokens, numbers of two bytes; half of it leaves the node
    assert sent[2] - sent[1] == pytest.approx(far)
    assert (sent["expected"] - sent[1]) / far == pytest.approx(1 - 2 * prod((64 - i) / (128 - i) for i in range(8)))
    with pytest.raises(ValueError, match="expert_nodes='some'"):
        step("qwen3-30b-a3b", layout, "dgx-h100", **asked, expert_nodes="some")


def test_rates_of_megatron_lm_agree_with_each_other():
    """Tokens/s and TFLOP/s that count all of the scores; and as many rounds of micro-batches as are printed."""
    data = read("megatron_lm_llama")
    runs = [run for run in parallel_runs() if run.table == "megatron_lm_llama"]
    for run, values in zip(runs, data["rows"], strict=True):
        row = dict(zip(data["columns"], values, strict=True))
        assert run.layout.micro_batches(run.batch) == row["accumulation"] and run.layout.ranks == row["gpus"]
        a_token = run.model.train_step(seq=run.seq).under("MEGATRON_2022").flops_per_token
        assert row["tflops_per_gpu"] * 1e12 / row["tokens_per_s"] == pytest.approx(a_token, rel=0.01)
    # by the same authors, and fitted on none of them
    assert median(abs(calibrated_seconds(run) / run.seconds - 1) for run in runs) < 0.1


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
    said = {"bloom": 14, "megascale": 40, "torchtitan": 40}
    for table, percent in said.items():
        assert median(off[table]) > percent / 100
        assert f"{percent} %" in calibrated_seconds.__doc__


def test_calibrated_seconds_are_as_close_as_claimed():
    """On releases on which nothing was fitted."""
    for known in map(calibration, GENERATIONS):
        assert known["claimed"] and not set(known["claimed"]) & set(known["fitted_on"])
        for release, claimed in known["claimed"].items():
            found = median(abs(row["error"]) for row in calibration_errors(release))
            assert claimed / 2 < found <= claimed <= 0.1, release


def test_constants_do_not_outlive_a_rewrite():
    """With the same layouts mixtures of experts became faster from 26.04.01 to 26.06; constants of the releases before say nothing of them."""
    runs = {
        release: {run.run: run for run in bridge_runs() if run.table.endswith(f"r{release}")}
        for release in ("26.04.01", "26.06", "26.08")
    }
    old = calibration()["constants"]

    def errors(release):
        return [
            sum(old[name] * value for name, value in terms(run).items()) / run.seconds - 1
            for run in runs[release].values()
        ]

    assert median(errors("26.08")) > 0.45 > 0.1 > abs(median(errors("26.04.01")))
    both = [name for name in runs["26.04.01"] if name in runs["26.06"]]
    faster = {name: runs["26.04.01"][name].seconds / runs["26.06"][name].seconds for name in both}
    assert len(both) > 12
    blackwell = [ratio for name, ratio in faster.items() if name.startswith(("qwen3", "deepseek")) and "GB" in name]
    assert len(blackwell) == 6 and all(1.15 < ratio < 1.6 for ratio in blackwell)
    assert all(abs(ratio - 1) < 0.03 for name, ratio in faster.items() if name.startswith("llama"))
    with pytest.raises(ValueError, match="since='26.05'"):
        calibration("26.05")


def test_tokens_of_whole_sequences():
    """26.04.01, 26.06.01 and 26.08 print tokens/s of whole sequences a second; those of 26.06 are finer."""
    for row in dataset("megatron_bridge").rows:
        whole = (row["value"] * row["count"] / row["seq"]).is_integer()
        assert whole or row["table"] not in SEQUENCES, row
    finer = [row for row in dataset("megatron_bridge").rows if row["table"] == "r26.06"]
    assert sum((row["value"] * row["count"] / row["seq"]).is_integer() for row in finer) < len(finer) / 3


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
