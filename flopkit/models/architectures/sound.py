"""Encoders of sound that read the wave itself: wav2vec 2.0, HuBERT, WavLM, UniSpeech."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.classes import Tasks
from flopkit.models.architectures.decoder_fields import in_turn
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.mixers import Attention
from flopkit.models.files.config_fields import ACT_KEYS, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block
from flopkit.models.stacks.ends import Dense, End, Learned, Mean
from flopkit.models.stacks.heads import Head
from flopkit.models.stacks.waves import GatedPositions, NormedMLP, Waves
from flopkit.sizes import short

__all__ = ["MODELS", "TASKS"]

_STRIDES, _KERNELS = [5, 2, 2, 2, 2, 2, 2], [10, 3, 3, 3, 3, 2, 2]


def _share(c: Fields, key: str, usual: float) -> float:
    value = c.get(key, usual)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{key}={short(value)}: must be a number")
    return value


def _waves(c: Fields) -> Waves:
    masked = _share(c, "mask_time_prob", 0.05) > 0 or _share(c, "mask_feature_prob", 0.0) > 0
    norm = c.get("feat_extract_norm", "group")
    if norm not in ("group", "layer"):
        raise ValueError(f"feat_extract_norm={short(norm)}: {c.kind} is described here only with 'group' and 'layer'")
    return Waves(
        widths=tuple(c.listed("conv_dim") or [512] * 7), kernels=tuple(c.listed("conv_kernel") or _KERNELS),
        strides=tuple(c.listed("conv_stride") or _STRIDES), bias=c.flag("conv_bias"), norm=norm,
        act=c.act("gelu", "feat_extract_activation"), last_norm=c.flag("feat_proj_layer_norm", True) if c.kind == "hubert" else True,
        positions=c.need("num_conv_pos_embeddings"), groups=c.need("num_conv_pos_embedding_groups"), learned=int(masked),
    )  # fmt: skip


def _behind(c: Fields, task: str) -> dict[str, Any]:
    """What a class has behind the encoder."""
    if task == "ForCTC":
        return {"head": Head(outputs=c.need("vocab"), bias=True)}
    ends: tuple[End, ...] = ()
    if task == "ForSequenceClassification":
        width = c.need("classifier_proj_size")
        if c.flag("use_weighted_layer_sum"):
            ends = (Learned(name="weights of the layers", numbers=c.need("layers") + 1),)
        classes = Dense(name="classes", d_in=width, widths=(c.labels,), tokens=1)
        ends = (*ends, Dense(name="projector", widths=(width,)), Mean(), classes)
    if task == "ForPreTraining":
        codes, each, wide = (
            c.need("num_codevectors_per_group"),
            c.need("num_codevector_groups"),
            c.need("codevector_dim"),
        )
        last, out = (c.listed("conv_dim") or [512])[-1], c.need("proj_codevector_dim")
        if wide % each:
            raise ValueError(f"codevector_dim={wide}: num_codevector_groups={each} must divide it")
        ends = (
            Dense(name="project_hid", widths=(out,)), Dense(name="quantizer", d_in=last, widths=(each * codes,)),
            Learned(name="codevectors", numbers=codes * wide), Dense(name="project_q", d_in=wide, widths=(out,)),
        )  # fmt: skip
    return {"head": "none", "ends": ends}


def _sound(c: Fields, name: str) -> Model:
    c.refuse(add_adapter=False, conv_pos_batch_norm=False)
    stable = c.flag("do_stable_layer_norm")
    heads, layers = c.need("heads"), c.need("layers")
    sizes: dict[str, Any] = {
        "heads": heads,
        "kv_heads": heads,
        "head_dim": c.head_dim(""),
        "rotary": 0,
        "qkv_bias": True,
        "out_bias": True,
    }
    mixers: list[Attention] = [Attention(**sizes)] * layers
    if c.kind == "wavlm":
        table = c.need("num_buckets")
        mixers = [GatedPositions(**sizes, position_buckets=table if i == 0 else 0) for i in range(layers)]
    mlp = MLP(d_ff=c.need("d_ff"), act=c.act("gelu", *ACT_KEYS), gated=False, bias=True)
    width = c.get("adapter_attn_dim") if c.kind != "wavlm" and stable else None
    adapter = None if width is None else NormedMLP(d_ff=c.need("adapter_attn_dim"), act="relu", gated=False, bias=True)
    blocks = [Block(mixer=each, mlp=mlp, last=adapter, norms="pre" if stable else "post") for each in mixers]
    task = next((str(each).partition("For") for each in c.listed("architectures")), ("", "", ""))
    return Model(
        name=name, d_model=c.need("d_model"), **in_turn(blocks), norm="layer", causal=False, waves=_waves(c), embedding_norm=not stable,
        final_norm=stable, **_behind(c, task[1] + task[2]),
    )  # fmt: skip


def _same(model: Model, labels: Any) -> Model:
    return model


MODELS: dict[str, Callable[[Fields, str], Model]] = dict.fromkeys(
    ("wav2vec2", "hubert", "wavlm", "unispeech", "unispeech-sat"), _sound
)

_HEADS: Tasks = dict.fromkeys(("none", "ctc", "sequence"), _same)
TASKS: dict[str, Tasks] = {**dict.fromkeys(MODELS, _HEADS), "wav2vec2": {**_HEADS, "pretraining": _same}}
