"""What one call of one operator costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flopkit.arithmetic import Number

COUNTED = "counted"  # a formula gives its multiply-adds
ELEMENTWISE = "element-wise"  # arithmetic outside of contractions: vector FLOPs
FREE = "free"  # no arithmetic: a view moves nothing, a copy or a gather moves bytes
UNKNOWN = "unknown"  # nobody has said what it does: listed, never a silent zero


PHASES = ("forward", "backward", "recompute", "optimizer")


@dataclass(frozen=True)
class Work:
    """What one call of one operator costs. Amounts are by kind (`flopkit.conventions.KINDS`, ``VECTOR_KINDS``)."""

    status: str  # COUNTED, ELEMENTWISE, FREE or UNKNOWN
    # Multiply-adds that the mathematics asks for, and those that the kernel carries out, where nothing is said the same. They differ where a
    # kernel computes pairs that the mask hides, or gradients that nobody asked for.
    model: Mapping[str, Number] = field(default_factory=dict)
    executed: Any = None  # a mapping, too
    recomputed: Mapping[str, Number] = field(default_factory=dict)  # by a fused backward, besides: attention's scores
    ahead: Mapping[str, Number] = field(
        default_factory=dict
    )  # by a forward, besides: gradients, which are the backward pass's
    vector: Mapping[str, Number] = field(default_factory=dict)  # element-wise FLOPs
    vector_recomputed: Mapping[str, Number] = field(default_factory=dict)
    bytes: int = 0  # compulsory traffic
    kernel: str = ""  # that ran, where one operator has several
    note: str = ""  # what could not be known, e.g. a mask that is hidden in a tensor
    dtype: str = ""  # of the operands, by torch's name; empty where nothing is contracted
    exchanges: tuple[Any, ...] = ()  # of a collective: what goes between ranks (`formulas.collectives.Exchange`)

    def __post_init__(self) -> None:
        if self.executed is None:
            object.__setattr__(self, "executed", self.model)

    @property
    def carried_out(self) -> tuple[Mapping[str, Number], ...]:
        """All multiply-adds of the call, whichever phase they belong to."""
        return self.executed, self.recomputed, self.ahead


def counted(macs: Number, bytes: int = 0, vector: float = 0) -> Work:
    """A contraction of *macs* multiply-adds."""
    return Work(COUNTED, {"products": macs}, bytes=bytes, vector={"elementwise": vector} if vector else {})


def elementwise(vector: float, bytes: int = 0) -> Work:
    """Element-wise work of *vector* FLOPs."""
    return Work(ELEMENTWISE, vector={"elementwise": vector}, bytes=bytes)


def free(bytes: int = 0) -> Work:
    """Movement without arithmetic."""
    return Work(FREE, bytes=bytes)


def unknown(bytes: int = 0) -> Work:
    """An operator that no formula explains."""
    return Work(UNKNOWN, bytes=bytes)


def settled(number: Number) -> Number:
    """*number*, an int, a float or a `Fraction`, as an int where it is one."""
    return int(number) if number % 1 == 0 else number
