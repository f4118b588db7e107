"""Encoders of images: ViT and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.classes import Tasks, headless, with_head
from flopkit.models.architectures.decoder_fields import heads_of
from flopkit.models.architectures.dual import image_of
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.files.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block, Patches
from flopkit.models.stacks.ends import Dense, End, EndNorm, Learned, Mean
from flopkit.models.stacks.towers import Scaled, Still
from flopkit.models.transformer import transformer
from flopkit.sizes import number, short

__all__ = ["MODELS", "TASKS"]


def _encoder(c: Fields, name: str, patches: Patches, **fields: Any) -> Model:
    """Layers as ViT has them, behind *patches*; *fields*: what is another than in ViT."""
    sizes = {"kv_heads": c.need("heads"), "head_dim": c.head_dim(""), "rotary": 0}
    usual: dict[str, Any] = {
        "attention": heads_of(c, True, qkv_bias=c.flag("qkv_bias", True), **sizes), "act": c.act("gelu"), "gated": False,
        "positions": patches.tokens, "head": "classes",
    }  # fmt: skip
    if "d_ff" not in fields:
        usual["d_ff"] = c.need("d_ff")
    shape = c.all("d_model", "layers")
    return transformer(
        name=name, vocab=c.labels, **shape, **usual | fields, bias=True, norm="layer", causal=False, patches=patches
    )


def _pooled(c: Fields) -> None:
    """The pooler has the model's width, and tanh."""
    c.refuse(pooler_act="tanh")
    width = c.get("pooler_output_size")
    if width is not None and width != c.need("d_model"):
        raise ValueError(
            f"pooler_output_size={short(width)}: only the model's width, {c.need('d_model')}, is described here"
        )


def _vit(extra: int) -> Callable[[Fields, str], Model]:
    def read(c: Fields, name: str) -> Model:
        _pooled(c)
        return _encoder(c, name, image_of(c, extra=extra))

    return read


def _ratio(c: Fields) -> int:
    """Hidden features of the MLP, as a multiple of the width."""
    ratio = c.get("mlp_ratio", 4)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or ratio <= 0:
        raise TypeError(f"mlp_ratio={short(ratio)}: must be a number above 0")
    return int(c.need("d_model") * ratio)


def _scaled(model: Model) -> Model:
    """The same layers, the output of each branch multiplied by a learned vector."""

    def one(block: Block) -> Block:
        return replace(block, mixer=Scaled(branch=block.mixer), mlp=Scaled(branch=block.mlp))

    return replace(model, blocks=tuple((one(block), layers) for block, layers in model.blocks))


def _dinov2(c: Fields, name: str) -> Model:
    registers = c.count("num_register_tokens", 0, minimum=0)
    mask = 1 if "num_register_tokens" in c.left_out else int(c.flag("use_mask_token", True))
    patches = image_of(c, extra=1, registers=registers, learned=mask)
    hidden = _ratio(c)
    mlp: dict[str, Any] = {"d_ff": hidden}
    if c.flag("use_swiglu_ffn"):
        mlp = {"d_ff": (int(hidden * 2 / 3) + 7) // 8 * 8, "gated": True, "act": "silu"}
    assert patches.tokens is not None
    return _scaled(_encoder(c, name, patches, positions=patches.tokens - registers, head="none", **mlp))


def _dinov3(c: Fields, name: str) -> Model:
    """Positions are turned, those of patches alone."""
    query = c.flag("query_bias", True)
    if c.flag("value_bias", True) != query or (c.flag("key_bias") and not query):
        raise ValueError(
            "query_bias, key_bias and value_bias: only those of queries and values together are described here"
        )
    registers = c.count("num_register_tokens", 0, minimum=0)
    patches = image_of(c, extra=1, registers=registers, learned=1)
    heads = c.need("heads")
    mixer = heads_of(
        c,
        kv_heads=heads,
        head_dim=c.head_dim(""),
        qkv_bias=query,
        k_bias=bool(c.flag("key_bias")),
        out_bias=c.flag("proj_bias", True),
    )
    mlp = MLP(d_ff=c.need("d_ff"), act=c.act("gelu"), gated=c.flag("use_gated_mlp"), bias=c.flag("mlp_bias", True))
    block = Block(mixer=Scaled(branch=Still(branch=mixer, tokens=1 + registers)), mlp=Scaled(branch=mlp))
    return Model(
        name=name, vocab=c.labels, d_model=c.need("d_model"), blocks=((block, c.need("layers")),), norm="layer", causal=False, head="none",
        patches=patches,
    )  # fmt: skip


def _beit(c: Fields, name: str) -> Model:
    patches = image_of(c, extra=1, learned=int(c.flag("use_mask_token")))
    (high, wide), heads = patches.grid or (0, 0), c.need("heads")
    distances = (2 * high - 1) * (2 * wide - 1) + 3
    mixer = heads_of(
        c, True, kv_heads=heads, head_dim=c.head_dim(""), rotary=0, k_bias=False,
        position_buckets=distances if c.flag("use_relative_position_bias") else 0,
    )  # fmt: skip
    mean = c.flag("use_mean_pooling", True)
    ends: tuple[End, ...] = (Mean(but=1), EndNorm(name="pooler_norm", tokens=1)) if mean else ()
    if c.flag("use_shared_relative_position_bias"):
        ends = (Learned(name="biases of scores", numbers=distances * heads), *ends)
    positions = patches.tokens if c.flag("use_absolute_position_embeddings") else None
    model = _encoder(c, name, patches, attention=mixer, positions=positions, final_norm=not mean, ends=ends)
    scaled = c.get("layer_scale_init_value", 0.1)
    if isinstance(scaled, bool) or not isinstance(scaled, int | float):
        raise TypeError(f"layer_scale_init_value={short(scaled)}: must be a number")
    return _scaled(model) if scaled > 0 else model


def _yolos(c: Fields, name: str) -> Model:
    image, patch = c.listed("image_size") or [512, 864], c.need("patch_size")
    if len(image) != 2:
        raise ValueError(f"image_size={short(image)}: must be height and width")
    middle = c.flag("use_mid_position_embeddings", True)
    if middle and (wrong := [side for side in image if number("image_size", side) % patch]):
        raise ValueError(f"image_size={wrong[0]}: patch_size={patch} must divide it, where each layer has positions")
    found = c.need("num_detection_tokens")
    patches = Patches(image=(image[0], image[1]), patch=patch, channels=c.count("num_channels", 3), extra=1 + found)
    assert patches.tokens is not None
    later = (c.need("layers") - 1) * patches.tokens if middle else 0
    return _encoder(c, name, replace(patches, learned=later))


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "vit": _vit(1), "vit_msn": _vit(1), "deit": _vit(2), "ijepa": _vit(0), "dinov2": _dinov2, "dinov2_with_registers": _dinov2, "dinov3_vit": _dinov3,
    "beit": _beit, "data2vec-vision": _beit, "yolos": _yolos,
}  # fmt: skip


def _headless(model: Model, labels: Any) -> Model:
    return headless(model)


def _pooler(model: Model, labels: Any) -> Model:
    return with_head(model, outputs=0, each="sequence", dense=True, act="tanh")


def _same(model: Model, labels: Any) -> Model:
    return model


def _labels(name: str, model: Model, **fields: Any) -> Dense:
    return Dense(name=name, widths=(model.vocab,), tokens=1, **fields)


def _without_pooler(model: Model, labels: Any) -> Model:
    return replace(headless(model), ends=tuple(end for end in model.ends if isinstance(end, Learned)))


def _of_mean(model: Model, labels: Any) -> Model:
    """A classifier of the mean of all tokens."""
    return replace(headless(model), ends=(*model.ends, Mean(), _labels("head", model)))


def _of_class_and_mean(model: Model, labels: Any) -> Model:
    """A classifier of the class token and the mean of the patches, side by side."""
    assert model.patches is not None
    learned = model.patches.extra + model.patches.registers
    return replace(model, ends=(Mean(but=learned), _labels("head", model, d_in=2 * model.d_model)))


def _teacher(model: Model, labels: Any) -> Model:
    return replace(headless(model), ends=(_labels("head", model), _labels("teacher_head", model)))


def _detector(model: Model, labels: Any) -> Model:
    """Two heads of three layers for each detection token: its class, or none, and its box."""
    assert model.patches is not None
    d, tokens = model.d_model, model.patches.extra - 1
    heads = (("classes", model.vocab + 1), ("boxes", 4))
    ends = (Dense(name=name, widths=(d, d, outputs), tokens=tokens, act="relu") for name, outputs in heads)
    return replace(headless(model), ends=tuple(ends))


TASKS: dict[str, Tasks] = {
    "vit": {"image": _same, "none": _pooler},
    "vit_msn": {"image": _same, "none": _headless},
    "deit": {"none": _pooler, "image": _same, "teacher": _teacher},
    "ijepa": {"none": _headless, "image": _of_mean},
    "dinov2": {"image": _of_class_and_mean, "none": _headless},
    "dinov3_vit": {"none": _headless},
    "dinov2_with_registers": {"image": _of_class_and_mean, "none": _headless},
    "beit": {"image": _same, "none": _headless},
    "data2vec-vision": {"image": _same, "none": _without_pooler},
    "yolos": {"detection": _detector, "none": _pooler},
}
