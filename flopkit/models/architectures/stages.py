"""Encoders of images whose layers get wider from stage to stage: Swin, ConvNeXt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.classes import Tasks
from flopkit.models.architectures.dual import image_of
from flopkit.models.branches.depthwise import DepthwiseMLP
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.mixers import Attention
from flopkit.models.files.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block
from flopkit.models.stacks.ends import Dense, End, EndNorm, Mean
from flopkit.models.stacks.towers import Scaled, Then, Windows
from flopkit.sizes import divides, number, short

__all__ = ["MODELS", "TASKS"]


def _swin(c: Fields, name: str) -> Model:
    depths, heads = c.listed("depths") or [2, 2, 6, 2], c.listed("num_heads") or [3, 6, 12, 24]
    if len(depths) != len(heads):
        raise ValueError(f"depths={short(depths)} beside num_heads={short(heads)}: each stage needs both")
    patches = image_of(c, extra=0)
    assert patches.grid is not None and patches.tokens is not None
    ratio = c.get("mlp_ratio", 4)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or ratio <= 0:
        raise TypeError(f"mlp_ratio={short(ratio)}: must be a number above 0")
    side, width, window = patches.grid[0], c.need("embed_dim"), c.need("window_size")
    stages: list[Model] = []
    for place, (layers, count) in enumerate(zip(depths, heads, strict=True)):
        number(f"depths[{place}]", layers)
        divides(f"num_heads[{place}]", number(f"num_heads[{place}]", count), "width", width)
        divides("window_size", window, f"patches of a side in stage {place + 1}", side)
        if place + 1 < len(depths):
            divides("2", 2, f"patches of a side in stage {place + 1}", side)
        mixer = Attention(
            heads=count, kv_heads=count, head_dim=width // count, rotary=0, qkv_bias=c.flag("qkv_bias", True), out_bias=True,
            position_buckets=(2 * window - 1) ** 2,
        )  # fmt: skip
        mlp = MLP(d_ff=int(width * ratio), act=c.act("gelu"), gated=False, bias=True)
        shift = window // 2 if side > window else 0
        plain, moved = (
            Block(mixer=Windows(branch=mixer, tokens=window**2, shift=shift if each else 0), mlp=mlp) for each in (0, 1)
        )
        odd = layers // 2
        blocks = ((plain, layers - odd), (moved, odd)) if odd and shift else ((plain, layers),)
        order = tuple(i % 2 for i in range(layers)) if len(blocks) > 1 else ()
        stages.append(
            Model(
                name=f"{name}, stage {place + 1}", d_model=width, blocks=blocks, order=order, norm="layer", head="none", causal=False,
                final_norm=place + 1 == len(depths),
            )
        )  # fmt: skip
        side, width = side // 2, 2 * width
    last: tuple[End, ...] = (Mean(),)
    whole = replace(stages[-1], ends=last)
    for place, stage in reversed([*enumerate(stages[:-1], start=1)]):
        d = stage.d_model
        merge = Dense(name="merge", d_in=4 * d, widths=(2 * d,), bias=False, group=4, place="after")
        whole = replace(
            stage,
            ends=(
                EndNorm(name="merge_norm", width=4 * d, group=4),
                merge,
                Then(name=f"stage {place + 1}", tower=whole, group=4),
            ),
        )
    positions = patches.tokens if c.flag("use_absolute_embeddings") else None
    return replace(whole, name=name, vocab=c.labels, patches=patches, positions=positions, embedding_norm=True)


def _convnext(c: Fields, name: str) -> Model:
    """Between two stages stand a norm and a convolution over squares of 2 × 2 patches, behind the last a mean and a norm."""
    depths, widths = c.listed("depths") or [3, 3, 9, 3], c.listed("hidden_sizes") or [96, 192, 384, 768]
    if not len(depths) == len(widths) == c.need("num_stages"):
        raise ValueError(
            f"depths={short(depths)}, hidden_sizes={short(widths)}, num_stages={c.need('num_stages')}: each stage needs both"
        )
    patches, act = image_of(c, extra=0), c.act("gelu")
    assert patches.grid is not None
    v2 = c.kind == "convnextv2"
    scaled = not v2 and c.get("layer_scale_init_value", 1e-6) > 0
    side, stages = patches.grid[0], list[Model]()
    for place, (layers, width) in enumerate(zip(depths, widths, strict=True)):
        number(f"depths[{place}]", layers)
        number(f"hidden_sizes[{place}]", width)
        if place + 1 < len(depths):
            divides("2", 2, f"patches of a side in stage {place + 1}", side)
        branch: Any = DepthwiseMLP(side=side, d_ff=4 * width, act=act, response_norm=v2)
        block = Block(mixer=Scaled(branch=branch) if scaled else branch, mlp=None, mixer_norm=False)
        stages.append(
            Model(
                name=f"{name}, stage {place + 1}", d_model=width, blocks=((block, layers),), norm="layer", head="none", causal=False,
                final_norm=False,
            )
        )  # fmt: skip
        side = side // 2
    whole = replace(stages[-1], ends=(Mean(), EndNorm(name="norm", tokens=1)))
    for place, stage in reversed([*enumerate(stages[:-1], start=1)]):
        d = stage.d_model
        merge = Dense(name="downsample", d_in=4 * d, widths=(whole.d_model,), group=4, place="after")
        whole = replace(
            stage, ends=(EndNorm(name="downsample_norm"), merge, Then(name=f"stage {place + 1}", tower=whole, group=4))
        )
    return replace(whole, name=name, vocab=c.labels, patches=patches, embedding_norm=True)


def _classes(model: Model, labels: Any) -> Model:
    """A classifier of the mean of the last stage's tokens."""

    def ended(stage: Model) -> Model:
        *before, last = stage.ends
        if isinstance(last, Then):
            assert isinstance(last.tower, Model)
            return replace(stage, ends=(*before, replace(last, tower=ended(last.tower))))
        return replace(stage, ends=(*stage.ends, Dense(name="head", widths=(model.vocab,), tokens=1)))

    return ended(model)


MODELS: dict[str, Callable[[Fields, str], Model]] = {"swin": _swin, "convnext": _convnext, "convnextv2": _convnext}

TASKS: dict[str, Tasks] = {kind: {"image": _classes, "none": lambda model, labels: model} for kind in MODELS}
