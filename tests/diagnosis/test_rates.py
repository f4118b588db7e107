"""The five rates that the doctor takes, the digits of what is printed, and input that makes no sense."""

import math
from types import SimpleNamespace

import numpy
import pytest

import flopkit as fk
from flopkit.diagnosis.figures import figure

RUN = {"model": "llama-3-8b", "seq": 8192, "device": "h100-sxm", "count": 8}
RATE = 53_336  # tokens/s of the job


@pytest.mark.parametrize(
    "rate",
    [
        {"tokens_per_s": RATE},
        {"tokens_per_s": "53,336 tok/s"},
        {"tokens_per_s": "53.336k"},
        {"tokens_per_s_per_device": 6667},
        {"tokens_per_s_per_device": "6,667"},
        {"step_seconds": 64 * 8192 / RATE, "global_batch": 64},
        {"step_seconds": f"{64 * 8192 / RATE * 1000!r} ms", "global_batch": 64},
        {"tokens_per_s": f"{RATE / 8192!r} samples/s"},
        {"tokens_per_s_per_device": f"{RATE / 8192 / 8!r} sequences/s"},
        {"tokens_per_s_per_device": "6,667 tok/s per GPU"},
        {"step_seconds": f"{RATE / 64 / 8192!r} it/s", "global_batch": 64},
        {"step_seconds": f"{64 * 8192 / RATE!r}s/it", "global_batch": 64},
        {"tokens": RATE * 86400, "device_hours": 24 * 8},
        {"tokens": f"{RATE * 86400 / 1e9!r}B", "device_hours": "192 h"},
    ],
)
def test_one_run_in_five_ways(rate):
    found = fk.doctor(**RUN, **rate)
    step = fk.load("llama-3-8b").train_step(seq=8192)
    assert found.mfu == pytest.approx(step.flops_per_token * RATE / 8 / 989.4e12, rel=1e-12)
    assert found.hfu == pytest.approx(found.mfu * step.hardware_flops / step.model_flops, rel=1e-12)
    assert found.convention == "EXACT"


def test_tflops_are_taken_as_they_are():
    """NVIDIA/Megatron-LM, issue 1276: 400 TFLOP/s on an H100 are 40.4 %, and not 400/2000."""
    for given in (400, 400.0, "400", "400 TFLOP/s/GPU", "0.4 PFLOPS", "400,000 GFLOP/s"):
        found = fk.doctor(tflops_per_device=given, device="h100-sxm")
        assert (
            found.mfu == pytest.approx(400 / 989.4)
            and found.hfu is None
            and "HFU" not in found.summary
            and found.convention == "FLOPs as given"
        )
    with_model = fk.doctor(**RUN, tflops_per_device=400, recompute="full")
    step = fk.load("llama-3-8b").train_step(seq=8192, recompute="full")
    assert with_model.mfu == pytest.approx(400 / 989.4)
    assert with_model.hfu == pytest.approx(400 / 989.4 * step.hardware_flops / step.model_flops)
    assert fk.doctor(tflops_per_device=1100, device="h100-sxm").verdict == "impossible"


def test_packed_sequences_of_a_step():
    documents = [512] * 12 + [2048]  # 8,192 tokens
    whole = fk.doctor(**RUN, lengths=documents, step_seconds=2.5, global_batch=16)
    alone = fk.doctor(**{**RUN, "seq": None}, lengths=documents, step_seconds=2.5, global_batch=16 * 13)
    rate = fk.doctor(**RUN, lengths=documents, tokens_per_s=16 * 8192 / 2.5)
    assert whole.mfu == pytest.approx(rate.mfu) and alone.mfu == pytest.approx(rate.mfu)


def test_what_is_trained():
    """NVIDIA-NeMo/Automodel, pull request 786: Llama-70B with LoRA, 608.4 tokens/s on each H100, is 18.1 %."""
    run = {"model": "llama-3-70b", "seq": 4096, "device": "h100-sxm", "count": 8, "tokens_per_s_per_device": 608.4}
    found = fk.doctor(**run, trained=fk.LoRA(rank=8))
    assert found.mfu == pytest.approx(0.181, abs=5e-4) and fk.doctor(**run).mfu == pytest.approx(0.266, abs=5e-4)
    assert fk.doctor(**run, trained="all").mfu == fk.doctor(**run).mfu
    every = fk.doctor(**run, trained=fk.LoRA(rank=8), reported=f"{100 * fk.doctor(**run).mfu:.2f} %")
    assert every.explanations[0].name == "every weight taken as trained"


# -- formats --------------------------------------------------------------------------------------------------------------

TITAN = {"model": "llama-3.1-8b", "seq": 8192, "device": "h100-sxm", "count": 8, "tokens_per_s_per_device": 8532}


def test_two_formats_have_one_denominator():
    """torchtitan, llama3_h100_202412: float8 in the layers' linear products, 8,532 tokens/s. By hand from the config."""
    layers, scores, head = 6 * 6_979_321_856, 6 * 32 * 4096 * 8193, 6 * 4096 * 128256
    ideal = layers / 1978.9e12 + (scores + head) / 989.4e12
    found = fk.doctor(**TITAN, dtype={"linear": "fp8", "rest": "bf16"})
    assert found.mfu == pytest.approx(ideal * 8532, rel=1e-9) == pytest.approx(0.263, abs=5e-4)
    step = fk.load("llama-3.1-8b").train_step(seq=8192)
    same = fk.mfu(step, seconds=8192 / 8532, device="h100-sxm", dtype={"linear": "fp8", "rest": "bf16"})
    assert same == pytest.approx(found.mfu, rel=1e-12)
    assert fk.doctor(**TITAN, dtype={"rest": "bf16"}).mfu == fk.doctor(**TITAN).mfu
    assert found.hfu > found.mfu  # flash attention's own recompute, in bf16


@pytest.mark.parametrize(("said", "peak"), [("44.4 %", "bf16"), ("22.2 %", "fp8")])
def test_one_peak_for_two_formats(said, peak):
    found = fk.doctor(**TITAN, dtype={"linear": "fp8", "rest": "bf16"}, reported=said)
    assert found.explanations[0].name == f"{peak} peak for all products"


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ({"experts": "fp8", "rest": "bf16"}, "'experts' is no kind of product"),
        ({"linear": "fp8"}, "the format of 'scores' is missing; 'rest' gives it to all others"),
        ({"linear": "fp4", "rest": "bf16"}, "has no peak for fp4"),
    ],
)
def test_formats_that_make_no_sense(dtype, message):
    with pytest.raises(ValueError, match=message):
        fk.doctor(**TITAN, dtype=dtype)


# -- digits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "value", "half", "loose"),
    [
        ("1.42e14", 1.42e14, 5e11, 5e11),
        ("45.510", 45.51, 5e-4, 5e-4),
        ("3.7k", 3700, 50, 50),
        ("24k", 24000, 0.5, 500),
        (24000, 24000, 0.5, 500),
        ("24,000", 24000, 0.5, 500),
        (24000.0, 24000, 0.5, 500),
        (53336, 53336, 0.5, 0.5),
        (400, 400, 0.5, 5),
        (5, 5, 0.5, 0.5),
        (5.9121, 5.9121, 5e-5, 5e-5),
        (0.5, 0.5, 5e-4, 0.05),
        ("16.384M", 16.384e6, 500, 500),
        ("51'000", 51000, 0.5, 500),
        ("51\u2019000", 51000, 0.5, 500),
        ("6 667", 6667, 0.5, 0.5),
        ("1\u202f234\u202f567.5", 1234567.5, 0.05, 0.05),
    ],
)
def test_digits_set_the_tolerance(given, value, half, loose):
    found = figure("rate", given)
    assert (found.value, found.half, found.loose) == pytest.approx((value, half, loose))


def test_a_rate_of_two_digits_explains_what_it_may_have_been():
    """14k tokens/s are printed as 29.4 %, and 14,000 make 28.7."""
    model, run = fk.load("llama-3.2-3b"), {"seq": 4096, "device": "h100-sxm"}
    true = fk.doctor(model=model, **run, tokens_per_s=14_300)
    reported = f"{100 * true.mfu:.1f} %"
    loose = fk.doctor(model=model, **run, tokens_per_s="14k", reported=reported)
    assert loose.explanations[0].name == "no mistake"
    exact = fk.doctor(model=model, **run, tokens_per_s="14.00k", reported=reported)
    assert "no mistake" not in [each.name for each in exact.explanations]


def test_a_rounded_number_in_between():
    """huggingface/blog, issue 1649: 45.51 % came of 1.42·10¹⁴ FLOP/s; six FLOPs for each of 70·10⁹ parameters make 45.38 %."""
    run = {"tokens": "16.384M", "device_hours": 13.5 * 16, "count": 16, "model": "llama-2-70b", "seq": 2048}
    found = fk.doctor(**run, device="a100-sxm-80gb", reported="45.51 %")
    assert found.mfu == pytest.approx(0.0284, abs=1e-4)
    named = {each.name: each.why for each in found.explanations}
    assert "6N with the name's 70B for N, and per-job tokens/s over one GPU's peak" in named
    plain = fk.doctor(tflops_per_device=716.97, device="mi300x", dtype="fp8", reported="27.47 %")  # over 2,610
    assert plain.explanations[0].name == "no mistake" and "2.61 PFLOP/s, rounded" in plain.explanations[0].why
    assert not fk.doctor(tflops_per_device=716.97, device="mi300x", dtype="fp8", reported="27.60 %").explanations


# -- bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "no rate is given: give exactly one of tokens_per_s="),
        ({"tokens_per_s": 1, "tflops_per_device": 400}, "tokens_per_s= and tflops_per_device= are 2 rates: give exactly one"),
        ({"tokens_per_s": 1, "tokens": 1, "device_hours": 1}, "tokens_per_s= and tokens= are 2 rates"),
        ({"step_seconds": 5}, "step_seconds= goes with global_batch=, which is missing"),
        ({"global_batch": 5}, "global_batch= goes with step_seconds=, which is missing"),
        ({"tokens": 5}, "tokens= goes with device_hours="),
        ({"device_hours": 5}, "device_hours= goes with tokens="),
        ({"tokens_per_s": 0}, "tokens_per_s=0: must be a finite number of tokens/s above 0"),
        ({"tokens_per_s": "6,667 tok/s/GPU"}, "tokens_per_s='6,667 tok/s/GPU': is of all devices; of one device, give tokens_per_s_per_device="),
        ({"tokens_per_s": "3,7k"}, "must be a number of tokens/s such as '51,000'"),
        ({"tokens_per_s": "51,00"}, "must be a number of tokens/s such as '51,000'"),
        ({"tokens_per_s": "5 furlongs"}, "or with a unit: tok/s, tokens/s, tps, t/s$"),
        ({"tokens_per_s": "8 samples/s", "seq": None}, "seq= is missing, the tokens of a sequence"),
        ({"step_seconds": "0 it/s", "global_batch": 8}, "step_seconds=0.0: must be a finite number of steps/s above 0"),
        ({"tokens_per_s": "0"}, "tokens_per_s=0.0: must be a finite number of tokens/s above 0"),
        ({"tokens_per_s": "-3"}, "tokens_per_s=-3: must be a finite number of tokens/s above 0"),
        ({"tokens_per_s_per_device": math.inf}, "tokens_per_s_per_device=inf: must be a finite number"),
        ({"tokens_per_s": "1e999"}, "tokens_per_s='1e999': must be a finite number"),
        ({"step_seconds": "5 weeks", "global_batch": 8}, "step_seconds='5 weeks': must be a number of seconds"),
        ({"step_seconds": 5, "global_batch": 0}, "global_batch=0: a size must be at least 1"),
        ({"tflops_per_device": 400e12}, "is in 10¹² FLOP/s; 400000000000000.0 FLOP/s are 400"),
        ({"tokens_per_s": 1, "parallel": {"tp": 3}}, "3, does not divide count=8; count= is all devices of the job, a multiple of 3"),
        ({"tokens_per_s": 1, "parallel": {"tp": 4, "cp": 4}}, "16, does not divide count=8"),
        ({"tokens_per_s": 1, "parallel": {"ep": 16}}, "the expert degree, 16, does not divide count=8"),
        ({"tokens_per_s": 1, "parallel": {"xp": 2}}, "'xp' is no degree known here"),
        ({"tokens_per_s": 1, "parallel": {"tp": 0}}, r"parallel\['tp'\]=0: a size must be at least 1"),
        ({"tokens_per_s": 1, "parallel": 4}, "give degrees by name, such as parallel="),
        ({"tokens_per_s": 1, "device": "AMD H100 SXM"}, "h100-sxm is NVIDIA's and not AMD's; write 'h100-sxm', or a device of AMD: "),
        ({"tokens_per_s": 1, "device": "NVIDIA MI300X"}, "mi300x is AMD's and not NVIDIA's"),
        ({"tokens_per_s": 1, "lengths": [512, -8]}, r"lengths\[1\]=-8: .* leave out padding and marks such as -1"),
        ({"tokens_per_s": 1, "model": None}, "model= is missing"),
        ({"tokens_per_s": 1, "trained": "most"}, "trained='most': give 'all', 'head'"),
        ({"tokens_per_s": 1, "reported": "405 parsecs"}, "must be a share such as 0.41"),
        ({"tokens_per_s": 1, "reported": 4.05e14}, "reported=405000000000000.0: is no per cent; of FLOP/s, write TFLOP/s of a device"),
        ({"tokens_per_s": 1, "reported": "41%-43%"}, "must be a share such as 0.41"),
        ({"tokens_per_s": "6,667 tokens per second per GPU"}, "is of all devices; of one device, give tokens_per_s_per_device="),
    ],
)  # fmt: skip
def test_bad_input(change, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        fk.doctor(**{**RUN, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "said",
    [
        "41 % MFU",
        "41 per cent",
        "0.41 mfu",
        "405.654 TFLOPs/s/GPU",
        "405.654 TFLOPS per GPU",
        "405.654 TFLOPs/GPU/s",
        "MFU: 41 %",
        "0.405654 PFLOP/s",
        numpy.float32(0.41),
        numpy.float16(0.41),
    ],
)
def test_how_people_write_an_mfu(said):
    found = fk.doctor(tflops_per_device=405.654, device="h100-sxm", reported=said)
    assert found.reported == pytest.approx(0.41, abs=2e-4) and found.explanations[0].name == "no mistake"
    thousands = fk.doctor(tflops_per_device=1405.6, device="b200", reported="1,406 TFLOP/s")
    assert thousands.reported == pytest.approx(1406 / 2250) and thousands.explanations[0].name == "no mistake"


@pytest.mark.parametrize(
    ("rate", "same"),
    [
        ({"step_seconds": "2m", "global_batch": 64}, {"step_seconds": 120, "global_batch": 64}),
        ({"step_seconds": "2 minutes", "global_batch": 64}, {"step_seconds": 120, "global_batch": 64}),
        ({"step_seconds": "0.5h", "global_batch": 4096}, {"step_seconds": 1800, "global_batch": 4096}),
        ({"tokens": "1T", "device_hours": "2.79M"}, {"tokens": 10**12, "device_hours": 2_790_000}),
        ({"tflops_per_device": "4e14 FLOP/s"}, {"tflops_per_device": 400}),
        ({"tokens_per_s": "53'336"}, {"tokens_per_s": 53_336}),
    ],
)
def test_letters_and_units_of_a_number(rate, same):
    """The m of a time is a minute, and not a million."""
    assert fk.doctor(**RUN, **rate).mfu == pytest.approx(fk.doctor(**RUN, **same).mfu, rel=1e-9)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ({"step_seconds": "2M", "global_batch": 64}, "step_seconds='2M': must be a number of seconds .* unit: s, ms, min, h"),
        ({"step_seconds": "3b", "global_batch": 64}, "step_seconds='3b': must be a number of seconds"),
        ({"tokens": "1T", "device_hours": "30m"}, "device_hours='30m': must be a number of hours"),
        ({"tokens_per_s": "2m samples/s"}, "tokens_per_s='2m samples/s': must be a number of samples/s"),
        ({"tflops_per_device": "400T"}, "tflops_per_device='400T': must be a number of TFLOP/s"),
        ({"tokens_per_s": "1,234 567"}, "tokens_per_s='1,234 567': must be a number of tokens/s"),
    ],
)  # fmt: skip
def test_letters_that_no_such_number_has(rate, message):
    with pytest.raises(ValueError, match=message):
        fk.doctor(**RUN, **rate)


@pytest.mark.parametrize(
    "given",
    [
        *({"tokens_per_s_per_device": f"6,400 {unit}"} for unit in ("tokens per second per GPU", "tok/GPU/s", "tokens/sec/device", "wps", "tps/gpu")),
        *({"tokens_per_s": f"51.2k {unit}"} for unit in ("tokens per second", "tokens/sec", "TPS", "tok / s")),
        *({"step_seconds": f"12.8 {unit}", "global_batch": 80} for unit in ("sec/step", "seconds per step", "s per iteration", "s/iter")),
        *({"step_seconds": f"0.078125 {unit}", "global_batch": 80} for unit in ("it/sec", "steps per second", "iterations/s")),
    ],
    ids=lambda given: next(iter(given.values())),
)  # fmt: skip
def test_how_people_write_a_rate(given):
    """51,200 tokens/s of all 8 devices."""
    run = {"model": "llama-3-8b", "seq": 8192, "device": "h100-sxm", "count": 8}
    assert fk.doctor(**run, **given).mfu == pytest.approx(fk.doctor(**run, tokens_per_s=51_200).mfu, rel=1e-9)


def test_a_rate_of_samples_has_the_digits_of_its_text():
    """95.775 sequences of 1,024 tokens a second are known to five digits."""
    found = fk.doctor(model="gpt2", seq=1024, tokens_per_s="95.775 samples/s", device="v100-sxm", dtype="fp16")
    assert (
        found.mfu == fk.doctor(model="gpt2", seq=1024, tokens_per_s=95.775 * 1024, device="v100-sxm", dtype="fp16").mfu
    )


def test_an_impossible_rate_that_was_printed_as_it_is():
    """NVIDIA-NeMo/RL, issue 1015: 1,545.38 TFLOPS per rank and 156.18 %, of eight ranks together."""
    found = fk.doctor(tflops_per_device="1545.38", device="h100-sxm", count=8, reported="156.18 %")
    assert found.verdict == "impossible" and found.explanations[0].name == "TFLOP/s of all 8 devices for one's"
    assert found.explanations[0].mfu == pytest.approx(1545.38 / 8 / 989.4)
    assert (
        "Reported 156.2 %, as here. It would be possible with TFLOP/s of all 8 devices for one's or " in found.summary
    )
    assert not any("devices or more" in each.name for each in found.explanations)


def test_flops_say_nothing_of_recompute():
    with pytest.raises(TypeError, match="recompute= and trained= need model= and seq="):
        fk.doctor(tflops_per_device=400, device="h100-sxm", recompute="full")


def test_names_of_degrees():
    """As Megatron-LM, torchtitan and an object with attributes spell them."""
    run = {
        **RUN,
        "count": 64,
        "tokens_per_s": 8 * RATE,
        "reported": f"{50 * fk.doctor(**{**RUN, 'tokens_per_s': RATE}).mfu:.2f} %",
    }
    for parallel in (
        {"cp": 2, "tp": 4},
        {"context_parallel_size": 2, "tensor": 4},
        SimpleNamespace(context=2, tensor=4, pipeline=1, data=8),
    ):
        named = [each.name for each in fk.doctor(**run, parallel=parallel).explanations]
        assert named[0] == "tokens by the context-parallel degree of 2"
