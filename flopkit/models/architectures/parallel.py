"""Decoders with layer norms and turned positions, many with branches side by side: GPT-NeoX, GPT-J, Falcon, Phi and their relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.classes import Tasks, with_head
from flopkit.models.architectures.decoder_fields import common, heads_of
from flopkit.models.architectures.gpts import all_heads, only
from flopkit.models.branches.feed_forward import Experts
from flopkit.models.files.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.transformer import transformer
from flopkit.sizes import factor

__all__ = ["MODELS", "NUMBERS", "SAME", "TASKS"]


def _turned(c: Fields, head_dim: int, usual: float, key: str = "partial_rotary_factor") -> int:
    """Features of a head that are turned, in pairs: a share of all, which ``rope_parameters`` or a key of its own says."""
    share = c.inside("rope_parameters").get("partial_rotary_factor")
    share = factor(key, c.get(key, usual) if share is None else share)
    turned = int(head_dim * share)
    return turned + turned % 2


def _gpt_neox(c: Fields) -> dict[str, Any]:
    turned = c.unasked(lambda: _turned(c, c.head_dim(""), 0.25, "rotary_pct"))
    return c.all("vocab", "layers", "d_model", "d_ff") | {
        "attention": all_heads(c, c.flag("attention_bias", True), rotary=turned), "act": c.act("gelu"), "gated": False, "bias": True,
        "norm": "layer", "norms": c.either(c.flag("use_parallel_residual", True), lambda: "parallel-two", lambda: "pre"),
        "tied": c.flag("tie_word_embeddings"),
    }  # fmt: skip


def _falcon(c: Fields) -> dict[str, Any]:
    """The first files have a type of their own: RefinedWebModel (7B, RW), and RefinedWeb (40B), which alone has n_head_kv."""
    new = c.flag("new_decoder_architecture")
    if c.kind != "falcon":
        c.written("parallel_attn", ("multi_query", "n_head_kv"))
        new = c.either(new, lambda: True, lambda: c.there("n_head_kv"))
    c = c.renamed(hidden_size="n_embed", num_kv_heads="n_head_kv")
    most = c.either(new, lambda: 2, lambda: 1)
    side, norms = c.fixed("parallel_attn", True), c.fixed("num_ln_in_parallel_attn", most)
    if c.unasked(lambda: (new and not side) or norms > most):
        raise ValueError(
            f"parallel_attn={side}, num_ln_in_parallel_attn={norms}: transformers has no such layers with new_decoder_architecture={new}"
        )
    c.refuse(apply_residual_connection_post_layernorm=False)
    heads, bias, d_model = c.need("heads"), c.flag("bias"), c.need("d_model")
    why = "without multi_query and new_decoder_architecture"
    kv_heads = c.either(
        new,
        lambda: c.count("num_kv_heads", heads),
        lambda: c.either(c.flag("multi_query", True), lambda: 1, lambda: c.must("num_kv_heads", heads, why)),
    )
    attention = all_heads(c, bias, kv_heads=kv_heads, rotary=c.unasked(lambda: 0 if c.flag("alibi") else None))
    return c.all("vocab", "layers") | {
        "d_model": d_model, "attention": attention, "d_ff": c.count("ffn_hidden_size", 4 * d_model), "act": c.act("gelu", "activation"),
        "gated": False, "bias": bias, "norm": "layer", "tied": c.flag("tie_word_embeddings", True),
        "norms": c.either(norms - 1, lambda: "parallel-two", lambda: "parallel") if side else "pre",
    }  # fmt: skip


def _gptj(c: Fields) -> dict[str, Any]:
    """CodeGen, too. Its head has a bias, and its attention none."""
    attention = all_heads(c, False, rotary=c.turned("rotary_dim"))
    d_ff = c.count("n_inner", 4 * c.need("d_model"))
    return c.all("vocab", "layers", "d_model") | {
        "attention": attention, "d_ff": d_ff, "act": c.act("gelu_new"), "gated": False, "bias": True, "norm": "layer",
        "norms": "parallel", "head_bias": True, "tied": c.flag("tie_word_embeddings"),
    }  # fmt: skip


def _phi(c: Fields) -> dict[str, Any]:
    """phi-msft is what Microsoft's own code calls the same layers."""
    own = c.kind == "phi-msft"
    if own:
        c.written()
        c.refuse(num_local_experts=None)
    c = c.renamed(num_key_value_heads="n_head_kv")
    turned = c.unasked(lambda: c.turned("rotary_dim") if own else _turned(c, c.head_dim(), 0.5))
    normed = c.either(c.flag("qk_layernorm"), lambda: "layer", lambda: "")
    d_ff = c.count("n_inner", 4 * c.need("d_model")) if own else c.need("d_ff")
    return c.all("vocab", "layers", "d_model") | {
        "attention": heads_of(c, True, rotary=turned, qk_norm=normed), "d_ff": d_ff, "act": c.act("gelu_new"), "gated": False,
        "bias": True, "norm": "layer", "norms": "parallel", "head_bias": True, "tied": c.flag("tie_word_embeddings"),
    }  # fmt: skip


def _stablelm(c: Fields) -> dict[str, Any]:
    if c.kind != "stablelm":
        c.written("use_qkv_bias")
    attention = heads_of(
        c, head_dim=c.head_dim(""), qkv_bias=c.flag("use_qkv_bias"), rotary=c.unasked(lambda: _turned(c, c.head_dim(""), 0.25)),
        qk_norm=c.either(c.flag("qk_layernorm"), lambda: "heads", lambda: ""),
    )  # fmt: skip
    norms = c.either(c.flag("use_parallel_residual"), lambda: "parallel", lambda: "pre")
    return common(c, attention=attention, norm="layer", norms=norms)


def _persimmon(c: Fields) -> dict[str, Any]:
    normed = c.either(c.flag("qk_layernorm", True), lambda: "layer", lambda: "")
    attention = all_heads(c, True, rotary=c.unasked(lambda: _turned(c, c.head_dim(""), 0.5)), qk_norm=normed)
    return common(c, attention=attention, act=c.act("relu2"), gated=False, bias=True, norm="layer")


def _nemotron(c: Fields) -> dict[str, Any]:
    """Its norms scale by their weights and one, which costs an addition that is not counted."""
    attention = heads_of(c, c.flag("attention_bias"), rotary=c.unasked(lambda: _turned(c, c.head_dim(), 0.5)))
    mlp = {"act": c.act("relu2"), "gated": False, "bias": c.flag("mlp_bias")}
    return common(c, attention=attention, norm="layer", **mlp)


def _dbrx(c: Fields, name: str) -> Model:
    c.refuse(tie_word_embeddings=False)
    inside, mixture = Fields(c.inside("attn_config"), c.kind), Fields(c.inside("ffn_config"), c.kind)
    act = mixture.inside("ffn_act_fn").get("name", "silu")
    if act != "silu":
        raise ValueError(f"ffn_act_fn={act!r}: flopkit supports dbrx only with 'silu'")
    experts = Experts(
        experts=mixture.count("moe_num_experts", 4), top_k=mixture.count("moe_top_k", 1), d_ff=mixture.count("ffn_hidden_size", 3584),
    )  # fmt: skip
    attention = all_heads(c, False, kv_heads=inside.count("kv_n_heads", 1))
    sizes = c.all("vocab", "layers", "d_model")
    return transformer(name=name, **sizes, attention=attention, experts=experts, norm="layer", norm_bias=False)


NUMBERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "gpt_neox": _gpt_neox, "falcon": _falcon, "gptj": _gptj, "codegen": _gptj, "phi": _phi, "stablelm": _stablelm,
    "persimmon": _persimmon, "nemotron": _nemotron,
}  # fmt: skip

MODELS: dict[str, Callable[[Fields, str], Model]] = {"dbrx": _dbrx}

SAME = {"RefinedWeb": "falcon", "RefinedWebModel": "falcon", "stablelm_epoch": "stablelm", "phi-msft": "phi"}

TASKS: dict[str, Tasks] = {
    "gptj": only(
        "text", "none", "sequence", "answer", answer=lambda model, labels: with_head(model, outputs=labels, bias=True)
    ),
    "codegen": only("text", "none"),
    "phi": only("text", "none", "sequence", "token"),
    "stablelm": only("text", "none", "sequence", "token"),
    "persimmon": only("text", "none", "sequence", "token"),
    "dbrx": only("text", "none"),
}
