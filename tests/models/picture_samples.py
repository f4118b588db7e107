"""Small models of text and images of each type whose picture part is described: configurations, and how they are shown a picture."""

import torch
from family_samples import merged

TOWER = {
    "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
}  # fmt: skip
TEXT = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
SECTIONS = {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}}
QWEN = {"depth": 4, "num_heads": 4, "patch_size": 8}
LATER = QWEN | {"hidden_size": 48, "out_hidden_size": 32, "intermediate_size": 56}
THIRD = LATER | {"num_position_embeddings": 16, "deepstack_visual_indexes": [1, 2]}
LLAMA = {"model_type": "llama", **TEXT}
QWEN_2 = {"model_type": "qwen2", **TEXT}
CLIP, SIGLIP, PIXTRAL = (
    {"model_type": name, **TOWER} for name in ("clip_vision_model", "siglip_vision_model", "pixtral")
)
SIGLIP_2 = {"model_type": "siglip2_vision_model", "num_patches": 16} | {
    key: value for key, value in TOWER.items() if key != "image_size"
}
LLAMA_4 = TOWER | {
    "intermediate_size": 4 * 48, "projector_input_dim": 40, "projector_output_dim": 40, "vision_output_dim": 40,
}  # fmt: skip
GEMMA_4 = {
    "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 20,
    "patch_size": 8, "pooling_kernel_size": 2, "position_embedding_size": 24,
}  # fmt: skip
GLM = QWEN | {"hidden_size": 48, "out_hidden_size": 32, "intermediate_size": 56, "image_size": 32}
KIMI = {
    "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": 8, "pos_emb_height": 6,
    "pos_emb_width": 6,
}  # fmt: skip
SAMPLES = merged("SMALL")
TILES = {"image_grid_pinpoints": [[32, 64], [64, 64]]}

PARTS = {
    "llava": {"text_config": LLAMA, "vision_config": CLIP},
    "llava, one layer earlier": {
        "text_config": LLAMA, "vision_config": SIGLIP, "vision_feature_layer": -3, "vision_feature_select_strategy": "full",
        "multimodal_projector_bias": False,
    },
    "llava, by number": {"text_config": LLAMA, "vision_config": CLIP, "vision_feature_layer": 1},
    "llava, the last layer": {"text_config": LLAMA, "vision_config": CLIP, "vision_feature_layer": -1},
    "llava, several layers": {"text_config": LLAMA, "vision_config": CLIP, "vision_feature_layer": [-3, 0]},
    "llava, pixtral": {
        "text_config": LLAMA, "vision_config": PIXTRAL, "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
    },
    "llava_next": {"text_config": LLAMA, "vision_config": CLIP} | TILES,
    "llava_next_video": {"text_config": LLAMA, "vision_config": CLIP} | TILES,
    "llava_onevision": {
        "text_config": QWEN_2, "vision_config": SIGLIP | {"vision_use_head": False}, "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
    } | TILES,
    "video_llava": {"text_config": LLAMA, "vision_config": CLIP},
    "vipllava": {"text_config": LLAMA, "vision_config": CLIP, "vision_feature_layer": [-2, -3, 1]},
    "gemma3": {"text_config": TEXT, "vision_config": TOWER, "mm_tokens_per_image": 4},
    "gemma3, no head": {"text_config": TEXT, "vision_config": TOWER | {"vision_use_head": False}, "mm_tokens_per_image": 4},
    "shieldgemma2": {"text_config": {"model_type": "gemma3_text", **TEXT}, "vision_config": SIGLIP, "mm_tokens_per_image": 4},
    "gemma4": {"text_config": SAMPLES["gemma4_text"], "vision_config": GEMMA_4},
    "gemma4, standardized": {
        "text_config": SAMPLES["gemma4_text"], "vision_config": GEMMA_4 | {"standardize": True, "use_clipped_linears": True},
    },
    "paligemma": {"text_config": {"model_type": "gemma", **TEXT}, "vision_config": SIGLIP, "projection_dim": 32},
    "deepseek_vl": {"text_config": LLAMA, "vision_config": SIGLIP},
    "aya_vision": {"text_config": {"model_type": "cohere2", **SAMPLES["cohere2"]}, "vision_config": SIGLIP},
    "aya_vision, hidden": {
        "text_config": {"model_type": "cohere2", **SAMPLES["cohere2"]}, "vision_config": SIGLIP, "alignment_intermediate_size": 40,
        "vision_feature_layer": -2,
    },
    "cohere2_vision": {
        "text_config": {"model_type": "cohere2", **SAMPLES["cohere2"]}, "vision_config": SIGLIP, "alignment_intermediate_size": 40,
    },
    "mistral3": {"text_config": {"model_type": "mistral", **TEXT}, "vision_config": PIXTRAL},
    "mistral3, biased": {
        "text_config": {"model_type": "mistral", **TEXT}, "vision_config": PIXTRAL | {"hidden_act": "silu"},
        "multimodal_projector_bias": True, "spatial_merge_size": 4, "vision_feature_layer": -2,
    },
    "lighton_ocr": {"text_config": {"model_type": "qwen3", **TEXT}, "vision_config": PIXTRAL},
    "llama4": {"text_config": SAMPLES["llama4_text"], "vision_config": LLAMA_4},
    "glm4v": {"text_config": SAMPLES["glm4v_text"], "vision_config": GLM},
    "glm4v, biased": {"text_config": SAMPLES["glm4v_text"], "vision_config": GLM | {"attention_bias": True}},
    "glm4v_moe": {"text_config": SAMPLES["glm4v_moe_text"], "vision_config": GLM},
    "glm46v": {"text_config": {"model_type": "glm4v_text", **SAMPLES["glm4v_text"]}, "vision_config": GLM},
    "idefics3": {"text_config": LLAMA, "vision_config": TOWER},
    "smolvlm": {"text_config": LLAMA, "vision_config": TOWER, "scale_factor": 4},
    "internvl": {"text_config": QWEN_2, "vision_config": TOWER | {"image_size": [32, 32], "patch_size": [8, 8]}},
    "internvl, another norm": {
        "text_config": QWEN_2, "vision_feature_layer": -2, "vision_config": TOWER | {
            "norm_type": "rms_norm", "use_qk_norm": True, "attention_bias": True, "use_mask_token": True, "use_mean_pooling": False,
            "use_absolute_position_embeddings": False,
        },
    },
    "internvl, last norm": {"text_config": QWEN_2, "vision_config": TOWER | {"use_mean_pooling": False}},
    "qianfan_ocr": {"text_config": {"model_type": "qwen3", **TEXT}, "vision_config": TOWER},
    "lfm2_vl": {
        "text_config": {"model_type": "lfm2", **SAMPLES["lfm2"]}, "vision_config": SIGLIP_2, "projector_hidden_size": 40,
    },
    "lfm2_vl, plain": {
        "text_config": {"model_type": "lfm2", **SAMPLES["lfm2"]}, "vision_config": SIGLIP_2 | {"vision_use_head": False},
        "projector_hidden_size": 40, "projector_use_layernorm": False, "projector_bias": False,
    },
    "exaone4_5": {
        "text_config": {"model_type": "exaone4", **SAMPLES["exaone4"], "hidden_size": 32},
        "vision_config": LATER | {"window_size": 32, "fullatt_block_indexes": [1, 3], "num_key_value_heads": 2},
    },
    "kimi_k25": {
        "text_config": {"model_type": "deepseek_v3", **SAMPLES["deepseek_v3"]}, "vision_config": KIMI, "projection_hidden_size": 48,
    },
    "minimax_m3_vl": {
        "text_config": SAMPLES["minimax_m3_vl_text"], "projector_hidden_size": 40,
        "vision_config": {key: value for key, value in TOWER.items() if key != "image_size"},
    },
    "qwen2_vl": {"text_config": TEXT | SECTIONS, "vision_config": QWEN | {"embed_dim": 48, "hidden_size": 32, "mlp_ratio": 3}},
    "qwen2_5_vl": {
        "text_config": TEXT | SECTIONS, "vision_config": LATER | {"window_size": 32, "fullatt_block_indexes": [1, 3]},
    },
    "qwen3_vl": {"text_config": TEXT | SECTIONS, "vision_config": THIRD},
    "qwen3_5": {"text_config": TEXT | SECTIONS, "vision_config": LATER | {"num_position_embeddings": 16}},
    "qwen3_5_moe": {"text_config": TEXT | SECTIONS, "vision_config": LATER | {"num_position_embeddings": 16}},
    "qwen3_vl_moe": {"text_config": TEXT | SECTIONS, "vision_config": THIRD},
}  # fmt: skip
"""The configuration of each, under its ``model_type``, with a word behind it where there are several."""

HIGH, WIDE = 8, 12  # patches from top to bottom and from left to right, of a picture of any size
PATCHES = HIGH * WIDE
GRID = (1, HIGH, WIDE)


def _flat(model):
    """Patches of one picture in a row, with two frames in each."""
    pixels = torch.zeros(PATCHES, 3 * 2 * 8 * 8, dtype=torch.bfloat16)
    return lambda: model.model.get_image_features(pixels, torch.tensor([GRID]))


def _kimi(model):
    pixels = torch.zeros(PATCHES, 3, 8, 8, dtype=torch.bfloat16)
    return lambda: model.model.get_image_features(pixels, torch.tensor([GRID]))


def _sized(model):
    pixels, sizes = torch.zeros(1, 3, 8 * HIGH, 8 * WIDE, dtype=torch.bfloat16), [(8 * HIGH, 8 * WIDE)]
    return lambda: model.model.get_image_features(pixels, image_sizes=torch.tensor(sizes))


def _placed(model):
    """Patches of one picture in a row, with the place of each."""
    pixels = torch.zeros(1, PATCHES, 3 * 8 * 8, dtype=torch.bfloat16)
    places = torch.tensor([[[x, y] for y in range(HIGH) for x in range(WIDE)]])
    return lambda: model.model.get_image_features(pixels, places)


def _shaped(model):
    """Patches of one picture in a row, and how many there are of each side."""
    pixels = torch.zeros(1, PATCHES, 3 * 8 * 8, dtype=torch.bfloat16)
    seen = torch.ones(1, PATCHES, dtype=torch.int64)
    return lambda: model.model.get_image_features(pixels, torch.tensor([[HIGH, WIDE]]), seen)


def _square(model):
    pixels = torch.zeros(2, 3, 32, 32, dtype=torch.bfloat16, device="meta")
    return lambda: model.model.get_image_features(pixels)


def _tiles(model):
    """A picture whose tiles are one beside the other, and the whole of it made small."""
    pixels = torch.zeros(1, 3, 3, 32, 32, dtype=torch.bfloat16, device="meta")
    return lambda: model.model.get_image_features(pixels, image_sizes=[(32, 64)])


def _llama4(model):
    pixels = torch.zeros(2, 3, 32, 32, dtype=torch.bfloat16, device="meta")
    return lambda: model.multi_modal_projector(model.vision_model(pixels).last_hidden_state)


def _smol(model):
    pixels = torch.ones(1, 2, 3, 32, 32, dtype=torch.bfloat16)
    return lambda: model.model.get_image_features(pixels)


def shown(name, model):
    """What gives *model* a picture."""
    kind = name.partition(",")[0]
    if kind.startswith(("qwen", "glm", "exaone", "minimax")):
        return _flat(model)
    special = {
        "kimi_k25": _kimi, "lfm2_vl": _shaped, "mistral3": _sized, "lighton_ocr": _sized, "gemma4": _placed, "llama4": _llama4, "idefics3": _smol,
        "smolvlm": _smol, "llava_next": _tiles, "llava_next_video": _tiles, "llava_onevision": _tiles,
    }  # fmt: skip
    return (_sized if name == "llava, pixtral" else special.get(kind, _square))(model)


def of_any_size(name):
    """Whether a picture may have any size, and is asked for by its patches."""
    return name == "llava, pixtral" or name.startswith(
        ("qwen", "glm", "exaone", "minimax", "kimi", "lfm2", "mistral3", "lighton", "gemma4")
    )


def pictures_shown(name):
    """How many pictures or tiles `shown` gives."""
    return 1 if of_any_size(name) else 3 if name.startswith(("llava_next", "llava_onevision")) else 2


def on_meta(name):
    """Whether no value of the picture is looked at."""
    return not of_any_size(name) and not name.startswith(("idefics3", "smolvlm"))
