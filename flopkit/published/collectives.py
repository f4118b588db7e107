"""Published times of collectives: what nccl-tests printed on machines of several sizes."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import NamedTuple

__all__ = ["AllReduce", "nccl_tests"]


class AllReduce(NamedTuple):
    """A row that nccl-tests printed for an all-reduce out of place.

    ``bytes`` is the whole tensor, ``seconds`` the mean time, ``bus`` the bus bandwidth in bytes/s, ``source`` repository, commit, file and line.
    """

    system: str
    ranks: int
    nodes: int
    bytes: int
    seconds: float
    bus: float
    source: str


def nccl_tests() -> list[AllReduce]:
    """The all-reduces of eight runs of nccl-tests, as people printed them in public repositories.

    Rows of empty tensors are left out.

    Examples
    --------
    >>> row = [each for each in nccl_tests() if each.ranks == 8][-1]
    >>> row.system, row.bytes, row.bus
    ('1 node, 8 × H100 (p5)', 17179869184, 483050000000.0)
    """
    lines = (files("flopkit") / "data" / "published" / "nccl_tests.csv").read_text("utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return [
        AllReduce(
            row["system"], int(row["ranks"]), int(row["nodes"]), int(row["bytes"]), float(row["oop_us"]) * 1e-6,
            float(row["oop_busbw"]) * 1e9, row["source"],
        )
        for row in rows
        if int(row["bytes"])
    ]  # fmt: skip
