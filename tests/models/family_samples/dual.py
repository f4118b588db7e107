"""Dual encoders, and their towers."""

import torch

from family_samples.sizes import BATCH

_TEXT = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 72,
}  # fmt: skip
_CLIP_TEXT = _TEXT | {"projection_dim": 24, "eos_token_id": 2}
_VISION = {
    "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
}  # fmt: skip
_SIGLIP_2 = {key: value for key, value in _VISION.items() if key != "image_size"} | {"num_patches": 16}

SMALL = {
    "clip": {"text_config": _CLIP_TEXT, "vision_config": _VISION, "projection_dim": 24},
    "clip_text_model": _CLIP_TEXT,
    "clip_vision_model": _VISION | {"projection_dim": 24},
    "siglip": {"text_config": _TEXT | {"projection_size": 48}, "vision_config": _VISION},
    "siglip2": {"text_config": _TEXT | {"projection_size": 48}, "vision_config": _SIGLIP_2},
    "siglip_vision_model": _VISION,
    "siglip2_vision_model": _SIGLIP_2,
}

CLASSES = dict.fromkeys(SMALL, "AutoModel")


def _pictures(ids):
    return {"pixel_values": torch.zeros(BATCH, 3, 32, 32, dtype=torch.bfloat16)}


def _patches(ids):
    return {
        "pixel_values": torch.zeros(BATCH, 16, 3 * 8 * 8, dtype=torch.bfloat16),
        "pixel_attention_mask": None,
        "spatial_shapes": torch.full((BATCH, 2), 4, device="cpu"),
    }


INPUTS = {
    "clip": lambda ids: {"input_ids": ids, **_pictures(ids)},
    "clip_vision_model": _pictures,
    "siglip": lambda ids: {"input_ids": ids, **_pictures(ids)},
    "siglip2": lambda ids: {"input_ids": ids, **_patches(ids)},
    "siglip_vision_model": _pictures,
    "siglip2_vision_model": _patches,
}

HARMLESS = {
    "clip clip_text_model clip_vision_model": {"how weights begin": "logit_scale_init_value initializer_factor"},
    "clip_text_model clip_vision_model": {"of the class with a projection": "projection_dim"},
}
