"""The figure of the chapter on utilisation against whole models and the doctor."""

import re

import pytest

import flopkit as fk
from flopkit.book.gallery import usual_mistakes
from flopkit.book.gallery.utilisation import MISTAKES, MODELS

FIGURE = usual_mistakes()


@pytest.mark.parametrize("seq", [512, 8192, 131072])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "qwen3-30b-a3b"])
def test_mfu_is_that_of_the_model(name, seq):
    step = fk.load(name).train_step(seq=seq)
    found = FIGURE.at(model=MODELS[name], seq=seq, rate=4096, count=64)
    assert found["per_token"] == pytest.approx(step.flops_per_token, rel=1e-12)
    assert found["mfu"] == pytest.approx(fk.mfu(step, seconds=seq / 4096, device="h100-sxm", count=64), rel=1e-12)


DOCTOR = {
    "sparse peak": "sparse peak",
    "MACs for FLOPs": "MACs for FLOPs",
    "peak of an A100": "wrong SKU: peak of a100-sxm-80gb",
    "hidden pairs counted": "causal ×2: hidden pairs counted",
    "scores left out": "scores left out",
    "embedding counted": "embedding in N",
    "recompute, to the end": "full recompute counted (HFU)",
    "recompute, early stop": "full recompute counted, early stop (HFU)",
    "idle experts counted": "total for active experts",
    "per-job rate, one peak": "per-job tokens/s over one GPU's peak",
    "per-GPU rate, all peaks": "per-GPU tokens/s over the job's peak",
}


@pytest.mark.parametrize("name", MODELS)
def test_the_ratios_are_the_doctor_s(name):
    assert tuple(DOCTOR) == MISTAKES
    ratios = {row["mistake"]: row["ratio"] for row in FIGURE.rows(model=MODELS[name], count=16, rate=8192, seq=4096)}
    found = fk.doctor(tokens_per_s=8192, model=name, seq=4096, device="h100-sxm", count=16)
    theirs = {each.name: each.ratio for each in found.considered}
    for mistake, ours in DOCTOR.items():
        if mistake == "idle experts counted" and not ("x" in name or "a3b" in name or "deepseek" in name):
            assert ratios[mistake] == 1 and ours not in theirs
        elif mistake == "recompute, early stop" and name in ("mixtral-8x7b", "qwen3-30b-a3b"):  # nothing is spared
            assert ratios[mistake] == ratios["recompute, to the end"] and ours not in theirs
        else:
            assert ratios[mistake] == pytest.approx(theirs[ours], rel=1e-9), mistake


def test_every_preset_says_what_its_name_says():
    too_fast = FIGURE.at(**FIGURE.presets["Too fast to be true"])
    assert too_fast["possible"] == "no" and too_fast["mfu"] > 1.5
    assert FIGURE.at()["possible"] == "yes" and FIGURE.at()["mfu"] == pytest.approx(0.3316, abs=1e-4)
    deepseek = FIGURE.at(**FIGURE.presets["DeepSeek-V3, 2,048 H100"])
    assert deepseek["mfu"] == pytest.approx(0.3894, abs=0.002)  # printed by its authors, without the router
    long = FIGURE.at(**FIGURE.presets["The same, 128k tokens"])
    assert long["hidden"] > 1.6


def test_the_axis_holds_every_dot():
    for settings in (
        {},
        {"count": 4096},
        {"count": 1, "device": "MI300X, bf16"},
        {"rate": 8388608, "seq": 131072},
        {"model": "DeepSeek-V3"},
    ):
        found = FIGURE.at(**settings)
        places = [row["place"] for row in FIGURE.rows(**settings)]
        assert found["low"] < min(places) and max(*places, 1) < found["high"]


def test_a_dot_that_is_far_away_stands_at_the_edge():
    """With 2,048 devices the two mixed-up counts of devices lie off the axis, and the others keep their places."""
    for count, beyond in ((8, (0, 0)), (2048, (1, -1))):
        found = FIGURE.at(count=count, rate=6375 * count)
        rows = FIGURE.rows(count=count, rate=6375 * count)
        assert tuple(row["beyond"] for row in rows[-2:]) == beyond
        assert all(row["beyond"] == 0 and row["place"] == row["printed"] for row in rows[:-2])
        if count == 2048:
            assert [row["place"] for row in rows[-2:]] == pytest.approx([16 * found["mfu"], found["mfu"] / 16])


def test_a_phone_keeps_the_numbers_at_the_ends_of_the_axis():
    pytest.importorskip("altair")
    ticks = re.findall(r'<text (?![^>]*opacity="0")[^>]*>([\d,]+ %)</text>', FIGURE.svg(width=380))
    assert ticks == ["1 %", "10 %", "100 %", "1,000 %"]
