"""Building blocks of a model: layers and what their branches say of themselves, and how
images become tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from flopkit.models.parts import Part, Run
from flopkit.sizes import Size, choice, divides, number
from flopkit.training.memory import Kept

__all__ = ["MASK", "Block", "Branch", "Frames", "Patches"]

MASK = 1  # bytes of a position of a dropout mask


class Branch(Protocol):
    """What stands between the input of a branch and the sum that closes it: a mixer, an
    MLP, a mixture of experts."""

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        """Its parts in the order in which they run, from what reads ``"input"`` to what
        makes ``"output"``."""

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """What its forward pass keeps for its backward pass, but for its input, which
        is among what the layer keeps.

        *kernel* and *dropout*: as in `Model.train_memory`.
        """

    def held(self, context: Any) -> Any:
        """Numbers in the cache for a sequence of *context* tokens."""
        return 0

    def handed_on(self, run: Run) -> Any:
        """Bytes that the first layer makes for all layers, so that each layer's
        checkpoint keeps them as an input."""
        return 0


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer: a mixer, in which tokens meet, and an MLP or a mixture of experts,
    each closed by a residual sum.

    Parameters
    ----------
    mixer : Branch | None
        How tokens meet. None: a part of a layer that is looked at alone.
    mlp : Branch, optional
        What each token goes through by itself. None: the layer has none.
    cross : Branch, optional
        Attention to an encoder's output, between the two.
    last : Branch, optional
        A branch after all others, which reads the stream without a norm.
    norms : str, optional
        Where the norms stand: ``"pre"`` (before each branch), ``"post"`` (after each
        branch or sum), ``"both"``, or ``"parallel"``: one norm, and both branches read
        its output (PaLM).
    mixer_norm : bool, optional
        Whether a norm before the mixer is among them. ModernBERT's first layer has none.
    """

    mixer: Branch | None
    mlp: Branch | None = None
    cross: Branch | None = None
    last: Branch | None = None
    norms: str = "pre"
    mixer_norm: bool = True

    def __post_init__(self) -> None:
        choice("norms", self.norms, ("pre", "post", "both", "parallel"))
        if not self.mixer_norm and self.norms != "pre":
            raise ValueError(f"mixer_norm=False is for norms='pre', not for norms={self.norms!r}")

    def norm_before(self, place: int) -> bool:
        """Whether a norm stands before the branch at a *place*."""
        if place == 0 and not self.mixer_norm:
            return False
        return self.norms in ("pre", "both") or (self.norms == "parallel" and place == 0)

    @property
    def branches(self) -> list[tuple[str, Branch]]:
        """The mixer, the cross-attention, the MLP and the last one, whichever are
        present, each with its name."""
        named = (("attention", self.mixer), ("cross", self.cross), ("mlp", self.mlp), ("last", self.last))
        return [(name, branch) for name, branch in named if branch is not None]


@dataclass(frozen=True, kw_only=True)
class Patches:
    """An image cut into square patches, each brought to the model's width by one matrix
    (ViT).

    Parameters
    ----------
    image, patch : int
        Pixels of a side of the image, and of a patch.
    channels : Size, optional
        Colours.
    """

    image: int
    patch: int
    channels: Size = 3

    def __post_init__(self) -> None:
        number("image", self.image)
        divides("patch", number("patch", self.patch), "image", self.image)

    @property
    def tokens(self) -> int:
        """Tokens of an image: its patches and a class token."""
        return (self.image // self.patch) ** 2 + 1


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Sound as frames of a spectrogram, which two convolutions of three frames bring to
    the model's width, the second with a stride of two (Whisper).

    Parameters
    ----------
    tokens : Size
        Tokens that they make: half as many as frames.
    bins : Size
        Numbers of a frame.
    """

    tokens: Size
    bins: Size

    def __post_init__(self) -> None:
        number("tokens", self.tokens)
        number("bins", self.bins)
