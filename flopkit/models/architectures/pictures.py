"""The picture part of models of text and images: the tower, and what brings its tokens to the decoder's width."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.decoder_fields import in_turn
from flopkit.models.architectures.dual import clip_pictures, siglip_pictures
from flopkit.models.blocks import Block, Patches
from flopkit.models.config_fields import ACTS, Fields, left_out
from flopkit.models.ends import Dense, End, EndNorm, Learned, Mean
from flopkit.models.feed_forward import MLP
from flopkit.models.mixers import Attention
from flopkit.models.model import Model
from flopkit.models.towers import Windows
from flopkit.sizes import choice, divides, number, short

__all__ = ["pictures_of"]

Reader = Callable[[Fields, Fields, str, Any], Model]
_TOWERS: Mapping[str, Callable[[Fields, str], Model]] = {
    "clip_vision_model": clip_pictures, "siglip_vision_model": siglip_pictures,
}  # fmt: skip


def pictures_of(config: Mapping[str, Any], width: Any) -> Model | None:
    """The picture part of a model of text and images whose decoder has *width* features; None where it is not described here."""
    outer, vision = str(config.get("model_type")), config.get("vision_config")
    if outer not in _PARTS or not isinstance(vision, Mapping):
        return None
    kind, read = _PARTS[outer]
    kind = str(vision.get("model_type") or kind)
    c, inside = Fields(config, outer, left_out(outer)), Fields(vision, kind, left_out(kind, f"{outer}_vision"))
    try:
        made = read(c, inside, f"{outer}, pictures", width)
    except (ValueError, TypeError):  # of a variant that is not described here
        return None
    notes = [
        f"vision_config.{key} is missing: {value}, as transformers takes it" for key, value in inside.taken.items()
    ]
    notes += [f"{key} is missing: {value}, as transformers takes it" for key, value in c.taken.items()]
    return replace(made, notes=(*made.notes, *notes))


def _tower(vision: Fields, name: str) -> Model:
    return _TOWERS[choice("model_type", vision.kind, tuple(_TOWERS))](vision, name)


def _as_far_as(whole: Model, layers: Any, norm: bool) -> Model:
    """The first *layers* of a tower, and the *norm* behind them; the parameters of the rest are there, and do no work."""
    if not 0 < layers <= whole.layers:
        raise ValueError(f"{whole.name}: {layers} layers are read of {whole.layers}")
    part = replace(whole, blocks=((whole.blocks[0][0], layers),), ends=(), final_norm=whole.final_norm and norm)
    rest = Learned(name="layers that nothing reads", numbers=whole.params - part.params)
    return replace(part, ends=(rest,))


def _with(model: Model, *ends: End) -> Model:
    return replace(model, ends=(*model.ends, *ends))


def _act(c: Fields, key: str) -> str:
    return ACTS[choice(key, c.get(key, "gelu"), tuple(ACTS))]


def _llava(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    layer = c.get("vision_feature_layer", -2)
    if isinstance(layer, bool) or not isinstance(layer, int) or layer in (0, -1):
        raise ValueError(f"vision_feature_layer={short(layer)}: one layer before the last is described here")
    whole = _tower(vision, name)
    layers = layer if layer > 0 else whole.layers + 1 + layer
    if layers == whole.layers:
        raise ValueError(f"vision_feature_layer={layer}: one layer before the last is described here")
    assert whole.patches is not None and whole.patches.tokens is not None
    strategy = choice(
        "vision_feature_select_strategy", c.get("vision_feature_select_strategy", "default"), ("default", "full")
    )
    tokens = whole.patches.tokens - (strategy == "default")
    projector = Dense(
        name="projector", widths=(width, width), tokens=tokens, act=_act(c, "projector_hidden_act"),
        bias=c.flag("multimodal_projector_bias", True), place="after",
    )  # fmt: skip
    return _with(_as_far_as(whole, layers, norm=False), projector)


def _gemma3(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    whole = _tower(vision, name)
    assert whole.patches is not None and whole.patches.grid is not None
    side, tokens = whole.patches.grid[0], c.count("mm_tokens_per_image", 256)
    made = round(tokens**0.5)
    if made * made != tokens:
        raise ValueError(f"mm_tokens_per_image={tokens}: must be a square")
    divides("mm_tokens_per_image", made, "patches of a side", side)
    return _with(
        _as_far_as(whole, whole.layers, norm=True),
        Mean(group=(side // made) ** 2),
        EndNorm(name="projector_norm", tokens=tokens, norm="rms"),
        Dense(name="projector", widths=(width,), tokens=tokens, bias=False, place="after"),
    )


def _merger(d: Any, group: int, width: Any, norm: str, name: str = "merger", after: bool = False) -> tuple[End, ...]:
    """A norm and two dense layers that make one token of *group*; *after*: the norm is of these together."""
    normed = EndNorm(name=f"{name}_norm", norm=norm, width=group * d if after else d, group=group if after else 1)
    return (normed, Dense(name=name, d_in=group * d, widths=(group * d, width), act="gelu", group=group, place="after"))


def _qwen(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """Layers of Qwen2-VL, Qwen2.5-VL (RMS norms, a gated MLP, windows in most layers) and Qwen3-VL (a table of positions that is
    interpolated, further mergers behind some layers)."""
    second, third = "qwen2_5" in c.kind, "qwen3" in c.kind
    d = vision.need("hidden_size" if second or third else "embed_dim")
    heads, patch = vision.need("num_heads"), vision.need("patch_size")
    divides("num_heads", heads, "width", d)
    group = number("spatial_merge_size", vision.count("spatial_merge_size", 2)) ** 2
    out = vision.need("out_hidden_size" if second or third else "hidden_size")
    if out != width:
        raise ValueError(f"out_hidden_size={short(out)} beside a decoder of {short(width)}")
    channels = vision.count("in_channels", 3) * vision.count("temporal_patch_size", 2)
    act = vision.act("silu" if second else "gelu_tanh" if third else "quick_gelu")
    hidden = vision.need("intermediate_size") if second or third else d * vision.count("mlp_ratio", 4)
    mixer = Attention(heads=heads, kv_heads=heads, head_dim=d // heads, qkv_bias=True, out_bias=True)
    mlp = MLP(d_ff=hidden, act=act, gated=second, bias=True)
    layers = vision.need("depth")
    norm, window, learned = "layer", group, 0
    blocks = [Block(mixer=mixer, mlp=mlp)] * layers
    ends = _merger(d, group, out, "rms" if second else "layer")
    if second:
        norm = "rms"
        side = vision.count("window_size", 112) // (vision.count("spatial_merge_size", 2) * patch)
        window = group * side**2
        whole = vision.listed("fullatt_block_indexes") or [7, 15, 23, 31]
        narrow = Block(mixer=Windows(branch=mixer, tokens=window), mlp=mlp)
        blocks = [blocks[0] if i in whole else narrow for i in range(layers)]
    if third:
        learned = vision.need("num_position_embeddings")
        said = "deepstack_visual_indexes" in vision.fields
        deep = vision.listed("deepstack_visual_indexes") if said else [8, 16, 24]
        deep = deep if "qwen3_vl" in c.kind else []  # Qwen3.5 has none, whatever its file says
        for place in deep:
            if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < layers:
                raise ValueError(f"deepstack_visual_indexes: {short(place)} is no place among {layers} layers")
            ends = (*_merger(d, group, out, "layer", f"merger of layer {place}", after=True), *ends)
    patches = Patches(image=None, patch=patch, channels=channels, bias=third, extra=0, learned=learned, group=window)
    return Model(
        name=name,
        d_model=d,
        **in_turn(blocks),
        norm=norm,
        final_norm=False,
        head="none",
        causal=False,
        patches=patches,
        ends=ends,
    )


_PARTS: Mapping[str, tuple[str, Reader]] = {
    "llava": ("clip_vision_model", _llava),
    "gemma3": ("siglip_vision_model", _gemma3),
    "qwen2_vl": ("qwen2_vl_vision", _qwen),
    "qwen2_5_vl": ("qwen2_5_vl_vision", _qwen),
    "qwen3_vl": ("qwen3_vl_vision", _qwen),
    "qwen3_vl_moe": ("qwen3_vl_moe_vision", _qwen),
    "qwen3_5": ("qwen3_5_vision", _qwen),
    "qwen3_5_moe": ("qwen3_5_moe_vision", _qwen),
}
