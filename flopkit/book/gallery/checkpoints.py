"""The figure of the chapter on checkpointing: what each recompute policy leaves in memory, and what it executes for that."""

from __future__ import annotations

from functools import cache
from typing import Any

from flopkit.arithmetic import maximum, minimum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.devices import device, memory_of
from flopkit.models.catalogue import load
from flopkit.training.memory import state_bytes

__all__ = ["policy_of_a_step", "recompute_policies"]

MODELS = {
    "Qwen2.5-0.5B": "qwen2.5-0.5b",
    "GPT-2 XL": "gpt2-xl",
    "Llama-3-8B": "llama-3-8b",
    "Llama-3-70B": "llama-3-70b",
    "GPT-3 175B": "gpt-3-175b",
}
POLICIES: dict[str, dict[str, int]] = {
    "none": {"full": 0, "every": 0, "core": 0},
    "attention core": {"full": 0, "every": 0, "core": 1},
    "segments of 2 layers": {"full": 0, "every": 2, "core": 0},
    "every layer": {"full": 1, "every": 0, "core": 0},
}
STATES = {
    "16 bytes: mixed, Adam": sum(state_bytes("mixed", "adam")),
    "18 bytes: the same, fp32 gradients": sum(state_bytes("mixed-fp32-gradients", "adam")),
    "10 bytes: mixed, 8-bit Adam": sum(state_bytes("mixed", "adam-8bit")),
    "8 bytes: all bf16, Adam": sum(state_bytes("bf16", "adam")),
}
# of one device each: the bytes that a program can use where somebody has read them, else those that the driver reports
CARDS = {
    "RTX 4090 (24 GB)": "rtx-4090",
    "A100 (40 GB)": "a100-sxm-40gb",
    "H100 (80 GB)": "h100-sxm",
    "H200 (141 GB)": "h200-sxm",
    "MI300X (192 GB)": "mi300x",
}
MEMORIES = {shown: memory_of(device(name)) for shown, name in CARDS.items()}
KERNELS = {"flash": 1, "math": 0}
CHUNK = 1024
LOSSES = {"all tokens at once": 0, f"chunks of {CHUNK:,} tokens": 1}


@cache
def numbers(name: str) -> dict[str, Any]:
    """Bytes and FLOPs of a model for a token, or for a pair of tokens that meet: every policy is made of these."""
    model = load(name)
    one = model.train_memory(seq=1)
    scores = model.train_memory(seq=1, kernel="math")
    forward = model.train_step(seq=1)
    cores = model.train_step(seq=1, recompute="selective").checkpointed.flops
    full = model.train_step(seq=1, recompute="full").checkpointed.flops
    stopped = model.train_step(seq=1, recompute="full", early_stop=True).checkpointed.flops
    return {
        "layers": model.layers,
        "params": model.params,
        "edge": one.kept[0].bytes,  # a token, of one layer
        "layer": one.layers // model.layers - sum(each.bytes for each in one.kept if each.core),
        "sums": sum(each.bytes for each in one.kept if each.core),
        "scores": sum(each.bytes for each in scores.kept if each.core),  # a pair
        "logits": 4 * model.vocab,  # a tensor of them in fp32
        "ends": one.ends - 4 * model.vocab,  # without the log-probabilities
        "products": (full - cores) // model.layers,
        "core": cores // model.layers,  # a pair
        "again": forward.scores_again.flops // model.layers,
        "last": (full - stopped) // model.layers,
        "head": forward.forward.flops - full,
    }


def policy_of_a_step(
    s: Any, *, model: Any, policy: Any, length: Any, batch: Any, kernel: Any, loss: Any, each_param: Any, gpus: Any, memory: Any
) -> None:  # fmt: skip
    """Memory of one GPU at its fullest and FLOPs of one step under a recompute policy."""
    tokens, pairs, seen = batch * length, batch * length * length, batch * length * (length + 1) / 2
    core = where(kernel == 1, tokens * model.sums, pairs * model.scores)
    edge, layer = tokens * model.edge, tokens * model.layer + core
    each = where(policy.every > 0, policy.every, 1)
    segments = where(policy.every > 0, model.layers / each, 1)
    in_segments = (segments - 1) * edge + each * layer
    apart = model.layers * (layer - policy.core * core)
    s.kept = where(policy.full == 1, model.layers * edge, where(policy.every > 0, in_segments, apart))
    # log-probabilities, their gradient and that of the logits; when layers run again, these are gone
    s.of_loss = 3 * model.logits * where(loss == 1, minimum(tokens, CHUNK), tokens)
    s.one_chunk = where(tokens <= CHUNK, f"These are no more than {CHUNK:,} tokens, one chunk.", "")
    s.back = where(policy.full == 1, layer - edge, policy.core * core)
    s.rest = maximum(tokens * model.ends + s.of_loss, s.back)
    s.activations = s.kept + s.rest
    s.states = each_param * model.params / gpus
    s.total = s.activations + s.states
    s.limit = 1 * memory
    s.used = s.total / memory
    s.fits = where(s.total <= memory, "yes", "no")
    s.without = model.layers * layer + tokens * model.ends + s.of_loss
    s.saved = 1 - s.activations / s.without
    s.top = 1.3 * maximum(s.without + s.states, memory)

    of_layer, of_core = tokens * model.products + seen * model.core, seen * model.core
    forward = model.layers * of_layer + tokens * model.head
    whole = policy.full * model.layers + where(policy.every > 0, model.layers - each, 0)  # layers that run again
    # and those whose last product does not
    ends = policy.full * model.layers + where(policy.every > 0, segments - 1, 0)
    s.again = whole * of_layer - ends * tokens * model.last + policy.core * model.layers * of_core
    s.flash = kernel * model.layers * seen * model.again
    s.model_flops = 3 * forward
    s.hardware = s.model_flops + s.again + s.flash
    s.passes = s.hardware / forward
    s.executed = s.hardware / s.model_flops


def recompute_policies() -> Figure:
    """Recompute policies side by side: memory of a GPU, and FLOPs executed for each FLOP of the model.

    GPT-2 and GPT-3 are counted past their learned positions, too.
    """

    def chart(s: Any) -> Any:
        alt = need("altair")
        from flopkit.arithmetic import vega

        parts = {
            "states": "weights, gradients, optimiser",
            "kept": "kept by layers",
            "rest": "loss, or a layer run again",
        }
        # the extent: the name of the chosen policy is bold, and wider than Vega reckons with
        y = alt.Y(
            "policy:N", title=None, sort=list(POLICIES),
            axis=alt.Axis(minExtent=128, labelFontWeight={"condition": {"test": "datum.value == policy", "value": "bold"}, "value": "normal"}),
        )  # fmt: skip
        scale = alt.Scale(domainMin=0, domainMax={"expr": f"({vega(s.top)}) / 1e9"}, nice=False)
        x = {"title": "GB of one GPU", "scale": scale, "axis": alt.Axis(format=",~r", tickCount=5, labelBound=True)}
        bars = (
            s.rows.transform_fold(list(parts), as_=["part", "bytes"])
            .transform_calculate(
                gigabytes="datum.bytes / 1e9",
                label=f"({parts})[datum.part]",
                place=f"indexof({list(parts)}, datum.part)",
            )
            .mark_bar()
            .encode(
                y=y,
                x=alt.X("gigabytes:Q", **x),
                color=alt.Color(
                    "label:N",
                    title=None,
                    scale=alt.Scale(domain=list(parts.values()), range=[theme.BLUE, theme.ORANGE, theme.GREEN]),
                    legend=alt.Legend(columns=1, symbolType="square", labelLimit=0),
                ),
                opacity=alt.condition("datum.policy == policy", alt.value(1), alt.value(0.55)),
                order=alt.Order("place:Q"),
                tooltip=[
                    alt.Tooltip("policy:N", title="recompute"),
                    alt.Tooltip("label:N", title="part"),
                    alt.Tooltip("gigabytes:Q", title="GB", format=".4~s"),
                ],
            )
        )
        # in a column of their own, beyond the longest bar and the limit
        words = s.rows.transform_calculate(label="format(datum.executed, '.3f') + '×'")
        look = {"align": "right", "fontWeight": 600}
        words = theme.words(words, look, y=y, x=alt.value("width"), text="label:N")
        limit = s.now(gigabytes=s.limit / 1e9).transform_calculate(label="format(datum.gigabytes, '.0f') + ' GB'")
        at = alt.X("gigabytes:Q", **x)
        rule = limit.mark_rule(color=theme.MUTED, strokeDash=[5, 4], strokeWidth=1.5).encode(x=at)
        name = theme.words(limit, {"align": "left", "dx": 4}, x=at, y=alt.value(7), text="label:N")
        return alt.layer(bars, rule, *name, *words)

    one, large = {"batch": 1, "memory": "H100 (80 GB)"}, {"batch": 1, "gpus": 512, "memory": "H100 (80 GB)"}
    return Figure(
        name="recompute-policies",
        title="What each recompute policy leaves in memory, and what it executes",
        alt="Stacked bars of the memory of one GPU at its fullest, one bar a recompute policy: weights, gradients and optimiser; what the layers keep; "
        "the loss, or a layer that runs again where that is more. Beside each bar stand the FLOPs executed for each FLOP of the model; a dashed "
        "line marks the memory of the GPU, {memory}. For {model} with sequences of {length}, {batch} on each of {gpus}, {kernel} attention and "
        "the loss of {loss}, {policy} takes {total}, {activations} of it activations, and executes {executed} the model's FLOPs. It fits: {fits}.",
        model=policy_of_a_step,
        controls=[
            choice("policy", "Recompute", POLICIES, value="every layer"),
            choice("model", "Model", {shown: numbers(name) for shown, name in MODELS.items()}, value="Llama-3-8B"),
            slider("length", "Length", steps(512, 131072), value=8192, unit="tokens"),
            slider("batch", "Sequences on a GPU", steps(1, 64), value=1, unit="sequences"),
            choice("kernel", "Attention", KERNELS),
            choice("loss", "Loss", LOSSES, idle="one_chunk"),
            choice("each_param", "A parameter takes", STATES),
            slider("gpus", "GPUs that share the states", steps(1, 1024), value=8, unit="GPUs"),
            choice("memory", "Memory of a GPU", MEMORIES, value="H100 (80 GB)"),
        ],
        presets={
            "Llama-3-8B on 8 GPUs": {"model": "Llama-3-8B", "length": 8192, "kernel": "flash", "gpus": 8, **one},
            "The same, scores kept": {"model": "Llama-3-8B", "length": 8192, "kernel": "math", "gpus": 8, **one},
            "GPT-3 of 2020: short, no flash": {"model": "GPT-3 175B", "length": 2048, "kernel": "math", **large},
            "Llama-3-70B, long": {"model": "Llama-3-70B", "length": 32768, "kernel": "flash", **large},
            "Qwen2.5-0.5B on one GPU": {"model": "Qwen2.5-0.5B", "length": 8192, "kernel": "flash", "gpus": 1, **one},
        },
        readouts=[
            readout("activations", "Activations and gradients of the loss", "B"),
            readout("saved", "Of these, saved", "%"),
            readout("states", "Weights, gradients, optimiser", "B"),
            readout("total", "In all", "B"),
            readout("used", "Of the GPU's memory", "%"),
            readout("fits", "Fits"),
            readout("executed", "Executed FLOPs over model FLOPs", "×"),
            readout("passes", "Executed, in forward passes", "×"),
        ],
        rows=along("policy"),
        chart=chart,
        table=[
            column("policy", "Recompute"),
            column("activations", "Activations", "B"),
            column("total", "In all", "B"),
            column("executed", "Executed FLOPs over model FLOPs", "×"),
            column("passes", "In forward passes", "×"),
        ],
        caption="Memory at its fullest: states and activations as Model.train_memory counts them, all parameters trained, bf16, no dropout, and two fp32 "
        "gradients of the loss. Not counted: other gradients of activations, work space, buffers. FLOPs: matrix products under EXACT, with the "
        "scores that flash attention repeats. Checkpoints of layers stop early; the attention core runs to its end. A chunk of the loss runs "
        "backward at once, as in torchtitan, and repeats nothing. The states are shared evenly "
        "(ZeRO-3, FSDP), activations are not. The memory of a GPU is what programs can use, where we know it, else what the driver reports.",
        height=270,
    )
