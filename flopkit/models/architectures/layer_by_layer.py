"""Decoders whose layers differ by more than a window or experts, or that have more than the numbers of `transformer`: Cohere's,
EXAONE 4, SmolLM3, GLM's mixtures and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.decoder_fields import common, ends, experts_of, heads_of, in_turn
from flopkit.models.branches.feed_forward import MLP, Experts
from flopkit.models.branches.latent_attention import LatentAttention
from flopkit.models.branches.sub_norms import SubNorm
from flopkit.models.files.config_fields import WHOLE, WINDOWED, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block, Parallel
from flopkit.sizes import factor, number

__all__ = ["FORMS", "MODELS", "NUMBERS"]


def _types(c: Fields, usual: Sequence[bool]) -> list[bool]:
    """Whether each layer has the window: what ``layer_types`` lists, else what is *usual*."""
    layers = c.need("layers")
    kinds = c.order(layers, (WHOLE, WINDOWED), [WINDOWED if each else WHOLE for each in usual])
    return [bool(each) for each in kinds]


def _mlp(c: Fields, **more: Any) -> MLP:
    return MLP(d_ff=c.need("d_ff"), **{"act": c.act()} | more)


def _cohere(c: Fields) -> dict[str, Any]:
    normed = c.either(c.flag("use_qk_norm"), lambda: "heads", lambda: "")
    attention = heads_of(c, c.flag("attention_bias"), qk_norm=normed)
    tied = c.flag("tie_word_embeddings", True)
    return common(c, attention=attention, norms="parallel", norm="layer", norm_bias=False, tied=tied)


def _cohere2(c: Fields) -> dict[str, Any]:
    """Layers without a window do not turn their queries and keys."""
    whole = heads_of(c, c.flag("attention_bias"), rotary=0)
    c.demand("window")
    windows = c.windows(every=4, every_key=("sliding_window_pattern",), rotary=c.head_dim())
    more = {"norm": "layer", "norm_bias": False, "tied": c.flag("tie_word_embeddings", True)}
    return common(c, attention=whole, norms="parallel", **more) | windows


def _exaone4(c: Fields) -> dict[str, Any]:
    """Beside layers with a window, those without do not turn their queries and keys."""
    turned = c.unasked(lambda: None if c.get("sliding_window") is None else 0)
    attention = heads_of(c, qk_norm="head", rotary=turned)
    windows = c.windows(every=4, every_key=("sliding_window_pattern",), rotary=c.head_dim())
    return common(c, attention=attention, norms="post") | windows


def _smollm3(c: Fields, name: str) -> Model:
    layers, period = c.need("layers"), c.count("no_rope_layer_interval", 4)
    turned = c.listed("no_rope_layers") or [(i + 1) % period != 0 for i in range(layers)]  # 1: a layer that turns
    if len(turned) != layers:
        raise ValueError(f"no_rope_layers has {len(turned)} entries for {layers} layers")
    window = c.get("sliding_window") if c.flag("use_sliding_window") else None
    windowed = _types(c, [window is not None and not each for each in turned])
    if window is None:
        c.windowless(c.listed("layer_types"))
    plain = heads_of(c, c.flag("attention_bias"))
    mlp = _mlp(c, bias=c.flag("mlp_bias"))
    blocks = (
        Block(mixer=replace(plain, rotary=None if turns else 0, window=window if narrow else None), mlp=mlp)
        for turns, narrow in zip(turned, windowed, strict=True)
    )
    return Model(name=name, **ends(c, tied=c.flag("tie_word_embeddings", True)), **in_turn(list(blocks)))


def _smollm3_form(c: Fields) -> dict[str, Any]:
    c.fixed("use_sliding_window", False)
    attention, tied = heads_of(c, c.flag("attention_bias")), c.flag("tie_word_embeddings", True)
    return common(c, attention=attention, bias=c.flag("mlp_bias"), tied=tied)


def _cwm(c: Fields, name: str) -> Model:
    whole = heads_of(c)
    narrow = replace(whole, window=c.get("sliding_window"))
    windowed = _types(c, [i % 4 != 0 for i in range(c.need("layers"))])
    mlp = _mlp(c, bias=c.flag("mlp_bias"))
    return Model(
        name=name, **ends(c), **in_turn([Block(mixer=narrow if each else whole, mlp=mlp) for each in windowed])
    )


def _helium(c: Fields) -> dict[str, Any]:
    why = "the heads of a helium together are as wide as the model; correct the one that is wrong:"
    head_dim = c.must("head_dim", c.head_dim(""), why)
    attention = heads_of(c, qkv_bias=c.flag("attention_bias"), out_bias=False, head_dim=head_dim)
    return common(c, attention=attention, bias=c.flag("mlp_bias"))


def _olmo(c: Fields) -> dict[str, Any]:
    """Its layer norms have neither weight nor bias."""
    attention = heads_of(c, c.flag("attention_bias"))
    return common(c, attention=attention, norm="layer", norm_weight=False, norm_bias=False)


def _arcee(c: Fields) -> dict[str, Any]:
    attention = heads_of(c, c.flag("attention_bias"))
    return common(c, attention=attention, gated=False, bias=c.flag("mlp_bias"))


def _phimoe(c: Fields) -> dict[str, Any]:
    c.refuse(num_experts_per_tok=2)  # its router is made for two
    attention, experts = heads_of(c, c.flag("attention_bias")), experts_of(c, "d_ff")
    found = common(c, mlp=False, attention=attention, experts=experts, norm="layer", head_bias=c.flag("lm_head_bias"))
    return found | c.windows(uniform=True)


def _glm4v(c: Fields) -> dict[str, Any]:
    attention = heads_of(c, qkv_bias=True, rotary=c.rotary())
    return common(c, attention=attention, norms="both")


def _shared(c: Fields) -> Experts:
    return experts_of(c, shared_d_ff=c.count("n_shared_experts", 0, minimum=0) * c.need("expert_d_ff"))


def _glm4_moe(c: Fields) -> dict[str, Any]:
    normed = c.either(c.flag("use_qk_norm"), lambda: "head", lambda: "")
    attention = heads_of(c, qkv_bias=c.flag("attention_bias"), rotary=c.rotary(0.5), qk_norm=normed)
    return common(c, attention=attention, experts=_shared(c)) | c.dense_first()


def _glm4v_moe(c: Fields) -> dict[str, Any]:
    c.refuse(use_qk_norm=False)
    attention = heads_of(c, qkv_bias=c.flag("attention_bias", True), rotary=c.rotary(0.5))
    return common(c, attention=attention, experts=_shared(c)) | c.dense_first()


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
    before = c.fields.get("sliding_window_size")  # of the published file: tokens before the one that looks
    window = c.need("window") if before is None else c.count("sliding_window_size", before) + 1
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
            shares, ({}, {"kv_heads": 2 * c.need("kv_heads"), "sinks": True, "window": window}), strict=True
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


def _bitnet(c: Fields, name: str) -> Model:
    """A norm stands before the last dense layer of attention and MLP; that of attention has the model's width."""
    attention = heads_of(c, c.flag("attention_bias"))
    if attention.heads * attention.head_dim != c.need("d_model"):
        raise ValueError(
            f"head_dim={attention.head_dim}: the heads of a bitnet together are as wide as the model; correct the one that is wrong"
        )
    block = Block(mixer=SubNorm(branch=attention), mlp=SubNorm(branch=_mlp(c)))
    return Model(name=name, **ends(c), blocks=((block, c.need("layers")),))


def _longcat_flash(c: Fields, name: str) -> Model:
    """A layer is twice attention and an MLP; the experts read what the first MLP does, and their sum is added after the second.
    Experts that do nothing may be chosen, too."""
    c.refuse(attention_bias=False, router_bias=False)
    twice = "num_layers" not in c.fields and "num_hidden_layers" in c.fields
    layers = number("num_hidden_layers", c.need("layers"), minimum=2) // 2 if twice else c.need("num_layers")
    nope, rope = c.need("qk_nope"), c.need("qk_rope")
    c.refuse(qk_head_dim=nope + rope)
    mixer = LatentAttention(**c.all("heads", "q_lora", "kv_lora", "v_head_dim"), qk_nope=nope, qk_rope=rope)
    said = {
        "intermediate_size": "ffn_hidden_size",
        "moe_intermediate_size": "expert_ffn_hidden_size",
        "num_experts_per_tok": "moe_topk",
    }
    d_ff, width, top_k = (c.need(usual if c.fields.get(key) is None else key) for key, usual in said.items())
    experts, nothing = c.need("n_routed_experts"), c.count("zero_expert_num", 0, minimum=0)
    computed, rest = divmod(top_k * experts, experts + nothing)
    if rest or top_k > experts + nothing:
        raise ValueError(
            f"moe_topk={top_k} of {experts} experts and {nothing} that do nothing: on average no whole number of the chosen is computed"
        )
    mixture = Experts(experts=experts, top_k=computed, d_ff=width, identity=nothing)
    mlp = MLP(d_ff=d_ff, act=c.act())
    blocks = [Block(mixer=mixer, mlp=Parallel(branches=(mlp, mixture))), Block(mixer=mixer, mlp=mlp)] * layers
    model = Model(name=name, **ends(c), **in_turn(blocks))
    if not nothing:
        return model
    note = (
        f"of the {top_k} experts that are chosen for a token, {nothing} of {experts + nothing} do nothing: {computed} are computed on average; "
        "transformers' class has weights for those that do nothing, which nothing reads, and they count as parameters"
    )
    return replace(model, unused=layers * nothing * 2 * width * c.need("d_model"), notes=(note,))


NUMBERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "cohere": _cohere, "cohere2": _cohere2, "exaone4": _exaone4, "helium": _helium, "olmo": _olmo, "arcee": _arcee,
    "phimoe": _phimoe, "glm4v_text": _glm4v, "glm4_moe": _glm4_moe, "glm4v_moe_text": _glm4v_moe,
}  # fmt: skip

FORMS = {"smollm3": _smollm3_form}

MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "smollm3": _smollm3, "cwm": _cwm, "glm4_moe_lite": _glm4_moe_lite, "dots1": _dots1, "ernie4_5_moe": _ernie4_5_moe,
    "hunyuan_v1_moe": _hunyuan_moe, "mimo_v2_flash": _mimo, "apertus": _apertus, "bitnet": _bitnet, "longcat_flash": _longcat_flash,
}  # fmt: skip
