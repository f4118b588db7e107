"""Figures of the chapter on a whole model: what each part adds to the FLOPs of a token, and how far off 6N is."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

from flopkit.arithmetic import maximum, vega, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.conventions import PALM, SIX_N, TORCH
from flopkit.models import MLP, Model, load, transformer

__all__ = ["model_parts", "six_n_error", "six_n_of_models", "training_token"]

PASSES = 3  # the products of a training step: one forward pass, and twice as much to go back
FAMILIES = {
    "Llama: gated MLP": {"gated": 1},
    "GPT: plain MLP, biases": {"gated": 0},
}
LLAMA, GPT = FAMILIES
SHARING = {"one for each query head": 1, "one for 4 query heads": 4, "one for 8": 8, "one for 16": 16}
SEGMENTS = {
    "projections": "projections of attention",
    "mlp": "MLP",
    "head": "head",
    "scores": "scores and values",
    "lookup": "embedding look-up",
    "vectors": "norms, biases, positions",
}
COLOURS = [theme.BLUE, theme.GREEN, theme.ORANGE, theme.PURPLE, theme.AMBER, theme.MUTED]
EXACT_ROW, TORCH_ROW = "visible scores (EXACT)", "all scores (TORCH)"
SIX_N_ROW, PALM_ROW, KAPLAN_ROW = "6N", "6N and all scores (PaLM)", "6N without embedding and head"
COUNTS = (EXACT_ROW, TORCH_ROW, SIX_N_ROW, PALM_ROW, KAPLAN_ROW)


def model_of(gated: bool, *, length: Any, d_model: Any, sharing: Any, **sizes: Any) -> Model:
    """A model of one of the two families, GPT's with as many learned positions as the sequence has tokens.

    FLOPs and parameters depend on the width of all heads together, not on their number: a group of heads is described as if it were all.
    """
    ours: dict[str, Any] = {"gated": True, "act": "silu"}
    if not gated:
        ours = {"gated": False, "act": "gelu", "bias": True, "norm": "layer", "rotary": 0, "positions": length}
    return transformer(d_model=d_model, heads=sharing, kv_heads=1, **sizes, **ours)


def training_token(
    s: Any, *, length: Any, family: Any, layers: Any, d_model: Any, sharing: Any, d_ff: Any, vocab: Any, tied: Any
) -> None:
    """FLOPs of a training token by part, under EXACT, TORCH, 6N and PaLM's convention."""
    sizes = {
        "length": length,
        "layers": layers,
        "d_model": d_model,
        "sharing": sharing,
        "d_ff": d_ff,
        "vocab": vocab,
        "tied": tied,
    }
    kinds = [_parts(model_of(gated, **sizes), length, layers) for gated in (True, False)]
    for name in kinds[0]:
        setattr(s, name, where(family.gated == 1, kinds[0][name], kinds[1][name]))
    s.lookup = (1 - tied) * 2 * PASSES * vocab * d_model
    s.vectors = s.six_n - s.projections - s.mlp - s.head - s.lookup
    s.kaplan = s.projections + s.mlp + s.vectors
    s.error = s.six_n / s.exact - 1
    s.error_torch = s.six_n / s.torch - 1
    s.share = s.visible / s.exact
    s.head_share = s.head / s.exact
    s.end = 1.16 * reduce(maximum, [s.torch, s.six_n, s.palm]) / s.exact  # of the axis, with room for a bar's number


def _parts(model: Model, length: Any, layers: Any) -> dict[str, Any]:
    forward, flops = model.forward(seq=length), {part.name: part.flops for part in model.layer(seq=length).parts}
    every = next(part for part in model.layer(seq=length).parts if part.name == "attention").under(TORCH).flops
    per_token = PASSES / length

    def sum_of(names: str) -> Any:
        found = [flops[name] for name in names.split() if name in flops]
        return per_token * layers * reduce(lambda one, two: one + two, found)

    return {
        "projections": sum_of("q_proj k_proj v_proj o_proj"),
        "mlp": sum_of("gate_proj up_proj down_proj"),
        "head": per_token * forward.parts[-1].flops,
        "visible": sum_of("attention"),
        "every": per_token * layers * every,
        "exact": per_token * forward.flops,
        "torch": per_token * forward.under(TORCH).flops,
        "six_n": per_token * forward.under(SIX_N).flops,
        "palm": per_token * forward.under(PALM).flops,
        "params": model.params,
    }


def counted(r: Any, *, count: Any, **_: Any) -> None:
    """A bar: the parts that one way of counting adds up, each as a share of the exact count."""

    def part(shown: dict[str, Any]) -> Any:
        return pick(count, {each: shown.get(each, 0) for each in COUNTS}) / r.exact

    products = dict.fromkeys(COUNTS, 1)
    n = dict.fromkeys((SIX_N_ROW, PALM_ROW), 1)
    r.of_projections = part(dict.fromkeys(products, r.projections))
    r.of_mlp = part(dict.fromkeys(products, r.mlp))
    r.of_head = part({each: r.head for each in COUNTS if each != KAPLAN_ROW})
    r.of_scores = part({EXACT_ROW: r.visible, TORCH_ROW: r.every, PALM_ROW: r.every})
    r.of_lookup = part(dict.fromkeys(n, r.lookup))
    r.of_vectors = part(dict.fromkeys((*n, KAPLAN_ROW), r.vectors))
    totals = {EXACT_ROW: r.exact, TORCH_ROW: r.torch, SIX_N_ROW: r.six_n, PALM_ROW: r.palm, KAPLAN_ROW: r.kaplan}
    r.flops = pick(count, totals)
    r.against = r.flops / r.exact


def model_parts() -> Figure:
    """A training token of a model, part by part, as five ways of counting add it up."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        y = alt.Y("count:N", sort=list(COUNTS), title=None, axis=alt.Axis(labels=False, domain=False, ticks=False))
        x = {
            "title": "FLOPs of a training token, the exact count as 100 %",
            "scale": alt.Scale(domain=[0, alt.ExprRef(vega(s.end))], nice=False),
            "axis": alt.Axis(format=".0%", tickCount=5, labelBound=True),
        }
        names = {f"of_{name}": label for name, label in SEGMENTS.items()}
        bars = (
            s.rows.transform_fold(list(names), as_=["kind", "size"])
            .transform_calculate(label=f"({names})[datum.kind]", place=f"indexof({list(names)}, datum.kind)")
            .mark_bar(height=16, yOffset=10)
            .encode(
                y=y,
                x=alt.X("size:Q", **x),
                color=alt.Color(
                    "label:N",
                    title=None,
                    scale=alt.Scale(domain=list(SEGMENTS.values()), range=COLOURS),
                    legend=alt.Legend(columns=2, columnPadding=8, symbolSize=70, labelFontSize=11, symbolType="square"),
                ),
                order=alt.Order("place:Q"),
                tooltip=[
                    alt.Tooltip("count:N", title="count"),
                    alt.Tooltip("label:N", title="part"),
                    alt.Tooltip("size:Q", title="of the exact count", format=".2%"),
                ],
            )
        )
        place = {"align": "left", "baseline": "middle"}
        over = theme.words(s.rows, {"dy": -8, "color": theme.INK, **place}, y=y, x=alt.value(2), text="count:N")
        after = theme.words(
            s.rows,
            {"dx": 5, "dy": 10, "fontWeight": 600, **place},
            y=y,
            x=alt.X("against:Q", **x),
            text=alt.Text("against:Q", format=".1%"),
        )
        return alt.layer(bars, *over, *after)

    def preset(name: str, length: int, family: str, sharing: str) -> dict[str, Any]:
        model = load(name)
        [(block, layers)] = model.blocks
        assert isinstance(block.mlp, MLP)
        sizes = {
            "length": length,
            "layers": layers,
            "d_model": model.d_model,
            "d_ff": block.mlp.d_ff,
            "vocab": model.vocab,
        }
        return {"length": length, "family": family, "sharing": sharing, "tied": bool(model.tied), **sizes}

    each, four, eight, sixteen = SHARING
    return Figure(
        name="model-parts",
        title="One model, five counts: which part is in which count?",
        alt="Stacked bars for a training token of a model with {params} parameters, at {length}: what five ways of counting add up, by part, "
        "each as a share of the exact count, which the data table lists. 6N differs from the exact count by {error}, and from the count "
        "with all scores by {error_torch}. Scores and values are {share} of the exact count, and the head is {head_share}.",
        model=training_token,
        controls=[
            slider("length", "Length of the sequence", steps(256, 131072), value=1024, unit="tokens"),
            slider("layers", "Layers", steps(4, 128, per_octave=2), value=12),
            slider("d_model", "Width of the model", steps(512, 16384, per_octave=2), value=768),
            slider("d_ff", "Width of the MLP", steps(1024, 65536, per_octave=2), value=3072),
            slider("vocab", "Vocabulary", [8192, 16384, 32000, 65536, 262144], value=50257),
            choice("family", "Family", FAMILIES, value=GPT),
            choice("sharing", "Key-value heads", SHARING),
            choice("tied", "Embedding and head", {"tied": 1, "not tied": 0}, value="tied"),
        ],
        presets={
            label: {**found, "tied": "tied" if found["tied"] else "not tied"}
            for label, found in {
                "GPT-2": preset("gpt2", 1024, GPT, each),
                "GPT-3": preset("gpt-3-175b", 2048, GPT, each),
                "Llama-2-7B": preset("llama-2-7b", 4096, LLAMA, each),
                "Llama-3-8B": preset("llama-3-8b", 8192, LLAMA, four),
                "Llama-3-70B": preset("llama-3-70b", 8192, LLAMA, eight),
                "Llama-3.1-405B": preset("llama-3.1-405b", 8192, LLAMA, sixteen),
            }.items()
        },
        readouts=[
            readout("params", "Parameters, N"),
            readout("exact", "A training token, exact", "FLOPs"),
            readout("six_n", "6N", "FLOPs"),
            readout("error", "6N against EXACT", "%"),
            readout("error_torch", "6N against TORCH", "%"),
            readout("share", "Scores and values", "%"),
            readout("head_share", "Head", "%"),
        ],
        rows=along("count", list(COUNTS), counted),
        chart=chart,
        table=[
            column("count", "Count"),
            column("flops", "FLOPs of a training token", "FLOPs"),
            *(column(f"of_{name}", label[0].upper() + label[1:], "%") for name, label in SEGMENTS.items()),
            column("against", "Of the exact count", "%"),
        ],
        caption="Causal attention, every parameter trained, nothing recomputed. A GPT has biases, and a learned position "
        "for each token of the sequence, so its N grows with the length. Sizes of the presets from the models' configs.",
        height=340,
    )


MODELS = {"GPT-2": "gpt2", "GPT-2 XL": "gpt2-xl", "Llama-3-8B": "llama-3-8b", "Gemma-3-27B": "gemma-3-27b", "Llama-3.1-405B": "llama-3.1-405b", "GPT-3": "gpt-3-175b"}  # fmt: skip
LINES = [theme.BLUE, theme.SKY, theme.ORANGE, theme.AMBER, theme.PURPLE, theme.GREEN]
DASHES = [[1, 0], [6, 3], [2, 3], [12, 3], [4, 5], [9, 3, 2, 3]]
SHOWN = {title: title + " (untied)" * (not load(name).tied) for title, name in MODELS.items()}
PAIRS = {"visible ones (EXACT)": 1, "every score (TORCH)": 0}
KINDS_OF_N = {
    "all parameters": {"embedding": 0, "head": 0},
    "without an embedding that is only looked up": {"embedding": 1, "head": 0},
    "without embeddings and head (nearly the N of Kaplan)": {"embedding": 1, "head": 1},
}


def slug(title: str) -> str:
    """A name for the result of a model."""
    return "of_" + "".join(letter if letter.isalnum() else "_" for letter in title.lower())


def six_n_of_models(s: Any, *, length: Any, pairs: Any, counted: Any) -> None:
    """How far 6N is from the count, for each of six models at one length."""
    for title, name in MODELS.items():
        model = load(name)
        forward = replace(model, positions=None).forward(seq=length)  # GPT-2 has no row for a 1,025th position
        flops = where(pairs == 1, forward.flops, forward.under(TORCH).flops)
        table, positions = model.vocab * model.d_model, (model.positions or 0) * model.d_model
        # A tied table is the head's matrix, which is multiplied: only Kaplan leaves it out of N. (Kaplan also leaves out norms and biases, which stay here.)
        looked_up = (0 if model.tied else table) + positions
        n = model.params - counted.embedding * looked_up - counted.head * table
        setattr(s, slug(title), 2 * n * length / flops - 1)


def six_n_error() -> Figure:
    """6N against the count, over the length of the sequence, for six models."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        names = {slug(title): shown for title, shown in SHOWN.items()}
        x = alt.X(
            "length:Q",
            title="length of the sequence (tokens)",
            scale=alt.Scale(type="log", domain=[256, 131072], nice=False),
            axis=alt.Axis(values=[256, 2048, 16384, 131072], format=",d"),
        )
        y = alt.Y(
            "error:Q",
            title="6N against the count",
            scale=alt.Scale(domain=[-1, 0.25], nice=False),
            axis=alt.Axis(
                values=[-1, -0.75, -0.5, -0.25, 0, 0.25],
                labelExpr="datum.value == 0 ? '0 %' : format(datum.value, '+.0%')",
                grid=True,
            ),
        )
        kinds = {
            "color": alt.Color(
                "model:N",
                title=None,
                scale=alt.Scale(domain=list(SHOWN.values()), range=LINES),
                legend=alt.Legend(
                    columns=2, symbolType="stroke", symbolSize=576, labelFontSize=11, offset=36
                ),  # above the title of the axis; a swatch as long as a dash and its gap
            ),
            "strokeDash": alt.StrokeDash(
                "model:N", title=None, scale=alt.Scale(domain=list(SHOWN.values()), range=DASHES)
            ),
        }
        tooltip = [
            alt.Tooltip("model:N", title="model"),
            alt.Tooltip("length:Q", title="tokens", format=","),
            alt.Tooltip("error:Q", title="6N against the count", format="+.1%"),
        ]

        def folded(rows: Any) -> Any:
            return rows.transform_fold(list(names), as_=["result", "error"]).transform_calculate(
                model=f"({names})[datum.result]"
            )

        zero = alt.Chart(alt.Data(values=[{"error": 0}])).mark_rule(color=theme.MUTED).encode(y=y)
        curves = folded(s.rows).mark_line(clip=True).encode(x=x, y=y, tooltip=tooltip, **kinds)
        here = s.now("length", *names)
        dots = folded(here).mark_point(size=60, opacity=1, filled=True)
        return alt.layer(zero, curves, dots.encode(x=x, y=y, tooltip=tooltip, color=kinds["color"]))

    return Figure(
        name="six-n-error",
        title="How far is 6N off, at which length and for which model?",
        alt="Lines for six models: 6N against the count with {pairs}, N being {counted}, over the length of the sequence. Each line falls "
        "as the sequences grow, the narrowest model's first. At {length} 6N is off by {of_gpt_2} for GPT-2, {of_gpt_2_xl} for GPT-2 XL, "
        "{of_llama_3_8b} for Llama-3-8B, {of_gemma_3_27b} for Gemma-3-27B, {of_gpt_3} for GPT-3 and {of_llama_3_1_405b} for Llama-3.1-405B.",
        model=six_n_of_models,
        controls=[
            slider("length", "Length of the sequence", steps(256, 131072), value=1024, unit="tokens"),
            choice("pairs", "Pairs of tokens that count", PAIRS),
            choice("counted", "N is", KINDS_OF_N),
        ],
        readouts=[readout(slug(title), shown, "+%") for title, shown in SHOWN.items()],
        rows=along("length", steps(256, 131072)),
        chart=chart,
        table=[
            column("length", "Length", "tokens"),
            *(column(slug(title), shown, "+%") for title, shown in SHOWN.items()),
        ],
        caption="Training FLOPs of a token, all parameters trained, nothing recomputed. Sizes from the models' configs. Beyond the length that a "
        "model was made for, the line says what its layers would cost there; N keeps the positions that the model has. In five of six layers of Gemma-3-27B a token sees a window of 1,024.",
        height=320,
    )
