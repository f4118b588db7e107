"""Decoders with layer norms and turned positions, many with branches side by side: GPT-NeoX, GPT-J, Falcon, Phi and their relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.classes import Tasks, with_head
from flopkit.models.architectures.decoder_fields import common, heads_of
from flopkit.models.architectures.gpts import all_heads, only, renamed
from flopkit.models.config_fields import Fields
from flopkit.models.feed_forward import Experts
from flopkit.models.model import Model
from flopkit.models.transformer import transformer
from flopkit.sizes import factor

__all__ = ["MODELS", "SAME", "TASKS"]


def _turned(c: Fields, head_dim: int, usual: float, key: str = "partial_rotary_factor") -> int:
    """Features of a head that are turned, in pairs: a share of all, which ``rope_parameters`` or a key of its own says."""
    share = c.inside("rope_parameters").get("partial_rotary_factor")
    share = factor(key, c.get(key, usual) if share is None else share)
    turned = int(head_dim * share)
    return turned + turned % 2


def _written(c: Fields, *keys: str) -> None:
    """A type that transformers does not have takes nothing that it does not say; *keys*: what it must say besides its sizes."""
    c.left_out = {}
    for key in keys:
        c.key(key)


def _gpt_neox(c: Fields, name: str) -> Model:
    attention = all_heads(c, c.flag("attention_bias", True), rotary=_turned(c, c.head_dim(""), 0.25, "rotary_pct"))
    return transformer(
        name=name, **c.all("vocab", "layers", "d_model", "d_ff"), attention=attention, act=c.act("gelu"), gated=False, bias=True,
        norm="layer", norms="parallel-two" if c.flag("use_parallel_residual", True) else "pre", tied=c.flag("tie_word_embeddings"),
    )  # fmt: skip


def _falcon(c: Fields, name: str) -> Model:
    """The first files have a type of their own: RefinedWebModel (7B, RW), and RefinedWeb (40B), which alone has n_head_kv."""
    if c.kind != "falcon":
        _written(c, "parallel_attn", *(() if "n_head_kv" in c.fields else ("multi_query",)))
    c = renamed(c, n_embed="hidden_size", n_head_kv="num_kv_heads")
    new = c.flag("new_decoder_architecture") or (c.kind != "falcon" and "n_head_kv" in c.fields)
    heads = c.need("heads")
    kv_heads, bias, side = c.count("num_kv_heads", heads), c.flag("bias"), c.flag("parallel_attn", True)
    norms = c.count("num_ln_in_parallel_attn", 2 if new else 1)
    if (new and not side) or norms > (2 if new else 1):
        raise ValueError(
            f"parallel_attn={side}, num_ln_in_parallel_attn={norms}: transformers has no such layers with new_decoder_architecture={new}"
        )
    c.refuse(apply_residual_connection_post_layernorm=False)
    if not new:
        if not c.flag("multi_query", True) and kv_heads != heads:
            raise ValueError(
                f"num_kv_heads={kv_heads}: without multi_query and new_decoder_architecture it must be {heads}"
            )
        kv_heads = 1 if c.flag("multi_query", True) else heads
    attention = all_heads(c, bias, kv_heads=kv_heads, rotary=0 if c.flag("alibi") else None)
    d_model = c.need("d_model")
    return transformer(
        name=name, **c.all("vocab", "layers"), d_model=d_model, attention=attention, d_ff=c.count("ffn_hidden_size", 4 * d_model),
        act=c.act("gelu", "activation"), gated=False, bias=bias, norm="layer", norms=("parallel", "parallel-two")[norms - 1] if side else "pre",
        tied=c.flag("tie_word_embeddings", True),
    )  # fmt: skip


def _gptj(c: Fields, name: str) -> Model:
    """CodeGen, too. Its head has a bias, and its attention none."""
    return transformer(
        name=name, **c.all("vocab", "layers", "d_model"), attention=all_heads(c, False, rotary=_of_a_head(c)),
        d_ff=c.count("n_inner", 4 * c.need("d_model")), act=c.act("gelu_new"), gated=False, bias=True, norm="layer", norms="parallel",
        head_bias=True, tied=c.flag("tie_word_embeddings"),
    )  # fmt: skip


def _of_a_head(c: Fields) -> Any:
    """Features that are turned; where a file says null, all of them."""
    said = c.get("rotary_dim")
    return None if said is None else c.count("rotary_dim", said)


def _phi(c: Fields, name: str) -> Model:
    """phi-msft is what Microsoft's own code calls the same layers."""
    own = c.kind == "phi-msft"
    if own:
        _written(c)
        c.refuse(num_local_experts=None)
    c = renamed(c, n_head_kv="num_key_value_heads")
    turned = _of_a_head(c) if own else _turned(c, c.head_dim(), 0.5)
    attention = heads_of(c, True, rotary=turned, qk_norm="layer" if c.flag("qk_layernorm") else "")
    d_ff = c.count("n_inner", 4 * c.need("d_model")) if own else c.need("d_ff")
    return transformer(
        name=name, **c.all("vocab", "layers", "d_model"), attention=attention, d_ff=d_ff, act=c.act("gelu_new"), gated=False, bias=True,
        norm="layer", norms="parallel", head_bias=True, tied=c.flag("tie_word_embeddings"),
    )  # fmt: skip


def _stablelm(c: Fields, name: str) -> Model:
    if c.kind != "stablelm":
        _written(c, "use_qkv_bias")
    normed = "heads" if c.flag("qk_layernorm") else ""
    attention = heads_of(
        c,
        head_dim=c.head_dim(""),
        qkv_bias=c.flag("use_qkv_bias"),
        rotary=_turned(c, c.head_dim(""), 0.25),
        qk_norm=normed,
    )
    norms = "parallel" if c.flag("use_parallel_residual") else "pre"
    return transformer(name=name, **common(c, attention=attention, norm="layer", norms=norms))


def _persimmon(c: Fields, name: str) -> Model:
    normed = "layer" if c.flag("qk_layernorm", True) else ""
    attention = all_heads(c, True, rotary=_turned(c, c.head_dim(""), 0.5), qk_norm=normed)
    return transformer(
        name=name, **common(c, attention=attention, act=c.act("relu2"), gated=False, bias=True, norm="layer")
    )


def _nemotron(c: Fields, name: str) -> Model:
    """Its norms scale by their weights and one, which costs an addition that is not counted."""
    attention = heads_of(c, c.flag("attention_bias"), rotary=_turned(c, c.head_dim(), 0.5))
    mlp = {"act": c.act("relu2"), "gated": False, "bias": c.flag("mlp_bias")}
    return transformer(name=name, **common(c, attention=attention, norm="layer", **mlp))


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


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "gpt_neox": _gpt_neox, "falcon": _falcon, "gptj": _gptj, "codegen": _gptj, "phi": _phi, "stablelm": _stablelm,
    "persimmon": _persimmon, "nemotron": _nemotron, "dbrx": _dbrx,
}  # fmt: skip

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
