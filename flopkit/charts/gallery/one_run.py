"""The figure of the preface: one training run, and what its utilisation is called under the conventions in use."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import minimum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure, need, pick
from flopkit.charts.hardware import peaks_note
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.conventions import EXACT, TORCH
from flopkit.devices import device
from flopkit.models.language import decoder

__all__ = ["one_run", "one_run_many_numbers"]

FORWARDS = 3  # a training step does the products of three forward passes: one, and two more to go back
RECIPES = (
    "the pairs that the mask shows (EXACT)",
    "half of all scores",
    "every score (TORCH)",
    "6N, N all parameters",
    "6N and every score (PaLM's formula)",
    "EXACT, a multiply-add as one",
    "EXACT, against the sparse peak",
)


def one_run_many_numbers(s: Any, *, tokens_per_s: Any, seq: Any, scores: Any, multiply_add: Any, peak: Any) -> None:
    """FLOPs of a training token, and the utilisation they make of a measured rate of tokens."""
    forward = decoder("llama-3-8b").forward(seq=seq)
    s.visible = FORWARDS * forward.under(EXACT).flops / seq
    s.every = FORWARDS * forward.under(TORCH).flops / seq
    s.six_n = 2 * FORWARDS * (forward.params - forward.params_by_role["norm"])  # a gain is in no product
    s.scores_every = 2 * FORWARDS * (forward.macs_by_kind["scores"] + forward.macs_by_kind["hidden"]) / seq
    s.half = s.every - s.scores_every / 2
    s.flops_per_token = (
        pick(scores, {"visible": s.visible, "half": s.half, "every": s.every, "6N": s.six_n}) * multiply_add / 2
    )
    s.rate = s.flops_per_token * tokens_per_s
    s.utilisation = s.rate / peak
    s.possible = where(s.visible * tokens_per_s <= float(device("h100-sxm").limit("bf16")), "yes", "no")


def one_run() -> Figure:
    """One run of Llama-3-8B on H100s, and its utilisation under seven recipes that are in use."""
    h100 = device("h100-sxm")
    dense_peak = float(h100.peak("bf16"))

    def row(r: Any, *, recipe: Any, tokens_per_s: Any, **_: Any) -> None:
        exact, half, every, six_n, palm, macs, sparse = RECIPES
        counts = {exact: r.visible, half: r.half, every: r.every, six_n: r.six_n, palm: r.six_n + r.scores_every}
        r.per_token = pick(recipe, counts | {macs: r.visible / 2, sparse: r.visible})
        r.divided_by = where(recipe == sparse, 2 * dense_peak, dense_peak)
        r.called = r.per_token * tokens_per_s / r.divided_by

    def chart(s: Any) -> Any:
        alt = need("altair")
        y = alt.Y("recipe:N", sort=list(RECIPES), title=None, axis=alt.Axis(labels=False, domain=False, ticks=False))
        axis = {
            "title": "utilisation, as it would be reported",
            "scale": alt.Scale(domain=[0, 1.05]),
            "axis": alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
        }
        rows = s.rows.transform_calculate(shown="min(datum.called, 1.05)", place="min(datum.called, 0.9)")
        bars = rows.mark_bar(color=theme.BLUE, height=12, yOffset=9, clip=True).encode(
            x=alt.X("shown:Q", **axis),
            y=y,
            tooltip=[
                alt.Tooltip("recipe:N", title="recipe"),
                alt.Tooltip("called:Q", title="utilisation", format=".1%"),
            ],
        )
        texts = []
        for halo in (
            {"stroke": theme.PAPER, "strokeWidth": 4, "strokeJoin": "round"},
            {},
        ):  # so that the line does not cross a word
            place = {"align": "left", "baseline": "middle", **halo}
            names = rows.mark_text(dy=-7, color=theme.INK, **place)
            shares = rows.mark_text(dx=5, dy=9, color=theme.BLUE, fontWeight=600, **place)
            texts += [
                names.encode(y=y, x=alt.value(2), text="recipe:N"),
                shares.encode(x=alt.X("place:Q", **axis), y=y, text=alt.Text("called:Q", format=".0%")),
            ]
        own = s.now(shown=minimum(s.utilisation, 1.05)).mark_rule(color=theme.ORANGE, strokeWidth=2.5, clip=True)
        own = own.encode(x=alt.X("shown:Q", **axis))
        return alt.layer(own, bars, *texts)

    return Figure(
        name="one-run",
        title="One training run of Llama-3-8B: what is its utilisation called?",
        alt="Seven bars for one and the same run. At 10,000 tokens a second on an H100 its utilisation is called 26 per cent "
        "where a multiply-add counts as one or the peak is the sparse one, 49 per cent by 6N, 52 per cent by the pairs that "
        "the causal mask shows, 59 per cent where every score counts, and 62 per cent by PaLM's formula.",
        model=one_run_many_numbers,
        controls=[
            slider("tokens_per_s", "Measured, each H100", list(range(2000, 20001, 500)), value=10000, unit="tokens/s"),
            slider("seq", "Sequence length", steps(1024, 131072), value=8192, unit="tokens"),
            choice(
                "scores", "FLOPs counted",
                {"visible pairs": "visible", "half of the scores": "half", "every score": "every", "6N": "6N"},
            ),
            choice("multiply_add", "A multiply-add counts as", {"two": 2, "one": 1}),
            choice(
                "peak", "Divided by",
                {"dense bf16 peak": dense_peak, "sparse bf16 peak": 2 * dense_peak},
            ),
        ],
        readouts=[
            readout("utilisation", "Your recipe says", "%"),
            readout("flops_per_token", "Called FLOPs a token", "FLOPs"),
            readout("rate", "Called FLOP/s", "FLOP/s"),
            readout("possible", "Possible at all", text={"yes": "yes", "no": "no: the visible pairs alone pass the chip's limit"}),
        ],
        rows=along("recipe", RECIPES, row),
        chart=chart,
        table=[
            column("recipe", "Recipe"),
            column("per_token", "FLOPs a token", "FLOPs"),
            column("divided_by", "Divided by", "FLOP/s"),
            column("called", "Utilisation", "%"),
        ],
        caption="The rate of 10,000 tokens/s is an example, not a measurement: put in your own. The orange line is your recipe. "
        "Sizes from the model's config. " + peaks_note([("h100-sxm", "bf16")]),
        height=330,
    )  # fmt: skip
