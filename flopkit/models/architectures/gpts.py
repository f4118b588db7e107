"""Decoders with layer norms: GPT-2 and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.decoder_fields import heads_of
from flopkit.models.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.transformer import transformer

__all__ = ["MODELS", "NUMBERS"]


def _gpt2(c: Fields) -> dict[str, Any]:
    c.refuse(add_cross_attention=False)
    sizes = {"kv_heads": c.need("heads"), "head_dim": c.head_dim(""), "rotary": 0}
    mlp = {"d_ff": c.count("n_inner", 4 * c.need("d_model")), "act": c.act("gelu_new"), "gated": False, "bias": True}
    ends = {"tied": c.flag("tie_word_embeddings", True), "positions": c.need("n_positions"), "norm": "layer"}
    return c.all("vocab", "layers", "d_model") | {"attention": heads_of(c, True, **sizes)} | mlp | ends


def _mpt(c: Fields, name: str) -> Model:
    c.refuse(no_bias=True, embedding_fraction=1.0)
    d_model, inside = c.need("d_model"), Fields(c.inside("attn_config"), c.kind)
    inside.refuse(attn_type="multihead_attention", qk_ln=False)
    return transformer(
        name=name, **c.all("vocab", "layers", "heads"), d_model=d_model, d_ff=c.count("expansion_ratio", 4) * d_model, act="gelu",
        gated=False, rotary=0, norm="layer", norm_bias=False, tied=c.flag("tie_word_embeddings", True),
        positions=None if inside.flag("alibi", True) else c.need("max_seq_len"),
    )  # fmt: skip


NUMBERS: dict[str, Callable[[Fields], dict[str, Any]]] = {"gpt2": _gpt2}

MODELS: dict[str, Callable[[Fields, str], Model]] = {"mpt": _mpt}
