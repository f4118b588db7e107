"""Gemma 3n: a residual stream in several copies, inputs of each layer, and layers that share keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.decoder_fields import ends, heads_of, in_turn
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.per_layer import LayerGate, LayerInputs
from flopkit.models.files.config_fields import WHOLE, WINDOWED, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.alternating import AlternatingUpdates, LowRank
from flopkit.models.stacks.blocks import Block
from flopkit.sizes import number, short

__all__ = ["MODELS"]


def _of_each(key: str, said: Any, layers: int) -> list[Any]:
    if not isinstance(said, list | tuple) or len(said) != layers:
        raise ValueError(f"{key}={short(said)}: must be a list of {layers}, one of each layer")
    return list(said)


def _gemma3n(c: Fields, name: str) -> Model:
    c.refuse(use_bidirectional_attention=False)
    layers, act = c.need("layers"), c.act()
    streams = AlternatingUpdates(count=c.count("altup_num_inputs", 4), scaled=c.flag("altup_correct_scale", True))
    if (active := c.count("altup_active_idx", 0, minimum=0)) >= streams.count:
        raise ValueError(f"altup_active_idx={active}: there are {streams.count} streams, from 0 on")
    usual = [WHOLE if (i + 1) % 5 == 0 else WINDOWED for i in range(layers)]
    order = c.order(layers, (WHOLE, WINDOWED), usual)
    first = layers - c.count("num_kv_shared_layers", 15, minimum=0)
    if first < layers and (first < 1 or set(order[:first]) != set(order)):
        raise ValueError(
            f"num_kv_shared_layers={layers - first} of {layers} layers: each kind among these needs an earlier layer with keys and values"
        )
    widths, cut = c.get("intermediate_size"), c.get("activation_sparsity_pattern")
    sparse = 10 if layers > 10 else 0
    cut = (
        [0.95] * sparse + [0.0] * (layers - sparse)
        if cut is None
        else _of_each("activation_sparsity_pattern", cut, layers)
    )
    if odd := [
        each for each in cut if isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each < 1
    ]:
        raise ValueError(f"activation_sparsity_pattern: {short(odd[0])} must be a number from 0 up to 1")
    widths = (
        [c.need("d_ff")] * layers
        if isinstance(widths, int) or widths is None
        else _of_each("intermediate_size", widths, layers)
    )
    dim = c.count("hidden_size_per_layer_input", 256)
    gate, beside = LayerGate(dim=dim, act=act), LowRank(rank=c.count("laurel_rank", 64))
    blocks = []
    for i, windowed in enumerate(order):
        mixer = heads_of(
            c, c.flag("attention_bias"), **c.all("kv_heads", "head_dim"), qk_norm="head", v_norm=True, reused=i >= first,
            window=c.need("window") if windowed else None,
        )  # fmt: skip
        mlp = MLP(d_ff=number("intermediate_size", widths[i]), act=act, cut=cut[i] > 0)
        blocks.append(Block(mixer=mixer, beside=beside, mlp=mlp, last=gate, norms="both"))
    inputs = LayerInputs(dim=dim, layers=layers, vocab=c.need("vocab_size_per_layer_input"))
    tied = c.flag("tie_word_embeddings", True)
    return Model(name=name, **ends(c, tied=tied), layer_inputs=inputs, streams=streams, **in_turn(blocks))


MODELS: dict[str, Callable[[Fields, str], Model]] = {"gemma3n_text": _gemma3n}
