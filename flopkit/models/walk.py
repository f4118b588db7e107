"""A walk through a model: what each part of it costs, from the embedding to the head."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flopkit.arithmetic import is_zero, minimum
from flopkit.conventions import total
from flopkit.cost import Cost
from flopkit.layers.convolutions import conv2d
from flopkit.layers.embeddings import embedding, learned_positions
from flopkit.layers.normalisations import layer_norm, rms_norm
from flopkit.layers.pointwise import activation
from flopkit.models.parts import Part, Run, added, part, project
from flopkit.sizes import offence

if TYPE_CHECKING:
    from flopkit.models.blocks import Block
    from flopkit.models.model import Model
    from flopkit.models.trained import LoRA

__all__ = ["layer", "through"]


def through(model: Model, run: Run, head_tokens: Any, lora: LoRA | None = None) -> list[Part]:
    """The parts of a pass from the first to the last, the head for *head_tokens* tokens, with the adapters that there are."""
    found = [] if model.encoder is None or not run.new_memory else _encoded(model, run)
    found += _entered(model, run)
    for kind, (block, layers) in enumerate(model.blocks):
        name = "layers" if len(model.blocks) == 1 else f"layers, kind {kind + 1}"
        inside = layer(model, block, run)
        found.append(_repeated(name, inside if lora is None else lora.beside(inside, run), layers))
    if model.final_norm:
        found.append(_normed(model, "norm", run))
    found += _head(model, run, head_tokens)
    if model.mtp is not None:
        found.append(_more_tokens(model, run))
    return found


def layer(model: Model, block: Block, run: Run) -> list[Part]:
    """The parts of one layer."""
    found: list[Part] = []
    for place, (name, branch) in enumerate(block.branches):
        if block.norms in ("pre", "both") or (block.norms == "parallel" and place == 0):
            found.append(_normed(model, f"{name}_norm", run))
        found += branch.parts(run, model.d_model)
        if block.norms == "both":
            found.append(_normed(model, f"{name}_post_norm", run))
        found.append(added(f"{name}_sum", run, model.d_model))
        if block.norms == "post":
            found.append(_normed(model, f"{name}_norm", run))
    return found


def _normed(model: Model, name: str, run: Run, tokens: Any = None) -> Part:
    rows = run.tokens if tokens is None else tokens
    if model.norm == "rms":
        return part(name, rms_norm(tokens=rows, d=model.d_model, dtype=run.dtype), rows)
    return part(name, layer_norm(tokens=rows, d=model.d_model, bias=model.norm_bias, dtype=run.dtype), rows)


def _entered(model: Model, run: Run) -> list[Part]:
    tokens, d_model = run.tokens, model.d_model
    if model.patches is not None:
        side = model.patches.image // model.patches.patch
        conv = conv2d(
            batch=run.batch, c_in=model.patches.channels, c_out=d_model, h_out=side, w_out=side, kernel=model.patches.patch,
            stride=model.patches.patch, bias=True, dtype=run.dtype,
        )  # fmt: skip
        conv = replace(conv, params_by_role={**conv.params_by_role, "position": d_model})  # the class token
        taps = model.patches.channels * model.patches.patch**2
        formula = f"2·batch·{side * side}·{taps}·{d_model}"
        found = [part("patches", conv, run.batch * side * side, formula=formula)]
    else:
        table = embedding(tokens=tokens, vocab=model.vocab, d_model=d_model, dtype=run.dtype)
        kind = {"embedding": (1 - model.tied) * tokens * model.vocab * d_model}
        if not is_zero(model.tied):
            kind["tied"] = model.tied * tokens * model.vocab * d_model
        found = [part("embedding", replace(table, macs_by_kind=kind), tokens, weights=tokens * d_model)]
        if model.token_types:
            types = embedding(tokens=tokens, vocab=model.token_types, d_model=d_model, dtype=run.dtype)
            types = replace(types, macs_by_kind={}, params_by_role={"position": model.token_types * d_model})
            found.append(part("token_types", types, tokens))
    if model.positions is not None:
        if wrong := offence(lambda kv, positions: kv > positions, run.kv, model.positions):
            raise ValueError(f"{model.name} has learned positions for {wrong[1]} tokens, and {wrong[0]} are asked for")
        learned = learned_positions(
            batch=run.batch, seq=run.q, positions=model.positions, d_model=d_model, dtype=run.dtype
        )
        found.append(part("positions", learned, tokens, weights=minimum(run.q, model.positions) * d_model))
    if model.embedding_norm:
        found.append(_normed(model, "embedding_norm", run))
    return found


def _encoded(model: Model, run: Run) -> list[Part]:
    assert model.encoder is not None
    found = model.encoder.parts(run.encoded)
    found[0] = found[0]._replace(cost=replace(found[0].cost, params_by_role={}))  # the decoder's table
    return [each._replace(cost=each.cost.named(f"encoder, {each.cost.name}")) for each in found]


def _head(model: Model, run: Run, tokens: Any) -> list[Part]:
    d_model = model.d_model
    found: list[Part] = []
    if model.head == "none":
        return found
    if model.head == "classes":
        head = project("head", run, d_model, model.vocab, 1, tokens=run.batch)
        return [head._replace(formula=f"2·batch·{d_model}·{model.vocab}")]
    if model.head == "mlm":
        found += [
            project("transform", run, d_model, d_model, 1, tokens=tokens),
            part("transform_act", activation("gelu", elements=tokens * d_model, dtype=run.dtype), tokens),
            _normed(model, "transform_norm", run, tokens),
        ]
    product, rows, *_ = project("head", run, d_model, model.vocab, model.head_bias, tokens=tokens)
    macs = dict(product.macs_by_kind)
    macs["head"] = macs.pop("products")
    roles = dict(product.params_by_role)
    roles["head"] = (1 - model.tied) * roles.pop("weight")
    cost = replace(product, macs_by_kind=macs, params_by_role=roles)
    return [*found, Part(cost, rows, 0, f"2·tokens·{d_model}·{model.vocab}")]


def _more_tokens(model: Model, run: Run) -> Part:
    """The layer that predicts one token more, with two norms, a matrix that joins, a norm and the head once more."""
    assert model.mtp is not None
    inside = [_normed(model, name, run) for name in ("token_norm", "hidden_norm")]
    inside.append(project("join", run, 2 * model.d_model, model.d_model))
    inside += layer(model, model.mtp, run)
    inside.append(_normed(model, "norm", run))
    inside += [
        each._replace(cost=replace(each.cost, params_by_role={})) for each in _head(model, run, run.tokens)
    ]  # the same matrix
    return _repeated("mtp", inside, 1)._replace(layer=False)


def _repeated(name: str, parts: Iterable[Part], times: Any) -> Part:
    """Equal layers as one part."""
    parts = list(parts)

    def summed(costs: Iterable[Cost | None]) -> Cost:
        found: Cost = Cost.total("layer", [cost for cost in costs if cost is not None]) * times
        return found

    return Part(
        summed(each.cost for each in parts).named(name),
        times * total(each.weights for each in parts),
        times * total(each.cache for each in parts),
        core=summed(each.core for each in parts),
        scores_again=summed(each.scores_again for each in parts),
        layer=True,
        inside=tuple(parts),
        times=times,
    )
