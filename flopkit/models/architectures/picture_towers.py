"""Towers of pictures that stand in a model of text and images alone: Qwen-VL, Pixtral, Llama 4, Gemma 4, GLM-4V, InternVL, SmolVLM, Kimi."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flopkit.models.architectures.decoder_fields import in_turn
from flopkit.models.architectures.dual import image_of
from flopkit.models.architectures.picture_parts import (
    act_of,
    as_far_as,
    handed,
    merger,
    read_layers,
    square,
    taken,
    then,
    width_of,
)
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.mixers import Attention
from flopkit.models.files.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block, Patches
from flopkit.models.stacks.ends import Dense, End, EndNorm, Gated, Learned, Mean
from flopkit.models.stacks.towers import Scaled, Windows
from flopkit.sizes import choice, divides, factor, short

__all__ = ["gemma4", "glm", "internvl", "kimi", "llama4", "minimax", "mistral3", "pixtral", "qwen", "smol"]


def _tower(name: str, d: Any, block: Block, layers: Any, patches: Patches, **fields: Any) -> Model:
    return Model(
        name=name, d_model=d, blocks=((block, layers),), head="none", causal=False, patches=patches, **fields,
    )  # fmt: skip


def _heads(vision: Fields, key: str = "num_attention_heads", **fields: Any) -> Attention:
    """As many heads of keys and values as of queries, which share the width among them."""
    heads, d = vision.need(key), vision.need("hidden_size")
    divides(key, heads, "hidden_size", d)
    return Attention(heads=heads, kv_heads=heads, head_dim=d // heads, **fields)


def _places(vision: Fields, key: str, usual: list[int]) -> list[Any]:
    """Places among the layers; where the key is missing, those that transformers takes, which are noted."""
    if key in vision.fields:
        return vision.listed(key)
    vision.taken[key] = usual
    return usual


def qwen(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """Layers of Qwen2-VL, Qwen2.5-VL (RMS norms, a gated MLP, windows in most layers; EXAONE 4.5's share keys and values, too) and
    Qwen3-VL (a table of positions that is interpolated, further mergers behind some layers)."""
    exaone = c.kind == "exaone4_5"
    second, third = exaone or "qwen2_5" in c.kind, "qwen3" in c.kind
    d = vision.need("hidden_size" if second or third else "embed_dim")
    heads, patch = vision.need("num_heads"), vision.need("patch_size")
    divides("num_heads", heads, "width", d)
    group = square("spatial_merge_size", vision.count("spatial_merge_size", 2))
    out = width_of("out_hidden_size", vision.need("out_hidden_size" if second or third else "hidden_size"), width)
    channels = vision.count("in_channels", 3) * vision.count("temporal_patch_size", 2)
    act = vision.act("silu" if second else "gelu_tanh" if third else "quick_gelu")
    hidden = vision.need("intermediate_size") if second or third else d * vision.count("mlp_ratio", 4)
    kv_heads = vision.need("num_key_value_heads") if exaone else heads
    mixer = Attention(heads=heads, kv_heads=kv_heads, head_dim=d // heads, qkv_bias=True, out_bias=True)
    mlp = MLP(d_ff=hidden, act=act, gated=second, bias=True)
    layers = vision.need("depth")
    norm, window, learned = "layer", group, 0
    blocks = [Block(mixer=mixer, mlp=mlp)] * layers
    ends = merger(d, group, out, "rms" if second else "layer")
    if second:
        norm = "rms"
        side = vision.count("window_size", 112) // (vision.count("spatial_merge_size", 2) * patch)
        window = group * side**2
        whole = _places(vision, "fullatt_block_indexes", [7, 15, 23, 31])
        narrow = Block(mixer=Windows(branch=mixer, tokens=window), mlp=mlp)
        blocks = [blocks[0] if i in whole else narrow for i in range(layers)]
    if third:
        learned = vision.need("num_position_embeddings")
        deep = (
            _places(vision, "deepstack_visual_indexes", [8, 16, 24]) if "qwen3_vl" in c.kind else []
        )  # Qwen3.5 has none
        for place in deep:
            if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < layers:
                raise ValueError(f"deepstack_visual_indexes: {short(place)} is no place among {layers} layers")
            ends = (*merger(d, group, out, "layer", f"merger of layer {place}", after=True), *ends)
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


def pixtral(vision: Fields, name: str) -> Model:
    """The tower of Pixtral, for images of any size: a norm behind the patches, RMS norms, a gated MLP, no bias anywhere.

    Pictures do not see each other. transformers without a kernel for packed sequences lays those of a batch in one row, behind a mask
    of all their pairs; under TORCH each counts by itself here, as with such a kernel.
    """
    patches = Patches(
        image=None, patch=vision.need("patch_size"), channels=vision.count("num_channels", 3), bias=False, extra=0
    )
    block = Block(mixer=_heads(vision), mlp=MLP(d_ff=vision.need("intermediate_size"), act=vision.act("gelu")))
    layers, d = vision.need("num_hidden_layers"), vision.need("hidden_size")
    return _tower(name, d, block, layers, patches, embedding_norm=True, final_norm=False)


def mistral3(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """Pixtral's tower, a norm, a matrix that makes one token of a square of patches, and two dense layers (LightOnOCR's, too)."""
    choice("model_type", vision.kind, ("pixtral",))
    whole = pixtral(vision, name)
    bias, act = False, "gelu"
    if c.kind == "mistral3":
        layers, outputs = read_layers(c, whole, -1)
        if outputs > 1:
            raise ValueError("vision_feature_layer: one layer is described here")
        whole = as_far_as(whole, layers, norm=False)
        bias, act = c.flag("multimodal_projector_bias"), act_of(c, "projector_hidden_act")
    group, d = square("spatial_merge_size", c.count("spatial_merge_size", 2)), whole.d_model
    assert whole.patches is not None
    whole = replace(whole, patches=replace(whole.patches, group=group))
    each: dict[str, Any] = {"group": group, "place": "after"}
    return then(
        whole, EndNorm(name="projector_norm", norm="rms"),
        Dense(name="patch_merger", d_in=group * d, widths=(d,), bias=False, **each),
        Dense(name="projector", d_in=d, widths=(width, width), act=act, bias=bias, **each),
    )  # fmt: skip


def llama4(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """The tower of Llama 4 for one tile of a picture: rotary positions and a learned table, two dense layers behind squares of patches."""
    patches = image_of(vision, extra=1, bias=False)
    d, hidden = vision.need("hidden_size"), vision.need("intermediate_size")
    ratio = factor("pixel_shuffle_ratio", vision.get("pixel_shuffle_ratio", 0.5))
    edge = round(1 / ratio)
    if edge < 1 or edge * ratio != 1:
        raise ValueError(f"pixel_shuffle_ratio={short(ratio)}: must be 1 by a whole number")
    block = Block(
        mixer=_heads(vision, qkv_bias=True, out_bias=True), mlp=MLP(d_ff=hidden, act="gelu", gated=False, bias=True)
    )
    tower = _tower(
        name, d, block, vision.need("num_hidden_layers"), patches, norm="layer", positions=patches.tokens, embedding_norm=True
    )  # fmt: skip
    inner, outer = taken(vision, "projector_input_dim", 4096), taken(vision, "projector_output_dim", 4096)
    width_of("intermediate_size", hidden, edge**2 * d)
    width_of("projector_output_dim", outer, inner)
    width_of("vision_output_dim", taken(vision, "vision_output_dim", 7680), outer)
    each: dict[str, Any] = {"tokens": handed(tower, edge**2), "bias": False, "place": "after"}
    return then(
        tower, Dense(name="adapter", d_in=hidden, widths=(inner, outer), act="gelu", last_act="gelu", **each),
        Dense(name="projector", d_in=outer, widths=(width,), **each),
    )  # fmt: skip


def gemma4(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """The tower of Gemma 4, for images of any size: a table of positions for each axis, norms before and after each branch, and
    the mean of each square of patches. Clipping, and the constants of ``standardize``, are not counted."""
    d, heads = vision.need("hidden_size"), vision.need("num_attention_heads")
    group = square("pooling_kernel_size", vision.count("pooling_kernel_size", 3))
    learned = 2 * vision.need("position_embedding_size")
    patches = Patches(image=None, patch=vision.need("patch_size"), bias=False, extra=0, learned=learned, group=group)
    mixer = Attention(
        heads=heads, kv_heads=vision.need("num_key_value_heads"), head_dim=vision.need("head_dim"), qk_norm="head", v_norm=True
    )  # fmt: skip
    mlp = MLP(d_ff=vision.need("intermediate_size"), act=vision.act("gelu_tanh"))
    tower = _tower(
        name, d, Block(mixer=mixer, mlp=mlp, norms="both"), vision.need("num_hidden_layers"), patches, final_norm=False
    )
    return then(
        tower, Mean(group=group), EndNorm(name="projector_norm", norm="rms", weight=False, width=d, group=group),
        Dense(name="projector", d_in=d, widths=(width,), bias=False, group=group, place="after"),
    )  # fmt: skip


def glm(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """The tower of GLM-4.1V and later, for images of any size: RMS norms, a gated MLP as wide as the output, a convolution that makes
    one token of a square of patches, and a dense layer with a gated MLP behind it."""
    if c.kind in ("glm46v", "glmga"):
        choice("model_type", vision.kind, ("glm4v_vision",))
    d, out = vision.need("hidden_size"), width_of("out_hidden_size", vision.need("out_hidden_size"), width)
    group = square("spatial_merge_size", vision.count("spatial_merge_size", 2))
    patch, act = vision.need("patch_size"), vision.act("silu")
    table = (vision.need("image_size") // patch) ** 2
    channels = vision.count("in_channels", 3) * vision.count("temporal_patch_size", 2)
    patches = Patches(image=None, patch=patch, channels=channels, extra=0, learned=table, group=group)
    mixer = _heads(vision, "num_heads", qkv_bias=vision.flag("attention_bias"))
    tower = _tower(
        name, d, Block(mixer=mixer, mlp=MLP(d_ff=out, act=act)), vision.need("depth"), patches, embedding_norm=True
    )
    each: dict[str, Any] = {"group": group, "place": "after"}
    return then(
        tower, Dense(name="downsample", d_in=group * d, widths=(out,), **each),
        Dense(name="merger", d_in=out, widths=(out,), bias=False, **each),
        EndNorm(name="merger_norm", width=out, group=group, act="gelu"),
        Gated(name="merger", d_in=out, d_ff=vision.need("intermediate_size"), width=out, act=act, group=group),
    )  # fmt: skip


def internvl(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """The tower of InternVL 2.5 and 3 for one tile of a picture: ViT with layer scale, and two dense layers behind squares of patches."""
    for key, usual in (("image_size", 448), ("patch_size", 14)):  # what a file leaves out
        if vision.get(key) is None:
            vision = Fields({**vision.fields, key: usual}, vision.kind, vision.left_out)
            vision.taken[key] = usual
    patches = image_of(vision, extra=1, learned=int(vision.flag("use_mask_token")))
    norm = {"layer_norm": "layer", "rms_norm": "rms"}[
        choice("norm_type", vision.get("norm_type", "layer_norm"), ("layer_norm", "rms_norm"))
    ]
    qk_norm = "whole" if vision.flag("use_qk_norm") else ""
    mixer = _heads(vision, rotary=0, qkv_bias=vision.flag("attention_bias"), out_bias=True, qk_norm=qk_norm)
    mlp = MLP(d_ff=vision.need("intermediate_size"), act=vision.act("gelu"), gated=False, bias=True)
    block = Block(mixer=Scaled(branch=mixer), mlp=Scaled(branch=mlp))
    positions = patches.tokens if vision.flag("use_absolute_position_embeddings", True) else None
    layers, d = vision.need("num_hidden_layers"), vision.need("hidden_size")
    tower = _tower(name, d, block, layers, patches, norm=norm, positions=positions, final_norm=False)
    pooled = vision.flag("use_mean_pooling", True)
    read, outputs = read_layers(c, tower, -1)
    last = c.get("vision_feature_layer", -1) == -1
    if outputs > 1 or c.get("vision_feature_select_strategy", "default") != "default":
        raise ValueError(
            "vision_feature_layer, vision_feature_select_strategy: one layer without its class token is described here"
        )
    cut = as_far_as(tower, read, norm=False)
    if not pooled:
        end: End = EndNorm(name="norm") if last else Learned(name="norm that nothing reads", vectors=2)
        cut = then(cut, end)
    ratio = factor("downsample_ratio", c.get("downsample_ratio", 0.5))
    edge = round(1 / ratio)
    if edge < 1 or edge * ratio != 1:
        raise ValueError(f"downsample_ratio={short(ratio)}: must be 1 by a whole number")
    wide, tokens = edge**2 * d, handed(cut, edge**2)
    return replace(then(
        cut, EndNorm(name="projector_norm", width=wide, tokens=tokens),
        Dense(
            name="projector", d_in=wide, widths=(width, width), act=act_of(c, "projector_hidden_act"), tokens=tokens, place="after"
        ),
    ), notes=tuple(f"vision_config.{key} is missing: {value}, as transformers takes it" for key, value in vision.taken.items()))  # fmt: skip


def smol(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """The tower of Idefics 3 and SmolVLM for one tile of a picture: SigLIP's layers, and a matrix that makes one token of a square of patches."""
    patches = image_of(vision, extra=0)
    d = vision.need("hidden_size")
    block = Block(
        mixer=_heads(vision, rotary=0, qkv_bias=True, out_bias=True),
        mlp=MLP(d_ff=vision.need("intermediate_size"), act=vision.act("gelu_tanh"), gated=False, bias=True),
    )
    tower = _tower(name, d, block, vision.need("num_hidden_layers"), patches, norm="layer", positions=patches.tokens)
    group = square("scale_factor", c.count("scale_factor", 2))
    projector = Dense(
        name="projector", d_in=group * d, widths=(width,), bias=False, tokens=handed(tower, group), place="after"
    )
    return then(tower, projector)


def kimi(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """The tower of Kimi K2.5 (MoonViT), for images of any size: a table of positions that is interpolated, and a norm and two dense
    layers behind squares of patches."""
    for key, value in vision.fields.items():  # the names in the published file, of which transformers reads none
        plain = key.removeprefix("vt_").removeprefix("init_")
        if plain != key and plain in vision.left_out and value != vision.get(plain):
            raise ValueError(f"{key}={short(value)} beside {plain}={short(vision.get(plain))}")
    d = vision.need("hidden_size")
    sides = vision.get("merge_kernel_size", [2, 2])
    if not isinstance(sides, list | tuple) or len(sides) != 2 or sides[0] != sides[1]:
        raise ValueError(f"merge_kernel_size={short(sides)}: squares are described here")
    group = square("merge_kernel_size", sides[0])
    table = vision.need("pos_emb_height") * vision.need("pos_emb_width")
    patches = Patches(image=None, patch=vision.need("patch_size"), extra=0, learned=table, group=group)
    block = Block(
        mixer=_heads(vision, qkv_bias=True, out_bias=True),
        mlp=MLP(d_ff=vision.need("intermediate_size"), act=vision.act("gelu_tanh"), gated=False, bias=True),
    )
    tower = _tower(name, d, block, vision.need("num_hidden_layers"), patches, norm="layer")
    width_of("projection_hidden_size", c.count("projection_hidden_size", d), d)
    return then(tower, *merger(d, group, width, "layer"))


def minimax(c: Fields, vision: Fields, name: str, width: Any) -> Model:
    """The tower of MiniMax M3, for images of any size: two dense layers for each patch, and two behind squares of them."""
    said = vision.inside("img_token_compression_config")  # of the published file, which transformers does not read
    sizes = {key: vision.count(key, 2) for key in ("spatial_merge_size", "temporal_patch_size")}
    for key, value in sizes.items():
        width_of(f"img_token_compression_config.{key}", said.get(key, value), value)
    group, d = square("spatial_merge_size", sizes["spatial_merge_size"]), vision.need("hidden_size")
    channels = vision.count("num_channels", 3) * sizes["temporal_patch_size"]
    patches = Patches(image=None, patch=vision.need("patch_size"), channels=channels, bias=False, extra=0, group=group)
    turned = d // vision.need("num_attention_heads") // 6 * 6  # pairs for time, height and width, as many for each
    block = Block(
        mixer=_heads(vision, rotary=turned, qkv_bias=True, out_bias=True),
        mlp=MLP(d_ff=vision.need("intermediate_size"), act=vision.act("gelu"), gated=False, bias=True),
    )
    tower = _tower(
        name, d, block, vision.need("num_hidden_layers"), patches, norm="layer", embedding_norm=True, final_norm=False
    )
    hidden = c.count("projector_hidden_size", 6144)
    return then(
        tower, Dense(name="projector", widths=(hidden, width), act="gelu", place="after"),
        Dense(name="merger", d_in=group * width, widths=(hidden, width), act="gelu", group=group, place="after"),
    )  # fmt: skip
