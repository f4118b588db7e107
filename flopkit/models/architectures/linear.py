"""Decoders with linear attention beside full attention: Kimi Linear, MiniMax-01, RecurrentGemma."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.decoder_fields import experts_of, heads_of, in_turn
from flopkit.models.architectures.hybrids import LINEAR
from flopkit.models.branches.feed_forward import MLP, Experts
from flopkit.models.branches.latent_attention import LatentAttention
from flopkit.models.branches.recurrences import GatedDelta
from flopkit.models.branches.scans import GatedRecurrence, LightningAttention
from flopkit.models.files.config_fields import WHOLE, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block
from flopkit.sizes import short

__all__ = ["MODELS"]


def _either(c: Fields, key: str, other: str) -> Any:
    """A number that a file may have under two keys."""
    return c.need(other) if c.get(key) is None else c.count(key, 1)


def _kimi_linear(c: Fields, name: str) -> Model:
    c.refuse(attention_bias=False, moe_layer_freq=1, mla_use_nope=True, hidden_act="silu")
    c.refuse(tie_word_embeddings=False)  # transformers does not tie them, whatever a file says
    layers, inside = c.need("layers"), Fields(c.inside("linear_attn_config"), c.kind)
    usual = [WHOLE if i and i % 4 == 0 else LINEAR for i in range(layers)]
    if "full_attn_layers" in inside.fields and "kda_layers" in inside.fields:  # they count from one
        whole, delta = inside.listed("full_attn_layers"), inside.listed("kda_layers")
        if sorted([*whole, *delta]) != list(range(1, layers + 1)):
            raise ValueError(
                f"linear_attn_config: full_attn_layers and kda_layers must name each of {layers} layers once"
            )
        usual = [WHOLE if i + 1 in whole else LINEAR for i in range(layers)]
    kinds = c.kinds("layer_types", layers, (LINEAR, WHOLE), usual)
    first = c.count("first_k_dense_replace", 1, minimum=0)
    mlps = c.kinds(
        "mlp_layer_types", layers, ("dense", "sparse"), ["dense" if i < first else "sparse" for i in range(layers)]
    )

    def linear(key: str, own: str) -> Any:
        return c.need(own) if inside.get(key) is None else inside.count(key, 1)

    heads, head_dim = linear("num_heads", "linear_num_heads"), linear("head_dim", "linear_head_dim")
    delta_rule = GatedDelta(
        heads=heads, k_heads=heads, k_dim=head_dim, v_dim=head_dim, conv=linear("short_conv_kernel_size", "linear_conv_kernel_dim"),
        decay_rank=head_dim, gate_rank=head_dim,
    )  # fmt: skip
    sizes = c.all("heads", "kv_lora", "qk_nope", "qk_rope", "v_head_dim") | {"q_lora": c.get("q_lora_rank")}
    mixers = {LINEAR: delta_rule, WHOLE: LatentAttention(**sizes, turned=False)}
    shared = _either(c, "num_shared_experts", "n_shared_experts") * c.need("expert_d_ff")
    experts = Experts(
        experts=c.need("experts"), top_k=_either(c, "num_experts_per_token", "top_k"), d_ff=c.need("expert_d_ff"), shared_d_ff=shared
    )  # fmt: skip
    feed = {"dense": MLP(d_ff=c.need("d_ff")), "sparse": experts}
    blocks = [Block(mixer=mixers[kind], mlp=feed[mlp]) for kind, mlp in zip(kinds, mlps, strict=True)]
    return Model(name=name, **c.all("d_model", "vocab"), tied=c.flag("tie_word_embeddings"), **in_turn(blocks))


def _minimax(c: Fields, name: str) -> Model:
    c.refuse(hidden_act="silu", sliding_window=None)
    layers = c.need("layers")
    kinds = c.kinds("layer_types", layers, (LINEAR, WHOLE), [LINEAR if i % 2 else WHOLE for i in range(layers)])
    lightning = LightningAttention(heads=c.need("heads"), head_dim=c.head_dim(), chunk=c.need("block_size"))
    mixers = {LINEAR: lightning, WHOLE: heads_of(c, **c.all("kv_heads"))}
    experts = experts_of(c, "d_ff")
    ends = c.all("d_model", "vocab") | {"tied": c.flag("tie_word_embeddings")}
    return Model(name=name, **ends, **in_turn([Block(mixer=mixers[kind], mlp=experts) for kind in kinds]))


def _recurrent_gemma(c: Fields, name: str) -> Model:
    layers, d_model, heads, act = c.need("layers"), c.need("d_model"), c.need("heads"), c.act("gelu_pytorch_tanh")
    types = c.listed("block_types") or ["recurrent", "recurrent", "attention"]
    if odd := [each for each in types if each not in ("recurrent", "attention")]:
        raise ValueError(f"block_types: {short(odd[0])} is not described here")
    c.refuse(head_dim=c.head_dim(""))
    recurrence = GatedRecurrence(
        channels=d_model if c.get("lru_width") is None else c.need("lru_width"), blocks=heads, conv=c.need("conv1d_width"), act=act
    )  # fmt: skip
    attention = heads_of(
        c, qkv_bias=c.flag("attention_bias"), out_bias=True, head_dim=c.head_dim(""), rotary=c.head_dim("") // 2,
        window=c.need("attention_window_size"),
    )  # fmt: skip
    mlp = MLP(d_ff=c.need("d_ff") // 2, act=act, bias=True)
    blocks = [
        Block(mixer=recurrence if types[i % len(types)] == "recurrent" else attention, mlp=mlp) for i in range(layers)
    ]
    ends = {"d_model": d_model, "vocab": c.need("vocab"), "tied": c.flag("tie_word_embeddings", True)}
    return Model(name=name, **ends, **in_turn(blocks))


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "kimi_linear": _kimi_linear, "minimax": _minimax, "recurrent_gemma": _recurrent_gemma,
}  # fmt: skip
