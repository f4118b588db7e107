"""Lines of logs as they stand: what they say, and what the doctor makes of them."""

import contextlib
import json
from pathlib import Path

import pytest

import flopkit as fk
from flopkit.diagnosis import read_log
from flopkit.diagnosis.log_formats import FORMATS
from flopkit.diagnosis.log_numbers import LINES as BETWEEN, Unclear
from flopkit.diagnosis.logs import of_format

LINES = json.loads((Path(__file__).parents[1] / "data" / "log_lines.json").read_text("utf-8"))
LINE = {each["source"]: each["line"] for each in reversed(LINES)}
MEGATRON = LINE["https://github.com/NVIDIA/Megatron-LM/issues/756"]
MAXTEXT = LINE["https://github.com/AI-Hypercomputer/maxtext/pull/2232"]
NANOGPT = LINE["https://github.com/karpathy/nanoGPT/issues/215"]
TITAN = (
    "[rank0]:[titan] 2025-01-02 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.12345  \x1b[38;2;180;60;0mgrad_norm:  1.9000  "
    "\x1b[36mmemory: 54.61GiB(57.45%)  \x1b[34mtps: 6,667  \x1b[36mtflops: 386.08  \x1b[35mmfu: 39.02%\x1b[39m"
)


@pytest.mark.parametrize("line", LINES, ids=[f"{each['framework']}-{place}" for place, each in enumerate(LINES)])
def test_what_a_line_says(line):
    found = read_log(line["line"])
    assert (found.framework, found.arguments, found.convention) == (
        line["framework"],
        line["arguments"],
        line["convention"],
    )
    assert found.convention == "" or found.convention in fk.conventions.PRESETS
    again = read_log(line["line"].replace("\n", "\r\n"))
    assert again == found


def test_every_format_is_met():
    assert {each.framework for each in FORMATS} - {each["framework"] for each in LINES} <= {"Lightning", "verl"}


@pytest.mark.parametrize("each", FORMATS, ids=[each.framework for each in FORMATS])
def test_a_format_reads_its_own_lines_alone(each):
    """Asked by itself, whatever stands before it in the list. What is anybody's has no mark; a bare key is no mark."""
    theirs = [line for line in LINES if line["framework"] not in (each.framework, "vLLM") and _of(each, line["line"])]
    assert not each.known_by or not theirs, [line["source"] for line in theirs]
    assert bool(each.known_by) == (each.framework not in ("text", "tqdm"))
    assert not any(_of(each, f"{key}{between}1,234") for key in BARE for between in (": ", "=", " "))


BARE = (
    "tps",
    "wps",
    "tgs",
    "tok/sec",
    "tokens_per_second",
    "throughput",
    "mfu",
    "flops",
    "tflops",
    "step_time",
    "samples/sec",
    "time",
)


def _of(each, text):
    """What this format makes of a text, as `read_log` goes through it: by line, and of all lines together."""
    pieces = (*text.splitlines(), BETWEEN.join(text.splitlines()))
    found = []
    for piece in pieces:
        with contextlib.suppress(Unclear):  # a framework's line, whose two rates are two in anybody's words
            found.append(of_format(each, piece))
    return any(found)


@pytest.mark.parametrize(
    "line", [f"{key}{between}6,667" for key in ("tps", "wps", "TPS", "'tps'") for between in (": ", "=", " ")]
)
def test_a_bare_key_asks_of_whom_it_is(line):
    for around in ("{}", "step: 10 | loss: 7.1 | {}", "step 10 grad_norm 1.2 {} mfu=0.41"):
        with pytest.raises(
            ValueError,
            match="^line: 6,667 tokens/s, and not whether of all devices or of one; give tokens_per_s='6,667' or",
        ):
            read_log(around.format(line))


def test_a_key_that_says_of_whom_it_is():
    assert read_log("tps 12345.67 | tps_per_gpu 1543.2").arguments == {"tokens_per_s_per_device": "1543.2"}
    assert read_log("wps: 65432.1  wps/device: 8179.0").arguments == {"tokens_per_s_per_device": "8179.0"}


def test_wps_of_fairseq_are_those_of_all_workers():
    """A run of 8 workers, each with an eighth of a batch of 1.04858·10⁶ tokens: wps = wpb · ups, so it is of all."""
    line = LINE["https://github.com/facebookresearch/metaseq/pull/507"]
    found = fk.doctor(**read_log(line).arguments, model="gpt2", seq=1024, device="a100-sxm-80gb", count=64)
    assert found.mfu == fk.doctor(tokens_per_s=739601, model="gpt2", seq=1024, device="a100-sxm-80gb", count=64).mfu
    assert 739601 / 0.71 == pytest.approx(1.04858e6, rel=0.01)


def test_of_several_lines_the_last_that_says_most():
    assert read_log(MEGATRON + "\n" + MEGATRON.replace("5361.6", "5400.0")).arguments["step_seconds"] == "5400.0 ms"
    assert read_log(MEGATRON + "\n" + MEGATRON[:120]).arguments == read_log(MEGATRON).arguments
    assert read_log("INFO starts\n" + TITAN + "\nvalidation loss 2.1").arguments["reported"] == "39.02 %"


def test_bars_of_loading_stand_beside_lines_of_training():
    bar = "Loading checkpoint shards: 100%|████| 4/4 [00:10<00:00,  2.54s/it]"
    assert read_log(f"{bar}\n{TITAN}\n{bar}") == read_log(TITAN)


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u202f"])
def test_spaces_that_part_thousands(space):
    assert read_log(TITAN.replace("6,667", f"6{space}667")).arguments["tokens_per_s_per_device"] == "6667"


def test_the_time_of_a_step_is_not_that_of_its_data():
    """detectron2 and others print both."""
    line = "eta: 0:10:00  iter: 19  total_loss: 2.1  time: 0.5012 s/it  data_time: 0.0123 s/it  lr: 0.01"
    assert read_log(line).arguments == {"step_seconds": "0.5012"}


def test_early_torchtitan_and_a_utilisation_that_is_not_known():
    assert read_log("step: 10  loss: 7.1  memory: 9.60GiB(10.10%)  wps: 1,232  mfu: 18.22%").arguments == {
        "tokens_per_s_per_device": "1,232", "reported": "18.22 %"
    }  # fmt: skip
    unknown = read_log(TITAN.replace("39.02%", "N/A"))
    assert unknown.arguments == {"tokens_per_s_per_device": "6,667", "reported": "386.08 TFLOP/s"}
    assert read_log(TITAN.replace("39.02%", "0.00%").replace("tflops: 386.08", "tflops: 0.00")).arguments == {
        "tokens_per_s_per_device": "6,667"
    }
    assert read_log("tps: 6,667  tflops: 386.08  mfu: 39.02%") == read_log(TITAN)  # the end of the line


def test_lightning_throughput():
    """lightning/fabric/utilities/throughput.py: samples a second are sequences, items a second are `lengths`, which litgpt gives in tokens."""
    both = "{'device/batches_per_sec': 0.2, 'device/items_per_sec': 6667.0, 'device/samples_per_sec': 0.814, 'device/mfu': 0.31}"
    said = read_log(both)
    assert said.arguments == {"tokens_per_s_per_device": "0.814 samples/s", "reported": "31 %"}
    run = {"model": "llama-3.1-8b", "seq": 8192, "device": "h100-sxm"}
    by_tokens = fk.doctor(tokens_per_s_per_device=6667, **run).mfu
    assert fk.doctor(tokens_per_s_per_device="0.814 samples/s", **run).mfu == pytest.approx(by_tokens, rel=1e-3)
    with pytest.raises(
        ValueError,
        match="6667.0 items/s are what the loop gave Lightning as lengths, in litgpt tokens: give tokens_per_s_per_device='6667.0' where",
    ):
        read_log(both.replace("samples", "things"))
    said = read_log("Train throughput/device/tokens_per_sec: 4884.9990\n Train throughput/device/mfu: 0.4123")
    assert said.arguments == {"tokens_per_s_per_device": "4884.9990", "reported": "41.23 %"}


RUNS = [
    (MEGATRON, {"model": "mixtral-8x7b", "seq": 2048, "device": "h100-sxm", "count": 16}, 0.2413, "causal ×2: hidden pairs counted"),
    (TITAN, {"model": "llama-3.1-8b", "seq": 8192, "device": "h100-sxm", "count": 8}, 0.3468, "causal ×2: hidden pairs counted"),
    (MAXTEXT, {"model": "deepseek-v2-lite", "seq": 2048, "device": "tpu-v5p", "count": 4}, 0.2940, "no mistake"),
    (NANOGPT, {"model": "gpt2", "seq": 1024, "global_batch": 60, "device": "v100-sxm", "dtype": "fp16"}, 0.3568,
     "causal ×2: hidden pairs counted, and wrong SKU: peak of a100-sxm-80gb"),
    (LINE["https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/388"],
     {"model": "llama-3-8b", "seq": 8192, "global_batch": 128, "device": "h100-sxm", "count": 8}, 0.53355, "no mistake"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "run", "ours", "cause"), RUNS)
def test_from_a_line_to_the_cause(line, run, ours, cause):
    found = fk.doctor(**read_log(line).arguments, **run)
    assert found.mfu == pytest.approx(ours, abs=1e-4) and found.explanations[0].name == cause


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("Our run achieves 400 TFLOP/s/GPU of a peak of 989 TFLOP/s/GPU", {"tflops_per_device": "400"}),
        ("Achieved: 400 TFLOPs/GPU (40.4% of 989 TFLOPs/GPU)", {"tflops_per_device": "400"}),
        ("400 TFLOPs/GPU (989 peak), peak mem 50 GB", {"tflops_per_device": "400"}),
        ("50% of peak: 400 TFLOPs/GPU", {"tflops_per_device": "400"}),
        ("before: 400 TFLOPs/GPU, after: 500 TFLOPs/GPU", {"tflops_per_device": "500"}),
        ("target: 5000 tokens/s/GPU, now 4000 tokens/s/GPU", {"tokens_per_s_per_device": "4000"}),
        ("5.0k tokens/s/GPU, up from 3.4k tokens/s/GPU", {"tokens_per_s_per_device": "5.0k"}),
        ("5000 tokens/s/GPU, 40% MFU (target 50% MFU)", {"tokens_per_s_per_device": "5000", "reported": "40 %"}),
        ("5000 tokens/s/GPU, 38 - 43% MFU", {"tokens_per_s_per_device": "5000"}),
        ("We measured 5000 tokens/s/GPU, the H100 peak is 989 TFLOPs/GPU", {"tokens_per_s_per_device": "5000"}),
        ("epoch 1 |  ███ 3.21it/s | val 10.5it/s", {"step_seconds": "3.21 steps/s"}),
        ("6.7k tokens/s/GPU (6,667 tokens/s/GPU)", {"tokens_per_s_per_device": "6,667"}),  # one number, twice
        ("24k tokens/s/GPU, exactly 24,312 tokens/s/GPU", {"tokens_per_s_per_device": "24,312"}),
        ("25k tokens/s/GPU, exactly 24,612 tokens/s/GPU", {"tokens_per_s_per_device": "24,612"}),
        ("Llama on 8 H100 380 TFLOPs/GPU", {"tflops_per_device": "380"}),
        ("rank 0 400 TFLOPs/GPU", {"tflops_per_device": "400"}),
        ("tp 4 400 TFLOPs/GPU, 41% of the peak", {"tflops_per_device": "400"}),
        ("6,667  tokens/s/GPU  41.2% MFU", {"tokens_per_s_per_device": "6,667", "reported": "41.2 %"}),
        ("step 100 tokens/s/gpu 6,667 mfu 39.1%", {"tokens_per_s_per_device": "6,667"}),
        ("H100 tokens/s/GPU 6667", {"tokens_per_s_per_device": "6667"}),
        ("step 390 - 400 TFLOP/s/GPU", {"tflops_per_device": "400"}),
        ("tokens/s/GPU: 5'000", {"tokens_per_s_per_device": "5000"}),
        ("3000 tokens/s/GPU\n5000 tokens/s/GPU", {"tokens_per_s_per_device": "5000"}),  # two steps
    ],
)
def test_text_that_says_which_number_is_the_rate(line, arguments):
    assert read_log(line).arguments == arguments


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("without compile 3.4k tokens/s/GPU, with compile 5.0k tokens/s/GPU", "line: 5.0k and 3.4k are two numbers for one"),
        ("average 5.0k tokens/s/GPU, best 5.1k tokens/s/GPU", "line: 5.1k and 5.0k are two numbers for one"),
        ("400 TFLOPs/GPU, then 405 TFLOPs/GPU", "line: 405 and 400 are two numbers for one"),
        ("5000 tokens/s/GPU, tokens/s/GPU: 3400", "line: 5000 and 3400 are two numbers for one"),
        ("5000 tokens/s/GPU, 38% MFU, 43% MFU", "line: 43 and 38 are two numbers for one"),
        ("6000 tokens/s/GPU, MFU 0.38, MFU: 43%", "line: 43 and 38 are two numbers for one"),
        ("train 3.21it/s | other 10.5it/s", "line: 3.21 and 10.5 are two numbers for one"),
        ("380 - 400 TFLOPs/GPU", "400 stands behind '380 -', and is one of two numbers"),
        ("380 to 400 TFLOPs/GPU", "400 stands behind '380 to'"),
        ("400 of 989 TFLOPs/GPU", "989 stands behind '400 of'"),
        ("5000 ± 20 tokens/s/GPU", "20 stands behind '5000 ±'"),
        ("1/3 tokens/s/GPU", "3 stands behind '1/'"),
        ("-5 tokens/s/GPU", "5 is negative"),
        ("peak throughput 400 TFLOPs/GPU", "400 is said to be a peak"),
        ("val 5000 tokens/s/GPU", "5000 is said to be a peak, a target or a part of something else"),
        ("tokens per second per GPU: 5 000", "'5 000' may be 5,000 or two numbers"),
        ("5 400 tokens/s/GPU", "'5 400' may be 5,400 or two numbers"),
        ("tps: 6 667  tflops: 386.08  mfu: 39.02%", "'6 667' may be 6,667 or two numbers"),
        ("step 100 loss 2.31 tokens/s/gpu 6,667 mfu 0.39", "its unit stands between two numbers, 6,667 and 0.39"),
    ],
)  # fmt: skip
def test_two_numbers_for_one_are_named(line, message):
    with pytest.raises(ValueError, match=message):
        read_log(line)
    assert read_log(f"{line}\n{TITAN}") == read_log(TITAN)  # another line that is clear


VALIDATION = (
    "Validating: step: 10  loss: 7.1  memory: 54.61GiB(57.45%)  tps: 26,667",
    "[titan] 2025-01-02 - root - INFO - eval step: 10  loss: 7.1  memory: 54.61GiB(57.45%)  tps: 26,667",
    "2020-07-17 07:11:02 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 7.1 | ppl 130 | wps 120000 | wpb 8000 | bsz 300 | num_updates 100",
    "| epoch 001 | valid on 'valid' subset | valid_loss 8.11425 | wps 120000 | num_updates 600",
    "validation: completed step: 10, seconds: 1.2, TFLOP/s/device: 40.0, Tokens/s/device: 300.0",
    "Evaluation | step 10 | 9600 tokens/s/GPU",
    "[eval] step 10: 9600 tokens/s/GPU",
    "test | 9600 tokens/s/GPU",
)


# Of vLLM, SGLang, TensorRT-LLM, llama.cpp, ollama, MLX, gpt-fast, and of sentences.
SERVED = (
    "Throughput: 11.39 requests/s, 5829.52 total tokens/s, 2914.76 output tokens/s",
    "============ Serving Benchmark Result ============\nOutput token throughput (tok/s):         3712.70\nTotal Token throughput (tok/s):          7740.89",
    "Prefill. latency: 0.10210 s, throughput:  20059.28 token/s\nDecode.  latency: 0.00813 s, throughput:    983.63 token/s",
    "Per GPU Output Throughput (tps/gpu):              2134.59",
    "| llama 7B mostly Q4_0 | 3.56 GiB | 6.74 B | CUDA | 99 | pp 512 | 5131.62 ± 22.10 |",
    "| model | size | params | backend | ngl | test | t/s |\n| llama 7B mostly Q4_0 | 3.56 GiB | 6.74 B | CUDA | 99 | tg 128 | 129.60 ± 0.10 |",
    "prompt eval rate:     189.33 tokens/s\neval rate:            73.09 tokens/s",
    "Prompt: 10 tokens, 120.4 tokens-per-sec\nGeneration: 100 tokens, 34.5 tokens-per-sec",
    "Time for inference 1: 2.13 sec total, 93.95 tokens/sec\nBandwidth achieved: 1241.02 GB/s",
    "Greedy decode: 4,002 output tok/s/GPU, TTFT P99 3,052 ms",
    "The deployment generates 15000 tokens/s/GPU at 64 concurrent users",
    "decode MFU 3.2% at 1,200 tokens/s/GPU",
)


@pytest.mark.parametrize(
    "loss", ["val_loss: 2.1", "validation loss: 2.1", "eval: 2.1", "valid_ppl=8.1", "test_acc 0.3", "eval_every=100"]
)
def test_a_training_step_may_name_a_loss_of_validation(loss):
    assert read_log(f"{TITAN} | {loss}") == read_log(f"{loss} | {TITAN}".replace("eval: 2.1 | ", "")) == read_log(TITAN)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("loss: 3.1", "no rate of a log that is known here .gpt-neox, Megatron-DeepSpeed, Megatron-LM"),
        ("", "no rate of a log that is known here"),
        ("step 00000002/00000015 | step-time 28.823 sec | tokens-per-second 72,759 | peak-gpu-memory 63.84 GB",
         "72,759 tokens/s, and not whether of all devices or of one; give tokens_per_s='72,759' or tokens_per_s_per_device="),
        ("{'loss': 75.1, 'step_tokens_per_second': 18801.85}", "18801.85 tokens/s, and not whether of all"),
        ("INFO Engine 000: Avg prompt throughput: 3599.9 tokens/s, Avg generation throughput: 199.6 tokens/s", "vLLM serves, and the doctor reads training"),
        ("llama_kv_cache_unified: KV self size  = 4096.00 MiB", "llama.cpp serves"),
        ("step:1 - perf/mfu/actor:0.3707644223640674 - perf/throughput:900.1",
         "verl's MFU is of the actor's update, .* and reported='37.07644223640674 %'"),
        ("validate step: 10  loss:  7.1234  memory: 54.61GiB(57.45%)  tps: 26,667", "is a validation step, which is a forward pass alone"),
        *((line, "is a validation step, which is a forward pass alone") for line in VALIDATION),
        ("[Rank 0] throughput: 123.4 samples/sec", "123.4 samples/s, and not whether of all devices or of one; give tokens_per_s='123.4 samples/s' or"),
        ("TFLOPs: 187 samples/sec: 12", "line: 12 samples/s, and not"),
        ("Validation DataLoader 0:  12%|█ | 5/40 [00:10<01:00, 1.85it/s]", "is a validation step"),
        ("Loading checkpoint shards: 100%|██████████| 4/4 [00:10<00:00,  2.54s/it]", "is a progress bar of something else than training"),
        ("Map: 12%|█▏  | 123/1024 [00:12<00:11, 42.54it/s]", "something else than training"),
        ('{"key": "tracked_stats", "value": {"throughput": 12.3}}', "no rate of a log that is known here"),
        ("step: 10 loss: 7,12 tps: 6.667 tflops: 386,08 mfu: 39,02%", "39,02 has a comma that parts no thousands"),
        *((line, "serves, and the doctor reads training|its tokens are generated, and the doctor reads training") for line in SERVED),
        ("|E2E latency=9.31s |Gather latency=0.00s (0.00%) |Generate time=6.33s (68.01%) |Training time=2.06s (22.11%) |CurSamplesPerSec=27.50 |AvgSamplesPerSec=26.91",
         "is a step of reinforcement learning, whose time has the generation in it"),
        ("End-to-End => Latency: 11.23s, TFLOPs: 9.06, Samples/sec: 2.85, Time/seq 0.35s, Batch Size: 32, Total Seq. Length: 512", "reinforcement learning"),
        ("{'eval_loss': 1.2, 'eval_runtime': 12.3, 'eval_samples_per_second': 45.3, 'eval_steps_per_second': 5.6, 'epoch': 1.0}", "is a validation step"),
        ("{'loss': 0.0, 'reward_std': 0.3, 'completion_length': 210.3, 'kl': 0.01}\n  5%|▌ | 10/200 [03:00<57:00, 18.0s/it]", "is a step of reinforcement"),
        *((f"{what}: 10%|█ | 5/50 [00:10<01:30,  2.1s/it]", "something else than training")
          for what in ("Rollout", "Inference", "Calibrating", "Quantizing layers", "sampling loop time step", "Benchmarking")),
        ("Speed: 1234.5 tokens/s prompt processing, 56.7 tokens/s generation", "its tokens are generated"),
        ("56.70 tok/sec • 512 tokens • 0.35s to first token", "its tokens are generated"),
        ("3.5-3.7k tokens/s/GPU", "3.7k stands behind '3.5-', and is one of two numbers; give a rate by itself"),
        ("roughly 180-200 TFLOPs per A100", "200 stands behind '180-', and is one of two numbers"),
        ("The model processes 1.4M tokens per second on 256 GPUs", "1.4M tokens/s, and not whether of all"),
        ("{'step_tokens_per_second': 18801.85, 'avg_tokens_per_second': 18802.4}", "18802.4 tokens/s, and not whether"),
        ("Train Epoch: 0 [ 512/2048 (25%)] Data (t): 0.1 Batch (t): 1.2, 424.8/s, 53.1/s/gpu LR: 0.0001 Logit Scale: 14.3 Contrastive_loss: 5.1", "no rate of a log"),
        (12, "line=12: must be text"),
    ],
)  # fmt: skip
def test_lines_without_a_rate(line, message):
    with pytest.raises((ValueError, TypeError), match=message):
        read_log(line)


def test_a_line_without_its_batch():
    """Megatron-LM's cut off, NeMo 1's, nanoGPT's and a progress bar: the doctor says what is missing."""
    for line in (MEGATRON.split("global batch")[0], NANOGPT, "12%|█ | 5/40 [00:10<01:00, 1.85it/s]"):
        said = read_log(line).arguments
        run = {**said, "model": "gpt2", "seq": 1024, "device": "h100-sxm"}
        with pytest.raises(TypeError, match="step_seconds= goes with global_batch=, which is missing"):
            fk.doctor(**run)
        assert fk.doctor(**run, global_batch=8).mfu > 0


def test_what_the_installed_trainer_prints():
    utils = pytest.importorskip("transformers.trainer_utils")
    said = utils.speed_metrics("train", 0.0, num_samples=800, num_steps=100, num_tokens=819_200)
    found = read_log(str(said))
    assert found.arguments == {"tokens_per_s": str(said["train_tokens_per_second"])}
    assert (
        read_log(str(utils.speed_metrics("train", 0.0, num_samples=800)))
        .arguments["tokens_per_s"]
        .endswith(" samples/s")
    )
