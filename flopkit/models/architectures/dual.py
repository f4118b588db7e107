"""Dual encoders, a tower for texts and one for pictures: CLIP, SigLIP and SigLIP 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.classes import Tasks
from flopkit.models.files.config_fields import Fields, left_out
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Patches
from flopkit.models.stacks.ends import AttentionPool, Dense, End, EndNorm, Mean
from flopkit.models.stacks.towers import Beside
from flopkit.models.transformer import transformer
from flopkit.sizes import short

__all__ = ["MODELS", "TASKS", "TOWERS", "clip_pictures", "image_of", "inner", "siglip_pictures"]

TOWERS = ("clip", "siglip", "siglip2")
"""Types of two towers."""


def inner(c: Fields, key: str, kind: str) -> Fields:
    """The configuration of a tower: what stands under *key*, with transformers' defaults for the rest."""
    config = c.inside(key)
    if (older := c.fields.get(f"{key}_dict")) is not None:  # transformers fills it up, and it wins
        config = older if isinstance(older, Mapping) else config
    return Fields({"model_type": kind, **config}, kind, left_out(kind))


def _noted(c: Fields, **towers: Fields) -> None:
    """What was taken for keys that the towers' configurations leave out is noted with the rest."""
    for key, tower in towers.items():
        c.taken.update({f"{key}.{name}": value for name, value in tower.taken.items()})


def _layers(c: Fields, act: str) -> dict[str, Any]:
    return {
        **c.all("d_model", "layers", "heads", "d_ff"), "act": c.act(act), "gated": False, "bias": True, "norm": "layer", "rotary": 0,
        "head": "none",
    }  # fmt: skip


def image_of(c: Fields, extra: int, **fields: Any) -> Patches:
    """Square patches of a square image."""
    for key in ("image_size", "patch_size"):
        if isinstance(sides := c.said(key), list | tuple) and len(set(sides)) > 1:
            raise ValueError(f"{key}={short(sides)}: only squares are described here")
    image, patch = (_side(c, key) for key in ("image_size", "patch_size"))
    return Patches(image=image, patch=patch, channels=c.count("num_channels", 3), extra=extra, **fields)


def _side(c: Fields, key: str) -> Any:
    sides = c.said(key)
    return sides[0] if isinstance(sides, list | tuple) and sides else c.need(key)


def _clip_text(c: Fields, name: str) -> Model:
    return transformer(
        name=name, vocab=c.need("vocab"), positions=c.need("max_position_embeddings"), **_layers(c, "quick_gelu")
    )


def clip_pictures(c: Fields, name: str) -> Model:
    """The tower of pictures of CLIP."""
    patches = image_of(c, extra=1, bias=False)
    return transformer(
        name=name, vocab=1, **_layers(c, "quick_gelu"), patches=patches, positions=patches.tokens, causal=False, embedding_norm=True,
        final_norm=False, ends=(EndNorm(name="norm", tokens=1),),
    )  # fmt: skip


def _alone(c: Fields) -> None:
    for each in c.listed("architectures"):
        if any(tower in str(each) for tower in ("TextModel", "VisionModel")):
            raise ValueError(
                f"architectures={short(each)} beside model_type={c.kind!r}: give the configuration of this tower alone, "
                f"with model_type '{c.kind}_text_model' or '{c.kind}_vision_model'"
            )


def _with(model: Model, *ends: End, **fields: Any) -> Model:
    return replace(model, ends=(*model.ends, *ends), **fields)


def _clip(c: Fields, name: str) -> Model:
    _alone(c)
    text, vision = inner(c, "text_config", "clip_text_model"), inner(c, "vision_config", "clip_vision_model")
    width = c.count("projection_dim", 512)
    pictures = _with(clip_pictures(vision, f"{name}, pictures"), _projection(width))
    made = _with(_clip_text(text, name), _projection(width), Beside(tower=pictures, width=width, learned=1))
    _noted(c, text_config=text, vision_config=vision)
    return made


def _projection(width: Any) -> Dense:
    return Dense(name="projection", widths=(width,), tokens=1, bias=False)


def _siglip_text(c: Fields, name: str) -> Model:
    width = c.count("projection_size", c.need("d_model"))
    return transformer(
        name=name, vocab=c.need("vocab"), positions=c.need("max_position_embeddings"), **_layers(c, "gelu_tanh"), causal=False,
        ends=(Dense(name="projection", widths=(width,), tokens=1),),
    )  # fmt: skip


def siglip_pictures(c: Fields, name: str) -> Model:
    """The tower of pictures of SigLIP, and of SigLIP 2, whose table of positions is interpolated to the image."""
    if "num_patches" in c.fields or "num_patches" in c.left_out:
        count, patch = c.need("num_patches"), c.need("patch_size")
        side = round(count**0.5)
        if side * side != count:
            raise ValueError(f"num_patches={short(count)}: must be a square, the rows of a square table of positions")
        patches = Patches(image=side * patch, patch=patch, channels=c.count("num_channels", 3), extra=0, learned=count)
        positions = None
    else:
        patches = image_of(c, extra=0)
        positions = patches.tokens
    layers = _layers(c, "gelu_tanh")
    pool = (AttentionPool(heads=layers["heads"], d_ff=layers["d_ff"], act=layers["act"]),)
    return transformer(
        name=name, vocab=1, **layers, patches=patches, positions=positions, causal=False, ends=pool if c.flag("vision_use_head", True) else (),
    )  # fmt: skip


def _siglip(second: str) -> Callable[[Fields, str], Model]:
    def read(c: Fields, name: str) -> Model:
        _alone(c)
        kind = f"siglip{second}"
        text, vision = inner(c, "text_config", f"{kind}_text_model"), inner(c, "vision_config", f"{kind}_vision_model")
        made, pictures = _siglip_text(text, name), siglip_pictures(vision, f"{name}, pictures")
        width = made.ends[0].widths[0]  # type: ignore[attr-defined]
        if width != pictures.d_model or not pictures.ends:
            raise ValueError(
                f"text_config.projection_size={short(width)} beside vision_config.hidden_size={short(pictures.d_model)}, "
                f"vision_use_head={bool(pictures.ends)}: texts and pictures are compared at one width, after the head"
            )
        _noted(c, text_config=text, vision_config=vision)
        return _with(made, Beside(tower=pictures, width=width, learned=2))

    return read


def _classes(model: Model, labels: Any, but: int) -> Model:
    """The tower of pictures with a classifier of the mean of its tokens."""
    pictures = next(end.tower for end in model.ends if isinstance(end, Beside))
    assert isinstance(pictures, Model)
    ends = tuple(end for end in pictures.ends if not isinstance(end, Dense))
    return replace(
        pictures,
        name=model.name,
        vocab=labels,
        ends=(*ends, Mean(but=but), Dense(name="head", widths=(labels,), tokens=1)),
    )


def _one_tower(tower: Callable[[Fields, str], Model]) -> Callable[[Fields, str], Model]:
    """A tower of CLIP by itself, with the projection where the class has one."""

    def read(c: Fields, name: str) -> Model:
        width = c.count("projection_dim", 512)
        projects = any(str(each).endswith("WithProjection") for each in c.listed("architectures"))
        return _with(tower(c, name), *([_projection(width)] if projects else []))

    return read


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "clip": _clip, "clip_text_model": _one_tower(_clip_text), "clip_vision_model": _one_tower(clip_pictures),
    "siglip": _siglip(""), "siglip2": _siglip("2"), "siglip_vision_model": siglip_pictures, "siglip2_vision_model": siglip_pictures,
}  # fmt: skip


def _same(model: Model, labels: Any) -> Model:
    return model


TASKS: dict[str, Tasks] = {
    "clip": {"none": _same, "image": lambda model, labels: _classes(model, labels, 1)},
    "siglip": {"none": _same, "image": lambda model, labels: _classes(model, labels, 0)},
    "siglip2": {"none": _same, "image": lambda model, labels: _classes(model, labels, 0)},
    "clip_text_model": {"none": _same, "projection": _same},
    "clip_vision_model": {"none": _same, "projection": _same},
    "siglip_vision_model": {"none": _same},
    "siglip2_vision_model": {"none": _same},
}
