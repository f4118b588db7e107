"""The figure of the chapter on checkpointing: what each recompute policy leaves in memory, and the time that it takes for that."""

from __future__ import annotations

from functools import cache
from typing import Any

from flopkit.arithmetic import maximum, minimum, where
from flopkit.book.drawings.recipes import CHUNK, cheap_bytes, loss_bytes
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
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
_NOTHING: dict[str, float] = {"layers": 0, "every": 0, "core": 0, "cheap": 0, "second": 0}
POLICIES: dict[str, dict[str, float]] = {
    "none": _NOTHING,
    "attention core": {**_NOTHING, "core": 1},
    "norms and activation": {**_NOTHING, "cheap": 1},
    "these + every 2nd matmul": {**_NOTHING, "cheap": 1, "second": 1},
    "every 2nd layer": {**_NOTHING, "layers": 0.5},
    "segments of 2 layers": {**_NOTHING, "every": 2},
    "segments of 4 layers": {**_NOTHING, "every": 4},
    "every layer": {**_NOTHING, "layers": 1},
}
"""A policy: the share of the layers that run again one by one, the layers of a segment, and what of a layer runs again."""
COLOURS = [theme.INK, theme.PURPLE, theme.BLUE, theme.SKY, theme.AMBER, theme.GREEN, theme.MUTED, theme.ORANGE]
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
GPUS = {
    shown: {"memory": memory_of(device(name)), "peak": device(name).peak("bf16"), "bandwidth": device(name).bandwidth}
    for shown, name in CARDS.items()
}
KERNELS = {"flash": 1, "math": 0}
LOSSES = {"all tokens at once": 0, f"chunks of {CHUNK:,} tokens": 1}


RECIPES = [(policy, loss) for policy in POLICIES for loss in LOSSES.values()]


@cache
def numbers(name: str) -> dict[str, Any]:
    """Bytes and FLOPs of a model for a token, or for a pair of tokens that meet: every policy is made of these."""
    model: Any = load(name)
    one = model.train_memory(seq=1)
    scores = model.train_memory(seq=1, kernel="math")
    forward = model.train_step(seq=1)
    cores = model.train_step(seq=1, recompute="selective").checkpointed.flops
    full = model.train_step(seq=1, recompute="full").checkpointed.flops
    stopped = model.train_step(seq=1, recompute="full", early_stop=True).checkpointed.flops
    kept = {each.name: each.bytes for each in one.kept}
    block = model.blocks[0][0]
    # of an operator, for a token more; a norm's gain is read once
    more = {
        two.name: two.bytes - one.bytes
        for one, two in zip(model.layer(seq=1).parts, model.layer(seq=2).parts, strict=True)
        if not one.flops
    }
    cheap = [
        bytes_ for part, bytes_ in more.items() if part.endswith("_norm") or part in ("swiglu", "gelu", "gelu_tanh")
    ]
    # a layer that keeps the activated gate has SiLU and the product in a kernel each: the first writes it, the second reads it
    between = 2 * kept.get("activated gate", 0)
    matrix = 2 * model.d_model * block.mixer.heads * block.mixer.head_dim  # FLOPs of the output projection
    return {
        "layers": model.layers,
        "params": model.params,
        "edge": one.kept[0].bytes,  # a token, of one layer
        "layer": one.layers // model.layers - sum(each.bytes for each in one.kept if each.core),
        "sums": sum(each.bytes for each in one.kept if each.core),
        "scores": sum(each.bytes for each in scores.kept if each.core),  # a pair
        # a pair, by the softmax of a math kernel, and as much by its products: once read, once written
        "scores_moved": 2 * 2 * block.mixer.heads,
        "logits": 4 * model.vocab,  # a tensor of them in fp32
        "ends": one.ends - 4 * model.vocab,  # without the log-probabilities
        "products": (full - cores) // model.layers,
        "core": cores // model.layers,  # a pair
        "again": forward.scores_again.flops // model.layers,
        "last": (full - stopped) // model.layers,
        "head": forward.forward.flops - full,
        # norms and activation: what need not be kept, and the bytes that running them again moves
        "cheap": cheap_bytes(one.kept),
        "cheap_moved": sum(cheap) + between,
        # of all such operators; the last one's result is not needed
        "vector_moved": sum(more.values()) - more["mlp_sum"] + between,
        # of qkv, output, gate, up and down every second one: up of a gated MLP runs again, and the output of down is kept in place of the
        # input of the MLP's norm; of a plain MLP, whose down need not run, only this input goes
        "second": kept["up"] if block.mlp.gated else kept["mlp_norm, input"],
        "second_again": matrix + 2 * model.d_model * block.mlp.d_ff * block.mlp.gated,
    }


def policy_of_a_step(
    s: Any, *, policy: Any, model: Any, length: Any, batch: Any, kernel: Any, loss: Any, each_param: Any, gpus: Any, device: Any
) -> None:  # fmt: skip
    """Memory of one GPU at its fullest, FLOPs of one step and least time of what it repeats, under a recompute policy."""
    s.tokens, s.pairs, s.seen = batch * length, batch * length * length, batch * length * (length + 1) / 2
    s.states = each_param * model.params / gpus
    s.limit = 1 * device.memory
    s.core = where(kernel == 1, s.tokens * model.sums, s.pairs * model.scores)
    s.layer = s.tokens * model.layer + s.core
    s.of_core = s.seen * model.core
    s.of_layer = s.tokens * model.products + s.of_core
    s.forward = model.layers * s.of_layer + s.tokens * model.head
    s.model_flops = 3 * s.forward
    s.flash = kernel * model.layers * s.seen * model.again
    # a math kernel's products write and read scores, and so does the softmax between them
    moved = s.pairs * model.scores_moved / device.bandwidth
    at_peak = s.of_core / device.peak
    s.core_seconds = where(kernel == 1, at_peak, maximum(at_peak, moved) + moved)
    _recipe(s, policy, loss, model, device)
    hidden = where(
        s.back >= loss_bytes(s.tokens * model.ends, model.logits, s.tokens),
        "What runs again takes more than the loss.",
        "",
    )
    s.no_loss = where(s.tokens <= CHUNK, f"These are no more than {CHUNK:,} tokens, one chunk.", hidden)
    s.fits = where(s.total <= s.limit, "yes", "no")
    s.passes = s.hardware / s.forward
    s.executed = s.hardware / s.model_flops
    s.widest = 1.06 * maximum(
        model.layers * s.layer + loss_bytes(s.tokens * model.ends, model.logits, s.tokens) + s.states, s.limit
    )  # of the axis


def _recipe(s: Any, policy: Any, loss: Any, model: Any, device: Any) -> None:
    """What depends on the policy and on the loss."""
    edge = s.tokens * model.edge
    # layers that run again, and those of them whose last product does not
    each = where(policy.every > 0, policy.every, 1)
    segments = where(policy.every > 0, model.layers / each, 1)
    whole = where(policy.every > 0, model.layers - each, policy.layers * model.layers)
    ends = where(policy.every > 0, segments - 1, whole)
    s.dropped = policy.core * s.core + s.tokens * (policy.cheap * model.cheap + policy.second * model.second)
    apart = model.layers * (policy.layers * edge + (1 - policy.layers) * (s.layer - s.dropped))
    s.kept = where(policy.every > 0, (segments - 1) * edge + each * s.layer, apart)
    # log-probabilities, their gradient and that of the logits; when layers run again, these are gone
    at_once = where(loss == 1, minimum(s.tokens, CHUNK), s.tokens)
    s.back = where(policy.layers > 0, s.layer - edge, s.dropped)
    s.rest = maximum(loss_bytes(s.tokens * model.ends, model.logits, at_once), s.back)
    s.activations = s.kept + s.rest
    s.total = s.activations + s.states

    products = whole * s.tokens * model.products - ends * s.tokens * model.last
    products = products + policy.second * model.layers * s.tokens * model.second_again
    cores = whole + policy.core * model.layers
    moved = s.tokens * (whole * model.vector_moved + policy.cheap * model.layers * model.cheap_moved)
    s.hardware = s.model_flops + products + cores * s.of_core + s.flash
    s.seconds = products / device.peak + cores * s.core_seconds + moved / device.bandwidth
    s.added = s.seconds / (s.model_flops / device.peak)


class _Chosen:
    """The fields of the policy of a row."""

    def __init__(self, recipe: Any) -> None:
        for field in _NOTHING:
            setattr(self, field, pick(recipe, {i: POLICIES[policy][field] for i, (policy, _) in enumerate(RECIPES)}))


def one_recipe(r: Any, *, recipe: Any, model: Any, device: Any, **_: Any) -> None:
    """A point: a policy, with the loss of all tokens at once or in chunks."""
    policy = _Chosen(recipe)
    names = {value: name for name, value in LOSSES.items()}
    r.recompute = pick(recipe, {i: name for i, (name, _) in enumerate(RECIPES)})
    r.of_loss = pick(recipe, {i: names[loss] for i, (_, loss) in enumerate(RECIPES)})
    _recipe(r, policy, pick(recipe, {i: loss for i, (_, loss) in enumerate(RECIPES)}), model, device)
    r.over = r.hardware / r.model_flops


def recompute_policies() -> Figure:
    """Recompute policies side by side: memory of a GPU against the least time that recomputing adds, and which of them no other beats.

    GPT-2 and GPT-3 are counted past their learned positions, too.
    """

    def chart(s: Any) -> Any:
        alt = need("altair")
        from flopkit.arithmetic import vega

        end = f"({vega(s.widest)}) / 1e9"
        wide = alt.Scale(domainMin={"expr": f"-0.04 * {end}"}, domainMax={"expr": end}, nice=False)
        x = alt.X(
            "gigabytes:Q", title="GB of one GPU", scale=wide, axis=alt.Axis(format=",~r", tickCount=5, labelBound=True)
        )
        y = alt.Y(
            "added:Q", title="least time added, of the step's matmuls",
            scale=alt.Scale(zero=True, padding=26, nice=False), axis=alt.Axis(format=".0%", tickCount=5, minExtent=34, labelExpr="datum.value < 0 ? '' : datum.label"),
        )  # fmt: skip
        # no other recipe takes less memory and as little time
        order = [alt.SortField(field) for field in ("total", "added", "recipe")]
        before = alt.WindowFieldDef(**{"op": "lag", "field": "least", "param": 1, "as": "before"})
        rows = (
            s.rows.transform_calculate(gigabytes="datum.total / 1e9")
            .transform_window(least="min(added)", frame=[None, 0], sort=order)
            .transform_window([before], sort=order)
            .transform_calculate(best="!isValid(datum.before) || datum.added < datum.before - 1e-9")
        )
        frontier = (
            rows.transform_filter("datum.best")
            .mark_line(interpolate="step-after", color=theme.MUTED, strokeWidth=1.5, clip=True)
            .encode(x=x, y=y, order=alt.Order("gigabytes:Q"))
        )
        legend = {"title": None, "columnPadding": 8, "symbolSize": 80}
        points = rows.mark_point(size=90).encode(
            x=x,
            y=y,
            color=alt.Color(
                "recompute:N",
                scale=alt.Scale(domain=list(POLICIES), range=COLOURS),
                legend=alt.Legend(orient="bottom", columns=2, symbolType="circle", labelFontSize=11, **legend),
            ),
            shape=alt.Shape(
                "of_loss:N",
                scale=alt.Scale(domain=list(LOSSES), range=["circle", "diamond"]),
                legend=alt.Legend(
                    offset=30,
                    labelExpr="(datum.index ? '' : 'loss: ') + datum.label",
                    symbolFillColor=theme.MUTED,
                    symbolStrokeColor=theme.MUTED,
                    **legend,
                ),
            ),
            opacity=alt.condition("datum.best", alt.value(1), alt.value(0.35)),
            tooltip=[
                alt.Tooltip("recompute:N", title="recompute"),
                alt.Tooltip("of_loss:N", title="loss of"),
                alt.Tooltip("gigabytes:Q", title="GB", format=".4~s"),
                alt.Tooltip("added:Q", title="least time added", format=".1%"),
            ],
        )
        limit = s.now(gigabytes=s.limit / 1e9).transform_calculate(label="format(datum.gigabytes, '.0f') + ' GB'")
        rule = limit.mark_rule(color=theme.MUTED, strokeDash=[5, 4], strokeWidth=1.5).encode(x=x)
        left = f"({vega(s.limit)}) > ({vega(s.widest)}) / 2"
        beside = {"align": alt.ExprRef(f"{left} ? 'right' : 'left'"), "dx": alt.ExprRef(f"{left} ? -4 : 4")}
        name = theme.words(limit, beside, x=x, y=alt.value(7), text="label:N")
        here = s.now("added", "policy", gigabytes=s.total / 1e9)
        tip = [
            alt.Tooltip("policy:N", title="chosen"),
            alt.Tooltip("gigabytes:Q", title="GB", format=".4~s"),
            alt.Tooltip("added:Q", title="least time added", format=".1%"),
        ]
        ring = here.mark_point(filled=False, size=260, strokeWidth=2, color=theme.INK).encode(x=x, y=y, tooltip=tip)
        place = f"({vega(s.total)}) / ({vega(s.widest)})"  # a long name in the middle of a phone has room below the dot alone
        look = {
            "align": alt.ExprRef(f"{place} > 0.6 ? 'right' : {place} < 0.35 ? 'left' : 'center'"),
            "dx": alt.ExprRef(f"{place} > 0.6 ? -13 : {place} < 0.35 ? 13 : 0"),
            "dy": alt.ExprRef(f"{place} > 0.6 || {place} < 0.35 ? 16 : 20"),
            "fontWeight": 600,
        }
        chosen = theme.words(here, look, x=x, y=y, text="policy:N")
        return alt.layer(rule, frontier, points, ring, *name, *chosen)

    one, large = {"batch": 1, "device": "H100 (80 GB)"}, {"batch": 1, "gpus": 512, "device": "H100 (80 GB)"}
    return Figure(
        name="recompute-policies",
        title="Which recompute policies no other policy beats",
        alt="Points for recompute policies, with the loss of all tokens at once (circles) or in chunks (diamonds): the memory of one GPU at its "
        "fullest to the right, the least time that recomputing adds upwards, as a share of that of the step's matmuls. A line joins the "
        "recipes that no other beats in both; the others are pale. A dashed line marks the memory of the GPU, {device}. For {model} with "
        "sequences of {length}, {batch} on each of {gpus}, {kernel} attention and the loss of {loss}, recomputing {policy} takes {total}, "
        "adds {added} and executes {executed} the model's FLOPs. It fits: {fits}.",
        model=policy_of_a_step,
        controls=[
            choice("policy", "Recompute", POLICIES, value="every layer"),
            choice("loss", "Loss", LOSSES, idle="no_loss"),
            choice("model", "Model", {shown: numbers(name) for shown, name in MODELS.items()}, value="Llama-3-8B"),
            slider("length", "Length", steps(512, 131072), value=8192, unit="tokens"),
            slider("batch", "Sequences on a GPU", steps(1, 64), value=1, unit="sequences"),
            choice("kernel", "Attention", KERNELS),
            choice("each_param", "A parameter takes", STATES),
            slider("gpus", "GPUs that share the states", steps(1, 1024), value=8, unit="GPUs"),
            choice("device", "GPU", GPUS, value="H100 (80 GB)"),
        ],
        presets={
            "Llama-3-8B on 8 GPUs": {"model": "Llama-3-8B", "length": 8192, "kernel": "flash", "gpus": 8, **one},
            "The same, scores kept": {"model": "Llama-3-8B", "length": 8192, "kernel": "math", "gpus": 8, **one},
            "GPT-3 of 2020: short, no flash": {"model": "GPT-3 175B", "length": 2048, "kernel": "math", **large},
            "Llama-3-70B, long": {"model": "Llama-3-70B", "length": 32768, "kernel": "flash", **large},
            "Qwen2.5-0.5B on one GPU": {"model": "Qwen2.5-0.5B", "length": 8192, "kernel": "flash", "gpus": 1, **one},
        },
        readouts=[
            readout("total", "In all", "B"),
            readout("fits", "Fits"),
            readout("states", "Weights, gradients, optimiser", "B"),
            readout("kept", "Kept by layers", "B"),
            readout("rest", "Loss, or what runs again", "B"),
            readout("added", "Least time added", "%"),
            readout("executed", "Executed FLOPs over model FLOPs", "×"),
            readout("passes", "Executed, in forward passes", "×"),
        ],
        rows=along("recipe", list(range(len(RECIPES))), one_recipe),
        chart=chart,
        table=[
            column("recompute", "Recompute"),
            column("of_loss", "Loss of"),
            column("activations", "Activations", "B"),
            column("total", "In all", "B"),
            column("added", "Least time added", "%"),
            column("over", "Executed FLOPs over model FLOPs", "×"),
        ],
        caption="A recipe is pale if another takes no more memory and no more time. Memory at its fullest: states and activations as Model.train_memory counts them, all parameters trained, bf16, no dropout, and two fp32 "
        "gradients of the loss. Not counted: other gradients of activations, work space, buffers. FLOPs: matrix products under EXACT, with the "
        "scores that flash attention repeats. Added time: what runs again, matmuls at the peak of the device, norms, activations and sums at its full "
        "bandwidth, each in one kernel; of a gated MLP, the activation and the product in two. Checkpoints of layers stop early; the attention core runs to its end. A chunk of the loss runs "
        "backward at once, as in torchtitan, and repeats nothing. The states are shared evenly "
        "(ZeRO-3, FSDP), activations are not. The memory of a GPU is what programs can use, where we know it, else what the driver reports.",
        height=300,
    )
