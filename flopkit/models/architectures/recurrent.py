"""Models whose layers have a state, alone or beside attention: Mamba-2, Qwen3-Next and their relatives."""

from __future__ import annotations

from collections.abc import Callable

from flopkit.models.architectures.decoder_fields import experts_of, heads_of
from flopkit.models.blocks import Block, Branch
from flopkit.models.config_fields import WHOLE, Fields
from flopkit.models.feed_forward import MLP
from flopkit.models.model import Model
from flopkit.models.recurrences import GatedDelta, StateSpace
from flopkit.sizes import factor

__all__ = ["MODELS"]


def _delta(c: Fields, name: str, mlp: Branch) -> Model:
    """Layers with a gated delta rule beside layers with attention, each with the same *mlp*."""
    layers, period = c.need("layers"), c.count("full_attention_interval", 4)
    kinds = ("linear_attention", WHOLE)
    order = c.order(layers, kinds, [kinds[(i + 1) % period == 0] for i in range(layers)])
    c.refuse(attention_bias=False, attn_output_gate=True, hidden_act="silu")
    linear = GatedDelta(
        heads=c.need("linear_num_value_heads"), k_heads=c.need("linear_num_key_heads"), k_dim=c.need("linear_key_head_dim"),
        v_dim=c.need("linear_value_head_dim"), conv=c.need("linear_conv_kernel_dim"),
    )  # fmt: skip
    turned = c.inside("rope_parameters").get("partial_rotary_factor")
    turned = factor("partial_rotary_factor", c.get("partial_rotary_factor", 0.25) if turned is None else turned)
    sizes = c.all("kv_heads", "head_dim") | {"rotary": int(c.need("head_dim") * turned)}
    full = heads_of(c, qk_norm="head", gate=True, **sizes)
    blocks = tuple((Block(mixer=mixer, mlp=mlp), order.count(kind)) for kind, mixer in enumerate((linear, full)))
    ends = c.all("d_model", "vocab") | {"tied": c.flag("tie_word_embeddings")}
    return Model(name=name, **ends, blocks=blocks, order=order)


def _qwen3_next(c: Fields, name: str) -> Model:
    c.refuse(mlp_only_layers=[], decoder_sparse_step=1)
    return _delta(c, name, experts_of(c, shared_d_ff=c.need("shared_expert_intermediate_size"), shared_gate=True))


def _qwen3_5(c: Fields, name: str) -> Model:
    return _delta(c, name, MLP(d_ff=c.need("d_ff"), act=c.act()))


def _mamba2(c: Fields, name: str) -> Model:
    c.refuse(hidden_act="silu")
    mixer = StateSpace(
        **c.all("heads"), head_dim=c.need("head_dim"), state=c.need("state_size"), groups=c.need("n_groups"), conv=c.need("conv_kernel"),
        conv_bias=c.flag("use_conv_bias", True), bias=c.flag("use_bias"), chunk=c.count("chunk_size", 256),
    )  # fmt: skip
    tied = c.flag("tie_word_embeddings")
    return Model(name=name, **c.all("d_model", "vocab"), blocks=((Block(mixer=mixer), c.need("layers")),), tied=tied)


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "qwen3_next": _qwen3_next, "qwen3_5_moe_text": _qwen3_next, "qwen3_5_text": _qwen3_5, "mamba2": _mamba2,
}  # fmt: skip
