"""Encoder-decoders: T5 and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.classes import Tasks, headless
from flopkit.models.blocks import Block
from flopkit.models.config_fields import Fields
from flopkit.models.feed_forward import MLP
from flopkit.models.mixers import Attention
from flopkit.models.model import Model
from flopkit.names import hint

__all__ = ["MODELS", "TASKS"]


def _t5(c: Fields, name: str) -> Model:
    act = str(c.get("feed_forward_proj", "relu"))
    gated = act.startswith("gated-")
    kinds = {"relu": "relu", "gated-gelu": "gelu_tanh", "gated-silu": "silu", "gelu": "gelu"}
    if act not in kinds:
        raise ValueError(f"feed_forward_proj={act!r} is not described here; {hint(act, kinds)}")
    heads, head_dim, buckets = c.need("heads"), c.need("head_dim"), c.need("relative_attention_num_buckets")
    sizes = {"heads": heads, "kv_heads": heads, "head_dim": head_dim, "rotary": 0}
    mlp = MLP(d_ff=c.need("d_ff"), act=kinds[act], gated=gated)
    common = c.all("d_model", "vocab") | {
        "tied": c.flag("tie_word_embeddings", True) and c.flag("scale_decoder_outputs", True)
    }

    def stack(layers: int, cross: Any) -> dict[str, Any]:
        first, later = (
            Block(mixer=Attention(**sizes, position_buckets=rows), mlp=mlp, cross=cross) for rows in (buckets, 0)
        )
        return {"blocks": ((first, 1), (later, layers - 1)), "order": (0, *(1,) * (layers - 1))}

    layers = c.need("num_layers")
    encoder = Model(name="encoder", **common, **stack(layers, None), causal=False, head="none")
    cross = Attention(**sizes, cross=True)
    return Model(name=name, **common, **stack(c.count("num_decoder_layers", layers), cross), encoder=encoder)


MODELS: dict[str, Callable[[Fields, str], Model]] = {"t5": _t5}

_T5: Tasks = {"text": lambda model, labels: model, "none": lambda model, labels: headless(model)}

TASKS: dict[str, Tasks] = {"t5": _T5}
