"""The figure on denominators against `mfu` by formats, `training`'s hours, and torchtitan's, Meta's and Bekman's numbers."""

import pytest

import flopkit as fk
from flopkit.book.gallery import from_peak_to_bill
from flopkit.book.gallery.peak_to_bill import BARS, DEVICES, MODELS

FIGURE = from_peak_to_bill()
FORMATS = {"linear": "fp8", "rest": "bf16"}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", MODELS)
def test_mfu_is_that_of_the_ideal_time(model, device):
    """`mfu` adds the times of a step's linear layers at fp8's peak and of its other matmuls at bf16's."""
    step = fk.load(model).train_step(seq=8192)
    parts = {part.name: part for part in step.forward.parts}
    scores = sum(part.flops for part in parts["layers"].parts if part.name == "attention")
    share = 1 - (scores + parts["head"].flops) / step.forward.flops
    control = FIGURE.controls["fp8"]
    nearest = min(control.options, key=lambda value: abs(value - share))
    found = FIGURE.at(model=MODELS[model], device=DEVICES[device], fp8=nearest, rate=128)
    run = {"seconds": 8192 / 128, "device": device}
    mixed, plain = fk.mfu(step, **run, dtype=FORMATS), fk.mfu(step, **run)
    # the slider's share lies off the step's by so much, of a time that fp8 halves
    assert found["mfu"] == pytest.approx(mixed, abs=1.02 * abs(nearest - share) * plain / 2 + 1e-12)
    assert FIGURE.at(model=MODELS[model], device=DEVICES[device], fp8=0.0, rate=128)["mfu"] == pytest.approx(
        plain, rel=1e-12
    )


def test_half_of_the_flops_in_twice_the_rate_make_four_thirds():
    """Two units of work at rates 1 and 2 take 1 + 1/2: the rate of both together is 4/3, and the arithmetic mean would be 3/2."""
    found = FIGURE.at(fp8=0.5)
    assert found["mix"] / 989.4e12 == pytest.approx(4 / 3, rel=1e-3)
    assert FIGURE.at(fp8=0.0)["mix"] == pytest.approx(989.4e12) and FIGURE.at(fp8=1.0)["mix"] == pytest.approx(
        1978.9e12, rel=1e-4
    )


def test_torchtitan_s_two_runs_of_8b():
    """The rates as they were published, the chapter's three shares of fp8's run, and one of bf16's."""
    rows = {
        row["precision"]: row
        for row in fk.recordings.find(dataset="torchtitan", workload="llama-3.1-8b").rows
        if row["table"] == "fsdp-8" and "compile" in row["setting"]
    }
    mostly, plain = (FIGURE.presets[name] for name in ("torchtitan, mostly fp8", "torchtitan, all bf16"))
    assert rows["bf16"]["value"] == plain["rate"]
    assert mostly["rate"] in {row["value"] for row in rows.values()}
    assert FIGURE.settings() == mostly
    assert f"{FIGURE.at()['mfu']:.1%}" == "26.3%" and f"{FIGURE.at(**plain)['mfu']:.1%}" == "34.7%"
    assert f"{FIGURE.at(fp8=0.0)['mfu']:.1%}" == "44.4%" and f"{FIGURE.at(fp8=1.0)['mfu']:.1%}" == "22.2%"


def test_meta_s_bill_of_405b():
    """30.84 million hours for 15.6 trillion tokens, as in Meta's card and paper."""
    bill = fk.load("llama-3.1-405b").training(
        tokens=15.6e12, device="h100-sxm", seq=8192, device_hours=30.84e6, goodput=0.9
    )
    found = FIGURE.at(**FIGURE.presets["Meta's 405B, by its bill"])
    assert found["hours"] == pytest.approx(30.84e6, rel=1e-3)
    assert found["mfu"] == pytest.approx(bill.mfu, rel=1e-3) and found["of_all_hours"] == pytest.approx(
        0.9 * found["mfu"]
    )


def test_the_hours_are_those_of_training():
    found = FIGURE.at(fp8=0.0, rate=512, goodput=0.8, tokens=2, model="Llama-3.1-70B")
    run = fk.load("llama-3.1-70b").training(tokens=2e12, device="h100-sxm", seq=8192, mfu=found["mfu"], goodput=0.8)
    assert found["hours"] == pytest.approx(run.device_hours, rel=1e-9)


def test_no_denominator_changes_the_bill():
    """What the caption says: of the controls, throughput, goodput and tokens alone change the hours."""
    start = FIGURE.at()["hours"]
    change = {
        name
        for name, control in FIGURE.controls.items()
        if any(FIGURE.at(**{name: value})["hours"] != start for value in (control.options[0], control.options[-1]))
    }
    assert change == {"rate", "goodput", "tokens"}


def test_the_bars_are_the_data_sheet_s_and_bekman_s():
    rows = {row["bar"]: row for row in FIGURE.rows(fp8=0.0)}
    assert tuple(rows) == BARS
    assert rows["peak of this mix"]["at_rate"] == rows["peak, all in bf16"]["at_rate"] == 989.4e12
    assert rows["best matmuls, this mix"]["at_rate"] == pytest.approx(794.5e12)  # Bekman's table, H100 SXM, bf16
    assert rows["rate over all hours"]["at_rate"] == pytest.approx(0.9 * rows["rate while training"]["at_rate"])


def test_each_bar_has_its_utilisation():
    """torchtitan's fp8 run at 90 % goodput: 439.15 TFLOP/s over both peaks, the ideal mix and Bekman's matmuls; then the run over the mix."""
    rate = 8532 * fk.load("llama-3.1-8b").train_step(seq=8192).flops_per_token
    mix, best = (1 / (0.186 / bf16 + 0.814 / fp8) for bf16, fp8 in ((989.4e12, 1978.9e12), (794.5e12, 1402.6e12)))
    want = [rate / 1978.9e12, rate / 989.4e12, rate / mix, rate / best, rate / mix, 0.9 * rate / mix]
    assert [row["reported"] for row in FIGURE.rows()] == pytest.approx(want, rel=1e-4)


def test_an_impossible_rate_is_called_so():
    assert FIGURE.at()["possible"] == "yes" and FIGURE.at(model="Llama-3.1-405B")["possible"] == "no"
