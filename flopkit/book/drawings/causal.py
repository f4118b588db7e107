"""The score matrix under a causal mask, cut into the tiles that a fused kernel works on."""

from __future__ import annotations

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, MUTED, ORANGE
from flopkit.layers.attentions import visible_pairs
from flopkit.units import count, percent

__all__ = ["causal_tiles"]


def causal_tiles(length: int = 1024, tile: int = 128) -> Drawing:
    """The causal triangle in square tiles: those that are computed whole, those that the diagonal cuts, those that are skipped.

    Parameters
    ----------
    length : int, optional
        Tokens; a multiple of the tile.
    tile : int, optional
        Queries and keys of a tile; 2 to 16 of them fit the length.

    Raises
    ------
    ValueError
        For sizes that are no whole numbers, or a length of too few or too many tiles.

    Examples
    --------
    >>> causal_tiles(length=1024, tile=128).title
    'A causal kernel computes 36 of 64 tiles, masks 8 of them and skips 28'
    """
    whole("causal_tiles", "tile", tile, 1, 2**20)
    whole("causal_tiles", "length", length, 2, 2**20)
    side, rest = divmod(length, tile)
    if rest or not 2 <= side <= 16:
        raise ValueError(
            f"causal_tiles(length={length}, tile={tile}): the length must be 2 to 16 whole tiles, so that it can be drawn"
        )
    cell, left, top = 212 / side, 24.0, 44.0
    kinds = {"full": (BLUE, 0.45), "cut": (ORANGE, 0.45), "skipped": (MUTED, 0.0)}
    found = dict.fromkeys(kinds, 0)
    width = side * cell
    canvas = Canvas(top + width + 52)
    canvas.text(
        left,
        10,
        f"{count(length, 'tokens')}, tiles of {count(tile)} × {count(tile)}",
        anchor="start",
        bold=True,
    )
    canvas.text(left + width / 2, 32, "keys →", colour=MUTED)
    canvas.text(left, 32, "queries ↓", colour=MUTED, anchor="start")
    for row in range(side):
        # Left of the diagonal each key comes before each query of the tile and is visible; right of it none is.
        runs = {"full": (0, row), "cut": (row, row + 1), "skipped": (row + 1, side)}
        for kind, (first, end) in runs.items():
            colour, fill = kinds[kind]
            if end > first:
                where = left + first * cell, top + row * cell, (end - first) * cell, cell
                canvas.box(*where, name=kind, colour=colour, fill=fill, edge=0, round=0)
            found[kind] += end - first
    canvas.grid(left, top, side, side, cell, name="tiles")
    canvas.line(left, top, left + width, top + width, colour=ORANGE, width=2, name="diagonal")
    visible = visible_pairs(length, length, "causal")
    computed = (found["full"] + found["cut"]) * tile**2
    words = {"full": ("computed", "whole"), "cut": ("computed,", "then masked"), "skipped": ("skipped",)}
    x = left + width + 14
    for i, (kind, (colour, fill)) in enumerate(kinds.items()):
        y = top + 12 + 62 * i
        canvas.box(x, y - 8, 16, 16, colour=colour, fill=fill, edge=0.8, round=0)
        canvas.text(x + 24, y, str(found[kind]), anchor="start", bold=True, name=f"count of {kind}")
        canvas.lines(x + 24, y + 18, *words[kind], anchor="start", colour=MUTED)
    y = top + 12 + 62 * len(kinds)
    canvas.line(x, y - 8, x + 16, y + 8, colour=ORANGE, width=2)
    canvas.lines(x + 24, y, "edge of the", "mask", anchor="start", colour=MUTED)
    said = (
        f"visible: {count(visible)} pairs, {percent(visible / length**2, 4)}",
        f"computed: {count(computed)} pairs, {percent(computed / length**2)}",
    )
    for i, line in enumerate(said):
        canvas.text(left, top + width + 20 + 20 * i, line, anchor="start", name="said")
    return Drawing(
        "causal-tiles",
        f"A causal kernel computes {found['full'] + found['cut']} of {side**2} tiles, masks {found['cut']} of them and skips {found['skipped']}",
        f"{side} by {side} tiles of {tile} queries and {tile} keys. Below the diagonal {found['full']} tiles are computed whole, on it {found['cut']} are computed and nearly half "
        f"of each is masked, above it {found['skipped']} are skipped. The mask leaves {percent(visible / length**2, 4)} of the pairs, the kernel computes "
        f"{percent(computed / length**2)}.",
        [canvas],
    )
