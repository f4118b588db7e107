"""The part for text of Llama 3.2 Vision, whose layers of cross-attention run only beside an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.decoder_fields import ends, heads_of
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.files.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block
from flopkit.sizes import short

__all__ = ["MODELS"]

_CROSS = [3, 8, 13, 18, 23, 28, 33, 38]
_PICTURE_WORDS = 8  # rows of the table for words of a picture, which the head does not have


def _mllama(c: Fields, name: str) -> Model:
    c.refuse(tie_word_embeddings=False)
    layers, said = c.need("layers"), c.listed("cross_attention_layers") if "cross_attention_layers" in c.fields else []
    said = said or ([] if c.fields.get("cross_attention_layers") == [] else _CROSS)
    if odd := [each for each in said if isinstance(each, bool) or not isinstance(each, int) or each < 0]:
        raise ValueError(f"cross_attention_layers: {short(odd[0])} is no place of a layer")
    crossed = len({each for each in said if each < layers})
    mixer = heads_of(c, head_dim=c.head_dim(""), **c.all("kv_heads"))
    block = Block(mixer=mixer, mlp=MLP(d_ff=c.need("d_ff"), act=c.act()))
    d, inner = c.need("d_model"), mixer.heads * mixer.head_dim
    attention = 2 * d * (inner + mixer.kv_heads * mixer.head_dim) + 2 * mixer.head_dim  # with norms of queries and keys
    each = attention + 3 * d * c.need("d_ff") + 2 * d + 2  # two norms and two gates
    unused: Any = crossed * each + _PICTURE_WORDS * d
    note = f"{crossed} of {layers} layers, with {crossed * each:,} parameters, see an image; a pass of text alone leaves them out, as here"
    return Model(
        name=name, **ends(c), blocks=((block, layers - crossed),), unused=unused, notes=(note,) if crossed else ()
    )


MODELS: dict[str, Callable[[Fields, str], Model]] = {"mllama_text_model": _mllama}
