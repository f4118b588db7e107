"""Decoders whose attention reads compressed tokens."""

SMALL = {
    "deepseek_v4": {
        "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16,
        "q_lora_rank": 20, "o_groups": 2, "o_lora_rank": 12, "moe_intermediate_size": 24, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "sliding_window": 10, "index_n_heads": 3, "index_head_dim": 8, "index_topk": 6, "hc_mult": 3,
        "hc_sinkhorn_iters": 4, "partial_rotary_factor": 0.25, "compress_rates": {
            "compressed_sparse_attention": 4, "heavily_compressed_attention": 16,
        },
        "layer_types": [
            "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention",
            "sliding_attention",
        ],
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    },
}  # fmt: skip

HARMLESS = {
    "deepseek_v4": {
        "vector work that is not told apart": "scoring_func",
        "of mtp=True alone": "num_nextn_predict_layers",
        "partial_rotary_factor says it": "qk_rope_head_dim",
    },
}
NOT_BY_LAYER = {"deepseek_v4": "hyper-connections stand beside attention; test_deepseek_v4.py compares the modules"}
