"""Decoders with layer norms, their branches one behind the other: GPT-2 and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.classes import DECODER, Tasks
from flopkit.models.architectures.decoder_fields import heads_of
from flopkit.models.branches.mixers import Attention
from flopkit.models.files.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.transformer import WindowedLayers, transformer
from flopkit.sizes import short

__all__ = ["MODELS", "NUMBERS", "TASKS", "all_heads", "only"]

_UNTURNED: dict[str, Any] = {"rotary": 0}


def all_heads(c: Fields, bias: Any, **more: Any) -> Attention:
    """Attention whose every head has keys and values of its own, with a *bias* in all projections or in none."""
    return heads_of(c, bias, **{"kv_heads": c.need("heads"), "head_dim": c.head_dim("")} | more)


def only(*known: str, **changed: Any) -> Tasks:
    """Those of a decoder's classes that transformers has."""
    return {task: changed.get(task, DECODER[task]) for task in known}


def _inner(c: Fields, key: str = "n_inner") -> Any:
    return c.count(key, 4 * c.need("d_model"))


def _gpt2(c: Fields) -> dict[str, Any]:
    c.refuse(add_cross_attention=False)
    mlp = {"d_ff": _inner(c), "act": c.act("gelu_new"), "gated": False, "bias": True}
    ends = {"tied": c.flag("tie_word_embeddings", True), "positions": c.need("positions"), "norm": "layer"}
    return c.all("vocab", "layers", "d_model") | {"attention": all_heads(c, True, **_UNTURNED)} | mlp | ends


def _gpt_bigcode(c: Fields) -> dict[str, Any]:
    c.refuse(add_cross_attention=False)
    kv_heads = c.either(c.flag("multi_query", True), lambda: 1, lambda: c.need("heads"))
    attention = all_heads(c, True, **_UNTURNED, kv_heads=kv_heads)
    mlp = {"d_ff": _inner(c), "act": c.act("gelu_pytorch_tanh"), "gated": False, "bias": True}
    ends = {"tied": c.flag("tie_word_embeddings", True), "positions": c.need("positions"), "norm": "layer"}
    return c.all("vocab", "layers", "d_model") | {"attention": attention} | mlp | ends


def _plain(c: Fields, **more: Any) -> dict[str, Any]:
    """What the relatives of OPT have in common: heads of their own, a plain MLP, layer norms, one table of words."""
    usual = {"attention": all_heads(c, True, **_UNTURNED), "gated": False, "bias": True, "norm": "layer"}
    return c.all("vocab", "layers", "d_model") | usual | {"tied": c.flag("tie_word_embeddings", True)} | more


def _opt(c: Fields) -> dict[str, Any]:
    learned = c.fixed("layer_norm_elementwise_affine", True)
    d_model, bias, before = c.need("d_model"), c.flag("enable_bias", True), c.fixed("do_layer_norm_before", True)
    words = c.fixed("word_embed_proj_dim", d_model)
    return _plain(
        c, d_model=d_model, word_dim=None if words == d_model else words, attention=all_heads(c, bias, **_UNTURNED), d_ff=c.need("ffn_dim"),
        act=c.act("relu"), bias=bias, norm_weight=learned, norm_bias=learned, norms="pre" if before else "post",
        final_norm=before and not c.fixed("_remove_final_layer_norm", False), **_offset(c),
    )  # fmt: skip


def _offset(c: Fields) -> dict[str, Any]:
    """A table of learned positions that begins with two rows for no token."""
    return {"positions": c.need("positions") + 2, "position_offset": 2}


def _biogpt(c: Fields) -> dict[str, Any]:
    return _plain(c, d_ff=c.need("d_ff"), act=c.act("gelu"), **_offset(c))


def _xglm(c: Fields) -> dict[str, Any]:
    """Its positions are sines, which are no parameters."""
    c.refuse(add_cross_attention=False)
    return _plain(c, d_ff=c.need("ffn_dim"), act=c.act("gelu"))


def _openai(c: Fields, name: str) -> Model:
    act = str(c.get("afn", "gelu"))
    acts = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
    if act not in acts:
        raise ValueError(f"afn={short(act)}: must be one of {', '.join(acts)}")
    d_model = c.need("d_model")
    return transformer(
        name=name, **c.all("vocab", "layers"), d_model=d_model, attention=all_heads(c, True, **_UNTURNED), d_ff=4 * d_model,
        act=acts[act], gated=False, bias=True, norm="layer", norms="post", final_norm=False, positions=c.need("positions"),
        tied=c.flag("tie_word_embeddings", True),
    )  # fmt: skip


def _gpt_neo(c: Fields, name: str) -> Model:
    layers = c.need("layers")
    kinds = ("local", "global")
    places = c.listed("attention_layers") or _expanded(c.listed("attention_types") or [[["global", "local"], 12]])
    if len(places) != layers or any(each not in kinds for each in places):
        raise ValueError(
            f"attention_types (or attention_layers) of model_type='gpt_neo': must say local or global for each of {layers} layers"
        )
    order = tuple(kinds.index(each) for each in places)
    near = order.count(0)
    window = WindowedLayers(c.count("window_size", 256), layers=None if near == layers else near) if near else None
    return transformer(
        name=name, **c.all("vocab", "layers", "d_model"), attention=all_heads(c, False, **_UNTURNED, out_bias=True),
        d_ff=_inner(c, "intermediate_size"), act=c.act("gelu_new"), gated=False, bias=True, norm="layer", window=window,
        order=order if 0 < near < layers else (), positions=c.need("positions"), tied=c.flag("tie_word_embeddings", True),
    )  # fmt: skip


def _expanded(types: list[Any]) -> list[Any]:
    """Names of layers, each list of them as often as the number beside it says."""
    try:
        return [name for names, times in types for _ in range(times) for name in names]
    except (TypeError, ValueError):
        raise TypeError(f'attention_types={short(types)}: must be like [[["global", "local"], 12]]') from None


def _bloom(c: Fields) -> dict[str, Any]:
    """Its scores get biases by distance (ALiBi), which are not counted."""
    c = c.renamed(hidden_size="n_embed")
    c.refuse(apply_residual_connection_post_layernorm=False, slow_but_exact=False)
    return _plain(c, d_ff=4 * c.need("d_model"), act="gelu_tanh", embedding_norm=True)


def _starcoder2(c: Fields) -> dict[str, Any]:
    bias = c.flag("use_bias", True)
    attention = heads_of(c, bias, **c.all("kv_heads"), head_dim=c.head_dim())
    return _plain(c, attention=attention, d_ff=c.need("d_ff"), act=c.act("gelu_pytorch_tanh"), bias=bias) | c.windows(
        uniform=True
    )


def _mpt(c: Fields, name: str) -> Model:
    c.refuse(no_bias=True, embedding_fraction=1.0, expansion_ratio=4)  # transformers has 4, whatever it says
    d_model, inside = c.need("d_model"), Fields(c.inside("attn_config"), c.kind)
    inside.refuse(attn_type="multihead_attention", qk_ln=False)
    return transformer(
        name=name, **c.all("vocab", "layers", "heads"), d_model=d_model, d_ff=4 * d_model, act="gelu",
        gated=False, rotary=0, norm="layer", norm_bias=False, tied=c.flag("tie_word_embeddings", True),
        positions=None if inside.flag("alibi", True) else c.need("max_seq_len"),
    )  # fmt: skip


NUMBERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "gpt2": _gpt2, "gpt_bigcode": _gpt_bigcode, "opt": _opt, "biogpt": _biogpt, "xglm": _xglm, "bloom": _bloom, "starcoder2": _starcoder2,
}  # fmt: skip

MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "mpt": _mpt, "gpt_neo": _gpt_neo, "openai-gpt": _openai,
}  # fmt: skip

TASKS: dict[str, Tasks] = {
    "opt": only("text", "none", "sequence", "answer"),
    "gpt_bigcode": only("text", "none", "sequence", "token"),
    "starcoder2": only("text", "none", "sequence", "token"),
    "biogpt": only("text", "none", "sequence", "token"),
    "openai-gpt": only("text", "none", "sequence"),
    "xglm": only("text", "none"),
}
