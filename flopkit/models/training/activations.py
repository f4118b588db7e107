"""What the forward pass of a training step keeps for its backward pass, tensor by
tensor.

The account is that of PyTorch, operator by operator: each keeps what its own backward
pass reads, and a tensor that two of them keep counts once. A norm and a flash kernel
are one operator each; an activation, and the product with a gate, are operators of
their own. Each branch knows what it keeps: see `Branch.kept`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any, NamedTuple

from flopkit.arithmetic import is_zero, maximum, total, where
from flopkit.dtypes import nbytes
from flopkit.models.stacks.blocks import MASK, Block
from flopkit.models.stacks.parts import Part, Run
from flopkit.models.stacks.stack import Stack
from flopkit.models.training import autocast
from flopkit.models.training.finetuning import Training
from flopkit.models.training.recompute import Segments, segments
from flopkit.training.memory import Kept

__all__ = ["Layers", "boundary", "of_ends", "of_layer", "of_layers", "of_loss", "under_policy"]


def of_layer(model: Stack, block: Block, run: Run, kernel: str, dropout: bool) -> list[Kept]:
    """What one layer keeps. Its input is among it: the first norm's, or where norms
    come last the first branch's."""
    if model.streams is not None:
        raise ValueError(
            "what the backward pass of a residual stream in several copies keeps is not known here; train_step counts its FLOPs"
        )
    wide = nbytes(run.tokens * model.d_model, run.dtype)
    readers = [_readers(branch.parts(run, model.d_model)) for _, branch in block.branches]
    if block.norms == "parallel":
        readers = [tuple(each for found in readers for each in found)] if all(readers) else [()]
    found: list[Kept] = []
    for place, (name, branch) in enumerate(block.branches):
        if block.norms != "parallel" or place == 0:
            if place > 0 or block.mixer_norm:
                normed = _normed(model, f"{name}_norm", run)
                found += normed[1:] if block.norms == "parallel-two" and place else normed  # their input is the same
            if run.autocast:
                found += autocast.kept(name, branch, run, model.d_model)
            else:
                found.append(Kept(f"{name}, input", wide, weights_of=readers[place], split="tokens", remade=True))
        found += branch.kept(run, model.d_model, kernel, dropout)
        if dropout:
            found.append(Kept(f"{name}, dropout mask", MASK * run.tokens * model.d_model, split="tokens"))
        if block.norms == "both":
            found += _normed(model, f"{name}_post_norm", run, dtype=run.dtype)
    return found


def _readers(parts: list[Part]) -> tuple[str, ...]:
    """The matrices that alone read what their branch begins with; none where a norm reads it, too."""
    readers = [each.matrix for each in parts if "input" in each.reads]
    return tuple(readers) if all(readers) else ()


class Layers(NamedTuple):
    """Bytes of all layers when the backward pass begins, bytes that recompute brings
    back at most, and what one layer of the
    first kind keeps."""

    there: Any
    again: Any
    kept: tuple[Kept, ...]


def of_layers(training: Training, run: Run, recompute: str | Segments, kernel: str, dropout: bool) -> Layers:
    """What the layers keep. Those of an encoder are among them, and what stands behind
    it, for every layer of the decoder reads
    that."""
    model = training.model
    lists, counts = [], []
    stacks = [(training, run)]
    between: Any = 0
    if model.encoder is not None:
        encoder = replace(training, model=model.encoder)
        stacks.append((encoder, run.of_encoder))
        between = of_ends(encoder, run.of_encoder, kernel, dropout) + boundary(model, run.of_encoder)
    for what, inside in stacks:
        for (block, _), groups in zip(what.model.blocks, what.groups(), strict=True):
            whole = of_layer(what.model, block, inside, kernel, dropout)
            narrow = what.narrow(block, inside)
            for trained in (True, False):
                found = [group.layers for group in groups if group.trained == trained and not is_zero(group.layers)]
                if found:
                    lists.append([*(each for each in whole if what.keeps(each, trained)), *narrow])
                    counts.append(total(found))
    if not lists:  # the head alone is trained
        return Layers(0, 0, ())
    each = [total(kept.bytes for kept in layer) for layer in lists]
    core = [total(kept.bytes for kept in layer if kept.core) for layer in lists]
    edge = boundary(model, run)
    if not isinstance(recompute, Segments):
        if recompute == "full":
            between = between + total(_handed_on(what.model, inside) for what, inside in stacks)
        there, again = under_policy(recompute, counts, each, core, edge)
        return Layers(there + between, again, tuple(lists[0]))
    cut = [total(each[kind] for kind in segment) for segment in segments(training, recompute)]
    there = (len(cut) - 1) * edge + cut[-1]
    # segment i is computed again on top of the inputs of i segments before it; its own input is in its list
    again = reduce(maximum, (i * edge + segment - there for i, segment in enumerate(cut[:-1])), 0)
    return Layers(there, again, tuple(lists[0]))


def under_policy(recompute: str, counts: list[Any], each: list[Any], core: list[Any], edge: Any) -> tuple[Any, Any]:
    """Bytes of all layers when the backward pass begins, and bytes that recompute
    brings back at most.

    Of each kind of layer: how many there are, what one keeps, what of it lies inside
    attention; *edge*: the input of a layer.
    """
    if recompute == "none":
        return total(n * a for n, a in zip(counts, each, strict=True)), 0
    if recompute == "selective":
        apart = (n * (a - c) for n, a, c in zip(counts, each, core, strict=True))
        return total(apart), reduce(maximum, _there(counts, core))
    return total(counts) * edge, reduce(maximum, _there(counts, [a - edge for a in each]))


def _there(counts: list[Any], values: list[Any]) -> list[Any]:
    """The values of those kinds of layers that there are: a parameter may say that
    there are none."""
    return values if len(values) == 1 else [where(n > 0, each, 0) for n, each in zip(counts, values, strict=True)]


def _handed_on(model: Stack, run: Run) -> Any:
    """Bytes that the first layer makes for all others, whose checkpoints keep them as
    an input."""
    block, count = model.blocks[0]
    return 0 if is_zero(model.layers - count) else total(branch.handed_on(run) for _, branch in block.branches)


def boundary(model: Stack, run: Run) -> Any:
    """Bytes of the input of a layer, which is what a checkpoint keeps of it."""
    return nbytes(run.tokens * model.d_model, run.stream)


def of_ends(training: Training, run: Run, kernel: str, dropout: bool) -> Any:
    """Bytes that are kept before and after the layers: the pixels of images, norms,
    what the head and the loss keep, and all of the
    layer for multi-token prediction."""
    model = training.model
    reached = any(not is_zero(count) for count in training.reached)
    normed = total(kept.bytes for kept in _normed(model, "norm", run))
    found = (normed if model.final_norm and reached else 0) + _head(training, run)
    if run.autocast:
        found = found + autocast.of_heads(model, run)
    if model.ends:
        raise ValueError(
            f"{model.name}: what its poolers, towers and heads of several layers keep is not known here; "
            "train_step counts their FLOPs"
        )
    if model.embedding_norm and training.table:
        found = found + total(kept.bytes for kept in _normed(model, "norm", run, model.embedding_dim))
    if model.embedding_dim is not None and training.all:
        found = found + nbytes(run.tokens * model.embedding_dim, run.dtype)
    if model.frames is not None or model.waves is not None:
        raise ValueError(
            f"{model.name}: what the convolutions over sound keep is not known here; train_step counts their FLOPs"
        )
    if model.patches is not None and training.all:
        whole = model.patches.grid is not None
        pixels = prod(model.patches.sides) if whole else (run.q - model.patches.extra) * model.patches.patch**2
        found = found + nbytes(run.batch * model.patches.channels * pixels, run.dtype)
    if model.word_dim is not None:
        found = found + (nbytes(run.tokens * model.word_dim, run.dtype) if training.all else 0)
        found = found + (boundary(model, run) if training.all or training.last > 0 else 0)
    if model.mtp is not None:
        # three norms, the input of one of which (before or after the last norm) is kept anyway; and two outputs side by side, for "join"
        joined = 3 * normed - boundary(model, run) + 2 * boundary(model, run)
        layer = total(each.bytes for each in of_layer(model, model.mtp, run, kernel, dropout))
        found = found + joined + layer + _head(training, run)
    return found


def of_loss(model: Stack, run: Run) -> Any:
    """Bytes of the gradients inside the loss when the backward pass begins: that of the
    log-probabilities and that of the logits, in fp32. The head for multi-token
    prediction has its turn after the other's are gone."""
    return total(
        2 * nbytes(head.rows(run.sequences, run.tokens) * _outputs(model, head), "fp32") for head in model.heads
    )


def _outputs(model: Stack, head: Any) -> Any:
    return model.vocab if head.words else head.outputs


def _head(training: Training, run: Run) -> Any:
    """Bytes that the head keeps, and the one beside it: their input, what lies between a
    dense layer before a product and it, and the log-probabilities of the loss in fp32.

    A head for sequences reads one token of each, but as a view of all of them.
    """
    model = training.model
    found: Any = nbytes(run.tokens * model.word_width, run.dtype) if model.heads and training.head else 0
    for head in model.heads:
        rows = head.rows(run.sequences, run.tokens)
        between = nbytes(rows * head.width(model.word_width), run.dtype)
        outputs = _outputs(model, head)
        found = found + nbytes(rows * outputs, "fp32")
        if is_zero(head.dense):
            continue
        of_output = head.act in ("tanh", "relu")  # their backward pass reads the output, as the product does
        if head.act and not of_output:
            found = found + between
        if head.norm:
            found = found + between + nbytes((1 if model.norm == "rms" else 2) * rows, "fp32")
        if (of_output and not head.norm) or (training.head and not is_zero(outputs)):
            found = found + between
    return found


def _normed(model: Stack, name: str, run: Run, width: Any = None, dtype: Any = None) -> list[Kept]:
    """The input of a norm, and mean and deviation of each row."""
    rows = 1 if model.norm == "rms" else 2
    numbers = run.tokens * (model.d_model if width is None else width)
    wide = Kept(f"{name}, input", nbytes(numbers, run.stream if dtype is None else dtype), split="tokens")
    return [wide, Kept(f"{name}, statistics", nbytes(rows * run.tokens, "fp32"), split="tokens")]
