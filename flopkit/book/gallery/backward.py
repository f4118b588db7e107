"""The figure of the chapter on the backward pass: the backward FLOPs of each part of a model, by what is trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flopkit.arithmetic import exact_div, maximum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.conventions import TORCH
from flopkit.layers.attentions import attention
from flopkit.layers.embeddings import embedding
from flopkit.layers.products import dense
from flopkit.models import MLP, load
from flopkit.training.backward import attention_backward, dense_backward

__all__ = ["backward_stack", "step_of_llama"]

LLAMA = load("llama-3-8b")
[(BLOCK, LAYERS)] = LLAMA.blocks
assert isinstance(BLOCK.mlp, MLP)
WIDTH, HIDDEN, VOCABULARY = LLAMA.d_model, BLOCK.mlp.d_ff, LLAMA.vocab
CORE = {name: getattr(BLOCK.mixer, name) for name in ("heads", "kv_heads", "head_dim")}
QUERIES, KEYS = CORE["heads"] * CORE["head_dim"], CORE["kv_heads"] * CORE["head_dim"]
# Matrices of a layer as (in, out); the first three have the layer's own input.
QKV = ((WIDTH, QUERIES), (WIDTH, KEYS), (WIDTH, KEYS))
REST = ((QUERIES, WIDTH), (WIDTH, HIDDEN), (WIDTH, HIDDEN), (HIDDEN, WIDTH))

QUARTERS = ("first", "second", "third", "fourth")
QUARTER = exact_div(LAYERS, len(QUARTERS))
PARTS = {
    "output head": "head",
    **{f"layers {QUARTER * i + 1}–{QUARTER * i + QUARTER}": name for i, name in reversed(list(enumerate(QUARTERS)))},
    "whole model": "whole",
}
TRAINED: dict[str, dict[str, int]] = {
    "trained": {"full": 1, "lora": 0},
    "LoRA": {"full": 0, "lora": 1},
    "frozen": {"full": 0, "lora": 0},
}
SEGMENTS = {
    "input": "input gradients",
    "weight": "weight gradients",
    "core": "attention core",
    "scores": "scores recomputed",
    "layers": "layers recomputed",
}
COLOURS = [theme.BLUE, theme.ORANGE, theme.GREEN, theme.AMBER, theme.PURPLE]
CHECKPOINTS = {
    "none": {"on": 0, "early": 0},
    "each layer, stopped early": {"on": 1, "early": 1},
    "each layer, to its end": {"on": 1, "early": 0},
}
SCORES = {"computed again (flash)": 1, "kept (math)": 0}
PAIRS = {"visible ones (EXACT)": 1, "every score (TORCH)": 0}


def _forward(tokens: Any, matrices: Iterable[tuple[Any, Any]]) -> Any:
    return sum(dense(tokens=tokens, d_in=a, d_out=b).flops for a, b in matrices)


def _gradients(tokens: Any, matrices: Iterable[tuple[Any, Any]], **wanted: Any) -> Any:
    return sum(dense_backward(tokens=tokens, d_in=a, d_out=b, **wanted).flops for a, b in matrices)


def _counted(cost: Any, pairs: Any) -> Any:
    return where(pairs == 1, cost.flops, cost.under(TORCH).flops)


def step_of_llama(
    s: Any, *, embedded: Any, first: Any, second: Any, third: Any, fourth: Any, head: Any, rank: Any, again: Any, checkpoint: Any,
    length: Any, pairs: Any,
) -> None:  # fmt: skip
    """Forward and backward FLOPs of one sequence, for each quarter of the layers and the head, by what is trained."""
    in_qkv, in_rest = (tuple((a, rank) for a, _ in some) for some in (QKV, REST))  # of an adapter: down to the rank,
    out_qkv, out_rest = (tuple((rank, b) for _, b in some) for some in (QKV, REST))  # and up again
    sizes: dict[str, Any] = {"batch": 1, "q": length, "kv": length, "mask": "causal", **CORE}
    gradients, once_more = (_counted(cost, pairs) for cost in attention_backward(**sizes).parts)
    s.core_forward = _counted(attention(**sizes), pairs)
    s.layer = _forward(length, (*QKV, *REST)) + s.core_forward
    s.adapters = _forward(length, (*in_qkv, *out_qkv, *in_rest, *out_rest))
    s.last = dense(tokens=length, d_in=HIDDEN, d_out=WIDTH).flops  # what a recomputation that stops early leaves out
    s.last_adapter = dense(tokens=length, d_in=rank, d_out=WIDTH).flops
    below: Any = embedded  # whether anything below is trained, so that the layer's input needs a gradient
    for name, how in zip(QUARTERS, (first, second, third, fourth), strict=True):
        active = maximum(how.full + how.lora, below)  # the same for what lies inside of a layer
        later = QUARTER - 1  # layers of the quarter whose own neighbours below may be trained
        asked = below + later * active  # layers whose input needs a gradient
        reached = (
            maximum(how.full, below) + later * active
        )  # and those where it is asked for behind the norm: its gain is trained, too
        setattr(s, f"{name}_forward", QUARTER * (s.layer + how.lora * s.adapters))
        own = {"input": 1, "weight": 0}
        inputs = reached * _gradients(length, QKV, **own) + QUARTER * active * _gradients(length, REST, **own)
        inputs = inputs + how.lora * (
            asked * _gradients(length, in_qkv, **own)
            + QUARTER * _gradients(length, (*out_qkv, *in_rest, *out_rest), **own)
        )
        setattr(s, f"{name}_input", inputs)
        own = {"input": 0, "weight": 1}
        setattr(
            s,
            f"{name}_weight",
            QUARTER * how.full * _gradients(length, (*QKV, *REST), **own)
            + QUARTER * how.lora * _gradients(length, (*in_qkv, *out_qkv, *in_rest, *out_rest), **own),
        )
        setattr(s, f"{name}_core", QUARTER * active * gradients)
        setattr(s, f"{name}_scores", QUARTER * active * again * once_more)
        left_out = where(how.lora, s.last_adapter, s.last) * checkpoint.early
        setattr(s, f"{name}_layers", checkpoint.on * active * (getattr(s, f"{name}_forward") - QUARTER * left_out))
        below = active
    s.lora = first.lora + second.lora + third.lora + fourth.lora
    s.no_rank = where(s.lora == 0, "No layers are trained by LoRA.", "")
    s.no_way = where(below == 0, "No gradient passes through the layers.", "")
    ends: dict[str, Any] = {"tokens": length, "d_in": WIDTH, "d_out": VOCABULARY}
    s.head_forward = dense(**ends).flops
    s.head_input = dense_backward(**ends, input=below, weight=0).flops
    s.head_weight = dense_backward(**ends, input=0, weight=head.full).flops
    s.head_core = s.head_scores = s.head_layers = 0
    rows = (*QUARTERS, "head")
    for what in ("forward", *SEGMENTS):
        setattr(s, f"whole_{what}", sum(getattr(s, f"{row}_{what}") for row in rows))
    s.model = s.whole_input + s.whole_weight + s.whole_core
    s.extra = s.whole_scores + s.whole_layers
    s.ratio = s.model / s.whole_forward
    s.executed = (s.model + s.extra) / s.whole_forward
    s.step = s.whole_forward + s.model + s.extra
    s.of_full = (s.whole_forward + s.model) / (3 * (LAYERS * s.layer + s.head_forward))
    ends_params = embedding(tokens=1, vocab=VOCABULARY, d_model=WIDTH).params
    of_layer, of_adapters = (
        sum(a * b for a, b in some) for some in ((*QKV, *REST), (*in_qkv, *out_qkv, *in_rest, *out_rest))
    )
    kinds = (first, second, third, fourth)
    adapters = QUARTER * of_adapters * sum(how.lora for how in kinds)
    s.params = (embedded + head.full) * ends_params + QUARTER * of_layer * sum(how.full for how in kinds) + adapters
    s.trained = s.params / (2 * ends_params + LAYERS * of_layer + adapters)


def one_part(r: Any, *, part: Any, **_: Any) -> None:
    """A bar: each kind of work in the backward pass of a part, in forward passes of that part."""

    def each(what: str) -> Any:
        return pick(part, {title: getattr(r, f"{name}_{what}") for title, name in PARTS.items()})

    r.forward = each("forward")
    for what in SEGMENTS:
        setattr(r, what, each(what) / r.forward)
    r.times = r.input + r.weight + r.core + r.scores + r.layers


def backward_stack() -> Figure:
    """Llama-3-8B in five parts: the backward FLOPs of each, by what is trained and what is recomputed."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        y = alt.Y(
            "part:N", title=None, sort=list(PARTS),
            axis=alt.Axis(labelFontWeight={"condition": {"test": "datum.value == 'whole model'", "value": "bold"}, "value": "normal"}),
        )  # fmt: skip
        x = {
            "title": "backward FLOPs / forward FLOPs",
            "scale": alt.Scale(domain=[0, 4.1], nice=False),
            "axis": alt.Axis(values=[0, 1, 2, 3], format="d", domain=False, grid=True),
        }
        bars = (
            s.rows.transform_fold(list(SEGMENTS), as_=["kind", "passes"])
            .transform_calculate(label=f"({SEGMENTS})[datum.kind]", place=f"indexof({list(SEGMENTS)}, datum.kind)")
            .mark_bar()
            .encode(
                y=y,
                x=alt.X("passes:Q", **x),
                color=alt.Color(
                    "label:N",
                    title=None,
                    scale=alt.Scale(domain=list(SEGMENTS.values()), range=COLOURS),
                    legend=alt.Legend(columns=2, columnPadding=8, symbolSize=70, labelFontSize=11, symbolType="square"),
                ),
                order=alt.Order("place:Q"),
                tooltip=[
                    alt.Tooltip("part:N", title="part"),
                    alt.Tooltip("label:N", title="work"),
                    alt.Tooltip("passes:Q", title="forward passes", format=".3f"),
                ],
            )
        )
        words = theme.words(
            s.rows.transform_calculate(label="datum.times == 0 ? 'no gradients' : format(datum.times, '.3~r') + '×'"),
            {"align": "left", "dx": 5, "fontWeight": 600},
            y=y,
            x=alt.X("times:Q", **x),
            text="label:N",
        )
        return alt.layer(bars, *words)

    kept = {"rank": 16, "again": "computed again (flash)", "checkpoint": "none"}
    everything = {"embedded": "trained", **dict.fromkeys((*QUARTERS, "head"), "trained"), **kept}
    nothing = {"embedded": "frozen", **dict.fromkeys((*QUARTERS, "head"), "frozen"), **kept}
    return Figure(
        name="backward-stack",
        title="Backward FLOPs of each part of Llama-3-8B, by what is trained",
        alt="Stacked bars for the parts of Llama-3-8B: the backward FLOPs of each, in forward passes of that part, split into gradients "
        "of inputs, of weights, the attention core, and what is recomputed; the data table has every share. At {length}, {pairs} counted, with the embedding "
        "{embedded}, layers 1–8 {first}, 9–16 {second}, 17–24 {third}, 25–32 {fourth} and the output head {head}, backward executes {executed} the forward pass.",
        model=step_of_llama,
        controls=[
            choice("head", "Output head", {name: TRAINED[name] for name in ("trained", "frozen")}),
            choice("fourth", "Layers 25–32", TRAINED),
            choice("third", "Layers 17–24", TRAINED),
            choice("second", "Layers 9–16", TRAINED),
            choice("first", "Layers 1–8", TRAINED),
            choice("embedded", "Embedding", {"trained": 1, "frozen": 0}),
            slider("rank", "Rank of LoRA", steps(1, 512), value=16, idle="no_rank"),
            choice("again", "Scores, in the backward pass", SCORES, idle="no_way"),
            choice("checkpoint", "Checkpoints", CHECKPOINTS, idle="no_way"),
            slider("length", "Length", steps(256, 131072), value=8192, unit="tokens"),
            choice("pairs", "Pairs of tokens that count", PAIRS),
        ],
        presets={
            "Everything trained": everything,
            "Everything, each layer checkpointed": {**everything, "checkpoint": "each layer, stopped early"},
            "Embedding frozen, norms trained": {**everything, "embedded": "frozen"},
            "LoRA, rank 16": {**nothing, **dict.fromkeys(QUARTERS, "LoRA")},
            "Upper half": {**nothing, "third": "trained", "fourth": "trained", "head": "trained"},
            "Lowest quarter": {**nothing, "first": "trained"},
            "Head only": {**nothing, "head": "trained"},
        },
        readouts=[
            readout("ratio", "Backward / forward, model FLOPs", "×"),
            readout("executed", "Backward / forward, executed FLOPs", "×"),
            readout("whole_forward", "Forward, one sequence", "FLOPs"),
            readout("step", "Whole step, executed", "FLOPs"),
            readout("of_full", "Model FLOPs, of full training", "%"),
            readout("trained", "Weights that are trained", "%"),
        ],
        rows=along("part", list(PARTS), one_part),
        chart=chart,
        table=[
            column("part", "Part"),
            column("forward", "Forward", "FLOPs"),
            *(column(what, label[0].upper() + label[1:], "×") for what, label in SEGMENTS.items()),
            column("times", "Backward", "×"),
        ],
        caption="Matmuls only, one sequence. Sizes from the model's config. LoRA adapts all seven matrices of a layer. Training a layer's "
        "matrices also trains the gains of its norms, which the share of trained weights leaves out. The embedding is a look-up and costs no matrix "
        "FLOPs, but if it is trained, the gradient has to reach it. A math kernel would also execute the pairs that the mask hides. “To its end” is a "
        "checkpoint without early stopping. PyTorch's older, re-entrant checkpoint also runs to its end.",
        height=300,
    )
