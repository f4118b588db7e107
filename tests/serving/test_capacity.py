"""What fits beside the weights, against what engines have printed in their logs."""

import pytest

import flopkit as fk
from flopkit.serving import capacity, decode, largest_batch

GIB = 2**30


def rounded(gib):
    """The sizes that print as so many GiB with two decimals."""
    return (gib - 0.005) * GIB, (gib + 0.005) * GIB


@pytest.mark.parametrize(("model", "gib", "tokens", "how"), [
    ("llama-3.1-8b", 3.81, 31_232, {}),  # vllm-project/vllm, issue 10517
    ("llama-3.1-8b", 2.89, 23_648, {}),
    ("gpt-oss-120b", 5.38, 78_384, {"windows": "context"}),  # alvarobartt/hf-mem, issue 60: vLLM with windows kept in full
    ("deepseek-v3.2", 43.67, 975_424, {"kv_cache": "fp8_ds_mla", "block": 64}),  # sgl-project/sglang, pull request 11309
])  # fmt: skip
def test_tokens_that_fit_as_a_log_prints_them(model, gib, tokens, how):
    low, high = (capacity(model, room=room, context=4096, **how) for room in rounded(gib))
    assert low.tokens < tokens < high.tokens and tokens % low.block == 0
    assert high.tokens - low.tokens < 0.004 * tokens


def test_an_indexer_has_a_cache_of_its_own():
    """SGLang's pull request 11309: 1,462,784 tokens in 54.52 GiB, without the indexer's keys, and 975,424 in 43.67 with them. Its pools
    have a page of 64 tokens more."""
    model = fk.load("deepseek-v3.2")
    latents, keys = 61 * (512 + 4 * 4 + 2 * 64), 61 * (128 + 4)
    assert model.kv_bytes(context=1, dtype="fp8_ds_mla") == latents + keys
    for tokens, each, gib in ((1_462_784, latents, 54.52), (975_424, latents + keys, 43.67)):
        assert f"{(tokens + 64) * each / GIB:.2f}" == f"{gib}"
    without = {"latent": "fp8_tile", "rope": "bf16", "index": "fp8_tile"}
    assert model.kv_bytes(context=7, dtype=without) == 7 * (latents + keys)
    assert model.kv_bytes(context=1) == 61 * 2 * (512 + 64 + 128)


def test_a_whole_log_of_vllm():
    """vLLM's issue 12330: Llama-3-8B on an A100 of 39.50 GiB, 0.90 of it; 9.37 GiB of activations, 0.10 outside of torch."""
    gpu = fk.Device("A100", peak={"bf16": 312e12}, bandwidth=1.555e12, memory=39.50 * GIB)
    found = capacity("llama-3-8b", gpu, context=8192, utilization=0.90, reserve=(9.37 + 0.10) * GIB)
    assert f"{found.available / GIB:.2f}" == "35.55" and f"{found.weights / GIB:.2f}" == "14.96"
    assert f"{found.room / GIB:.2f}" == "11.12" and f"{found.concurrency:.2f}" == "11.12"
    assert abs(found.blocks - 5691) <= 5  # 0.01 GiB are five blocks of 16 tokens
    assert found.sequences == 11 and found.tokens == 16 * found.blocks


STARCODER = {"layers": 30, "d_model": 3072, "vocab": 49152, "d_ff": 12288}


def starcoder2_3b():
    attention = fk.models.Attention(heads=24, kv_heads=2, head_dim=128)
    window = fk.models.WindowedLayers(4096)
    return fk.models.transformer(name="starcoder2-3b", attention=attention, window=window, gated=False, **STARCODER)


@pytest.mark.parametrize(("how", "printed"), [({"windows": "context"}, "134.19"), ({"batched": 8192}, "178.68")])
def test_concurrency_with_windows_as_vllm_prints_it(how, printed):
    """vLLM's pull request 19029, before and after: 2,198,512 tokens, of 16,384 each, windows of 4,096."""
    model = starcoder2_3b()
    token = 30 * 2 * 2 * 128 * 2
    assert model.kv_bytes(context=1) == token
    found = capacity(model, room=2_198_512 * token, context=16_384, **how)
    assert f"{found.concurrency:.2f}" == printed
    if how == {"windows": "context"}:
        assert found.tokens == 2_198_512
    else:
        assert found.tokens == int(found.concurrency * 16_384)
        with pytest.raises(ValueError, match="a token takes more bytes in a short sequence"):
            print(found.blocks)


def test_windows_reserved_in_full_take_twice_as_much():
    """alvarobartt/hf-mem, pull request 70: gpt-oss-20b, 32 sequences of 8,192: 6.09 GiB are needed, engines reserve 12.00."""
    assert fk.load("gpt-oss-20b").kv_bytes(context=8192, batch=32) == 6.09375 * GIB
    need, full = (capacity("gpt-oss-20b", room=12 * GIB, context=8192, windows=kind) for kind in ("window", "context"))
    assert 32 * need.sequence_bytes == 6.09375 * GIB and 32 * full.sequence_bytes == 12 * GIB
    assert full.sequences == 32 and need.sequences == 63


def test_caches_by_role_take_the_bytes_of_llama_cpp():
    """-ctk q8_0 -ctv q4_0: blocks of 32 numbers in 34 and in 18 bytes."""
    model = fk.load("llama-3-8b")
    mixed = {"keys": "q8_0", "values": "q4_0"}
    assert model.kv_bytes(context=512, dtype=mixed) == 512 * 32 * 8 * 128 // 32 * (34 + 18)
    assert model.kv_bytes(context=512, batch=3, dtype={"rest": "fp8"}) == 3 * model.kv_bytes(context=512) // 2 + 0
    step = model.decode(context=512, kv_cache=mixed)
    assert model.decode(context=512).bytes - step.bytes == model.kv_bytes(context=512) - model.kv_bytes(
        context=512, dtype=mixed
    )
    bound = decode(model, "h100-sxm", context=512, kv_cache=mixed)
    assert bound.memory == model.weight_bytes() + model.kv_bytes(context=512, dtype=mixed)


def test_blocks_copies_and_shares():
    model = fk.load("llama-3-8b")
    a_token = 131_072
    assert capacity(model, room=1e9, context=100).sequence_bytes == 112 * a_token  # seven blocks
    assert capacity(model, room=1e9, context=100, block=1).sequence_bytes == 100 * a_token
    assert capacity(model, room=1e9, context=100, copies=8).sequence_bytes == 8 * 112 * a_token
    half, whole = (capacity(model, "h100-sxm", context=100, utilization=share) for share in (0.5, 1))
    assert whole.available == 2 * half.available == fk.device("h100-sxm").usable
    assert whole.room - capacity(model, "h100-sxm", context=100, utilization=1, reserve=5e9).room == 5e9
    assert capacity("megatron-1t", "h100-sxm", context=100).tokens == 0


def test_states_are_held_however_long_the_text():
    """Qwen3-Next: layers with a state take the same for any length, so its tokens depend on how long the sequences are."""
    short, long = (capacity("qwen3-next-80b-a3b", room=80e9, context=n) for n in (128, 65536))
    assert long.tokens > 5 * short.tokens
    assert long.sequence_bytes == fk.load("qwen3-next-80b-a3b").kv_bytes(context=65536)


def test_what_programs_can_use_is_taken_where_a_device_says_it():
    card = fk.Device("mine", peak={"bf16": 1e15}, bandwidth=1e12, memory=40e9, usable=30e9)
    assert capacity("llama-3-8b", card, context=16).available == 30e9
    assert (
        capacity("llama-3-8b", card, context=16, utilization=0.9).available == 27e9
    )  # vLLM's share is of torch's total_memory
    step = decode("llama-3-8b", card, context=16, count=2)
    assert step.available == 60e9 and "of 60 GB usable, which fits" in repr(step)
    assert "27 GB may be used" in repr(capacity("llama-3-8b", card, context=16, utilization=0.9))
    other = fk.Device("mine", peak={"bf16": 1e15}, bandwidth=1e12, memory=40e9)
    assert card.available == 30e9 and other.available == 40e9
    assert "of 40 GB, which fits" in repr(decode("llama-3-8b", other, context=16))
    llama = fk.load("llama-3.2-1b")
    fitting = [fk.training.largest_batch(llama, each, seq=1024) for each in (card, other)]
    memories = [llama.train_memory(seq=1024, batch=batch).total for batch in fitting]
    assert memories[0] <= 30e9 < memories[1] <= 40e9


def test_a_share_of_what_vllm_calls_total_gpu_memory():
    """vLLM, issue 11550: "total_gpu_memory (23.55GiB) x gpu_memory_utilization (0.90) = 21.19GiB", torch's total_memory of a card of 24 GiB."""
    card = fk.Device("mine", peak={"bf16": 1e14}, bandwidth=1e12, memory=24 * GIB, usable=23.55 * GIB)
    found = capacity("llama-3.2-1b", card, context=16, utilization=0.9)
    assert found.available / GIB == pytest.approx(21.19, abs=0.01)


def test_the_largest_batch_leaves_room():
    how = {"context": 8192, "count": 8}
    most = largest_batch("llama-3-70b", "h100-sxm", **how)
    each, model = 8192 * 80 * 8 * 128 * 2 * 2, fk.load("llama-3-70b")
    room = 8 * fk.device("h100-sxm").usable - 2 * model.params
    assert most == room // each
    less = largest_batch("llama-3-70b", "h100-sxm", utilization=0.9, reserve=10e9, **how)
    assert less == (0.9 * 8 * fk.device("h100-sxm").usable - 2 * model.params - 10e9) // each
    windows = [
        largest_batch("gpt-oss-20b", "h100-sxm", context=131072, weights="fp8", windows=w)
        for w in ("window", "context")
    ]
    assert windows[0] == pytest.approx(2 * windows[1], abs=2)


@pytest.mark.parametrize(("how", "message"), [
    ({}, "give a device=.*or room="),
    ({"device": "h100-sxm", "room": 1e9}, "one of the two"),
    ({"room": 1e9, "utilization": 0.9}, "leave utilization= and reserve= out"),
    ({"room": -1.0}, "room=-1.0"),
    ({"device": "h100-sxm", "utilization": 1.2}, "utilization=1.2"),
    ({"device": "h100-sxm", "reserve": -1}, "reserve=-1"),
    ({"room": 1e9, "windows": "full"}, "windows='full'"),
    ({"room": 1e9, "block": 0}, "block=0"),
    ({"room": 1e9, "kv_cache": {"key": "fp8"}}, "no role of a cache; did you mean keys"),
    ({"room": 1e9, "kv_cache": "fp8_ds_mlx"}, "kv_cache='fp8_ds_mlx'"),
    ({"device": fk.Device("mine", peak={"bf16": 1e12}, bandwidth=1e11)}, "its memory is not known"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        capacity("llama-3-8b", how.pop("device", None), context=64, **how)
