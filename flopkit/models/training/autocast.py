"""``torch.autocast``: weights stay fp32, each product casts what it reads to 16 bits,
and the copies stay until its backward pass."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import is_zero, total
from flopkit.dtypes import nbytes
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.mixers import Attention
from flopkit.models.stacks.blocks import Block, Branch
from flopkit.models.stacks.parts import Run
from flopkit.models.stacks.stack import Stack
from flopkit.models.training.recompute import Segments
from flopkit.training.memory import Kept

__all__ = ["cached", "check", "copies", "kept", "of_heads"]

_WAY_OUT = "precision='fp32' and 'mixed' bound it from above and below"


def check(model: Stack, trained: Any) -> None:
    """Refuse what is not known under autocast.

    Raises
    ------
    ValueError
        For anything but a decoder of plain attention and MLPs, all of it trained.
    """
    if not (isinstance(trained, str) and trained == "all"):
        raise ValueError(f"precision='autocast': only trained='all' is known, not {trained!r}; {_WAY_OUT}")
    ends = {
        "an encoder": model.encoder is not None, "a head of several layers": any(not is_zero(head.dense) for head in model.heads), "poolers or towers": bool(model.ends),
        "a norm of the embedding": model.embedding_norm, "an embedding of another width": model.embedding_dim is not None,
        "words of another width": model.word_dim is not None, "patches": model.patches is not None, "frames": model.frames is not None,
        "multi-token prediction": model.mtp is not None, "several streams": model.streams is not None,
    }  # fmt: skip
    layers = {
        f"norms={block.norms!r}": block.norms not in ("pre", "both") for block, _ in model.blocks
    } | {
        type(branch).__name__: type(branch) not in (Attention, MLP) for block, _ in model.blocks for _, branch in block.branches
    }  # fmt: skip
    found = [what for what, there in {**ends, **layers}.items() if there]
    if found:
        raise ValueError(
            f"precision='autocast': {model.name} has {found[0]}, of which it is not known here; {_WAY_OUT}"
        )


def copies(branch: Branch, run: Run, d_model: Any) -> tuple[int, Any]:
    """How often a branch keeps its input, once for each dense layer that reads it, and
    the bytes of its matrices in 16 bits."""
    parts = branch.parts(run, d_model)
    readers = sum("input" in each.reads for each in parts)
    return readers, total(_matrices(each.cost.params_by_role, each.cost.params, run) for each in parts)


def _matrices(roles: Any, params: Any, run: Run) -> Any:
    vectors = total(roles[role] for role in ("norm", "bias") if role in roles)
    return nbytes(params - vectors, run.dtype)


def _of_block(model: Stack, block: Block, run: Run) -> Any:
    return total(copies(branch, run, model.d_model)[1] for _, branch in block.branches)


def of_heads(model: Stack, run: Run) -> Any:
    """Bytes of the heads' matrices in 16 bits."""
    outputs = total(model.vocab if head.words else head.outputs for head in model.heads)
    return nbytes(model.d_model * outputs, run.dtype)


def cached(model: Stack, run: Run, recompute: str | Segments) -> Any:
    """Bytes of the matrices that autocast holds until the forward pass has ended,
    although checkpoints keep none of them."""
    if recompute in ("none", "selective"):
        return 0  # what the layers keep has them
    return total(count * _of_block(model, block, run) for block, count in model.blocks if not is_zero(count))


def kept(name: str, branch: Branch, run: Run, d_model: Any) -> list[Kept]:
    """What a branch keeps under autocast of its input and its weights."""
    readers, matrices = copies(branch, run, d_model)
    each = nbytes(run.tokens * d_model, run.dtype)
    return [
        Kept(f"{name}, input in 16 bits, {readers} times", readers * each),
        Kept(f"{name}, weights in 16 bits", matrices),
    ]
