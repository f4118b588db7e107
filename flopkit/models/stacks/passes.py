"""A pass through a model, part by part, from the embedding to the head."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from flopkit.arithmetic import is_zero, minimum, total
from flopkit.cost import Cost
from flopkit.layers.convolutions import conv1d
from flopkit.layers.embeddings import embedding, learned_positions
from flopkit.layers.normalisations import layer_norm, rms_norm
from flopkit.layers.pointwise import activation
from flopkit.models.stacks.blocks import Block, Branch, Frames
from flopkit.models.stacks.heads import Head
from flopkit.models.stacks.parts import Part, Run, added, again, dense_part, part, placed, unrated
from flopkit.models.stacks.patches import patched
from flopkit.models.stacks.stack import Stack
from flopkit.models.training.lora import LoRA
from flopkit.sizes import offence

__all__ = ["ENCODER", "Made", "layer", "one", "through", "token"]

ENCODER = "encoder"  # the tower of its parts


def token(model: Stack) -> Cost:
    """The pass of one token, of a model of images that of one image."""
    return Cost.total(model.name, (each.cost for each in through(model, one(model))))


def one(model: Stack) -> Run:
    """One token, or one image."""
    seq = 1 if model.patches is None else model.patches.tokens or model.patches.group
    return Run(1, seq, seq, causal=model.causal, encoded=model.encoded(seq))


def through(
    model: Stack, run: Run, head_tokens: Any = None, lora: LoRA | None = None, entered: bool = False
) -> list[Part]:
    """The parts of a pass from the first to the last.

    *head_tokens*: how many tokens the head is for, all of them where it is None.
    *lora*: adapters that stand in the layers. *entered*: whether the run is a stream
    already, so that nothing stands before the layers.
    """
    found = [] if model.encoder is None or not run.encodes else _encoded(model, run)
    if not entered:
        found += _entered(model, run)
    made = Made()
    for kind, (block, layers) in enumerate(model.blocks):
        name = "layers" if len(model.blocks) == 1 else f"layers, kind {kind + 1}"
        inside = layer(model, block, run, made)
        found.append(_repeated(name, inside if lora is None else lora.beside(inside, run), layers, model.shared))
    if model.streams is not None:
        found += model.streams.joined(run, model.d_model, place="after")
    if model.final_norm:
        found.append(_normed(model, "norm", run, place="after"))
    for end in model.ends:
        found += end.parts(run, model.d_model)
    if model.word_dim is not None:
        found.append(dense_part("project_out", run, model.d_model, model.word_dim, place="after"))
    found += _head(model, run, head_tokens)
    if model.mtp is not None:
        found.append(_more_tokens(model, run))
    return found if model.one_length else [unrated(each) for each in found]


class Made(dict[tuple[int, int], list[Part]]):
    """The parts of branches that a pass has met, by branch and run: kinds of layers may share a branch."""

    def of(self, branch: Branch, run: Run, d_model: Any) -> list[Part]:
        """The parts of a *branch*, made once."""
        key = id(branch), id(run)
        if key not in self:
            self[key] = branch.parts(run, d_model)
        return self[key]


def layer(model: Stack, block: Block, run: Run, made: Made | None = None) -> list[Part]:
    """The parts of one layer; *made*: those of its branches that other layers have, too."""
    made = Made() if made is None else made
    found: list[Part] = []
    before: dict[str, Any] = {"reads": ("stream",), "makes": ("input",)}
    summed = ("stream", "input") if block.norms == "post" else ("stream",)  # then nothing stands before a branch
    if model.streams is not None:
        model.streams.refuse(block)
        before["reads"] = model.streams.reads
    for place, (name, branch) in enumerate(block.branches):
        if model.streams is not None:
            found += model.streams.before(name, run, model.d_model)
        if name not in ("last", "beside") and block.norm_before(place):
            source = {"reads": ("start",)} if block.norms == "parallel-two" and place else {}
            found.append(_normed(model, f"{name}_norm", run, **before | source))
        inside = made.of(branch, run, model.d_model)
        if name == "last":
            inside = [
                each._replace(reads=tuple("stream" if it == "input" else it for it in each.reads)) for each in inside
            ]
        found += [each._replace(branch=name) for each in inside]
        if block.norms == "both" and name != "beside":
            found.append(_normed(model, f"{name}_post_norm", run, reads=("output",), makes=("output",)))
        if model.streams is not None:
            found += model.streams.after(name, run, model.d_model)
        else:
            found.append(added(f"{name}_sum", run, model.d_model, summed))
        if block.norms == "post":
            found.append(_normed(model, f"{name}_norm", run, reads=("stream",), makes=summed))
    return found


def _normed(model: Stack, name: str, run: Run, tokens: Any = None, width: Any = None, **fields: Any) -> Part:
    rows, d = run.tokens if tokens is None else tokens, model.d_model if width is None else width
    if model.norm == "rms":
        cost = rms_norm(tokens=rows, d=d, dtype=run.dtype)
    else:
        cost = layer_norm(tokens=rows, d=d, weight=model.norm_weight, bias=model.norm_bias, dtype=run.dtype)
    of_all = None if tokens is None else run.tokens
    return part(name, cost, rows, tokens=of_all, role="norm", split="sequence", **fields)


def _entered(model: Stack, run: Run) -> list[Part]:
    tokens, d_model = run.tokens, model.d_model if model.embedding_dim is None else model.embedding_dim
    if model.patches is not None:
        found = [patched(model.patches, d_model, run)]
    elif model.waves is not None:
        found = model.waves.parts(run, d_model)
    elif model.frames is not None:
        found = _heard(model.frames, d_model, run)
    else:
        width = model.word_width if model.embedding_dim is None else model.embedding_dim
        table = embedding(tokens=tokens, vocab=model.vocab, d_model=width, dtype=run.dtype)
        kind = {"embedding": (1 - model.tied) * tokens * model.vocab * width}
        if not is_zero(model.tied):
            kind["tied"] = model.tied * tokens * model.vocab * width
        of_table: dict[str, Any] = {"role": "table", "place": "before", "split": "vocab", "weights": tokens * width}
        of_table["matrices"] = ((width, 1),)  # a row is read by itself
        found = [part("embedding", replace(table, macs_by_kind=kind), tokens, **of_table)]
        if model.word_dim is not None:
            found.append(dense_part("project_in", run, width, d_model, place="before"))
        for rows in (
            model.token_types
            if isinstance(model.token_types, tuple)
            else (model.token_types,) * bool(model.token_types)
        ):
            types = embedding(tokens=tokens, vocab=rows, d_model=d_model, dtype=run.dtype)
            types = replace(types, macs_by_kind={}, params_by_role={"position": rows * d_model})
            found.append(part("token_types", types, tokens, place="before"))
    if model.positions is not None:
        later = 0 if model.patches is None else model.patches.registers  # without positions
        for_tokens = model.positions - model.position_offset
        if wrong := offence(lambda kv, positions: kv > positions, run.reach - later, for_tokens):
            raise ValueError(f"{model.name} has learned positions for {wrong[1]} tokens, and {wrong[0]} are asked for")
        run_of_them = run if is_zero(later) else replace(run, q=run.q - later)
        learned = placed(
            learned_positions, run_of_them, d_model, positions=model.positions, d_model=d_model, dtype=run.dtype
        )
        rows = minimum(run.q, for_tokens)
        found.append(part("positions", learned, tokens, weights=rows * d_model, place="before"))
    if model.layer_inputs is not None:
        found += model.layer_inputs.parts(run, d_model)
    if model.streams is not None:
        found += model.streams.begun(run, d_model)
    if model.embedding_norm:
        found.append(_normed(model, "embedding_norm", run, width=d_model, place="before"))
    if model.embedding_dim is not None:
        found.append(dense_part("embedding_proj", run, d_model, model.d_model, model.embedding_bias, place="before"))
    return found


def _heard(frames: Frames, d_model: Any, run: Run) -> list[Part]:
    """Two convolutions over the frames of sound, each with its activation."""
    found: list[Part] = []
    for name, c_in, stride in (("conv1", frames.bins, 1), ("conv2", d_model, 2)):
        rows = run.q * 2 // stride
        conv = conv1d(
            batch=run.batch, c_in=c_in, c_out=d_model, l_out=rows, kernel=3, stride=stride, bias=True, dtype=run.dtype
        )
        act = activation("gelu", elements=run.batch * rows * d_model, dtype=run.dtype)
        fields: dict[str, Any] = {"role": "convolution", "place": "before", "reads": ("pixels",) if stride == 1 else ()}
        formula = f"2·batch·{rows}·{c_in * 3}·{d_model}"
        found.append(part(name, conv, run.batch * rows, formula=formula, **fields))
        found.append(part(f"{name}_act", act, run.batch * rows, place="before"))
    return found


def _encoded(model: Stack, run: Run) -> list[Part]:
    assert model.encoder is not None
    found = through(model.encoder, run.of_encoder)
    if found[0].role == "table":
        found[0] = found[0]._replace(cost=again(found[0].cost))  # the decoder's table
    return [_uncached(each).in_tower(ENCODER) for each in found]


def _uncached(each: Part) -> Part:
    """A part of an encoder, which reads all its tokens at once and leaves none of its own keys and values in a cache."""
    return each._replace(cache=0, cached=(), inside=tuple(_uncached(part) for part in each.inside))


def _head(model: Stack, run: Run, tokens: Any) -> list[Part]:
    found = [] if model.end is None else _ended(model, model.end, run, tokens)
    if not is_zero(model.unused):
        kinds = {"unused": run.tokens * model.unused}
        found.append(Part(Cost("unused", macs_by_kind=kinds, params_by_role={"weight": model.unused}), place="head"))
    if model.second_head is not None:
        found += _ended(model, model.second_head, run, tokens, "second_head")
    return found


def _ended(model: Stack, head: Head, run: Run, tokens: Any, last_name: str = "head") -> list[Part]:
    """The parts of one *head*, for so many *tokens*, or for all."""
    rows = head.rows(run.sequences, run.tokens if tokens is None else tokens)
    width, every = head.width(model.word_width), tokens is None and head.each == "token"
    at: dict[str, Any] = {"tokens": None if every else rows, "place": "head"}
    found: list[Part] = []
    if not is_zero(head.dense):
        name = "transform" if head.each == "token" else "pooler"
        found.append(dense_part(name, run, model.word_width, head.dense * width, head.dense_bias, **at))
        if head.act:
            act = activation(head.act, elements=head.dense * rows * width, dtype=run.dtype)
            found.append(part(f"{name}_act", act, rows, place="head"))
        if head.norm:
            found.append(_normed(model, f"{name}_norm", run, None if every else rows, width, place="head"))
    if not head.words:
        if not is_zero(head.outputs):
            formula = f"2·{'tokens' if head.each == 'token' else 'batch'}·{width}·{head.outputs}"
            found.append(dense_part(last_name, run, width, head.outputs, head.bias, formula=formula, **at))
        return found
    last = dense_part(last_name, run, width, model.vocab, head.bias, split="vocab", **at)
    macs, roles = dict(last.cost.macs_by_kind), dict(last.cost.params_by_role)
    macs["head"] = macs.pop("products")
    roles["head"] = (1 - model.tied) * roles.pop("weight")
    return [*found, last._replace(cost=replace(last.cost, macs_by_kind=macs, params_by_role=roles))]


def _more_tokens(model: Stack, run: Run) -> Part:
    """The layer that predicts one token more, with two norms, a matrix that joins, a
    norm and the head once more."""
    assert model.mtp is not None
    several: Any = model.streams
    streams = 1 if several is None else several.count
    rows = {"token_norm": run.tokens, "hidden_norm": streams * run.tokens}
    inside = [_normed(model, name, run, tokens) for name, tokens in rows.items()]
    if model.streams is None:
        inside.append(dense_part("join", run, 2 * model.d_model, model.d_model))
    else:
        inside += several.entered(run, model.d_model)
    inside += layer(model, model.mtp, run)
    if model.streams is not None:
        inside += model.streams.joined(run, model.d_model)
    inside.append(_normed(model, "norm", run))
    inside += [each._replace(cost=again(each.cost)) for each in _head(model, run, None)]  # the same matrix
    return _repeated("mtp", inside, 1)._replace(place="mtp")


def _repeated(name: str, parts: Iterable[Part], times: Any, shared: bool = False) -> Part:
    """Equal layers as one part; whether they have the same parameters."""
    parts = list(parts)

    def summed(costs: Iterable[Cost | None]) -> Cost:
        found: Cost = Cost.total("layer", [cost for cost in costs if cost is not None]) * times
        return found

    whole = summed(each.cost for each in parts).named(name)
    if shared:
        one = Cost.total("layer", [each.cost for each in parts])
        kinds = (one + again(one) * (times - 1)).macs_by_kind
        whole = replace(whole, params_by_role=one.params_by_role, macs_by_kind=kinds)
    return Part(
        whole,
        times * total(each.weights for each in parts),
        times * total(each.cache for each in parts),
        scores_again=summed(each.scores_again for each in parts),
        role="stack",
        place="layers",
        inside=tuple(parts),
        shared=shared,
        times=times,
    )
