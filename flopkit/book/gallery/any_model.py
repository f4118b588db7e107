"""What any transformer costs whose numbers are controls: parameters, FLOPs under several conventions, memory, utilisation, decoding.

A model's parts are built here from the controls, as `flopkit.models.transformer` builds them from numbers; whether it has experts, windows or
latent attention is how many layers of each sort there are, so that the same sums hold for all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from flopkit import conventions
from flopkit.arithmetic import exact_div, is_zero, maximum, minimum, reading, same, total, where
from flopkit.book.gallery.checkpoint_formats import in_roles
from flopkit.charts.readings import pick
from flopkit.dtypes import nbytes
from flopkit.models import MLP, Attention, Block, Experts, LatentAttention, Model, activations
from flopkit.models.finetuning import training_of
from flopkit.models.parts import Run
from flopkit.rooflines import bound_by

__all__ = [
    "COUNTS", "LAYER", "LAYER_NO_BIAS", "NORMS", "ONE", "PLACES", "POLICIES", "QK_NORMS", "RMS", "TWO", "cost_of_a_model", "one_convention",
]  # fmt: skip

PASSES = 3  # the products of a training step: one forward pass, and twice as much to go back

COUNTS = {  # a row of the chart each: the convention, and what it is called there
    "EXACT: visible pairs": conventions.EXACT,
    "TORCH: all pairs": conventions.TORCH,
    "MEGATRON: half the pairs": conventions.MEGATRON,
    "PALM: 6N + all pairs": conventions.PALM,
    "6N, active experts": conventions.SIX_N_ACTIVE,
    "6N, all parameters": conventions.SIX_N,
    "KAPLAN: no embeddings": conventions.KAPLAN,
}
LONGEST = 2  # of the bars that are drawn whole, in training tokens as EXACT counts them

NORMS = {"RMSNorm": "rms", "LayerNorm": "layer", "LayerNorm without bias": "layer"}
RMS, LAYER, LAYER_NO_BIAS = NORMS
PLACES = {"one": "pre", "two": "both"}  # before or after makes no difference to any number here
ONE, TWO = PLACES
QK_NORMS = {"none": "", "each head": "head", "all heads together": "whole"}
STYLES = {"norm": NORMS, "place": PLACES, "qk_norm": QK_NORMS}
POLICIES = ("none", "selective", "full")


def _kinds(n: Mapping[str, Any], qk_norm: str = "none") -> dict[str, list[tuple[Any, Callable[[], Any]]]]:
    """The sorts of attention and of MLPs that a model can have, each with how many layers have it."""
    heads = {"heads": n["heads"], "kv_heads": n["kv"], "head_dim": n["head_dim"], "qk_norm": QK_NORMS[qk_norm]}
    heads |= {name: n[name] for name in ("qkv_bias", "out_bias", "sinks")} | {"rotary": 0}
    latent = {name: n[name] for name in ("heads", "kv_lora", "qk_nope", "qk_rope", "v_head_dim")}
    plain = {"d_ff": n["d_ff"], "bias": n["mlp_bias"]}
    experts = {"experts": n["experts"], "top_k": n["chosen"], "d_ff": n["expert_d_ff"], "shared_d_ff": n["shared_d_ff"]}
    experts |= {"bias": n["expert_bias"], "shared_gate": n["shared_gate"]}
    return {
        "heads": [
            (n["whole"], lambda: Attention(**heads)),
            (n["narrow"], lambda: Attention(**heads, window=n["window"])),
        ],
        "latent": [
            (n["latent_queries"], lambda: LatentAttention(**latent, q_lora=n["q_lora"])),
            (n["latent_alone"], lambda: LatentAttention(**latent)),
        ],
        "mlp": [
            (n["gated_layers"], lambda: MLP(**plain)),
            (n["plain_layers"], lambda: MLP(**plain, gated=False, act="gelu")),
            (n["sparse_layers"], lambda: Experts(**experts)),
        ],
    }


def _model(n: Mapping[str, Any]) -> Model:
    """The model with one norm a branch, for sums over its layers. Which layers have a window and which have experts does not matter
    to these, so each sort of attention and each sort of MLP is a layer of its own, with its norm and its sum.

    A layer norm without bias has the parameters of an RMS norm; element-wise work is not asked for here.
    """
    blocks = tuple(
        (Block(**_branch(kind, make())), count)
        for kind, made in _kinds(n).items()
        for count, make in made
        if not is_zero(count)
    )
    positions = None if is_zero(n["learned"]) else n["learned"]
    ends = {name: n[name] for name in ("d_model", "vocab", "tied", "norm_bias")}
    return Model(name="model", **ends, positions=positions, norm="layer", blocks=blocks)


def _branch(kind: str, made: Any) -> dict[str, Any]:
    return {"mixer": None, "mlp": made} if kind == "mlp" else {"mixer": made}


def _in_each_style(styles: Mapping[str, Any], ask: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """What *ask* finds in the chosen style, which no number expresses; in the page a look-up among all styles, where they differ."""
    if reading(*styles.values()) == "plain":
        return ask(*styles.values())
    options = [STYLES[name] for name in styles]
    found = {style: ask(*style) for style in itertools.product(*options)}

    def look_up(name: str, style: tuple[str, ...], keys: list[Any]) -> Any:
        if not keys:
            return found[style][name]
        values = {option: look_up(name, (*style, option), keys[1:]) for option in options[len(style)]}
        first = next(iter(values.values()))
        return first if all(same(value, first) for value in values.values()) else pick(keys[0], values)

    return {name: look_up(name, (), list(styles.values())) for name in next(iter(found.values()))}


def _layers(s: Any, c: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a model as the controls have them, and how many layers there are of each sort; none is impossible in itself."""
    is_latent = where(c["kv_lora"] > 0, 1, 0)
    s.latent_queries = where(c["q_lora"] > 0, is_latent * c["layers"], 0)
    s.latent_alone = is_latent * c["layers"] - s.latent_queries
    s.narrow = (1 - is_latent) * minimum(c["windowed"], c["layers"])
    s.whole = c["layers"] - s.latent_queries - s.latent_alone - s.narrow
    s.sparse_layers = where(c["experts"] > 0, c["layers"] - minimum(c["dense"], c["layers"]), 0)
    s.gated_layers = c["gated"] * (c["layers"] - s.sparse_layers)
    s.plain_layers = c["layers"] - s.sparse_layers - s.gated_layers
    s.kv = where(c["heads"] % c["kv_heads"] > 0, c["heads"], c["kv_heads"])
    s.chosen = minimum(c["top_k"], c["experts"])
    s.learned = where(c["positions"] > 0, maximum(c["positions"], c["length"]), 0)
    s.norm_bias = pick(c["norm"], {LAYER: 1, RMS: 0, LAYER_NO_BIAS: 0})
    ours = ("latent_queries", "latent_alone", "narrow", "whole", "sparse_layers", "gated_layers", "plain_layers", "kv", "chosen", "learned", "norm_bias")  # fmt: skip
    return {**c, **{name: getattr(s, name) for name in ours}}


def _sums(s: Any, n: Mapping[str, Any]) -> None:
    """What is a sum over the model: parameters, multiply-adds of a forward pass, what is recomputed, a step of decoding."""
    length, model = n["length"], _model(n)
    selective, full = (model.train_step(seq=length, recompute=policy) for policy in ("selective", "full"))
    forward = full.forward
    # Other styles have norms besides: a second one in each branch, norms of queries and keys. These are parameters and no products.
    counts = {"heads": s.whole + s.narrow, "latent": s.latent_queries + s.latent_alone}

    def norms(place: str, qk_norm: str) -> dict[str, Any]:
        makes = {kind: made[kind == "latent"][1] for kind, made in _kinds(n, qk_norm).items()}
        found: dict[str, Any] = {}
        for kind, count in counts.items():
            block = None if is_zero(count) else Block(mixer=makes[kind](), mlp=makes["mlp"](), norms=PLACES[place])
            layer = block and replace(model, blocks=((block, count),)).layer(seq=1)
            found[kind] = layer.params_by_role["norm"] if layer else 0
        return found

    styled = _in_each_style({name: n[name] for name in ("place", "qk_norm")}, norms)
    s.more_norms = total(counts[kind] * (styled[kind] - each) for kind, each in norms(ONE, "none").items())
    s.params = forward.params + s.more_norms
    s.active = s.params - exact_div(forward.macs_by_kind.get("idle", 0), length)
    for kind in conventions.KINDS:
        more = length * s.more_norms if kind == "vectors" else 0
        setattr(s, f"macs_{kind}", forward.macs_by_kind.get(kind, 0) + more)
    s.selective, s.full, s.flash = selective.checkpointed.flops, full.checkpointed.flops, full.scores_again.flops
    stored = in_roles(n["weights"])
    decode = model.decode(context=length, batch=n["users"], weights=stored, kv_cache=n["cache"])
    s.decode_flops = 1 * decode.flops
    of_norms = nbytes(s.more_norms, stored["rest"])
    s.decode_bytes = decode.bytes + of_norms
    s.stored = model.weight_bytes(stored) + of_norms


def _kept(s: Any, n: Mapping[str, Any]) -> None:
    """Bytes that a layer of each sort keeps for the backward pass, and what all layers keep under each policy."""
    run = Run(n["batch"], n["length"], n["length"])
    # a window changes nothing here, and all layers have the same sort of attention
    sorts = {"heads": s.whole + s.narrow, "queries": s.latent_queries, "alone": s.latent_alone}
    mlps = {"gated": s.gated_layers, "plain": s.plain_layers, "sparse": s.sparse_layers}

    def one_layer(norm: str, place: str, qk_norm: str) -> dict[str, Any]:
        model = replace(_model(n), norm=NORMS[norm])
        kinds = _kinds(n, qk_norm)
        mixers = [kinds["heads"][0], *kinds["latent"]]
        makes = [("mixer", *each) for each in zip(sorts.items(), mixers, strict=True)]
        makes += [("mlp", *each) for each in zip(mlps.items(), kinds["mlp"], strict=True)]
        found = {"ends": activations.of_ends(training_of(model, "all"), run, "flash", False)}
        for branch, (name, count), (_, make) in makes:
            block = None if is_zero(count) else Block(**_branch(branch, make()), norms=PLACES[place])
            tensors = [] if block is None else activations.of_layer(model, block, run, "flash", False)
            found[name] = total(each.bytes for each in tensors)
            found[f"{name}_core"] = total(each.bytes for each in tensors if each.core)
        return found

    found = _in_each_style({name: n[name] for name in STYLES}, one_layer)
    for name, value in found.items():
        setattr(s, f"kept_{name}", value)

    def mixer(what: str) -> Any:
        heads, queries, alone = (getattr(s, f"kept_{name}{what}") for name in sorts)
        return where(sorts["heads"] > 0, heads, where(sorts["queries"] > 0, queries, alone))

    s.kept_mixer, s.kept_core = mixer(""), mixer("_core")
    each = [s.kept_mixer + getattr(s, f"kept_{name}") for name in mlps]
    for policy in POLICIES:
        layers, again = activations.under_policy(
            policy, list(mlps.values()), each, [s.kept_core] * len(mlps), activations.boundary(_model(n), run)
        )
        setattr(s, f"activations_{policy}", layers + maximum(s.kept_ends, again))


def _refusal(s: Any, c: Mapping[str, Any]) -> Any:
    """Why a model of these numbers cannot be."""
    latent, experts = c["kv_lora"] > 0, c["experts"] > 0
    reasons = [
        (where(latent, 0, c["heads"] % c["kv_heads"]) > 0, "{kv_heads} key-value heads do not divide {heads} query heads."),
        (where(latent, 0, where(c["window"] < c["length"], c["windowed"], 0)) > c["layers"], "{windowed} windowed layers are more than all {layers}."),
        (where(experts, c["dense"], 0) >= c["layers"], "{dense} dense layers leave none of {layers} for experts."),
        (where(experts, c["top_k"], 0) > c["experts"], "A token cannot choose {top_k} of {experts} experts."),
        (where(c["positions"] > 0, c["length"], 0) > c["positions"], "The model has learned positions for {positions} tokens, and a sequence has {length}."),
    ]  # fmt: skip
    return reduce(lambda rest, reason: where(reason[0], reason[1], rest), reversed(reasons), "")


def cost_of_a_model(s: Any, **c: Any) -> None:
    """Parameters, FLOPs a token under several conventions, memory of a training step, MFU and HFU, and a step of decoding."""
    s.refused = _refusal(s, c)
    n = _layers(s, c)
    _sums(s, n)
    _kept(s, n)
    _idle(s, c)
    kinds = {kind: getattr(s, f"macs_{kind}") for kind in conventions.KINDS}
    for i, convention in enumerate(COUNTS.values()):
        setattr(s, f"count_{i}", PASSES * convention.flops(kinds) / c["length"])
    s.a_token = 1 * s.count_0
    again = pick(c["recompute"], {"none": 0, "selective": s.selective, "full": s.full})
    s.executed = s.a_token + (again + s.flash) / c["length"]

    device, count = c["device"], c["count"]
    s.a_second = s.a_token * c["rate"] / count
    s.mfu, s.hfu = s.a_second / device.peak, s.executed * c["rate"] / count / device.peak
    s.possible = where(
        s.a_second > device.limit, "no", where(s.a_second > device.peak, "above the peak", "below the peak")
    )

    s.weights_held, s.gradients_held, s.optimizer_held = (
        s.params * each / count for each in (c["states"].weight, c["states"].gradient, c["states"].optimizer)
    )
    s.activations = pick(c["recompute"], {policy: getattr(s, f"activations_{policy}") for policy in POLICIES})
    s.memory = s.weights_held + s.gradients_held + s.optimizer_held + s.activations
    s.fits = where(s.memory <= device.memory, "yes", "no")

    bound = bound_by(s.decode_flops, s.decode_bytes, count * device.peak, count * device.bandwidth)
    s.decode_seconds, s.bound = bound.seconds, bound.bound
    s.decode_rate = c["users"] / s.decode_seconds
    cache = _cache(n)
    s.serving = s.stored + nbytes(c["users"] * cache, c["cache"])
    s.serves = where(s.serving <= count * device.memory, "yes", "no")
    # of the axis: a bar that is far longer than the others ends there, with an arrow at its number
    s.end = minimum(reduce(maximum, [getattr(s, f"count_{i}") for i in range(len(COUNTS))]), LONGEST * s.a_token)


def _cache(n: Mapping[str, Any]) -> Any:
    """Numbers in the cache of one user."""
    kinds = _kinds(n)
    made = [(count, make()) for count, make in (*kinds["heads"], *kinds["latent"]) if not is_zero(count)]
    return total(count * mixer.held(n["length"]) for count, mixer in made)


def _idle(s: Any, c: Mapping[str, Any]) -> None:
    """Why a control has no effect now."""
    has_latent, has_experts = c["kv_lora"] > 0, c["experts"] > 0
    s.in_latent = where(has_latent, "Latent attention has keys and values of its own.", "")
    s.no_latent = where(has_latent, "", "There is no latent attention: set its size for keys and values.")
    s.no_window = where(
        has_latent, s.in_latent, where(c["windowed"] > 0, "", "No layer has a window."),
    )  # fmt: skip
    s.no_windowed = where(
        has_latent, s.in_latent, where(c["window"] >= c["length"], "The window is as long as the sequence.", "")
    )
    s.no_experts = where(has_experts, "", "There are no experts.")
    s.no_shared = where(has_experts, where(c["shared_d_ff"] > 0, "", "There is no shared expert."), s.no_experts)
    s.no_mlp = where(s.sparse_layers < c["layers"], "", "Every layer has experts.")


def one_convention(r: Any, *, name: Any, rate: Any, count: Any, device: Any, **_: Any) -> None:
    """A bar: the FLOPs of a training token as one convention counts them, and the MFU that it gives."""
    r.flops = pick(name, {label: getattr(r, f"count_{i}") for i, label in enumerate(COUNTS)})
    r.against = r.flops / r.a_token
    r.drawn = minimum(r.flops, r.end)
    r.share = r.flops * rate / count / device.peak
