"""Decoders whose code lies beside their weights and not in transformers: Baichuan, InternLM2, ChatGLM, MiniCPM and the first Qwen.

Each is a Llama but for what its reader says. Their parameters are compared with what their authors published, see ``tests/models/test_remote.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.classes import Tasks
from flopkit.models.architectures.decoder_fields import heads_of
from flopkit.models.architectures.gpts import all_heads, only
from flopkit.models.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.transformer import transformer
from flopkit.sizes import divides

__all__ = ["MODELS", "TASKS"]


def _sizes(c: Fields, *more: str) -> dict[str, Any]:
    return c.all("layers", "d_model", *more)


def _baichuan(c: Fields, name: str) -> Model:
    """One matrix makes queries, keys and values. The 13B turns nothing (ALiBi), and its files have no max_position_embeddings.

    Baichuan 2 divides each row of the head by its length, which is not counted.
    """
    turned = None if c.get("max_position_embeddings") is not None else 0
    attention = all_heads(c, False, rotary=turned)
    return transformer(
        name=name, **_sizes(c, "vocab", "d_ff"), attention=attention, act=c.act(), tied=c.flag("tie_word_embeddings")
    )


def _internlm2(c: Fields, name: str) -> Model:
    """One matrix makes queries, keys and values."""
    attention = heads_of(c, c.flag("bias"), head_dim=c.head_dim(""))
    return transformer(
        name=name, **_sizes(c, "vocab", "d_ff"), attention=attention, act=c.act(), tied=c.flag("tie_word_embeddings")
    )


def _minicpm(c: Fields, name: str) -> Model:
    """Its embedding, branches and logits are multiplied by constants. Its table is the head's where a file of the first models says nothing."""
    c.refuse(num_experts=0, sparse_config=None)
    if c.get("mup_denominator") is not None:  # MiniCPM4
        c.key("tie_word_embeddings")
    attention = heads_of(c, c.flag("attention_bias"), head_dim=c.head_dim(""))
    tied = c.flag("tie_word_embeddings", True)
    return transformer(name=name, **_sizes(c, "vocab", "d_ff"), attention=attention, act=c.act(), tied=tied)


def _qwen(c: Fields, name: str) -> Model:
    """``intermediate_size`` is that of both inward matrices together."""
    c.refuse(no_bias=True, visual=None)
    both = c.need("d_ff")
    divides("2, for intermediate_size", 2, "intermediate_size", both)
    heads = c.need("heads")
    attention = heads_of(c, kv_heads=heads, head_dim=c.need("kv_channels"), qkv_bias=True)
    return transformer(
        name=name, **_sizes(c, "vocab"), d_ff=both // 2, attention=attention, tied=c.flag("tie_word_embeddings")
    )


def _chatglm(c: Fields, name: str) -> Model:
    """ChatGLM2, ChatGLM3 and GLM-4: half of each head is turned. The first ChatGLM has other keys, and is not described here."""
    c.refuse(add_bias_linear=False, rmsnorm=True, post_layer_norm=True, apply_residual_connection_post_layernorm=False)
    heads, head_dim = c.need("heads"), c.need("kv_channels")
    kv_heads = c.need("multi_query_group_num") if c.flag("multi_query_attention") else heads
    attention = heads_of(
        c, kv_heads=kv_heads, head_dim=head_dim, rotary=head_dim // 2, qkv_bias=c.flag("add_qkv_bias"), out_bias=False
    )  # fmt: skip
    return transformer(
        name=name, **_sizes(c), vocab=c.need("padded_vocab_size"), d_ff=c.need("ffn_hidden_size"), attention=attention
    )  # fmt: skip


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "baichuan": _baichuan, "internlm2": _internlm2, "minicpm": _minicpm, "qwen": _qwen, "chatglm": _chatglm,
}  # fmt: skip

_TEXT = only("text", "none")
TASKS: dict[str, Tasks] = {
    **dict.fromkeys(("baichuan", "internlm2", "minicpm", "qwen"), _TEXT),
    # the files of ChatGLM name ChatGLMModel, which has the head in it
    "chatglm": {"text": _TEXT["text"], "none": _TEXT["text"]},
}
