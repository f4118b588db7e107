"""Decoders whose code lies beside their weights and not in transformers: Baichuan, InternLM2, ChatGLM, MiniCPM and the first Qwen.

Each is a Llama but for what its reader says. Their parameters are compared with what their authors published, see ``tests/models/test_remote.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.classes import Tasks
from flopkit.models.architectures.decoder_fields import heads_of
from flopkit.models.architectures.gpts import all_heads, only
from flopkit.models.files.config_fields import Fields

__all__ = ["NUMBERS", "TASKS"]


def _sizes(c: Fields, *more: str) -> dict[str, Any]:
    return c.all("layers", "d_model", *more)


def _baichuan(c: Fields) -> dict[str, Any]:
    """One matrix makes queries, keys and values. The 13B turns nothing (ALiBi), and its files have no max_position_embeddings.

    Baichuan 2 divides each row of the head by its length, which is not counted.
    """
    turned = c.unasked(lambda: None if c.get("max_position_embeddings") is not None else 0)
    attention = all_heads(c, False, rotary=turned)
    return _sizes(c, "vocab", "d_ff") | {"attention": attention, "act": c.act(), "tied": c.flag("tie_word_embeddings")}


def _internlm2(c: Fields) -> dict[str, Any]:
    """One matrix makes queries, keys and values."""
    attention = heads_of(c, c.flag("bias"), head_dim=c.head_dim(""))
    return _sizes(c, "vocab", "d_ff") | {"attention": attention, "act": c.act(), "tied": c.flag("tie_word_embeddings")}


def _minicpm(c: Fields) -> dict[str, Any]:
    """Its embedding, branches and logits are multiplied by constants. Its table is the head's where a file of the first models says nothing."""
    c.refuse(num_experts=0, sparse_config=None)
    attention = heads_of(c, c.flag("attention_bias"), head_dim=c.head_dim(""))
    later = c.get("mup_denominator")  # MiniCPM4
    tied = c.either(later, lambda: c.needed("tie_word_embeddings"), lambda: c.flag("tie_word_embeddings", True))
    return _sizes(c, "vocab", "d_ff") | {"attention": attention, "act": c.act(), "tied": tied}


def _qwen(c: Fields) -> dict[str, Any]:
    """``intermediate_size`` is that of both inward matrices together."""
    c.refuse(no_bias=True, visual=None)
    both, heads = c.need("d_ff"), c.need("heads")
    attention = heads_of(c, kv_heads=heads, head_dim=c.need("kv_channels"), qkv_bias=True)
    ends = {"tied": c.flag("tie_word_embeddings"), "act": "silu"}
    return _sizes(c, "vocab") | {"d_ff": c.half(both), "attention": attention} | ends


def _chatglm(c: Fields) -> dict[str, Any]:
    """ChatGLM2, ChatGLM3 and GLM-4: half of each head is turned. The first ChatGLM has other keys, and is not described here."""
    c.refuse(add_bias_linear=False, rmsnorm=True, post_layer_norm=True, apply_residual_connection_post_layernorm=False)
    heads, head_dim = c.need("heads"), c.need("kv_channels")
    few = c.flag("multi_query_attention")
    kv_heads = c.either(few, lambda: c.need("multi_query_group_num"), lambda: heads)
    attention = heads_of(
        c, kv_heads=kv_heads, head_dim=head_dim, rotary=c.unasked(lambda: head_dim // 2), qkv_bias=c.flag("add_qkv_bias"), out_bias=False
    )  # fmt: skip
    mlp = {"d_ff": c.need("ffn_hidden_size"), "act": "silu", "tied": False}
    return _sizes(c) | {"vocab": c.need("padded_vocab_size"), "attention": attention} | mlp


NUMBERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "baichuan": _baichuan, "internlm2": _internlm2, "minicpm": _minicpm, "qwen": _qwen, "chatglm": _chatglm,
}  # fmt: skip

_TEXT = only("text", "none")
TASKS: dict[str, Tasks] = {
    **dict.fromkeys(("baichuan", "internlm2", "minicpm", "qwen"), _TEXT),
    # the files of ChatGLM name ChatGLMModel, which has the head in it
    "chatglm": {"text": _TEXT["text"], "none": _TEXT["text"]},
}
