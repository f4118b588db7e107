"""Decoders with RMS norms: small configurations, and which keys change nothing of what is counted."""

from family_samples.sizes import DECODER, EXPERTS, LATENT

MROPE = {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [2, 1, 1]}}

SMALL = {
    "llama": DECODER,
    "mistral": DECODER | {"sliding_window": 8},
    "qwen2": DECODER,
    "qwen2_moe": DECODER | EXPERTS | {"num_experts": 6, "shared_expert_intermediate_size": 40, "mlp_only_layers": [1]},
    "qwen3": DECODER | {"head_dim": 16},
    "qwen3_moe": DECODER | EXPERTS | {"num_experts": 6, "head_dim": 16},
    "mixtral": DECODER | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "gemma2": DECODER | {"head_dim": 16, "sliding_window": 8},
    "gemma3_text": DECODER | {"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 7},
    "olmo2": DECODER,
    "olmo3": DECODER | {"sliding_window": 8, "num_hidden_layers": 5},
    "olmoe": DECODER | {"num_experts": 4, "num_experts_per_tok": 2},
    "phi3": DECODER | {"sliding_window": 8, "partial_rotary_factor": 0.5},
    "gemma": DECODER | {"head_dim": 16},
    "qwen2_vl_text": DECODER | MROPE,
    "qwen2_5_vl_text": DECODER | MROPE,
    "qwen3_vl_text": DECODER | {"head_dim": 16, "rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [4, 2, 2]}},
    "qwen3_vl_moe_text": DECODER | EXPERTS | {"head_dim": 16, "num_experts": 6, "mlp_only_layers": [1]},
    "ministral": DECODER | {"sliding_window": 8, "head_dim": 16},
    "ministral3": DECODER | {"head_dim": 16},
    "granite": DECODER,
    "granitemoe": DECODER | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "granitemoeshared": DECODER | {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 40},
    "seed_oss": DECODER | {"head_dim": 16},
    "ernie4_5": DECODER | {"head_dim": 16},
    "hunyuan_v1_dense": DECODER | {"head_dim": 16},
    "minimax_m2": DECODER | {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "glm": DECODER | {"head_dim": 16},
    "glm4": DECODER | {"head_dim": 16},
    "gpt_oss": DECODER | {"head_dim": 16, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT | {"q_lora_rank": None},
}  # fmt: skip

CLASSES = dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text"), "AutoModel")

HARMLESS = {
    "hunyuan_v1_dense": {"which words are special": "eod_token_id"},
    "olmoe": {"a clamp is not counted": "clip_qkv"},
    "phi3": {"angles": "original_max_position_embeddings"},
    "qwen3_vl_moe_text": {"transformers sets it to none": "sliding_window", "of the head of the whole model": "tie_word_embeddings"},
    "deepseek_v2 deepseek_v3": {"latent attention has heads of its own": "num_key_value_heads head_dim qk_head_dim rope_interleave"},
    "deepseek_v3": {"of the layer that mtp=True adds": "num_nextn_predict_layers"},
    "qwen3_moe": {"all layers are mixtures": "intermediate_size"},
    "qwen2 qwen2_moe qwen3 qwen2_vl_text qwen2_5_vl_text": {"layer_types says it": "max_window_layers"},
    "gemma3_text": {"vector work that is not counted": "final_logit_softcapping attn_logit_softcapping", "layer_types says it": "_sliding_window_pattern"},
}  # fmt: skip
