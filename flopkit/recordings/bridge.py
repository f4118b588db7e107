"""NVIDIA's performance tables of Megatron-Bridge: the FLOPs per token behind their TFLOP/s, row by row."""

from __future__ import annotations

from functools import cache
from typing import Any

from flopkit.models import load
from flopkit.models.configs import hf_config
from flopkit.published.audit import trainer
from flopkit.published.rows import Row
from flopkit.recordings.published_data import dataset
from flopkit.tables import Table

__all__ = ["WITHIN", "megatron_bridge"]

WITHIN = 0.01
"""How far TFLOP/s and tokens/s of a row may be apart: both are means that were rounded, and not always of the same steps."""

_MATRICES = "counts two of the three matrices of an expert, and windows as full attention"
_MAMBA = "counts a Mamba layer as if it were twice as wide as the model; here it is 1.5 times as wide"
_DEPTHS = "counts both layers for multi-token prediction, each with attention, experts and head"
_MTP = "counts the layer for multi-token prediction"


def megatron_bridge() -> Table:
    """Each row of NVIDIA's tables for the releases 25.09 to 26.04, by the formula that its release had.

    Returns
    -------
    Table
        Columns: *release*, *model*, *seq*, *device*, *printed* TFLOP/s per GPU, *ours* (tokens/s as printed, times the FLOPs per token of their
        formula as flopkit computes it), *by ours* (their ratio), *verdict* (of `flopkit.published.check`: digits that rounding allows, or not),
        *agrees* (within 1 %), *by EXACT* (what their formula counts as a share of EXACT) and *why*, where that is not 1.

    Notes
    -----
    The dataset ``"megatron_bridge"`` has the rows as they are printed, `flopkit.recordings.find`.

    Examples
    --------
    >>> rows = megatron_bridge()
    >>> len(rows), sum(row["agrees"] for row in rows)
    (172, 172)
    >>> sorted({round(row["by EXACT"], 2) for row in rows if row["model"] == "gpt-oss-120b"})
    [0.83, 0.89]
    """
    lines: list[dict[str, Any]] = []
    for row in dataset("megatron_bridge").rows:
        theirs, exact, why = _counted(row["workload"], row["seq"], "w/o MTP" in (row["setting"] or ""))
        low, high = ((row["value"] + half) * theirs / 1e12 for half in (-0.5, 0.5))
        one = Row(
            "megatron_bridge", row["workload"], "TFLOP/s per GPU", str(row["printed_TFLOPs"]), (low, high), why=why
        )
        ratio = row["printed_TFLOPs"] * 1e12 / (row["value"] * theirs)
        lines.append({
            "release": row["table"].removeprefix("r"), "model": row["workload"], "seq": row["seq"], "device": row["device"],
            "printed": row["printed_TFLOPs"], "ours": row["value"] * theirs / 1e12, "by ours": ratio, "verdict": one.verdict,
            "agrees": abs(ratio - 1) <= WITHIN, "by EXACT": theirs / exact, "why": why, "GFLOPs": row["printed_TFLOPs"] * 1e3 / row["value"],
        })  # fmt: skip
    shown = ["release", "model", "device", "printed", "ours", "verdict", "why"]
    formats = {"ours": lambda value: f"{value:,.0f}"}
    return Table(lines, caption="TFLOP/s per GPU of Megatron-Bridge", columns=shown, formats=formats)


@cache
def _counted(model: str, seq: int, without_mtp: bool) -> tuple[float, float, str]:
    """FLOPs per token by their formula, by EXACT without multi-token prediction, and why the two differ."""
    exact = float(load(model).train_step(seq=seq).flops_per_token)
    if model.startswith("gpt-oss"):
        return trainer("megatron-bridge-26.04").flops_per_token(model, seq), exact, _MATRICES
    if model.startswith("nemotron"):
        depths = 2 if "super" in model else 0
        return _hybrid(model, seq, depths), exact, _DEPTHS if depths else _MAMBA
    mtp = model == "deepseek-v3" and not without_mtp
    step = load(model, mtp=mtp).train_step(seq=seq)
    return float(step.under("MEGATRON").flops_per_token), exact, _MTP if mtp else ""


def _hybrid(model: str, seq: int, depths: int) -> float:
    """hybrid_flops of Megatron-Bridge, per token: layers by the letters of the pattern, *depths* of attention and experts for multi-token
    prediction; a Mamba layer 2 · d_model wide, its scan at 7 FLOPs per element of the state."""
    c = hf_config(model)
    d, pattern = c["hidden_size"], c["hybrid_override_pattern"]
    wide = c["num_attention_heads"] * c["head_dim"]
    attention = 4 * wide * d * (1 + c["num_key_value_heads"] / c["num_attention_heads"]) + 2 * wide * seq
    inner, state = 2 * d, c["ssm_state_size"]
    mamba = 2 * d * (2 * inner + 2 * c["n_groups"] * state + c["mamba_num_heads"]) + 7 * inner * state + 2 * inner * d
    latent = c.get("moe_latent_size") or 0
    routed = 4 * (latent or d) * c["moe_intermediate_size"] * c["num_experts_per_tok"] + 4 * d * latent
    experts = routed + 4 * d * c["moe_shared_expert_intermediate_size"]
    layers = (
        (pattern.count("*") + depths) * attention + pattern.count("M") * mamba + (pattern.count("E") + depths) * experts
    )
    return 3 * float(layers + 2 * d * c["vocab_size"] * (1 + depths))
