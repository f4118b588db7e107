"""The figure of the preface: one training run, and its utilisation under the recipes in use."""

from __future__ import annotations

from functools import reduce
from typing import Any

from flopkit.arithmetic import maximum, vega, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.conventions import EXACT, TORCH
from flopkit.devices import device
from flopkit.models import load
from flopkit.units import si

__all__ = ["one_run", "one_run_many_numbers"]

DENSE_PEAK = float(device("h100-sxm").peak("bf16"))
LIMIT = float(device("h100-sxm").limit("bf16"))  # at its highest clock
RATE = 6667  # tokens/s on each GPU, as torchtitan's authors measured them
FORWARDS = 3  # a training step does the products of three forward passes: one, and two more to go back
RECIPES = (
    "visible scores (EXACT)",
    "half of the scores",
    "all scores (TORCH)",
    "6N, no scores",
    "6N and all scores (PaLM)",
    "EXACT, a multiply-add as one",
    "EXACT, by the sparse peak",
)
YOURS = "your recipe"


def one_run_many_numbers(s: Any, *, tokens_per_s: Any, seq: Any, scores: Any, multiply_add: Any, peak: Any) -> None:
    """FLOPs of a training token, and the utilisation they make of a measured rate of tokens."""
    forward = load("llama-3.1-8b").forward(seq=seq)
    s.visible = FORWARDS * forward.under(EXACT).flops / seq
    s.every = FORWARDS * forward.under(TORCH).flops / seq
    s.six_n = 2 * FORWARDS * forward.params  # all of them, as the PaLM paper counts
    s.scores_every = 2 * FORWARDS * (forward.macs_by_kind["scores"] + forward.macs_by_kind["hidden"]) / seq
    s.half = s.every - s.scores_every / 2
    s.palm = s.six_n + s.scores_every
    counts = {"visible": s.visible, "half": s.half, "every": s.every, "6N": s.six_n, "PaLM": s.palm}
    s.flops_per_token = pick(scores, counts) * multiply_add / 2
    s.rate = s.flops_per_token * tokens_per_s
    s.utilisation = s.rate / peak
    s.most = reduce(maximum, [s.visible, s.every, s.palm]) * tokens_per_s / DENSE_PEAK
    s.end = 1.12 * maximum(1, maximum(s.most, s.utilisation))  # of the axis, with room for a bar's number
    s.needed = s.visible * tokens_per_s  # whatever the recipe counts, a run must do at least this
    s.possible = where(s.needed > LIMIT, "no", where(s.needed > DENSE_PEAK, "above the peak", "below the peak"))


def one_run() -> Figure:
    """One run of Llama-3.1-8B on H100s, and its utilisation under the reader's recipe and seven others."""

    def row(r: Any, *, recipe: Any, tokens_per_s: Any, **_: Any) -> None:
        exact, half, every, six_n, palm, macs, sparse = RECIPES
        counts = {exact: r.visible, half: r.half, every: r.every, six_n: r.six_n, palm: r.palm}
        r.per_token = pick(recipe, counts | {macs: r.visible / 2, sparse: r.visible})
        r.divided_by = where(recipe == sparse, 2 * DENSE_PEAK, DENSE_PEAK)
        r.called = r.per_token * tokens_per_s / r.divided_by

    def chart(s: Any) -> Any:
        alt = need("altair")
        # The reader's recipe has a bar of its own: a line across the chart would cross the names and numbers of the others.
        y = alt.Y(
            "recipe:N",
            sort=[YOURS, *RECIPES],
            title=None,
            axis=alt.Axis(labels=False, domain=False, ticks=False),
        )
        axis = {
            "title": "utilisation, as it would be reported",
            "scale": alt.Scale(domain=[0, alt.ExprRef(vega(s.end))], nice=False),
            "axis": alt.Axis(format="%", tickCount=5, labelBound=True),
        }
        tooltip = [
            alt.Tooltip("recipe:N", title="recipe"),
            alt.Tooltip("called:Q", title="utilisation", format=".1%"),
        ]
        x = alt.X("called:Q", **axis)
        layers = []
        own = s.now(called=s.utilisation, recipe=YOURS)
        for rows, colour in ((own, theme.ORANGE), (s.rows, theme.BLUE)):
            place = {"align": "left", "baseline": "middle"}
            layers += [
                rows.mark_bar(color=colour, height=12, yOffset=9).encode(x=x, y=y, tooltip=tooltip),
                *theme.words(rows, {"dy": -7, "color": theme.INK, **place}, y=y, x=alt.value(2), text="recipe:N"),
                *theme.words(
                    rows,
                    {"dx": 5, "dy": 9, "color": colour, "fontWeight": 600, **place},
                    x=x,
                    y=y,
                    text=alt.Text("called:Q", format=".0%"),
                ),
            ]
        return alt.layer(*layers)

    return Figure(
        name="one-run",
        title="One training run of Llama-3.1-8B, seven ways to report its utilisation, and yours",
        alt="Bars for one run at {tokens_per_s} on each H100 and {seq}: its utilisation under your recipe and under seven others, which the data "
        "table lists. Your recipe, {scores}, a multiply-add as {multiply_add}, divided by the {peak}, gives {utilisation}.",
        model=one_run_many_numbers,
        controls=[
            slider("tokens_per_s", "Speed of each H100", list(range(2000, 20001, 500)), value=RATE, unit="tokens/s"),
            slider("seq", "Sequence length", steps(1024, 131072), value=8192, unit="tokens"),
            choice(
                "scores", "FLOPs counted",
                {"visible scores": "visible", "half of the scores": "half", "all scores": "every", "6N, no scores": "6N",
                 "6N and all scores (PaLM)": "PaLM"},
            ),
            choice("multiply_add", "A multiply-add counts as", {"two": 2, "one": 1}),
            choice(
                "peak", "Divided by",
                {"dense bf16 peak": DENSE_PEAK, "sparse bf16 peak": 2 * DENSE_PEAK},
            ),
        ],
        readouts=[
            readout("utilisation", "Utilisation", "%"),
            readout("flops_per_token", "FLOPs per token", "FLOPs"),
            readout(
                "possible", "Can an H100 do that?",
                text={
                    "below the peak": "yes, in theory: below its peak",
                    "above the peak": "hardly: above its peak",
                    "no": "no: above its limit",
                },
            ),
        ],
        rows=along("recipe", RECIPES, row),
        chart=chart,
        table=[
            column("recipe", "Recipe"),
            column("per_token", "FLOPs per token", "FLOPs"),
            column("divided_by", "Divided by", "FLOP/s"),
            column("called", "Utilisation", "%"),
        ],
        caption=f"{RATE:,} tokens/s is what torchtitan's authors printed in December 2024 for eight H100s, with sequences of 8,192 tokens. Put in your own. Theirs were SXM boards with "
        "HBM2e, limited to 500 W. 'Can an H100 do that?' asks whether the matmuls and the visible scores, which every run must do, stay below an H100's "
        f"limit, {si(LIMIT, 'FLOP/s')} in dense bf16 at its highest clock. "
        + peaks_note([("h100-sxm", "bf16")]),
        height=360,
    )  # fmt: skip
