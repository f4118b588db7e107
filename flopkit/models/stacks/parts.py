"""What goes through a model's layers, and the parts that a pass finds there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from flopkit.arithmetic import exact_div, is_zero, total
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.attentions import SCALE_FLOPS, Around, Chunks, Mask, Window, visible_pairs
from flopkit.layers.pointwise import SOFTMAX_FLOPS, residual
from flopkit.layers.products import dense
from flopkit.models.stacks.matrices import Matrix
from flopkit.sizes import Lengths

__all__ = [
    "SPLITS",
    "BranchName",
    "Part",
    "Place",
    "Role",
    "Run",
    "Split",
    "added",
    "again",
    "balanced",
    "dense_part",
    "for_each",
    "packed",
    "pairs_of",
    "part",
    "placed",
    "project",
    "unrated",
]

Role: TypeAlias = Literal[
    "product", "router", "experts", "convolution", "core", "rotary", "norm", "vector", "sum", "table", "adapter", "stack"
]  # fmt: skip
"""What a part is: a dense layer, one that weighs or chooses (a router, the gate of a shared
expert, the weights of an indexer's heads), experts, a convolution, what mixes tokens, what turns
queries and keys by their position, a norm, other element-wise work, the sum that closes a branch,
the embedding's table, an adapter beside a dense layer, or a stack of equal layers."""

BranchName: TypeAlias = Literal["attention", "beside", "cross", "mlp", "last"]
"""Which branch of a layer, as `Block` has them; its mixer is ``"attention"``."""

Place: TypeAlias = Literal["", "before", "layers", "after", "head", "mtp"]
"""Where a part of the whole model stands: before the layers, a stack of them, the norm after
them, the head, or the layer for multi-token prediction. Empty: inside a layer."""

Split: TypeAlias = Literal["none", "sequence", "column", "inner", "shared", "row", "vocab", "experts"]

SPLITS: dict[Split, str] = {
    "none": "whole on each device",
    "sequence": "whole weights; its tokens can be divided (sequence parallelism)",
    "column": "a dense layer whose outputs, weights and bias are divided; each device has the whole input",
    "inner": "works on heads or features that column parts have divided; its weights, if any, belong to them",
    "shared": "works on these, too, with weights that are whole on each device",
    "row": "a dense layer whose inputs and weights are divided; the sum over the devices is its output, to which the bias is added once",
    "vocab": "the rows of a table, the words of the head",
    "experts": "whole experts",
}  # fmt: skip
"""How a part is divided among devices of tensor, sequence or expert parallelism."""


@dataclass(frozen=True)
class Run:
    """What goes through the model: *batch* sequences of *q* new tokens, which see *kv*
    tokens, themselves included.

    Parameters
    ----------
    batch, q, kv : Any
        Sequences, new tokens of each, and tokens that each can see, those in the cache
        too. In training, kv is q.
    causal : bool, optional
        Whether a token sees only those before it (and itself).
    decode : bool, optional
        Whether it is a step of decoding: latent attention runs on the latents
        themselves, a state takes one token after another, and keys and values of the
        encoder's output lie in the cache.
    prefixed : bool, optional
        Whether earlier tokens of each text lie in the cache and, as these have seen the
        encoder's output, its keys and values, too.
    encoded : Any, optional
        Tokens of the encoder's output that cross-attention sees; None where there is
        none.
    dtype : Any, optional
        Number format of weights and activations.
    capacity : Any, optional
        The capacity factor of experts, as in `flopkit.moe`.
    documents : Lengths, optional
        Where the *q* tokens are documents that do not see each other, their lengths.
    expected : bool, optional
        Whether as many experts are read as tokens choose on average where each chooses
        by chance; not, the most that they can choose.
    autocast : bool, optional
        Whether weights and what runs between the branches are fp32, and *dtype* is that
        of products alone.
    """

    batch: Any
    q: Any
    kv: Any
    causal: bool = True
    decode: bool = False
    prefixed: bool = False
    encoded: Any = None
    dtype: Any = "bf16"
    capacity: Any = None
    documents: Lengths | None = None
    expected: bool = False
    autocast: bool = False

    @property
    def stream(self) -> Any:
        """Number format of what runs between the branches, which the norms read."""
        return "fp32" if self.autocast else self.dtype

    @property
    def tokens(self) -> Any:
        """New tokens of all sequences."""
        return self.batch * self.q

    @property
    def sequences(self) -> Any:
        """How many texts there are."""
        return self.batch if self.documents is None else self.batch * self.documents.count

    @property
    def encodes(self) -> bool:
        """Whether the encoder runs: its keys and values do not lie in the cache."""
        return not (self.decode or self.prefixed)

    @property
    def of_encoder(self) -> Run:
        """What goes through the encoder."""
        return replace(self, q=self.encoded, kv=self.encoded, causal=False, encoded=None)

    @property
    def reach(self) -> Any:
        """Tokens of the longest text: each document begins at the first position."""
        return self.kv if self.documents is None else self.documents.longest


class Part(NamedTuple):
    """A named piece of a layer: its cost, what a program that keeps activations on the
    chip moves for it, and what it is for.

    The name of its cost is for tables alone: what depends on the sort of part asks the
    fields. *reads* and *makes* name what flows: ``"stream"``, which the sums add
    to; ``"start"``, the stream before the layer's first sum; ``"input"`` and ``"output"`` of a branch; what its parts hand on to each other,
    such as ``"queries"``; ``"pixels"``, which have no gradient.
    """

    cost: Cost
    weights: Any = 0  # numbers of weights that are read
    cache: Any = 0  # numbers of the cache that are moved: keys and values are read or written, states are both
    cached: tuple[tuple[str, Any], ...] = ()  # the same by role, as `CACHES` names them; empty: the rest
    formula: str = ""  # its FLOPs in words of the sizes
    role: Role = "vector"
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    unread: bool = False  # whether the sum behind it alone takes its output, which no backward pass reads then
    detached: bool = False  # whether it has no backward pass: an indexer
    split: Split = "none"  # how it is divided among devices, see `SPLITS`
    place: Place = ""
    core: Cost | None = None  # attention's scores and values, which selective recompute computes again
    scores_again: Cost | None = None  # what a flash kernel computes again in its backward pass
    inside: tuple[Any, ...] = ()  # of equal layers: the parts of one of them,
    times: Any = 1  # and how many layers there are,
    shared: bool = False  # and whether they have the same parameters
    shape: tuple[Any, ...] = ()  # of a dense layer: its features in and out
    matrices: tuple[
        tuple[Any, Any], ...
    ] = ()  # features in and out of each matrix, as a checkpoint stores it; empty: the shape
    matrix: Matrix | Literal[""] = ""  # which matrix of its layer it is; empty: none that is asked for
    branch: BranchName | Literal[""] = ""  # which branch of a layer it belongs to
    tower: str = ""  # which stack besides the first it belongs to: an encoder, a tower of pictures, a later stage

    def in_tower(self, tower: str) -> Part:
        """The same in a *tower*, which tables name before it."""
        return self._replace(tower=tower, cost=self.cost.named(f"{tower}, {self.cost.name}"))

    @property
    def divided(self) -> Any:
        """Parameters of which each device of a group has its share; the rest is whole
        on each."""
        params = self.cost.params
        if self.split in ("none", "sequence", "shared"):
            return 0
        if self.role == "adapter":  # of its two matrices the one beside the divided features
            return exact_div(params * self.shape[self.split == "column"], sum(self.shape))
        return params - (self.cost.params_by_role.get("bias", 0) if self.split == "row" else 0)


def part(
    name: str, cost: Cost, rows: Any, *, tokens: Any = None, weights: Any = None, flash_dim: Any = 0, **fields: Any
) -> Part:
    """A part under *name*, with the kinds of work that conventions ask for which count
    parameters or pairs.

    A convention such as 6N takes each parameter for a multiply-add a token. Matrices do
    that work anyway; for the rest, norms, biases and positions, their number times
    *rows* is kept under kinds of their own, which EXACT does not count. Where a model's
    *tokens* are not the *rows* that go through the part, and where products multiply no
    parameter, the difference is kept, too. Of attention, scores of *flash_dim* features
    each are what a flash kernel computes again. *fields*: those of `Part`.
    """
    roles = cost.params_by_role
    kinds = dict(cost.macs_by_kind)
    if tokens is not None:
        kinds = balanced(kinds, (tokens - rows) * cost.params)
    if "products" in kinds and "weight" not in roles:
        kinds = balanced(kinds, -kinds["products"])
    if roles:
        kinds["vectors"] = rows * total(roles[role] for role in ("norm", "bias") if role in roles)
    if "position" in roles:
        kinds["positions"] = rows * roles["position"]
    weights = cost.params if weights is None else weights
    if "scores" not in kinds:
        return Part(replace(cost, name=name, macs_by_kind=kinds), weights, **fields)
    each = SCALE_FLOPS + SOFTMAX_FLOPS
    counted = (("scores", "softmax"), ("hidden", "hidden_softmax"))
    pairs = {kind: exact_div(cost.vector_by_kind[vector], each) for kind, vector in counted if kind in kinds}
    kinds["pairs"] = total(pairs.values())
    again = Cost("scores again", macs_by_kind={kind: n * flash_dim for kind, n in pairs.items()} | {"pairs": 0})
    core = Cost("core", macs_by_kind={kind: n for kind, n in kinds.items() if kind in ("scores", "hidden", "pairs")})
    cost = replace(cost, name=name, macs_by_kind=kinds)
    return Part(cost, weights, core=core, scores_again=again, **fields)


def balanced(kinds: Mapping[str, Any], more: Any) -> dict[str, Any]:
    """*kinds* of multiply-adds with *more* of what conventions of 6N add to the products."""
    return dict(kinds) if is_zero(more) else {**kinds, "balance": kinds.get("balance", 0) + more}


def again(cost: Cost) -> Cost:
    """The work of parameters that count elsewhere."""
    counted = [n for kind, n in cost.macs_by_kind.items() if kind in _BY_PARAMETER]
    return replace(cost, params_by_role={}, macs_by_kind=balanced(cost.macs_by_kind, -total(counted)))


def for_each(tokens: Any, rows: Any, each: Part) -> Part:
    """A part through which *rows* go, of a model of so many *tokens*."""
    kinds = balanced(each.cost.macs_by_kind, (tokens - rows) * each.cost.params)
    return each._replace(cost=replace(each.cost, macs_by_kind=kinds))


def unrated(each: Part) -> Part:
    """A part without what only a number of tokens for all parameters gives a meaning."""
    kinds = {kind: n for kind, n in each.cost.macs_by_kind.items() if kind not in _PER_TOKEN}
    cost = replace(each.cost, macs_by_kind=kinds, parts=())
    return each._replace(cost=cost, inside=tuple(unrated(part) for part in each.inside))


_PER_TOKEN = ("vectors", "positions", "idle", "unused", "balance")
_BY_PARAMETER = ("products", "router", "head", "embedding", "vectors", "positions", "idle", "balance")


def project(
    matrix: Matrix, run: Run, d_in: Any, d_out: Any, bias: Any = 0, *, tokens: Any = None, label: str = "", **fields: Any
) -> Part:  # fmt: skip
    """A dense layer inside of a layer, on each new token or on *tokens*. Tables show the
    word for its *matrix*, or a *label* of its own."""
    return dense_part(label or matrix, run, d_in, d_out, bias, tokens=tokens, matrix=matrix, **fields)


def dense_part(name: str, run: Run, d_in: Any, d_out: Any, bias: Any = 0, *, tokens: Any = None, **fields: Any) -> Part:
    """A dense layer that no adapter and no list of a checkpoint asks for: before the
    layers, behind them, between streams."""
    rows = run.tokens if tokens is None else tokens
    cost = dense(tokens=rows, d_in=d_in, d_out=d_out, bias=bias, dtype=run.dtype)
    fields = {"formula": f"2·tokens·{d_in}·{d_out}", "role": "product", "shape": (d_in, d_out)} | fields
    return part(name, cost, rows, tokens=None if tokens is None else run.tokens, **fields)


def added(name: str, run: Run, d_model: Any, makes: tuple[str, ...] = ("stream",)) -> Part:
    """The sum that closes a residual branch."""
    cost = residual(elements=run.tokens * d_model, dtype=run.dtype)
    return part(name, cost, run.tokens, role="sum", reads=("stream", "output"), makes=makes, split="sequence")


def pairs_of(run: Run, mask: Mask) -> tuple[Any, Any]:
    """Pairs of a query and a key that *mask* lets through, and all of them."""
    documents = run.documents
    if documents is None:
        return run.batch * visible_pairs(run.q, run.kv, mask), run.batch * run.q * run.kv
    if mask == "full":
        seen = documents.squares
    elif isinstance(mask, Chunks):
        seen = documents.within(mask.width)
    elif isinstance(mask, Around):  # as many after a token as before it, and itself once
        seen = 2 * documents.seen(mask.reach + 1) - documents.tokens
    else:
        seen = documents.seen(mask.width if isinstance(mask, Window) else None)
    return run.batch * seen, run.batch * documents.squares


def packed(core: Cost, run: Run, mask: Mask) -> Cost:
    """The core of attention, made of all tokens of *run*, as its documents have it: a
    token sees its own document alone."""
    if run.documents is None:
        return core
    whole = run.batch * visible_pairs(run.q, run.q, mask)  # what *core* was made of
    seen, positions = pairs_of(run, mask)
    pairs = {"scores": seen, "softmax": seen, "hidden": positions - seen, "hidden_softmax": positions - seen}

    def scaled(kinds: Mapping[str, Any], each: Any) -> dict[str, Any]:
        return {kind: exact_div(each, whole) * pairs[kind] for kind in kinds}

    macs, vector = core.macs_by_kind, core.vector_by_kind
    return replace(
        core,
        macs_by_kind=scaled(macs, macs["scores"]),
        vector_by_kind=scaled(vector, vector["softmax"]),
    )


def placed(formula: Callable[..., Cost], run: Run, width: Any, **sizes: Any) -> Cost:
    """*formula*, which reads a row of *width* numbers for each position: all documents
    read the same rows."""
    if run.documents is None:
        return formula(batch=run.batch, seq=run.q, **sizes)
    cost = formula(batch=run.tokens, seq=1, **sizes)
    return replace(cost, bytes=cost.bytes + nbytes((run.documents.longest - 1) * width, run.dtype))
