"""Models of two towers, one for texts and one for pictures, and what several of their families need
of a layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

from flopkit.arithmetic import exact_div
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.pointwise import scale, vector_work
from flopkit.layers.products import matmul
from flopkit.models.branches.wrapped import Wrapped
from flopkit.models.stacks import passes
from flopkit.models.stacks.ends import End
from flopkit.models.stacks.parts import Part, Run, part
from flopkit.models.stacks.stack import Stack
from flopkit.sizes import Size, check_fields, divides
from flopkit.training.memory import Kept

__all__ = ["Beside", "Scaled", "Still", "Then", "Windows"]


@dataclass(frozen=True, kw_only=True)
class Scaled(Wrapped):
    """A branch whose output is multiplied by a learned vector before the sum (layer
    scale: DINOv2, BEiT).

    Parameters
    ----------
    branch : Any
        The branch itself.

    References
    ----------
    Touvron et al. 2021, Going deeper with image transformers, section 2.

    Examples
    --------
    >>> from flopkit.models.branches.feed_forward import MLP
    >>> from flopkit.models.stacks.parts import Run
    >>> plain = MLP(d_ff=64, act="gelu", gated=False)
    >>> [sum(part.cost.params for part in each.parts(Run(1, 1, 1), 16)) for each in (plain, Scaled(branch=plain))]
    [2048, 2064]
    """

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        cost = scale(elements=run.tokens * d_model, factors=d_model, dtype=run.dtype)
        cost = Cost(
            "layer_scale", vector_by_kind=cost.vector_by_kind, bytes=cost.bytes, params_by_role={"norm": d_model}
        )
        inside = [each._replace(unread=False) for each in self.branch.parts(run, d_model)]
        flow: dict[str, Any] = {"reads": ("output",), "makes": ("output",), "split": "sequence", "unread": True}
        return [*inside, part("layer_scale", cost, run.tokens, **flow)]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        wide = Kept("layer scale, input", nbytes(run.tokens * d_model, run.dtype))
        return [*super().kept(run, d_model, kernel, dropout), wide]


@dataclass(frozen=True, kw_only=True)
class Still(Wrapped):
    """Attention of an image whose first tokens are not turned by their position: a class token, registers (DINOv3).

    Parameters
    ----------
    branch : Any
        The attention.
    tokens : int
        How many these are.

    Examples
    --------
    >>> from flopkit.models import Attention
    >>> turned = Attention(heads=4, kv_heads=4, head_dim=16)
    >>> run = Run(1, 20, 20, causal=False)
    >>> costs = [each.parts(run, 64)[3].cost.vector_flops for each in (turned, Still(branch=turned, tokens=5))]
    >>> costs[0] * 15 == costs[1] * 20
    True
    """

    tokens: int

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        found: list[Part] = self.branch.parts(run, d_model)
        fewer: list[Part] = self.branch.parts(replace(run, q=run.q - self.tokens), d_model)
        return [less if each.role == "rotary" else each for each, less in zip(found, fewer, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Windows(Wrapped):
    """A branch whose tokens meet only inside windows of an image (Qwen2.5-VL).

    Parameters
    ----------
    branch : Any
        The branch itself: attention.
    tokens : int
        Tokens of a window. All windows are whole: of an image whose sides no window
        divides, nothing is said here.
    shift : int, optional
        By how many tokens windows of a square image are moved down and to the right
        (Swin). Those at the edge then hold places that do not see each other: under
        EXACT their pairs do not count, under TORCH they do.

    Raises
    ------
    ValueError
        Where *tokens* do not divide those of an image.

    Examples
    --------
    >>> from flopkit.models import Attention
    >>> from flopkit.models.stacks.parts import Run
    >>> whole = Attention(heads=4, kv_heads=4, head_dim=16)
    >>> run = Run(1, 256, 256, causal=False)
    >>> cores = [each.parts(run, 64)[4].cost.flops for each in (whole, Windows(branch=whole, tokens=64))]
    >>> cores[0] == 4 * cores[1]
    True
    """

    tokens: int
    shift: int = 0

    def handed_on(self, run: Run) -> Any:
        """What the branch hands on."""
        return self.branch.handed_on(self._run(run))

    def _run(self, run: Run) -> Run:
        divides("tokens of a window", self.tokens, "seq", run.q)
        return replace(run, batch=run.batch * exact_div(run.q, self.tokens), q=self.tokens, kv=self.tokens)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        found: list[Part] = self.branch.parts(self._run(run), d_model)
        return (
            found if not self.shift else [self._shifted(each, run) if each.role == "core" else each for each in found]
        )

    def _shifted(self, core: Part, run: Run) -> Part:
        """The core of attention, in which the windows at the edge hold up to four places
        that do not see each other."""
        side, image = isqrt(self.tokens), isqrt(run.q)
        axis = (image // side - 1) * side**2 + (side - self.shift) ** 2 + self.shift**2
        pairs, seen = run.q * self.tokens, axis**2
        assert core.scores_again is not None
        again = core.scores_again.macs_by_kind
        macs, vector = core.cost.macs_by_kind, core.cost.vector_by_kind

        def visible(count: Any) -> Any:
            return exact_div(count, pairs) * seen

        scores, softmax = visible(macs["scores"]), visible(vector["softmax"])
        kinds = {"scores": scores, "hidden": macs["scores"] - scores}
        cost = replace(
            core.cost, macs_by_kind=kinds,
            vector_by_kind={**vector, "softmax": softmax, "hidden_softmax": vector["softmax"] - softmax},
        )  # fmt: skip
        fields = {
            "weights": core.weights,
            "cache": core.cache,
            "formula": core.formula,
            "role": core.role,
            "reads": core.reads,
        }
        dim = exact_div(again["scores"], macs["pairs"])
        return part(core.cost.name, cost, run.tokens, flash_dim=dim, **fields, makes=core.makes, split=core.split)

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        kept: list[Kept] = self.branch.kept(self._run(run), d_model, kernel, dropout)
        return kept


@dataclass(frozen=True, kw_only=True)
class Then(End):
    """Further layers of another width, which read one token of *group* (Swin).

    Parameters
    ----------
    tower : Stack
        These layers.
    group : int
        How many tokens of those before make one of theirs.
    name : str, optional
        What tables call them.

    References
    ----------
    Liu et al. 2021 (Swin), section 3.1.

    Examples
    --------
    >>> from flopkit import from_hf
    >>> tiny = from_hf({"model_type": "swin", "embed_dim": 96, "num_labels": 1000})
    >>> tiny.params  # 28.3 million in table 1 of the paper's code
    28288354
    """

    tower: Stack
    group: int
    name: str = "next stage"

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        if run.documents is not None:
            raise ValueError(
                "lengths= beside layers that join the tokens of an image: they are as many in each; give seq="
            )
        tokens = exact_div(run.q, self.group)
        found = passes.through(self.tower, Run(run.batch, tokens, tokens, causal=False, dtype=run.dtype), entered=True)
        return [each if each.tower else each.in_tower(self.name) for each in found]


@dataclass(frozen=True, kw_only=True)
class Beside(End):
    """A second tower, which reads as many pictures as the first reads texts, and the
    similarity of each text with each picture (CLIP).

    FLOPs: those of its tower, and ``2·batch²·width`` of the similarity. Vector FLOPs of
    the similarity: each vector divided by its length, and one multiplication, and one
    addition where there is a bias, for each pair.

    Parameters
    ----------
    tower : Stack
        The tower of the pictures.
    width : Size
        Features of the vectors that are compared.
    learned : int, optional
        Learned numbers of the similarity: 1 for a factor, 2 for a factor and a bias.

    References
    ----------
    Radford et al. 2021 (CLIP), figure 3; Zhai et al. 2023 (SigLIP), algorithm 1.

    Examples
    --------
    >>> from flopkit import from_hf
    >>> clip = from_hf({"model_type": "clip", "text_config": {}, "vision_config": {}})  # ViT-B/32
    >>> clip.params
    151277313
    >>> rows = clip.forward(seq=77, batch=2).parts
    >>> [each.flops for each in rows if each.name == "similarity"] == [2 * 2 * 2 * 512]
    True
    """

    tower: Stack
    width: Size
    learned: int = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        assert self.tower.patches is not None
        tokens, texts = self.tower.patches.tokens, run.sequences
        found = passes.through(self.tower, Run(texts, tokens, tokens, causal=False, dtype=run.dtype))
        found = [each.in_tower("pictures") for each in found]
        numbers = 2 * texts * self.width
        norms = vector_work("lengths", 3 * numbers, 2 * nbytes(numbers, run.dtype))  # square, add, divide; a root each
        norms = Cost("lengths", vector_by_kind={"elementwise": 3 * numbers + 2 * texts}, bytes=norms.bytes)
        found.append(part("lengths", norms, texts, place="after"))
        pairs = matmul(m=texts, k=self.width, n=texts, dtype=run.dtype)
        vector = {"elementwise": self.learned * texts * texts + 1}  # the exponential of the factor
        pairs = Cost(
            "similarity", macs_by_kind=pairs.macs_by_kind, vector_by_kind=vector, bytes=pairs.bytes,
            params_by_role={"position": self.learned},
        )  # fmt: skip
        formula = f"2·batch·batch·{self.width}"
        found.append(part("similarity", pairs, texts, weights=self.learned, formula=formula, place="after"))
        return found
