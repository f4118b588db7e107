"""What another tool would print, beside what is true, and the reason for each gap."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flopkit import units
from flopkit.tables import Table

__all__ = ["NO_NUMBER", "Fails", "Row", "Seen"]

NO_NUMBER = "gave no number"  # of a tool that keeps its errors to itself


class Fails(Exception):
    """What a tool would raise: its kind and what it says, as `flopkit.counter.peers.asked.Answer.said` has them."""


@dataclass(frozen=True)
class Row:
    """One kind of work, as it is and as the tool sees it.

    Parameters
    ----------
    operator : its name, as in `flopkit.counter.report.Report.by_op`.
    calls : how often it ran.
    flops : what it executed, convention TORCH.
    seen : what the tool takes it for, in FLOPs, whatever the tool calls them.
    reason : why the two differ; empty where they agree.
    """

    operator: str
    calls: int
    flops: int
    seen: int
    reason: str = ""


@dataclass(frozen=True)
class Seen:
    """The number that a tool would print of a program, and what is behind it.

    Parameters
    ----------
    tool : its name, with the version that it was compared with.
    value : the number that it prints; None where it fails. ``int(seen)`` is the same, and raises ``ValueError`` without one.
    unit : what the tool calls it, ``"FLOPs"`` or ``"MACs"``.
    really : what the number counts.
    flops : what was executed, convention TORCH.
    rows : each kind of work, as it is and as the tool sees it.
    remarks : what else is to be known.
    failure : the error that the tool raises of such a program; empty where it prints a number.
    """

    tool: str
    value: int | None
    unit: str
    really: str
    flops: int
    rows: Sequence[Row] = field(default_factory=tuple)
    remarks: Sequence[str] = field(default_factory=tuple)
    failure: str = ""

    def __int__(self) -> int:
        if self.value is None:
            raise ValueError(f"{self.tool} prints no number: {self._error}")
        return int(self.value)

    __index__ = __int__

    @property
    def _error(self) -> str:
        if self.failure == NO_NUMBER:
            return "it fails, and gives no number"
        return f"it fails with {self.failure.removesuffix(': ')}"

    @property
    def missed(self) -> Table:
        """Work that the tool does not see, or not all of: operator, calls, and the FLOPs that are not in its number."""
        short = sorted((row for row in self.rows if row.seen < row.flops), key=lambda row: row.seen - row.flops)
        rows = [{"operator": row.operator, "calls": row.calls, "flops": row.flops - row.seen} for row in short]
        return Table(rows, caption=f"not seen by {self.tool}", formats={"flops": _flops})

    @property
    def reasons(self) -> list[str]:
        """Why the number is not the FLOPs that were executed: one sentence for each reason, the largest gap first."""
        gaps: dict[str, int] = {}
        for row in self.rows:
            if row.reason:
                gaps[row.reason] = gaps.get(row.reason, 0) + row.seen - row.flops
        found = [
            f"{reason}: {'+' if gap > 0 else '−'}{_flops(abs(gap))}" if gap else reason
            for reason, gap in sorted(gaps.items(), key=lambda pair: -abs(pair[1]))
        ]
        return [*([self._error] if self.value is None else ()), *found, *self.remarks]

    @property
    def share(self) -> float:
        """FLOPs that the tool sees for each one that was executed: 1 where it is right, 0 where it sees nothing."""
        if self.value is None:
            return 0.0
        return sum(row.seen for row in self.rows) / self.flops if self.flops else 1.0

    def summary(self) -> list[str]:
        """The same in a few lines."""
        if self.value is None:
            first = f"{self.tool} would print no number, where {_flops(self.flops)} were executed"
            return [first, *(f"- {reason}" for reason in self.reasons)]
        called = f"{self.value:,} {self.unit}"
        lines = [
            f"{self.tool} would print {called}" + (f" (they are {self.really})" if self.really != self.unit else "")
        ]
        share = (
            f"{units.format_value(self.share, '×')} the"
            if self.share > 1
            else f"{units.format_value(self.share, '%')} of the"
        )
        lines.append(
            f"{'in FLOPs that is' if self.share > 1 else 'it sees'} {share} {_flops(self.flops)} that were executed"
        )
        return [*lines, *(f"- {reason}" for reason in self.reasons)]

    def __repr__(self) -> str:
        table = [str(self.missed)] if len(self.missed) else []
        return "\n".join([*self.summary(), *table])

    def _repr_html_(self) -> str:
        said = "".join(f"<div>{html.escape(line)}</div>" for line in self.summary())
        return said + (self.missed._repr_html_() if len(self.missed) else "")


def _flops(value: Any) -> str:
    return units.format_value(value, "FLOPs")
