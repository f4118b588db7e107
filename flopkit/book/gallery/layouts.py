"""The figure of a search: all layouts of Llama 3 405B on 16,384 GPUs, seconds of a step by the memory of a rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from flopkit.book.gallery.parallel_step import KEPT, published
from flopkit.charts import theme
from flopkit.charts.code import Code, unless, value, when
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout
from flopkit.charts.readings import pick
from flopkit.devices import device, memory_of
from flopkit.parallel import Layout, search

__all__ = ["layouts"]

DEVICES, SEQ, BATCH = 16384, 8192, 2048
PUBLISHED = Layout(tensor=8, pipeline=16, data=128, virtual=8)
NO_LIMIT = 1e18
LIMITS = {
    "60 GB": 60e9,
    "80 GB": 80e9,
    "85 GB, all of an H100": float(memory_of(device("h100-sxm"))),
    "96 GB": 96e9,
    "150 GB, all of an H200": float(memory_of(device("h200"))),
    "no limit": NO_LIMIT,
}
OVERLAP = {
    "data and pipeline": ("data", "pipeline"),
    "tensor and context, too": ("tensor", "context", "pipeline", "data"),
    "nothing": (),
}
CONTEXT = {"1 rank": 1, "1 or 2 ranks": 2}
LEAST_SECONDS, MOST_SECONDS, MOST_GB, FIRST = 2.0, 10.0, 154.0, 5
"""What the picture has room for, and how many rows the table has."""

FITS, NOT, BEST, KNOWN = "fits", "does not fit", "fastest that fits", "published"
DEGREES = {"TP 2": theme.AMBER, "TP 4": theme.PURPLE, "TP 8": theme.BLUE}
PALE = 0.3  # a dot of a layout that does not fit
STAR = "M0,-1L0.22,-0.31L0.95,-0.31L0.36,0.12L0.59,0.81L0,0.38L-0.59,0.81L-0.36,0.12L-0.95,-0.31L-0.22,-0.31Z"


class Tried(NamedTuple):
    """A layout: bytes of its fullest rank with either option of `KEPT`, seconds with each of `OVERLAP`."""

    layout: Layout
    held: tuple[float, ...]
    seconds: tuple[float, ...]


@cache
def tried() -> tuple[Tried, ...]:
    """Every layout, whether it fits or not, as `flopkit.parallel.search` answers."""

    def ask(**asked: Any) -> dict[Layout, Any]:
        found = search(
            "llama-3.1-405b", "llama-3", DEVICES, seq=SEQ, batch=BATCH, context=range(1, max(CONTEXT.values()) + 1), memory=NO_LIMIT, **asked
        )  # fmt: skip
        return {each.layout: each for each in found.steps}

    by_overlap = [ask(fused=True, overlap=hidden) for hidden in OVERLAP.values()]
    by_kept = [by_overlap[0] if fused else ask(fused=False) for fused in KEPT.values()]
    return tuple(
        Tried(layout, tuple(float(found[layout].memory.peak) for found in by_kept), tuple(found[layout].seconds for found in by_overlap))
        for layout in by_overlap[0]
    )  # fmt: skip


def told(layout: Layout) -> str:
    """The layout as the figure writes it: "TP 8, PP 16, DP 128, V 8"."""
    degrees = {"TP": layout.tensor, "CP": layout.context, "PP": layout.pipeline, "DP": layout.data, "V": layout.virtual}
    words = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
    words += [f"micro-batches of {layout.micro_batch}"] * (layout.micro_batch > 1)
    return ", ".join([*words, *[f"{layout.recompute} recompute"] * (layout.recompute != "none")])


class Answer(NamedTuple):
    """What a search says at a setting: how many were tried and fit, the place of the published layout (0: it does not fit), and those that fit, the
    fastest first."""

    tried: int
    fit: int
    place: int
    first: tuple[Tried, ...]


def answered(room: float, kept: int, overlap: int, most_context: int) -> Answer:
    """The search with *room* bytes a device; *kept* and *overlap* count the options of `KEPT` and `OVERLAP`."""
    asked = [each for each in tried() if each.layout.context <= most_context]
    fit = sorted((each for each in asked if each.held[kept] <= room), key=lambda each: each.seconds[overlap])
    own = next((each for each in fit if each.layout == PUBLISHED), None)
    place = 0
    if own is not None:
        place = 1 + sum(each.seconds[overlap] < own.seconds[overlap] * (1 - 1e-9) for each in fit)
    return Answer(len(asked), len(fit), place, tuple(fit[:FIRST]))


@cache
def _answers() -> tuple[Answer, ...]:
    """Of every setting, in the order of `_key`."""
    settings = product(LIMITS.values(), range(len(KEPT)), range(len(OVERLAP)), CONTEXT.values())
    return tuple(answered(*setting) for setting in settings)


def _of_search(s: Any, *, limit: Any, kept: Any, overlap: Any, context: Any) -> None:
    """Set what the search says at this setting, and where the published layout lies."""
    answers = _answers()

    def answer(ask: Callable[[Answer], Any]) -> Any:
        return pick(s.setting, {i: ask(each) for i, each in enumerate(answers)})

    s.setting = ((limit.at * len(KEPT) + kept.at) * len(OVERLAP) + overlap.at) * len(CONTEXT) + context.at
    s.room = 1 * limit.room
    s.lean, s.hidden, s.most_context = 1 * kept.at, 1 * overlap.at, 1 * context.most
    s.tried = answer(lambda each: each.tried)
    s.fit = answer(lambda each: each.fit)
    s.place = answer(lambda each: f"place {each.place}" if each.place else "does not fit")
    own = next(each for each in tried() if each.layout == PUBLISHED)
    s.own = pick(s.hidden, dict(enumerate(own.seconds)))
    s.own_held = pick(s.lean, dict(enumerate(own.held)))
    s.best = answer(lambda each: told(each.first[0].layout))
    s.least = _seconds(s, answer(lambda each: _named().index(each.first[0])))
    s.held = _held(s, answer(lambda each: _named().index(each.first[0])))


@cache
def _named() -> tuple[Tried, ...]:
    """The layouts that are among the first of some setting."""
    return tuple(dict.fromkeys(each for answer in _answers() for each in answer.first))


def _seconds(s: Any, number: Any) -> Any:
    """Of one of `_named`."""
    return pick(number * len(OVERLAP) + s.hidden, dict(enumerate(time for each in _named() for time in each.seconds)))


def _held(s: Any, number: Any) -> Any:
    """Of one of `_named`."""
    return pick(number * len(KEPT) + s.lean, dict(enumerate(held for each in _named() for held in each.held)))


def _of_place(r: Any, *, rank: Any, **_: Any) -> None:
    """One of the first: its layout, seconds and memory."""
    places = (_named().index(each) for answer in _answers() for each in answer.first)
    r.number = pick(r.setting * FIRST + rank - 1, dict(enumerate(places)))
    r.layout = pick(r.number, {i: told(each.layout) for i, each in enumerate(_named())})
    r.seconds, r.memory = _seconds(r, r.number), _held(r, r.number)


def _code() -> Code:
    limits = {title: f"{room / 1e9:.12g}e9" for title, room in LIMITS.items()}
    hidden = {title: str(axes) for title, axes in OVERLAP.items()}
    lean, every = KEPT
    own = next(each for each in tried() if each.layout == PUBLISHED)
    small = [title for title, room in LIMITS.items() if own.held[1] > room]
    place = "\nprint(found.place(fk.parallel.Layout(tensor=8, pipeline=16, data=128, virtual=8)))"
    return Code((
        f'import flopkit as fk\n\nfound = fk.parallel.search(\n    "llama-3.1-405b", "llama-3", {DEVICES}, seq={SEQ}, batch={BATCH}, memory=', value("limit", limits),
        unless("kept", [every], ", fused=True"), unless("context", [next(iter(CONTEXT))], ", context=(1, 2)"),
        unless("overlap", [next(iter(OVERLAP))], [", overlap=", value("overlap", hidden)]), ",\n)\nprint(found)",
        when("kept", [lean], place, [unless("limit", small, place)]), "\n",
    ))  # fmt: skip


def _chart(s: Any) -> Any:
    alt = need("altair")
    x = alt.X("gigabytes:Q", title="GB of the fullest rank", scale=alt.Scale(domain=[0, MOST_GB], nice=False), axis=alt.Axis(format="d", tickCount=6))  # fmt: skip
    y = alt.Y("seconds:Q", title="seconds of a step, at least", scale=alt.Scale(domain=[LEAST_SECONDS, MOST_SECONDS], nice=False), axis=alt.Axis(format="d", tickCount=7))  # fmt: skip
    looks = {degree: (colour, "circle") for degree, colour in DEGREES.items()} | {BEST: (theme.GREEN, "diamond"), KNOWN: (theme.ORANGE, STAR)}  # fmt: skip
    colours, shapes = zip(*looks.values(), strict=True)
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolSize=110)
    look = {
        "color": alt.Color("look:N", scale=alt.Scale(domain=list(looks), range=list(colours)), legend=legend),
        "shape": alt.Shape("look:N", scale=alt.Scale(domain=list(looks), range=list(shapes)), legend=legend),
        "tooltip": [
            alt.Tooltip("layout:N", title="layout"),
            alt.Tooltip("seconds:Q", title="seconds, at least", format=".3~f"),
            alt.Tooltip("gigabytes:Q", title="GB", format=".3~g"),
            alt.Tooltip("state:N", title="memory"),
        ],
    }  # fmt: skip
    rows = [
        {"layout": told(each.layout), "look": f"TP {each.layout.tensor}", "c": each.layout.context, "s": [round(t, 4) for t in each.seconds], "b": [round(held / 1e9, 3) for held in each.held]}
        for each in tried()
        if min(each.held) <= 1e9 * MOST_GB and min(each.seconds) <= MOST_SECONDS
    ]  # fmt: skip
    dots = (
        alt.Chart(alt.Data(values=rows))
        .transform_filter("datum.c <= most_context")
        .transform_calculate(seconds="datum.s[hidden]", gigabytes="datum.b[lean]")
        .transform_filter(f"datum.seconds <= {MOST_SECONDS:g} && datum.gigabytes <= {MOST_GB:g}")
        .transform_calculate(
            state=f"1e9 * datum.gigabytes <= room ? '{FITS}' : '{NOT}'",
            shown=f"1e9 * datum.gigabytes <= room ? 1 : {PALE}",
        )
        .mark_point(size=30)
        .encode(x=x, y=y, opacity=alt.Opacity("shown:Q", scale=None, legend=None), **look)
    )
    best = s.now(seconds=s.least, gigabytes=s.held / 1e9, layout=s.best).transform_calculate(
        state=f"'{FITS}'", look=f"'{BEST}'"
    )
    known = s.now(seconds=s.own, gigabytes=s.own_held / 1e9).transform_calculate(
        state=f"1e9 * datum.gigabytes <= room ? '{FITS}' : '{NOT}'", look=f"'{KNOWN}'", layout=f"'{told(PUBLISHED)}'"
    )
    limit = s.now(gigabytes=s.room / 1e9).transform_filter(f"datum.gigabytes < {MOST_GB:g}")
    rule = limit.mark_rule(color=theme.INK, strokeDash=[4, 3]).encode(x=x)
    name = theme.words(
        limit.transform_calculate(label="'usable'", seconds="2.3"), {"align": "right", "dx": -5, "fontWeight": 600}, x=x, y=y, text="label:N"
    )  # fmt: skip
    return alt.layer(
        rule, dots, best.mark_point(size=420, filled=False, strokeWidth=2.2).encode(x=x, y=y, **look), known.mark_point(size=190).encode(x=x, y=y, **look), *name
    )  # fmt: skip


def layouts() -> Figure:
    """Seconds of a step against the memory of a rank, for the layouts of Llama 3 405B on 16,384 GPUs; the published one is starred."""
    counts = [sum(each.layout.context <= most for each in tried()) for most in CONTEXT.values()]
    lean, every = KEPT
    data, sums, _ = OVERLAP
    one, two = CONTEXT
    took = published()[DEVICES][0]
    start = {"limit": "80 GB", "kept": lean, "overlap": data, "context": one}
    return Figure(
        name="layouts",
        title="Layouts of Llama 3 405B on 16,384 H100s",
        alt="Dots: the least seconds of a step against the memory of the fullest rank, a dot for each layout, in a colour for its tensor-parallel degree, down to the left the better. Those that do not fit are pale. A dashed line marks the memory that a layout may take, {limit}; a star "
        "the published layout. Context-parallel: {context}; a layer keeps {kept}; overlapped: {overlap}. {fit} fit; the fastest is {best}, {least} and {held} a rank. The published one: {place}, at least {own}.",
        model=_of_search,
        controls=[
            choice("limit", "Usable memory", {title: {"at": i, "room": room} for i, (title, room) in enumerate(LIMITS.items())}, value="80 GB"),
            choice("kept", "A layer keeps", {title: {"at": i} for i, title in enumerate(KEPT)}),
            choice("overlap", "Overlapped with compute", {title: {"at": i} for i, title in enumerate(OVERLAP)}),
            choice("context", "Context-parallel", {title: {"at": i, "most": most} for i, (title, most) in enumerate(CONTEXT.items())}),
        ],
        presets={
            "As published": start,
            "All of an H100": {**start, "limit": list(LIMITS)[2]},
            "All activations kept": {**start, "kept": every},
            "Context-parallel, too": {**start, "context": two},
            "Tensor-parallel sums hidden": {**start, "overlap": sums},
        },
        readouts=[
            readout("fit", "Fit", "layouts"),
            readout("best", "Fastest that fits"),
            readout("least", "Fastest, at least", "s"),
            readout("held", "Its fullest rank holds", "B"),
            readout("place", "Published layout"),
            readout("own", "Published, at least", "s"),
        ],
        rows=along("rank", range(1, FIRST + 1), _of_place),
        chart=_chart,
        table=[
            column("rank", "Place"),
            column("layout", "Layout"),
            column("seconds", "Seconds, at least", "s"),
            column("memory", "Fullest rank", "B"),
        ],
        code=_code(),
        caption=f"The answers of fk.parallel.search for {BATCH:,} sequences of {SEQ:,} tokens: {counts[0]} layouts with tensor-parallel ranks in a node of 8, with two context-parallel ranks {counts[1]}. Those above {MOST_SECONDS:g} s or {MOST_GB:g} GB are counted, not drawn; those that do not fit are pale. "
        f"Seconds are a bound: no latency, nobody late. The star is the bound of the published layout, whose step took {took:.2f} s (Llama 3, arXiv:2407.21783, table 4); its V of 8 is read out of its two rates. Memory is without work space.",
        height=320,
    )  # fmt: skip
