"""The pictures of the calculator: a bar of memory, days over devices, tokens/s over users, FLOPs under seven conventions."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from flopkit.arithmetic import maximum, minimum, total, vega, where
from flopkit.book.gallery.any_model import model_of, sizes
from flopkit.book.gallery.calculate_fit import CLOSE
from flopkit.book.gallery.calculate_layout import AXES
from flopkit.book.gallery.calculate_mfu import COUNTS
from flopkit.book.gallery.calculate_serving import READS
from flopkit.book.gallery.checkpoint_formats import in_roles
from flopkit.book.gallery.step_bars import HELD, SHADES, step_bars
from flopkit.charts import theme
from flopkit.charts.packages import need
from flopkit.charts.readings import pick
from flopkit.models.serving.serving_pass import decoded

__all__ = [
    "FLEETS",
    "PARTS",
    "PARTS_OF_STEP",
    "USERS",
    "bars",
    "days_over_devices",
    "memory_bar",
    "one_fleet",
    "one_part",
    "one_part_of_step",
    "so_many_users",
    "speed_over_users",
    "step_and_memory",
]

PARTS = {
    HELD[name]: (result, SHADES[name])
    for name, result in {
        "weights": "weights_held",
        "gradients": "gradients_held",
        "optimizer": "optimizer_held",
        "activations": "activations",
        "gathered": "gathered",
    }.items()
}
"""What lies in a device's memory: the result that says it, and its colour, the same as in the bars of a step."""
VERDICTS = {"fits": ("it fits", theme.GREEN), "close": (CLOSE, theme.AMBER), "no": ("it does not fit", theme.ORANGE)}
"""What the bar of memory says of itself, and in which colour."""
PARTS_OF_STEP = {
    "matmuls at the peak": ("arithmetic", theme.BLUE),
    "recomputed": ("recompute", theme.PURPLE),
    "tensor-parallel": ("tensor", theme.ORANGE),
    "context-parallel": ("context", theme.SKY),
    "expert-parallel": ("expert", theme.AMBER),
    "pipeline sends": ("pipeline", theme.INK),
    "bubble": ("bubble", theme.MUTED),
    "data-parallel": ("data", theme.GREEN),
}
"""Where the seconds of a step go: a part's name in `flopkit.parallel.step`, and its colour."""
FLEETS = tuple(2**power for power in range(15))
USERS = tuple(2**power for power in range(13))


SHORT = "format(datum.value, datum.value < 1e-3 ? '~e' : datum.value < 10000 ? ',~r' : '~s')"  # 1e-4, 5,000, 50k: the room beside the axis stays as it is


def as_long_as_its_data(*digits: int) -> dict[str, Any]:
    """Scale and axis of a logarithmic channel: lines at these *digits* of each power of ten among its data."""
    values = [digit * 10.0**power for power in range(-6, 10) for digit in digits]
    return {
        "scale": {"type": "log", "nice": False, "padding": 8},
        "axis": {"labelExpr": SHORT, "grid": True, "values": values, "minExtent": 48, "labelPadding": 10},
    }


def one_part(r: Any, *, part: Any, **_: Any) -> None:
    """A piece of the bar: bytes on each device, and their share of all."""
    r.bytes = pick(part, {name: getattr(r, result) for name, (result, _) in PARTS.items()})
    r.share = r.bytes / r.memory


def memory_bar(s: Any) -> Any:
    """A stacked bar of a device's memory, with lines at what the card has and at what programs can use."""
    alt = need("altair")
    end = vega(maximum(s.memory, s.card) * 1.04 / 1e9)
    scale = alt.Scale(domain=[0, alt.ExprRef(end)], nice=False)
    x = alt.X(
        "giga:Q",
        stack="zero",
        title="GB on each device",
        scale=scale,
        axis=alt.Axis(format=",~r", tickCount=6, labelBound=True),
    )
    rows = s.rows.transform_calculate(
        giga="datum.bytes / 1e9", place=f"indexof({list(PARTS)}, datum.part)", said="format(datum.bytes / 1e9, ',.4~r') + ' GB'"
    )  # fmt: skip
    colours = alt.Scale(domain=list(PARTS), range=[colour for _, colour in PARTS.values()])
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolType="square")
    bar = rows.mark_bar(size=44).encode(
        x=x,
        y=alt.value(60),
        order="place:Q",
        color=alt.Color("part:N", scale=colours, legend=legend),
        tooltip=[
            alt.Tooltip("part:N"),
            alt.Tooltip("said:N", title="each device"),
            alt.Tooltip("share:Q", format=".1%"),
        ],
    )
    now = s.now(
        card=s.card / 1e9, usable=s.usable / 1e9, all=s.memory / 1e9, end=maximum(s.memory, s.card) / 1e9
    ).transform_calculate(
        of_card="'card ' + format(datum.card, ',.3~r')", of_usable="'usable ' + format(datum.usable, ',.3~r')",
        of_all=f"format(datum.all, ',.3~r') + ' GB: ' + ({ {word: said for word, (said, _) in VERDICTS.items()} })[{vega(s.verdict)}]",
    )  # fmt: skip
    at = {"scale": scale}
    lines = [
        now.mark_rule(color=theme.INK, strokeWidth=2, strokeDash=dashes).encode(
            x=alt.X(f"{what}:Q", **at), y=alt.value(26), y2=alt.value(94)
        )
        for what, dashes in (("card", [1, 0]), ("usable", [4, 3]))
    ]

    def beside(what: str, text: str, y: int) -> list[Any]:
        """Words at a line, on the side where there is room."""
        sides = (("right", f"datum.{what} > datum.end / 2", -3), ("left", f"datum.{what} <= datum.end / 2", 3))
        return [
            layer
            for align, test, dx in sides
            for layer in theme.words(
                now.transform_filter(test), {"align": align, "dx": dx, "baseline": "bottom"},
                x=alt.X(f"{what}:Q", **at), y=alt.value(y), text=f"{text}:N",
            )
        ]  # fmt: skip

    whole = {"align": "left", "baseline": "top", "fontWeight": 600}
    colour = f"({ {word: shade for word, (_, shade) in VERDICTS.items()} })[{vega(s.verdict)}]"
    said = [
        *beside("card", "of_card", 10),
        *beside("usable", "of_usable", 25),
        *theme.words(
            now, whole, x=alt.value(0), y=alt.value(92), text="of_all:N", color=alt.value(alt.ExprRef(colour))
        ),
    ]
    return alt.layer(bar, *lines, *said)


def one_part_of_step(r: Any, *, part: Any, **_: Any) -> None:
    """A piece of the bar of time: seconds and their share, bytes that are sent, and how long these are on the way."""

    def of_part(result: str, names: Container[str]) -> Any:
        values = {
            title: getattr(r, f"{result}_{name}") if name in names else 0 for title, (name, _) in PARTS_OF_STEP.items()
        }
        return pick(part, values)

    r.taken = of_part("part", [name for name, _ in PARTS_OF_STEP.values()])
    r.share = r.taken / r.seconds
    r.bytes, r.wire = of_part("bytes", AXES), of_part("wire", AXES)


def step_and_memory(s: Any) -> Any:
    """Seconds of a step by part, and memory of the fullest rank by part, with the device's limit."""
    names = {name: title for title, (name, _) in PARTS_OF_STEP.items()}
    return step_bars(s, names, [colour for _, colour in PARTS_OF_STEP.values()])


def one_fleet(r: Any, *, devices: Any, **_: Any) -> None:
    """A point of the line: days on so many devices, and those of the tokens of Chinchilla's rule."""
    r.on_these = r.device_hours / devices / 24
    r.by_rule = r.on_these / r.tokens_per_parameter * RULE


RULE = 20  # tokens a parameter, as calculate_run has it


def days_over_devices(s: Any) -> Any:
    """Days over devices at the same MFU, for these tokens and for those of Chinchilla's rule, with a dot for this run."""
    alt = need("altair")
    x = {"title": "devices, at the same MFU", **theme.log_scale(1, FLEETS[-1])}
    x["axis"] |= {"format": ",~r", "values": [1, 10, 100, 1000, 10000]}
    alone = s.device_hours / 24
    by_rule = alone / s.tokens_per_parameter * RULE
    y = {"title": "days", **as_long_as_its_data(1)}
    ends = minimum(alone, by_rule) / FLEETS[-1] / 4, maximum(alone, by_rule) * 1.2
    y["scale"] = {"type": "log", "nice": False, "domain": [alt.ExprRef(vega(each)) for each in ends]}
    named = {
        "on_these": ("these tokens", theme.BLUE, [1, 0]),
        "by_rule": ("20 tokens per parameter", theme.AMBER, [5, 4]),
    }
    lines = theme.curves(s.rows, named, "days", {}, x=alt.X("devices:Q", **x), y=alt.Y("days:Q", **y))
    said = "format(datum.days, datum.days < 1e-3 ? '.2~e' : ',.3~r') + ' days'"
    now = s.now("days", "fleet").transform_calculate(devices="datum.fleet", said=said)
    place = {"x": alt.X("devices:Q", **x), "y": alt.Y("days:Q", **y)}
    dot = now.mark_point(size=130).encode(
        **place,
        tooltip=[alt.Tooltip("devices:Q", format=",~r"), alt.Tooltip("days:Q", format=",.4~r")],
    )
    right = "datum.devices > 200"
    words = [
        layer
        for align, test, dx in (("right", right, -10), ("left", f"!({right})", 10))
        for layer in theme.words(now.transform_filter(test), {"align": align, "dx": dx, "dy": 12, "fontWeight": 600}, **place, text="said:N")
    ]  # fmt: skip
    return alt.layer(lines, dot, *words)


def so_many_users(r: Any, **c: Any) -> None:
    """A point of both lines: the least time of a step that so many users share, everything overlapped, and the bytes of weights and cache.

    ``reached``: of more users than fit the largest number that does, at least one, to which the point belongs; so a line ends there.
    """
    model = model_of(sizes(r, c, maximum(c["context"], c["prompt"])))
    most = int(r.most_users) if isinstance(r.most_users, float) else r.most_users  # a whole number in either reading
    r.reached = users = maximum(minimum(c["users"], most), 1)
    formats: dict[str, Any] = {"weights": in_roles(c["weights"]), "kv_cache": c["cache"]}
    found = {
        title: decoded(model, context=c["context"], batch=users, new=1, experts=experts, **formats).pieces
        for title, experts in READS.items()
    }
    shared = [each for each in next(iter(found.values())) if each.group != "experts"]
    chosen = {title: [each for each in pieces if each.group == "experts"] for title, pieces in found.items()}
    r.step_flops = total(each.flops for each in (*shared, *next(iter(chosen.values()))))
    r.step_shared = total(each.bytes for each in shared) + r.stored_norms
    r.step_bytes = r.step_shared + pick(
        c["chosen_by"], {title: total(each.bytes for each in pieces) for title, pieces in chosen.items()}
    )
    r.each_rate = 1 / maximum(r.step_flops / r.all_peak, r.step_bytes / r.all_bandwidth)
    r.decode_rate = users * r.each_rate
    r.serving = r.stored + c["users"] * r.a_user
    r.serves = where(r.serving <= c["count"] * c["device"].usable, "yes", "no")
    r.none = where(r.serving <= c["count"] * c["device"].usable, "", "none")


def speed_over_users(s: Any) -> Any:
    """Tokens/s of all users and of each over their number, as far as they fit, with dots for now and a line at the largest number that does."""
    alt = need("altair")
    end = f"clamp({vega(s.most_users)}, 2, {USERS[-1]})"
    x = {
        "title": "users at once",
        "scale": {"type": "log", "nice": False, "domain": [1, alt.ExprRef(end)]},
        "axis": {"format": ",~r", "values": list(USERS)},
    }
    y = {"title": "tokens/s, at most", **as_long_as_its_data(1, 2, 5)}
    named = {"decode_rate": ("all users", theme.BLUE, [1, 0]), "each_rate": ("each user", theme.SKY, [5, 4])}
    shown = alt.ExprRef(f"{vega(s.most_users)} < 1 ? 0 : 1")
    y["axis"] |= {"gridOpacity": shown}
    lines = theme.curves(s.rows, named, "rate", {"opacity": shown}, x=alt.X("reached:Q", **x), y=alt.Y("rate:Q", **y))
    room = [  # above and below the lines, which are one point where one user fits
        s.rows.transform_calculate(rate=edge).mark_point(size=0, opacity=0).encode(y=alt.Y("rate:Q", **y))
        for edge in ("datum.each_rate / 1.2", "datum.decode_rate * 1.2")
    ]
    most = s.now("most_users").transform_calculate(
        at="clamp(datum.most_users, 1, 4096)",
        said="datum.most_users > 4096 ? 'more than 4,096 fit' : format(datum.most_users, ',d') + ' fit'",
        right="datum.at > 1",
    )
    limit = most.mark_rule(color=theme.ORANGE, strokeWidth=2).encode(x=alt.X("at:Q", **x))
    words = [
        layer
        for align, test, dx in (("right", "datum.right", -5), ("left", "!datum.right", 5))
        for layer in theme.words(
            most.transform_filter(test), {"align": align, "dx": dx, "baseline": "top", "fontWeight": 600},
            x=alt.X("at:Q", **x), y=alt.value({"expr": "height / 2"}), text="said:N",
        )
    ]  # fmt: skip
    # Without a rate the dots are not drawn, but keep a place among the lines, one that the memory read once takes: the axis is as long as its data.
    now = s.now("users", "decode_rate", "each_rate", "no_rate", full=s.all_bandwidth / (s.serving + s.spare))
    now = now.transform_fold(["decode_rate", "each_rate"], as_=["result", "found"])
    now = now.transform_calculate(rate="datum.no_rate ? datum.full : datum.found")
    dots = now.mark_point(size=alt.ExprRef(f"{vega(s.no_rate)} ? 0 : 110"), clip=True).encode(
        x=alt.X("users:Q", **x),
        y=alt.Y("rate:Q", **y),
        tooltip=[alt.Tooltip("users:Q", format=",~r"), alt.Tooltip("rate:Q", title="tokens/s", format=",.4~r")],
    )
    return alt.layer(*room, lines, limit, dots, *words)


def bars(s: Any) -> Any:
    """FLOPs of a training token under seven conventions, each with its MFU."""
    alt = need("altair")
    y = alt.Y("name:N", sort=list(COUNTS), title=None, axis=alt.Axis(labels=False, domain=False, ticks=False))
    x = {
        "title": "GFLOPs of a training token, and its MFU",
        "scale": alt.Scale(domain=[0, alt.ExprRef(f"{vega(s.end)} / 1e9")], nice=False),
        "axis": alt.Axis(format=",~r", tickCount=5, labelBound=True),
    }
    rows = s.rows.transform_calculate(
        giga="datum.flops / 1e9",
        length="datum.drawn / 1e9",
        said="format(datum.giga, ',.4~r') + ' GFLOPs' + (datum.no_share ? '' : ', ' + format(100 * datum.share, ',.3~r') + ' %') + (datum.drawn < datum.flops ? ' →' : '')",
        rate="datum.no_share ? datum.no_share : format(datum.share, '.1%')",
        ours="datum.name === 'EXACT: visible pairs'",
    )
    bars = rows.mark_bar(height=10, yOffset=9).encode(
        y=y,
        x=alt.X("length:Q", **x),
        color=alt.condition("datum.ours", alt.value(theme.BLUE), alt.value(theme.SKY)),
        tooltip=[
            alt.Tooltip("name:N", title="count"),
            alt.Tooltip("giga:Q", title="GFLOPs of a token", format=",.5~r"),
            alt.Tooltip("against:Q", title="by EXACT", format=".3f"),
            alt.Tooltip("rate:N", title="MFU"),
        ],
    )
    left, right = ({"dy": -7, "baseline": "middle", "align": side} for side in ("left", "right"))
    ink = alt.condition("datum.ours", alt.value(theme.BLUE), alt.value(theme.INK))
    names = theme.words(rows, left, y=y, x=alt.value(0), text="name:N", color=ink)
    end = alt.value({"expr": "width"})
    said = theme.words(rows, {**right, "fontWeight": 600}, y=y, x=end, text="said:N", color=ink)
    return alt.layer(bars, *names, *said)
