"""Decoders that differ in little from others: VaultGemma, HyperCLOVA X, InternLM 3, IQuest Coder, Jais 2, FlexOlmo, Mellum, MiniCPM3,
Youtu, and ModernBERT as a decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.classes import Tasks, headless
from flopkit.models.architectures.decoder_fields import common, ends, experts_of, heads_of, in_turn
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.latent_attention import LatentAttention
from flopkit.models.branches.mixers import Attention
from flopkit.models.files.config_fields import WHOLE, WINDOWED, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block
from flopkit.models.stacks.heads import Head
from flopkit.models.transformer import transformer

__all__ = ["MODELS", "TASKS"]


def _vaultgemma(c: Fields, name: str) -> Model:
    """Gemma 2 without norms behind its branches."""
    attention = heads_of(c, c.flag("attention_bias"), **c.all("kv_heads", "head_dim"))
    found = common(c, attention=attention, tied=c.flag("tie_word_embeddings", True))
    return transformer(name=name, **found | c.windows(every=2))


def _hyperclovax(c: Fields, name: str) -> Model:
    """Norms stand behind the branches, too, where the file does not say otherwise."""
    norms = "both" if c.flag("use_post_norm", True) else "pre"
    attention = heads_of(c, c.flag("attention_bias"))
    return transformer(name=name, **common(c, attention=attention, bias=c.flag("mlp_bias"), norms=norms))


def _internlm3(c: Fields, name: str) -> Model:
    """Llama, whose biases its own files call otherwise."""
    older = {"attention_bias": "qkv_bias", "mlp_bias": "bias"}
    biases = [c.flag(said if c.fields.get(said) is not None else key) for key, said in older.items()]
    if biases[0] != biases[1]:
        raise ValueError(
            f"qkv_bias={biases[0]} beside bias={biases[1]}: {c.kind} is described here only with both or none"
        )
    return transformer(name=name, **common(c, attention=heads_of(c, biases[0]), bias=biases[1]))


def _latent(c: Fields, name: str) -> Model:
    """DeepSeek's latent attention and no experts. MiniCPM3 multiplies its embedding, branches and logits by constants."""
    c.refuse(attention_bias=False, num_key_value_heads=c.need("heads"))
    sizes = c.all("heads", "kv_lora", "qk_nope", "qk_rope") | {"v_head_dim": c.head_dim("v_head_dim")}
    mlp = MLP(d_ff=c.need("d_ff"), act=c.act(), bias=c.flag("mlp_bias"))
    block = Block(mixer=LatentAttention(**sizes, q_lora=c.get("q_lora_rank")), mlp=mlp)
    return Model(name=name, **ends(c, tied=c.flag("tie_word_embeddings", True)), blocks=((block, c.need("layers")),))


def _iquestcoder(c: Fields, name: str) -> Model:
    c.refuse(clip_qkv=None, use_sliding_window=False)
    return transformer(name=name, **common(c, attention=heads_of(c, c.flag("attention_bias")), bias=c.flag("mlp_bias")))


def _jais2(c: Fields, name: str) -> Model:
    found = common(c, attention=heads_of(c, c.flag("attention_bias", True)), bias=c.flag("mlp_bias", True), gated=False)
    return transformer(name=name, **found, norm="layer")


def _flex_olmo(c: Fields, name: str) -> Model:
    attention = heads_of(c, c.flag("attention_bias"), qk_norm="whole")
    return transformer(
        name=name, **common(c, mlp=False, attention=attention, experts=experts_of(c, "d_ff"), norms="post")
    )


def _mellum(c: Fields, name: str) -> Model:
    layers, attention = (
        c.need("layers"),
        heads_of(c, c.flag("attention_bias"), **c.all("kv_heads", "head_dim"), qk_norm="head"),
    )
    windowed = c.order(layers, (WHOLE, WINDOWED), [WHOLE] * layers)
    said = c.listed("mlp_layer_types") or ["sparse"] * layers
    if len(said) != layers or not {"dense", "sparse"}.issuperset(said):
        raise ValueError(f"mlp_layer_types: must have {layers} entries, each 'dense' or 'sparse'")
    mixers: tuple[Attention, ...] = (attention, replace(attention, window=c.get("sliding_window")))
    mlps: dict[str, Any] = {"dense": MLP(d_ff=c.need("d_ff"), act=c.act()), "sparse": experts_of(c)}
    blocks = [Block(mixer=mixers[narrow], mlp=mlps[kind]) for narrow, kind in zip(windowed, said, strict=True)]
    return Model(name=name, **ends(c), **in_turn(blocks))


def _modernbert_decoder(c: Fields, name: str) -> Model:
    """Its window is half of what ``local_attention`` says, before a token."""
    layers, bias, every = c.need("layers"), c.flag("attention_bias"), c.count("global_attn_every_n_layers", 3)
    width = c.count("local_attention", 128, minimum=2) // 2
    c.refuse(sliding_window=width)
    order = c.order(layers, (WINDOWED, WHOLE), [WINDOWED if i % every else WHOLE for i in range(layers)])
    sizes = {
        "heads": c.need("heads"),
        "kv_heads": c.need("heads"),
        "head_dim": c.head_dim(""),
        "qkv_bias": bias,
        "out_bias": bias,
    }
    mixers = [Attention(**sizes, window=window) for window in (width, None)]
    mlp = MLP(d_ff=c.need("d_ff"), act=c.act("gelu"), bias=c.flag("mlp_bias"))
    blocks = [Block(mixer=mixers[kind], mlp=mlp, mixer_norm=place > 0) for place, kind in enumerate(order)]
    act = Fields({"hidden_act": c.get("classifier_activation", "gelu")}, c.kind).act()
    bias = c.flag("classifier_bias")
    head = Head(dense=True, dense_bias=bias, act=act, norm=True, bias=c.flag("decoder_bias", True))
    if any(str(each).endswith("ForSequenceClassification") for each in c.listed("architectures")):
        head = replace(head, outputs=c.labels, bias=bias)
    tied = head.words and c.flag("tie_word_embeddings", True)
    return Model(
        name=name, **c.all("d_model", "vocab"), **in_turn(blocks), norm="layer", norm_bias=c.flag("norm_bias"), embedding_norm=True,
        head=head, tied=tied,
    )  # fmt: skip


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "vaultgemma": _vaultgemma, "hyperclovax": _hyperclovax, "internlm3": _internlm3, "iquestcoder": _iquestcoder, "jais2": _jais2,
    "flex_olmo": _flex_olmo, "mellum": _mellum, "modernbert-decoder": _modernbert_decoder,
    "minicpm3": _latent, "youtu": _latent,
}  # fmt: skip

TASKS: dict[str, Tasks] = {
    "modernbert-decoder": {"text": lambda model, labels: model, "none": lambda model, labels: headless(model), "sequence": lambda model, labels: model},
}  # fmt: skip
