"""`gather`: the reports of all ranks of a job, added up."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import brief
from flopkit.counter.ledger import Entry, Ledger, Snapshot
from flopkit.counter.report import Report

__all__ = ["gather"]

LOCAL = "rank "  # a rank's note of itself begins so


def gather(report: Report) -> Report:
    """Add up the reports of all ranks of a job that runs under ``torch.distributed``, such as one that ``torchrun`` started.

    Every rank calls it, and every rank gets the whole: FLOPs and bytes of all devices, and in `Report.communication` what they send
    together. Without a process group, or in a group of one rank, the whole is *report* itself.

    Parameters
    ----------
    report : Report
        This rank's, of the same step as the others'.

    Returns
    -------
    Report
        By the convention of *report*; its notes are those of all ranks.

    Raises
    ------
    TypeError
        For what is no report.
    RuntimeError
        On a simulated rank: the others are not there.

    Notes
    -----
    Reports are pickled and sent to all: a megabyte for a model of thousands of operators, once. Ranks that compute the same (what
    data parallelism or tensor parallelism does not divide) are added up like any others, so the sum is what the devices execute.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> report = fk.count(torch.nn.Linear(4, 8), torch.ones(2, 4))
    >>> fk.gather(report).flops  # of one process
    128
    """
    import torch.distributed as dist

    if not isinstance(report, Report):
        raise TypeError(f"report={brief(repr(report), 60)}: must be what fk.count or fk.counting gave")
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return report
    ranks = dist.get_world_size()
    if dist.get_backend() == "fake":
        raise RuntimeError(
            f"the other {ranks - 1} ranks are simulated and have no reports: count each with fk.simulate_ranks({ranks}, rank=...)"
        )
    found: list[Any] = [None] * ranks
    dist.all_gather_object(found, report)
    total, notes, entries = Ledger(), {f"{ranks} ranks together"}, dict[Any, Entry]()
    for each in found:
        for (entry, where), calls in each._source.ledger().calls.items():
            same = entries.setdefault((entry.op, repr(entry.work), entry.by_torch), entry)
            total.calls[same, where] += calls
        notes |= {note for note in each._source.notes if not note.startswith(LOCAL)}
        for (entry, where), calls in each._source.ledger().unseen.items():
            total.unseen[entries[entry.op, repr(entry.work), entry.by_torch], where] += calls
    return Report(Snapshot(total, notes), report.convention)
