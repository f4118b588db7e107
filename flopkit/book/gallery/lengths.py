"""Figure of the chapter on a whole model: how the FLOPs of a token grow with the length, by the kind of attention."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from flopkit.arithmetic import where
from flopkit.book.gallery.models import PAIRS
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.conventions import TORCH
from flopkit.models import Model, load

__all__ = ["growth_of_models", "token_growth"]

SHORT, LONG = 256, 2**20
MODELS = {
    "llama": ("Llama-3-8B, full", "llama-3-8b", theme.ORANGE, [1, 0]),
    "qwen": ("Qwen3.5-9B, hybrid", "qwen3.5-9b", theme.GREEN, [9, 3]),
    "gemma": ("Gemma-3-12B, 8 full", "gemma-3-12b", theme.PURPLE, [6, 3]),
    "nemotron": ("Nemotron-H, hybrid", "nemotron-h-56b", theme.SKY, [2, 3]),
    "mistral": ("Mistral-7B, windows", "mistral-7b", theme.BLUE, [12, 3]),
}
"""Of each model the name, what the catalogue calls it, and the look of its line."""


@cache
def _model(name: str) -> Model:
    return replace(load(name), positions=None)  # no length is too long for it


def growth_of_models(s: Any, *, length: Any, pairs: Any) -> None:
    """How many times as many FLOPs a token takes as in a short sequence, for each model."""
    for key, (_, name, *_) in MODELS.items():
        short, here = _model(name).forward(seq=SHORT), _model(name).forward(seq=length)
        ratio = here.flops * SHORT / (short.flops * length)
        every = here.under(TORCH).flops * SHORT / (short.under(TORCH).flops * length)
        setattr(s, key, where(pairs == 1, ratio, every))


def token_growth() -> Figure:
    """FLOPs of a token over those in a sequence of 256, by length, for full, windowed and hybrid models."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "length:Q",
            title="length of the sequence (tokens)",
            scale=alt.Scale(type="log", domain=[SHORT, LONG], nice=False),
            axis=alt.Axis(values=[256, 4096, 65536, 2**20], format=",d"),
        )
        y = {
            "title": f"FLOPs of a token, × those at {SHORT} tokens",
            "scale": alt.Scale(type="log", base=2, domain=[0.9, 40], nice=False),
            "axis": alt.Axis(values=[1, 2, 4, 8, 16, 32], labelExpr="datum.value + '×'"),
        }
        named = {key: (title, colour, dashes) for key, (title, _, colour, dashes) in MODELS.items()}
        lines = theme.curves(s.rows, named, "times", {"clip": True}, x=x, y=alt.Y("times:Q", **y))
        titles = {key: title for key, (title, *_) in MODELS.items()}
        here = s.now("length", *MODELS).transform_fold(list(MODELS), as_=["result", "times"])
        dots = (
            here.transform_calculate(curve=f"({titles})[datum.result]")
            .mark_point(size=60)
            .encode(
                x=x,
                y=alt.Y("times:Q", **y),
                color=alt.Color("curve:N"),
                tooltip=[
                    alt.Tooltip("curve:N", title="model"),
                    alt.Tooltip("length:Q", title="tokens", format=","),
                    alt.Tooltip("times:Q", title="FLOPs of a token, ×", format=".3f"),
                ],
            )
        )
        return alt.layer(lines, dots)

    return Figure(
        name="token-growth",
        title="How the FLOPs of a token grow with the length, by the kind of attention",
        alt="Lines for five models over the length of the sequence: the FLOPs of a token, as a multiple of those at 256 tokens. Full attention "
        "bends upwards first; with windows in all layers the line stays flat. At {length}, counting {pairs}, a token of Llama-3-8B takes {llama} the FLOPs, "
        "of Qwen3.5-9B {qwen}, of Gemma-3-12B {gemma}, of Nemotron-H-56B {nemotron} and of Mistral-7B {mistral}.",
        model=growth_of_models,
        controls=[
            slider("length", "Length of the sequence", steps(SHORT, LONG), value=LONG, unit="tokens"),
            choice("pairs", "Pairs of tokens that count", PAIRS),
        ],
        readouts=[readout(key, title.partition(",")[0], "×") for key, (title, *_) in MODELS.items()],
        rows=along("length", steps(SHORT, LONG)),
        chart=chart,
        table=[
            column("length", "Length", "tokens"),
            *(column(key, title.partition(",")[0], "×") for key, (title, *_) in MODELS.items()),
        ],
        caption="Layers with full attention: all 32 of Llama-3-8B; 8 of 32 in Qwen3.5-9B, the others linear; 8 of 48 in Gemma-3-12B, the others see "
        "1,024 tokens; 10 of 118 in Nemotron-H-56B, beside Mamba-2 layers and MLPs; none in Mistral-7B v0.1, whose layers see 4,096. FLOPs of a forward "
        "pass; those of a training step grow by the same factor. Beyond the length that a model was made for, a line says what its layers would cost there.",
        height=300,
    )
