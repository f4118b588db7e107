"""The figure of the chapter on checkpointing: what each recompute policy leaves in memory, and what it executes for that."""

from __future__ import annotations

from functools import cache
from typing import Any

from flopkit.arithmetic import maximum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure, need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
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
    "none": {"full": 0, "every": 0, "selective": 0},
    "selective": {"full": 0, "every": 0, "selective": 1},
    "sequential, k = 8": {"full": 0, "every": 8, "selective": 0},
    "sequential, k = 4": {"full": 0, "every": 4, "selective": 0},
    "sequential, k = 2": {"full": 0, "every": 2, "selective": 0},
    "every layer": {"full": 1, "every": 0, "selective": 0},
}
STATES = {
    "16 bytes: mixed, Adam": sum(state_bytes("mixed", "adam")),
    "18 bytes: the same, fp32 gradients": sum(state_bytes("mixed-fp32-gradients", "adam")),
    "10 bytes: mixed, 8-bit Adam": sum(state_bytes("mixed", "adam-8bit")),
    "8 bytes: all bf16, Adam": sum(state_bytes("bf16", "adam")),
}
MEMORIES = {"24 GB": 24e9, "40 GB": 40e9, "80 GB": 80e9, "141 GB": 141e9, "192 GB": 192e9}
KERNELS = {"flash": 1, "math": 0}


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
        "ends": one.ends,
        "products": (full - cores) // model.layers,
        "core": cores // model.layers,  # a pair
        "again": forward.scores_again.flops // model.layers,
        "last": (full - stopped) // model.layers,
        "head": forward.forward.flops - full,
    }


def policy_of_a_step(
    s: Any, *, model: Any, policy: Any, length: Any, batch: Any, kernel: Any, each_param: Any, gpus: Any, memory: Any
) -> None:
    """Memory of one GPU and FLOPs of one step under a recompute policy."""
    tokens, pairs, seen = batch * length, batch * length * length, batch * length * (length + 1) / 2
    core = where(kernel == 1, tokens * model.sums, pairs * model.scores)
    edge, layer = tokens * model.edge, tokens * model.layer + core
    each = where(policy.every > 0, policy.every, 1)
    segments = where(policy.every > 0, model.layers / each, 1)
    in_segments = (segments - 1) * edge + each * layer
    apart = model.layers * (layer - policy.selective * core)
    s.kept = where(policy.full == 1, model.layers * edge, where(policy.every > 0, in_segments, apart))
    s.back = where(policy.full == 1, layer - edge, policy.selective * core)
    s.activations = s.kept + maximum(tokens * model.ends, s.back)
    s.states = each_param * model.params / gpus
    s.total = s.activations + s.states
    s.limit = 1 * memory
    s.used = s.total / memory
    s.fits = where(s.total <= memory, "yes", "no")
    s.without = model.layers * layer + tokens * model.ends
    s.saved = 1 - s.activations / s.without
    s.top = 1.22 * maximum(s.without + s.states, memory)

    of_layer, of_core = tokens * model.products + seen * model.core, seen * model.core
    forward = model.layers * of_layer + tokens * model.head
    whole = policy.full * model.layers + where(
        policy.every > 0, model.layers - each, 0
    )  # layers that are computed again
    ends = policy.full * model.layers + where(policy.every > 0, segments - 1, 0)  # and those whose last product is not
    s.again = whole * of_layer - ends * tokens * model.last + policy.selective * model.layers * of_core
    s.flash = kernel * model.layers * seen * model.again
    s.model_flops = 3 * forward
    s.hardware = s.model_flops + s.again + s.flash
    s.passes = s.hardware / forward
    s.executed = s.hardware / s.model_flops


def recompute_policies() -> Figure:
    """Recompute policies side by side: memory of a GPU, and FLOPs executed for each FLOP of the model."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        from flopkit.arithmetic import vega

        parts = {"states": "weights, gradients, optimiser", "activations": "activations"}
        y = alt.Y(
            "policy:N", title=None, sort=list(POLICIES),
            axis=alt.Axis(labelFontWeight={"condition": {"test": "datum.value == policy", "value": "bold"}, "value": "normal"}),
        )  # fmt: skip
        scale = alt.Scale(domainMin=0, domainMax={"expr": f"({vega(s.top)}) / 1e9"}, nice=False)
        x = {"title": "GB of one GPU", "scale": scale, "axis": alt.Axis(format="~s", tickCount=5, labelBound=True)}
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
                    scale=alt.Scale(domain=list(parts.values()), range=[theme.BLUE, theme.ORANGE]),
                    legend=alt.Legend(columns=2, symbolType="square", labelLimit=0),
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
        words = (
            s.rows.transform_calculate(gigabytes="datum.total / 1e9", label="format(datum.executed, '.3f') + '×'")
            .mark_text(align="left", dx=5, fontWeight=600)
            .encode(y=y, x=alt.X("gigabytes:Q", **x), text="label:N")
        )
        limit = s.now(gigabytes=s.limit / 1e9)
        rule = limit.mark_rule(color=theme.MUTED, strokeDash=[5, 4], strokeWidth=1.5).encode(
            x=alt.X("gigabytes:Q", **x)
        )
        return alt.layer(bars, rule, words)

    large = {"gpus": 512, "memory": "80 GB"}
    return Figure(
        name="recompute-policies",
        title="What each recompute policy leaves in memory, and what it executes",
        alt="Stacked bars of the memory of one GPU, one bar a recompute policy: weights, gradients and optimiser, and activations. Beside each "
        "bar stand the FLOPs executed for each FLOP of the model; a dashed line marks the memory of the GPU, {memory}. For {model} with "
        "sequences of {length}, {batch} on each of {gpus}, {kernel} attention, {policy} takes {total}, {activations} of it activations, and "
        "executes {executed} the model's FLOPs. It fits: {fits}.",
        model=policy_of_a_step,
        controls=[
            choice("policy", "Recompute", POLICIES, value="every layer"),
            choice("model", "Model", {shown: numbers(name) for shown, name in MODELS.items()}, value="Llama-3-8B"),
            slider("length", "Length", steps(512, 131072), value=8192, unit="tokens"),
            slider("batch", "Sequences on a GPU", steps(1, 64), value=1, unit="sequences"),
            choice("kernel", "Attention", KERNELS),
            choice("each_param", "A parameter takes", STATES),
            slider("gpus", "GPUs that share the states", steps(1, 1024), value=8, unit="GPUs"),
            choice("memory", "Memory of a GPU", MEMORIES, value="80 GB"),
        ],
        presets={
            "Llama-3-8B on 8 GPUs": {"model": "Llama-3-8B", "length": 8192, "kernel": "flash", "gpus": 8},
            "The same, scores kept": {"model": "Llama-3-8B", "length": 8192, "kernel": "math", "gpus": 8},
            "GPT-3 of 2020: short, no flash": {"model": "GPT-3 175B", "length": 2048, "kernel": "math", **large},
            "Llama-3-70B, long": {"model": "Llama-3-70B", "length": 32768, "kernel": "flash", **large},
            "Qwen2.5-0.5B on one GPU": {"model": "Qwen2.5-0.5B", "length": 8192, "kernel": "flash", "gpus": 1},
        },
        readouts=[
            readout("activations", "Activations", "B"),
            readout("saved", "Activations saved", "%"),
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
        caption="Memory as Model.train_memory counts it: all parameters trained, activations in bf16 without dropout; no gradients of activations, "
        "no work space, no buffers. FLOPs: matrix products, with the scores of the pairs that the mask lets through (EXACT). A checkpoint of layers stops early, as PyTorch’s non-reentrant one "
        "does. Selective runs both products of the attention core again, as Megatron’s does; with the scores stored, early stop would leave out "
        "the second and halve what it adds. Sequential, k: checkpoint_sequential with segments of k layers; its last segment has no checkpoint, so that all of it is kept, while “every layer” gives the last layer a checkpoint, too. Flash attention computes its scores again in every backward pass; this is among what is executed. The states are shared evenly "
        "(ZeRO-3, FSDP), activations are not. GPT-2 and GPT-3 have learned positions for 1,024 and 2,048 tokens; longer sequences are counted "
        "as if there were more.",
        height=270,
    )
