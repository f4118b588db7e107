"""The waterfall of published steps, against the published rows, hands' arithmetic and `flopkit.parallel.step`, not against `gap`."""

from itertools import pairwise

import pytest

import flopkit as fk
from flopkit.book.gallery import where_a_step_goes
from flopkit.book.gallery.step_gaps import (
    BARS,
    LLAMA_3,
    MEASURED,
    OVERLAP,
    PARTS,
    PEAK,
    PRINTED,
    REACHED,
    RUNS,
    measured,
)

FIGURE = where_a_step_goes()
EVERY = [{"run": run, "rates": rates, "overlap": hidden} for run in RUNS for rates in (MEASURED, PRINTED) for hidden in OVERLAP]  # fmt: skip


def shares(**settings):
    return {row["part"]: row["share"] for row in FIGURE.rows(**settings)}


def test_bars_lead_from_the_peak_to_the_mfu():
    for settings in EVERY:
        rows, found = FIGURE.rows(**settings), FIGURE.at(**settings)
        assert [row["part"] for row in rows] == list(BARS)
        for above, below in pairwise(rows[1:-1]):
            assert below["end"] == pytest.approx(above["end"] - below["share"])
        assert rows[0]["share"] == 1 and rows[0]["end"] == 0
        assert rows[-1]["share"] == pytest.approx(rows[-2]["end"]) == found["mfu"]
        assert found["mfu"] + found["known"] + found["unexplained"] == pytest.approx(1)
        assert found["largest"] in {
            row["part"] for row in rows[1:-2] if row["share"] == max(other["share"] for other in rows[1:-2])
        }
        assert (found["unexplained"] < 0) == found["possible"].startswith("no")


def test_llama_3_by_hand():
    """400 TFLOP/s of 989.4; sums of 268 MB, eight a layer and micro-batch, over links of 450 GB/s; the best matmul measured 794.5 TFLOP/s."""
    found = shares(run=LLAMA_3, rates=PRINTED)
    assert found[REACHED] == pytest.approx(400 / 989.4, rel=1e-3)
    step = 405.85e9 * 6 * 8192 * 2048 / (16384 * 400e12)  # by 6N, which leaves out the scores
    assert found["TP exchange"] == pytest.approx(8 * 16 * 4 * 2 * 7 / 8 * 2**28 / 450e9 / step, rel=0.1)
    assert found["matmuls below peak"] == found["slower formats"] == found["CP and EP exchange"] == 0
    assert shares(run=LLAMA_3)["matmuls below peak"] == pytest.approx(found[REACHED] * (989.4 / 794.5 - 1), rel=1e-3)
    assert FIGURE.at()["seconds"] == pytest.approx(step, rel=0.06)


def test_mfu_is_that_of_the_papers():
    """As printed where model FLOPs are counted as we do, or with all of the scores, which is a little more."""
    printed = {
        "Llama 3 405B, 8,192 H100s": (0.43, 0.44),
        "MegaScale 175B, 12,288 A100s": (0.55, 0.56),  # table 2: 55.2 %
        "Megatron-LM 175B, 12,288 A100s": (0.40, 0.42),  # 41.2 %
        "MT-NLG 530B, 2,240 A100s": (0.53, 0.55),  # 54.2 %
        "BLOOM 176B, 384 A100s": (0.36, 0.38),
    }
    for run, (least, most) in printed.items():
        assert least < FIGURE.at(run=run)["mfu"] < most, run


def test_parts_are_those_of_the_step():
    """`step` by itself gives bubble and exchange, in seconds; the published seconds turn them into shares."""
    known = {(run.table, run.run): run for run in (*fk.published.parallel_runs(), *fk.recordings.bridge_runs())}
    for shown, row in RUNS.items():
        run = known[row]
        if run.uneven == 1:
            for hidden, axes in OVERLAP.items():
                dtype = run.dtype if isinstance(run.dtype, str) else run.dtype["linear"]
                least = fk.parallel.step(
                    run.model, run.layout, run.cluster, seq=run.seq, batch=run.batch, precision=run.precision, dtype=dtype, overlap=axes
                )  # fmt: skip
                found = shares(run=shown, rates=PRINTED, overlap=hidden)
                if isinstance(run.dtype, str):  # otherwise the slower format hides more
                    bubble = found["bubble"] * run.seconds
                    assert bubble == pytest.approx(least.parts["bubble"], rel=1e-3, abs=1e-4 * run.seconds), shown
                    outside = least.parts["pipeline"] + least.parts["data"]
                    assert found["DP and PP exchange"] * run.seconds == pytest.approx(outside, rel=1e-3, abs=1e-4 * run.seconds)  # fmt: skip
                elsewhere = least.parts["context"] + least.parts["expert"]
                if hidden == "nothing":
                    assert found["TP exchange"] * run.seconds == pytest.approx(least.parts["tensor"], rel=1e-3, abs=1e-4 * run.seconds)  # fmt: skip
                    assert found["CP and EP exchange"] * run.seconds == pytest.approx(elsewhere, rel=1e-3, abs=1e-4 * run.seconds)  # fmt: skip


def test_measured_rates_are_those_of_nccl_tests():
    """Least over printed time: 2·7/8·268 MB over 450 GB/s in 1.12 ms; 1 GiB between two nodes of eight A100s with 50 GB/s a node."""
    rows = {(row.system, row.bytes): row.seconds for row in fk.published.nccl_tests()}
    [took] = [seconds for (system, size), seconds in rows.items() if system.startswith("1 node, 8 ×") and size == 2**28]
    assert measured()["link_efficiency"] == round(2 * 7 / 8 * 2**28 / 450e9 / took, 2) < 1
    [far] = [seconds for (system, size), seconds in rows.items() if "p4de" in system and size == 2**30]
    assert measured()["network_efficiency"] == round(2**30 / 8 / 6.25e9 / far, 2) < 1
    for text in ("93 %", "82 %"):
        assert text in FIGURE.caption


def test_what_is_impossible_without_overlap():
    """The 32B of Megatron-Core exceeds its step where nothing overlaps, at the printed rates, too; with all overlapped no run does."""
    asked = {"run": "Megatron-Core 32B, 384 H100s", "rates": PRINTED}
    assert FIGURE.at(**asked, overlap="nothing")["unexplained"] < 0 < FIGURE.at(**asked)["unexplained"]
    assert all(FIGURE.at(**settings)["unexplained"] > 0 for settings in EVERY if settings["overlap"] == "all exchange")


def test_the_code_gives_the_figure():
    for settings in EVERY[::7]:
        names = {}
        exec(FIGURE.code.text(settings), names)
        gap = names["gap"]
        found = shares(**settings)
        assert gap.mfu == pytest.approx(found[REACHED], abs=1e-4) and found[PEAK] == 1
        for part, items in PARTS.items():
            assert sum(gap[item].points for item in items) / 100 == pytest.approx(found[part], abs=1e-5)
