"""Decoders with RMS norms: small configurations, and which keys change nothing of what is counted."""

from family_samples.sizes import DECODER, EXPERTS, LATENT

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
    "gpt_oss": DECODER | {"head_dim": 16, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT | {"q_lora_rank": None},
}  # fmt: skip

HARMLESS = {
    "deepseek_v2 deepseek_v3": {"latent attention has heads of its own": "num_key_value_heads head_dim qk_head_dim rope_interleave"},
    "deepseek_v3": {"of the layer that mtp=True adds": "num_nextn_predict_layers"},
    "qwen3_moe": {"all layers are mixtures": "intermediate_size"},
    "qwen2 qwen2_moe qwen3": {"layer_types says it": "max_window_layers"},
    "gemma3_text": {"vector work that is not counted": "final_logit_softcapping attn_logit_softcapping", "layer_types says it": "_sliding_window_pattern"},
}  # fmt: skip
