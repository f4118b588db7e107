"""What a matrix product executes because its kernel computes whole tiles: read off the kernel's name.

cuBLAS writes the tile and the cluster of its Hopper kernels into their names. ``nvjet_sm90_tst_192x176_64x4_1x2_h_bz_coopB_NNT`` computes tiles of 192 × 176
numbers of the result, each from sums that go on by 64, in clusters of 1 × 2 tiles. The first side runs along the columns of PyTorch's result. NVIDIA does not
document these names: on an H200 the counters of every such product agreed with this reading to the last FLOP.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from flopkit.arithmetic import ceil_div

__all__ = ["Tiles", "tiles", "whole"]

_NVJET = re.compile(r"^nvjet_sm\d+_[a-z]+_(\d+)x(\d+)_(\d+)x\d+_(\d+)x(\d+)_")


class Tiles(NamedTuple):
    """Sides of a tile along the columns of the result and along its rows, terms of a sum that are taken at once, and sides of a cluster of tiles."""

    along_columns: int
    along_rows: int
    inner: int
    cluster_columns: int
    cluster_rows: int


def tiles(kernel: str) -> Tiles | None:
    """The tiles that a kernel's name tells; None for a name that we cannot read.

    >>> tiles("nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NNN")
    Tiles(along_columns=192, along_rows=192, inner=64, cluster_columns=1, cluster_rows=2)
    """
    found = _NVJET.match(kernel)
    return Tiles(*map(int, found.groups())) if found else None


def whole(kernel: str, rows: int, columns: int, inner: int) -> int | None:
    """FLOPs of a product whose kernel computes whole clusters of tiles: 2 · rows' · columns' · inner', each rounded up.

    Parameters
    ----------
    kernel : str
        The kernel's name.
    rows, columns, inner : int
        Of the result, and the length of its sums.

    Returns
    -------
    int | None
        None where the name tells no tiles.

    Examples
    --------
    >>> whole("nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NNN", 8192, 16384, 4096) / (2 * 8192 * 16384 * 4096)
    1.039306640625
    >>> whole("nvjet_sm90_tst_24x384_64x4_1x2_h_bz_TNN", 32 * 56 * 56, 24, 144) / (2 * 32 * 56 * 56 * 24 * 144)  # 144 is no multiple of 64
    1.336734693877551
    """
    found = tiles(kernel)
    if found is None:
        return None
    wide, high = found.along_columns * found.cluster_columns, found.along_rows * found.cluster_rows
    filled: int = 2
    for size, step in ((rows, high), (columns, wide), (inner, found.inner)):
        filled *= ceil_div(size, step) * step
    return filled
