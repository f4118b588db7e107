"""Decoders whose layers see different tokens by rules of their own."""

from family_samples.sizes import BATCH, DECODER, LATENT, SEQ

DSA = LATENT | {"index_topk": 8, "index_head_dim": 8, "index_n_heads": 2, "num_hidden_layers": 5}
SMALL = {
    "deepseek_v32": DSA,
    "glm_moe_dsa": DSA | {"indexer_types": ["full", "shared", "full", "shared", "shared"]},
    "llama4_text": DECODER | {
        "num_hidden_layers": 8, "intermediate_size_mlp": 96, "num_local_experts": 4, "num_experts_per_tok": 1, "head_dim": 16,
        "interleave_moe_layer_step": 2, "attention_chunk_size": 16,
    },
}  # fmt: skip
GEMMA_4 = DECODER | {"num_hidden_layers": 8, "head_dim": 16, "global_head_dim": 24, "sliding_window": 8}
SMALL["gemma4_text"] = GEMMA_4 | {
    "attention_k_eq_v": True, "num_global_key_value_heads": 1, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2,
    "moe_intermediate_size": 24, "hidden_size_per_layer_input": 0,
}  # fmt: skip

SMALL["minimax_m3_vl_text"] = DECODER | {
    "head_dim": 16, "rotary_dim": 8, "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 24, "dense_intermediate_size": 80,
    "shared_intermediate_size": 40, "index_n_heads": 2, "index_head_dim": 8, "index_block_size": 8, "index_topk_blocks": 3, "num_hidden_layers": 4,
    "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse", "full_attention"], "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
}  # fmt: skip

HARMLESS = {
    "minimax_m3_vl_text": {
        "the activation is one of its own": "hidden_act",
        "limits are not counted": "swiglu_alpha swiglu_limit",
        "of training": "router_jitter_noise",
    },
    "deepseek_v32 glm_moe_dsa": {
        "latent attention has heads of its own": "num_key_value_heads head_dim qk_head_dim",
        "mlp_layer_types says it": "first_k_dense_replace",
        "all layers are of one kind": "layer_types",
    },
    "gemma4_text": {
        "vector work that is not counted": "final_logit_softcapping",
        "of pictures": "use_bidirectional_attention",
        "there are no inputs for each layer": "vocab_size_per_layer_input",
        "no layer is shared": "use_double_wide_mlp",
        "per_layer_config says it": "global_head_dim num_global_key_value_heads",
    },
    "llama4_text": {
        "factors of scores": "attn_temperature_tuning floor_scale attn_scale",
        "of training": "router_jitter_noise",
        "a list says it": "no_rope_layer_interval interleave_moe_layer_step",
    },
}


def _all_experts(ours):
    """every expert runs on every token, those that are not chosen on zeros."""
    layers = [(block.mlp, count) for block, count in ours.blocks if hasattr(block.mlp, "experts")]
    return sum(
        2 * BATCH * SEQ * count * (mlp.experts - mlp.top_k) * 3 * ours.d_model * mlp.d_ff for mlp, count in layers
    )


BEYOND = {"llama4_text": _all_experts}
