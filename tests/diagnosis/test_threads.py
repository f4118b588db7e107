"""Threads in which people found the mistake: the doctor names it from what they printed; and how often it names one where none was made."""

import json
from pathlib import Path

import pytest

import flopkit as fk
from flopkit.diagnosis.chance import BAR, BAR_OF_TWO_DIGITS, Window, fits
from flopkit.recordings.bridge import SEQUENCES

TINY = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4}  # fmt: skip
NANOCHAT = fk.models.transformer(
    name="nanochat-d20", layers=20, d_model=1280, vocab=65536, heads=10, kv_heads=10, head_dim=128, d_ff=5120, gated=False, tied=False
)  # fmt: skip
OSS = {"model": "gpt-oss-120b", "count": 64}
LORA = {"model": "llama-3-70b", "seq": 4096, "device": "h100-sxm", "count": 8}
MIXTRAL = {"model": "mixtral-8x7b", "seq": 2048, "global_batch": 128, "device": "h100-sxm", "count": 16}
LLAMA_A100 = {"model": "llama-2-7b", "seq": 4096, "device": "a100-sxm-80gb", "count": 8}

# Rate and utilisation as the thread or the table prints them.
THREADS = [
    ("NVIDIA/Megatron-LM#1276", "sparse peak", {"tflops_per_device": 400, "device": "h100-sxm", "reported": "20 %"}),
    ("karpathy/nanochat PR147", "causal ×2: hidden pairs counted",
     {"model": NANOCHAT, "seq": 2048, "tokens_per_s": 529_882, "device": "a100-sxm-80gb", "count": 8, "reported": "74.13 %"}),
    ("alibaba/Megatron-LLaMA#49", "6N",
     {"model": "llama-2-13b", "seq": 2048, "tokens_per_s": 2170, "device": "a100-sxm-80gb", "reported": "169 TFLOP/s"}),
    ("huggingface/blog#1649", "per-job tokens/s over one GPU's peak",
     {"model": "llama-2-70b", "seq": 2048, "tokens": "16.384M", "device_hours": 216, "device": "a100-sxm-80gb", "count": 16, "reported": "45.51 %"}),
    ("allenai/OLMo-core PR817", "wrong SKU: peak of a100-sxm-80gb", {"tflops_per_device": 275.6, "device": "b300", "reported": "88.32 %"}),
    ("NVIDIA/Megatron-LM#756", "causal ×2: hidden pairs counted", {**MIXTRAL, "step_seconds": "5912.1 ms", "reported": "220.9 TFLOP/s"}),
    ("NVIDIA/Megatron-LM#756, third row", "causal ×2: hidden pairs counted", {**MIXTRAL, "step_seconds": "5718.9 ms", "reported": "228.3 TFLOP/s"}),
    ("jzhang38/TinyLlama#147", "causal ×2: hidden pairs counted",
     {"model": TINY, "seq": 2048, "tokens_per_s": "24k", "device": "a100-sxm-40gb", "reported": "56 %"}),
    ("ROCm/TransformerEngine#78", "no mistake", {"tflops_per_device": 716.97, "device": "mi300x", "dtype": "fp8", "reported": "27.47 %"}),
    ("NVIDIA/Megatron-LM#831", "hidden pairs of attention counted, by itself", {"tflops_per_device": 189, "device": "a100-sxm-80gb", "reported": "121 %"}),
    ("NVIDIA-NeMo/Automodel PR786", "frozen weights: two thirds of a full step", {**LORA, "tokens_per_s_per_device": 608.4, "reported": "176 TFLOP/s"}),
    ("Megatron-Bridge, performance summary, gpt-oss", "half of the scores, router left out, with two matrices for three in the MLP",
     {**OSS, "seq": 8192, "tokens_per_s_per_device": 18347, "device": "gb300", "reported": "565 TFLOP/s"}),
    ("the same, second row", "half of the scores, router left out, with two matrices for three in the MLP",
     {**OSS, "seq": 4096, "tokens_per_s_per_device": 8213, "device": "b200", "reported": "223 TFLOP/s"}),
    ("the same, third row", "half of the scores, router left out, with two matrices for three in the MLP",
     {**OSS, "seq": 4096, "tokens_per_s_per_device": 5630, "device": "h100-sxm", "reported": "153 TFLOP/s"}),
    ("MaxText, tiering", "causal ×2: hidden pairs counted",
     {"model": "mixtral-8x7b", "seq": 4096, "tokens_per_s_per_device": 3899, "device": "tpu-v6e", "count": 256, "reported": "35.23 %"}),
    ("MaxText, guide to its log", "no mistake",
     {"model": "deepseek-v2-lite", "seq": 2048, "step_seconds": 5.667, "global_batch": 24, "device": "tpu-v5p", "reported": "134.924 TFLOP/s"}),
]  # fmt: skip

# The cause is the thread's, and so is one of the two numbers; the other follows from the cause, and stands here because the thread prints none,
# or rounds it to fewer digits than it takes.
BUILT = [
    ("foundation-model-stack/fms-fsdp#67", "6N + 12LHQT, with parameters of one shard of 8 for all",
     {**LLAMA_A100, "tokens_per_s_per_device": 3724, "reported": "13.7 %"}),
    ("karpathy/nanochat PR147, before", "causal ×2: hidden pairs counted, and wrong SKU: peak of h100-sxm",
     {"model": NANOCHAT, "seq": 2048, "tokens_per_s": 529_882, "device": "a100-sxm-80gb", "count": 8, "reported": "23.4 %"}),
    ("AI-Hypercomputer/maxtext#8", "a core's peak for the chip's", {"tflops_per_device": 36.75, "device": "tpu-v3", "reported": "59.8 %"}),
    ("AI-Hypercomputer/maxtext PR644", "causal ×2: hidden pairs counted, total for active experts",
     {"model": "mixtral-8x7b", "seq": 2048, "step_seconds": "30.00", "global_batch": 12, "device": "tpu-v5p", "reported": "231.5 TFLOP/s"}),
    ("karpathy/llm.c PR621", "peak at the base clock", {"tflops_per_device": "28.12", "device": "a10", "reported": "43.1 %"}),
    ("marin-community/marin#1826", "sparse peak",
     {"model": "llama-3.2-1b", "seq": 4096, "tokens_per_s": "42.0k", "device": "h100-sxm", "reported": "17.4 %"}),
    ("the same, told of the adapters", "two thirds of a full step",
     {**LORA, "step_seconds": 26.92, "global_batch": 32, "trained": fk.LoRA(rank=8), "reported": "17.8 %"}),
    ("PrimeIntellect-ai/prime-rl PR2424", "tokens by the context-parallel degree of 2",
     {"model": "llama-3-8b", "seq": 16384, "tokens_per_s": 104_688, "device": "h100-sxm", "count": 8, "parallel": {"cp": 2}, "reported": "38.3 %"}),
    ("allenai/open-instruct PR1032", "cumulative tokens over one step",
     {"model": "llama-3-8b", "seq": 8192, "tokens_per_s": 55_350, "device": "h100-sxm", "count": 8, "reported": "252 %"}),
    ("NVIDIA-NeMo/Megatron-Bridge#3498", "the context's 32,768 tokens for each document's",
     {"model": "qwen2.5-7b", "seq": 32768, "lengths": [2048] * 16, "tokens_per_s": 8107, "device": "h100-sxm", "reported": "50.9 %"}),
    ("Megatron-Bridge, performance summary, DeepSeek-V3", "half of the scores, router left out, with the multi-token-prediction layer counted",
     {"model": "deepseek-v3", "seq": 4096, "tokens_per_s": "3.0007k", "device": "b200", "reported": "781 TFLOP/s"}),
]  # fmt: skip


@pytest.mark.parametrize(("where", "cause", "run"), THREADS + BUILT, ids=[row[0] for row in THREADS + BUILT])
def test_the_cause_is_named(where, cause, run):
    found = fk.doctor(**run)
    named = {each.name: each for each in found.explanations}
    assert cause in named, (where, found)
    assert 0 < named[cause].chance <= found.bar


PRINTED = json.loads((Path(__file__).parents[1] / "data" / "threads.json").read_text("utf-8"))


@pytest.mark.parametrize("row", PRINTED, ids=[f"{place} {row['quote'][-40:]}" for place, row in enumerate(PRINTED)])
def test_what_was_printed(row):
    """Logs, tables and threads with their numbers as they stand: the cause is named, and makes the printed number."""
    run = dict(row["run"])
    if isinstance(run.get("model"), dict):
        run["model"] = fk.models.transformer(**run["model"])
    found = fk.doctor(**run)
    named = {each.name: each for each in found.explanations}
    assert row["cause"] in named, (row["source"], found)
    assert named[row["cause"]].mfu == pytest.approx(found.reported, rel=2e-3)


def test_nvidia_s_tables():
    """Megatron-Bridge, releases 25.09 to 26.06 but those that round tokens/s to sequences, as they are printed: a row of each model, length and release."""
    printed = [row for row in fk.recordings.find(dataset="megatron_bridge") if row["table"] not in SEQUENCES]
    rows = {(row["workload"], row["seq"], row["table"]): row for row in printed}
    found, hybrids, mended = [], [], []
    for (model, seq, _), row in rows.items():
        rate = {"tokens_per_s_per_device": str(int(row["value"])), "reported": f"{row['printed_TFLOPs']} TFLOP/s"}
        names = [
            each.name
            for each in fk.doctor(model=model, seq=seq, device=row["device_name"], dtype="bf16", **rate).explanations
        ]
        (hybrids if model.startswith("nemotron") else found).append((model, names))
        mended = [*mended, names] if model.startswith("gpt-oss") and row["table"] == "r26.06" else mended
    assert len(found) > 15 and sum(bool(names) for _, names in found) >= 0.95 * len(found), found
    assert mended and all(names == ["router left out"] for names in mended)  # its MLP has had three matrices since
    for model, names in hybrids:
        also = ", with 2 of multi-token prediction" if "super" in model else ""
        assert names[:1] == [f"Megatron's hybrid layers{also}"], (model, names)
    assert len(hybrids) > 2
    for model, names in found:
        if model.startswith("llama") and names:
            assert names[0] == "no mistake", model
        if model.startswith("gpt-oss") and names and names not in mended:
            assert any("with two matrices for three in the MLP" in name for name in names), names


@pytest.mark.parametrize("run", [
    {"model": "llama-2-70b", "seq": 4096, "tokens_per_s": 692, "device": "tpu-v5p", "reported": "65.4 %"},
    {"model": "llama-3.1-405b", "seq": 8192, "tokens_per_s": 123, "device": "tpu-v6e", "reported": "38.55 %"},
])  # fmt: skip
def test_rows_that_contradict_themselves(run):
    """MaxText, docs/reference/models/tiering.md: no formula makes the printed MFU of the printed tokens/s."""
    found = fk.doctor(**run)
    assert found.explanations == () and "no usual mistake" in found.summary


def test_windows_taken_as_full():
    """torchtitan, pull request 4300: gpt-oss counted full attention in layers with a window of 128 tokens."""
    model = fk.load("gpt-oss-120b")
    run = {"model": model, "seq": 32768, "tokens_per_s": 11_003, "device": "h100-sxm"}
    step, full = model.train_step(seq=32768), 6 * 36 * 64 * 64 * 32769
    windows = 18 * 12 * 64 * 64 * (fk.layers.attentions.visible_pairs(q=32768, kv=32768, mask=fk.window(128)) / 32768)
    flops = step.flops_per_token - windows + full / 2
    found = fk.doctor(**run, reported=f"{100 * flops * 11_003 / 989.4e12:.2f} %")
    assert found.explanations[0].name == "windows taken as full"


def test_windows_at_their_width():
    """The same pull request's number afterwards, 34,534,221,696 FLOPs a token, at a rate of ours."""
    run = {"model": "gpt-oss-120b", "seq": 4096, "tokens_per_s": 6002, "device": "h100-sxm"}
    found = fk.doctor(**run, reported=f"{34_534_221_696 * 6002 / 1e12:.2f} TFLOP/s")
    assert found.explanations[0].name == "hidden pairs counted, windows at their width"
    assert all("windows at" not in each.name for each in fk.doctor(**{**run, "seq": 128}).considered)  # no query is cut
    assert all("windows at" not in each.name for each in fk.doctor(**{**run, "model": "llama-3-8b"}).considered)


def test_the_peak_of_the_same_chip_on_another_board():
    """A B200 of 2,250 TFLOP/s over a GB200's 2,500: and no node of eight, of which nobody spoke, with an A100's peak."""
    found = fk.doctor(tflops_per_device=900, device="b200", reported="36.0 %")
    assert [each.name for each in found.explanations] == ["wrong SKU: peak of gb200"]
    found = fk.doctor(tflops_per_device="412.3", device="gh200-96gb", reported="54.5 %")
    assert found.explanations[0].name == "wrong SKU: peak of h100-pcie"


def test_what_comes_near_is_listed():
    """fms-fsdp, issue 67, prints 15 % where its formula makes 13.6: near, and no explanation."""
    found = fk.doctor(**LLAMA_A100, tokens_per_s_per_device="3.7k", reported="15 %")
    assert found.explanations == ()
    shard = next(each for each in found.near if "shard of 8" in each.name)
    assert shard.mfu == pytest.approx(0.136, abs=1e-3) and shard.chance != shard.chance
    pair = next(each for each in found.near if "and wrong SKU" in each.name)
    assert pair.chance > found.bar and "no better than chance" in repr(found) and "misses by 9" in repr(found)


# -- accidents ------------------------------------------------------------------------------------------------------------

RUNS = {
    "llama": {"model": "llama-3-8b", "seq": 8192, "tokens_per_s": 53_336, "device": "h100-sxm", "count": 8},
    "two digits": {"model": "llama-3-8b", "seq": 8192, "tokens_per_s": 51_000, "device": "h100-sxm", "count": 8},
    "experts": {"model": "mixtral-8x7b", "seq": 4096, "tokens_per_s": 49_688, "device": "h100-sxm", "count": 16},
    "windows": {**OSS, "seq": 8192, "tokens_per_s_per_device": 6347, "device": "h100-sxm"},
    "degrees": {"model": "llama-2-7b", "seq": 4096, "tokens_per_s_per_device": 4550, "device": "a100-sxm-80gb", "count": 128,
                "parallel": {"tp": 4, "pp": 2, "cp": 2}},
    "adapters": {**LORA, "tokens_per_s_per_device": 608.4, "trained": fk.LoRA(rank=8)},
    "flops": {"tflops_per_device": 412.3, "device": "h100-sxm", "count": 8},
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_of_arbitrary_mfus_few_are_explained(name):
    """All two-digit MFUs, also of those from 10 to 70 % alone, where most lie; and every nineteenth of three digits."""
    two = [fk.doctor(**RUNS[name], reported=f"{per_cent} %") for per_cent in range(5, 100)]
    explained = [each.reported for each in two if each.explanations]
    usual = [each for each in explained if 0.095 < each < 0.705]
    assert 0 < len(explained) <= 0.15 * len(two) and len(usual) <= 0.15 * 61
    three = [fk.doctor(**RUNS[name], reported=f"{tenths / 10} %") for tenths in range(50, 1000, 19)]
    assert (
        sum(bool(each.explanations) for each in three) <= 0.05 * len(three) + 4
    )  # of 50: what a sample of them may be off
    for each in (*two, *three):
        bar = BAR_OF_TWO_DIGITS if each in two else BAR
        assert each.bar == bar and all(0 < one.chance <= bar for one in each.explanations)


def test_of_all_three_digit_mfus_from_10_to_70_few_are_explained():
    said = [f"{tenths / 10} %" for tenths in range(100, 701)]
    explained = [each for each in said if fk.doctor(**RUNS["flops"], reported=each).explanations]
    assert 10 < len(explained) <= 0.05 * 601


def test_the_chance_is_the_share_of_numbers_that_are_explained():
    """Counted over all numbers of three digits from 10 to 70 %: those that a window holds whose chance is below the bar."""
    windows = [
        Window(0, 1.0, 0.33, 0.0),
        Window(1, 0.3, 0.41, 0.004),
        Window(2, 0.2, 0.165, 0.0),
        Window(3, 0.01, 0.6, 0.05),
    ]
    found = {each / 1000: fits(windows, each / 1000, 0.001) for each in range(100, 1000)}
    for bar in (0.005, 0.02, 0.5):
        explained = [said for said, fit in found.items() if any(one.chance <= bar for one in fit)]
        assert len(explained) / 900 <= bar and sum(0.1 <= said <= 0.7 for said in explained) / 601 <= bar
    assert [each.window.which for each in found[0.41]] == [1] and found[0.41][0].chance == pytest.approx(11 / 601)
    assert found[0.7] == [] and found[0.165][0].chance == pytest.approx(2 / 601)  # rarer, and as sharp as the first
