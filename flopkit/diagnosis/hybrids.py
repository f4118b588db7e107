"""Megatron's count of a hybrid: a model whose layers are a Mamba mixer, attention or an MLP, each by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flopkit.conventions import Convention
from flopkit.models.branches.recurrences import StateSpace
from flopkit.models.model import Model

__all__ = ["hybrid_flops_per_token"]

_HYBRID = Convention(
    "Megatron's hybrids", "hybrid_flops of Megatron-LM and Megatron-Bridge: half of the scores, no router",
    recompute=0, router=0, scores=0.5, hidden=0.5,
)  # fmt: skip


def hybrid_flops_per_token(model: Model, sizes: Mapping[str, Any], depths: int = 0) -> float | None:
    """FLOPs per token of a training step as ``hybrid_flops`` of Megatron-LM and Megatron-Bridge counts them.

    A Mamba layer of H heads, G groups and a state of S counts as 2 · d_model = I wide, whatever its width is:

        2 · d_model · (2·I + 2·G·S + H) + 7 · I · S + 2 · I · d_model     forward, three times that in training

    Attention counts half of the score matrix; there is no router.

    Parameters
    ----------
    model : Model
        The whole model.
    sizes : Mapping[str, Any]
        As `Model.train_step` takes them: ``seq`` or ``lengths``.
    depths : int, optional
        Layers of multi-token prediction, each with attention, experts and the head once more.

    Returns
    -------
    float or None
        None for a model that is no such hybrid: without Mamba layers or with nothing else, with a mixer and an MLP in one layer, or with an
        encoder; for *depths* of one that lacks attention or experts.

    Examples
    --------
    >>> from flopkit.models import load
    >>> round(hybrid_flops_per_token(load("nemotron-3-nano-30b-a3b"), {"seq": 8192}) / 1e9, 1)
    22.3
    >>> hybrid_flops_per_token(load("llama-3-8b"), {"seq": 8192}) is None
    True
    """
    d, scans = model.d_model, 0
    others = [(block, layers) for block, layers in model.blocks if not isinstance(block.mixer, StateSpace)]
    if not 0 < len(others) < len(model.blocks) or model.encoder is not None:
        return None
    if any(block.mlp is not None for block, _ in model.blocks if block.mixer is not None):
        return None
    for block, layers in model.blocks:
        if isinstance(mixer := block.mixer, StateSpace):
            scans += layers * (
                2 * d * (4 * d + 2 * mixer.groups * mixer.state + mixer.heads) + 14 * d * mixer.state + 4 * d * d
            )
    attention = next((block for block, _ in others if block.mixer is not None), None)
    experts = next((block for block, _ in others if block.mixer is None), None)
    if depths and (attention is None or experts is None):
        return None
    again = ((attention, depths), (experts, depths)) if depths else ()
    bare = replace(model, blocks=(*others, *again)).train_step(**sizes)
    return float(bare.under(_HYBRID).flops_per_token + 3 * scans + 6 * depths * d * model.vocab)
