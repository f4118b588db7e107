"""Encoders of images."""

import torch

from family_samples.sizes import BATCH

SMALL = {
    "vit": {
        "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
        "num_labels": 10,
    },
}  # fmt: skip

CLASSES = {"vit": "AutoModelForImageClassification"}

HARMLESS = {"vit": {"of another head": "pooler_output_size pooler_act encoder_stride"}}

INPUTS = {"vit": lambda ids: {"pixel_values": torch.zeros(BATCH, 3, 32, 32, dtype=torch.bfloat16)}}
