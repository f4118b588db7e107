"""The ledger that arithmetic on `Tally` numbers is written into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from flopkit.tables import Table

__all__ = ["OPERATIONS", "Ledger", "contraction", "counting", "elementwise"]

OPERATIONS: Mapping[str, str] = {
    "multiplies": "multiplications",
    "adds": "additions",
    "subtracts": "subtractions",
    "divides": "divisions",
    "comparisons": "comparisons",
    "exponentials": "exponentials and their like",
    "square_roots": "square roots",
}
LIMIT = 2_000_000  # operations, about three seconds


class _Now(NamedTuple):
    """Where an operation is written: the open ledgers, and what the running algorithm says it is doing."""

    ledgers: tuple[Ledger, ...] = ()
    kind: str = ""  # nothing said: "products" or "elementwise", as the operation turns out
    role: str = ""  # "contraction", "vector", or nothing said: then the flow of the data decides


_NOW: ContextVar[_Now] = ContextVar("flopkit.tally", default=_Now())  # noqa: B039 (immutable)


class Ledger:
    """What was counted: how often each operation was done, apart by what it was done for.

    ``multiplies``, ``adds``, ``subtracts``, ``divides``, ``comparisons``, ``exponentials`` and ``square_roots`` are the
    operations that were really done, and `operations` is their sum. `macs` are the multiply-adds: each multiplication of a
    contraction, with the addition that takes its result. The first product of a sum has no addition, yet the hardware
    spends a fused multiply-add on it (onto zero), so a dot product of length K is K multiply-adds. `flops` is the
    convention, 2 · `macs`; `vector_flops` are all operations outside contractions.

    >>> from flopkit import tally
    >>> ledger = tally.matmul(m=5, k=3, n=7)
    >>> ledger.multiplies, ledger.adds, ledger.operations
    (105, 70, 175)
    >>> ledger.macs, ledger.flops
    (105, 210)
    """

    def __init__(self, title: str = "counted", limit: int = LIMIT) -> None:
        self.title = title
        self.inputs: dict[str, Any] = {}
        self.output: Any = None
        self._limit = limit
        self._counts: Counter[tuple[str, str, str]] = Counter()  # (kind, role, operation) -> times

    # -- the operations done ----------------------------------------------------------------------------------

    @property
    def operations(self) -> int:
        """All operations done, of whatever sort."""
        return sum(self._counts.values())

    @property
    def multiplies(self) -> int:
        return self._times("multiplies")

    @property
    def adds(self) -> int:
        return self._times("adds")

    @property
    def subtracts(self) -> int:
        return self._times("subtracts")

    @property
    def divides(self) -> int:
        return self._times("divides")

    @property
    def comparisons(self) -> int:
        return self._times("comparisons")

    @property
    def exponentials(self) -> int:
        """Exponentials, logarithms, tanh, erf, sine and cosine: each evaluation is one."""
        return self._times("exponentials")

    @property
    def square_roots(self) -> int:
        return self._times("square_roots")

    # -- as they are counted ----------------------------------------------------------------------------------

    @property
    def macs(self) -> int:
        """Multiply-adds of the contractions."""
        return sum(self.macs_by_kind.values())

    @property
    def flops(self) -> int:
        """The convention: two FLOPs for each multiply-add."""
        return 2 * self.macs

    @property
    def vector_flops(self) -> int:
        """Operations outside contractions, one FLOP each."""
        return sum(self.vector_by_kind.values())

    @property
    def macs_by_kind(self) -> dict[str, int]:
        """Multiply-adds by the kinds that a `flopkit.Cost` keeps."""
        return self._by_kind(lambda role, operation: role == "contraction" and operation == "multiplies", "products")

    @property
    def vector_by_kind(self) -> dict[str, int]:
        """Vector FLOPs by the kinds that a `flopkit.Cost` keeps."""
        return self._by_kind(lambda role, operation: role == "vector", "elementwise")

    # -- keeping the books ------------------------------------------------------------------------------------

    def _write(self, kind: str, role: str, operation: str, times: int = 1) -> None:
        self._counts[kind, role, operation] += times
        if self._limit:
            self._limit -= 1
            if not self._limit:
                raise ValueError(too_large(self.title))

    def _times(self, operation: str, role: str | None = None) -> int:
        return sum(n for (_, r, o), n in self._counts.items() if o == operation and role in (None, r))

    def _by_kind(self, wanted: Callable[[str, str], bool], usual: str) -> dict[str, int]:
        found: Counter[str] = Counter()
        for (kind, role, operation), times in self._counts.items():
            if times and wanted(role, operation):
                found[kind or usual] += times
        return dict(found)

    # -- showing itself ---------------------------------------------------------------------------------------

    def table(self) -> Table:
        """One row an operation, the sum last.

        Notes
        -----
        Columns: *operation*, how often it was done *in contractions*, and how often *element-wise*.
        """
        rows: list[dict[str, Any]] = []
        for operation, spoken in OPERATIONS.items():
            inside, outside = self._times(operation, "contraction"), self._times(operation, "vector")
            if inside or outside:
                rows.append({"operation": spoken, "in contractions": inside, "element-wise": outside})
        total = {name: sum(row[name] for row in rows) for name in ("in contractions", "element-wise")}
        return Table([*rows, {"operation": "all", **total}], caption=self.title)

    def _summary(self) -> str:
        parts = [f"{self.macs:,} multiply-adds, counted as 2 each: {self.flops:,} FLOPs"] if self.macs else []
        parts += [f"{self.vector_flops:,} vector FLOPs"] if self.vector_flops else []
        return "; ".join(parts) or "no arithmetic"

    def __repr__(self) -> str:
        return f"{self.table()}\n{self._summary()}"

    def _repr_html_(self) -> str:
        return f"{self.table()._repr_html_()}<p>{self._summary()}</p>"


def too_large(title: str) -> str:
    return (
        f"{title}: more than {LIMIT:,} operations or numbers; Tally does the arithmetic one number at a time, so choose "
        "smaller sizes, and leave large ones to the closed form"
    )


@contextmanager
def counting(title: str = "counted") -> Iterator[Ledger]:
    """Count the arithmetic that is done on `Tally` numbers inside the ``with`` block.

    A multiplication whose result goes into a sum is taken as a multiply-add; all else is vector work.
    Arithmetic on other numbers is not seen.

    >>> from flopkit import tally
    >>> x, y = tally.numbers(4), tally.numbers(4)
    >>> with counting("a dot product") as ledger:
    ...     total = sum(a * b for a, b in zip(x, y))
    >>> ledger
    a dot product
    operation        in contractions  element-wise
    multiplications                4             0
    additions                      3             0
    all                            7             0
    4 multiply-adds, counted as 2 each: 8 FLOPs
    """
    ledger = Ledger(title)
    now = _NOW.get()
    token = _NOW.set(_Now((*now.ledgers, ledger)))
    try:
        yield ledger
    finally:
        _NOW.reset(token)


@contextmanager
def _doing(kind: str, role: str) -> Iterator[None]:
    token = _NOW.set(_Now(_NOW.get().ledgers, kind, role))
    try:
        yield
    finally:
        _NOW.reset(token)


def contraction(kind: str = "products") -> Any:
    """Inside this ``with`` block every multiplication is half of a multiply-add, even where its sum has one term.

    >>> from flopkit import tally
    >>> with counting() as ledger, contraction():
    ...     product = tally.Tally(3) * tally.Tally(4)
    >>> ledger.macs
    1
    """
    return _doing(kind, "contraction")


def elementwise(kind: str = "elementwise") -> Any:
    """Inside this ``with`` block every operation is vector work, sums of products too.

    >>> from flopkit import tally
    >>> with counting() as ledger, elementwise():
    ...     square_sum = sum(x * x for x in tally.numbers(4))
    >>> ledger.macs, ledger.vector_flops
    (0, 7)
    """
    return _doing(kind, "vector")


def undecided() -> bool:
    """Whether nothing is said about what an operation is for, so that the flow of the data decides."""
    return not _NOW.get().role


def record(operation: str, role: str = "") -> None:
    """Write one operation into every open ledger."""
    now = _NOW.get()
    for ledger in now.ledgers:
        ledger._write(now.kind, now.role or role or "vector", operation)


def take_up() -> None:
    """A product has gone into a sum: its multiplication, written as vector work, was half of a multiply-add."""
    now = _NOW.get()
    for ledger in now.ledgers:
        if ledger._counts[now.kind, "vector", "multiplies"]:
            ledger._counts[now.kind, "vector", "multiplies"] -= 1
            ledger._counts[now.kind, "contraction", "multiplies"] += 1
