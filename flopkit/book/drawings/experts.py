"""Routing: through which experts one token passes, and which tokens go to which experts, when their load is balanced and when it is not."""

from __future__ import annotations

import random

from flopkit.arithmetic import ceil_div
from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import AMBER, BLUE, MUTED, ORANGE
from flopkit.layers.experts import expert_load
from flopkit.units import format_value

__all__ = ["chosen_experts", "routed_tokens"]

CELL = 18


def chosen_experts(experts: int = 256, top_k: int = 8) -> Drawing:
    """One token in a layer of experts: the router scores all of them, and the token passes through the best and a shared one.

    Parameters
    ----------
    experts : int, optional
        Experts to choose from, a multiple of 16 up to 256.
    top_k : int, optional
        How many of them the token passes through, 1 to 16.

    Examples
    --------
    >>> chosen_experts().title
    'A token passes through 8 of 256 experts, but memory holds them all'
    """
    whole("chosen_experts", "experts", experts, 16, 256)
    whole("chosen_experts", "top_k", top_k, 1, 16)
    if experts % 16:
        raise ValueError(f"chosen_experts(experts={experts}): give a multiple of 16, for rows of 16 experts")
    cell, left, top, rows = 9, 160, 26, experts // 16
    bottom = top + rows * cell
    middle = (top + bottom) / 2
    canvas = Canvas(bottom + 78)
    canvas.text(left + 8 * cell, 10, f"{experts} experts in memory", bold=True)
    canvas.grid(left, top, rows, 16, cell, name="experts")
    chosen = random.Random(4).sample(range(experts), top_k)
    for i in chosen:
        x, y = left + i % 16 * cell, top + i // 16 * cell
        canvas.box(x, y, cell, cell, name="chosen", colour=ORANGE, fill=0.9, edge=0, round=0)
    canvas.text(left + 8 * cell, bottom + 14, f"the {top_k} with the best scores", colour=MUTED)
    canvas.box(4, middle - 13, 50, 26, "token", name="token", colour=BLUE, fill=0.3)
    canvas.arrow(54, middle, 82, middle, name="to the router")
    canvas.box(82, middle - 13, 50, 26, "router", name="router", colour=MUTED, fill=0.2)
    canvas.arrow(132, middle, left - 2, middle, name="to the experts")
    low = bottom + 48
    canvas.line(29, middle + 13, 29, low, name="past the router")
    canvas.arrow(29, low, left - 2, low, name="past the router")
    canvas.box(left, low - 13, 16 * cell, 26, "shared expert", name="shared", colour=ORANGE, fill=0.9)
    right = left + 16 * cell
    canvas.arrow(right + 2, middle, 330, middle, name="to the sum")
    canvas.line(right, low, 342, low, name="to the sum")
    canvas.arrow(342, low, 342, middle + 13, name="to the sum")
    canvas.box(330, middle - 12, 24, 24, "+", name="sum", colour=BLUE, fill=0.3, size=15)
    return Drawing(
        "chosen-experts",
        f"A token passes through {top_k} of {experts} experts, but memory holds them all",
        f"A token goes to the router, which scores {experts} experts, drawn as squares; {top_k} of them are filled. The token also goes past the "
        "router to a shared expert. The results of the filled ones and of the shared one are summed.",
        [canvas],
    )


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
