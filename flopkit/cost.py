"""What an operation costs: arithmetic by kind, bytes, parameters, and the convention that reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Any

from flopkit import units
from flopkit.arithmetic import Number, brief, divided, is_zero, ratio, reading, same, total, unmixed
from flopkit.conventions import EXACT, KINDS, TORCH, VECTOR_KINDS, Convention, as_convention
from flopkit.dtypes import DType, nbytes
from flopkit.names import hint
from flopkit.sizes import Count, offence, short, size
from flopkit.tables import Table

__all__ = ["Cost"]


@dataclass(frozen=True, repr=False, eq=False)
class Cost:
    """The cost of an operation, or of several added up.

    Read ``flops`` (contractions: matmuls, convolutions, attention's two products), ``macs``, ``vector_flops`` (element-wise work,
    never in ``flops``), ``bytes``, ``params`` and ``intensity`` (``flops / bytes``, in FLOP/B). Add costs with ``+``, repeat one with
    ``* n``, and change the convention with ``under``; costs of two conventions do not add. The formulas, such as `flopkit.dense`,
    make a cost; few people build one.

    Parameters
    ----------
    name : str, optional
        What it is, for tables.
    macs_by_kind : Mapping[str, Number], optional
        Multiply-adds by kind (`flopkit.conventions.KINDS`).
    vector_by_kind : Mapping[str, Number], optional
        Element-wise FLOPs by kind (`flopkit.conventions.VECTOR_KINDS`): those of hidden scores count only where the
        convention counts the scores themselves.
    bytes : Number, optional
        Compulsory traffic: each input and weight read once, each output written once.
    params_by_role : Mapping[str, Number], optional
        Trainable numbers by role: weight, bias, norm, embedding, position, head.
    convention : Convention, optional
        How multiply-adds become FLOPs.
    parts : tuple[Cost, ...], optional
        The costs this one is the sum of.

    Notes
    -----
    Every quantity is an int (exact), a NumPy array, a SymPy expression or an Altair expression, as the sizes were.
    An array or a symbol multiplies a cost from either side; with an Altair parameter write
    ``cost * parameter``, not ``parameter * cost``, which Altair handles itself.

    Examples
    --------
    >>> import flopkit as fk
    >>> cost = fk.matmul(m=5, k=3, n=7)
    >>> cost.flops, cost.macs, cost.bytes
    (210, 105, 142)
    >>> (cost + cost).flops == (2 * cost).flops == 420
    True
    >>> cost.under("FVCORE").flops  # which calls a multiply-add one FLOP
    105
    """

    name: str = "cost"
    macs_by_kind: Mapping[str, Number] = field(default_factory=dict)
    vector_by_kind: Mapping[str, Number] = field(default_factory=dict)
    bytes: Number = 0
    params_by_role: Mapping[str, Number] = field(default_factory=dict)
    convention: Convention = EXACT
    parts: tuple[Cost, ...] = ()

    _open = False  # what `+` made: the next `+` takes its parts, and not it as one of them

    __hash__ = None  # type: ignore[assignment]  # it holds mappings
    __array_ufunc__ = None  # a NumPy array on the left hands the product to __rmul__

    def __post_init__(self) -> None:
        for name in ("macs_by_kind", "vector_by_kind", "params_by_role"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"{name}={short(getattr(self, name))}: must be a dictionary of amounts")
        for found, known in ((self.macs_by_kind, KINDS), (self.vector_by_kind, VECTOR_KINDS)):
            if not found.keys() <= known.keys():
                kind = next(kind for kind in found if kind not in known)
                raise ValueError(f"kind={kind!r} is not a kind of work here; {hint(kind, known)}")
        if self.parts:  # which have been through the other branch themselves
            reading(*chain.from_iterable(part._numbers() for part in self.parts))
        else:
            unmixed(*self._numbers())
            self._refuse_what_is_no_amount()
        object.__setattr__(self, "convention", as_convention(self.convention))

    def _refuse_what_is_no_amount(self) -> None:
        work = (
            *self.macs_by_kind.values(),
            *self.vector_by_kind.values(),
        )  # rows that no token fills may be fewer than none
        for least, amounts in ((-math.inf, work), (0, (self.bytes, *self.params_by_role.values()))):
            if set(map(type, amounts)) <= {int} and (least or min(amounts) >= 0):
                continue
            for n in amounts:
                if n is None or isinstance(n, str) or (_known(n) and not n >= least):
                    raise ValueError(
                        f"{self.name!r:.60} has an amount of {short(n)}: each must be a number, bytes at least 0"
                    )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cost):
            return NotImplemented
        return same({**vars(self), "_open": False}, {**vars(other), "_open": False})

    # -- the numbers ------------------------------------------------------------------------------------------

    @property
    def flops(self) -> Number:
        """Contraction work in FLOPs, as ``convention`` counts it. Element-wise work is not in it."""
        return self.convention.flops(self.macs_by_kind)

    @property
    def macs(self) -> Number:
        """The multiply-adds that `flops` counts: half of it where a multiply-add is two FLOPs."""
        return divided(self.flops, self.convention.fma)

    @property
    def vector_flops(self) -> Number:
        """Element-wise work: each addition, multiplication, comparison, division or exponential counts as one.

        A convention that counts half of the scores also counts half of their softmax.
        """
        return self.convention.vector_flops(self.vector_by_kind)

    @property
    def params(self) -> Number:
        """Trainable numbers."""
        return total(self.params_by_role.values())

    @property
    def intensity(self) -> Number:
        """Arithmetic intensity: `flops` per byte."""
        return ratio(self.flops, self.bytes)

    def _numbers(self) -> tuple[Number, ...]:
        return (self.bytes, *self.macs_by_kind.values(), *self.vector_by_kind.values(), *self.params_by_role.values())

    def _altered(self, **fields: Any) -> Cost:
        """This cost with other *fields*, which need no check: what they are made of has been through one."""
        found = object.__new__(type(self))
        vars(found).update(vars(self) | fields)
        return found

    # -- arithmetic -------------------------------------------------------------------------------------------

    @classmethod
    def total(cls, name: str, parts: Iterable[Cost]) -> Cost:
        """The sum of *parts* under a name, which keeps them for its table.

        Raises
        ------
        ValueError
            Where they are of different conventions.
        TypeError
            Where one is not a `Cost`.
        """
        parts = tuple(parts)
        for part in parts:
            if not isinstance(part, Cost):
                raise TypeError(f"parts hold {part!r}: each part must be a Cost, such as the result of fk.dense(...)")
        for part in parts[1:]:
            if part.convention != parts[0].convention:
                raise ValueError(
                    f"cannot add a cost under {parts[0].convention} and one under {part.convention}: "
                    f"bring them together with .under(), e.g. cost.under(fk.conventions.{parts[0].convention})"
                )
        return cls(
            name,
            macs_by_kind=_merge(part.macs_by_kind for part in parts),
            vector_by_kind=_merge(part.vector_by_kind for part in parts),
            bytes=total(part.bytes for part in parts),
            params_by_role=_merge(part.params_by_role for part in parts),
            convention=parts[0].convention if parts else EXACT,
            parts=parts,
        )

    def __add__(self, other: Any) -> Cost:
        if not isinstance(other, Cost):
            if reading(other) == "altair":  # which would take this cost into an expression of its own, too
                raise TypeError(
                    "a cost and an expression do not add; if that was parameter * cost, write cost * parameter"
                )
            return NotImplemented
        return Cost.total("sum", (*self._terms(), *other._terms()))._opened()

    def __radd__(self, other: Any) -> Cost:
        return self if is_zero(other) else NotImplemented  # so that sum(costs) works

    def _terms(self) -> tuple[Cost, ...]:
        return self.parts if self._open else (self,)

    def _opened(self, opened: bool = True) -> Cost:
        object.__setattr__(self, "_open", opened)
        return self

    def __mul__(self, times: Any) -> Cost:
        if isinstance(times, Cost):
            raise TypeError("a cost times a cost has no meaning: add costs, or multiply one by a count")
        n = size("times", times, minimum=0)
        return (self._altered if isinstance(n, int) else partial(replace, self))(
            macs_by_kind={kind: n * count for kind, count in self.macs_by_kind.items()},
            vector_by_kind={kind: n * count for kind, count in self.vector_by_kind.items()},
            bytes=n * self.bytes,
            params_by_role={role: n * count for role, count in self.params_by_role.items()},
            parts=tuple(part * n for part in self.parts),
        )._opened(self._open)

    __rmul__ = __mul__

    def named(self, name: str) -> Cost:
        """The same cost under another name.

        >>> import flopkit as fk
        >>> up = fk.dense(tokens=1, d_in=4, d_out=8)
        >>> up.named("up").name
        'up'
        """
        return self._altered(name=name, _open=False)

    def fused(self, *, not_written: Count = 0, not_read: Count = 0, dtype: DType = "bf16") -> Cost:
        """The same work in one kernel, which keeps tensors on the chip that its parts would write and read: bytes without those.

        Bytes: those of this cost less ``not_written + not_read`` numbers. FLOPs, vector FLOPs and parameters stay.

        Parameters
        ----------
        not_written : Count, optional
            Numbers that a part makes, that only another part reads, and that therefore never reach memory.
        not_read : Count, optional
            Numbers that a part makes or reads anyway, so that a later part need not read them.
        dtype : DType, optional
            Number format of both.

        Raises
        ------
        ValueError
            Where more bytes would be saved than there are, or for a size below 0.

        Examples
        --------
        A residual sum and the norm after it: the norm need not read the sum, which is still written for the next sum.

        >>> import flopkit as fk
        >>> add, norm = fk.residual(elements=8192 * 4096), fk.rms_norm(tokens=8192, d=4096)
        >>> (add + norm).bytes, (add + norm).fused(not_read=8192 * 4096).bytes
        (335552512, 268443648)
        """
        saved = [
            nbytes(size(name, n, minimum=0), dtype)
            for name, n in (("not_written", not_written), ("not_read", not_read))
        ]
        if wrong := offence(lambda there, *less: sum(less) > there, self.bytes, *saved):
            raise ValueError(
                f"not_written={not_written} and not_read={not_read} save {sum(wrong[1:]):,} bytes, and {self.name} moves only "
                f"{wrong[0]:,}: count a tensor once where it is written and once where it is read"
            )
        return replace(self, bytes=self.bytes - saved[0] - saved[1])

    def under(self, convention: Convention | str) -> Cost:
        """The same work, counted by *convention*: a `flopkit.Convention`, or the name of one in ``fk.conventions``.

        >>> import flopkit as fk
        >>> cost = fk.attention(
        ...     batch=1, q=3, kv=3, heads=1, head_dim=8,
        ...     mask="causal",
        ... )
        >>> cost.flops, cost.under(fk.conventions.TORCH).flops
        (192, 288)

        Raises
        ------
        ValueError
            For a convention that counts parameters or positions, such as PALM, where this is a single layer with such: norms,
            biases, learned positions, experts; for CHINCHILLA, scores. A whole model, `flopkit.load`, keeps what it asks for,
            but for one whose parts see different numbers of tokens (CLIP, Whisper, Swin).
        """
        convention = as_convention(convention)
        if convention.of_models:
            self._ask_for_a_model(convention)
        parts = tuple(part.under(convention) for part in self.parts)
        return self._altered(convention=convention, parts=parts)

    def _ask_for_a_model(self, convention: Convention) -> None:
        has = {name for held in (self.macs_by_kind, self.params_by_role) for name, n in held.items() if not is_zero(n)}
        missing = [
            KINDS[kind].text.split(",")[0]
            for kind, signs in _SIGNS.items()
            if convention.share(kind) and kind not in self.macs_by_kind and any(has.issuperset(sign) for sign in signs)
        ]
        if missing:
            why = (
                f"which {self.name} alone does not have: use a whole model of text, e.g. fk.load('llama-3-8b').forward(seq=4096).under({str(convention)!r})"
                if not self.parts or "products" not in has
                else f"which {self.name} does not have: some of its parts see another number of tokens (two towers, later stages, sound); give EXACT or TORCH, or a model of text"
            )
            raise ValueError(f"{convention} counts {' and '.join(missing)} from per-token totals, {why}")

    # -- showing itself ---------------------------------------------------------------------------------------

    def table(self) -> Table:
        """One row for each part, the total last. Without parts, one row.

        Notes
        -----
        Columns: *part*, *FLOPs*, their *share* of the total (where there are parts), *vector FLOPs*, *bytes*, *FLOP/byte*, and
        *params* (where there are any), all under the cost's convention.
        """
        whole = self.flops
        columns: dict[str, tuple[str, Callable[[Cost], Any]]] = {  # each with its unit, and what stands in a row of it
            "FLOPs": ("FLOPs", lambda line: line.flops),
            "share": ("%", lambda line: ratio(line.flops, whole)),
            "vector FLOPs": ("FLOPs", lambda line: line.vector_flops),
            "bytes": ("B", lambda line: line.bytes),
            "FLOP/byte": ("", lambda line: line.intensity),
            "params": ("", lambda line: line.params),
        }
        if not (self.parts and _known(whole)):
            del columns["share"]
        if is_zero(self.params):
            del columns["params"]
        rows = [
            {"part": name, **{title: value(line) for title, (_, value) in columns.items()}}
            for name, line in (
                *((part.name, part) for part in self.parts),
                ("total" if self.parts else self.name, self),
            )
        ]
        formats = {title: partial(amount, unit=unit) for title, (unit, _) in columns.items()}
        return Table(rows, caption=f"{self.name}, convention {self.convention}{self._elsewhere()}", formats=formats)

    def to_frame(self) -> Any:
        """`table` as a data frame of pandas or polars: see `Table.to_frame`."""
        return self.table().to_frame()

    def plot(self) -> Any:
        """A `flopkit.charts.Figure` of the FLOPs and bytes of each part."""
        from flopkit.charts.plots import cost_by_part

        return cost_by_part(self)

    def __repr__(self) -> str:
        amounts = [amount(self.flops, "FLOPs")]
        if not is_zero(self.vector_flops):
            amounts.append(amount(self.vector_flops, "FLOPs") + " element-wise")
        amounts += [amount(self.bytes, "B"), amount(self.intensity, "FLOP/B")]
        if not is_zero(self.params):
            amounts.append(amount(self.params, "parameters"))
        return f"{self.name}: {', '.join(amounts)} [{self.convention}{self._elsewhere()}]"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def _elsewhere(self) -> str:
        """What other conventions would say, where they say something else because of a mask."""
        hidden = self.macs_by_kind.get("hidden", 0)
        if not _known(hidden) or not hidden:
            return ""
        other = TORCH if self.convention != TORCH else EXACT
        return f"; {amount(other.flops(self.macs_by_kind), 'FLOPs')} under {other}"


# By what a single layer shows that it has some of a kind that only whole models keep: roles of parameters, kinds of work.
_SIGNS = {
    "vectors": ({"norm"}, {"bias"}),
    "positions": ({"position"},),
    "idle": ({"router", "products"},),
    "pairs": ({"scores"}, {"hidden"}),
}


def _merge(mappings: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    merged: dict[str, Number] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            merged[key] = merged[key] + value if key in merged else value
    return merged


def _known(value: Any) -> bool:
    return isinstance(value, (int, float, Fraction))


def amount(value: Any, unit: str = "") -> str:
    """A number with its unit where it is known, else what there is in short: an array, a symbol, an expression.

    >>> amount(2_000_000, "FLOPs")
    '2 MFLOPs'
    """
    return units.format_value(value, unit) if _known(value) else f"{brief(value)} {unit}".strip()
