"""Encoders of images."""

import torch

from family_samples.sizes import BATCH

_VIT = {
    "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
    "num_labels": 10,
}  # fmt: skip
_DINO = {key: value for key, value in _VIT.items() if key != "intermediate_size"} | {"mlp_ratio": 3}
_BEIT = _VIT | {"use_mask_token": True, "use_absolute_position_embeddings": True, "use_relative_position_bias": True}

_CONVNEXT = {
    "image_size": 32, "patch_size": 2, "hidden_sizes": [16, 24, 40], "depths": [3, 2, 1], "num_stages": 3, "num_labels": 10,
}  # fmt: skip
SMALL = {
    "vit": _VIT,
    "vit_msn": _VIT,
    "deit": _VIT,
    "ijepa": _VIT,
    "dinov2": _DINO,
    "dinov2_with_registers": _DINO | {"num_register_tokens": 3, "use_swiglu_ffn": True},
    "beit": _BEIT,
    "data2vec-vision": _BEIT,
    "dinov3_vit": _VIT | {"num_register_tokens": 3, "use_gated_mlp": True},
    "swin": {
        "image_size": 32,
        "patch_size": 2,
        "embed_dim": 16,
        "depths": [3, 2, 1],
        "num_heads": [2, 4, 4],
        "window_size": 4,
        "mlp_ratio": 2.5,
        "num_labels": 10,
        "use_absolute_embeddings": True,
    },
    "convnext": _CONVNEXT,
    "convnextv2": _CONVNEXT,
    "yolos": _VIT | {"image_size": [24, 32], "num_detection_tokens": 7},
}

CLASSES = dict.fromkeys(SMALL, "AutoModelForImageClassification") | {
    "yolos": "AutoModelForObjectDetection",
    "dinov3_vit": "AutoModel",
}

NOT_BY_LAYER = dict.fromkeys(("swin", "convnext", "convnextv2"), "its stages are models of their own")

HARMLESS = {
    "vit deit ijepa": {"of another head": "encoder_stride pooler_output_size pooler_act"},
    "dinov2 dinov2_with_registers": {
        "of a backbone": "out_features out_indices stage_names apply_layernorm reshape_hidden_states",
        "this type always has one": "use_mask_token",
        "how weights begin": "layerscale_value",
        "its own act where it gates": "hidden_act",
    },
    "beit data2vec-vision": {
        "of another head": "vocab_size use_auxiliary_head auxiliary_channels auxiliary_num_convs auxiliary_concat_input add_fpn "
        "pool_scales out_features out_indices stage_names reshape_hidden_states semantic_loss_ignore_index auxiliary_loss_weight",
        "how weights begin": "layer_scale_init_value",
    },
    "dinov3_vit": {
        "of a backbone": "out_features out_indices stage_names apply_layernorm reshape_hidden_states",
        "of no head": "num_labels",
        "of training": "pos_embed_jitter pos_embed_shift",
    },
    "swin": {
        "of a backbone or another head": "out_features out_indices stage_names encoder_stride",
        "made of the others": "hidden_size num_layers",
    },
    "convnext convnextv2": {"of a backbone": "out_features out_indices stage_names"},
    "yolos": {
        "of the loss": "class_cost bbox_cost giou_cost auxiliary_loss bbox_loss_coefficient giou_loss_coefficient eos_coefficient"
    },
}


def _pictures(ids, height=32):
    return {"pixel_values": torch.zeros(BATCH, 3, height, 32, dtype=torch.bfloat16)}


INPUTS = dict.fromkeys(SMALL, _pictures) | {"yolos": lambda ids: _pictures(ids, 24)}
