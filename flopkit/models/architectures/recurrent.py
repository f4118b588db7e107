"""Models whose layers have a state, alone or beside attention: Mamba-2, Qwen3-Next and their relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.arithmetic import ceil_div
from flopkit.models.architectures.decoder_fields import experts_of, heads_of, in_turn
from flopkit.models.architectures.hybrids import LINEAR
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.recurrences import GatedDelta, StateSpace
from flopkit.models.branches.scans import SelectiveScan, ShortConv
from flopkit.models.files.config_fields import WHOLE, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block, Branch
from flopkit.sizes import factor

__all__ = ["MODELS"]


def _delta(c: Fields, name: str, mlp: Branch) -> Model:
    """Layers with a gated delta rule beside layers with attention, each with the same *mlp*."""
    layers, period = c.need("layers"), c.count("full_attention_interval", 4)
    kinds = (LINEAR, WHOLE)
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


def _olmo_hybrid(c: Fields, name: str) -> Model:
    c.refuse(hidden_act="silu")
    layers, d_model, heads = c.need("layers"), c.need("d_model"), c.need("heads")
    kinds = (LINEAR, WHOLE)
    usual = [kinds[i % 4 == 3] for i in range(layers)]
    usual[-1] = usual[-1] if WHOLE in usual else WHOLE
    order = c.order(layers, kinds, usual)
    k_heads = c.count("linear_num_key_heads", heads)
    k_dim = c.count("linear_key_head_dim", int(0.75 * d_model / k_heads))
    linear = GatedDelta(
        heads=c.count("linear_num_value_heads", heads), k_heads=k_heads, k_dim=k_dim, v_dim=c.count("linear_value_head_dim", 2 * k_dim),
        conv=c.need("linear_conv_kernel_dim"),
    )  # fmt: skip
    still = (
        {"rotary": 0} if c.inside("rope_parameters").get("rope_theta", 0) is None else {}
    )  # null, as the published file has it
    whole = heads_of(c, c.flag("attention_bias"), qk_norm="whole", head_dim=c.head_dim(""), **still)
    mlp = MLP(d_ff=c.need("d_ff"))
    made = (Block(mixer=linear, mlp=mlp), Block(mixer=whole, mlp=mlp, norms="post"))
    ends = {"d_model": d_model, "vocab": c.need("vocab"), "tied": c.flag("tie_word_embeddings")}
    return Model(name=name, **ends, **in_turn([made[kind] for kind in order]))


def _mamba2(c: Fields, name: str) -> Model:
    c.refuse(hidden_act="silu")
    mixer = StateSpace(
        **c.all("heads"), head_dim=c.need("head_dim"), state=c.need("state_size"), groups=c.need("n_groups"), conv=c.need("conv_kernel"),
        conv_bias=c.flag("use_conv_bias", True), bias=c.flag("use_bias"), chunk=c.count("chunk_size", 256),
    )  # fmt: skip
    tied = c.flag("tie_word_embeddings")
    return Model(name=name, **c.all("d_model", "vocab"), blocks=((Block(mixer=mixer), c.need("layers")),), tied=tied)


def _mamba(c: Fields, name: str, norms: str = "") -> Model:
    c.refuse(hidden_act="silu")
    d_model, said = c.need("d_model"), c.get("time_step_rank", "auto")
    mixer = SelectiveScan(
        channels=c.count("intermediate_size", c.count("expand", 2) * d_model), state=c.need("state_size"), conv=c.need("conv_kernel"), norms=norms,
        rank=ceil_div(d_model, 16) if said == "auto" else c.need("time_step_rank"), conv_bias=c.flag("use_conv_bias", True),
        bias=c.flag("use_bias"),
    )  # fmt: skip
    ends = {"d_model": d_model, "vocab": c.need("vocab"), "tied": c.flag("tie_word_embeddings", True)}
    return Model(name=name, **ends, blocks=((Block(mixer=mixer), c.need("layers")),))


def _lfm2(c: Fields, name: str, mixture: bool = False) -> Model:
    layers, d_model = c.need("layers"), c.need("d_model")
    whole = c.get("full_attn_idxs", range(layers))
    if mixture and not c.listed("layer_types"):
        c.key("layer_types")
    kinds = (_CONVOLVED, WHOLE)
    order = c.order(layers, kinds, [kinds[i in whole] for i in range(layers)])
    mixers = (
        ShortConv(channels=d_model, conv=c.count("conv_L_cache", 3), bias=c.flag("conv_bias")),
        heads_of(c, qk_norm="head", **c.all("kv_heads")),
    )
    if mixture:
        dense = c.count("num_dense_layers", 2, minimum=0)
        mlp, sparse = MLP(d_ff=c.need("d_ff")), experts_of(c)
    else:
        dense, mlp, sparse = layers, MLP(d_ff=_lfm2_hidden(c)), None
    blocks = [Block(mixer=mixers[kind], mlp=mlp if i < dense else sparse) for i, kind in enumerate(order)]
    tied = c.flag("tie_embedding", c.flag("tie_word_embeddings", True))
    return Model(name=name, d_model=d_model, vocab=c.need("vocab"), tied=tied, **in_turn(blocks))


def _lfm2_hidden(c: Fields) -> Any:
    """Hidden features of an MLP of LFM2, which its file has before they are made fewer."""
    said = c.need("d_ff") if c.get("block_ff_dim") is None else c.count("block_ff_dim", 1)
    if not c.flag("block_auto_adjust_ff_dim", True):
        return said
    times = float(factor("block_ffn_dim_multiplier", c.get("block_ffn_dim_multiplier", 1.0)))
    multiple = c.count("block_multiple_of", 256)
    return multiple * ceil_div(int(times * int(2 * said / 3)), multiple)


_CONVOLVED = "conv"
MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "qwen3_next": _qwen3_next, "qwen3_5_moe_text": _qwen3_next, "qwen3_5_text": _qwen3_5, "mamba2": _mamba2, "mamba": _mamba,
    "olmo_hybrid": _olmo_hybrid, "falcon_mamba": lambda c, name: _mamba(c, name, "plain"), "lfm2": _lfm2, "lfm2_moe": lambda c, name: _lfm2(c, name, True),
}  # fmt: skip
