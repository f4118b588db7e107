"""Formats of logs: by which words a line is known, and where its rate and its utilisation stand."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FORMATS", "NO_STEP", "NUMBER", "OF_WHOM", "SERVING", "Format", "Rate", "Said"]

NUMBER = r"(\d(?:[\d.,]*\d)?(?:[eE][+-]?\d+)?(?:[kKMGT](?![\w/]))?)"
"""A number as logs print it: 6,667, 1.07e+04 or 11.4K."""


class Rate(NamedTuple):
    """Where a rate stands: the argument of `doctor`, a pattern of which a group is the number, and the unit behind it."""

    argument: str
    pattern: str
    unit: str = ""


class Said(NamedTuple):
    """Where a utilisation stands: a pattern, and its unit, ``"%"``, ``"TFLOP/s"`` or ``"share"``."""

    pattern: str
    unit: str


class Format(NamedTuple):
    """Lines of a framework.

    *known_by*: what its lines have and no other framework's; a key that several print, such as ``tps``, is no such thing. Empty: anybody's.
    *rates*: the first that a line has is taken. *batch*: sequences of a step, of all devices. *convention*: by which its code counts.
    """

    framework: str
    known_by: str
    rates: tuple[Rate, ...]
    said: tuple[Said, ...] = ()
    batch: str = ""
    convention: str = ""


def _key(name: str) -> str:
    """A name before a number, as in ``tps: 6,667``, ``'tps': '6,667'``, ``tps=6,667`` and ``tps 6,667``."""
    return rf"(?<![\w/]){name}['\"]?\s*[:=]?\s*['\"]?{NUMBER}"


_MS = r"elapsed time per iteration \(ms\):\s*" + NUMBER
_S = r"elapsed time per iteration \(s\):\s*" + NUMBER
_GLOBAL = r"global batch size:\s*(\d[\d,]*)"
_A_DEVICE, _ALL = "tokens_per_s_per_device", "tokens_per_s"
_A_SECOND = r"(?:[-_ ]per[-_ ]|/)s(?:ec(?:ond)?)?"
_EACH = r"(?:[-_ ]per[-_ ]|/)(?:gpu|device|chip|npu|card)"
_UNIT, _NAMES = r"\b(?!['\"]?\s*[:=])", r"['\"]?\s*[:=]\s*['\"]?"  # behind a number, or before one

FORMATS = (
    # EleutherAI/gpt-neox, megatron/logging.py: samples/sec are train_batch_size by the time of an iteration.
    Format(
        "gpt-neox",
        r"samples/sec: [^|]*\| iteration",
        (Rate(_ALL, rf"samples/sec:\s*{NUMBER} \| iteration", " samples/s"),),
        (Said(rf"approx flops per GPU:\s*{NUMBER}\s*TFLOPS", "TFLOP/s"),),
    ),
    # bigscience-workshop/Megatron-DeepSpeed, megatron/training.py: four passes where activations are recomputed.
    Format(
        "Megatron-DeepSpeed",
        r"elapsed time per iteration \(s\):|elapsed time per iteration \(ms\):.*\bTFLOPs:",
        (Rate("step_seconds", _S), Rate("step_seconds", rf"{_MS}(?=.*\bTFLOPs:)", " ms")),
        (Said(rf"\bTFLOPs:\s*{NUMBER}", "TFLOP/s"),),
        _GLOBAL,
    ),
    # megatron/training/training.py, training_log; Primus prints "now/average". Megatron-Bridge prints two lines a step.
    Format(
        "Megatron-LM",
        r"^(?!.*(?:\bTFLOPs:|approx flops per GPU)).*(?:elapsed time per iteration \(ms\):|Step Time\s*:|[Tt]hroughput(?: per GPU \(TFLOP/s/GPU\)|:\s*[\d.]+ TFLOP/s/GPU))",
        (
            Rate("step_seconds", _MS, " ms"),
            Rate(_A_DEVICE, rf"Step Time\s*:.*?{NUMBER} tok/s/gpu"),
            Rate("step_seconds", rf"Step Time\s*:\s*{NUMBER}s\b"),
            Rate("tflops_per_device", rf"throughput per GPU \(TFLOP/s/GPU\):\s*{NUMBER}"),
            Rate("tflops_per_device", rf"[Tt]hroughput:\s*{NUMBER} TFLOP/s/GPU"),
        ),
        (
            Said(rf"throughput per GPU \(TFLOP/s/GPU\):\s*{NUMBER}", "TFLOP/s"),
            Said(rf"GPU utilization:\s*{NUMBER}\s*(?:MODEL_)?TFLOP/s/GPU", "TFLOP/s"),
        ),
        _GLOBAL,
        "MEGATRON",
    ),
    # maxtext/common/metric_logger.py: a device is what JAX calls one. Before pull request 761 it printed no tokens.
    Format(
        "MaxText",
        "completed step:",
        (
            Rate(_A_DEVICE, rf"Tokens/s/device:\s*{NUMBER}"),
            Rate("tflops_per_device", rf"completed step:.*?TFLOP/s(?:/device)?:\s*{NUMBER}"),
        ),
        (Said(rf"TFLOP/s/device:\s*{NUMBER}", "TFLOP/s"),),
        convention="MAXTEXT",
    ),
    # nanochat, scripts/base_train.py: tok/sec are those of all devices, and so is the peak behind bf16_mfu.
    Format(
        "nanochat",
        r"\bdt: [\d.]+ms \| tok/sec:",
        (Rate(_ALL, _key(r"tok/sec")),),
        (Said(_key(r"(?:bf16_)?mfu"), "%"),),
        convention="TORCHTITAN",
    ),
    # NeMo 2's progress printer, the bar of NeMo 1, and its list of all steps.
    Format(
        "NeMo",
        "train_step_timing in s",
        (
            Rate(_A_DEVICE, rf"train_step_timing in s[:=].*tokens_per_sec_per_gpu[:=]\s*{NUMBER}"),
            Rate("step_seconds", rf"train_step_timing in s[:=]\s*{NUMBER}"),
            Rate("step_seconds", rf"train_step_timing in s[:=]\s*\[[^\]]*?{NUMBER}\s*\]"),
        ),
        (Said(rf"TFLOPS_per_GPU[:=]\s*{NUMBER}", "TFLOP/s"),),
        r"global_batch_size[:=]\s*(\d+)",
    ),
    # huggingface/nanotron, trainer.py, train_step_logs.
    Format(
        "nanotron",
        "elapsed_time_per_iteration_ms",
        (Rate(_A_DEVICE, _key("tokens_per_sec_per_gpu")),),
        (Said(_key("model_tflops_per_gpu"), "TFLOP/s"),),
    ),
    # huggingface/picotron, train.py: 6N + 12LHQT over 989.5 TFLOP/s.
    Format("picotron", r"Tokens/s/GPU:.*\bMFU:", (Rate(_A_DEVICE, rf"Step: .*Tokens/s/GPU:\s*{NUMBER}"),), (Said(rf"MFU:\s*{NUMBER}\s*%", "%"),)),
    # OLMo-core, train/callbacks/speed_monitor.py, and OLMo before it.
    Format(
        "OLMo-core",
        r"throughput/device/(?:TPS|tokens_per_second)\b",
        (Rate(_A_DEVICE, _key("throughput/device/TPS")), Rate(_A_DEVICE, _key("throughput/device/tokens_per_second"))),
        (Said(_key("throughput/device/MFU"), "%"),),
    ),
    # mosaicml/composer, callbacks/speed_monitor.py, which llm-foundry logs: MFU is a share.
    Format(
        "llm-foundry",
        r"throughput/(?:device/)?(?:tokens|samples)_per_sec\b",
        (
            Rate(_A_DEVICE, _key("throughput/device/tokens_per_sec")),
            Rate(_ALL, _key("throughput/tokens_per_sec")),
            Rate(_A_DEVICE, _key("throughput/device/samples_per_sec"), " samples/s"),
        ),
        (Said(_key("throughput/device/mfu"), "share"),),
    ),
    # levanter, callbacks: as Weights & Biases shows them.
    Format("levanter", r"throughput/tokens_per_second\b", (Rate(_ALL, _key("throughput/tokens_per_second")),), (Said(_key("throughput/mfu"), "%"),)),
    # lightning, utilities/throughput.py.
    Format(
        "Lightning",
        r"device/items_per_sec\b",
        (Rate(_A_DEVICE, _key(r"device/items_per_sec"), " samples/s"),),
        (Said(_key(r"device/mfu"), "share"),),
    ),
    # InternLM, train.py, record_current_batch_training_metrics.
    Format(
        "InternLM",
        r"tgs \(tokens/gpu/second\)",
        (Rate(_A_DEVICE, rf"tgs \(tokens/gpu/second\)\s*[=:]\s*{NUMBER}"),),
        (Said(rf"\btflops\s*[=:]\s*{NUMBER}", "TFLOP/s"),),
    ),
    # verl, utils/metric: the actor's update alone; perf/throughput has generation in its time.
    Format("verl", "perf/mfu/actor", (), (Said(_key("perf/mfu/actor"), "share"),)),
    # karpathy/llm.c, train_gpt2.cu: tok/s are those of all devices.
    Format(
        "llm.c", r"bf16 MFU \|", (Rate(_ALL, rf"bf16 MFU \| {NUMBER} tok/s"),), (Said(rf"\|\s*{NUMBER}% bf16 MFU", "%"),)
    ),
    # prime-rl, trainer: tokens of all devices.
    Format(
        "prime-rl",
        r"tokens/s \| MFU:|tokens_per_second: [\d.,]+, mfu:",
        (Rate(_ALL, rf"{NUMBER} tokens/s \| MFU:"), Rate(_ALL, rf"tokens_per_second:\s*{NUMBER}, mfu:")),
        (Said(rf"MFU:\s*{NUMBER}\s*%", "%"), Said(rf"mfu:\s*{NUMBER}", "%")),
    ),
    # NeMo-RL, algorithms/grpo.py.
    Format(
        "NeMo-RL",
        "Training FLOPS:",
        (Rate("tflops_per_device", rf"Training FLOPS:.*\({NUMBER} TFLOPS per rank\)"),),
        (Said(rf"Training Model Floating Point Utilization:\s*{NUMBER}%", "%"),),
    ),
    # ColossalAI, examples/language/performance_evaluator.py.
    Format(
        "ColossalAI",
        "TFLOPS per GPU by Megatron:",
        (Rate(_ALL, rf"Throughput:\s*{NUMBER} samples/sec", " samples/s"),),
        (Said(rf"TFLOPS per GPU by Megatron:\s*{NUMBER}", "TFLOP/s"),),
    ),
    # deepspeed/profiling/flops_profiler, and utils/timer.py, whose samples are those of train_batch_size.
    Format(
        "DeepSpeed",
        r"FLOPS per GPU =|SamplesPerSec=|iter time \(s\):",
        (
            Rate(_ALL, rf"samples/second:\s*{NUMBER}", " samples/s"),
            Rate(_ALL, rf"CurrSamplesPerSec=\s*{NUMBER}", " samples/s"),
            Rate(_ALL, rf"SamplesPerSec=\s*{NUMBER}", " samples/s"),
            Rate(_ALL, rf"iter time \(s\): [\d.]+ samples/sec:\s*{NUMBER}", " samples/s"),
        ),
        (Said(rf"(?<!fwd )(?<!bwd )FLOPS per GPU = [^:]*iter latency:\s*{NUMBER}\s*TFLOPS", "TFLOP/s"),),
    ),
    # karpathy/nanoGPT, train.py: over an A100's peak, whatever runs, and an average over ten steps, of
    # which the last digit says nothing. How many sequences a step has it does not print.
    Format(
        "nanoGPT",
        r"\biter \d+: loss \S+, time",
        (Rate("step_seconds", rf"\biter \d+: loss \S+, time {NUMBER}\s*ms", " ms"),),
        (Said(r"\bmfu (\d+\.\d)\d*%", "%"),),
        convention="NANOGPT",
    ),
    # modded-nanogpt, train_gpt.py.
    Format("modded-nanogpt", "step_avg:", (Rate("step_seconds", rf"step_avg:\s*{NUMBER}\s*ms", " ms"),)),
    # NVIDIA-NeMo/Automodel, recipes/llm/train_ft.py: tps of all devices, and in parentheses of one.
    Format("NeMo AutoModel", r"\btps\s+[\d.,]+\s*\([\d.,]+/gpu\)", (Rate(_A_DEVICE, rf"\btps\s+[\d.,]+\s*\({NUMBER}/gpu\)"),)),
    # InternLM/xtuner, v1/train/trainer.py: tgs are a rank's own tokens by the time of its step.
    Format("XTuner", r"\bdata_time:.*\btgs:", (Rate(_A_DEVICE, _key("tgs")),)),
    # PaddleNLP, trainer/trainer_utils.py, speed_metrics.
    Format(
        "PaddleNLP",
        "interval_tokens_per_second_per_device",
        (Rate(_A_DEVICE, _key("interval_tokens_per_second_per_device")),),
        (Said(_key("interval_hardware_tflops_per_device"), "TFLOP/s"),),
    ),
    # mindformers, core/callback/callback.py: FLOPs that MindSpore counts, as T for TFLOP/s.
    Format("MindFormers", "train_throughput_per_npu:", (Rate("tflops_per_device", r"train_throughput_per_npu:\s*(\d+(?:\.\d+)?)T"),)),
    # modelscope/ms-swift, trainers/callback.py, and its Megatron's: steps of the optimizer since the start.
    Format(
        "ms-swift",
        r"train_speed\((?:iter/s|s/it)\)",
        (
            Rate("step_seconds", _key(r"train_speed\(iter/s\)"), " steps/s"),
            Rate("step_seconds", _key(r"train_speed\(s/it\)")),
        ),
    ),
    # facebookresearch/lingua, apps/main/train.py: wps are a rank's own tokens by its tensor-parallel degree.
    Format("lingua", r"step: \d+  acc: .*\bflops: \S+  wps:", (Rate(_A_DEVICE, _key("wps")),)),
    # facebookresearch/fairseq, tasks/fairseq_task.py, and metaseq: wps sum ntokens of all workers (of a translation, its target's).
    Format("fairseq", r"\bups\b.*\bwpb\b|\bwpb\b.*\bgnorm\b", (Rate(_ALL, _key("wps")),)),
    # torchtitan/components/metrics.py: tps (once wps) are those of one device; as Weights & Biases shows them.
    Format(
        "torchtitan",
        r"(?:\b|peak_)memory: *[\d.]+(?:GiB|%)|\btps: *[\d,]+ +tflops:|throughput\(tps\)",
        (Rate(_A_DEVICE, _key("[tw]ps")), Rate(_A_DEVICE, _key(r"throughput\(tps\)"))),
        (
            Said(rf"\bmfu:\s*{NUMBER}\s*%", "%"),
            Said(_key(r"mfu\(%\)"), "%"),
            Said(rf"\btflops['\"]?:?\s*{NUMBER}", "TFLOP/s"),
        ),
        convention="TORCHTITAN",
    ),
    # torchtune, axolotl; LLaMA-Factory; transformers/trainer_utils.py, speed_metrics.
    Format(
        "transformers Trainer",
        r"\btrain_(?:samples|steps|tokens)_per_second|tokens_per_second_per_gpu|tokens/train_per_sec_per_gpu|['\"]learning_rate['\"].*['\"]throughput['\"]",
        (
            Rate(_A_DEVICE, _key("tokens_per_second_per_gpu")),
            Rate(_A_DEVICE, _key("tokens/train_per_sec_per_gpu")),
            Rate(_ALL, _key("train_tokens_per_second")),
            Rate(_ALL, rf"['\"]learning_rate['\"].*['\"]throughput['\"]:\s*['\"]?{NUMBER}"),
            Rate(_ALL, _key("train_samples_per_second"), " samples/s"),
            Rate("step_seconds", _key("train_steps_per_second"), " steps/s"),
        ),
    ),
    # A rate whose unit says of whom it is, in any words: 3.4k tokens/s/GPU, tokens_per_gpu_per_sec=14500, 408 TFLOP/s/GPU.
    Format(
        "text",
        "",
        (
            Rate(_A_DEVICE, rf"(?i){NUMBER} ?(?:tokens?|tok)(?:{_A_SECOND}{_EACH}|{_EACH}{_A_SECOND}){_UNIT}"),
            Rate(_A_DEVICE, rf"(?i)(?<![a-z])(?:tokens?|tok)(?:{_A_SECOND}{_EACH}|{_EACH}{_A_SECOND}){_NAMES}{NUMBER}"),
            Rate(_A_DEVICE, rf"(?i)(?<![a-z])[tw]ps{_EACH}['\"]?\s*[:=]?\s*['\"]?{NUMBER}"),
            Rate("tflops_per_device", rf"(?i){NUMBER} ?TFLOPs?(?:/s)?{_EACH}{_UNIT}"),
            Rate("tflops_per_device", rf"(?i)(?<![a-z])TFLOPs?(?:/s)?{_EACH}{_NAMES}{NUMBER}"),
        ),
        (
            Said(rf"(?i)\bMFU['\"]?\s*(?:of|is|[:=])?\s*{NUMBER}\s*%", "%"),
            Said(rf"(?i){NUMBER}\s*%\s*MFU\b", "%"),
            Said(rf"(?i){NUMBER} ?TFLOPs?(?:/s)?{_EACH}{_UNIT}", "TFLOP/s"),
            Said(rf"(?i)(?<![a-z])TFLOPs?(?:/s)?{_EACH}{_NAMES}{NUMBER}", "TFLOP/s"),
        ),
    ),
    # tqdm, as Lightning, NeMo 1, Composer and transformers show it: seconds of a step or steps a second.
    Format(
        "tqdm",
        "",
        (
            Rate("step_seconds", rf"{NUMBER}\s*s/(?:it|step|ba|batch)\b"),
            Rate("step_seconds", rf"{NUMBER}\s*(?:it|steps?|ba|batch)/s\b", " steps/s"),
        ),
    ),
)  # fmt: skip

# Lines that tell of no training step, by what they tell of.
_OTHER_STEP = r"(?:validat(?:e|ing|ion)|valid|eval(?:uat(?:e|ing|ion))?|test(?:ing)?|sanity checking|predict(?:ing)?)"
_HEAD = r"(?:^|[|>\]\-]|\bINFO\b:?)\s*"  # of a line, or behind what a logger writes before it
NO_STEP = {
    "a validation step, which is a forward pass alone": rf"(?i)^\s*{_OTHER_STEP}\s*[:|]|{_HEAD}{_OTHER_STEP}\s*(?:\||:(?!\s*[-+\d.])|(?:step|epoch|iter(?:ation)?)\b)|\[{_OTHER_STEP}\]"
    rf"|\bvalid on '|\b{_OTHER_STEP}\b[^%|]*\d%\|",
    "a progress bar of something else than training": r"(?i)\b(?:loading|fetching|downloading|uploading|saving|map|mapping|filter|filtering|tokenizing|packing|generating|extracting|converting|"
    r"processing|preparing|computing|capturing|compiling|adding|creating|reading|writing|resolving)\b[^%|]*\d%\|",
}

# Lines of servers: their tokens are generated, not trained on.
SERVING = (
    ("vLLM", r"Avg (?:prompt|generation) throughput|GPU KV cache size|Maximum concurrency for"),
    ("SGLang", r"gen throughput \(token/s\)|#(?:running-req|token):"),
    ("llama.cpp", r"llama_(?:kv_cache|context|perf|print_timings|model_load)|llm_load|eval time =|KV self size"),
    ("TensorRT-LLM", r"\[TensorRT-LLM\]|token_throughput|Total Output Throughput"),
)


# A rate of which the line does not say whether it is of all devices or of one, and its unit.
OF_WHOM = (
    (rf"(?i)(?<![a-z])(?:\w+_)?(?:tokens?|tok){_A_SECOND}['\"]?\s*[:=]?\s*['\"]?{NUMBER}", "tokens/s"),
    (rf"(?i){NUMBER}\s*(?:tokens?|tok)/s(?:ec(?:ond)?)?{_UNIT}", "tokens/s"),
    (rf"(?i)(?<![\w/])[tw]ps['\"]?\s*[:=]?\s*['\"]?{NUMBER}", "tokens/s"),
    (rf"(?i)(?<![a-z])(?:samples?|sequences?|seqs?){_A_SECOND}{_NAMES}{NUMBER}", "samples/s"),
    (rf"(?i){NUMBER}\s*(?:samples?|sequences?|seqs?)/s(?:ec(?:ond)?)?{_UNIT}", "samples/s"),
)
