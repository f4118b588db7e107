"""Pictures of results: what a cost is made of, and which modules of a program do its work. `Cost.plot`, `Report.plot` and `Profile.plot` give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flopkit import units
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import Shown, along, column
from flopkit.charts.readings import pick

__all__ = ["cost_by_part", "profile_on_roof", "report_by_module"]

NAMED = 1  # dots of a profile with their names beside them, those with the most seconds: names of near dots meet
MOST = 20  # bars that a picture of a page's height can name
PHASES = {"forward": theme.BLUE, "backward": theme.ORANGE, "recompute": theme.AMBER, "optimizer": theme.PURPLE}

Rows = Mapping[str, Mapping[str, Any]]


def cost_by_part(cost: Any) -> Figure:
    """A bar for the FLOPs of each part of a cost, and one for its bytes beside it, as shares of the whole.

    Parts of one name are added up; beyond 20, the smallest are one bar.

    >>> import flopkit as fk
    >>> up, down = fk.dense(tokens=64, d_in=512, d_out=2048).named("up"), fk.dense(tokens=64, d_in=2048, d_out=512).named("down")
    >>> [row["flops_share"] for row in cost_by_part(up + down).rows()]
    [0.5, 0.5]
    """
    rows: dict[str, dict[str, Any]] = {}
    for part in cost.parts or (cost,):
        row = rows.setdefault(part.name, {"flops": 0, "vector": 0, "bytes": 0})
        for key, number in (("flops", part.flops), ("vector", part.vector_flops), ("bytes", part.bytes)):
            if not isinstance(number, (int, float)):
                raise TypeError(
                    f"{part.name} has {key}={number!r}: a picture needs numbers, so make the cost of plain sizes"
                )
            row[key] += number
    rows = _largest(rows)
    for row in rows.values():
        for key, whole, unit in (("flops", cost.flops, "FLOPs"), ("bytes", cost.bytes, "B")):
            row |= {f"{key}_share": row[key] / (whole or 1), f"{key}_text": units.si(row[key], unit)}
    longest = max(max(row["flops_share"], row["bytes_share"]) for row in rows.values())
    kinds = {"flops_share": "FLOPs", "bytes_share": "bytes"}

    def chart(s: Any) -> Any:
        alt = need("altair")
        bars = s.rows.transform_fold(list(kinds), as_=["of", "share"]).transform_calculate(
            kind=f"({kinds})[datum.of]",
            amount="datum.of == 'flops_share' ? datum.flops_text : datum.bytes_text",
        )
        place = {
            "y": _names(alt, "part", rows),
            "yOffset": alt.YOffset("kind:N", sort=list(kinds.values())),
            "x": alt.X(
                "share:Q", title="share of the whole", axis=alt.Axis(format="%", grid=True), scale=_room(alt, longest)
            ),
        }
        colour = alt.Color(
            "kind:N", title=None, scale=alt.Scale(domain=list(kinds.values()), range=theme.CATEGORIES[:2])
        )
        tooltip = ["part:N", "kind:N", "amount:N", alt.Tooltip("share:Q", format=".2%")]
        return alt.layer(
            bars.mark_bar().encode(**place, color=colour, tooltip=tooltip),
            *theme.words(bars, {"align": "left", "dx": 4}, **place, text="amount:N"),
        )

    told = ", ".join(
        f"{name} {units.format_value(row['flops_share'], '%')} and {units.format_value(row['bytes_share'], '%')}"
        for name, row in sorted(rows.items(), key=lambda item: -item[1]["flops"])[:3]
    )
    total = f"{units.si(cost.flops, 'FLOPs')} and {units.si(cost.bytes, 'B')}"
    columns = [
        column("flops", "FLOPs", "FLOPs"),
        column("flops_share", "share", "%"),
        column("vector", "vector FLOPs", "FLOPs"),
    ]
    columns += [column("bytes", "bytes", "B"), column("bytes_share", "share of bytes", "%")]
    words = [column("flops_text", "FLOPs"), column("bytes_text", "bytes")]
    return _figure(
        cost.name, f"{cost.name} by part", f"Two bars for each part of {cost.name}, its shares of the FLOPs and of the bytes: {told}.", "part", rows, chart, columns, words,
        f"{total} in all. Convention {cost.convention}.", 30,
    )  # fmt: skip


def report_by_module(report: Any, depth: int | None = None) -> Figure:
    """A bar for each module of a program: the FLOPs of what it calls, by phase.

    Parameters
    ----------
    report : Any
        What `flopkit.count` or `flopkit.counting` gave.
    depth : int, optional
        How deep to go; None: as deep as 20 bars allow. Of more, those with the most FLOPs are drawn.
    """
    table = report.by_module(depth)
    while depth is None and len(table) > MOST:
        deepest = max(row["module"].count(".") + bool(row["module"]) for row in table)
        if deepest <= 1:
            break
        table = report.by_module(deepest - 1)
    rows: Rows = {row["module"] or "(the model)": row for row in table}
    if not rows:
        raise ValueError("nothing was counted in this report: there is nothing to draw")
    left_out = len(rows) - MOST
    if left_out > 0:
        rows = dict(sorted(rows.items(), key=lambda item: -item[1]["flops"])[:MOST])
    longest = max(row["flops"] for row in rows.values())
    phases = {phase: colour for phase, colour in PHASES.items() if any(row[phase] for row in rows.values())}

    def chart(s: Any) -> Any:
        alt = need("altair")
        y = _names(alt, "module", rows)
        bars = (
            s.rows.transform_fold(list(phases), as_=["phase", "of_phase"])
            .transform_calculate(
                amount="format(datum.of_phase, '.4~s') + ' FLOPs'", place=f"indexof({list(phases)}, datum.phase)"
            )
            .mark_bar()
            .encode(
                y=y,
                x=alt.X("of_phase:Q", title="FLOPs", axis=alt.Axis(format="~s", grid=True), scale=_room(alt, longest)),
                color=alt.Color(
                    "phase:N", title=None, scale=alt.Scale(domain=list(phases), range=list(phases.values()))
                ),
                order="place:Q",
                tooltip=[
                    "module:N",
                    "phase:N",
                    "amount:N",
                    alt.Tooltip("share:Q", title="module's share", format=".2%"),
                ],
            )
        )
        shares = s.rows.transform_calculate(label="format(datum.share, '.1%')")
        return alt.layer(bars, *theme.words(shares, {"align": "left", "dx": 4}, y=y, x="flops:Q", text="label:N"))

    inner = sorted((item for item in rows.items() if item[0] != "(the model)"), key=lambda item: -item[1]["flops"])[:3]
    told = ", ".join(f"{name} {units.format_value(row['share'], '%')}" for name, row in inner or rows.items())
    columns = [column("flops", "FLOPs", "FLOPs"), column("share", "share", "%")]
    columns += [*(column(phase, phase, "FLOPs") for phase in phases), column("bytes", "bytes", "B")]
    return _figure(
        "modules", "FLOPs by module, with what each one calls", f"A bar for each module, by phase. Of all FLOPs: {told}.",
        "module", rows, chart, columns, [],
        f"{units.si(report.flops, 'FLOPs')} executed. Convention {report.convention}."
        + (f" Not drawn: {units.count(left_out, 'modules')} with less." if left_out > 0 else ""), 24,
    )  # fmt: skip


def profile_on_roof(profile: Any) -> Figure:
    """A dot for each operator and phase of a profile that has FLOPs, under the roof of its device, as large as its seconds.

    The roof is that of the number format with the most FLOPs; a format with another peak has another roof.

    Parameters
    ----------
    profile : Any
        What `flopkit.profile` gave, with a device whose roof is known.
    """
    rows = {
        f"{row['operator']}, {row['phase']}": {**row, "intensity": row["flops"] / row["bytes"]}
        for row in profile.by_op()
        if row["flops"] and row["bytes"] and row["seconds"] and row["phase"]
    }
    if profile.device is None or not rows:
        raise ValueError(
            "nothing has FLOPs in this profile: there is nothing to draw"
            if profile.device is not None
            else "no roof is known: pass a device, profile.on('h100-sxm').plot(), or run flopkit.ceilings() once"
        )
    bandwidth, peak = profile.roof()
    low = min(row["intensity"] for row in rows.values()) / 2
    far = max(2 * peak / bandwidth, *(2 * row["intensity"] for row in rows.values()))
    floor = min(low * bandwidth, *(row["flops_per_s"] for row in rows.values())) / 2
    phases = {phase: colour for phase, colour in PHASES.items() if any(row["phase"] == phase for row in rows.values())}
    most = sorted(rows, key=lambda name: -rows[name]["seconds"])[:NAMED]

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X("intensity:Q", title="FLOPs per byte", **theme.log_scale(low, far))
        y = alt.Y("flops_per_s:Q", title="FLOP/s", **theme.log_scale(floor, 2 * peak))
        corners = [(low, low * bandwidth), (peak / bandwidth, peak), (far, peak)]
        ends = [{"intensity": i, "flops_per_s": rate} for i, rate in corners]
        roof = alt.Chart(alt.Data(values=ends)).mark_line(color=theme.MUTED).encode(x=x, y=y)
        dots = s.rows.mark_point(filled=True, opacity=0.8).encode(
            x=x, y=y, size=alt.Size("seconds:Q", title="seconds a step", scale=alt.Scale(range=[30, 600]), legend=None),
            color=alt.Color(
                "phase:N", legend=alt.Legend(title=None, orient="bottom"), scale=alt.Scale(domain=list(phases), range=list(phases.values())),
            ),
            tooltip=["operator:N", alt.Tooltip("seconds:Q", format=".3~s"), alt.Tooltip("share:Q", format=".1%"), "bound:N"],
        )  # fmt: skip
        named = s.rows.transform_filter(f"indexof({most}, datum.operator) >= 0")
        return alt.layer(roof, dots, *theme.words(named, {"dy": -20}, x=x, y=y, text="operator:N"))

    columns = [column("intensity", "intensity", "FLOP/B"), column("flops_per_s", "rate", "FLOP/s")]
    columns += [column("seconds", "seconds", "s"), column("share", "share", "%")]
    return _figure(
        "profile", f"Operators under the roof of {profile.device_name}",
        f"A dot for each operator, as large as its seconds. {most[0]} takes most, {units.format_value(rows[most[0]]['share'], '%')} of the step.",
        "operator", rows, chart, columns, [column("phase", "phase"), column("bound", "bound")],
        f"Roof: {units.si(peak, 'FLOP/s')} and {units.si(bandwidth, 'B/s')}. Dots without FLOPs are not drawn.", 4,
    )  # fmt: skip


def _figure(
    name: str, title: str, alt: str, key: str, rows: Rows, chart: Any, columns: Sequence[Shown], words: Sequence[Shown],
    caption: str, height: int,
) -> Figure:  # fmt: skip
    def row(r: Any, **named: Any) -> None:
        for each in (*columns, *words):
            setattr(r, each.name, pick(named[key], {label: row[each.name] for label, row in rows.items()}))

    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "result"
    return Figure(
        name=f"{key}s-of-{slug}", title=title, alt=alt, model=lambda s: None, controls=[], rows=along(key, list(rows), row), chart=chart,
        table=[column(key, key), *columns], caption=caption, height=40 + height * len(rows),
    )  # fmt: skip


def _room(alt: Any, longest: float) -> Any:
    """A scale on which the longest bar leaves room for the words behind it."""
    return alt.Scale(domain=[0, 1.2 * longest or 1], nice=False)


def _names(alt: Any, key: str, rows: Iterable[str]) -> Any:
    return alt.Y(f"{key}:N", title=None, sort=list(rows), axis=alt.Axis(labelLimit=200))


def _largest(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """At most `MOST` rows, in their order: the others, by FLOPs and then bytes, as one."""
    if len(rows) <= MOST:
        return rows
    ranked = sorted(rows, key=lambda name: (-rows[name]["flops"], -rows[name]["bytes"]))
    kept, others = set(ranked[: MOST - 1]), [rows[name] for name in ranked[MOST - 1 :]]
    rest = {key: sum(row[key] for row in others) for key in others[0]}
    return {name: row for name, row in rows.items() if name in kept} | {f"{len(others)} others": rest}
