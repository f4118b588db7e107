"""Decoders with layer norms."""

from family_samples.sizes import DECODER

WORDS = {"bos_token_id": 1, "eos_token_id": 2}
GPT = WORDS | {
    "vocab_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 128, "pad_token_id": 0,
}  # fmt: skip
SMALL = {
    "gpt2": {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2},
    "opt": GPT | {"hidden_size": 32, "ffn_dim": 80, "word_embed_proj_dim": 16},
    "bloom": {"vocab_size": 96, "hidden_size": 32, "n_layer": 3, "n_head": 4},
    "gpt_neo": {
        "vocab_size": 96, "hidden_size": 32, "num_layers": 3, "num_heads": 4, "attention_types": [[["global", "local"], 1], [["local"], 1]],
        "window_size": 8, "max_position_embeddings": 128, **WORDS,
    },
    "gpt_bigcode": {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, **WORDS},
    "starcoder2": DECODER | {"sliding_window": 8},
    "xglm": {"vocab_size": 96, "d_model": 32, "num_layers": 3, "attention_heads": 4, "ffn_dim": 80, "max_position_embeddings": 128},
    "biogpt": GPT | {"hidden_size": 32, "intermediate_size": 80},
    "openai-gpt": {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128},
    "gpt_neox": GPT | {"hidden_size": 32, "intermediate_size": 80},
    "falcon": {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_kv_heads": 2,
        "new_decoder_architecture": True, **WORDS},
    "gptj": {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "rotary_dim": 4, **WORDS},
    "codegen": {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "rotary_dim": 4, **WORDS},
    "phi": DECODER | {"qk_layernorm": True},
    "stablelm": DECODER | {"qk_layernorm": True, "use_parallel_residual": True},
    "persimmon": GPT | {"hidden_size": 32, "intermediate_size": 80},
    "nemotron": DECODER | {"head_dim": 16},
    "dbrx": {
        "vocab_size": 96, "d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 128, "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2}, **WORDS,
    },
    "mpt": {"vocab_size": 96, "d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 64},
}  # fmt: skip

DEVICES = {"biogpt": "cpu", "dbrx": "cpu"}

INPUTS = {"opt": lambda ids: {"input_ids": ids}}  # its vectors of words are narrower than the layers

HARMLESS = {
    "gptj codegen": {"positions that are turned have no table": "n_positions n_ctx"},
    "gpt_neox": {"layers one behind the other cost the same": "use_parallel_residual", "of another use": "is_decoder"},
    "gpt_bigcode": {"a number format": "attention_softmax_in_fp32 scale_attention_softmax_in_fp32", "multi_query says it": "num_key_value_heads"},
    "gpt_neo": {"attention_layers says it": "attention_types"},
    "falcon": {"new_decoder_architecture says it": "multi_query"},
    "xglm biogpt": {"a factor, and a word": "scale_embedding decoder_start_token_id"},
    "openai-gpt": {"of another head": "summary_type summary_use_proj summary_activation summary_proj_to_labels"},
    "dbrx": {"positions that are turned have no table": "max_seq_len", "attn_config says it": "num_key_value_heads"},
    "gpt2": {"of another head": "summary_type summary_use_proj summary_activation summary_proj_to_labels", "a number format": "reorder_and_upcast_attn"},
    "mpt": {"unused by transformers, or a name": "learned_pos_emb init_device logit_scale norm_type", "alibi has no table": "max_seq_len"},
}  # fmt: skip
