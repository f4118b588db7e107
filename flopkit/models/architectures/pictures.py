"""The picture part of models of text and images: the tower, and what brings its tokens to the decoder's width."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flopkit.models.architectures import picture_towers as towers
from flopkit.models.architectures.dual import clip_pictures, siglip_pictures
from flopkit.models.architectures.picture_parts import (
    act_of,
    as_far_as,
    handed,
    read_layers,
    square,
    then,
    width_of,
)
from flopkit.models.files.config_fields import Fields, left_out
from flopkit.models.model import Model
from flopkit.models.stacks.ends import Dense, End, EndNorm, Gated, Learned, Mean, Newline
from flopkit.sizes import choice, divides

__all__ = ["picture_types", "pictures_of"]

Reader = Callable[[Fields, Fields, str, Any], Model]
_TOWERS: Mapping[str, Callable[[Fields, str], Model]] = {
    "clip_vision_model": clip_pictures, "siglip_vision_model": siglip_pictures, "pixtral": towers.pixtral,
}  # fmt: skip


def pictures_of(config: Mapping[str, Any], width: Any) -> Model | None:
    """The picture part of a model of text and images whose decoder has *width* features; None where it is not described here."""
    outer, vision = str(config.get("model_type")), config.get("vision_config")
    if outer not in _PARTS or not isinstance(vision, Mapping):
        return None
    kind, read = _PARTS[outer]
    if outer in _ANY_TOWER:  # elsewhere transformers takes the one tower, whatever its type is called
        kind = str(vision.get("model_type") or kind)
    c, inside = Fields(config, outer, left_out(outer)), Fields(vision, kind, left_out(kind))
    try:
        made = read(c, inside, f"{outer}, pictures", width)
        _ = made.params  # sizes that do not fit one another
    except (ValueError, TypeError):  # of a variant that is not described here
        return None
    notes = [
        f"vision_config.{key} is missing: {value}, as transformers takes it" for key, value in inside.taken.items()
    ]
    notes += [f"{key} is missing: {value}, as transformers takes it" for key, value in c.taken.items()]
    return replace(made, notes=(*made.notes, *notes))


def _tower(vision: Fields, name: str) -> Model:
    return _TOWERS[choice("model_type", vision.kind, tuple(_TOWERS))](vision, name)


def _siglip(vision: Fields, name: str) -> Model:
    """A tower of SigLIP as far as its norm; the head is there, and nothing reads it."""
    choice("model_type", vision.kind, ("siglip_vision_model",))
    whole = _tower(vision, name)
    return as_far_as(whole, whole.layers, norm=True)


def _llava(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """A tower as far as one layer, or as several whose outputs stand side by side, and two dense layers."""
    whole = _tower(vision, name)
    vip = c.kind == "vipllava"
    layers, outputs = read_layers(c, whole, (-2, -5, -8, -11, 6) if vip else -2)
    assert whole.patches is not None
    strategy = "default" if vip else choice(
        "vision_feature_select_strategy", c.get("vision_feature_select_strategy", "default"), ("default", "full")
    )  # fmt: skip
    tokens = whole.patches.tokens
    if strategy == "default":
        if tokens is None:
            raise ValueError("vision_feature_select_strategy='default' beside a tower without a class token")
        tokens -= 1
    wide = outputs * whole.d_model
    ends: list[End] = [EndNorm(name="projector_norm", width=wide, tokens=tokens)] if vip else []
    bias = True if vip else c.flag("multimodal_projector_bias", True)
    act = act_of(c, "projector_hidden_act")
    ends.append(
        Dense(name="projector", d_in=wide, widths=(width, width), tokens=tokens, act=act, bias=bias, place="after")
    )
    return then(as_far_as(whole, layers, norm=False), *ends)


def _llava_next(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """LLaVA's part for one tile of a picture; each row of the tiles ends in a learned token."""
    c.refuse(spatial_pool_mode="average")
    made = _llava(c, vision, name, width)
    if made.patches is None or made.patches.tokens is None:
        raise ValueError("a picture in tiles needs a tower for images of one size")
    return then(made, Newline(name="image_newline", numbers=width))


def _video_llava(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """LLaVA's part; a second tower like the first is for films, and does nothing with a picture."""
    films = _tower(vision, name)
    return then(_llava(c, vision, name, width), Learned(name="tower of films", numbers=films.params))


def _gemma3(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    cut = _siglip(vision, name)
    assert cut.patches is not None and cut.patches.grid is not None
    side, tokens = cut.patches.grid[0], c.count("mm_tokens_per_image", 256)
    made = round(tokens**0.5)
    if made * made != tokens:
        raise ValueError(f"mm_tokens_per_image={tokens}: must be a square")
    divides("mm_tokens_per_image", made, "patches of a side", side)
    return then(
        cut,
        Mean(group=(side // made) ** 2),
        EndNorm(name="projector_norm", tokens=tokens, norm="rms"),
        Dense(name="projector", widths=(width,), tokens=tokens, bias=False, place="after"),
    )


def _paligemma(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    made = width_of("projection_dim", c.count("projection_dim", 2048), width)
    return then(_siglip(vision, name), Dense(name="projector", widths=(made,), place="after"))


def _deepseek(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    return then(_siglip(vision, name), Dense(name="aligner", widths=(width, width), act="gelu", place="after"))


def _cohere(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """Squares of patches through a gated MLP; in Aya Vision a norm stands before it, and the tower may be read before its end."""
    aya = c.kind == "aya_vision"
    cut, outputs = _siglip(vision, name), 1
    if aya:
        c.refuse(vision_feature_select_strategy="full")
        whole = _tower(vision, name)
        layers, outputs = read_layers(c, whole, -1)
        cut = as_far_as(whole, layers, norm=False)
    if outputs > 1:
        raise ValueError("vision_feature_layer: one layer is described here")
    group = square("downsample_factor", c.count("downsample_factor", 2))
    hidden = c.count("alignment_intermediate_size", width if aya else 36864)
    divides("2", 2, "alignment_intermediate_size", hidden)
    wide, tokens = group * cut.d_model, handed(cut, group)
    ends: list[End] = [EndNorm(name="projector_norm", width=wide, tokens=tokens)] if aya else []
    ends.append(Gated(name="projector", d_in=wide, d_ff=hidden // 2, width=width, act="silu", bias=True, tokens=tokens))
    return then(cut, *ends)


def _lfm2(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """SigLIP 2's tower for images of any size, whose table of positions is interpolated, and squares of patches through two dense layers."""
    choice("model_type", vision.kind, ("siglip2_vision_model",))
    whole = siglip_pictures(vision, name)
    cut = as_far_as(whole, whole.layers, norm=True)
    assert cut.patches is not None
    group = square("downsample_factor", c.count("downsample_factor", 2))
    cut = replace(cut, patches=replace(cut.patches, image=None, group=group))
    wide = group * cut.d_model
    ends: list[End] = []
    if c.flag("projector_use_layernorm", True):
        ends.append(EndNorm(name="projector_norm", width=wide, group=group))
    hidden, act = c.count("projector_hidden_size", 2560), act_of(c, "projector_hidden_act")
    bias = c.flag("projector_bias", True)
    ends.append(
        Dense(name="projector", d_in=wide, widths=(hidden, width), act=act, bias=bias, group=group, place="after")
    )
    return then(cut, *ends)


_PARTS: Mapping[str, tuple[str, Reader]] = {
    "llava": ("clip_vision_model", _llava),
    "llava_next": ("clip_vision_model", _llava_next),
    "llava_next_video": ("clip_vision_model", _llava_next),
    "llava_onevision": ("siglip_vision_model", _llava_next),
    "vipllava": ("clip_vision_model", _llava),
    "video_llava": ("clip_vision_model", _video_llava),
    "gemma3": ("siglip_vision_model", _gemma3),
    "shieldgemma2": ("siglip_vision_model", _gemma3),
    "gemma4": ("gemma4_vision", towers.gemma4),
    "paligemma": ("siglip_vision_model", _paligemma),
    "deepseek_vl": ("siglip_vision_model", _deepseek),
    "aya_vision": ("siglip_vision_model", _cohere),
    "cohere2_vision": ("siglip_vision_model", _cohere),
    "mistral3": ("pixtral", towers.mistral3),
    "lighton_ocr": ("pixtral", towers.mistral3),
    "llama4": ("llama4_vision_model", towers.llama4),
    "glm4v": ("glm4v_vision", towers.glm),
    "glm4v_moe": ("glm4v_moe_vision", towers.glm),
    "glm46v": ("glm4v_vision", towers.glm),
    "idefics3": ("idefics3_vision", towers.smol),
    "smolvlm": ("smolvlm_vision", towers.smol),
    "internvl": ("internvl_vision", towers.internvl),
    "qianfan_ocr": ("qianfan_ocr_vision", towers.internvl),
    "kimi_k25": ("kimi_k25_vision", towers.kimi),
    "minimax_m3_vl": ("minimax_m3_vl_vision", towers.minimax),
    "lfm2_vl": ("siglip2_vision_model", _lfm2),
    "exaone4_5": ("exaone4_5_vision", towers.qwen),
    "qwen2_vl": ("qwen2_vl_vision", towers.qwen),
    "qwen2_5_vl": ("qwen2_5_vl_vision", towers.qwen),
    "qwen3_vl": ("qwen3_vl_vision", towers.qwen),
    "qwen3_vl_moe": ("qwen3_vl_moe_vision", towers.qwen),
    "qwen3_5": ("qwen3_5_vision", towers.qwen),
    "qwen3_5_moe": ("qwen3_5_moe_vision", towers.qwen),
}

_ANY_TOWER = frozenset(
    (
        "llava", "llava_next", "llava_next_video", "llava_onevision", "vipllava", "video_llava", "gemma3", "shieldgemma2", "paligemma",
        "deepseek_vl", "aya_vision", "cohere2_vision", "mistral3", "lighton_ocr", "glm46v", "lfm2_vl",
    )
)  # fmt: skip
"""Models whose file names the type of their tower."""


def picture_types() -> dict[str, str]:
    """Types of models of text and images whose picture part is described, and the type of the tower that is usual there.

    >>> picture_types()["mistral3"]
    'pixtral'
    """
    return {outer: kind for outer, (kind, _) in sorted(_PARTS.items())}
