"""A model as data: widths, the kinds of its layers, and what stands before and after
them. `Model` adds what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flopkit.arithmetic import exact_div, total
from flopkit.models.blocks import Block, Frames, Patches
from flopkit.models.ends import Dense, End
from flopkit.models.formats import Formats
from flopkit.models.heads import HEADS, Head
from flopkit.models.per_layer import LayerInputs
from flopkit.models.streams import HyperConnections
from flopkit.sizes import Count, Flag, Size, check_fields, choice, number, size

__all__ = ["Stack"]


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The sizes of a `Model`, whose docstring says what each of them means."""

    name: str
    d_model: Size
    vocab: Size = 1
    blocks: tuple[tuple[Block, Size], ...]
    shared: bool = False
    order: tuple[int, ...] = ()
    norm: str = "rms"
    norm_weight: Flag = True
    norm_bias: Flag = True
    final_norm: bool = True
    tied: Flag = False
    head: str | Head = "tokens"
    head_bias: Flag = False
    second_head: Head | None = None
    unused: Count = 0
    positions: Size | None = None
    position_offset: Count = 0
    token_types: int | tuple[int, ...] = 0
    embedding_norm: bool = False
    embedding_dim: Size | None = None
    embedding_bias: Flag = True
    word_dim: Size | None = None
    causal: bool = True
    encoder: Stack | None = None
    ends: tuple[End, ...] = ()
    patches: Patches | None = None
    frames: Frames | None = None
    pictures: Stack | None = None
    mtp: Block | None = None
    layer_inputs: LayerInputs | None = None
    streams: HyperConnections | None = None
    formats: Formats | None = None
    source: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        check_fields(self)
        choice("norm", self.norm, ("rms", "layer"))
        if not isinstance(self.head, Head):
            choice("head", self.head, HEADS)
        if self.second_head is not None and self.second_head.words:
            raise ValueError("second_head is for labels beside the words: give it outputs=")
        counted = tuple((block, size("layers", layers, minimum=0)) for block, layers in self.blocks)
        object.__setattr__(self, "blocks", counted)

    @property
    def end(self) -> Head | None:
        """The head, None where there is none."""
        words = {
            "tokens": Head(bias=self.head_bias),
            "mlm": Head(bias=self.head_bias, dense=True, act="gelu", norm=True),
            "classes": Head(outputs=self.vocab, each="sequence", bias=True),
        }
        return self.head if isinstance(self.head, Head) else words.get(self.head)

    @property
    def image_tokens(self) -> Any:
        """Of the picture part of a model of text and images: tokens that the decoder gets for an image. None for an
        image of any size."""
        for end in reversed(self.ends):
            if isinstance(end, Dense) and end.place == "after":
                tokens = end.tokens if end.tokens is not None or self.patches is None else self.patches.tokens
                return None if tokens is None else exact_div(tokens, end.group)
        return None

    @property
    def heads(self) -> tuple[Head, ...]:
        """The head and the one beside it, those of the two that there are."""
        return tuple(each for each in (self.end, self.second_head) if each is not None)

    @property
    def word_width(self) -> Any:
        """Features of a word's vector, and of what the head reads."""
        return self.d_model if self.word_dim is None else self.word_dim

    @property
    def writes(self) -> bool:
        """Whether it makes text token by token."""
        return self.causal and self.end is not None and self.end.words

    @property
    def layers(self) -> Any:
        """How many layers there are, without those of the encoder."""
        return total(layers for _, layers in self.blocks)

    def layer_order(self, asked: str) -> tuple[int, ...]:
        """The kind of each layer in turn, as a place in ``blocks``; *asked* names the
        argument that needs it."""
        counts = [number("layers", layers) for _, layers in self.blocks]
        layers = sum(counts)
        order = self.order or ((0,) * layers if len(counts) == 1 else ())
        if len(order) != layers:
            raise ValueError(f"{asked}: the order of the layers of {self.name} is not known; give order= to the Model")
        return order
