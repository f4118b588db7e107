"""What torch's own counter, `torch.utils.flop_counter.FlopCounterMode`, would print of the run that was watched.

It is a dispatch mode as ours is, so it meets the same operators. It looks each up in torch's registry of formulas, ``flop_registry``, and
takes what is not there for 0. The same registry is asked here, for each kind of call once, while the program runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from flopkit import units
from flopkit.counter.breakdown import FORMATS
from flopkit.counter.ledger import Ledger
from flopkit.tables import Table, as_html

__all__ = ["Seen", "flops_of", "seen"]

ATTENTION = "scaled_dot_product_attention"  # flopkit.counter.watch.attention.OP, which cannot be had without torch


def flops_of(func: Any, args: Any, kwargs: Any, out: Any) -> int | None:
    """What torch's counter adds for one call: 0 where its registry has no formula, None where the formula fails, and the counter with it."""
    import torch
    from torch.utils.flop_counter import flop_registry

    packet: Any = getattr(func, "overloadpacket", func)
    try:
        if packet is torch.ops.aten.linear:  # in inference mode it comes whole, and torch's counter takes it apart
            x, weight = args[0].shape, args[1].shape
            return int(flop_registry[torch.ops.aten.mm]((prod(x[:-1]), x[-1]), (x[-1], prod(weight[:-1]))))
        formula = flop_registry.get(packet)
        return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))
    except Exception:  # such as an assertion about shapes
        return None


@dataclass(frozen=True)
class Seen:
    """The number that torch's counter would print (``int(seen)``), and the operators that it counts differently.

    Examples
    --------
    Torch's counter has no formula for a matrix times a vector.

    >>> import torch, flopkit as fk
    >>> report = fk.count(torch.mv, torch.ones(8, 4), torch.ones(4))
    >>> seen = report.as_seen_by("torch")
    >>> int(seen), seen.flops, seen.missed[0]["operator"]
    (0, 64, 'mv')
    """

    value: int
    flops: int  # executed, convention TORCH
    rows: Sequence[dict[str, Any]]  # operator, calls, flops (executed) and seen; attention is one, whatever ran inside

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    @property
    def share(self) -> float:
        """The number over the executed FLOPs."""
        return self.value / self.flops if self.flops else 1.0

    @property
    def missed(self) -> Table:
        """Operators with FLOPs that the number leaves out, those with the most first.

        Columns: *operator*, *calls*, *flops* that were executed, and those that were *seen*.
        """
        return self._table("missed, in full or in part", 1)

    @property
    def too_many(self) -> Table:
        """Operators that are charged more than they execute, such as the backward of a grouped convolution. Columns as in `missed`."""
        return self._table("counted too high", -1)

    def _table(self, caption: str, sign: int) -> Table:
        rows = [row for row in self.rows if sign * (row["flops"] - row["seen"]) > 0]
        rows.sort(key=lambda row: sign * (row["seen"] - row["flops"]))
        return Table(rows, caption=caption, formats=FORMATS)

    def _shown(self) -> tuple[str, list[Table]]:
        """A line, and the tables below it."""
        unit, of = ("%", " of") if self.share <= 1 else ("×", "")
        share, flops = units.format_value(self.share, unit) + of, units.format_value(self.flops, "FLOPs")
        line = f"torch's FlopCounterMode would print {self.value:,} FLOPs, {share} the {flops} of this run"
        return line, [table for table in (self.missed, self.too_many) if len(table)]

    def __repr__(self) -> str:
        line, tables = self._shown()
        return "\n".join([line, *map(str, tables)])

    def _repr_html_(self) -> str:
        line, tables = self._shown()
        return as_html([line], *tables)


def seen(ledger: Ledger, tool: str) -> Seen:
    """`Report.as_seen_by`."""
    if tool != "torch":
        raise ValueError(
            f"tool={tool!r}: a report knows what torch's own counter would print, as_seen_by('torch'); "
            f"other tools are run by fk.ask({tool!r}, model, *inputs)"
        )
    whole = {entry.op for entry, where in ledger.calls if entry.func is None and not where.in_attention}
    rows: dict[str, dict[str, Any]] = {}
    for (entry, where), calls in ledger.calls.items():
        if entry.by_torch is None:
            raise ValueError(f"torch's own formula for {entry.op} fails on such a call, and its counter with it")
        op = ATTENTION if where.in_attention and entry.op not in whole else entry.op
        row = rows.setdefault(op, {"operator": op, "calls": 0, "flops": 0, "seen": 0})
        row["seen"] += (calls - ledger.unseen[entry, where]) * entry.by_torch
        if not where.in_attention:
            row["calls"] += calls
            row["flops"] += round(2 * calls * sum(sum(macs.values()) for macs in entry.work.carried_out))
    known = [row for row in rows.values() if row["flops"] or row["seen"]]
    return Seen(sum(row["seen"] for row in known), sum(row["flops"] for row in known), known)
