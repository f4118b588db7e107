"""The picture of a step on many devices, for `parallel_step` and the calculator: where its seconds go, and what a rank holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flopkit.arithmetic import vega
from flopkit.charts import theme
from flopkit.charts.packages import need

__all__ = ["HELD", "SHADES", "step_bars"]

HELD = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimiser",
    "activations": "activations",
    "gathered": "gathered layers",
}
SHADES = dict(zip(HELD, (theme.BLUE, theme.ORANGE, theme.GREEN, theme.PURPLE, theme.AMBER), strict=True))
"""The colour of each."""
TIME, PUBLISHED, MEMORY = "this layout", "published", "memory of a rank"


def step_bars(s: Any, names: Mapping[str, str], colours: Sequence[str], published: bool = False) -> Any:
    """Two bars: seconds of a step by its parts, and what the fullest rank holds, with a line at what a device has.

    *names*: what the reader sees of each part, with *colours*; *published*: whether a bar of ``s.published`` seconds stands between the two.
    """
    alt = need("altair")
    bars = [TIME, *([PUBLISHED] if published else []), MEMORY]
    y = alt.Y("bar:N", title=None, sort=bars, scale=alt.Scale(domain=bars), axis=alt.Axis(minExtent=104, ticks=False, domain=False))  # fmt: skip

    def across(most: Any, title: str, orient: str) -> dict[str, Any]:
        scale = alt.Scale(domain=[0, alt.ExprRef(f"1.3 * ({vega(most)})")], nice=False)
        axis = alt.Axis(orient=orient, tickCount=5, format=",~r", labelBound=True, grid=False)
        return {"title": title, "scale": scale, "axis": axis}

    def stacked(
        rows: Any, what: str, title: str, x: dict[str, Any], titles: Mapping[str, str], look: Sequence[str], legend: dict[str, Any]
    ) -> Any:  # fmt: skip
        return rows.mark_bar(height={"band": 0.62}).encode(
            y=y, x=alt.X(f"{what}:Q", stack="zero", **x), order=alt.Order("place:Q"),
            color=alt.Color("part:N", title=None, scale=alt.Scale(domain=list(titles.values()), range=list(look)), legend=alt.Legend(symbolType="square", labelLimit=0, **legend)),
            tooltip=[alt.Tooltip("part:N", title="part"), alt.Tooltip(f"{what}:Q", title=title, format=".4~g")],
        )  # fmt: skip

    seconds = across(s.longest, "seconds of a step", "top")
    rows = s.rows.transform_calculate(bar=f"'{TIME}'", place=f"indexof({json.dumps(list(names.values()))}, datum.part)")
    time = stacked(rows, "taken", "seconds", seconds, names, colours, {"columns": 2})
    other, known = [], []
    at = alt.X("taken:Q", **seconds)
    if published:
        known = [s.now(taken=s.published).transform_filter("datum.taken > 0").transform_calculate(bar=f"'{PUBLISHED}'")]
        tooltip = [alt.Tooltip("taken:Q", title="published, seconds", format=".4~g")]
        other = [known[0].mark_bar(height={"band": 0.62}, color=theme.MUTED).encode(y=y, x=at, tooltip=tooltip)]
    ends = [
        word
        for data in (
            *known,
            s.now(taken=s.seconds, mfu=s.mfu).transform_calculate(bar=f"'{TIME}'"),
        )
        for word in theme.words(
            data.transform_calculate(label="format(datum.taken, datum.taken < 10 ? '.2f' : datum.taken < 100 ? '.1f' : ',.0f') + ' s'"),
            {"align": "left", "dx": 5, "fontWeight": 600},
            y=y, x=at, text="label:N",
        )
    ]  # fmt: skip

    gigabytes = across(s.most / 1e9, "GB of a rank", "bottom")
    held = (
        s.now(**{HELD[name].replace(" ", "_"): getattr(s, f"held_{name}") / 1e9 for name in HELD})
        .transform_fold([name.replace(" ", "_") for name in HELD.values()], as_=["field", "held"])
        .transform_calculate(
            part="replace(datum.field, '_', ' ')",
            bar=f"'{MEMORY}'",
            place=f"indexof({json.dumps(list(HELD.values()))}, replace(datum.field, '_', ' '))",
        )
    )
    memory = stacked(held, "held", "GB", gigabytes, HELD, [*SHADES.values()], {"columns": 2, "orient": "bottom"})
    limit = s.now(held=s.room / 1e9).transform_calculate(bar=f"'{MEMORY}'", label="format(datum.held, ',.0f') + ' GB'")
    at_limit = alt.X("held:Q", **gigabytes)
    usable = [alt.Tooltip("held:Q", title="usable GB of a device", format=".4~g")]
    tick = limit.mark_tick(thickness=2.5, color=theme.INK, bandSize=46).encode(y=y, x=at_limit, tooltip=usable)
    name = theme.words(limit, {"align": "left", "dx": 5, "fontWeight": 600}, y=y, x=at_limit, text="label:N")
    upper, lower = alt.layer(time, *other, *ends), alt.layer(memory, tick, *name)
    return alt.layer(upper, lower).resolve_scale(x="independent", color="independent")
