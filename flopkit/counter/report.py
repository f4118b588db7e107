"""What a program did: by phase, by operator, by module, under a convention, and what nobody could explain."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import divided
from flopkit.conventions import TORCH, Convention, of_programs
from flopkit.counter import breakdown, by_torch, printout
from flopkit.counter.breakdown import Sum
from flopkit.counter.by_torch import Seen
from flopkit.counter.ledger import Entry, Snapshot, Where
from flopkit.counter.work import PHASES, UNKNOWN, settled
from flopkit.dtypes import format_of
from flopkit.rooflines import ProgramBound, program_bound
from flopkit.tables import Table, as_html

__all__ = ["Report"]


def _phase(name: str, doc: str) -> Any:
    return property(lambda report: breakdown.phase(report, name), doc=doc)


class Report:
    """The FLOPs and bytes of a program that ran: the result of `flopkit.count` and `flopkit.counting`.

    Inside ``with fk.counting() as report`` the numbers grow as the program runs. A report can be pickled, to save it or to collect
    the reports of several ranks. Its attributes are plain numbers, in FLOPs, bytes and calls of the whole run:

    - ``model_flops``: what the model's forward and backward need, over time and peak the MFU.
      ``hardware_flops`` (also ``flops``): what ran, recompute and optimiser included, over time and peak the HFU. ``macs`` is half of it.
    - ``forward``, ``backward``, ``recompute``, ``optimizer``: a `Cost` each; their FLOPs sum to ``hardware_flops``.
    - ``vector_flops``: element-wise work, which is in none of the above. ``bytes``: compulsory traffic of each operator run by itself.
    - ``by_op()``, ``by_module()``, ``flops_by_dtype``: where the FLOPs are. ``communication``: what this rank sent.
    - ``uncounted``: operators without a formula, whose FLOPs are in none of the numbers; ``coverage``: the share of bytes that is
      understood; ``notes``: what the counter could not see.
    - ``under(X)`` is the same run under another convention, ``roofline(device)`` its least time.

    >>> import torch, flopkit as fk
    >>> layer = torch.nn.Linear(3, 5)
    >>> x = torch.ones(2, 3)
    >>> with fk.counting() as report:
    ...     layer(x).sum().backward()
    >>> report.forward.flops, report.backward.flops
    (60, 60)
    >>> report.model_flops, report.hardware_flops, report.uncounted
    (120, 120, [])
    """

    def __init__(self, source: Any, convention: Convention = TORCH) -> None:
        self._source = source  # a Session that is running, or what it left
        self.convention = convention
        self._read: list[tuple[Entry, Where, int]] | None = None  # once nothing is added any more, as the sums
        self._sums: list[Sum] | None = None
        # Each call in its order, with whether it ran inside of an operator that was opened; only of `in_order`.
        self.order: list[tuple[Entry, Where, bool]] | None = None

    @property
    def model_flops(self) -> Any:
        """FLOPs of the model's forward and backward pass, without recomputation and the optimiser: over time and peak, MFU."""
        return settled(sum(self.convention.flops(each.model) for each in self.sums()))

    @property
    def hardware_flops(self) -> Any:
        """FLOPs that were executed, in all phases: over time and peak, HFU. `flops` and `hardware_flops` are the same number."""
        return settled(sum(getattr(self, phase).flops for phase in PHASES))

    flops = hardware_flops

    @property
    def macs(self) -> Any:
        """Multiply-adds that were executed: half of `flops` where one is two FLOPs."""
        return divided(self.flops, self.convention.fma)

    @property
    def vector_flops(self) -> Any:
        """Element-wise FLOPs that were executed; never part of `flops`."""
        return settled(sum(getattr(self, phase).vector_flops for phase in PHASES))

    @property
    def bytes(self) -> int:
        """Compulsory traffic of all operators, each run by itself, including operators without a formula."""
        return sum(each.bytes for each in self.sums())

    @property
    def intensity(self) -> float:
        """Executed FLOPs per byte."""
        return float(self.flops / self.bytes) if self.bytes else 0.0

    forward = _phase("forward", "The forward pass, as a `Cost`.")
    backward = _phase("backward", "The backward pass without the forward work that it recomputes.")
    recompute = _phase("recompute", "Forward work done again by checkpoints, and scores by flash attention's backward.")
    optimizer = _phase("optimizer", "Work inside an optimiser's step; a closure's counts as forward and backward.")

    @property
    def uncounted(self) -> list[dict[str, Any]]:
        """Operators without a formula. Their FLOPs are in none of the numbers; see `flopkit.formula`.

        Columns: *operator*, *calls*, *bytes*.
        """
        rows: dict[str, dict[str, Any]] = {}
        for entry, _, calls in self.lines():
            if entry.work.status == UNKNOWN:
                row = rows.setdefault(entry.op, {"operator": entry.op, "calls": 0, "bytes": 0})
                row["calls"] += calls
                row["bytes"] += calls * entry.work.bytes
        return sorted(rows.values(), key=lambda row: -row["bytes"])

    @property
    def communication(self) -> Table:
        """What went between the ranks of a job: the collectives that this rank took part in, and the bytes that it sent.

        Columns: *collective*, *ranks* of its group, *phase*, *module*, *calls*, *payload* and *sent*. The payload is the whole tensor
        in bytes: what is reduced, what comes out of a gather, what a rank holds before a scatter or an all-to-all. *sent* is what a ring
        sends from one of *n* ranks: 2(n − 1)/n of the payload in an all-reduce, (n − 1)/n in an all-gather, a reduce-scatter or an
        all-to-all, all of it in a broadcast or a send.

        Notes
        -----
        An all-to-all whose parts differ sends all but this rank's own part. Waiting moves nothing. Other algorithms send more: gloo's
        reduce-scatter as much as an all-reduce. Nothing here says what is hidden behind computation. A gather that FSDP launches ahead
        belongs to the module at which it was launched. For one rank on one machine, see `flopkit.simulate_ranks`.

        Examples
        --------
        >>> import torch, flopkit as fk
        >>> with fk.simulate_ranks(8):
        ...     report = fk.count(torch.distributed.all_reduce, torch.ones(1000))
        >>> report.communication.rows
        [{'collective': 'all-reduce', 'ranks': 8, 'phase': 'forward', 'module': '(no module)', 'calls': 1, 'payload': 4000, 'sent': 7000}]
        """
        return breakdown.communication(self)

    @property
    def coverage(self) -> float:
        """Share of the bytes that belong to known operators; 1.0 if nothing is uncounted."""
        missing = self.uncounted
        return 1 - sum(row["bytes"] for row in missing) / self.bytes if self.bytes else float(not missing)

    @property
    def notes(self) -> list[str]:
        """Warnings: masks that the counter could not read, work of one rank only, kernels that were assumed."""
        return [*self._source.notes, *printout.notes(self)]

    def add_note(self, note: str) -> None:
        """Add a line to `notes`."""
        self._source.notes.add(note)

    def under(self, convention: Convention | str) -> Report:
        """The same run, counted by *convention*: a `flopkit.Convention`, or the name of one in ``fk.conventions``.

        Under EXACT attention counts the pairs that the program's own mask lets through. `notes` lists the calls whose mask is a
        tensor, which the counter does not read.

        Raises
        ------
        ValueError
            For a convention that needs what a program does not show, such as which product is the router's.
        """
        other = Report(self._source, of_programs(convention))
        if self._source.closed:
            other._read, other._sums = self.lines(), self.sums()
        return other

    def by_op(self, sort: str = "flops") -> Table:
        """One row for each operator, phase and kernel.

        Parameters
        ----------
        sort : str, optional
            The column to sort by, largest first: ``"flops"``, ``"model_flops"``, ``"vector_flops"``, ``"bytes"`` or ``"calls"``; or
            ``"operator"``, by name.

        Notes
        -----
        Columns: *operator*, *phase*, *kernel* (where an operator has several), *calls*, *flops* that were executed and their *share*,
        *model_flops*, *vector_flops*, *bytes*, bytes *sent* to other ranks (shown only if some were), *intensity* in FLOPs per byte,
        and *status*: counted, element-wise, free or unknown.
        """
        return breakdown.by_op(self, sort)

    def by_module(self, depth: int | None = None) -> Table:
        """One row for each module, submodules included, in the order of the calls.

        Names are those of ``torch.nn.Module.named_modules``; the root's name is empty. A module without children that was called
        beside the root, such as a loss, has the name of its class. If several modules with children were called, each name begins
        with the class of its root. A module that is not registered appears below its caller, such as ``(Linear)``. Work outside
        all modules is in the row ``(no module)``.

        Parameters
        ----------
        depth : int, optional
            How many levels to show. 0: the model alone, or each of several; None: all.

        Raises
        ------
        ValueError
            For another depth.

        Notes
        -----
        Columns: *module*, the *flops* that were executed in it and their *share*, the same by phase: *forward*, *backward*,
        *recompute*, *optimizer* (each of the last three only if something ran in it), *model_flops*, *vector_flops*, *bytes* and, only if
        some were, bytes *sent* to other ranks.
        """
        return breakdown.by_module(self, depth)

    def flops_by_dtype(self, model: bool = False) -> dict[str, Any]:
        """FLOPs that were executed, by the number format of their operands; their sum is `hardware_flops`.

        What `flopkit.mfu` and `flopkit.hfu` divide by the peak of each format.

        Parameters
        ----------
        model : bool, optional
            The FLOPs that the mathematics asks for instead; their sum is `model_flops`.

        Examples
        --------
        >>> import torch, flopkit as fk
        >>> layer, x = torch.nn.Linear(3, 5), torch.ones(2, 3)
        >>> fk.count(lambda: (layer(x), layer.bfloat16()(x.bfloat16()))).flops_by_dtype()
        {'fp32': 60, 'bf16': 60}
        """
        found: dict[str, Any] = {}
        for dtype, each in breakdown.sums(self, lambda part: part.entry.work.dtype).items():
            if flops := self.convention.flops(each.model if model else each.macs):
                found[format_of(dtype)] = found.get(format_of(dtype), 0) + flops
        return {format: settled(flops) for format, flops in found.items()}

    def as_seen_by(self, tool: str = "torch") -> Seen:
        """What torch's own counter, ``torch.utils.flop_counter.FlopCounterMode``, would print for this run, silent zeros included.

        Its formulas were applied to each operator as it ran. ``int(...)`` of the result is the number, ``missed`` lists the operators
        that are not in it, ``too_many`` those that it charges more than they execute, and ``share`` is the number over the executed
        FLOPs, convention TORCH. For other tools use `flopkit.ask`.

        Parameters
        ----------
        tool : str, optional
            ``"torch"``, the only one.

        Raises
        ------
        ValueError
            For another tool, or if one of torch's formulas fails, as its counter would.
        """
        return by_torch.seen(self._source.ledger(), tool)

    def roofline(self, device: Any, dtype: Any = None) -> ProgramBound:
        """The least time of each operator on *device*, what limits it, and the sum of ``max(flops / peak, bytes / bandwidth)``.

        Parameters
        ----------
        device : Any
            A name, a `flopkit.Device`, or anything with ``peak`` and ``bandwidth`` (see `flopkit.roofline`). Or a
            `flopkit.parallel.Cluster`: its devices, and communication over its links and its network.
        dtype : Any, optional
            Number format whose peak applies to every operator, such as ``"tf32"`` for a program in float32 that may use it; None: the
            format of each operator's own operands. Bytes are those of the tensors that were there, either way.

        Raises
        ------
        ValueError
            For a device or a number format that is not known, or for which the device has no peak; on a cluster, for collectives whose
            ranks fill its nodes unevenly, or of which the report does not know who takes part.
        TypeError
            For what is no device.

        Notes
        -----
        On a cluster each collective takes its least time, `Exchange.on`, with the ranks where they are: rank r of the job is in node
        r // ``per_node``. ``communication_seconds`` is the sum; ``seconds`` has it beside the operators, as if nothing ran at once, and
        ``overlapped_seconds`` is the longer of the two, the least time if all of it hides. The parts of an all-to-all that differ are
        taken to go to all nodes alike. A receive takes the time of its send, which the sender has.

        Executed FLOPs, a multiply-add being two, as peaks have it. Left out, so that a measured time is longer: launching (microseconds a
        call), element-wise arithmetic, kernels that move more than they have to, traffic between devices, the FLOPs of operators that
        nobody knows. Left out the other way: caches. A fused backward that recomputes scores is one call of the backward pass.

        Examples
        --------
        >>> import torch, flopkit as fk
        >>> with torch.device("meta"):
        ...     layer, x = torch.nn.Linear(4096, 4096, bias=False), torch.empty(8192, 4096)
        >>> report = fk.count(layer, x)
        >>> [f"{report.roofline('h100-sxm', dtype).seconds:.3g}" for dtype in (None, "tf32")]  # float32 tensors
        ['0.0041', '0.000556']
        >>> with fk.simulate_ranks(64):  # eight nodes
        ...     reduced = fk.count(torch.distributed.all_reduce, torch.ones(4_000_000_000))
        >>> round(reduced.roofline(fk.parallel.cluster("dgx-h100")).communication_seconds, 4)
        0.07
        """
        if hasattr(device, "network"):
            from flopkit.counter import links

            return links.on_cluster(self, device, dtype)
        calls = breakdown.calls(self)
        return program_bound(calls, device, dtype, phases=PHASES, convention=self.convention)

    def __getstate__(self) -> Any:
        return {
            **vars(self),
            "_source": Snapshot(self._source.ledger(), set(self._source.notes)),
            "_read": None,
            "_sums": None,
            "order": None,  # to another process go no operators
        }

    def __copy__(self) -> Report:
        return self.under(self.convention)

    def to_frame(self) -> Any:
        """`by_op` as a data frame of pandas or polars: see `flopkit.tables.Table.to_frame`."""
        return self.by_op().to_frame()

    def plot(self, depth: int | None = None) -> Any:
        """A `flopkit.charts.Figure` of each module's FLOPs by phase. *depth* as in `by_module`; None: as deep as fits."""
        from flopkit.charts.plots import report_by_module

        return report_by_module(self, depth)

    def summary(self) -> list[str]:
        """The report in a few lines."""
        return printout.summary(self)

    def __repr__(self) -> str:
        return "\n".join([*self.summary(), "", str(printout.table(self))])

    def _repr_html_(self) -> str:
        return as_html(self.summary(), printout.table(self))

    def lines(self) -> list[tuple[Entry, Where, int]]:
        """What was seen: an operator with its cost, where it ran, how often."""
        if self._read is not None:
            return self._read
        seen = self._source.ledger().calls.items()
        lines = [(entry, where, calls) for (entry, where), calls in seen if not where.in_attention]
        if self._source.closed:
            self._read = lines
        return lines

    def sums(self) -> list[Sum]:
        """The lines added up by operator, phase and kernel."""
        if self._sums is not None:
            return self._sums
        found = breakdown.sums(self, lambda part: (part.entry.op, part.phase, part.entry.work.kernel))
        if self._source.closed:
            self._sums = list(found.values())
        return list(found.values())
