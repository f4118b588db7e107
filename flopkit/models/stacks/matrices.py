"""Which matrix of its layer a part is, and what that one is called in other people's files.

Adapters, formats and memory find a matrix by these words, never by the name that a table
shows. They are also the words of `LoRA.targets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

__all__ = ["EXPERT_MODULES", "MATRICES", "MODULES", "Matrix"]

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

MODULES: Mapping[Matrix, tuple[str, ...]] = {
    "q_proj": ("self_attn.q_proj",), "k_proj": ("self_attn.k_proj",), "v_proj": ("self_attn.v_proj",),
    "o_proj": ("self_attn.o_proj", "self_attn.out_proj"),
    "q_down": ("self_attn.q_a_proj",), "q_up": ("self_attn.q_b_proj",), "kv_down": ("self_attn.kv_a_proj_with_mqa",),
    "kv_up": ("self_attn.kv_b_proj",), "key_absorb": ("self_attn.kv_b_proj",), "value_up": ("self_attn.kv_b_proj",),
    "in_proj": ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_qkv", "mixer.in_proj"),
    "gates_proj": ("linear_attn.in_proj_ba", "linear_attn.in_proj_b"), "out_proj": ("linear_attn.out_proj", "mixer.out_proj"),
    "gate_proj": ("mlp.gate_proj",), "up_proj": ("mlp.up_proj", "mlp.fc1"), "down_proj": ("mlp.down_proj", "mlp.fc2"),
    "router": ("mlp.gate", "mlp.router", "block_sparse_moe.gate", "mixer.gate"), "shared_gate": ("mlp.shared_expert_gate",),
    "shared_gate_proj": ("mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj", "block_sparse_moe.shared_experts.gate_proj"),
    "shared_up_proj": ("mlp.shared_experts.up_proj", "mlp.shared_expert.up_proj", "block_sparse_moe.shared_experts.up_proj"),
    "shared_down_proj": ("mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj", "block_sparse_moe.shared_experts.down_proj"),
    "experts": ("mlp.experts", "block_sparse_moe.experts", "mixer.experts"),
}  # fmt: skip
"""How checkpoints call the modules of a matrix, inside of their layer. The others are in no list that was met."""

EXPERT_MODULES = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
"""How they call the matrices of an expert."""
