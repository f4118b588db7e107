"""Routing: which tokens go to which experts, when their load is balanced and when it is not."""

from __future__ import annotations

from flopkit.arithmetic import ceil_div
from flopkit.charts.drawings.canvas import Canvas
from flopkit.charts.drawings.drawing import Drawing
from flopkit.charts.drawings.sizes import whole
from flopkit.charts.theme import AMBER, BLUE, MUTED, ORANGE
from flopkit.layers.experts import expert_load
from flopkit.units import format_value, ratio

__all__ = ["routed_tokens"]

CELL = 18


def routed_tokens(tokens: int = 6, experts: int = 4, capacity: float = 1.25) -> Drawing:
    """Tokens that each choose two experts: spread evenly, and with one expert that every token chooses.

    Parameters
    ----------
    tokens : int, optional
        Rows of the input, at most 8: an expert that all of them choose fills the width.
    experts : int, optional
        Experts to choose from, 3 to 5.
    capacity : float, optional
        The capacity factor, which is drawn as a line.

    Raises
    ------
    ValueError
        For what cannot be drawn.

    Examples
    --------
    >>> routed_tokens().title
    'Both loads are 12 rows of work; the skewed one keeps its busiest expert busy for twice as long'
    """
    whole("routed_tokens", "tokens", tokens, 4, 8)
    whole("routed_tokens", "experts", experts, 3, 5)
    if 2 * tokens % experts:
        raise ValueError(
            f"routed_tokens(tokens={tokens}, experts={experts}): 2·tokens must be a multiple of experts, to be balanced"
        )
    limit = ceil_div(int(1000 * capacity) * 2 * tokens, 1000 * experts)
    whole("routed_tokens", "capacity", limit, 1, 8)
    even = [(2 * i % experts, (2 * i + 1) % experts) for i in range(tokens)]
    skewed = [(0, 1 + i % (experts - 1)) for i in range(tokens)]
    canvases = [_routed(name, chosen, experts, limit) for name, chosen in (("balanced", even), ("skewed", skewed))]
    counts = [[sum(e in pair for pair in chosen) for e in range(experts)] for chosen in (even, skewed)]
    flat, steep = (expert_load(loads, capacity=capacity) for loads in counts)
    longer = steep.busiest / flat.busiest
    return Drawing(
        "routed-tokens",
        f"Both loads are {2 * tokens} rows of work; the skewed one keeps its busiest expert busy for {'twice' if longer == 2 else ratio(longer)} as long",
        f"{tokens} tokens choose 2 of {experts} experts each, which makes {2 * tokens} rows of work in both pictures. Balanced, each expert gets "
        f"{counts[0][0]} rows. Skewed, the experts get {', '.join(map(str, counts[1]))}: the busiest has {ratio(steep.imbalance)} the average. With room for "
        f"{limit} rows each, the skewed load drops {steep.overflow} rows, {format_value(steep.dropped, '%')}, and {experts * limit - 2 * tokens + steep.overflow} "
        f"places stay empty.",
        canvases,
    )  # fmt: skip


def _routed(name: str, chosen: list[tuple[int, int]], experts: int, limit: int) -> Canvas:
    tokens = len(chosen)
    height = 30 * max(tokens, experts + 2)
    canvas = Canvas(height + 84)
    canvas.text(6, 10, f"{name}: {tokens} tokens, 2 of {experts} experts each", anchor="start", bold=True)
    top, left, slots = 34, 128, 206
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
        y, kept = middles[e] - CELL / 2, min(load, limit)
        for kind, first, last, colour, fill in (
            ("kept", 0, kept, BLUE, 0.5),
            ("dropped", kept, load, ORANGE, 0.6),
            ("empty", load, limit, AMBER, 0.1),
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
        canvas.grid(slots, y, 1, max(load, limit), CELL)
    edge = slots + limit * CELL
    canvas.line(edge, top - 6, edge, top + height + 4, dash=True, width=1.6, name="capacity")
    canvas.text(edge, top - 13, f"capacity: {limit} rows", anchor="middle" if limit < 6 else "end")
    foot = top + height + 22
    for x, words, colour, fill in (
        (6, "computed", BLUE, 0.5),
        (112, "over capacity", ORANGE, 0.6),
        (240, "empty", AMBER, 0.1),
    ):
        canvas.box(x, foot - 6, 12, 12, colour=colour, fill=fill)
        canvas.text(x + 18, foot, words, anchor="start")
    return canvas
