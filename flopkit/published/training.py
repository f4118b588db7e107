"""Published tables of training: FLOPs, utilisation, days."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from flopkit.models import Attention, Model, load, transformer
from flopkit.models.stacks import passes
from flopkit.models.stacks.parts import Run
from flopkit.published.rows import Row, read, span

__all__ = [
    "chinchilla",
    "deepseek",
    "korthikanti",
    "llama_3",
    "llm_foundry",
    "llm_foundry_printed",
    "llm_foundry_runs",
    "nanogpt",
    "narayanan",
    "palm",
]

MPT = {  # d_model, heads, layers: scripts/train/yamls/pretrain/mpt-*.yaml
    "125m": (768, 12, 12), "350m": (1024, 16, 24), "760m": (1536, 12, 24), "1b": (2048, 16, 24), "3b": (2560, 20, 32), "7b": (4096, 32, 32),
    "13b": (5120, 40, 40), "30b": (7168, 56, 48), "70b": (8192, 64, 80),
}  # fmt: skip


@cache
def gpt(d_model: int, heads: int, layers: int, vocab: int, positions: int, *, bias: bool = True) -> Model:
    """A GPT: learned positions, a plain MLP of four times the width, a tied head."""
    return transformer(
        name="GPT", d_model=d_model, heads=heads, layers=layers, vocab=vocab, d_ff=4 * d_model, act="gelu", gated=False, rotary=0,
        norm="layer", norm_bias=bias, bias=bias, tied=True, positions=positions,
    )  # fmt: skip


def llm_foundry_printed() -> list[dict[str, str]]:
    """MosaicML's 216 training runs of MPT models as they are printed, in the README's order, each value as text.

    Keys: *model*, *seq_len* (tokens), *n_gpus*, *gpu*, *precision*, *activation_checkpointing* ("True": every layer is recomputed),
    *tokens_per_s* (of all GPUs, cut to a whole number), *mfu_pct*, *hfu_pct*, *model_tflops_per_gpu*, *n_params*.

    >>> llm_foundry_printed()[0]["tokens_per_s"]
    '515636'
    """
    lines = (files("flopkit") / "data" / "published" / "llm_foundry.csv").read_text("utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def llm_foundry() -> Iterator[Row]:
    """MosaicML's 216 runs: parameters, MFU and HFU from the printed tokens/s, model TFLOP/s."""
    for number, run in enumerate(llm_foundry_printed(), start=1):
        seq, gpus, rate = int(run["seq_len"]), int(run["n_gpus"]), int(run["tokens_per_s"])
        model = gpt(*MPT[run["model"]], 50368, seq)
        recompute = "full" if run["activation_checkpointing"] == "True" else "none"
        step = model.train_step(seq=seq, recompute=recompute).under("LLM_FOUNDRY")
        peak = 312e12 if run["gpu"].startswith("a100") else 1979e12 if "fp8" in run["precision"] else 989.5e12
        where = f"{number}: {run['model']}, {seq} tokens, {gpus} × {run['gpu']}, {run['precision']}"

        def rates(flops: Any, unit: float, rate: int = rate, seq: int = seq, gpus: int = gpus) -> tuple[float, float]:
            return flops / seq * rate / gpus / unit, flops / seq * (
                rate + 1
            ) / gpus / unit  # tokens/s are cut to a whole number

        yield Row("llm_foundry", where, "parameters", run["n_params"], (model.params,) * 2)
        yield Row("llm_foundry", where, "MFU, %", f"{float(run['mfu_pct']):.2f}", rates(step.model_flops, peak / 100))
        yield Row(
            "llm_foundry", where, "HFU, %", f"{float(run['hfu_pct']):.2f}", rates(step.hardware_flops, peak / 100)
        )
        yield Row(
            "llm_foundry", where, "TFLOP/s a GPU", run["model_tflops_per_gpu"], rates(step.model_flops, 1e12), cut=True,
            why="the printed tokens/s, cut to a whole number, fall short of the printed TFLOP/s by five parts in a million or less",
        )  # fmt: skip


def llm_foundry_runs() -> Iterator[dict[str, Any]]:
    """The same runs as the arguments of `doctor`, with the MFU that is printed as *reported* (0.4125).

    >>> run = next(llm_foundry_runs())
    >>> run["device"], run["count"], run["tokens_per_s"], run["reported"]
    ('h100-sxm', 512, 515636, 0.4125)
    """
    for run in llm_foundry_printed():
        seq = int(run["seq_len"])
        yield {
            "model": gpt(*MPT[run["model"]], 50368, seq),
            "seq": seq,
            "device": "h100-sxm" if run["gpu"].startswith("h100") else f"a100-sxm-{run['gpu'][5:]}",
            "dtype": "fp8" if "fp8" in run["precision"] else "bf16",
            "count": int(run["n_gpus"]),
            "tokens_per_s": int(run["tokens_per_s"]),
            "reported": round(float(run["mfu_pct"]) / 100, 4),
        }


def narayanan() -> Iterator[Row]:
    """Megatron-LM 2021: parameters of table 1, days of table 2 from the printed TFLOP/s, and the two days in the text."""
    data = read("narayanan_2021")
    vocab, seq = data["vocab"], data["seq"]
    sizes = {}
    for billions, heads, hidden, layers in data["models"]:
        model = gpt(hidden, heads, layers, vocab, seq)
        sizes[billions] = model
        yield Row("narayanan_2021", f"{billions} B", "parameters, 10⁹", f"{billions:.1f}", (model.params / 1e9,) * 2)
    sizes[174.6] = gpt(12288, 96, 96, vocab, seq)

    def days(billions: float, tokens: float, gpus: int, tflops: float) -> tuple[float, float]:
        step = sizes[billions].train_step(seq=seq, recompute="full").under("MEGATRON_2021")
        return span(lambda rate: tokens * step.hardware_flops / seq / (gpus * rate * 1e12) / 86400, tflops, 0.5)

    for scheme, billions, batch, gpus, tflops, printed in data["runs"]:
        where = f"{scheme}, {billions} B, {gpus} GPUs, batch {batch}"
        yield Row(
            "narayanan_2021",
            where,
            "days for 300 B tokens",
            str(printed),
            days(billions, 300e9, gpus, tflops),
            why=_DAYS,
        )
    for where, billions, tokens, gpus, tflops, printed in (
        ("text: GPT-3, 1,024 GPUs", 174.6, 300e9, 1024, 140, 34), ("text: 1 T, 3,072 GPUs", 1008.0, 450e9, 3072, 163, 84),
    ):  # fmt: skip
        yield Row("narayanan_2021", where, "days", str(printed), days(billions, tokens, gpus, tflops), why=_DAYS)


_DAYS = "the text takes 8·tokens·parameters for the work of a run, which leaves out the scores of attention"


def korthikanti() -> Iterator[Row]:
    """Sequence parallelism and selective recompute, 2022: MFU and HFU from the printed seconds."""
    data = read("korthikanti_2022")
    seq, peak = data["seq"], data["peak"]
    for name, heads, hidden, layers, gpus, batch, seconds, mfu, hfu in data["runs"]:
        model = gpt(hidden, heads, layers, data["vocab"], seq)
        step = model.train_step(seq=seq, batch=batch, recompute="selective").under("MEGATRON_2022")
        for quantity, flops, printed in (("MFU, %", step.model_flops, mfu), ("HFU, %", step.hardware_flops, hfu)):
            ours = span(lambda s, f=flops, n=gpus: 100 * f / (s * n * peak), seconds, 0.005)
            yield Row("korthikanti_2022", name, quantity, f"{printed:.1f}", ours, why=_SELECTIVE)
    gpus, batch, seconds, mfu = data["larger"]
    step = gpt(20480, 128, 105, data["vocab"], seq).train_step(seq=seq, batch=batch).under("MEGATRON_2022")
    ours = span(lambda s: 100 * step.model_flops / (s * gpus * peak), seconds, 0.005)
    yield Row("korthikanti_2022", "530B, 2,240 GPUs", "MFU, %", f"{mfu:.1f}", ours)


_SELECTIVE = (
    "scores and values of a step are s/(6h) of the layers' products, for sequences of s tokens and width h. Computing them once more in the "
    "backward pass adds a third, which makes 2s/(9h). The printed equation has s/(3h), twice s/(6h)"
)


def nanogpt() -> Iterator[Row]:
    """nanoGPT's notebook: every product of GPT-2 at 1,024 tokens."""
    printed = read("nanogpt")["outputs"]
    model = gpt(768, 12, 12, 50257, 1024, bias=False)
    layer = model.layer(seq=1024).under("TORCH")
    inside = passes.layer(model, model.blocks[0][0], Run(1, 1024, 1024))
    parts = {part.matrix or part.role: part.cost.under("TORCH").flops for part in inside}
    forward, step = model.forward(seq=1024).under("TORCH"), model.train_step(seq=1024).under("TORCH")
    projections = parts["q_proj"] + parts["k_proj"] + parts["v_proj"]
    attention = projections + parts["core"] + parts["o_proj"]
    head = forward.parts[-1].flops
    ours = {
        "params_total": model.params, "attention_kqv": projections, "attention_scores": parts["core"] / 2,
        "attention_reduce": parts["core"] / 2, "attention_proj": parts["o_proj"], "attention": attention,
        "mlp_ffw1": parts["up_proj"], "mlp": parts["up_proj"] + parts["down_proj"], "block": layer.flops,
        "transformer": forward.flops - head, "dense": head, "forward_total": forward.flops, "backward_total": step.backward.flops,
        "total": step.model_flops, "palm_flops": step.under("NANOGPT").model_flops,
        "palm_ratio": step.under("NANOGPT").model_flops / step.model_flops,
    }  # fmt: skip
    for quantity, value in ours.items():
        yield Row("nanogpt", "GPT-2 124M", quantity, f"{printed[quantity]}", (value, value))
    work = 100 * step.under("NANOGPT").model_flops * printed["batch"] / 312e12
    share = span(lambda seconds: work / seconds, printed["iter_s"], 0.0005)
    yield Row("nanogpt", "GPT-2 124M", "fraction_a100_pct", f"{printed['fraction_a100_pct']}", share)


def chinchilla() -> Iterator[Row]:
    """Chinchilla's table A4: FLOPs by 6ND, as the table counts them. Its text, appendix F, gives other ratios."""
    data = read("chinchilla_a4")
    for name, layers, d_model, d_ff, heads, head_dim, ratio in data["rows"]:
        attention = Attention(heads=heads, kv_heads=heads, head_dim=head_dim, rotary=0, position_keys=True)
        model = transformer(
            name=name, d_model=d_model, layers=layers, attention=attention, vocab=data["vocab"], d_ff=d_ff, act="gelu", gated=False,
            tied=True,
        )  # fmt: skip
        step = model.train_step(seq=data["seq"])
        value = step.under("CHINCHILLA_TABLE").model_flops / step.under("SIX_N").model_flops
        yield Row("chinchilla_a4", name, "FLOPs by 6ND", f"{ratio:.2f}", (value, value))


def palm() -> Iterator[Row]:
    """PaLM's table 3: MFU with and without attention. GPT-3's row says neither how many GPUs nor how many tokens a second, Gopher's no batch."""
    for entry in read("palm_table_3")["rows"]:
        name, given = entry["model"], entry["inputs"]
        if name == "GPT-3":
            step = load("gpt-3-175b").train_step(seq=2048)
            ratio = step.under("PALM").model_flops / step.under("SIX_N").model_flops
            value = 100 * given["non_attention_model_tflops_per_gpu"] * ratio / 125
            yield Row("palm_table_3", name, "MFU, %", "21.3", (value, value), why=_GPT_3)
            continue
        step = load({"Gopher": "gopher-280b", "PaLM": "palm-540b"}.get(name, "mt-nlg-530b")).train_step(seq=2048)
        rate = given.get("tokens_per_s") or given["steps_per_s"] * given["batch_tokens_final"]
        peak = given["peak_per_chip"] * (given.get("n") or 4096)
        for quantity, convention, key in (
            ("MFU, %", "PALM", "mfu_pct"),
            ("MFU without attention, %", "SIX_N", "mfu_no_attn_pct"),
        ):
            if key in entry:
                value = 100 * step.under(convention).flops_per_token * rate / peak
                yield Row(
                    "palm_table_3",
                    name,
                    quantity,
                    f"{entry[key]:.1f}",
                    (value, value),
                    assumed=_GOPHER if name == "Gopher" else "",
                )


_GPT_3 = (
    "the paper takes 24.6 TFLOP/s a V100 without attention from Patterson et al. 2021; with the V100's 125 TFLOP/s that is 19.7 %, and "
    "attention makes it 20.2 %"
)
_GOPHER = (
    "the paper gives 0.0152 steps a second, from Gopher's authors, and no batch. Gopher's paper says that the batch grew from three to six "
    "million tokens. We take the last, read as 6 · 2²⁰ tokens; 6,000,000 gives 31.0 %, and the first, 3 · 2²⁰, gives 16.2 %"
)


def llama_3() -> Iterator[Row]:
    """Llama 3: the training of the 405B. MFU in table 4 is printed TFLOP/s by the peak, plain arithmetic."""
    tokens, printed = read("llama_3")["training"]
    flops = load("llama-3.1-405b").train_step(seq=8192).under("SIX_N").flops_per_token * tokens
    yield Row("llama_3", "405B, 15.6 T tokens", "FLOPs, 10²⁵", f"{printed / 1e25:.1f}", (flops / 1e25,) * 2)


def deepseek() -> Iterator[Row]:
    """DeepSeek-V3: the cache of a token, FLOPs of a token, and what 2,048 GPUs do in a day."""
    data = read("deepseek_v3")
    names = {
        "DeepSeek-V3 (MLA)": "deepseek-v3",
        "Qwen-2.5 72B (GQA)": "qwen2.5-72b",
        "LLaMA-3.1 405B (GQA)": "llama-3.1-405b",
    }
    for name, kilobytes in data["kv"]:
        yield Row(
            "deepseek_v3",
            name,
            "cache of a token, kB",
            f"{kilobytes:.3f}",
            (load(names[name]).kv_bytes(context=1) / 1e3,) * 2,
        )
    for name, printed in data["training"]:
        known = {"qwen-72b": "qwen2.5-72b", "llama3-405b": "llama-3.1-405b"}.get(name, name)
        value = load(known).train_step(seq=4096).under("DEEPSEEK").flops_per_token / 1e9
        yield Row("deepseek_v3", name, "training, GFLOPs a token", f"{printed}", (value, value), why=_OTHERS)
    step = load("deepseek-v3").train_step(seq=4096)
    for net, billions, full, causal, mfu_full, mfu_causal in data["table4"]:
        for convention, rate, mfu in (("MEGATRON_2021", full, mfu_full), ("DEEPSEEK", causal, mfu_causal)):
            per_token = step.under(convention).flops_per_token
            half = 0.05 if billions == 272.8 else 0.005
            ours = span(lambda b, f=per_token: f * b * 1e9 / 86400 / data["gpus"] / 1e12, billions, half)
            yield Row("deepseek_v3", f"{net}, {convention}", "TFLOP/s a GPU", f"{rate}", ours)
            shares = tuple(100 * value / 989 for value in ours)
            yield Row("deepseek_v3", f"{net}, {convention}", "MFU, %", f"{mfu:.2f}", (shares[0], shares[1]))


_OTHERS = (
    "unexplained. DEEPSEEK, the convention that gives the paper's rows of V2 and V3, gives more here. 6N gives 436 GFLOPs for Qwen, which is "
    "more than printed, and 2,435 for Llama, which is less. The paper does not say what it counts"
)
