"""Decoders with layer norms."""

SMALL = {
    "gpt2": {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2},
    "mpt": {"vocab_size": 96, "d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 64},
}  # fmt: skip

HARMLESS = {
    "gpt2": {"of another head": "summary_type summary_use_proj summary_activation summary_proj_to_labels", "a number format": "reorder_and_upcast_attn"},
    "mpt": {"unused by transformers, or a name": "learned_pos_emb init_device logit_scale norm_type", "alibi has no table": "max_seq_len"},
}  # fmt: skip
