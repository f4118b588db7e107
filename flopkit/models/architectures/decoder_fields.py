"""The fields of nearly all decoders: their sizes, attention and experts, in the words of a ``config.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flopkit.models.branches.feed_forward import Experts
from flopkit.models.branches.mixers import Attention
from flopkit.models.files.config_fields import Fields
from flopkit.models.stacks.blocks import Block

__all__ = ["common", "ends", "experts_of", "heads_of", "in_turn"]


def common(c: Fields, *, mlp: bool = True, **changed: Any) -> dict[str, Any]:
    """What nearly all decoders say in the same words; *mlp*: whether a layer can be without experts."""
    act = c.act()
    plain = {"d_ff": c.need("d_ff"), "act": act} if mlp else {}
    return c.all("vocab", "d_model", "layers") | {"tied": c.flag("tie_word_embeddings")} | plain | changed


def heads_of(c: Fields, bias: Any = False, **said: Any) -> Attention:
    """Attention, with a *bias* in all its projections or in none, where nothing else is *said*."""
    sizes = {"heads": c.need("heads"), "qkv_bias": bias, "out_bias": bias}
    sizes |= {} if "kv_heads" in said else {"kv_heads": c.count("num_key_value_heads", c.need("heads"))}
    sizes |= {} if "head_dim" in said else {"head_dim": c.head_dim()}
    return c.made(Attention, **sizes | said)


def experts_of(c: Fields, d_ff: str = "expert_d_ff", **more: Any) -> Experts:
    c.refuse(hidden_act="silu")
    return c.made(Experts, **c.all("experts", "top_k"), d_ff=c.need(d_ff), **more)


def ends(c: Fields, **changed: Any) -> dict[str, Any]:
    """What a `Model` needs beside its layers."""
    return c.all("vocab", "d_model") | {"tied": c.flag("tie_word_embeddings")} | changed


def in_turn(layers: Sequence[Block]) -> dict[str, Any]:
    """The kinds of layers, and the order in which they stand, of layers one by one."""
    kinds = list(dict.fromkeys(layers))
    order = tuple(map(kinds.index, layers))
    return {"blocks": tuple((kind, order.count(place)) for place, kind in enumerate(kinds)), "order": order}
