"""The meter of a training loop, with a clock that the tests wind."""

import inspect
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy
import pytest
import sympy
from wound_clock import Clock

import flopkit as fk
from flopkit.models import MLP, Block, Experts, GatedDelta, Head, Model, Segments, WindowedLayers, transformer
from flopkit.sizes import lengths_of
from flopkit.utilization import packing
from flopkit.utilization.packing import Amounts

TOY = fk.Device("toy", peak={"bf16": 100.0, "fp8": 200.0}, bandwidth=1000.0)
STEP = SimpleNamespace(model_flops=60, hardware_flops=80, convention=fk.conventions.EXACT)


@pytest.fixture
def clock():
    return Clock()


def run(meter, clock, *times, steps=1):
    """The readings after steps that take these times."""
    found = []
    for seconds in times:
        clock.wait(seconds)
        found.append(meter.step(steps))
    return found


def test_a_step_has_a_time_and_an_mfu(clock):
    meter = fk.Meter(flops_per_step=50, device=TOY, clock=clock)
    first, second = run(meter, clock, 8, 2)
    assert (first.seconds, first.mfu, first.hfu, first.warm_up) == (8, 0.0625, None, True)
    assert (second.seconds, second.mfu, second.hfu, second.warm_up) == (2, 0.25, None, False)
    assert meter.last == second and meter.steps == 2
    seconds, mfu = second
    assert (seconds, mfu) == (2, 0.25)


def test_and_an_hfu_where_hardware_flops_are_known(clock):
    for work in ({"flops_per_step": 60, "hardware_flops": 80}, {"flops_per_step": STEP}):
        meter = fk.Meter(**work, device=TOY, clock=clock)
        ((seconds, mfu, hfu),) = run(meter, clock, 2)
        assert (seconds, mfu, hfu) == (2, 0.3, 0.4)
    meter = fk.Meter(flops_per_step=STEP, hardware_flops=100, device=TOY, clock=clock, warm_up=0)
    clock.wait(2)
    assert meter.step().hfu == meter.hfu == 0.5  # what the caller says goes before what the step says
    assert fk.Meter(flops_per_step=fk.matmul(m=1, k=1, n=1), device=TOY).hfu is None


def test_devices_and_formats_are_those_of_mfu(clock):
    meter = fk.Meter(flops_per_step=60, hardware_flops=80, device=TOY, dtype="fp8", count=2, clock=clock)
    assert [(one.mfu, one.hfu) for one in run(meter, clock, 1)] == [(0.15, 0.2)]
    assert repr(meter.last.mfu) == "MFU 15 % of 2 × 200 FLOP/s in fp8, toy, FLOPs as given"
    assert fk.Meter(50, device="h100-sxm").summary().caption == (
        "a step on 989.4 TFLOP/s in bf16, NVIDIA H100 SXM5 80 GB, FLOPs as given"
    )


def test_the_mean_leaves_the_warm_up_out(clock):
    meter = fk.Meter(flops_per_step=30, device=TOY, warm_up=2, clock=clock)
    assert [one.warm_up for one in run(meter, clock, 100, 50, 1, 2)] == [True, True, False, False]
    assert (meter.seconds, meter.mfu, meter.steps) == (1.5, pytest.approx(0.2), 4)
    meter = fk.Meter(flops_per_step=30, device=TOY, warm_up=0, clock=clock)
    run(meter, clock, 3)
    assert meter.seconds == 3


def test_the_mean_goes_over_the_window_and_is_that_of_the_work(clock):
    """Two steps of 1 and 3 s are 60 FLOPs in 4 s: 15 % and not the mean of 30 and 10 %."""
    meter = fk.Meter(flops_per_step=30, device=TOY, window=2, clock=clock)
    run(meter, clock, 9, 7, 1, 3)
    assert (meter.seconds, meter.mfu) == (2, 0.15)
    assert [row["seconds"] for row in meter.summary()] == [3, 2, 11 / 3]


def test_the_window_is_fifty_calls_where_nothing_is_said(clock):
    meter = fk.Meter(flops_per_step=30, device=TOY, clock=clock)
    run(meter, clock, 9, 3, *[1] * 50)
    assert meter.seconds == 1
    run(meter, clock, 3)
    assert meter.seconds == 1.04


def test_several_steps_at_once(clock):
    meter = fk.Meter(flops_per_step=30, hardware_flops=40, device=TOY, clock=clock)
    (one,) = run(meter, clock, 10, steps=5)
    assert (one.seconds, one.mfu, one.hfu, one.warm_up) == (2, 0.15, 0.2, True)
    run(meter, clock, 1)
    run(meter, clock, 9, steps=4)
    assert (meter.seconds, meter.steps) == (2, 10)  # 10 s, five steps
    assert [row["steps"] for row in meter.summary()] == [1, 5, 5]


def test_what_stands_between_steps_is_in_none(clock):
    meter = fk.Meter(flops_per_step=30, device=TOY, clock=clock)
    run(meter, clock, 1, 2)
    clock.wait(500)  # an evaluation
    meter.start()
    (one,) = run(meter, clock, 2)
    assert (one.seconds, meter.seconds, meter.steps) == (2, 2, 3)


def test_before_the_first_time(clock):
    meter = fk.Meter(flops_per_step=30, hardware_flops=40, device=TOY, clock=clock)
    assert meter.last is None and all(math.isnan(value) for value in (meter.seconds, meter.mfu, meter.hfu))
    assert str(meter) == "step 0: no time yet after the warm-up"
    run(meter, clock, 5)
    assert str(meter) == "step 1: no time yet after the warm-up"
    assert [row["what"] for row in meter.summary()] == ["last step", "running mean", "after warm-up"]
    assert "–" in str(meter.summary())
    assert len(fk.Meter(flops_per_step=30, device=TOY).summary()) == 2


def test_an_impossible_time_is_said_once_and_ends_no_training(clock):
    """60 FLOPs in half a second are 120 FLOP/s, of 110 at most; so is no time at all."""
    meter = fk.Meter(flops_per_step=60, hardware_flops=80, device=TOY, warm_up=0, clock=clock)
    with pytest.warns(RuntimeWarning, match=r"(?s)MFU is impossible: 120 FLOP/s.*torch\.cuda\.synchronize") as caught:
        clock.wait(0.5)
        one = meter.step()
    here = inspect.currentframe().f_lineno - 1
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, here)]
    assert one.seconds == 0.5 and math.isnan(one.mfu) and math.isnan(one.hfu)
    assert str(meter) == "step 1: no time yet after the warm-up, 1 refused"
    (one,) = run(meter, clock, 0)  # no second warning, which would be an error here
    assert math.isnan(one.mfu)


def test_what_was_refused_is_in_no_mean(clock):
    """The log of a TPU whose steps of 11.7 s are launched ahead: 1.353, 12.444, 0.002, 11.715, 11.645 s. (MaxText, getting_started.)"""
    device = fk.Device("slow", peak={"bf16": 918e12}, bandwidth=1e12)
    meter = fk.Meter(flops_per_step=2265.1e12, device=device, warm_up=0, clock=clock)
    with pytest.warns(RuntimeWarning, match="MFU is impossible"):
        run(meter, clock, 1.353, 12.444, 0.002, 11.715, 11.645)
    assert meter.refused == 2 and meter.steps == 5 and meter.beside == 2  # 12.444 s and 11.715 s
    assert meter.seconds == pytest.approx(11.645) and meter.mfu * 918 == pytest.approx(194.5, abs=0.1)
    assert meter.mfu == pytest.approx(2265.1 / 918 / meter.seconds) == meter.summary()[-1]["MFU"]
    assert "(mean of 1, 2 refused, 2 beside them)" in str(meter) and math.isfinite(meter.last.mfu)
    meter.start()
    run(meter, clock, 11.7, steps=1)
    assert meter.refused == 2 and meter.seconds == pytest.approx((11.645 + 11.7) / 2)


def test_a_loop_that_waits_every_second_step_has_no_mean(clock):
    """Six steps of one second of work in 6.1 s. Without the short ones they would be an MFU of 52 %."""
    meter = fk.Meter(flops_per_step=100, hardware_flops=100, device=TOY, warm_up=0, clock=clock)
    with pytest.warns(RuntimeWarning, match="MFU is impossible"):
        found = run(meter, clock, 1.9, 0.1, 2, 0.1, 1.9, 0.1)
    assert [math.isnan(each.mfu) for each in found] == [False] + [True] * 5 and math.isnan(found[2].hfu)
    assert math.isnan(meter.mfu) and (meter.refused, meter.beside) == (3, 3)
    assert str(meter) == "step 6: no time yet after the warm-up, 3 refused, 3 beside them"
    two = fk.Meter(flops_per_step=100, device=TOY, warm_up=0, clock=clock)
    for seconds in (2, 2.1, 2):
        clock.wait(seconds)
        two.step(steps=2)
    assert two.mfu == pytest.approx(6 / 6.1)


def test_beside_a_refused_step_means_go_back(clock):
    meter = fk.Meter(flops_per_step=60, device=TOY, window=2, clock=clock)
    run(meter, clock, 9, 1, 2)
    before = (meter.mfu, meter.summary()[-1]["MFU"])
    with pytest.warns(RuntimeWarning, match="MFU is impossible"):
        run(meter, clock, 4, 0.1)
    assert (meter.mfu, meter.summary()[-1]["MFU"]) == (pytest.approx(0.3), pytest.approx(before[1]))
    run(meter, clock, 3, 1.5)
    assert meter.mfu == pytest.approx(2 * 60 / 3.5 / 100) and meter.summary()[-1]["MFU"] == pytest.approx(
        3 * 60 / 4.5 / 100
    )


def test_a_refused_step_of_documents_is_in_no_mean_either(clock):
    step = PACKED["dense"].train_step(seq=8)
    device = fk.Device("slow", peak={"bf16": 1e6}, bandwidth=1.0)
    meter = fk.Meter(step, device=device, warm_up=0, clock=clock)
    clock.wait(1000)
    good = meter.step(lengths=[8])
    clock.wait(1e-6)
    with pytest.warns(RuntimeWarning, match="MFU is impossible"):
        meter.step(lengths=[8, 8])
    clock.wait(500)
    assert math.isnan(meter.step(lengths=[8]).mfu) and meter.refused == 1 and meter.beside == 2
    clock.wait(1000)
    meter.step(lengths=[8])
    assert (meter.seconds, meter.mfu) == (pytest.approx(1000), pytest.approx(good.mfu))


@pytest.mark.parametrize(
    ("device", "advice"),
    [
        ("h100-sxm", r"torch\.cuda\.synchronize\(\) first\."),
        ("mi300x", "on ROCm"),
        ("tpu-v6e", r"jax\.block_until_ready\(…\)"),
        ("gaudi-2", r"torch\.hpu\.synchronize"),
        ("gaudi-3", r"torch\.hpu\.synchronize"),
        ("max-1550-stack", r"torch\.xpu\.synchronize"),
        ("arc-pro-b60", r"torch\.xpu\.synchronize"),
        (fk.Device("mine", peak={"bf16": 1e12}, bandwidth=1e12, vendor="Intel"), r"torch\.xpu\.synchronize"),
        ("ascend-950dt", r"torch\.npu\.synchronize"),
        (TOY, "what its framework has"),
    ],
)
def test_the_advice_is_that_of_the_device(device, advice):
    for wrong in (lambda: fk.mfu(1e30, seconds=1, device=device), lambda: fk.mbu(1e30, seconds=1, device=device)):
        with pytest.raises(ValueError, match=f"(?s)before the device had finished: .*{advice}") as caught:
            wrong()
        assert ("cuda" in str(caught.value)) == any(each in advice for each in ("cuda", "ROCm", "framework"))
        assert ("hpu" in str(caught.value)) == ("hpu" in advice)


def test_one_of_the_two_may_be_possible(clock):
    meter = fk.Meter(flops_per_step=60, hardware_flops=80, device=TOY, warm_up=0, clock=clock)
    with pytest.warns(RuntimeWarning, match="^HFU is impossible: 123.1 FLOP/s"):
        (one,) = run(meter, clock, 0.65)
    assert one.mfu == pytest.approx(60 / 65) and math.isnan(one.hfu)


def test_it_prints_a_line(clock):
    meter = fk.Meter(flops_per_step=STEP, device=TOY, clock=clock)
    run(meter, clock, 9, 2, 2)
    line = "step 3, 2 s (mean of 2): MFU 30 % of 100 FLOP/s in bf16, toy, EXACT; HFU 40 %"
    assert str(meter) == repr(meter) == line
    meter = fk.Meter(flops_per_step=60, device=TOY, clock=clock)
    run(meter, clock, 9, 2)
    assert str(meter) == "step 2, 2 s (mean of 1): MFU 30 % of 100 FLOP/s in bf16, toy, FLOPs as given"


def test_its_summary(clock):
    meter = fk.Meter(flops_per_step=STEP, device=TOY, window=1, clock=clock)
    run(meter, clock, 9, 4, 2)
    assert str(meter.summary()).splitlines() == [
        "a step on 100 FLOP/s in bf16, toy, EXACT",
        "what           steps  seconds   MFU     HFU",
        "last step          1      2 s  30 %    40 %",
        "running mean       1      2 s  30 %    40 %",
        "after warm-up      2      3 s  20 %  26.7 %",
    ]
    assert meter._repr_html_() == meter.summary()._repr_html_()
    meter = fk.Meter(flops_per_step=60, device=TOY, clock=clock)
    run(meter, clock, 2)
    assert meter.summary().columns == ["what", "steps", "seconds", "MFU"]


def test_time_passes_by_itself():
    meter = fk.Meter(flops_per_step=1, device="h100-sxm")
    one = meter.step()
    assert 0 < one.seconds < 60 and 0 < one.mfu < 1


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"flops_per_step": -1}, ValueError, "flops=-1"),
        ({"flops_per_step": "6N"}, TypeError, "flops='6N': must be a number of FLOPs"),
        ({"flops_per_step": None}, TypeError, "flops=None: must be a number of FLOPs"),
        ({"hardware_flops": math.nan}, ValueError, "flops=nan"),
        ({"flops_per_step": numpy.array([1.0])}, TypeError, "flops_per_step, device and count: a meter takes numbers"),
        ({"hardware_flops": sympy.Symbol("x")}, TypeError, "hardware_flops, device and count: a meter takes numbers"),
        ({"device": "h100"}, ValueError, "is not a device in the data; did you mean"),
        ({"device": "a100-sxm-80gb", "dtype": "fp8"}, ValueError, "has no peak for fp8"),
        ({"count": 0}, ValueError, "count=0"),
        ({"warm_up": -1}, ValueError, "warm_up=-1"),
        ({"window": 0}, ValueError, "window=0"),
    ],
)
def test_wrong_input(wrong, error, says):
    with pytest.raises(error, match=says):
        fk.Meter(**({"flops_per_step": 1, "device": TOY} | wrong))


def test_no_steps_have_no_time(clock):
    with pytest.raises(ValueError, match="steps=0"):
        fk.Meter(1, device=TOY, clock=clock).step(0)


# -- documents of unequal lengths -----------------------------------------------------------------------------------------

SIZES = {"vocab": 96, "d_model": 32, "layers": 4, "heads": 4, "kv_heads": 2}
PACKED = {
    "labels": replace(transformer(**SIZES, d_ff=80), head=Head(outputs=3, each="sequence", bias=True)),
    "dense": transformer(**SIZES, d_ff=80),
    "windows": transformer(**SIZES, d_ff=80, window=WindowedLayers(8, layers=3), order=(0, 0, 0, 1)),
    "chunks": Model(
        name="hybrid", d_model=32, vocab=96, blocks=((Block(mixer=GatedDelta(heads=4, k_heads=2, k_dim=8, v_dim=12, chunk=8), mlp=MLP(d_ff=80)), 2),)
    ),
    "experts": transformer(**SIZES, d_ff=80, experts=Experts(experts=8, top_k=2, d_ff=24), dense=1, order=(0, 1, 1, 1)),
}  # fmt: skip
HOW = {
    "plain": ({}, "EXACT"),
    "every position": ({"recompute": "full"}, "TORCH"),
    "multiply-adds": ({"recompute": "selective"}, "FVCORE"),
    "half of the scores": ({"recompute": Segments(layers=2)}, "MEGATRON"),
    "adapters": ({"trained": fk.LoRA(rank=2, targets=("up_proj",)), "recompute": "full", "early_stop": True}, "EXACT"),
}
BATCHES = [
    [40, 3, 8],
    [5, 17, 1, 9],
    [16],
    [41, 2],
    numpy.array([7, 7, 30]),
    [1, 1],
]  # 41 is longer than what was seen before
FAST = fk.Device("fast", peak={"bf16": 1e12}, bandwidth=1000.0)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", PACKED)
def test_a_step_of_documents_has_the_work_of_these(name, how, clock):
    """Whatever the meter was made with, and to the last bit of MFU and HFU and of what they say."""
    model, (policy, convention) = PACKED[name], HOW[how]
    meter = fk.Meter(model.train_step(seq=64, batch=3, **policy).under(convention), device=FAST, count=2, clock=clock)
    for lengths in BATCHES:
        clock.wait(0.5)
        one, step = meter.step(lengths=lengths), model.train_step(lengths=lengths, **policy).under(convention)
        mfu, hfu = (gauge(step, seconds=0.5, device=FAST, count=2) for gauge in (fk.mfu, fk.hfu))
        assert (one.mfu, one.hfu, repr(one.mfu), repr(one.hfu)) == (mfu, hfu, repr(mfu), repr(hfu))


def test_a_capacity_of_experts_rounds_up_in_each_step(clock):
    model = PACKED["experts"]
    meter = fk.Meter(model.train_step(seq=64, capacity=1.25), device=FAST, clock=clock)
    for lengths in ([3], [40, 3, 8], [5, 17, 1, 9], [16], [13, 4]):
        clock.wait(1)
        step = model.train_step(lengths=lengths, capacity=1.25)
        assert meter.step(lengths=lengths).hfu == fk.hfu(step, seconds=1, device=FAST)


def test_the_mean_is_that_of_the_work_of_each_step(clock):
    """One step as the meter was made, and two of documents, in 1 + 3 + 4 s."""
    model = PACKED["windows"]
    usual, other, third = model.train_step(seq=64), model.train_step(lengths=[40, 3]), model.train_step(lengths=[9] * 5)
    meter = fk.Meter(usual, device=FAST, warm_up=1, clock=clock)
    for seconds, lengths in ((9, [30]), (1, None), (3, [40, 3]), (4, [9] * 5)):
        clock.wait(seconds)
        meter.step(lengths=lengths)
    flops = usual.model_flops + other.model_flops + third.model_flops
    assert meter.mfu == pytest.approx(flops / 8 / 1e12, rel=1e-14) and meter.seconds == 8 / 3
    executed = usual.hardware_flops + other.hardware_flops + third.hardware_flops
    assert meter.hfu == pytest.approx(executed / 8 / 1e12, rel=1e-14)
    last, mean, everything = meter.summary()
    assert (last["MFU"], mean["MFU"], everything["MFU"]) == (meter.last.mfu, meter.mfu, meter.mfu)
    two = fk.Meter(usual, device=FAST, warm_up=0, window=1, clock=clock)
    run(two, clock, 2)
    clock.wait(3)
    two.step(lengths=[40, 3])
    assert two.mfu == other.model_flops / 3 / 1e12
    assert two.summary()[2]["MFU"] == pytest.approx((usual.model_flops + other.model_flops) / 5 / 1e12, rel=1e-14)


def test_documents_of_several_steps(clock):
    model = PACKED["dense"]
    meter = fk.Meter(model.train_step(seq=64), device=FAST, warm_up=0, clock=clock)
    clock.wait(8)
    one = meter.step(4, lengths=[40, 3, 8, 16])
    assert one.seconds == 2 and one.mfu == model.train_step(lengths=[40, 3, 8, 16]).model_flops / 8 / 1e12
    clock.wait(1)
    meter.step(lengths=[5])
    flops = model.train_step(lengths=[40, 3, 8, 16, 5]).model_flops
    assert meter.mfu == pytest.approx(flops / 9 / 1e12, rel=1e-14)


def test_after_the_first_documents_the_step_is_built_no_more(clock):
    built = []
    step = PACKED["windows"].train_step(seq=64)
    over = step.over
    meter = fk.Meter(replace(step, over=lambda **how: built.append(1) or over(**how)), device=FAST, clock=clock)
    run(meter, clock, 1)
    clock.wait(1)
    meter.step(lengths=[40, 3])
    first = len(built)
    for lengths in ([3, 40], [7, 9, 12], numpy.arange(1, 41)):
        clock.wait(1)
        meter.step(lengths=lengths)
    assert len(built) == first > 0


def test_a_document_longer_than_the_positions_is_refused(clock):
    meter = fk.Meter(fk.load("gpt2").train_step(seq=64), device=FAST, clock=clock)
    clock.wait(1)
    meter.step(lengths=[1000, 24])
    with pytest.raises(ValueError, match="gpt2 has learned positions for 1024 tokens, and 1025 are asked for"):
        meter.step(lengths=[1025])


def test_an_impossible_step_of_documents(clock):
    meter = fk.Meter(
        PACKED["dense"].train_step(seq=1), device=fk.Device("slow", peak={"bf16": 1e6}, bandwidth=1.0), clock=clock
    )
    clock.wait(10)
    assert meter.step(lengths=[1]).mfu < 1
    with pytest.warns(RuntimeWarning, match="^MFU is impossible"):
        clock.wait(10)
        assert math.isnan(meter.step(lengths=[40, 40]).mfu)


@pytest.mark.parametrize(
    ("work", "lengths", "error", "says"),
    [
        ({"flops_per_step": 60}, [8], TypeError, r"lengths=\[8\]: flops_per_step=60 does not say what other documents would take; give"),
        ({"flops_per_step": STEP}, [8], TypeError, "does not say what other documents would take"),
        ({"flops_per_step": PACKED["dense"].train_step(seq=8), "hardware_flops": 7.0}, [8], TypeError, "hardware_flops=7.0 does not say"),
        ({"flops_per_step": fk.load("resnet50").train_step()}, [8], TypeError, "does not say what other documents"),
        ({"flops_per_step": PACKED["dense"].train_step(seq=8)}, [8, 0], ValueError, r"lengths\[1\]=0"),
        ({"flops_per_step": PACKED["dense"].train_step(seq=8)}, [], ValueError, "there is no document"),
        ({"flops_per_step": PACKED["dense"].train_step(seq=8)}, [0, 8, 9], ValueError, "look like cu_seqlens"),
    ],
)  # fmt: skip
def test_lengths_that_make_no_sense(work, lengths, error, says, clock):
    meter = fk.Meter(**work, device=FAST, clock=clock)
    clock.wait(1)
    with pytest.raises(error, match=says):
        meter.step(lengths=lengths)


def test_amounts_that_are_not_affine_are_asked_each_time():
    amounts = Amounts(lambda documents: [documents.tokens**2, documents.chunks(4)])
    for lengths in ([9, 3], [8], [2, 2, 2]):
        assert amounts(lengths) == [sum(lengths) ** 2, sum(-(-s // 4) for s in lengths)]


def test_what_lengths_add_up_to_is_noted_sum_by_sum():
    """A sum that is not noted would be taken for a constant."""
    documents = lengths_of([2, 1])
    sums = {name for name in (*vars(type(documents)), *vars(documents)) if not name.startswith("_")} - {"longest"}
    assert len(sums) > 5 and sums <= vars(packing._Changed).keys()
