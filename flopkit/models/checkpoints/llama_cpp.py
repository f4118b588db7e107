"""Mixtures of formats in which llama.cpp stores a model's weights: Q4_K_M and its like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.mixers import Attention
from flopkit.models.formats import Formats, Otherwise
from flopkit.models.stacks.blocks import Block
from flopkit.models.stacks.stack import Stack
from flopkit.names import find
from flopkit.sizes import number

__all__ = ["MIXTURES", "mixture"]


def more_bits(layer: int, layers: int) -> bool:
    """Whether a layer is in the first eighth, the last eighth, or every third between.

    >>> sum(more_bits(i, 32) for i in range(32))
    16
    """
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


class Mixture(NamedTuple):
    """The format of most matrices, that of values and of the last matrix of an MLP in the layers that get more bits, and which these are."""

    most: str
    more: str
    values: Callable[[int, int], bool]
    down: Callable[[int, int], bool]


MIXTURES = {
    "q4_k_s": Mixture("q4_k", "q5_k", lambda i, n: i < 4, lambda i, n: i < n // 8),
    "q4_k_m": Mixture("q4_k", "q6_k", more_bits, more_bits),
    "q5_k_m": Mixture("q5_k", "q6_k", more_bits, more_bits),
}
"""What llama.cpp's names stand for."""

_HEAD = "q6_k"
_SUPERBLOCK = 256  # numbers of a row that a K-quant packs together
_SEVENTY = 80  # layers of a model that llama.cpp takes for a 70B


def mixture(model: Stack, name: str) -> Formats:
    """The formats of llama.cpp's *name* for a dense decoder.

    Values and the last matrix of the MLP get more bits in some layers (`MIXTURES`), the
    head gets 6 in any case; of 80 layers with shared values, no values get fewer than 5.
    Norms and biases are fp32.

    Parameters
    ----------
    model : Stack
        A decoder whose layers are attention and a gated MLP, with RMS norms.
    name : str
        ``"q4_k_s"``, ``"q4_k_m"`` or ``"q5_k_m"``.

    Raises
    ------
    ValueError
        For other models, and for widths that are no multiple of 256: there llama.cpp has
        other rules.

    Notes
    -----
    The rule is that of ``llama_tensor_get_type`` in llama.cpp (src/llama-quant.cpp,
    2025), without overrides. It is for models whose queries, keys and values are three
    matrices in GGUF, as Llama's, Mistral's, Qwen's and Gemma's are; Phi-3's are one,
    which gets 5 or 6 bits.
    Not counted: the vocabulary and the other fields of the file.

    Examples
    --------
    >>> from flopkit import load
    >>> load("llama-3-8b").weight_bytes("q4_k_m")  # the file: 4.92 GB, its vocabulary included
    4912898048
    """
    name = find(name, MIXTURES, "a mixture of formats", argument="weights")
    rule = MIXTURES[name]
    layers = number("layers", model.layers)
    if why := _unlike(model, layers):
        way_out = f"give a format by role, such as weights={{'head': {_HEAD!r}, 'rest': {rule.most!r}}}"
        raise ValueError(f"weights={name!r}: {why}, for which the rule of llama.cpp is not known here; {way_out}")
    places: dict[int, list[int]] = {}
    for place, kind in enumerate(model.layer_order(f"weights={name!r}")):
        places.setdefault(kind, []).append(place)
    others: list[Otherwise] = []
    for kind, own in places.items():
        values, down = (sum(which(place, layers) for place in own) for which in (rule.values, rule.down))
        others += [Otherwise(kind, "v_proj", values, rule.more), Otherwise(kind, "down_proj", down, rule.more)]
        if layers == _SEVENTY and rule.most == "q4_k":
            others.append(Otherwise(kind, "v_proj", len(own) - values, "q5_k"))
    return Formats(rest=rule.most, head=_HEAD, norms="fp32", others=tuple(each for each in others if each.layers))


def _unlike(model: Stack, layers: int) -> str:
    """What of a model the rule is not for; empty where it is."""
    if model.encoder is not None or not model.writes or model.norm != "rms" or model.positions is not None:
        return f"{model.name} is no decoder with RMS norms"
    blocks: list[Block] = [block for block, _ in model.blocks]
    if not all(type(block.mixer) is Attention and type(block.mlp) is MLP and block.mlp.gated for block in blocks):
        return f"{model.name} has layers that are not attention and a gated MLP"
    widths: list[Any] = [model.d_model]
    for block in blocks:
        mixer, mlp = block.mixer, block.mlp
        assert isinstance(mixer, Attention) and isinstance(mlp, MLP)
        widths += [mixer.heads * mixer.head_dim, mlp.d_ff]
        if layers == _SEVENTY and mixer.heads == mixer.kv_heads:
            return f"{model.name} has 80 layers without shared values"
    odd = [width for width in (number("width", each) for each in widths) if width % _SUPERBLOCK]
    return f"{model.name} has rows of {odd[0]} numbers, no multiple of {_SUPERBLOCK}" if odd else ""
