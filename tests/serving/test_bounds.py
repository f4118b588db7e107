"""Bounds of serving against arithmetic by hand."""

import json

import numpy as np
import pytest

import flopkit as fk
from flopkit import serving
from flopkit.serving import batch_at_ridge, decode, intensity_limit, largest_batch, prefill, speculate

LLAMA = fk.load("llama-3-70b")
ROW = 2 * 80 * 8 * 128 * 2  # bytes of cache a token
READ = LLAMA.params - 128256 * 8192  # weights that a step reads, without the embedding's table


def test_a_model_by_its_configuration(tmp_path):
    config, path = fk.models.hf_config("llama-3-70b"), tmp_path / "config.json"
    path.write_text(json.dumps(config))
    seconds = {
        decode(model, "h100-sxm", context=64).seconds for model in (LLAMA, "Llama 3 70B", config, path, str(path))
    }
    assert len(seconds) == 1


@pytest.mark.parametrize(("weights", "size"), [("bf16", 2), ("fp8", 1), ("int8", 1), ("int4", 0.5), ("fp4", 0.5)])
def test_a_user_waits_for_weights_and_cache(weights, size):
    step = decode(LLAMA, "h100-sxm", context=4096, weights=weights, compute="bf16", count=4)
    assert step.seconds == pytest.approx((size * (READ + 8192) + 4096 * ROW) / (4 * 3.35e12), rel=1e-12)
    assert step.bound == "memory" and step.tokens_per_s == step.tokens_per_s_per_user == 1 / step.seconds
    assert step.memory == size * LLAMA.params + 4096 * ROW
    assert step.fits is (step.memory <= 340e9) and step.available == 4 * 81_090 * 2**20  # torch's total_memory
    assert "of 340.1 GB usable" in repr(step)
    flops = 2 * READ + 4 * 80 * 64 * 128 * 4096
    flops -= 2 * (2 * 80 + 1) * 8192  # gains of norms are no products
    assert step.busy == pytest.approx(flops / (4 * 989.4e12) / step.seconds, rel=1e-12)


def test_a_batch_shares_the_weights():
    one, many = (decode(LLAMA, "h100-sxm", context=1024, batch=n, count=8) for n in (1, 64))
    assert many.seconds < 1.2 * one.seconds and many.tokens_per_s == pytest.approx(64 / many.seconds)
    assert many.tokens_per_s_per_user == pytest.approx(1 / many.seconds)
    assert many.memory == 2 * LLAMA.params + 64 * 1024 * ROW


def test_a_bound_says_that_it_supposes_different_experts():
    mixture = {n: decode("mixtral-8x7b", "h200-sxm", context=1024, batch=n) for n in (1, 2)}
    assert "different experts" in mixture[2].supposes and mixture[2].supposes in repr(mixture[2])
    assert mixture[1].supposes == "" and decode(LLAMA, "h100-sxm", context=1024, batch=2).supposes == ""
    by_arithmetic = prefill("mixtral-8x7b", "h200-sxm", prompt=8192)
    assert by_arithmetic.bound == "compute" and by_arithmetic.supposes == ""  # whichever they choose


def test_prefill_is_bound_by_arithmetic_and_a_chunk_sees_its_prefix():
    whole = prefill(LLAMA, "h100-sxm", prompt=8192, count=8)
    assert whole.bound == "compute" and whole.seconds == pytest.approx(whole.cost.flops / (8 * 989.4e12))
    assert whole.tokens_per_s == pytest.approx(8192 / whole.seconds) and whole.memory == 2 * LLAMA.params + 8192 * ROW
    chunks = [prefill(LLAMA, "h100-sxm", prompt=2048, prefix=2048 * i, count=8) for i in range(4)]
    assert chunks[-1].memory == whole.memory
    heads = 3 * 2 * 8192 * 128256
    assert sum(chunk.seconds for chunk in chunks) == pytest.approx(whole.seconds + heads / (8 * 989.4e12))


@pytest.mark.parametrize("name", ["llama-3-70b", "llama-2-13b", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-120b"])
@pytest.mark.parametrize("context", [1, 512, 8192])
def test_the_batch_at_the_ridge_is_the_first_that_is_compute_bound(name, context):
    """And where there is none, the limit lies below the ridge, and no batch passes it."""
    sizes = {"context": context, "weights": "bf16"}
    found = batch_at_ridge(name, "h100-sxm", **sizes)
    limit, ridge = intensity_limit(name, **sizes), fk.device("h100-sxm").ridge("bf16")
    batches = [2**n for n in range(20)]
    steps = [decode(name, "h100-sxm", **sizes, batch=batch) for batch in batches]
    intensities = [step.cost.intensity for step in steps]
    assert intensities == sorted(intensities) and intensities[-1] < limit
    if found is None:
        assert limit <= ridge and {step.bound for step in steps} == {"memory"}
    else:
        assert limit > ridge and decode(name, "h100-sxm", **sizes, batch=found).bound == "compute"
        assert found == 1 or decode(name, "h100-sxm", **sizes, batch=found - 1).bound == "memory"


def test_the_limit_of_intensity_is_a_sequence_by_its_cache():
    """Llama-2-13B at 8,192 tokens: 2N and four FLOPs for each pair and query feature, by two bytes for each number of the cache."""
    flops = 2 * (LLAMA2.params - 32000 * 5120 - 81 * 5120) + 4 * 40 * 5120 * 8192
    assert intensity_limit(LLAMA2, context=8192) == flops / (2 * 2 * 40 * 5120 * 8192 + 2 * 5120)
    # weights in fewer bits change the row of the embedding alone, a cache in fewer bits doubles the limit
    assert intensity_limit(LLAMA2, context=8192, weights="int4") == pytest.approx(
        intensity_limit(LLAMA2, context=8192), rel=1e-5
    )
    assert intensity_limit(LLAMA2, context=8192, kv_cache="fp8") == pytest.approx(
        2 * intensity_limit(LLAMA2, context=8192), rel=1e-5
    )


LLAMA2 = fk.load("llama-2-13b")


def test_the_largest_batch_fits_and_one_more_does_not():
    most = largest_batch(LLAMA2, "a100-sxm-80gb", context=2048)
    assert decode(LLAMA2, "a100-sxm-80gb", context=2048, batch=most).fits
    assert not decode(LLAMA2, "a100-sxm-80gb", context=2048, batch=most + 1).fits
    assert largest_batch("megatron-1t", "h100-sxm", context=2048, count=8) == 0


def test_drafted_tokens_by_playing_the_game():
    """Drafted tokens are accepted until the first refusal; the large model always adds one."""
    rng = np.random.default_rng(0)
    accepted = np.cumprod(rng.random((200_000, 4)) < 0.7, axis=1).sum(axis=1)
    assert serving.expected_tokens(4, 0.7) == pytest.approx((accepted + 1).mean(), rel=0.005)
    assert serving.expected_tokens(4, 0.7) == pytest.approx(sum(0.7**i for i in range(5)))
    assert serving.expected_tokens(3, 1) == 4 and serving.expected_tokens(0, 0.5) == 1


def test_speculation_pays_where_memory_is_the_roof_and_not_where_arithmetic_is():
    sizes = {"context": 512, "drafted": 4, "acceptance": 0.8}
    alone = speculate(LLAMA, "h100-sxm", **sizes)
    assert alone.tokens == pytest.approx(3.3616) and 3.3 < alone.speedup < 3.3616  # verifying five costs about one step
    with_draft = speculate(LLAMA, "h100-sxm", draft="llama-3-8b", **sizes)
    step = decode(LLAMA, "h100-sxm", context=512)
    check = decode(LLAMA, "h100-sxm", context=516, new=5)
    assert check.cost.flops > 4.99 * step.cost.flops and check.seconds < 1.001 * step.seconds
    small = decode("llama-3-8b", "h100-sxm", context=512).seconds
    assert with_draft.seconds == pytest.approx(4 * small + check.seconds)
    assert with_draft.speedup == pytest.approx(3.3616 * step.seconds / (4 * small + check.seconds))
    assert speculate(LLAMA, "h100-sxm", batch=512, **sizes).speedup < 0.75  # five times the arithmetic for 3.36 tokens
    many = {"batch": 128} | sizes
    apart = [decode(LLAMA, "h100-sxm", context=512 + n - 1, new=n, batch=128).in_order.seconds for n in (1, 5)]
    assert speculate(LLAMA, "h100-sxm", schedule="in order", **many).speedup == pytest.approx(
        3.3616 * apart[0] / apart[1]
    )
    assert (
        speculate(LLAMA, "h100-sxm", schedule="in order", **many).seconds > speculate(LLAMA, "h100-sxm", **many).seconds
    )
    with pytest.raises(ValueError, match="schedule='apart'"):
        speculate(LLAMA, "h100-sxm", schedule="apart", **sizes)


def test_a_sweep_is_an_array():
    batches = np.array([1, 8, 64])
    steps = decode(LLAMA, "h100-sxm", context=1024, batch=batches, count=4)
    one_by_one = [decode(LLAMA, "h100-sxm", context=1024, batch=int(n), count=4) for n in batches]
    assert steps.tokens_per_s == pytest.approx([step.tokens_per_s for step in one_by_one])
    assert list(steps.fits) == [step.fits for step in one_by_one] and "numpy" in repr(steps)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: decode(LLAMA, "a100-sxm-80gb", context=8, weights="fp8"), "no peak for fp8.*compute='bf16'"),
        (lambda: decode(LLAMA, "h100-sxm", context=8, weights="int4"), "no peak for int4.*compute='bf16'"),
        (lambda: batch_at_ridge(LLAMA, "a100-sxm-80gb", context=8, weights="fp8"), "no peak for fp8"),
        (lambda: decode(LLAMA, "h100-sxm", context=0), "context=0"),
        (lambda: decode(LLAMA, "h100-sxm", context=8, count=0), "count=0"),
        (lambda: decode("llama-3-71b", "h100-sxm", context=8), "llama-3-70b"),
        (lambda: decode("bert-base", "h100-sxm", context=8), "makes no text"),
        (lambda: speculate(LLAMA, "h100-sxm", context=8, drafted=2, acceptance=1.2), "acceptance=1.2"),
        (lambda: serving.expected_tokens(2, np.array([0.5, 1.2])), "acceptance contains 1.2: each must be at most 1"),
        (lambda: serving.expected_tokens(2, np.array([0.5, -0.1])), "acceptance contains -0.1"),
        (lambda: speculate(LLAMA, "h100-sxm", context=8, drafted=-1, acceptance=0.5), "drafted=-1"),
        (lambda: largest_batch(LLAMA, fk.Device("mine", peak={"bf16": 1e12}, bandwidth=1e11), context=8), "memory is not known"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_without_known_memory_there_is_still_a_bound():
    mine = fk.Device("mine", peak={"bf16": 1e12}, bandwidth=1e11)
    step = decode("llama-3-8b", mine, context=8)
    assert step.fits is None and step.available is None and "size is not known" in repr(step)
