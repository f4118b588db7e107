"""The meter of plain loops, with a clock that the tests wind."""

import json
import subprocess
import sys

import pytest
from wound_clock import Clock

import flopkit as fk
from flopkit.integrations import LoopMeter

TOY = fk.Device("toy", peak={"bf16": 1e15}, bandwidth=1e12)
STEP = fk.load("gpt2").train_step(seq=1024, batch=8, recompute="full")


@pytest.fixture
def clock():
    return Clock()


def test_metrics_are_means_since_the_last_call(clock):
    waits = []
    meter = LoopMeter(STEP, device=TOY, count=2, prefix="train/", wait=lambda: waits.append(clock.now), clock=clock)
    assert meter.metrics() == {} and not waits
    for seconds in (1, 3):
        clock.wait(seconds)
        meter.step()
    found = meter.metrics()
    assert found == {
        "train/step_seconds": 2, "train/mfu": pytest.approx(STEP.model_flops / 2 / 2e15), "train/hfu": pytest.approx(STEP.hardware_flops / 2 / 2e15),
        "train/tokens_per_second": 8192 / 2, "train/tokens_per_second_per_device": 8192 / 4,
    }  # fmt: skip
    assert found["train/hfu"] > found["train/mfu"] and waits == [1004]
    clock.wait(5)
    meter.step()
    assert meter.metrics()["train/step_seconds"] == 5
    assert meter.mean()["train/step_seconds"] == pytest.approx(3)
    json.dumps(found)


def test_the_peak_is_that_of_the_format(clock):
    two = fk.Device("two", peak={"bf16": 1e15, "fp8": 2e15}, bandwidth=1e12)
    linear = fk.mfu(STEP, seconds=1, device=two, dtype={"linear": "fp8", "rest": "bf16"})
    found = {}
    for dtype in (None, "bf16", "fp8", {"linear": "fp8", "rest": "bf16"}):
        meter = LoopMeter(STEP, device=two, dtype=dtype, clock=clock)
        clock.wait(1)
        meter.step()
        found[str(dtype)] = meter.metrics()
    mfu, hfu = STEP.model_flops / 1e15, STEP.hardware_flops / 1e15
    shares = [(each["mfu"], each["hfu"]) for each in found.values()]
    assert shares[0] == shares[1] == pytest.approx((mfu, hfu)) and shares[2] == pytest.approx((mfu / 2, hfu / 2))
    assert shares[3][0] == pytest.approx(float(linear)) and mfu / 2 < shares[3][0] < mfu
    with pytest.raises(ValueError, match="two has no peak for fp16; it has bf16, fp8"):
        LoopMeter(STEP, device=two, dtype="fp16")


def test_a_pause_is_in_no_step(clock):
    meter = LoopMeter(STEP, device=TOY, clock=clock)
    clock.wait(1)
    meter.step()
    meter.pause()
    clock.wait(100)
    meter.pause()  # the second says nothing new
    clock.wait(100)
    meter.resume()
    clock.wait(2)
    meter.step()
    assert meter.metrics()["step_seconds"] == 1.5
    meter.pause()
    clock.wait(50)
    meter.resume()
    clock.wait(1)
    meter.step()
    clock.wait(7)
    meter.start()
    clock.wait(4)
    meter.step()
    assert meter.metrics()["step_seconds"] == 4


def test_a_plain_number_has_no_tokens_and_an_impossible_time_no_mfu(clock):
    meter = LoopMeter(1e15, device=TOY, clock=clock)
    clock.wait(2)
    meter.step()
    assert meter.metrics() == {"step_seconds": 2, "mfu": 0.5}
    clock.wait(0.1)
    meter.step()
    with pytest.warns(RuntimeWarning, match="MFU is impossible"):
        assert meter.metrics() == {"step_seconds": pytest.approx(0.1)}
    assert meter.mean() == {}  # the time of the call before may have some of its work
    meter = LoopMeter(1e15, device=TOY, tokens=100, clock=clock)
    clock.wait(2)
    meter.step()
    assert meter.metrics()["tokens_per_second"] == pytest.approx(50)


def test_tokens_of_a_refused_call_and_of_those_beside_it_are_in_no_mean(clock):
    step = fk.models.transformer(layers=2, d_model=32, heads=4, kv_heads=2, d_ff=64, vocab=128).train_step(seq=8)
    meter = LoopMeter(step, device=fk.Device("slow", peak={"bf16": 1e6}, bandwidth=1.0), clock=clock)
    found = []
    with pytest.warns(RuntimeWarning, match="MFU is impossible"):
        for seconds, tokens in ((90, 4), (100, 8), (1e-6, 5), (50, 6), (100, 7)):
            clock.wait(seconds)
            meter.step()
            found.append(meter.metrics(lengths=[tokens]))
    assert [each.get("tokens_per_second") for each in found] == [4 / 90, 8 / 100, None, None, 7 / 100]
    assert found[3] == {"step_seconds": pytest.approx(50)}
    assert meter.mean()["tokens_per_second"] == pytest.approx((4 + 7) / 190)


def test_wrong_input(clock):
    with pytest.raises(ValueError, match="count=0"):
        LoopMeter(1e15, device=TOY, count=0)
    with pytest.raises(ValueError, match="steps=-1"):
        LoopMeter(1e15, device=TOY).step(-1)


@pytest.mark.parametrize(
    ("name", "given"), [("TransformersCallback", {"seq": 8}), ("LightningCallback", {"work": 1e9})]
)
def test_a_framework_that_is_missing_is_named(name, given):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('transformers', 'lightning', 'pytorch_lightning')))\n"
        f"from flopkit.integrations import {name}\n"
        f"try: {name}(**{given})\nexcept ImportError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"flopkit.integrations.{name} needs ") and "pip install" in said


def test_neither_framework_is_loaded_before_it_is_asked_for():
    code = "import sys, flopkit.integrations as i; i.LoopMeter; print([n for n in ('torch', 'transformers', 'lightning') if n in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
    with pytest.raises(AttributeError, match="there is LightningCallback, LoopMeter, TransformersCallback"):
        fk.integrations.KerasCallback
