"""Decoders whose layers differ by more than a window or experts."""

from family_samples.sizes import DECODER, EXPERTS, LATENT

MIXTURE = DECODER | EXPERTS | {"n_routed_experts": 6, "n_shared_experts": 2, "first_k_dense_replace": 1, "head_dim": 16}

SMALL = {
    "cohere": DECODER | {"use_qk_norm": True},
    "cohere2": DECODER | {"sliding_window": 8, "num_hidden_layers": 5},
    "exaone4": DECODER | {"sliding_window": 8, "num_hidden_layers": 5},
    "smollm3": DECODER | {"num_hidden_layers": 6, "use_sliding_window": True, "sliding_window": 8, "no_rope_layer_interval": 3},
    "cwm": DECODER | {"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 6},
    "helium": DECODER | {"head_dim": 8},
    "olmo": DECODER,
    "arcee": DECODER,
    "phimoe": DECODER | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    "glm4v_text": DECODER | {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.5}},
    "glm4_moe": MIXTURE | {"use_qk_norm": True, "attention_bias": True},
    "glm4v_moe_text": MIXTURE | {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [2, 1, 1]}},
    "glm4_moe_lite": {key: value for key, value in LATENT.items() if key != "first_k_dense_replace"},
    "dots1": MIXTURE | {"sliding_window": 8, "max_window_layers": 2, "num_hidden_layers": 4},
    "ernie4_5_moe": DECODER | {"head_dim": 16, "moe_intermediate_size": 24, "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2,
        "num_hidden_layers": 4, "moe_layer_end_index": 2},
    "mimo_v2_flash": DECODER | EXPERTS | {"head_dim": 24, "v_head_dim": 12, "n_routed_experts": 6, "sliding_window": 8, "num_hidden_layers": 7, "num_key_value_heads": 1},
    "apertus": DECODER,
    "bitnet": DECODER,
    "longcat_flash": {key: value for key, value in LATENT.items() if key not in ("num_hidden_layers", "n_shared_experts", "first_k_dense_replace", "n_group", "topk_group", "moe_intermediate_size", "num_experts_per_tok", "intermediate_size")}
        | {"num_layers": 2, "zero_expert_num": 0, "head_dim": 4, "ffn_hidden_size": 80, "expert_ffn_hidden_size": 24, "moe_topk": 2},
    "hunyuan_v1_moe": DECODER | {"head_dim": 16, "num_experts": 6, "moe_topk": [1, 2, 2]},
}  # fmt: skip


CLASSES = {"glm4v_text": "AutoModel", "glm4v_moe_text": "AutoModel"}

DEVICES = {"longcat_flash": "cpu"}  # it asks which experts are hit
NOT_BY_LAYER = {"longcat_flash": "a layer there is two here"}

HARMLESS = {
    "longcat_flash": {"latent attention has heads of its own": "num_key_value_heads head_dim"},
    "dots1": {"layer_types says it": "max_window_layers"},
    "glm4_moe": {"of the layer that mtp=True adds": "num_nextn_predict_layers"},
    "olmo": {"a clamp is not counted": "clip_qkv"},
    "cohere2": {"transformers takes the width by the heads": "head_dim"},
    "exaone4": {"layer_types says it": "sliding_window_pattern"},
    "smollm3": {"no_rope_layers says it": "no_rope_layer_interval"},
    "glm4_moe_lite": {"latent attention has heads of its own": "num_key_value_heads head_dim qk_head_dim rope_interleave"},
    "hunyuan_v1_moe": {"which words are special": "eod_token_id sep_token_id"},
    "glm4v_moe_text": {"of the head of the whole model": "tie_word_embeddings"},
}  # fmt: skip
