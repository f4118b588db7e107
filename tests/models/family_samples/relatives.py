"""Decoders that differ in little from others."""

from family_samples.sizes import DECODER, EXPERTS, LATENT

HEADS = {
    key: LATENT[key] for key in ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
}

SMALL = {
    "vaultgemma": DECODER | {"head_dim": 16, "sliding_window": 8},
    "hyperclovax": DECODER | {"head_dim": 16},
    "internlm3": DECODER | {"head_dim": 16, "attention_bias": True, "mlp_bias": True},
    "iquestcoder": DECODER | {"head_dim": 16},
    "jais2": DECODER,
    "flex_olmo": DECODER | {"num_experts": 6, "num_experts_per_tok": 2},
    "mellum": DECODER | EXPERTS | {"head_dim": 16, "num_experts": 6, "sliding_window": 8, "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"], "mlp_layer_types": ["sparse", "dense", "dense", "sparse"]},
    "modernbert-decoder": {key: value for key, value in DECODER.items() if key != "num_key_value_heads"} | {
        "num_hidden_layers": 4, "local_attention": 16, "global_attn_every_n_layers": 2},
    "minicpm3": DECODER | HEADS | {"num_key_value_heads": 4, "mlp_bias": True, "tie_word_embeddings": False},
    "youtu": DECODER | HEADS | {"num_key_value_heads": 4, "q_lora_rank": None},
}  # fmt: skip

HARMLESS = {
    "vaultgemma": {"vector work that is not counted": "final_logit_softcapping attn_logit_softcapping"},
    "minicpm3": {
        "latent attention has heads of its own": "head_dim qk_head_dim",
        "factors": "scale_emb scale_depth dim_model_base",
    },
    "youtu": {
        "latent attention has heads of its own": "head_dim qk_head_dim",
        "which features are turned": "rope_interleave",
    },
    "hyperclovax": {"factors": "embedding_multiplier logits_scaling residual_multiplier attention_multiplier"},
    "mellum": {
        "of the layer that mtp=True adds": "num_mtp_layers num_nextn_predict_layers mtp_layer_types mtp_mlp_layer_types"
    },
    "modernbert-decoder": {
        "which words are special": "cls_token_id sep_token_id",
        "layer_types says it": "global_attn_every_n_layers",
    },
}
