"""NVIDIA's performance tables of Megatron-Bridge: the FLOPs per token behind their TFLOP/s, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from flopkit.diagnosis.hybrids import hybrid_flops_per_token
from flopkit.models import Model, load
from flopkit.published.audit import trainer
from flopkit.published.rows import Agreement, Row
from flopkit.recordings.published_data import dataset
from flopkit.tables import Table

__all__ = ["SEQUENCES", "WITHIN", "counted_per_token", "megatron_bridge", "with_mtp"]

WITHIN = 0.01
"""How far TFLOP/s and tokens/s of a row may be apart: both are means that were rounded, and not always of the same steps."""

SEQUENCES = ("r26.04.01", "r26.06.01", "r26.08")
"""Releases whose tokens/s are whole sequences a second of all GPUs, divided among these."""

_MENDED = ("r26.06", "r26.06.01", "r26.08")  # pull requests 3029 and 3947
_PREDICTED = 2  # layers for multi-token prediction in the recipes of hybrids that have them
_MATRICES = "counts two of the three matrices of an expert, and windows as full attention, until 26.04.01"
_MAMBA = "counts a Mamba layer as if it were twice as wide as the model; here it is 1.5 times as wide"
_DEPTHS = "counts both layers for multi-token prediction, each with attention, experts and head"
_MTP = "counts the layer for multi-token prediction"


def megatron_bridge() -> Table:
    """Each row of NVIDIA's tables for the releases 25.09 to 26.08, by the formula that its release had.

    Returns
    -------
    Table
        Columns: *release*, *model*, *seq*, *device*, *printed* TFLOP/s per GPU, *ours* (tokens/s as printed, times the FLOPs per token of their
        formula as flopkit computes it), *by ours* (their ratio), *verdict* (of `flopkit.published.check`: digits that rounding allows, or not),
        *agrees* (within 1 %, or inside of what rounding allows), *by EXACT* (what their formula counts as a share of EXACT) and *why*, where that is not 1.

    Notes
    -----
    The dataset ``"megatron_bridge"`` has the rows as they are printed, `flopkit.recordings.find`.

    Examples
    --------
    >>> rows = megatron_bridge()
    >>> len(rows), sum(row["agrees"] for row in rows)
    (279, 278)
    >>> sorted({round(row["by EXACT"], 2) for row in rows if row["model"] == "gpt-oss-120b"})
    [0.83, 0.89, 1.0]
    """
    lines: list[dict[str, Any]] = []
    for row in dataset("megatron_bridge").rows:
        theirs, exact, why = counted_per_token(row)
        grain = row["seq"] / row["count"] if row["table"] in SEQUENCES else 1
        low, high = ((row["value"] + half * grain) * theirs / 1e12 for half in (-0.5, 0.5))
        one = Row(
            "megatron_bridge", row["workload"], "TFLOP/s per GPU", str(row["printed_TFLOPs"]), (low, high), why=why
        )
        ratio = row["printed_TFLOPs"] * 1e12 / (row["value"] * theirs)
        lines.append({
            "release": row["table"].removeprefix("r"), "model": row["workload"], "seq": row["seq"], "device": row["device"],
            "printed": row["printed_TFLOPs"], "ours": row["value"] * theirs / 1e12, "by ours": ratio, "verdict": one.verdict,
            "agrees": abs(ratio - 1) <= WITHIN or one.verdict != Agreement.DIFFERENT, "by EXACT": theirs / exact, "why": why, "GFLOPs": row["printed_TFLOPs"] * 1e3 / row["value"],
        })  # fmt: skip
    shown = ["release", "model", "device", "printed", "ours", "verdict", "why"]
    formats = {"ours": lambda value: f"{value:,.0f}"}
    return Table(lines, caption="TFLOP/s per GPU of Megatron-Bridge", columns=shown, formats=formats)


def counted_per_token(row: Mapping[str, Any]) -> tuple[float, float, str]:
    """FLOPs per token of a row by their formula, by EXACT without multi-token prediction, and why the two differ.

    >>> row = next(row for row in dataset("megatron_bridge").rows if row["workload"] == "deepseek-v3")
    >>> theirs, exact, why = counted_per_token(row)
    >>> round(theirs / 1e9), round(exact / 1e9), why
    (260, 250, 'counts the layer for multi-token prediction')
    """
    return _counted(row["workload"], row["seq"], "w/o MTP" in (row["setting"] or ""), row["table"] in _MENDED)


@cache
def _counted(name: str, seq: int, without_mtp: bool, mended: bool) -> tuple[float, float, str]:
    model = load(name)
    step, predicts = model.train_step(seq=seq), None if without_mtp else with_mtp(name)
    exact = float(step.flops_per_token)
    hybrid = hybrid_flops_per_token(model, {"seq": seq}, _PREDICTED if predicts else 0)
    if hybrid is not None:
        return hybrid, exact, _DEPTHS if predicts else _MAMBA
    if any(getattr(block.mixer, "window", None) is not None for block, _ in model.blocks):
        theirs = trainer("megatron-bridge" if mended else "megatron-bridge-26.04").flops_per_token(name, seq)
        return theirs, exact, "" if mended else _MATRICES
    counted = predicts.train_step(seq=seq) if predicts else step
    return float(counted.under("MEGATRON").flops_per_token), exact, _MTP if predicts else ""


def with_mtp(name: str) -> Model | None:
    """The model called *name* with its layer for multi-token prediction; None where it has none.

    >>> with_mtp("deepseek-v3") is None, with_mtp("kimi-k2") is None
    (False, True)
    """
    try:
        return load(name, mtp=True)
    except ValueError:
        return None
