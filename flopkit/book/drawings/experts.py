"""Routing: which tokens go to which experts, when their load is balanced and when it is not."""

from __future__ import annotations

from flopkit.arithmetic import ceil_div
from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import AMBER, BLUE, MUTED, ORANGE
from flopkit.layers.experts import expert_load
from flopkit.units import format_value

__all__ = ["routed_tokens"]

CELL = 18


def routed_tokens(tokens: int = 6, experts: int = 4, capacity: float | None = None) -> Drawing:
    """Tokens that each choose two experts, one of which all of them choose; under a capacity, beside an even spread.

    Parameters
    ----------
    tokens : int, optional
        Rows of the input, at most 8: an expert that all of them choose fills the width.
    experts : int, optional
        Experts to choose from, 3 to 5.
    capacity : float, optional
        The capacity factor, which is drawn as a line. None: no limit.

    Raises
    ------
    ValueError
        For what cannot be drawn.

    Examples
    --------
    >>> routed_tokens().title
    'A skewed load, in which every token chooses expert 1'
    >>> routed_tokens(capacity=1.25).title
    'With room for 4 rows an expert, the skewed load drops 2 choices and leaves 6 rows empty'
    """
    whole("routed_tokens", "tokens", tokens, 4, 8)
    whole("routed_tokens", "experts", experts, 3, 5)
    if 2 * tokens % experts:
        raise ValueError(
            f"routed_tokens(tokens={tokens}, experts={experts}): 2·tokens must be a multiple of experts, to be balanced"
        )
    limit = None
    if capacity is not None:
        limit = ceil_div(int(1000 * capacity) * 2 * tokens, 1000 * experts)
        whole("routed_tokens", "capacity", limit, 1, 8)
    even = [(2 * i % experts, (2 * i + 1) % experts) for i in range(tokens)]
    skewed = [(0, 1 + i % (experts - 1)) for i in range(tokens)]
    loads = {"balanced": even, "skewed": skewed} if limit else {"skewed": skewed}
    canvases = [_routed(name, chosen, experts, limit) for name, chosen in loads.items()]
    counts = [[sum(e in pair for pair in chosen) for e in range(experts)] for chosen in (even, skewed)]
    steep = expert_load(counts[1], capacity=capacity)
    title = "A skewed load, in which every token chooses expert 1"
    balanced = "in the upper picture, each gets" if limit else "balanced, each would get"
    alt = (
        f"{tokens} tokens choose 2 of {experts} experts each. Skewed, the experts get {', '.join(map(str, counts[1]))} rows; "
        f"{balanced} {counts[0][0]}."
    )
    if limit is not None:
        empty = experts * limit - 2 * tokens + steep.overflow
        title = f"With room for {limit} rows an expert, the skewed load drops {steep.overflow} choices and leaves {empty} rows empty"
        alt += (
            f" With room for {limit} rows each, the skewed load drops {steep.overflow} choices, {format_value(steep.dropped, '%')}, "
            f"and {empty} rows stay empty."
        )
    return Drawing("routed-tokens", title, alt, canvases)


def _routed(name: str, chosen: list[tuple[int, int]], experts: int, limit: int | None) -> Canvas:
    tokens = len(chosen)
    height = 30 * max(tokens, experts + 2)
    canvas = Canvas(height + (92 if limit else 52))
    canvas.text(6, 10, f"{name}: {tokens} tokens, 2 of {experts} experts each", anchor="start", bold=True)
    top, left, slots = 42 if limit else 34, 128, 206
    step = height / experts
    places = [top + height * (i + 0.5) / tokens for i in range(tokens)]
    middles = [top + step * (e + 0.5) for e in range(experts)]
    for i, pair in enumerate(chosen):
        for e in pair:
            canvas.line(
                44,
                places[i],
                left,
                middles[e],
                name=f"choice {e}",
                colour=ORANGE if e == 0 and name == "skewed" else MUTED,
            )
    for i in range(tokens):
        canvas.box(6, places[i] - 9, 38, 18, f"t{i + 1}", name="token", colour=BLUE, fill=0.2)
    for e in range(experts):
        canvas.box(left, middles[e] - 14, 70, 28, f"expert {e + 1}", name="expert", colour=MUTED, fill=0.2)
        load = sum(e in pair for pair in chosen)
        room = load if limit is None else limit
        y, kept = middles[e] - CELL / 2, min(load, room)
        for kind, first, last, colour, fill in (
            ("kept", 0, kept, BLUE, 0.5),
            ("dropped", kept, load, ORANGE, 0.6),
            ("empty", load, room, AMBER, 0.1),
        ):
            if first < last:
                canvas.box(
                    slots + first * CELL,
                    y,
                    (last - first) * CELL,
                    CELL,
                    name=kind,
                    colour=colour,
                    fill=fill,
                    edge=0,
                    round=0,
                )
        canvas.grid(slots, y, 1, max(load, room), CELL)
    foot = top + height + 22
    if limit is None:
        canvas.text(slots, foot - 16, "a square is a row: a token at an expert", anchor="middle")
        return canvas
    edge = slots + limit * CELL
    canvas.line(edge, top - 6, edge, top + height + 4, dash=True, width=1.6, name="capacity")
    canvas.text(edge, top - 13, f"capacity: {limit} rows", anchor="middle" if limit < 6 else "end")
    for x, words, colour, fill in (
        (6, "computed", BLUE, 0.5),
        (112, "over capacity", ORANGE, 0.6),
        (240, "empty", AMBER, 0.1),
    ):
        canvas.box(x, foot - 6, 12, 12, colour=colour, fill=fill)
        canvas.text(x + 18, foot, words, anchor="start")
    return canvas
