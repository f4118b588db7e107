"""What stands behind the layers and is no product with the vocabulary: poolers, heads of several
layers, projections of pictures into a decoder's width."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from flopkit.arithmetic import exact_div, is_zero
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.normalisations import layer_norm, rms_norm
from flopkit.layers.pointwise import activation, residual, vector_work
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.mixers import Attention
from flopkit.models.stacks.parts import Part, Run, dense_part, for_each, part
from flopkit.sizes import Count, Flag, Size, check_fields, choice

__all__ = ["AttentionPool", "Dense", "End", "EndNorm", "Gated", "Learned", "Mean", "Newline"]


class End(Protocol):
    """What stands behind the last layer's norm, and before the head."""

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        """Its parts in the order in which they run."""


def _rows(tokens: Any, run: Run) -> Any:
    """Vectors of all images: *tokens* of each, or all."""
    return run.tokens if tokens is None else run.sequences * tokens


@dataclass(frozen=True, kw_only=True)
class Dense(End):
    """Dense layers one after another, with an activation between them: a classifier, a
    head of a detector, a projection.

    Parameters
    ----------
    name : str
        What tables call it.
    widths : tuple[Size, ...]
        Output features of each layer.
    d_in : Size, optional
        Features that the first reads. None: the model's width.
    tokens : Size, optional
        Vectors of each image or text that it reads. None: all tokens.
    act : str, optional
        The activation between two layers, as `flopkit.activation` calls it.
    last_act : str, optional
        The one behind the last layer; empty for none.
    bias : Flag, optional
        Whether each layer adds a bias.
    group : int, optional
        So many tokens side by side are one vector, where *tokens* is None.
    place : str, optional
        ``"head"``, or ``"after"``: it is what the model hands on.

    Examples
    --------
    >>> from flopkit.models.stacks.parts import Run
    >>> box = Dense(name="box", widths=(192, 192, 4), tokens=100, act="relu")
    >>> sum(each.cost.flops for each in box.parts(Run(1, 1125, 1125), 192)) == 2 * 100 * 192 * (192 + 192 + 4)
    True
    """

    name: str
    widths: tuple[Size, ...]
    d_in: Size | None = None
    tokens: Size | None = None
    act: str = ""
    last_act: str = ""
    bias: Flag = True
    group: int = 1
    place: str = "head"

    def __post_init__(self) -> None:
        check_fields(self)
        choice("place", self.place, ("head", "after"))

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        rows = _rows(self.tokens, run)
        if self.group > 1:
            rows = exact_div(rows, self.group)
        found: list[Part] = []
        width = d_model if self.d_in is None else self.d_in
        for place, wide in enumerate(self.widths):
            last = place + 1 == len(self.widths)
            name = self.name if len(self.widths) == 1 else f"{self.name}_{place + 1}"
            found.append(dense_part(name, run, width, wide, self.bias, tokens=rows, place=self.place))
            if act := self.last_act if last else self.act:
                cost = activation(act, elements=rows * wide, dtype=run.dtype)
                found.append(part(f"{name}_act", cost, rows, place=self.place))
            width = wide
        return found


@dataclass(frozen=True, kw_only=True)
class EndNorm(End):
    """A norm behind the layers: of all tokens, or of those that are read on.

    Parameters
    ----------
    name : str
        What tables call it.
    tokens : Size, optional
        Vectors of each image or text. None: all tokens.
    norm : str, optional
        ``"layer"``, with a bias, or ``"rms"``.
    width : Size, optional
        Features of a vector. None: the model's width.
    group : int, optional
        So many tokens side by side are one vector, where *tokens* is None.
    weight : Flag, optional
        Whether it has parameters.
    act : str, optional
        The activation behind it, as `flopkit.activation` calls it; empty for none.

    Examples
    --------
    >>> from flopkit.models.stacks.parts import Run
    >>> EndNorm(name="norm", tokens=1).parts(Run(2, 197, 197), 768)[0].cost.params
    1536
    """

    name: str
    tokens: Size | None = None
    norm: str = "layer"
    width: Size | None = None
    group: int = 1
    weight: Flag = True
    act: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        choice("norm", self.norm, ("layer", "rms"))

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        rows, d = _rows(self.tokens, run), d_model if self.width is None else self.width
        if self.group > 1:
            rows = exact_div(rows, self.group)
        if self.norm == "layer":
            cost = layer_norm(tokens=rows, d=d, weight=self.weight, bias=self.weight, dtype=run.dtype)
        else:
            cost = rms_norm(tokens=rows, d=d, weight=self.weight, dtype=run.dtype)
        found = [part(self.name, cost, rows, tokens=run.tokens, role="norm", place="after")]
        if self.act:
            found.append(
                part(f"{self.name}_act", activation(self.act, elements=rows * d, dtype=run.dtype), rows, place="after")
            )
        return found


@dataclass(frozen=True, kw_only=True)
class Gated(End):
    """A gated MLP behind the layers, which may hand on another width than it reads
    (GLM-4V, Aya Vision).

    FLOPs: ``2·vectors·d_ff·(2·d_in + width)``. Parameters: ``d_ff·(2·d_in + width)``,
    and ``2·d_ff + width`` with *bias*.

    Parameters
    ----------
    name : str
        What tables call it.
    d_in, d_ff, width : Size
        Features that it reads, hidden ones, and those that it makes.
    act : str, optional
        The activation of the gate, as in `MLP`.
    bias : Flag, optional
        Whether each dense layer adds a bias.
    tokens : Size, optional
        Vectors of each image. None: all tokens.
    group : int, optional
        So many tokens side by side are one vector, where *tokens* is None.

    Examples
    --------
    >>> from flopkit.models.stacks.parts import Run
    >>> merger = Gated(name="merger", d_in=4096, d_ff=13696, width=4096)
    >>> sum(each.cost.flops for each in merger.parts(Run(1, 1, 1), 1536)) == 2 * 3 * 4096 * 13696
    True
    """

    name: str
    d_in: Size
    d_ff: Size
    width: Size
    act: str = "silu"
    bias: Flag = False
    tokens: Size | None = None
    group: int = 1
    place: ClassVar[str] = "after"

    def __post_init__(self) -> None:
        check_fields(self)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        rows = _rows(self.tokens, run)
        if self.group > 1:
            rows = exact_div(rows, self.group)
        inner = MLP(d_ff=self.d_ff, act=self.act, bias=self.bias)
        found = inner.parts(Run(rows, 1, 1, causal=False, dtype=run.dtype), self.d_in, f"{self.name}_")[:-1]
        found = [for_each(run.tokens, rows, each) for each in found]
        found.append(dense_part(f"{self.name}_down_proj", run, self.d_ff, self.width, self.bias, tokens=rows))
        return [each._replace(place="after", matrix="") for each in found]


@dataclass(frozen=True, kw_only=True)
class Mean(End):
    """The mean of tokens: of all of an image but the first *but*, or of each square of
    *group* neighbours.

    Vector FLOPs: ``vectors·d_model`` additions and as many divisions as there are
    numbers of output. Parameters: none.

    Parameters
    ----------
    but : int, optional
        Learned tokens that are left out.
    group : Size, optional
        Tokens of one mean. None: all of an image.

    Examples
    --------
    >>> from flopkit.models.stacks.parts import Run
    >>> Mean(but=1).parts(Run(1, 5, 5), 8)[0].cost.vector_flops == 4 * 8 + 8
    True
    """

    but: int = 0
    group: Size | None = None

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        read = run.tokens - run.sequences * self.but
        made = run.sequences if self.group is None else exact_div(read, self.group)
        bytes = nbytes(read * d_model, run.dtype) + nbytes(made * d_model, run.dtype)
        return [part("mean", vector_work("mean", (read + made) * d_model, bytes), made, place="after")]


@dataclass(frozen=True, kw_only=True)
class AttentionPool(End):
    """One learned query sees all tokens of an image, and an MLP with a norm and a sum
    follows (SigLIP).

    Parameters
    ----------
    heads, d_ff : Size
        Heads of the attention, and hidden features of the MLP.
    act : str
        The activation of the MLP.

    Examples
    --------
    >>> from flopkit.models.stacks.parts import Run
    >>> pool = AttentionPool(heads=12, d_ff=3072, act="gelu_tanh")
    >>> sum(each.cost.params for each in pool.parts(Run(1, 196, 196), 768))  # of SigLIP's base model
    7087104
    """

    heads: Size
    d_ff: Size
    act: str

    def __post_init__(self) -> None:
        check_fields(self)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        if run.documents is not None:
            raise ValueError("lengths= beside a pool over the tokens of an image: they are as many in each; give seq=")
        one = Run(run.batch, 1, 1, causal=False, encoded=run.q, dtype=run.dtype)
        sizes = {"heads": self.heads, "kv_heads": self.heads, "head_dim": exact_div(d_model, self.heads)}
        mixer = Attention(**sizes, rotary=0, qkv_bias=True, out_bias=True, cross=True)
        found = mixer.parts(one, d_model)
        first = found[0].cost
        roles = {**first.params_by_role, "position": d_model}  # the query
        found[0] = part(
            "q_proj", replace(first, params_by_role=roles), run.batch, role="product", shape=(d_model, d_model),
            formula=f"2·batch·{d_model}·{d_model}", weights=first.params + d_model,
        )  # fmt: skip
        norm = layer_norm(tokens=run.batch, d=d_model, dtype=run.dtype)
        found.append(part("norm", norm, run.batch, role="norm"))
        found += MLP(d_ff=self.d_ff, act=self.act, gated=False, bias=True).parts(one, d_model)
        found.append(part("sum", residual(elements=run.batch * d_model, dtype=run.dtype), run.batch, role="sum"))
        found = [for_each(run.tokens, run.batch, each) for each in found]
        return [
            each._replace(cost=each.cost.named(f"pool, {each.cost.name}"), place="after", matrix="") for each in found
        ]


@dataclass(frozen=True, kw_only=True)
class Learned(End):
    """Learned numbers whose work is not counted, such as a factor of logits.

    Parameters
    ----------
    name : str
        What tables call them.
    numbers : Count, optional
        How many there are, and *vectors* of the model's width besides.
    vectors : Count, optional
        Vectors of the model's width.

    Examples
    --------
    >>> from flopkit.models.stacks.parts import Run
    >>> Learned(name="mask token", vectors=1).parts(Run(1, 1, 1), 768)[0].cost.params
    768
    """

    name: str
    numbers: Count = 0
    vectors: Count = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        count = self.numbers + self.vectors * d_model
        return [] if is_zero(count) else [
            part(self.name, Cost(self.name, params_by_role={"position": count}), run.tokens, place="after")
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Newline(Learned):
    """A learned token at the end of each row of a picture that is cut into tiles
    (LLaVA-NeXT). The tiles' edges where no picture is are cut off before, so how many
    tokens the decoder gets depends on the picture.

    Examples
    --------
    >>> from flopkit.models.stacks.parts import Run
    >>> Newline(name="image_newline", numbers=4096).parts(Run(1, 1, 1), 1024)[0].cost.params
    4096
    """
