"""Building blocks of a model: layers and what their branches say of themselves, and how
images become tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from flopkit.arithmetic import total
from flopkit.layers.pointwise import residual
from flopkit.models.caches import Rows, merged, seen_rows
from flopkit.models.stacks.parts import BranchName, Part, Run, part
from flopkit.sizes import Count, Flag, Size, check_fields, choice, number
from flopkit.training.memory import Kept

__all__ = ["MASK", "Block", "Branch", "Frames", "Parallel", "Patches"]

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
        return total(self.cached(context).values())

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """The same by role. *rows* says how many tokens a layer with a window keeps."""
        return {}

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
    beside : Branch, optional
        A branch beside the mixer, which reads the same input and has no norms of the layer (Gemma 3n).
    last : Branch, optional
        A branch after all others, which reads the stream without a norm.
    norms : str, optional
        Where the norms stand: ``"pre"`` (before each branch), ``"post"`` (after each
        branch or sum), ``"both"``, ``"parallel"``: one norm, and both branches read
        its output (PaLM), or ``"parallel-two"``: both branches read the layer's input,
        each through a norm of its own (GPT-NeoX).
    mixer_norm : bool, optional
        Whether a norm before the mixer is among them. ModernBERT's first layer has none.
    """

    mixer: Branch | None
    mlp: Branch | None = None
    cross: Branch | None = None
    beside: Branch | None = None
    last: Branch | None = None
    norms: str = "pre"
    mixer_norm: bool = True

    def __post_init__(self) -> None:
        choice("norms", self.norms, ("pre", "post", "both", "parallel", "parallel-two"))
        if not self.mixer_norm and self.norms != "pre":
            raise ValueError(f"mixer_norm=False is for norms='pre', not for norms={self.norms!r}")
        if self.beside is not None and self.norms != "both":
            raise ValueError(f"beside={self.beside} is for norms='both', not for norms={self.norms!r}")

    def norm_before(self, place: int) -> bool:
        """Whether a norm stands before the branch at a *place*."""
        if place == 0 and not self.mixer_norm:
            return False
        return self.norms in ("pre", "both", "parallel-two") or (self.norms == "parallel" and place == 0)

    @property
    def branches(self) -> list[tuple[BranchName, Branch]]:
        """The mixer and what stands beside it, the cross-attention, the MLP and the last
        one, whichever are present, each with its name."""
        named: tuple[tuple[BranchName, Branch | None], ...] = (
            ("attention", self.mixer),
            ("beside", self.beside),
            ("cross", self.cross),
            ("mlp", self.mlp),
            ("last", self.last),
        )
        return [(name, branch) for name, branch in named if branch is not None]


@dataclass(frozen=True, kw_only=True)
class Parallel(Branch):
    """Branches side by side: each reads the same input, and the sum of what they make is the output (Falcon-H1).

    Parameters
    ----------
    branches : tuple[Branch, ...]
        Attention first, where it is among them.

    Examples
    --------
    >>> from flopkit.models import Attention, StateSpace
    >>> attention, mamba = Attention(heads=4, kv_heads=2, head_dim=16), StateSpace(heads=4, head_dim=16, state=8)
    >>> Parallel(branches=(attention, mamba)).held(100) == attention.held(100) + mamba.held(100)
    True
    """

    branches: tuple[Branch, ...]

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the caches of all branches."""
        return merged(each.cached(context, rows) for each in self.branches)

    def handed_on(self, run: Run) -> Any:
        """What all branches hand on."""
        return total(each.handed_on(run) for each in self.branches)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        found: list[Part] = []
        for place, branch in enumerate(self.branches):

            def renamed(names: tuple[str, ...], place: int = place) -> tuple[str, ...]:
                """What flows inside a branch is its own."""
                return tuple(name if name in ("input", "output") or not place else f"{name}, {place}" for name in names)

            inside = branch.parts(run, d_model)
            found += [each._replace(reads=renamed(each.reads), makes=renamed(each.makes)) for each in inside]
        more = (len(self.branches) - 1) * run.tokens * d_model
        joined: dict[str, Any] = {"role": "sum", "reads": ("output",), "makes": ("output",), "split": "sequence"}
        return [*found, part("branches_sum", residual(elements=more, dtype=run.dtype), run.tokens, **joined)]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        return [kept for each in self.branches for kept in each.kept(run, d_model, kernel, dropout)]


@dataclass(frozen=True, kw_only=True)
class Patches:
    """An image cut into square patches, each brought to the model's width by one matrix
    (ViT).

    Parameters
    ----------
    image : int or tuple[int, int] or None
        Pixels of a side of the image, or of its height and its width. None: of any
        size; a pass is then asked for so many patches.
    patch : int
        Pixels of a side of a patch. Where it does not divide the image, the rest at its
        edge is left out.
    channels : Size, optional
        Colours; with patches of several images of a film, of all of them together.
    bias : Flag, optional
        Whether the matrix adds a bias.
    extra : int, optional
        Learned tokens that stand beside the patches: a class token, a token for
        distillation, tokens for detection.
    registers : int, optional
        Learned tokens more, which come after the positions are added (DINOv2).
    learned : Count, optional
        Learned vectors of the model's width besides, whose work is not counted: a mask
        token, which training alone uses; a table of positions that is interpolated to
        the image's size.
    group : int, optional
        Of an image of any size: its patches come in groups of so many.
    """

    image: int | tuple[int, int] | None
    patch: int
    channels: Size = 3
    bias: Flag = True
    extra: int = 1
    registers: int = 0
    learned: Count = 0
    group: int = 1

    def __post_init__(self) -> None:
        check_fields(self)
        patch = number("patch", self.patch)
        for side in self.sides:
            if number("image", side) < patch:
                raise ValueError(f"image={side} is smaller than patch={patch}: give the pixels of a side")
        for what in ("extra", "registers"):
            number(what, getattr(self, what), minimum=0)
        number("group", self.group)

    @property
    def sides(self) -> tuple[int, ...]:
        """Pixels of height and width."""
        if self.image is None:
            return ()
        return self.image if isinstance(self.image, tuple) else (self.image, self.image)

    @property
    def grid(self) -> tuple[int, int] | None:
        """Patches from top to bottom and from left to right; None for an image of any size."""
        return None if self.image is None else (self.sides[0] // self.patch, self.sides[1] // self.patch)

    @property
    def tokens(self) -> int | None:
        """Tokens of an image: its patches, and the learned ones; None for an image of
        any size."""
        return None if self.grid is None else self.grid[0] * self.grid[1] + self.extra + self.registers


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
