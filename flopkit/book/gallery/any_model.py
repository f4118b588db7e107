"""A decoder whose every number is a control: its parts, its parameters, and why some settings cannot be.

The parts are built here from the controls, as `flopkit.models.transformer` builds them from numbers; whether it has experts, windows or
latent attention is how many layers of each sort there are, so that the same sums hold for all. What a model costs is asked in four modules:
`calculate_fit`, `calculate_run`, `calculate_serving`, `calculate_mfu`.

Controls of all four: ``d_model``, ``layers``, ``heads``, ``kv_heads``, ``head_dim``, ``d_ff``, ``gated``, ``vocab``, ``tied``; ``norm`` (of
`NORMS`), ``place`` (of `PLACES`), ``qk_norm`` (of `QK_NORMS`), ``qkv_bias``, ``out_bias``, ``mlp_bias``, ``act`` (of `ACTS`), ``head_bias``,
``embedded``, ``sinks``, ``positions``; ``windowed``, ``window``; ``experts``, ``top_k``, ``expert_d_ff``, ``shared_d_ff``, ``shared_gate``,
``expert_bias``, ``dense``; ``kv_lora``, ``q_lora``, ``qk_nope``, ``qk_rope``, ``v_head_dim``.

Results of all four: ``refused``, why these settings cannot be, or ""; ``params`` and ``active``, numbers of parameters in all and those that a
token meets; and a sentence or "" that says why a control has no effect: ``in_latent``, ``no_latent``, ``no_window``, ``no_windowed``,
``no_experts``, ``no_shared``, ``no_mlp``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

from flopkit.arithmetic import is_zero, maximum, minimum, reading, same, total, where
from flopkit.charts.readings import pick
from flopkit.models import MLP, Attention, Block, Experts, LatentAttention, Model
from flopkit.models.branches.feed_forward import SHARED
from flopkit.models.stacks import passes
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.parts import Part, Run
from flopkit.training.memory import Kept

__all__ = [
    "ACTS", "MLPS", "NORMS", "Nothing", "ONE", "PLACES", "POLICIES", "QK_NORMS", "Adapter", "adapters_of", "idle", "in_each_style", "kinds",
    "model_of", "once", "refuse", "sizes",
]  # fmt: skip


class _Norm(NamedTuple):
    kind: str
    weight: int
    bias: int


NORMS = {
    "RMSNorm": _Norm("rms", 1, 0), "LayerNorm": _Norm("layer", 1, 1), "LayerNorm without bias": _Norm("layer", 1, 0),
    "LayerNorm without weights": _Norm("layer", 0, 0),
}  # fmt: skip
PLACES = {
    "one": "pre", "two": "both", "one, behind the branch": "post", "one for both, in parallel": "parallel",
    "one each, in parallel": "parallel-two",
}  # fmt: skip
ONE = next(iter(PLACES))
QK_NORMS = {
    "none": "",
    "each head": "head",
    "all heads together": "whole",
    "LayerNorm": "layer",
    "LayerNorm, each its own": "heads",
}
ACTS = {"SiLU, GELU": "gelu", "ReLU": "relu"}
"""Activations by what they keep: the backward pass of ReLU reads its output, that of others their input."""
STYLES: dict[str, Any] = {"norm_kind": ("rms", "layer"), "place": PLACES, "qk_norm": QK_NORMS, "act": ACTS}
POLICIES = ("none", "selective", "full")
MLPS = ("gated", "plain", "sparse")
"""The sorts of MLPs, in the order in which `kinds` has them."""


def once(s: Any, **results: Any) -> None:
    """Set *results* on ``s``, but for those that another question has set already."""
    for name, value in results.items():
        if not hasattr(s, name):
            setattr(s, name, value)


def kinds(
    n: Mapping[str, Any], qk_norm: str = "none", act: str = next(iter(ACTS))
) -> dict[str, list[tuple[Any, Callable[[], Any]]]]:
    """The sorts of attention and of MLPs that a model can have, each with how many layers have it."""
    heads = {"heads": n["heads"], "kv_heads": n["kv"], "head_dim": n["head_dim"], "qk_norm": QK_NORMS[qk_norm]}
    heads |= {name: n[name] for name in ("qkv_bias", "out_bias", "sinks")} | {"rotary": 0}
    latent = {name: n[name] for name in ("heads", "kv_lora", "qk_nope", "qk_rope", "v_head_dim")}
    plain = {"d_ff": n["d_ff"], "bias": n["mlp_bias"], "act": ACTS[act]}
    experts = {"experts": n["several"], "top_k": n["chosen"], "d_ff": n["expert_d_ff"], "shared_d_ff": n["shared_d_ff"]}
    experts |= {"bias": n["expert_bias"], "shared_gate": where(n["shared_d_ff"] > 0, n["shared_gate"], 0)}
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
            (n["plain_layers"], lambda: MLP(**plain, gated=False)),
            (n["sparse_layers"], lambda: Experts(**experts)),
        ],
    }


def model_of(n: Mapping[str, Any]) -> Model:
    """The model with one norm a branch, for sums over its layers. Which layers have a window and which have experts does not matter
    to these, so each sort of attention and each sort of MLP is a layer of its own, with its norm and its sum.

    Norms differ here in their parameters alone; element-wise work is not asked for.
    """
    blocks = tuple(
        (Block(mixer=None, mlp=make()) if kind == "mlp" else Block(mixer=make()), count)
        for kind, made in kinds(n).items()
        for count, make in made
        if not is_zero(count)
    )
    positions = None if is_zero(n["learned"]) else n["learned"]
    ends = {name: n[name] for name in ("d_model", "vocab", "tied", "norm_weight", "norm_bias", "head_bias")}
    return Model(name="model", **ends, positions=positions, norm="layer", blocks=blocks)


class Nothing(Branch):
    """A branch of which only what stands around it is of interest."""

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        return []

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        return []


class Adapter(NamedTuple):
    """A dense layer that gets an adapter: whether it is there, its features in and out, and whether it reads what its branch does."""

    there: Any
    d_in: Any
    d_out: Any
    reads_input: bool


def adapters_of(n: Mapping[str, Any], branch: Branch) -> Iterator[Adapter]:
    """The dense layers of a branch, but for routers and experts."""
    shared = where(n["shared_d_ff"] > 0, 1, 0)
    for each in branch.parts(Run(1, 1, 1), n["d_model"]):
        if each.shape:
            there = shared if each.matrix in (*SHARED, "shared_gate") else 1
            gate = n["shared_gate"] if each.matrix == "shared_gate" else 1
            d_in, d_out = each.shape
            yield Adapter(there * gate, d_in, d_out, "input" in each.reads)


def in_each_style(styles: Mapping[str, Any], ask: Callable[..., dict[str, Any]]) -> dict[str, Any]:
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


def sizes(s: Any, c: Mapping[str, Any], longest: Any) -> dict[str, Any]:
    """The numbers of a model as the controls have them, how many layers there are of each sort, and parameters; none is impossible in itself.

    *longest*: tokens of the longest sequence that goes through it.
    """
    is_latent = where(c["kv_lora"] > 0, 1, 0)
    once(s, latent_queries=where(c["q_lora"] > 0, is_latent * c["layers"], 0))
    once(s, latent_alone=is_latent * c["layers"] - s.latent_queries)
    once(s, narrow=(1 - is_latent) * minimum(c["windowed"], c["layers"]))
    once(s, whole=c["layers"] - s.latent_queries - s.latent_alone - s.narrow)
    once(s, sparse_layers=where(c["experts"] > 0, c["layers"] - minimum(c["dense"], c["layers"]), 0))
    once(s, gated_layers=c["gated"] * (c["layers"] - s.sparse_layers))
    once(s, plain_layers=c["layers"] - s.sparse_layers - s.gated_layers)
    once(
        s,
        kv=where(c["heads"] % c["kv_heads"] > 0, c["heads"], c["kv_heads"]),
        several=maximum(c["experts"], 1),  # where there are none, no layer has them
        learned=where(c["positions"] > 0, maximum(c["positions"], longest), 0),
        norm_kind=pick(c["norm"], {title: norm.kind for title, norm in NORMS.items()}),
        norm_weight=pick(c["norm"], {title: norm.weight for title, norm in NORMS.items()}),
        norm_bias=pick(c["norm"], {title: norm.bias for title, norm in NORMS.items()}),
    )
    once(s, chosen=minimum(c["top_k"], s.several))
    ours = (
        "latent_queries", "latent_alone", "narrow", "whole", "sparse_layers", "gated_layers", "plain_layers", "kv", "several", "chosen",
        "learned", "norm_kind", "norm_weight", "norm_bias",
    )  # fmt: skip
    n = {**c, **{name: getattr(s, name) for name in ours}}
    if not hasattr(s, "params"):
        token = passes.token(model_of(n))
        s.more_norms = _more_norms(s, n)
        s.params = token.params + s.more_norms
        s.active = s.params - token.macs_by_kind.get("idle", 0)
    return n


def _more_norms(s: Any, n: Mapping[str, Any]) -> Any:
    """Parameters of norms beyond one a branch: two in a branch, one for both branches, norms of queries and keys, one behind the embedding.

    All are parameters, and none is a product.
    """
    model = model_of(n)

    def around(place: str) -> dict[str, Any]:
        layer = Block(mixer=Nothing(), mlp=Nothing(), norms=PLACES[place])
        return {"norms": replace(model, blocks=((layer, 1),)).layer(seq=1).params}

    def inside(qk_norm: str) -> dict[str, Any]:
        parts = (
            [] if is_zero(s.whole + s.narrow) else kinds(n, qk_norm)["heads"][0][1]().parts(Run(1, 1, 1), n["d_model"])
        )
        return {"norms": total(each.cost.params for each in parts if each.role == "norm")}

    placed = in_each_style({"place": n["place"]}, around)["norms"] - around(ONE)["norms"]
    of_heads = in_each_style({"qk_norm": n["qk_norm"]}, inside)["norms"]
    s.layer_norms = placed + where(s.whole + s.narrow > 0, of_heads, 0)  # of all layers, or of none
    s.embedding_norm = n["embedded"] * (n["norm_weight"] + n["norm_bias"]) * n["d_model"]
    return s.embedding_norm + n["layers"] * s.layer_norms


def refuse(s: Any, c: Mapping[str, Any], length: str, *more: tuple[Any, str]) -> None:
    """Set ``refused``: why a model of these numbers, or what is asked of it, cannot be. *length*: the control that is its longest sequence."""
    latent, experts = c["kv_lora"] > 0, c["experts"] > 0
    reasons = [
        (where(latent, 0, c["heads"] % c["kv_heads"]) > 0, "{kv_heads} key-value heads do not divide {heads} query heads."),
        (where(latent, 0, where(c["window"] < c[length], c["windowed"], 0)) > c["layers"], "{windowed} windowed layers are more than all {layers}."),
        (where(experts, c["dense"], 0) >= c["layers"], "{dense} dense layers leave none of {layers} for experts."),
        (where(experts, c["top_k"], 0) > c["experts"], "A token cannot choose {top_k} of {experts} experts."),
        (where(c["positions"] > 0, c[length], 0) > c["positions"], f"The model has learned positions for {{positions}} tokens, and a sequence has {{{length}}}."),
        *more,
    ]  # fmt: skip
    once(s, refused=reduce(lambda rest, reason: where(reason[0], reason[1], rest), reversed(reasons), ""))


def idle(s: Any, c: Mapping[str, Any], longest: Any) -> None:
    """Set why a control of the model has no effect now, whatever is asked."""
    has_latent, has_experts = c["kv_lora"] > 0, c["experts"] > 0
    once(
        s,
        in_latent=where(has_latent, "Latent attention has keys and values of its own.", ""),
        no_latent=where(has_latent, "", "There is no latent attention: set its size for keys and values."),
        no_experts=where(has_experts, "", "There are no experts."),
        no_mlp=where(s.sparse_layers < c["layers"], "", "Every layer has experts."),
    )
    once(
        s,
        no_window=where(has_latent, s.in_latent, where(c["windowed"] > 0, "", "No layer has a window.")),
        no_windowed=where(
            has_latent, s.in_latent, where(c["window"] >= longest, "The window is as long as the sequence.", "")
        ),
        no_shared=where(
            has_experts, where(c["shared_d_ff"] > 0, "", "There is no shared expert."), s.no_experts
        ),
    )  # fmt: skip
