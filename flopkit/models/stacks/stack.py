"""A model as data: widths, the kinds of its layers, and what stands before and after
them. `Model` adds what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flopkit.arithmetic import exact_div, is_zero, same, total
from flopkit.models.branches.per_layer import LayerInputs
from flopkit.models.formats import Formats
from flopkit.models.stacks.alternating import AlternatingUpdates
from flopkit.models.stacks.blocks import Block, Frames, Patches
from flopkit.models.stacks.ends import Dense, End, Gated, Newline
from flopkit.models.stacks.heads import HEADS, Head
from flopkit.models.stacks.streams import HyperConnections
from flopkit.models.stacks.waves import Waves
from flopkit.sizes import Count, Flag, Size, check_fields, choice, number, offence, size

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
    waves: Waves | None = None
    pictures: Stack | None = None
    mtp: Block | None = None
    layer_inputs: LayerInputs | None = None
    streams: HyperConnections | AlternatingUpdates | None = None
    formats: Formats | None = None
    source: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        check_fields(self)
        choice("norm", self.norm, ("rms", "layer"))
        if not isinstance(self.head, Head):
            choice("head", self.head, HEADS)
        if self.word_dim is not None and self.embedding_dim is not None:
            raise ValueError(
                f"word_dim={self.word_dim} beside embedding_dim={self.embedding_dim}: words alone are of another width, or all tables are; give one of them"
            )
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
        """Of the picture part of a model of text and images: tokens that the decoder gets for an image, or for a tile
        of it where a picture is cut into tiles. None for an image of any size (see `tokens_for`), and where it
        depends on the picture (LLaVA-NeXT)."""
        tokens = None if self.patches is None else self.patches.tokens
        return None if tokens is None else self.tokens_for(tokens)

    def tokens_for(self, seq: Size) -> Any:
        """Of the picture part of a model of text and images: tokens that the decoder gets for an image of *seq*
        patches. None where nothing is handed on, and where it depends on more than that.

        Raises
        ------
        ValueError
            Where *seq* is no whole number of groups.

        Examples
        --------
        >>> from flopkit import from_hf
        >>> vision = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "hidden_size": 3584, "patch_size": 14}
        >>> text = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        ...         "num_key_value_heads": 4, "vocab_size": 152064}
        >>> qwen = from_hf({"model_type": "qwen2_vl", "text_config": text, "vision_config": vision})
        >>> qwen.pictures.tokens_for((1036 // 14) * (756 // 14))  # an image of 1036 by 756 pixels
        999
        """
        if any(isinstance(end, Newline) for end in self.ends):
            return None
        for end in reversed(self.ends):
            if isinstance(end, Dense | Gated) and end.place == "after":
                return exact_div(size("seq", seq) if end.tokens is None else end.tokens, end.group)
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

    @property
    def one_length(self) -> bool:
        """Whether all parameters see the same tokens, so that their number times the tokens means something: no second
        tower, no later stages with fewer tokens, no sound that becomes tokens on the way.

        Examples
        --------
        >>> from flopkit import load
        >>> load("t5-base").one_length, load("whisper-large-v3").one_length
        (True, False)
        """
        sound = self.encoder is not None and self.encoder.frames is not None
        return not (sound or self.waves is not None or any(hasattr(end, "tower") for end in self.ends))

    def encoded(self, seq: Any, source: Any = None) -> Any:
        """Tokens of the encoder's output, which the decoder sees beside *seq* tokens of its own: those of sound, whose
        length is fixed; else *source*, what is asked for; else as many as *seq*. None: there is no encoder.

        Raises
        ------
        ValueError
            For *source* where there is no encoder, where sound has another length, and above a table of positions.

        Examples
        --------
        >>> from flopkit import load
        >>> load("whisper-large-v3").encoded(4), load("t5-base").encoded(4), load("t5-base").encoded(4, source=512)
        (1500, 4, 512)
        """
        if self.encoder is None:
            if source is not None:
                raise ValueError(f"source={source}: {self.name} has no encoder; leave source= out")
            return None
        if self.encoder.frames is not None:
            fixed = self.encoder.frames.tokens
            if source is not None and not same(source, fixed):
                raise ValueError(
                    f"source={source}: the encoder of {self.name} makes {fixed} tokens of any sound, which is padded to one length; leave source= out"
                )
            return fixed
        if source is None:
            return seq
        source, rows = size("source", source), self.encoder.positions
        if rows is not None:
            rows = rows - self.encoder.position_offset
            if wrong := offence(lambda tokens, most: tokens > most, source, rows):
                raise ValueError(
                    f"source={wrong[0]}: the encoder of {self.name} has learned positions for {wrong[1]} tokens; give at most so many"
                )
        return source

    def begun(self, prompt: Any, source: Any = None, prefix: Any = 0) -> tuple[Any, Any]:
        """New tokens of the decoder in a prefill, and tokens of the encoder's output. Of an encoder-decoder of text
        without *source* the *prompt* is what the encoder reads, and the decoder begins with one token; behind a *prefix*
        the encoder has run already, and the prompt is the decoder's.

        >>> from flopkit import load
        >>> t5 = load("t5-base")
        >>> t5.begun(512), t5.begun(2, source=512), load("whisper-large-v3").begun(4), load("gpt2").begun(4)
        ((1, 512), (2, 512), (4, 1500), (4, None))
        """
        encoder = self.encoder
        if encoder is None or encoder.frames is not None or source is not None or not is_zero(prefix):
            return prompt, self.encoded(prompt + prefix, source)
        return 1, self.encoded(prompt, prompt)

    def layer_order(self, asked: str) -> tuple[int, ...]:
        """The kind of each layer in turn, as a place in ``blocks``; *asked* names the
        argument that needs it."""
        counts = [number("layers", layers) for _, layers in self.blocks]
        layers = sum(counts)
        order = self.order or ((0,) * layers if len(counts) == 1 else ())
        if len(order) != layers:
            raise ValueError(f"{asked}: the order of the layers of {self.name} is not known; give order= to the Model")
        return order
