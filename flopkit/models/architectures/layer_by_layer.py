"""Decoders whose layers differ by more than a window or experts, or that have more than the numbers of `transformer`: Cohere's,
EXAONE 4, SmolLM3, GLM's mixtures and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.decoder_fields import common, ends, experts_of, heads_of, in_turn
from flopkit.models.blocks import Block
from flopkit.models.config_fields import WHOLE, WINDOWED, Fields
from flopkit.models.feed_forward import MLP, Experts
from flopkit.models.mixers import LatentAttention
from flopkit.models.model import Model
from flopkit.models.transformer import transformer
from flopkit.sizes import factor

__all__ = ["MODELS"]


def _types(c: Fields, usual: Sequence[bool]) -> list[bool]:
    """Whether each layer has the window: what ``layer_types`` lists, else what is *usual*."""
    layers = c.need("layers")
    kinds = c.order(layers, (WHOLE, WINDOWED), [WINDOWED if each else WHOLE for each in usual])
    return [bool(each) for each in kinds]


def _every(c: Fields, period: int) -> list[bool]:
    """All layers but each *period*-th; none where the period is 0."""
    return [bool(period and (i + 1) % period) for i in range(c.need("layers"))]


def _mlp(c: Fields, **more: Any) -> MLP:
    return MLP(d_ff=c.need("d_ff"), **{"act": c.act()} | more)


def _cohere(c: Fields, name: str) -> Model:
    attention = heads_of(c, c.flag("attention_bias"), qk_norm="heads" if c.flag("use_qk_norm") else "")
    tied = c.flag("tie_word_embeddings", True)
    return transformer(
        name=name, **common(c, attention=attention, norms="parallel", norm="layer", norm_bias=False, tied=tied)
    )


def _cohere2(c: Fields, name: str) -> Model:
    """Layers without a window do not turn their queries and keys."""
    whole = heads_of(c, c.flag("attention_bias"), head_dim=c.head_dim(""), rotary=0)
    narrow = replace(whole, rotary=whole.head_dim, window=c.need("window"))
    windowed = _types(c, _every(c, 0 if c.fields.get("layer_types") else c.count("sliding_window_pattern", 4)))
    layers = (Block(mixer=narrow if each else whole, mlp=_mlp(c), norms="parallel") for each in windowed)
    more = {"norm": "layer", "norm_bias": False, "tied": c.flag("tie_word_embeddings", True)}
    return Model(name=name, **ends(c, **more), **in_turn(list(layers)))


def _exaone4(c: Fields, name: str) -> Model:
    """Beside layers with a window, those without do not turn their queries and keys."""
    window = c.get("sliding_window")
    whole = heads_of(c, qk_norm="head")
    narrow = replace(whole, window=window)
    listed = bool(c.fields.get("layer_types"))
    windowed = _types(c, _every(c, 0 if listed or window is None else c.count("sliding_window_pattern", 4)))
    if window is not None:
        whole = replace(whole, rotary=0)
    layers = (Block(mixer=narrow if each else whole, mlp=_mlp(c), norms="post") for each in windowed)
    return Model(name=name, **ends(c), **in_turn(list(layers)))


def _smollm3(c: Fields, name: str) -> Model:
    layers, period = c.need("layers"), c.count("no_rope_layer_interval", 4)
    turned = c.listed("no_rope_layers") or [(i + 1) % period != 0 for i in range(layers)]  # 1: a layer that turns
    if len(turned) != layers:
        raise ValueError(f"no_rope_layers has {len(turned)} entries for {layers} layers")
    window = c.get("sliding_window") if c.flag("use_sliding_window") else None
    windowed = _types(c, [window is not None and not each for each in turned])
    plain = heads_of(c, c.flag("attention_bias"))
    mlp = _mlp(c, bias=c.flag("mlp_bias"))
    blocks = (
        Block(mixer=replace(plain, rotary=None if turns else 0, window=window if narrow else None), mlp=mlp)
        for turns, narrow in zip(turned, windowed, strict=True)
    )
    return Model(name=name, **ends(c, tied=c.flag("tie_word_embeddings", True)), **in_turn(list(blocks)))


def _cwm(c: Fields, name: str) -> Model:
    whole = heads_of(c)
    narrow = replace(whole, window=c.get("sliding_window"))
    windowed = _types(c, [i % 4 != 0 for i in range(c.need("layers"))])
    mlp = _mlp(c, bias=c.flag("mlp_bias"))
    return Model(
        name=name, **ends(c), **in_turn([Block(mixer=narrow if each else whole, mlp=mlp) for each in windowed])
    )


def _helium(c: Fields, name: str) -> Model:
    attention = heads_of(c, qkv_bias=c.flag("attention_bias"))
    if attention.heads * attention.head_dim != c.need("d_model"):
        raise ValueError(
            f"head_dim={attention.head_dim}: the heads of a helium together are as wide as the model; correct the one that is wrong"
        )
    return transformer(name=name, **common(c, attention=attention, bias=c.flag("mlp_bias")))


def _olmo(c: Fields, name: str) -> Model:
    """Its layer norms have neither weight nor bias."""
    attention = heads_of(c, c.flag("attention_bias"))
    return transformer(name=name, **common(c, attention=attention, norm="layer", norm_weight=False, norm_bias=False))


def _arcee(c: Fields, name: str) -> Model:
    attention = heads_of(c, c.flag("attention_bias"))
    return transformer(name=name, **common(c, attention=attention, gated=False, bias=c.flag("mlp_bias")))


def _phimoe(c: Fields, name: str) -> Model:
    attention, experts = heads_of(c, c.flag("attention_bias")), experts_of(c, "d_ff")
    found = common(c, mlp=False, attention=attention, experts=experts, norm="layer", head_bias=c.flag("lm_head_bias"))
    return transformer(name=name, **found | c.windows())


def _glm4v(c: Fields, name: str) -> Model:
    attention = heads_of(c, qkv_bias=True, rotary=c.rotary())
    return transformer(name=name, **common(c, attention=attention, norms="both"))


def _shared(c: Fields, key: str = "n_shared_experts") -> Experts:
    return experts_of(c, shared_d_ff=c.count(key, 0, minimum=0) * c.need("expert_d_ff"))


def _glm4_moe(c: Fields, name: str) -> Model:
    attention = heads_of(
        c, qkv_bias=c.flag("attention_bias"), rotary=c.rotary(0.5), qk_norm="head" if c.flag("use_qk_norm") else ""
    )  # fmt: skip
    return transformer(name=name, **common(c, attention=attention, experts=_shared(c)) | c.dense_first())


def _glm4v_moe(c: Fields, name: str) -> Model:
    c.refuse(use_qk_norm=False)
    attention = heads_of(c, qkv_bias=c.flag("attention_bias", True), rotary=c.rotary(0.5))
    return transformer(name=name, **common(c, attention=attention, experts=_shared(c)) | c.dense_first())


def _sparse_types(c: Fields) -> list[bool]:
    """Whether each layer is a mixture: what ``mlp_layer_types`` lists, else all but the first."""
    layers = c.need("layers")
    said = c.listed("mlp_layer_types") or ["dense", *["sparse"] * (layers - 1)]
    if len(said) != layers or not {"dense", "sparse"}.issuperset(said):
        raise ValueError(f"mlp_layer_types: must have {layers} entries, each 'dense' or 'sparse'")
    if not c.fields.get("mlp_layer_types"):
        c.refuse(first_k_dense_replace=1)
    return [each == "sparse" for each in said]


def _glm4_moe_lite(c: Fields, name: str) -> Model:
    c.refuse(attention_bias=False)
    sizes = c.all("heads", "kv_lora", "qk_nope", "qk_rope", "v_head_dim") | {"q_lora": c.get("q_lora_rank")}
    mixer, kinds = LatentAttention(**sizes), (_mlp(c), _shared(c))
    return Model(name=name, **ends(c), **in_turn([Block(mixer=mixer, mlp=kinds[each]) for each in _sparse_types(c)]))


def _dots1(c: Fields, name: str) -> Model:
    whole = heads_of(c, c.flag("attention_bias"), qk_norm="head")
    window, first = c.get("sliding_window"), c.need("max_window_layers", minimum=0)
    windowed = _types(c, [window is not None and i >= first for i in range(c.need("layers"))])
    mixers, mlps, dense = (whole, replace(whole, window=window)), (_shared(c), _mlp(c)), c.need("dense", minimum=0)
    blocks = (Block(mixer=mixers[each], mlp=mlps[i < dense]) for i, each in enumerate(windowed))
    return Model(name=name, **ends(c), **in_turn(list(blocks)))


def _ernie4_5_moe(c: Fields, name: str) -> Model:
    c.refuse(use_bias=False, hidden_act="silu")
    layers, period, first = (
        c.need("layers"),
        c.count("moe_layer_interval", 1),
        c.count("moe_layer_start_index", 1, minimum=0),
    )
    last = c.get("moe_layer_end_index", -1)
    last = layers - 1 if last == -1 else c.count("moe_layer_end_index", last, minimum=0)
    d_ff = c.need("expert_d_ff")
    experts = Experts(
        experts=c.need("moe_num_experts"), top_k=c.need("moe_k"), d_ff=d_ff, choice_bias=True,
        shared_d_ff=c.count("moe_num_shared_experts", 0, minimum=0) * d_ff,
    )  # fmt: skip
    sparse = [(i + 1) % period == 0 and first <= i <= last for i in range(layers)]
    mixer, kinds = heads_of(c), (_mlp(c), experts)
    tied = c.flag("tie_word_embeddings", True)
    return Model(name=name, **ends(c, tied=tied), **in_turn([Block(mixer=mixer, mlp=kinds[each]) for each in sparse]))


def _of_each(c: Fields, key: str, usual: int) -> list[int]:
    """A number of each layer, which a file lists or says once for all."""
    layers, said = c.need("layers"), c.get(key, usual)
    found = list(said) if isinstance(said, list | tuple) else [said] * layers
    if len(found) != layers:
        raise ValueError(f"{key} has {len(found)} entries for {layers} layers")
    return found


def _hunyuan_moe(c: Fields, name: str) -> Model:
    """Its experts and what they share are as wide as ``intermediate_size``."""
    c.refuse(use_qk_norm=True, use_cla=False, mlp_bias=False, hidden_act="silu", use_mixed_mlp_moe=True)
    d_ff = c.need("d_ff")
    for key, right in (("moe_intermediate_size", d_ff), ("num_shared_expert", 1)):
        if wrong := [each for each in _of_each(c, key, right) if each != right]:
            raise ValueError(f"{key}={wrong[0]}: flopkit supports {c.kind} only with {key}={right}")
    mixer, experts = heads_of(c, c.flag("attention_bias"), qk_norm="head"), c.need("experts")
    mixtures = [
        Experts(experts=experts, top_k=each, d_ff=d_ff, shared_d_ff=d_ff) for each in _of_each(c, "moe_topk", 1)
    ]
    return Model(name=name, **ends(c), **in_turn([Block(mixer=mixer, mlp=each) for each in mixtures]))


def _mimo(c: Fields, name: str) -> Model:
    """Layers with a window have twice the heads of keys and values, and a sink for each head."""
    layers = c.need("layers")
    if c.fields.get("sliding_window_size") is not None:
        raise ValueError(
            "sliding_window_size: say it as sliding_window, which is 1 more, for it counts the token itself"
        )
    windowed = _types(c, [i > 0 and (i + 1) % 6 != 0 for i in range(layers)])
    sparse = _sparse_types(c)
    for key, right in (("hybrid_layer_pattern", windowed), ("moe_layer_freq", sparse)):
        if (said := c.fields.get(key)) is not None and said != [int(each) for each in right]:
            raise ValueError(
                f"{key}: says another order of layers than layer_types and mlp_layer_types, or what is taken for them"
            )
    turned = [c.inside("rope_parameters").get(kind) or {} for kind in (WHOLE, WINDOWED)]
    shares = [each.get("partial_rotary_factor", c.get("partial_rotary_factor", 0.334)) for each in turned]
    head_dim, bias = c.need("head_dim"), c.flag("attention_bias")
    of_swa = {
        "swa_head_dim": head_dim,
        "swa_v_head_dim": c.need("v_head_dim"),
        "swa_num_attention_heads": c.need("heads"),
    }
    c.refuse(**of_swa, swa_num_key_value_heads=2 * c.need("kv_heads"), n_shared_experts=None)
    whole, narrow = (
        heads_of(
            c,
            qkv_bias=bias,
            v_head_dim=c.need("v_head_dim"),
            rotary=int(head_dim * factor("partial_rotary_factor", share)),
            **more,
        )
        for share, more in zip(
            shares, ({}, {"kv_heads": 2 * c.need("kv_heads"), "sinks": True, "window": c.need("window")}), strict=True
        )
    )
    mixers, mlps = (whole, narrow), (_mlp(c), experts_of(c))
    blocks = [Block(mixer=mixers[narrow], mlp=mlps[mixture]) for narrow, mixture in zip(windowed, sparse, strict=True)]
    return Model(name=name, **ends(c), **in_turn(blocks))


def _apertus(c: Fields, name: str) -> Model:
    act = "xielu" if c.get("hidden_act", "xielu") == "xielu" else c.act()
    attention = heads_of(c, c.flag("attention_bias"), qk_norm="head")
    c.refuse(qk_norm=True, post_norm=False)
    mlp = MLP(d_ff=c.need("d_ff"), act=act, gated=False)
    return Model(name=name, **ends(c), blocks=((Block(mixer=attention, mlp=mlp), c.need("layers")),))


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "cohere": _cohere, "cohere2": _cohere2, "exaone4": _exaone4, "smollm3": _smollm3, "cwm": _cwm, "helium": _helium,
    "olmo": _olmo, "arcee": _arcee, "phimoe": _phimoe, "glm4v_text": _glm4v, "glm4_moe": _glm4_moe, "glm4v_moe_text": _glm4v_moe,
    "glm4_moe_lite": _glm4_moe_lite, "dots1": _dots1, "ernie4_5_moe": _ernie4_5_moe, "hunyuan_v1_moe": _hunyuan_moe,
    "mimo_v2_flash": _mimo, "apertus": _apertus,
}  # fmt: skip
