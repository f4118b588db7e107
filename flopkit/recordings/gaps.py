"""Every published step whose layout is known, against its bound: papers, and NVIDIA's tables of Megatron-Bridge."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from flopkit import units
from flopkit.models import load
from flopkit.models.branches.recurrences import StateSpace
from flopkit.parallel import Layout
from flopkit.published.parallel_runs import ParallelRun, parallel_runs
from flopkit.recordings.bridge import SEQUENCES, counted_per_token, with_mtp
from flopkit.recordings.published_data import dataset
from flopkit.tables import Table

__all__ = ["bridge_runs", "published_gaps"]

_CLUSTERS = {
    "h100-sxm": "dgx-h100", "b200": "dgx-b200", "b300": "dgx-b300", "gb200": "dgx-gb200", "gb300": "dgx-gb300",
}  # fmt: skip
_NARROW = {"fp8": {"linear": "fp8", "rest": "bf16"}, "fp4": {"linear": "fp4", "rest": "bf16"}, "bf16": "bf16"}


_ONCE = ("deepseek-v3", "qwen3-30b-a3b")
"""Models whose recipes send a token to a node once (DeepEP, HybridEP) wherever their experts lie in several nodes; others' use an all-to-all there."""


@cache
def bridge_runs() -> tuple[ParallelRun, ...]:
    """The rows of Megatron-Bridge whose layout can be worked out.

    Left out: those with Mamba layers, which are not divided here, and one whose printed expert degree, 64, does not divide the 32 GPUs of a stage.

    Examples
    --------
    >>> runs = bridge_runs()
    >>> len(runs), runs[0].table, runs[0].run
    (226, 'megatron_bridge r26.08', 'deepseek-v3, 256 × DGX-GB300, fp8, pp2 vp8 ep32, MXFP8')
    """
    rows = dataset("megatron_bridge").rows
    return tuple(_run(row) for row in rows if _divided(row["workload"]) and _possible(row))


@cache
def _divided(name: str) -> bool:
    """Whether it is known here how the model's layers divide among expert-parallel ranks: of Mamba's it is not."""
    return not any(isinstance(block.mixer, StateSpace) for block, _ in load(name).blocks)


def _degrees(row: Mapping[str, Any]) -> dict[str, int]:
    found = {name: int(n) for name, n in re.findall(r"\b(tp|pp|cp|vp|ep)(\d+)", row["setting"] or "")}
    return dict.fromkeys(("tp", "pp", "cp", "vp", "ep"), 1) | found


def _possible(row: Mapping[str, Any]) -> bool:
    degree = _degrees(row)
    ranks: int = row["count"] // degree["pp"]
    return ranks % degree["ep"] == 0


def _run(row: Mapping[str, Any]) -> ParallelRun:
    said = row["setting"] or ""
    degree = _degrees(row)
    tensor, stages, context = degree["tp"], degree["pp"], degree["cp"]
    predicts = None if "w/o MTP" in said else with_mtp(row["workload"])
    model = load(row["workload"]) if predicts is None or tensor > 1 else predicts
    virtual, chunks = degree["vp"], stages * degree["vp"]
    layers = sum(count for _, count in model.blocks) + (model.mtp is not None)
    data = row["count"] // (tensor * stages * context)
    rounds = row["batch"] // (data * row["micro_batch"])
    equal = (layers % chunks == 0 or (layers + 2) % chunks == 0) and rounds % stages == 0
    layout = Layout(
        tensor=tensor, pipeline=stages, context=context, data=data, expert=degree["ep"],
        virtual=virtual if equal and stages > 1 else 1, micro_batch=row["micro_batch"], zero=3 if "FSDP" in said else 1,
    )  # fmt: skip
    assumed = [] if row["precision"] else ["no number format is printed: fp8 for the layers' weights"]
    if predicts is not None and model.mtp is None:
        assumed.append("without the layer for multi-token prediction, which ran")
    rate = float(row["value"])
    if row["table"] in SEQUENCES:
        rate = row["printed_TFLOPs"] * 1e12 / counted_per_token(row)[0]
        assumed.append("tokens/s from the printed TFLOP/s, which are rounded less")
    return ParallelRun(
        f"megatron_bridge {row['table']}", f"{row['workload']}, {row['count']} × {row['device']}, {row['precision'] or 'no format'}, {said}",
        model, layout, _CLUSTERS[row["device_name"]], row["seq"], row["batch"], {"tokens_per_s_per_device": rate},
        dtype=_NARROW[row["precision"] or "fp8"], precision="mixed", uneven=1 if equal or stages == 1 else virtual,
        expert_nodes="expected" if row["workload"] in _ONCE else None, assumed="; ".join(assumed),
    )  # fmt: skip


def _all() -> Iterator[ParallelRun]:
    yield from parallel_runs()
    yield from bridge_runs()


def published_gaps(table: str | None = None) -> Table:
    """Every published step against its bound, with the item that takes most of its gap.

    Parameters
    ----------
    table : str, optional
        The beginning of a table's name, such as ``"bloom"``, ``"llama_3"``, ``"torchtitan"`` or ``"megatron_bridge r26.04"``. None: all.

    Returns
    -------
    Table
        Columns: *table*, *run*, *seconds* of the step, *bound* in seconds, *MFU* under EXACT over the peak of the fastest format, *MFU of the bound*,
        *largest* item, *its points*, the largest *known* one and its points, *unexplained* in points, *assumed*.

    Raises
    ------
    ValueError
        For a table of which there is no run.

    Examples
    --------
    >>> rows = published_gaps("llama_3")
    >>> [(round(100 * row["MFU"]), row["largest known"]) for row in rows]
    [(43, 'products'), (40, 'products'), (38, 'products')]
    """
    runs = [each for each in _all() if each.table.startswith(table or "")]
    if not runs:
        known = sorted({each.table for each in _all()})
        raise ValueError(f"table={table!r}: the tables are {', '.join(known)}")
    rows: list[dict[str, Any]] = []
    for each in runs:
        found = each.gap()
        known_item = found.largest_known
        rows.append({
            "table": each.table, "run": each.run, "seconds": found.step_seconds, "bound": found.bound.seconds, "MFU": found.mfu,
            "MFU of the bound": found.mfu * found.step_seconds / found.bound.seconds, "largest": found.largest.name, "its points": found.largest.points,
            "largest known": known_item.name, "its points of MFU": known_item.points, "unexplained": found["unexplained"].points, "assumed": each.assumed,
        })  # fmt: skip
    formats = {
        "seconds": units.seconds,
        "bound": units.seconds,
        "MFU": units.percent,
        "MFU of the bound": units.percent,
    }
    points = dict.fromkeys(("its points", "its points of MFU", "unexplained"), lambda value: f"{value:.1f}")
    shown = [
        "table",
        "run",
        "seconds",
        "bound",
        "MFU",
        "largest",
        "its points",
        "largest known",
        "its points of MFU",
        "unexplained",
    ]
    return Table(rows, caption="Published steps against their bounds", columns=shown, formats=formats | points)
