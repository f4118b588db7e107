"""Formats of logs: by which words a line is known, and where its rate and its utilisation stand."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "FORMATS",
    "GENERATES",
    "GENERATION",
    "ITEMS",
    "NO_STEP",
    "NUMBER",
    "OF_WHOM",
    "SERVING",
    "Format",
    "Rate",
    "Said",
]

NUMBER = r"(\d(?:[\d.,]*\d)?(?:[eE][+-]?\d+)?(?:[kKMGT](?![\w/]))?)"
"""A number as logs print it: 6,667, 1.07e+04 or 11.4K."""


class Rate(NamedTuple):
    """Where a rate stands: the argument of `doctor`, a pattern of which a group is the number, and the unit behind it."""

    argument: str
    pattern: str
    unit: str = ""


class Said(NamedTuple):
    """Where a utilisation stands: a pattern, and its unit, ``"%"``, ``"TFLOP/s"``, ``"share"``, ``"share or %"`` (below 1 and from 10 on), or
    ``"mean %"``, of which the last digits say nothing."""

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


def _named(unit: str) -> str:
    """A unit before its number."""
    return rf"(?i)(?<![a-z]){unit}(?:{_NAMES}|\s+){NUMBER}"


_MS = r"elapsed time per iteration \(ms\):\s*" + NUMBER
_S = r"elapsed time per iteration \(s\):\s*" + NUMBER
_GLOBAL = r"global batch size:\s*(\d[\d,]*)"
_A_DEVICE, _ALL = "tokens_per_s_per_device", "tokens_per_s"
_A_SECOND = r"(?:[-_ ]per[-_ ]|/)s(?:ec(?:ond)?)?"
_CARD = r"(?:TPU[- ]?v?\d\w*(?:[- ](?:chip|lite))?|G?[ABHLV]\d{2,3}[a-z]?|MI\d{3}[a-z]?|Gaudi ?\d)"
_EACH = rf"(?:[-_ ]per[-_ ]|/)(?:gpu|device|chip|npu|xpu|card|p(?=/s)|{_CARD})"
_UNIT, _NAMES = r"\b(?!['\"]?\s*[:=])", r"['\"]?\)?\s*[:=]\s*['\"]?"  # behind a number, or before one
_ALONE = rf"(?<![\w.,]){NUMBER}"  # and no part of a word or of another number
_MFU = r"(?<![a-z])MFU(?:/HFU)?['\"]?"
_TOKENS_EACH = rf"(?:tokens?|toks?)(?:{_A_SECOND}{_EACH}|{_EACH}{_A_SECOND})"
_SAMPLES_EACH = rf"(?:samples?|sequences?|seqs?)(?:{_A_SECOND}{_EACH}|{_EACH}{_A_SECOND})"
_FLOPS_EACH = rf"FLOPs?(?:{_A_SECOND}{_EACH}|{_EACH}(?:{_A_SECOND})?)"  # TFLOPs/s/GPU, TFLOPs/GPU/s, TFLOPs/GPU

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
        r"^(?!.*(?:\bTFLOPs:|approx flops per GPU)).*(?:elapsed time per iteration \(ms\):|Step Time\s*:.*(?:GPU utilization|tok/s/gpu)|[Tt]hroughput(?: per GPU \(TFLOP/s/GPU\)|:\s*[\d.]+ TFLOP/s/GPU))",
        (
            Rate("step_seconds", _MS, " ms"),
            Rate(_A_DEVICE, rf"Step Time\s*:.*?{NUMBER} tok/s/gpu"),
            Rate("step_seconds", rf"Step Time\s*:\s*{NUMBER}s\b"),
            Rate(_A_DEVICE, rf"(?i)\|\s*{_TOKENS_EACH}\s*:\s*{NUMBER}"),
            Rate(_A_DEVICE, rf"tokens per GPU \(tokens/s/GPU\):\s*{NUMBER}"),
            Rate("tflops_per_device", rf"throughput per GPU \(TFLOP/s/GPU\):\s*{NUMBER}"),
            Rate("tflops_per_device", rf"[Tt]hroughput:\s*{NUMBER} TFLOP/s/GPU(?!.*\bCumulative throughput:)"),  # else that of the job alone
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
            Rate(_A_DEVICE, rf"train_step_timing in s[:=].*tokens_per_sec_per_gpu(?:_refined)?[:=]\s*{NUMBER}"),
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
    # lightning/fabric/utilities/throughput.py: samples are what the loop calls so, and items are lengths, in litgpt tokens.
    Format(
        "Lightning",
        r"(?<!throughput/)\bdevice/(?:samples|items)_per_sec\b",
        (Rate(_A_DEVICE, _key(r"device/samples_per_sec"), " samples/s"),),
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
    # karpathy/llm.c, train_gpt2.cu and train_gpt2.py: tok/s are those of all devices.
    Format(
        "llm.c",
        r"\bMFU \| [\d.]+ tok/s|\([\d.]+ ms \| [\d.]+ tok/s\)",
        (Rate(_ALL, rf"(?:MFU|ms) \| {NUMBER} tok/s"),),
        (Said(rf"\|\s*{NUMBER}% (?:A100 )?[bf][fp]16 MFU", "%"),),
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
        r"FLOPS per GPU =|\b(?:RunningAvg|Curr)?SamplesPerSec=|iter time \(s\):",
        (
            Rate(_ALL, rf"samples/second:\s*{NUMBER}", " samples/s"),
            Rate(_ALL, rf"\bCurrSamplesPerSec=\s*{NUMBER}", " samples/s"),
            Rate(_ALL, rf"\b(?:RunningAvg)?SamplesPerSec=\s*{NUMBER}", " samples/s"),
            Rate(_ALL, rf"iter time \(s\): [\d.]+ samples/sec:\s*{NUMBER}", " samples/s"),
        ),
        (Said(rf"(?<!fwd )(?<!bwd )FLOPS per GPU = [^:]*iter latency:\s*{NUMBER}\s*TFLOPS", "TFLOP/s"),),
    ),
    # DeepSpeed-Chat, dschat/utils/perf.py: a device's own samples, and its FLOPs once more by the number of devices.
    Format(
        "DeepSpeed-Chat",
        r"Latency: [\d.]+s, TFLOPs: .* Time/seq [\d.]+s, .*(?<!Total )Sequence Length:",
        (Rate(_A_DEVICE, rf"Samples/sec:\s*{NUMBER}", " samples/s"),),
        (Said(rf"TFLOPs:\s*{NUMBER}", "TFLOP/s"),),
    ),
    # Oneflow-Inc/libai, utils/events.py: samples of the global batch.
    Format("LiBai", "total_throughput: .* samples/s", (Rate(_ALL, rf"total_throughput:\s*{NUMBER} samples/s", " samples/s"),)),
    # ml-explore/mlx-lm, tuner/trainer.py, and mlx-vlm: tokens of all processes, without padding.
    Format("MLX-LM", r"It/sec [\d.]+, Tokens/sec", (Rate(_ALL, rf"Tokens/sec {NUMBER}"),)),
    # mlfoundations/open_lm, train.py: inputs.numel(), called samples; OpenCLIP's own line has images and a Logit Scale.
    Format("open_lm", r"^(?!.*Logit Scale).*Batch \(t\): [\d.]+, \S+/s, \S+/s/gpu", (Rate(_A_DEVICE, rf", {NUMBER}/s/gpu"),)),
    # karpathy/nanoGPT, train.py: over an A100's peak, whatever runs, and an average over ten steps. How many sequences a step has
    # it does not print.
    Format(
        "nanoGPT",
        r"\biter \d+:\s+loss \S+,\s+time",
        (Rate("step_seconds", rf"\biter \d+:\s+loss \S+,\s+time {NUMBER}\s*ms", " ms"),),
        (Said(rf"\bmfu {NUMBER}%", "mean %"),),
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
        (Said(_key("mfu"), "share or %"),),
    ),
    # A rate whose unit says of whom it is, in any words: 3.4k tokens/s/GPU, tokens_per_gpu_per_sec=14500, 408 TFLOP/s/GPU.
    Format(
        "text",
        "",
        (
            Rate(_A_DEVICE, rf"(?i){_ALONE} *{_TOKENS_EACH}{_UNIT}"),
            Rate(_A_DEVICE, _named(_TOKENS_EACH)),
            Rate(_A_DEVICE, rf"(?i){_ALONE} *{_SAMPLES_EACH}{_UNIT}", " samples/s"),
            Rate(_A_DEVICE, rf"(?i)(?<![a-z]){_SAMPLES_EACH}{_NAMES}{NUMBER}", " samples/s"),
            Rate(_A_DEVICE, rf"(?i)(?<![a-z])[tw]ps{_EACH}['\"]?\s*[:=]?\s*['\"]?{NUMBER}"),
            Rate("tflops_per_device", rf"(?i){_ALONE} *T{_FLOPS_EACH}{_UNIT}"),
            Rate("tflops_per_device", _named(f"T{_FLOPS_EACH}")),
            Rate("tflops_per_device", rf"(?i)(?<![a-z]){_FLOPS_EACH}{_NAMES}{NUMBER} ?TFLOP"),
            Rate("tflops_per_device", rf"(?i){_ALONE} *P{_FLOPS_EACH}{_UNIT}", " PFLOP/s"),
        ),
        (
            Said(rf"(?i){_MFU}\s*(?:of|is|[:=])?\s*{_ALONE}\s*(?:%|per ?cent)", "%"),
            Said(rf"(?i){_ALONE}\s*%\s*(?:(?:bf16|fp8|fp16) )?MFU\b", "%"),
            Said(rf"(?i)(?<![a-z])MFU(?:_percent|_pct|\s*\(%\))(?:{_NAMES}|\s+){NUMBER}", "%"),
            Said(rf"(?i){_MFU}\s+(0?\.\d+)(?![\d%]|\s*%)", "share"),
            Said(rf"(?i){_MFU}\s*(?:of|is|[:=])\s*{_ALONE}(?![-–—\d%]|\s*%)", "share or %"),
            Said(rf"(?i){_ALONE} *T{_FLOPS_EACH}{_UNIT}", "TFLOP/s"),
            Said(_named(f"T{_FLOPS_EACH}"), "TFLOP/s"),
        ),
    ),
    # tqdm, as Lightning, NeMo 1, Composer and transformers show it: seconds of a step or steps a second.
    Format(
        "tqdm",
        "",
        (
            Rate("step_seconds", rf"(?<!data: )(?<!data )(?<!data_time: )(?<!data_time=){_ALONE}\s*s(?:ec)?/(?:it|step|ba|batch)\b"),
            Rate("step_seconds", rf"{_ALONE}\s*(?:it|iterations?|steps?|ba|batch(?:es)?)/s(?:ec)?\b", " steps/s"),
            Rate("step_seconds", rf"(?<![\w/])(?:iterations?|steps?)/s(?:ec)?{_NAMES}{NUMBER}", " steps/s"),
            Rate("step_seconds", rf"(?<![\w/])s(?:ec)?/(?:it|iteration|step){_NAMES}{NUMBER}"),
        ),
    ),
)  # fmt: skip

# Lines that tell of no training step, by what they tell of.
_OTHER_STEP = r"(?:validat(?:e|ing|ion)|valid|eval(?:uat(?:e|ing|ion))?|test(?:ing)?|sanity checking|predict(?:ing)?)"
_HEAD = r"(?:^|[|>\]\-]|\bINFO\b:?)\s*"  # of a line, or behind what a logger writes before it
GENERATES = "a step of reinforcement learning, whose time has the generation in it"
NO_STEP = {
    "a validation step, which is a forward pass alone": rf"(?i)^\s*{_OTHER_STEP}\s*[:|]|{_HEAD}{_OTHER_STEP}\s*(?:\||:(?!\s*[-+\d.])|(?:step|epoch|iter(?:ation)?)\b)|\[{_OTHER_STEP}\]"
    rf"|^(?!.*\btrain_).*\b(?:eval|test|predict)_(?:samples|steps)_per_second\b|\bvalid on '|\b{_OTHER_STEP}\b[^%|]*\d%\|",
    GENERATES: r"\bGenerate time=|End-to-End => Latency|['\"](?:completion_length|completions/\w+|reward_std|objective/kl)['\"]",
    "a progress bar of something else than training": r"(?i)\b(?:loading|fetching|downloading|uploading|saving|map|mapping|filter|filtering|tokenizing|packing|generating|extracting|converting|"
    r"processing|preparing|computing|capturing|compiling|adding|creating|reading|writing|resolving|rollouts?|inference|sampling|calibrating|"
    r"quanti[sz]ing|benchmark(?:ing)?|encoding|embedding|scoring|collecting|merging|pruning|exporting)\b[^%|]*\d%\|",
}

# Lines of servers, and of what measures them: their tokens are generated, not trained on.
_MADE = r"(?:output|generated|generation|decod(?:e|ing)|prefill|prompt|eval)"
SERVING = (
    ("vLLM", r"Avg (?:prompt|generation) throughput|GPU KV cache size|Maximum concurrency for|Serving Benchmark Result|requests/s, [\d.]+ (?:total )?tokens/s"),
    ("SGLang", r"gen throughput \(token/s\)|#(?:running-req|token):|(?:Prefill|Decode)\. +latency:"),
    ("llama.cpp", r"llama_(?:kv_cache|context|perf|print_timings|model_load)|llm_load|eval time =|KV self size|[GM]iB \|.*\| *(?:pp|tg) ?\d+ *\|"),
    ("TensorRT-LLM", r"\[TensorRT-LLM\]|token_throughput|Total Output Throughput|Per GPU Output Throughput"),
)  # fmt: skip


# The same in anybody's words.
GENERATION = (
    rf"(?i)\b{_MADE}[ _-](?:tok(?:en)?s?|rate|throughput|speed|MFU)\b|\b(?:TTFT|TPOT)\b|\breq(?:uests?)?/s\b|\bconcurrent (?:users|requests)\b"
     r"|\bgenerat(?:es?|ing)\b|\b(?:prompt|generation): \d+ tokens|\btokens?/s generation|\bprompt processing\b|\bfirst token\b|\btime for inference\b"
)  # fmt: skip

ITEMS = _key("device/items_per_sec")
"""Lightning's lengths a second, where it says nothing of samples."""

# A rate of which the line does not say whether it is of all devices or of one, and its unit.
OF_WHOM = (
    (rf"(?i)(?<![a-z])(?:\w+_)?(?:tokens?|toks?){_A_SECOND}['\"]?\s*[:=]?\s*['\"]?{NUMBER}", "tokens/s"),
    (rf"(?i){NUMBER}\s*(?:tokens?|toks?){_A_SECOND}{_UNIT}", "tokens/s"),
    (rf"(?i)(?<![\w/])[tw]ps['\"]?\s*[:=]?\s*['\"]?{NUMBER}", "tokens/s"),
    (rf"(?i)(?<![a-z])(?:samples?|sequences?|seqs?){_A_SECOND}{_NAMES}{NUMBER}", "samples/s"),
    (rf"(?i){NUMBER}\s*(?:samples?|sequences?|seqs?)/s(?:ec(?:ond)?)?{_UNIT}", "samples/s"),
)
