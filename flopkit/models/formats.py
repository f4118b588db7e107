"""In which format each of a model's weights is stored: one for all, or one by role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from flopkit import dtypes
from flopkit.arithmetic import exact_div, maximum, same, total
from flopkit.models.stacks.matrices import Matrix
from flopkit.models.stacks.parts import Part
from flopkit.models.storage import DENSE, Storage, stored
from flopkit.names import hint

__all__ = ["ROLES", "Formats", "Otherwise", "Weights", "by_role", "part_bytes", "piece_bytes", "role_of"]

ROLES = {
    "experts": "the matrices of the experts that a router chooses among",
    "attention": "the dense layers of attention, of latent attention and of layers with a state",
    "mlp": "the dense layers of MLPs, of shared experts too",
    "router": "routers, the gate of a shared expert, the weights of an indexer's heads",
    "embedding": "the table of the embedding, positions, token types, patches",
    "head": "the head; where it is tied, the table",
    "norms": "norms, biases, sinks, convolutions of a channel each, decays: what is no matrix",
    "rest": "what has no format of its own",
}
"""What a format can be given for."""

_PLAIN = "bf16"  # of what is not packed, where nothing is said


class Otherwise(NamedTuple):
    """So many layers of a *kind*, a place in ``Model.blocks``, one *matrix* of which has
    another format than its role."""

    kind: int
    matrix: Matrix
    layers: int
    format: Any


@dataclass(frozen=True, kw_only=True)
class Formats:
    """The formats in which a model's weights are stored, by role.

    Parameters
    ----------
    rest : Any, optional
        The format of all roles that have none of their own: a name, as `Model.decode` takes it.
    experts, attention, mlp, router, embedding, head, norms : Any, optional
        That of one role. None: *rest*; but what its quantiser leaves alone is bf16:
        norms, biases and routers where *rest* is a format of blocks; embedding and head, too,
        where it packs dense layers alone (nf4, awq, gptq).
    others : tuple[Otherwise, ...], optional
        Parts of some layers that have another one.
    compute : str, optional
        The number format in which products run. None: see `flopkit.serving.decode`.
    kv_cache : Any, optional
        The format of the cache. None: bf16.
    unread : str, optional
        Why it is not known how the weights are stored: bytes are then refused, except those of a format that is given.

    Raises
    ------
    ValueError
        For a format that is not known, and for blocks of norms.

    Examples
    --------
    >>> Formats(rest="bf16", experts="mxfp4")
    Formats: mxfp4 (experts), bf16 (rest)
    >>> Formats(rest="nf4").of("head"), str(Formats(rest="nf4").of("mlp"))
    ('bf16', 'nf4')
    """

    rest: Any = _PLAIN
    experts: Any = None
    attention: Any = None
    mlp: Any = None
    router: Any = None
    embedding: Any = None
    head: Any = None
    norms: Any = None
    others: tuple[Otherwise, ...] = ()
    compute: str | None = None
    kv_cache: Any = None
    unread: str = ""

    def __post_init__(self) -> None:
        for role in (*ROLES, "kv_cache"):
            if (value := getattr(self, role)) is not None:
                object.__setattr__(self, role, stored(value, role))
        others = tuple(each._replace(format=stored(each.format, each.matrix)) for each in self.others)
        object.__setattr__(self, "others", others)
        if isinstance(self.norms, Storage):
            raise ValueError(
                f"norms={self.norms.name!r}: checkpoints store vectors in a plain format, such as 'bf16' or 'fp32'"
            )

    def of(self, role: str) -> Any:
        """The format of a role: a canonical name or a `Storage`."""
        if (own := getattr(self, role)) is not None:
            return own
        if isinstance(self.rest, Storage):
            left = ("norms", "router", "embedding", "head") if self.rest.packs == DENSE else ("norms", "router")
            return _PLAIN if role in left else self.rest
        return self.rest

    @property
    def only(self) -> Any:
        """The one plain format of all weights; None where there are several or blocks."""
        plain = not isinstance(self.rest, Storage) and not self.others
        named = (getattr(self, role) for role in ROLES if role != "rest")
        return self.rest if plain and all(each is None or same(each, self.rest) for each in named) else None

    def arithmetic(self) -> list[Any]:
        """The formats in which the products of the layers may run."""
        if self.compute is not None:
            return [self.compute]
        used = [self.of(role) for role in ("experts", "attention", "mlp")] + [each.format for each in self.others]
        return list(dict.fromkeys((each.computes or _PLAIN) if isinstance(each, Storage) else each for each in used))

    def __str__(self) -> str:
        if self.unread:
            return "not known"
        if self.only is not None:
            return str(self.only)
        roles: dict[str, list[str]] = {}
        for role in ROLES:
            value = getattr(self, role)
            if value is not None and (role == "rest" or not same(value, self.rest)):
                roles.setdefault(str(value), []).append(role)
        said = (
            ", ".join(f"{value} ({', '.join(of)})" for value, of in roles.items()) if len(roles) > 1 else str(self.rest)
        )
        return said + (", some layers otherwise" if self.others else "")

    def __repr__(self) -> str:
        return f"Formats: {self}"


Weights: TypeAlias = dtypes.DType | Mapping[str, Any] | Formats
"""Formats of weights: one name for all, or a name by role, such as
``{"experts": "mxfp4", "rest": "bf16"}``; see `flopkit.models.Formats`."""


def by_role(weights: Mapping[str, Any]) -> Formats:
    """Formats that a dictionary says.

    >>> by_role({"experts": "mxfp4", "rest": "bf16"})
    Formats: mxfp4 (experts), bf16 (rest)
    >>> by_role({"expert": "mxfp4"})
    Traceback (most recent call last):
        ...
    ValueError: weights={'expert': …}: no role of weights; did you mean experts?
    """
    for role in weights:
        if role not in ROLES:
            raise ValueError(f"weights={{{role!r}: …}}: no role of weights; {hint(role, ROLES)}")
    return Formats(**weights)


def role_of(part: Part) -> str:
    """The role of the matrices of a part."""
    if part.role in ("experts", "router"):
        return part.role
    if part.place in ("before", "head"):
        return {"before": "embedding", "head": "head"}[part.place]
    return {"attention": "attention", "cross": "attention", "mlp": "mlp", "last": "mlp"}.get(part.branch, "rest")


def part_bytes(part: Part, formats: Formats, *, kind: int = -1, whole: bool = False) -> Any:
    """Bytes of the weights of a part that a pass reads, or of all that it has.

    *kind*: the place of a stack's layers in ``Model.blocks``. A tensor in blocks takes
    whole bytes by itself; plain ones round up once for the part.
    """
    chosen = not whole and any(each.role == "experts" for each in (part, *part.inside))
    if (only := formats.only) is not None and not chosen:
        return dtypes.nbytes(part.cost.params if whole else part.weights, only)
    if not part.inside:
        return _bytes(part, formats, formats.of(role_of(part)), whole)
    found: Any = 0
    for each in part.inside:
        usual = 1 if part.shared and whole else part.times
        for other in formats.others:
            if (other.kind, other.matrix) == (kind, each.matrix):
                usual = usual - other.layers
                found = found + other.layers * _bytes(each, formats, other.format, whole)
        found = found + usual * part_bytes(each, formats, whole=whole)
    return found


def piece_bytes(part: Part, formats: Formats, kind: int = -1) -> Iterator[tuple[Part, Any, Any]]:
    """The parts of a stack, each with how many layers have it in one format, and the bytes
    of its weights that a pass through one of them reads."""
    for each in part.inside:
        usual = part.times
        for other in formats.others:
            if (other.kind, other.matrix) == (kind, each.matrix):
                usual = usual - other.layers
                yield each, other.layers, _bytes(each, formats, other.format, False)
        yield each, usual, part_bytes(each, formats)


def _bytes(part: Part, formats: Formats, of_matrices: Any, whole: bool) -> Any:
    """Bytes of a part that is no stack: its matrices in a format of theirs, and its vectors."""
    roles = part.cost.params_by_role
    vectors = total(roles[role] for role in ("norm", "bias") if role in roles)
    if part.role == "experts" and not whole and part.matrices:
        return _of_experts(part, formats, of_matrices, vectors)
    numbers = (part.cost.params if whole else part.weights) - vectors
    stays = dtypes.nbytes(vectors, formats.of("norms"))
    if not isinstance(of_matrices, Storage):
        return stays + dtypes.nbytes(numbers, of_matrices)
    shapes = part.matrices or ((part.shape,) if part.shape else ())
    if not shapes:  # what is no matrix
        return stays + dtypes.nbytes(numbers, formats.of("norms"))
    copies = exact_div(numbers, total(d_in * d_out for d_in, d_out in shapes))
    return stays + total(of_matrices.nbytes(copies, d_in, d_out) for d_in, d_out in shapes)


def _of_experts(part: Part, formats: Formats, of_matrices: Any, vectors: Any) -> Any:
    """Bytes of the experts that a pass reads, those of one times how many they are: on average that is no whole number."""
    numbers = total(d_in * d_out for d_in, d_out in part.matrices)
    experts = exact_div(part.cost.params - vectors, maximum(numbers, 1))
    own = exact_div(vectors, maximum(experts, 1))
    if isinstance(of_matrices, Storage):
        each = total(of_matrices.nbytes(1, d_in, d_out) for d_in, d_out in part.matrices)
    else:
        each = dtypes.nbytes(numbers, of_matrices)
    return exact_div(part.weights, maximum(numbers + own, 1)) * (each + dtypes.nbytes(own, formats.of("norms")))
