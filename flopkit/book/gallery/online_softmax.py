"""A figure of the chapter on fusion: a row of scores, tile by tile, with the sums that an online softmax keeps and corrects."""

from __future__ import annotations

import math
from typing import Any

from flopkit.arithmetic import maximum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, switch
from flopkit.charts.readings import pick

__all__ = ["SCORES", "TILE", "online_softmax_steps"]

TILE = 2
"""Keys of a tile."""
SCORES = {
    "rise": (1, 0, 2, 1, 4, 3, 5, 2),
    "fall": (5, 2, 4, 3, 2, 1, 1, 0),
    "jump once": (2, 1, 1, 0, 5, 4, 3, 2),
}
"""Rows of scores. The value of key i is i, so the output says which keys it listened to."""
KEYS = range(1, len(SCORES["rise"]) + 1)
TILES = len(KEYS) // TILE


def _tile(key: int) -> int:
    return (key - 1) // TILE + 1


def online_softmax_of(s: Any, *, tile: Any, scores: Any, forget: Any) -> None:
    """What the kernel keeps after each tile: the largest score m, the sum of the weights ℓ and of the weighted values O."""
    largest: Any = -1000  # below every score, and still a number
    total, out = 0, 0
    for t in range(1, TILES + 1):
        keys = [key for key in KEYS if _tile(key) == t]
        before = largest
        for key in keys:
            largest = maximum(largest, getattr(scores, f"s{key}"))
        setattr(s, f"m{t}", largest)
        largest = getattr(s, f"m{t}")
        setattr(s, f"factor{t}", math.e ** (before - largest) if t > 1 else 1.0)
        times = where(forget, 1.0, getattr(s, f"factor{t}"))
        weights = {key: math.e ** (getattr(scores, f"s{key}") - largest) for key in keys}
        setattr(s, f"l{t}", total * times + sum(weights.values()))
        setattr(s, f"o{t}", out * times + sum(weight * key for key, weight in weights.items()))
        total, out = getattr(s, f"l{t}"), getattr(s, f"o{t}")
    steps = range(1, TILES + 1)
    for name, each in (("m", "m"), ("factor", "factor"), ("total", "l"), ("out", "o")):
        setattr(s, name, pick(tile, {t: getattr(s, f"{each}{t}") for t in steps}))
    s.times = where(forget, 1.0, s.factor)
    s.output = s.out / s.total
    right = {
        t: [math.e ** (getattr(scores, f"s{key}") - getattr(s, f"m{t}")) for key in KEYS if _tile(key) <= t] for t in steps
    }  # fmt: skip
    exact = {t: sum(w * key for key, w in enumerate(each, 1)) / sum(each) for t, each in right.items()}
    s.exact = pick(tile, exact)
    s.nothing = where(s.m == s.m1, "No larger score has come so far, so there is nothing to correct.", "")


def _one_key(r: Any, *, key: Any, tile: Any, scores: Any, forget: Any) -> None:
    """A row: the weight with which a key stands in the sum now, and the one that it should have."""
    r.score = pick(key, {k: getattr(scores, f"s{k}") for k in KEYS})
    r.of = pick(key, {k: _tile(k) for k in KEYS})
    r.place = pick(key, {k: k + 0.6 * (_tile(k) - 1) for k in KEYS})
    r.came = where(r.of <= tile, 1, 0)
    r.due = r.came * math.e ** (r.score - r.m)
    own = pick(r.of, {t: getattr(r, f"m{t}") for t in range(1, TILES + 1)})
    r.weight = where(forget, r.came * math.e ** (r.score - own), r.due)


def online_softmax_steps() -> Figure:
    """A row of eight scores in four tiles: what the kernel keeps after each, and what comes out if it forgets the correction."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        middles = [sum(k + 0.6 * (t - 1) for k in KEYS if _tile(k) == t) / TILE for t in range(1, TILES + 1)]
        axis = alt.Axis(
            values=middles, grid=False, domain=False, ticks=False,
            labelExpr=f"'tile ' + (1 + indexof({middles}, datum.value))",
        )  # fmt: skip
        scale = alt.Scale(domain=[0.3, KEYS[-1] + 0.6 * (TILES - 1) + 0.7], nice=False)
        x = alt.X("place:Q", title="bars: the weights in ℓ; orange: this tile", scale=scale, axis=axis)
        heights = alt.Scale(domain=[0, 1.18], nice=False)
        title = "weight in ℓ; lines: as it should be; top: score"
        ticks = alt.Axis(values=[0, 0.5, 1], format=".1~f")
        tips = [
            alt.Tooltip("key:O", title="key"),
            alt.Tooltip("score:Q", title="score"),
            alt.Tooltip("weight:Q", title="weight in the sum", format=".3f"),
            alt.Tooltip("due:Q", title="weight that it should have", format=".3f"),
        ]
        colour = alt.condition("datum.of === tile", alt.value(theme.ORANGE), alt.value(theme.BLUE))
        y = alt.Y("weight:Q", title=title, scale=heights, axis=ticks)
        rows = s.rows
        bars = rows.mark_bar(size=22, opacity=0.8).encode(x=x, y=y, color=colour, tooltip=tips)
        due = (
            rows.transform_filter("datum.came === 1")
            .mark_tick(orient="horizontal", thickness=3, size=30, color=theme.INK)
            .encode(x=x, y=alt.Y("due:Q", scale=heights, title=title, axis=ticks))
        )
        top = rows.transform_calculate(top="1.11", label="format(datum.score, 'd')")
        look = {"fontWeight": 600, "color": theme.INK}
        words = theme.words(top, look, x=x, y=alt.Y("top:Q", scale=heights, title=title, axis=ticks), text="label:N")
        return alt.layer(bars, due, *words)

    return Figure(
        name="online-softmax-steps",
        title="When a larger score comes, one factor shrinks all earlier weights",
        alt="Bars of the weights of eight keys in four tiles of two, whose scores {scores}. After tile {tile} the largest score is {m}. The "
        "earlier sums were multiplied by {times}. The weights add up to {total}, and the output is {output}; with all weights right it is "
        "{exact}. Forget the correction: {forget}.",
        model=online_softmax_of,
        controls=[
            slider("tile", "Tile", list(range(1, TILES + 1)), value=1),
            choice("scores", "The scores", {title: {f"s{k}": row[k - 1] for k in KEYS} for title, row in SCORES.items()}),
            switch("forget", "Forget the correction", idle="nothing"),
        ],
        presets={
            "First tile": {"tile": 1, "scores": "rise", "forget": False},
            "A larger score": {"tile": 2, "scores": "rise", "forget": False},
            "The whole row": {"tile": TILES, "scores": "rise", "forget": False},
            "Forgotten": {"tile": TILES, "scores": "rise", "forget": True},
        },
        readouts=[
            readout("m", "Largest score, m"),
            readout("times", "ℓ and O were multiplied by"),
            readout("total", "Sum of weights, ℓ"),
            readout("out", "Weighted values, O"),
            readout("output", "Output, O / ℓ"),
            readout("exact", "Softmax in one piece"),
        ],
        rows=along("key", list(KEYS), _one_key),
        chart=chart,
        table=[
            column("key", "Key"), column("of", "Tile"), column("score", "Score"),
            column("weight", "Weight in ℓ"), column("due", "As it should be"),
        ],
        caption="One query, one element of the output; key 1 has the value 1, key 8 the value 8. A weight is e to the score minus m. “Softmax in "
        "one piece” takes all keys so far at once.",
        height=250,
    )  # fmt: skip
