"""What a model is made of beside its sizes: its layers, and how images become tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit.sizes import Size, choice, divides, number

__all__ = ["Block", "Patches"]


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer: a mixer, in which tokens meet, and an MLP or a mixture of experts, each closed by a residual sum.

    Parameters
    ----------
    mixer : Any
        How tokens meet.
    mlp : Any, optional
        What each token goes through by itself. None: the layer has none.
    cross : Any, optional
        Attention to an encoder's output, between the two.
    norms : str, optional
        Where the norms stand: ``"pre"`` (before each branch), ``"post"`` (after each branch or sum), ``"both"``, or
        ``"parallel"``: one norm, and both branches read its output (PaLM).
    """

    mixer: Any
    mlp: Any = None
    cross: Any = None
    norms: str = "pre"

    def __post_init__(self) -> None:
        choice("norms", self.norms, ("pre", "post", "both", "parallel"))

    @property
    def branches(self) -> list[tuple[str, Any]]:
        """The mixer, the cross-attention and the MLP, those that there are, each with its name."""
        named = (("attention", self.mixer), ("cross", self.cross), ("mlp", self.mlp))
        return [(name, branch) for name, branch in named if branch is not None]


@dataclass(frozen=True, kw_only=True)
class Patches:
    """An image cut into square patches, each brought to the model's width by one matrix (ViT).

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
