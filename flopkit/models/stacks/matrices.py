"""Which matrix of its layer a part is, and what that one is called in other people's files.

Adapters, formats and memory find a matrix by these words, never by the name that a table
shows. They are also the words of `LoRA.targets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

__all__ = ["EXPERT_MODULES", "MATRICES", "MODULES", "OF_FAMILIES", "Matrix"]

Matrix: TypeAlias = Literal[
    # attention: into queries, keys and values, and out of the heads; latent attention by way of latents
    "q_proj", "k_proj", "v_proj", "o_proj", "kv_proj", "q_down", "q_up", "kv_down", "kv_up", "key_absorb", "value_up", "o_down",
    # an indexer's queries, keys and weights of its heads; what compresses keys and values, its own too
    "index_q", "index_k", "index_weights", "compress_kv", "compress_gate", "index_compress_kv", "index_compress_gate",
    # relative positions (DeBERTa), and the gate of their biases (WavLM)
    "position_keys_proj", "position_queries_proj", "positions_gate_proj",
    # layers with a state: in and out, gates and decays, some by way of two matrices
    "in_proj", "out_proj", "gates_proj", "x_proj", "dt_proj", "decay_down", "decay_up", "gate_down", "gate_up",
    # an MLP, experts, the MLP that all tokens share
    "gate_proj", "up_proj", "down_proj", "router", "experts", "latent_down", "latent_up",
    "shared_gate_proj", "shared_up_proj", "shared_down_proj", "shared_gate",
    # branches of single families: LAuReL, per-layer inputs, the shared block of Zamba2 and its adapters
    "left_proj", "right_proj", "layer_gate", "layer_out", "linear", "q_adapter_down", "q_adapter_up", "k_adapter_down",
    "k_adapter_up", "v_adapter_down", "v_adapter_up", "mlp_adapter_down", "mlp_adapter_up",
    # no matrix: the vectors that the core of a layer with a state has of its own, its decays among them
    "core",
]  # fmt: skip
"""Which matrix of its layer a part is."""

MATRICES: tuple[Matrix, ...] = get_args(Matrix)
"""Every word for a matrix of a layer: the targets that `LoRA` and formats can name."""


def _each(places: str, names: str) -> tuple[str, ...]:
    """Every name in every place, each list with blanks between; the place "-" is the layer itself."""
    return tuple(name if place == "-" else f"{place}.{name}" for place in places.split() for name in names.split())


_ATTENTION = (
    "self_attn attn mixer attention self_attention attn.attention norm_attn_norm.attn temporal_block self_attn.0 self_attn.1 "
    "shared_transformer.self_attn"
)
_QKV = "qkv_proj query_key_value c_attn Wqkv W_pack wqkv"
_MLP = "mlp feed_forward mixer ffn mlp_block mlps.0 mlps.1 shared_transformer.feed_forward -"
_MOE = "mlp block_sparse_moe mixer feed_forward ffn"
_SHARED = (
    "mlp.shared_experts mlp.shared_expert mlp.shared_mlp block_sparse_moe.shared_experts mixer.shared_experts "
    "feed_forward.shared_expert ffn.shared_experts shared_mlp"
)
_STATE = "linear_attn mixer mamba conv mamba_decoder.mamba"
_INDEXER = "self_attn.indexer self_attn.compressor.indexer attn.indexer"

MODULES: Mapping[Matrix, tuple[str, ...]] = {
    "q_proj": _each(_ATTENTION, f"q_proj {_QKV}"), "k_proj": _each(_ATTENTION, f"k_proj {_QKV}"), "v_proj": _each(_ATTENTION, f"v_proj {_QKV}"),
    "o_proj": _each(_ATTENTION, "o_proj out_proj dense c_proj Wo wo wo_b o_b_proj"), "o_down": _each(_ATTENTION, "o_a_proj wo_a"),
    "q_down": _each(_ATTENTION, "q_a_proj wq_a"), "q_up": _each(_ATTENTION, "q_b_proj wq_b"), "kv_proj": _each(_ATTENTION, "kv_proj wkv"),
    **dict.fromkeys(("kv_up", "key_absorb", "value_up"), _each(_ATTENTION, "kv_b_proj")), "kv_down": _each(_ATTENTION, "kv_a_proj_with_mqa"),
    "index_q": _each(_INDEXER, "wq_b q_b_proj q_proj"), "index_k": _each(_INDEXER, "wk k_proj"),
    "index_weights": _each(_INDEXER, "weights_proj scorer.weights_proj"),
    "compress_kv": ("self_attn.compressor.kv_proj", "attn.compressor.wkv"), "compress_gate": ("self_attn.compressor.gate_proj", "attn.compressor.wgate"),
    "index_compress_kv": ("self_attn.compressor.indexer.kv_proj", "attn.indexer.compressor.wkv"),
    "index_compress_gate": ("self_attn.compressor.indexer.gate_proj", "attn.indexer.compressor.wgate"),
    "in_proj": (*_each(_STATE, "in_proj in_proj_qkvz in_proj_qkv in_proj_z"), *_each("linear_attn", "q_proj k_proj v_proj g_proj"), "temporal_block.linear_x", "temporal_block.linear_y"),
    "out_proj": (*_each(_STATE, "out_proj"), "linear_attn.o_proj", "temporal_block.linear_out"), "x_proj": _each(_STATE, "x_proj"), "dt_proj": _each(_STATE, "dt_proj"),
    "gates_proj": _each("linear_attn", "in_proj_ba in_proj_b in_proj_a a_proj b_proj"),
    "gate_proj": _each(_MLP, "gate_proj gate_up_proj w1 Wi"), "up_proj": _each(_MLP, "up_proj gate_up_proj w3 fc1 c_fc fc_in dense_h_to_4h Wi"),
    "down_proj": _each(_MLP, "down_proj w2 fc2 c_proj fc_out dense_4h_to_h Wo"),
    "router": _each(_MOE, "gate router router.layer router.classifier gate.wg"), "experts": _each(_MOE, "experts"),
    "latent_down": ("mixer.fc1_latent_proj",), "latent_up": ("mixer.fc2_latent_proj",), "shared_gate": ("mlp.shared_expert_gate",),
    "shared_gate_proj": _each(_SHARED, "gate_proj gate_up_proj input_linear w1"), "shared_up_proj": _each(_SHARED, "up_proj gate_up_proj input_linear w3"),
    "shared_down_proj": _each(_SHARED, "down_proj output_linear w2"),
    "left_proj": ("laurel.linear_left",), "right_proj": ("laurel.linear_right",), "layer_gate": ("per_layer_input_gate",),
    "layer_out": ("per_layer_projection",), "linear": ("linear",),
}  # fmt: skip
"""How checkpoints call the modules of a matrix, inside of their layer. The others are in no list that was met."""

OF_FAMILIES: Mapping[str, Mapping[Matrix, tuple[str, ...]]] = {
    "gemma4_text": {"experts": ("experts",), "router": ("router.proj",)},
    "kimi_linear": {
        "in_proj": _each("self_attn", "q_proj k_proj v_proj"), "out_proj": ("self_attn.o_proj",), "gates_proj": ("self_attn.b_proj",),
        "decay_down": _each("self_attn", "f_a_proj forget_gate.f_a_proj"), "decay_up": _each("self_attn", "f_b_proj forget_gate.f_b_proj"),
        "gate_down": ("self_attn.g_a_proj",), "gate_up": ("self_attn.g_b_proj",),
    },
    "minimax": {"in_proj": ("self_attn.qkv_proj",), "out_proj": ("self_attn.out_proj",), "gate_proj": ("self_attn.output_gate",)},
}  # fmt: skip
"""The same where a family has other modules under the names of all: an MLP beside its experts, layers with a state called attention."""

EXPERT_MODULES = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
"""How they call the matrices of an expert."""
