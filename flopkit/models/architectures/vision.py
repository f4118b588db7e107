"""Encoders of images: ViT and its relatives."""

from __future__ import annotations

from collections.abc import Callable

from flopkit.models.architectures.classes import Tasks, with_head
from flopkit.models.architectures.decoder_fields import heads_of
from flopkit.models.blocks import Patches
from flopkit.models.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.transformer import transformer

__all__ = ["MODELS", "TASKS"]


def _vit(c: Fields, name: str) -> Model:
    patches = Patches(image=c.need("image_size"), patch=c.need("patch_size"), channels=c.count("num_channels", 3))
    sizes = {"kv_heads": c.need("heads"), "head_dim": c.head_dim(""), "rotary": 0}
    return transformer(
        name=name, vocab=c.labels, **c.all("d_model", "layers", "d_ff"),
        attention=heads_of(c, True, qkv_bias=c.flag("qkv_bias", True), **sizes), act=c.act("gelu"), gated=False, bias=True, norm="layer",
        causal=False, head="classes", patches=patches, positions=patches.tokens,
    )  # fmt: skip


MODELS: dict[str, Callable[[Fields, str], Model]] = {"vit": _vit}

_VIT: Tasks = {
    "image": lambda model, labels: model,
    "none": lambda model, labels: with_head(model, outputs=0, each="sequence", dense=True, act="tanh"),
}

TASKS: dict[str, Tasks] = {"vit": _VIT}
