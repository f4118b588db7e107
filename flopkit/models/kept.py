"""What the forward pass of a training step keeps for its backward pass, tensor by tensor.

The account is that of PyTorch, operator by operator: each keeps what its own backward pass reads, and a tensor that two of them keep is
there once. A norm and a flash kernel are one operator each; an activation, and the product with a gate, are operators of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from flopkit.arithmetic import is_zero, maximum, where
from flopkit.conventions import total
from flopkit.dtypes import nbytes
from flopkit.models.feed_forward import MLP, Experts
from flopkit.models.mixers import Attention, LatentAttention
from flopkit.models.parts import Run
from flopkit.sizes import number
from flopkit.training.memory import Kept

if TYPE_CHECKING:
    from flopkit.models.blocks import Block
    from flopkit.models.model import Model
    from flopkit.models.trained import Training

__all__ = ["boundary", "of_ends", "of_layer", "of_layers", "under_policy"]

MASK = 1  # bytes of a position of a dropout mask
# What the gradients of these dense layers' weights read: what the attention, or the feed-forward part, of a layer begins with.
FROM_INPUT = {
    "attention": ("q_proj", "k_proj", "v_proj", "q_down", "kv_down"),
    "mlp": ("gate_proj", "up_proj", "router", "experts", "shared_gate_proj", "shared_up_proj", "shared_gate"),
}


def of_layer(model: Model, block: Block, run: Run, kernel: str, dropout: bool) -> list[Kept]:
    """What one layer keeps. Its input is among it: the first norm's, or where norms come last the first branch's."""
    tokens, d_model = run.tokens, model.d_model
    found: list[Kept] = []
    for place, (name, branch) in enumerate(block.branches):
        if block.norms != "parallel" or place == 0:
            found += _normed(model, f"{name}_norm", run)
            readers = FROM_INPUT["mlp" if name == "mlp" else "attention"]
            if block.norms == "parallel":
                readers = FROM_INPUT["attention"] + FROM_INPUT["mlp"]
            found.append(Kept(f"{name}, input", nbytes(tokens * d_model, run.dtype), weights_of=readers))
        if isinstance(branch, (Attention, LatentAttention)):
            found += _attention(branch, run, kernel, dropout)
        else:
            found += [
                Kept(what, nbytes(n, dtype), weights_of=readers)
                for what, n, dtype, readers in _feed_forward(branch, run, d_model)
            ]
        if dropout:
            found.append(Kept(f"{name}, dropout mask", MASK * tokens * d_model))
        if block.norms == "both":
            found += _normed(model, f"{name}_post_norm", run)
    return found


def of_layers(
    model: Model, run: Run, recompute: str | int, kernel: str, dropout: bool, training: Training
) -> tuple[Any, Any, tuple[Kept, ...]]:
    """Bytes of all layers when the backward pass begins, bytes that recompute brings back at most, and the list of the first kind. Those
    of an encoder are among them, and what stands behind it, for every layer of the decoder reads that."""
    lists, counts = [], []
    stacks: list[tuple[Model, Run, Training]] = [(model, run, training)]
    between: Any = 0
    if model.encoder is not None:
        encoder = replace(training, model=model.encoder)
        stacks.append((model.encoder, run.encoded, encoder))
        between = of_ends(model.encoder, run.encoded, encoder, kernel, dropout) + boundary(model, run.encoded)
    for stack, inside, what in stacks:
        for (block, _), groups in zip(stack.blocks, what.groups(), strict=True):
            whole = of_layer(stack, block, inside, kernel, dropout)
            narrow = what.narrow(block, inside)
            for trained in (True, False):
                found = [count for count, _, weights in groups if weights == trained and not is_zero(count)]
                if found:
                    lists.append([*(each for each in whole if what.keeps(each, trained)), *narrow])
                    counts.append(total(found))
    if not lists:  # the head alone is trained
        return 0, 0, ()
    each = [total(kept.bytes for kept in layer) for layer in lists]
    core = [total(kept.bytes for kept in layer if kept.core) for layer in lists]
    edge = boundary(model, run)
    if not isinstance(recompute, int):
        if recompute == "full":
            between = between + total(_biases(stack, inside) for stack, inside, _ in stacks)
        there, again = under_policy(recompute, counts, each, core, edge)
        return there + between, again, tuple(lists[0])
    cut = [total(each[kind] for kind in segment) for segment in segments(training, recompute)]
    there = (len(cut) - 1) * edge + cut[-1]
    # segment i is computed again on top of the inputs of i segments before it; its own input is in its list
    again = reduce(maximum, (i * edge + segment - there for i, segment in enumerate(cut[:-1])), 0)
    return there, again, tuple(lists[0])


def under_policy(recompute: str, counts: list[Any], each: list[Any], core: list[Any], edge: Any) -> tuple[Any, Any]:
    """Bytes of all layers when the backward pass begins, and bytes that recompute brings back at most.

    Of each kind of layer: how many there are, what one keeps, what of it lies inside attention; *edge*: the input of a layer.
    """
    if recompute == "none":
        return total(n * a for n, a in zip(counts, each, strict=True)), 0
    if recompute == "selective":
        apart = (n * (a - c) for n, a, c in zip(counts, each, core, strict=True))
        return total(apart), reduce(maximum, _there(counts, core))
    return total(counts) * edge, reduce(maximum, _there(counts, [a - edge for a in each]))


def _there(counts: list[Any], values: list[Any]) -> list[Any]:
    """The values of those kinds of layers that there are: a parameter may say that there are none."""
    return values if len(values) == 1 else [where(n > 0, each, 0) for n, each in zip(counts, values, strict=True)]


def segments(training: Training, every: int) -> list[tuple[int, ...]]:
    """The layers, each as a place in ``model.blocks``, cut into segments of *every*.

    Raises
    ------
    ValueError
        Where they do not divide, the order of several kinds of layers is not known, there are two stacks, or some layers are frozen.
    """
    model = training.model
    if model.encoder is not None:
        raise ValueError(f"recompute={every}: segments of layers run through one stack; {model.name} has two")
    if not training.all and training.lora is None:
        raise ValueError(
            f"recompute={every}: segments of layers of which only some are trained are not known here; give 'none', 'selective' or 'full'"
        )
    order = layer_order(model, f"recompute={every}")
    layers = len(order)
    if every < 1 or layers % every:
        raise ValueError(f"recompute={every}: must divide the {layers} layers of {model.name}, e.g. recompute=1")
    return [tuple(order[i : i + every]) for i in range(0, layers, every)]


def layer_order(model: Model, asked: str) -> tuple[int, ...]:
    """The kind of each layer in turn, as a place in ``model.blocks``; *asked* names the argument that needs it, for the error."""
    counts = [number("layers", layers) for _, layers in model.blocks]
    layers = sum(counts)
    order = model.order or ((0,) * layers if len(counts) == 1 else ())
    if len(order) != layers:
        raise ValueError(f"{asked}: the order of the layers of {model.name} is not known; give order= to the Model")
    return order


def _biases(model: Model, run: Run) -> Any:
    """Bytes of the biases of scores that one layer makes from its table for all others (T5), whose checkpoints keep them as an input."""
    (_, count), mixer = model.blocks[0], model.blocks[0][0].mixer
    if not isinstance(mixer, Attention) or is_zero(mixer.position_buckets) or is_zero(model.layers - count):
        return 0
    return nbytes(mixer.heads * run.q * run.kv, run.dtype)


def boundary(model: Model, run: Run) -> Any:
    """Bytes of the input of a layer, which is what a checkpoint keeps of it."""
    return nbytes(run.tokens * model.d_model, run.dtype)


def of_ends(model: Model, run: Run, training: Training, kernel: str, dropout: bool) -> Any:
    """Bytes that are kept before and after the layers: the pixels of images, norms, what the head and the loss keep, and all of the
    layer for multi-token prediction."""
    reached = any(not is_zero(count) for count in training.reached)
    norms = (1 if model.final_norm and reached else 0) + (1 if model.embedding_norm and training.table else 0)
    normed = total(kept.bytes for kept in _normed(model, "norm", run))
    found = norms * normed + _head(model, run, training)
    if model.patches is not None and training.all:
        found = found + nbytes(run.batch * model.patches.channels * model.patches.image**2, run.dtype)
    if model.mtp is not None:
        # three norms, the input of one of which (before or after the last norm) is kept anyway; and two outputs side by side, for "join"
        joined = 3 * normed - boundary(model, run) + 2 * boundary(model, run)
        layer = total(each.bytes for each in of_layer(model, model.mtp, run, kernel, dropout))
        found = found + joined + layer + _head(model, run, training)
    return found


def _head(model: Model, run: Run, training: Training) -> Any:
    """Bytes of the head's input, and of the log-probabilities of the loss in fp32. A head for classes reads the first token alone, but
    as a view of all of them."""
    if model.head == "none":
        return 0
    rows, wide = run.batch if model.head == "classes" else run.tokens, boundary(model, run)
    found = nbytes(rows * model.vocab, "fp32") + (wide if training.trains("head") else 0)
    if model.head == "mlm":  # a dense layer, the activation and the norm
        found = found + (wide if training.trains("transform") else 0) + wide
        found = found + total(kept.bytes for kept in _normed(model, "transform_norm", run))
    return found


def _normed(model: Model, name: str, run: Run) -> list[Kept]:
    """The input of a norm, and mean and deviation of each row."""
    rows = 1 if model.norm == "rms" else 2
    wide = Kept(f"{name}, input", nbytes(run.tokens * model.d_model, run.dtype))
    return [wide, Kept(f"{name}, statistics", nbytes(rows * run.tokens, "fp32"))]


def _attention(mixer: Attention | LatentAttention, run: Run, kernel: str, dropout: bool) -> Iterator[Kept]:
    tokens, dtype, heads = run.tokens, run.dtype, mixer.heads
    seen, kv = tokens, run.kv
    if isinstance(mixer, LatentAttention):
        head_dim, v_head_dim = mixer.qk_nope + mixer.qk_rope, mixer.v_head_dim
        if mixer.q_lora is not None:
            yield Kept("latent of queries, its norm's input", nbytes(tokens * mixer.q_lora, dtype))
            yield Kept("latent of queries", nbytes(tokens * mixer.q_lora, dtype), weights_of=("q_up",))
        yield Kept("latent of keys and values, its norm's input", nbytes(tokens * mixer.kv_lora, dtype))
        yield Kept("latent of keys and values", nbytes(tokens * mixer.kv_lora, dtype), weights_of=("kv_up",))
        norms = 1 if mixer.q_lora is None else 2
        yield Kept("statistics of these norms", nbytes(norms * tokens, "fp32"))
        kv_heads = heads
    else:
        head_dim = v_head_dim = mixer.head_dim
        kv_heads = mixer.kv_heads
        if kernel == "flash" and not is_zero(mixer.position_buckets):
            raise ValueError(
                "kernel='flash': what such a kernel keeps of learned biases that are added to the scores (T5) is not known here; give kernel='math'"
            )
        if mixer.cross:
            seen, kv = run.batch * run.memory, run.memory
        if mixer.qk_norm:
            normed = (tokens * heads + seen * kv_heads) * head_dim
            yield Kept("norms of queries and keys, inputs", nbytes(normed, dtype))
            rows = tokens * heads + seen * kv_heads if mixer.qk_norm == "head" else tokens + seen
            yield Kept("norms of queries and keys, statistics", nbytes(rows, "fp32"))
    yield Kept("queries", nbytes(tokens * heads * head_dim, dtype))
    yield Kept("keys", nbytes(seen * kv_heads * head_dim, dtype))
    yield Kept("values", nbytes(seen * kv_heads * v_head_dim, dtype))
    if kernel == "flash":
        yield Kept("log-sums of the scores", nbytes(tokens * heads, "fp32"), core=True)
    else:
        pairs = run.batch * heads * run.q * kv
        yield Kept("softmax of the scores", nbytes(pairs, dtype), core=True)
        if dropout:
            yield Kept("scores, dropout mask", MASK * pairs, core=True)
            yield Kept("scores after dropout", nbytes(pairs, dtype), core=True)
    yield Kept("output of the heads", nbytes(tokens * heads * v_head_dim, dtype))
    if isinstance(mixer, Attention) and not is_zero(mixer.gate):
        yield Kept("gate and gated output", nbytes(mixer.gate * 2 * tokens * heads * head_dim, dtype))


def _feed_forward(branch: Any, run: Run, d_model: Any) -> Iterator[tuple[str, Any, Any, tuple[str, ...]]]:
    """What it keeps: name, numbers, their format, and the dense layers that alone read it for the gradients of their weights."""
    tokens, dtype = run.tokens, run.dtype
    if isinstance(branch, MLP):
        yield from _mlp("", branch.act, branch.gated, tokens * branch.d_ff, dtype, "down_proj")
    elif isinstance(branch, Experts):
        chosen = tokens * branch.top_k
        yield "router, probabilities", tokens * branch.experts, "fp32", ()
        yield "experts, inputs in their order", chosen * d_model, dtype, ("experts",)
        yield from _mlp("experts, ", "silu", branch.gated, chosen * branch.d_ff, dtype, "experts")
        yield "experts, outputs", chosen * d_model, dtype, ()  # each is multiplied by its probability
        yield "experts, probabilities of the chosen", chosen, "fp32", ()
        if not is_zero(branch.shared_d_ff):
            yield from _mlp("shared, ", "silu", branch.gated, tokens * branch.shared_d_ff, dtype, "shared_down_proj")
            if not is_zero(branch.shared_gate):
                yield "shared, gate and output", branch.shared_gate * tokens * (1 + d_model), dtype, ()
    else:
        raise ValueError(f"what {type(branch).__name__} keeps for its backward pass is not known here")


def _mlp(
    prefix: str, act: str, gated: bool, hidden: Any, dtype: Any, down: str
) -> Iterator[tuple[str, Any, Any, tuple[str, ...]]]:
    """ReLU's backward pass reads its output, that of other activations their input."""
    if gated:
        yield f"{prefix}gate", hidden if act != "relu" else 0, dtype, ()
        yield f"{prefix}up", hidden, dtype, ()
        yield f"{prefix}activated gate", hidden, dtype, ()
        yield f"{prefix}down, input", hidden, dtype, (down,)
    else:
        yield f"{prefix}activation, input", hidden if act != "relu" else 0, dtype, ()
        yield f"{prefix}down, input", hidden, dtype, (down,) if act != "relu" else ()
