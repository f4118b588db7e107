"""Small sizes that many families share."""

SEQ, BATCH = 64, 2  # a chunk of the gated delta rule

DECODER = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = DECODER | EXPERTS | {
    "kv_lora_rank": 12, "q_lora_rank": 20, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8,
    "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "num_key_value_heads": 4,
}  # fmt: skip
