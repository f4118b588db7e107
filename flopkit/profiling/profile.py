"""A profile: what each row of a step took, did and could do at most, beside what it waited for."""

from __future__ import annotations

import gzip
import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flopkit import devices, units
from flopkit.counter.breakdown import check_depth
from flopkit.dtypes import format_of
from flopkit.measuring.measurement import Measurement
from flopkit.measuring.protocol import interval
from flopkit.profiling.comparing import BUDGET, Program, compared
from flopkit.profiling.events import Trace, read_trace
from flopkit.profiling.joining import NOT_JOINED, Joined, join
from flopkit.profiling.matching import WHOLE, Key
from flopkit.profiling.rows import COLUMNS, FORMATS, MARKS, beats, flops_of, grouped, key_of, rows_of
from flopkit.rooflines import roofline
from flopkit.sizes import positive
from flopkit.tables import Table, as_html

__all__ = ["Profile"]


class Profile:
    """Where the seconds of a step went, operator by operator: the result of `flopkit.profile`.

    Every second is in one row: of an operator in a module and a phase, of what torch.compile fused, of ``(not joined)``,
    or of a reason for which nothing ran, such as ``(Python)`` or ``(host-bound)``. The rows sum to ``seconds``.

    The roof is that of the device that the trace names, on a CPU of the ceilings that `flopkit.ceilings` kept; `on` takes another.
    """

    def __init__(
        self, trace: Trace, report: Any, plain: Measurement | None = None, *, device: Any = None, dtype: Any = None,
        causal_masks: int = 0, program: Program | None = None, _joined: Joined | None = None,
    ) -> None:  # fmt: skip
        self.trace, self.report, self.plain, self.causal_masks, self.dtype = trace, report, plain, causal_masks, dtype
        self.program = program
        self.joined = _joined or join(trace, report)
        self.notes: list[str] = []
        self.device = self._found() if device is None else device
        self.rows = rows_of(self.joined, report, self.device, dtype)
        unseen = sum(row["flops"] for row in self.rows if not row["seconds"])
        beaten = sum(beats(row) for row in self.rows)
        for number, note in (
            (self.joined.uneven, f"the steps differ: {units.count(self.joined.uneven, 'operators')} of the counted one ran in some of them only; their rates are too high"),
            (self.joined.at_once, "operators of several threads ran at once: those of one name are joined in the order in which they began, so that their modules may be each other's"),
            (unseen and not trace.is_compiled, f"{units.si(unseen, 'FLOPs')} of the count have no seconds: the profiler did not see what ran them, such as threads, or the trace is another program's"),
            (beaten, f"{units.count(beaten, 'rows')} faster than the roof: caches serve their bytes, or the roof is another device's, or was measured while other programs ran: fk.ceilings() measures it anew"),
        ):  # fmt: skip
            self.notes += [note] * bool(number)

    def __getstate__(self) -> dict[str, Any]:  # a program does not go to another process
        return {**self.__dict__, "program": None}

    @classmethod
    def from_trace(cls, path: Any, report: Any, device: Any = None, dtype: Any = None) -> Profile:
        """Join a trace that is there already, of a GPU in another machine or of a long job, with a count of the same step.

        Parameters
        ----------
        path : Any
            What ``torch.profiler.profile(…).export_chrome_trace`` wrote. Steps are those between its annotations ``ProfilerStep#…``, as
            ``prof.step()`` makes them; without any, the whole is one step.
        report : Any
            ``flopkit.profiling.in_order(step)``, on the same kind of device.
        device : Any, optional
            Whose roof the rows are compared with. None: the device that the trace names.
        dtype : Any, optional
            As in `flopkit.Report.roofline`.

        Raises
        ------
        ValueError
            For a file that was cut off or holds no operators, for steps that overlap or take no time, and for a report without the
            order of its calls.

        Examples
        --------
        >>> import tempfile, torch, flopkit as fk
        >>> layer, x = torch.nn.Linear(64, 64), torch.ones(32, 64)
        >>> with torch.profiler.profile() as prof:
        ...     y = layer(x)
        >>> path = f"{tempfile.mkdtemp()}/trace.json"
        >>> prof.export_chrome_trace(path)
        >>> found = fk.profiling.Profile.from_trace(path, fk.profiling.in_order(layer, x))
        >>> {row["operator"]: row["flops"] for row in found.by_op() if row["flops"]}
        {'addmm': 262144}
        """
        if getattr(report, "order", None) is None:
            way = "count with flopkit.profiling.in_order(step)"
            raise ValueError(f"report={type(report).__name__}: it has no order of calls to join by; {way}")
        return cls(read_trace(path), report, device=device, dtype=dtype)

    def on(self, device: Any, dtype: Any = None) -> Profile:
        """The same seconds against the roof of *device*: a name, a `flopkit.Device`, or anything with ``peak`` and ``bandwidth``."""
        kept = self.trace, self.report, self.plain
        return Profile(
            *kept, device=device, dtype=dtype, causal_masks=self.causal_masks, program=self.program, _joined=self.joined
        )

    @property
    def seconds(self) -> float:
        """Mean seconds of a step under the profiler."""
        return statistics.fmean(self.joined.steps)

    @property
    def seconds_ci(self) -> tuple[float, float]:
        """The 95 % interval of that mean, from the steps."""
        half = interval(self.joined.steps)
        return self.seconds - half, self.seconds + half

    @property
    def overhead(self) -> float | None:
        """What profiling adds to a step, as a share of the time without it; None where that was not measured."""
        return None if self.plain is None else self.seconds / self.plain.seconds - 1

    @property
    def idle(self) -> float:
        """Seconds of a step in which nothing ran on the device or, on a CPU, in any operator."""
        return sum(gap.seconds for gap in self.joined.gaps) / len(self.joined.steps)

    @property
    def coverage(self) -> float:
        """Share of the operators' seconds that was joined with what the counter saw."""
        busy = self.seconds - self.idle
        lost = sum(row["seconds"] for row in self.rows if key_of(row) == NOT_JOINED)
        return 1 - lost / busy if busy else 1.0

    def table(self) -> Table:
        """One row for each operator, module and phase, the most seconds first.

        Notes
        -----
        Columns: *operator*, *module*, *phase*, mean *seconds* of a step and their *share*, *flops* that were executed and *bytes*, the
        rates *flops_per_s* and *bytes_per_s*, the share *of_roof* (the least time of the row's calls over its seconds), what *bound* it is:
        compute, memory, both, communication or launch, and *launches*: kernels and copies, on a CPU calls.

        What a data loader calls in the main process has the module ``(data loader)`` and no phase. Rows that torch.compile fused
        (``compiled: …``) have no bytes, and so no bound. The scores that a fused backward pass computes again are in its row. The operator
        with which a checkpoint stops computing again is a row of the phase recompute without FLOPs.

        On a GPU a row is launch-bound where the device waited for its launches longer than they ran; on a CPU where a call moves less than
        64 KiB and does less than a million FLOPs.
        """
        return self._table(MARKS, "by operator, module and phase", key_of)

    def by_op(self) -> Table:
        """One row for each operator and phase, with the columns of `table`."""
        return self._table(("operator", "phase"), "by operator", lambda row: (row["operator"], "", row["phase"]))

    def by_module(self, depth: int | None = None) -> Table:
        """One row for each module, without what its submodules did, so that the rows sum to the step.

        Parameters
        ----------
        depth : int, optional
            How many levels to tell apart; what is deeper belongs to the module around it. None: all.

        Raises
        ------
        ValueError
            For another depth.
        """
        check_depth(depth)

        def place(row: dict[str, Any]) -> Key:
            if not row["phase"]:  # nothing of the program's
                return ("", row["module"] or row["operator"], "")
            if row["module"].startswith("(") or depth is None:
                return ("", row["module"], "")
            return ("", ".".join(row["module"].split(".")[:depth]) or WHOLE, "")

        return self._table(("module",), "by module", place)

    def by_phase(self) -> Table:
        """One row for each phase, and for what belongs to none."""
        return self._table(
            ("phase",), "by phase", lambda row: ("", "", row["phase"] or row["module"] or row["operator"])
        )

    def gaps(self, most: int = 20) -> Table:
        """The longest stretches of all steps in which nothing ran: when, why, between what, and what the host was doing.

        Reasons: *host-bound* (the next kernel had not been launched), *synchronised* (the host had waited for the device), *data loader*,
        *waiting* (launched, and not begun), *start of step* and *end of step* (the profile waits for the device between two steps). On a
        CPU: *Python* (between operators) and *data loader*.

        Parameters
        ----------
        most : int, optional
            How many.
        """
        rows, first = [], self.trace.events[0].start
        for gap in sorted(self.joined.gaps, key=lambda gap: -gap.seconds)[:most]:
            rows.append({**gap._asdict(), "start": gap.start - first, "module": gap.key[1] if gap.key else ""})
        columns = ["start", "seconds", "step", "reason", "before", "after", "module", "during"]
        caption = f"the longest {len(rows)} of {len(self.joined.gaps)} stretches in which nothing ran"
        return Table(rows, caption=caption, formats=FORMATS, columns=columns)

    def communication(self) -> Table:
        """The rows that communicate: seconds in which they did, those of them *exposed*, and those *hidden* behind other work.

        Notes
        -----
        On a GPU these are NCCL's kernels, hidden while another kernel runs. On a CPU they are the collectives that gloo runs on threads of its
        own, with the operators that ask for them, hidden while another operator runs. Either waits for the slowest rank, too: a trace does not
        tell waiting from sending, nor how much gloo's threads slow down the operators that hide it. Several at once share the time.
        A collective of gloo belongs to the operator that asked for it, in their order; where their numbers differ it is ``(not joined)``.
        Collectives of other back ends on a CPU leave no events in a trace.
        """
        rows = [{**row, "seconds": row["communication"], "exposed": row["communication"] - row["hidden"]}
                for row in self.rows if row["communication"]]  # fmt: skip
        return Table(rows, caption="communication", formats=FORMATS, columns=[*MARKS, "seconds", "exposed", "hidden"])

    def not_joined(self) -> Table:
        """What the trace shows and the counter did not see in a mean step, by its name in the trace: a CUDA graph's kernels, the engine."""
        rows = [{"name": name, "seconds": seconds, "number": number} for name, (seconds, number) in self.joined.strangers.items()]  # fmt: skip
        return Table(sorted(rows, key=lambda row: -row["seconds"]), caption="not joined, in a step", formats=FORMATS)

    def advice(self) -> Table:
        """What could be changed, the most that each can gain, and the rows that say so.

        Notes
        -----
        Columns: *advice*, what to *change*, the share *at most* of the step that this can save and its *seconds*, *why*, and the *rows*.
        It is a bound, Amdahl's over the rows, and no promise: they cannot take less than nothing, or than their roof where it is known. Memory
        is no roof for calls whose bytes a cache may serve (64 MiB); where that matters, *if* has the share by the bandwidth of the memory, too.
        Nor is one that the rows beat. Bounds of several changes overlap, so they don't add up. Rows at their roof that no change touches
        are listed last: nothing to gain here.
        """
        from flopkit.profiling.advising import advice

        return advice(self)

    def compare(self, after: Profile, *, time_budget: float | None = None, in_turns: bool = True) -> Table:
        """What came of a change: seconds *before* and *after*, and what was *saved* with its interval, for the step, for the step without
        the profiler, and for each operator.

        Both steps run again, in turns, so that a machine that becomes slower slows down both. What they change, such as weights, changes
        further.

        Parameters
        ----------
        after : Profile
            The same step, changed.
        time_budget : float, optional
            Seconds for it. None: at most twenty, fewer where the interval is soon narrow.
        in_turns : bool, optional
            False: nothing runs, and what was recorded is compared.

        Raises
        ------
        TypeError
            For what is no profile, and a budget that is no number.
        ValueError
            For profiles of a CPU and of a GPU, which have rows of other kinds, for a budget that is not positive, and for profiles of one
            step that cannot run again, which have no interval.

        Notes
        -----
        Which step of a pair goes first is drawn by chance. The intervals are Student's t over the differences of the pairs, and so wide that
        all verdicts of an unchanged program are right in 98 of 100 tables. Verdicts: *faster*, *slower*, *no difference seen*, and *cannot be
        told* where the interval is wider than a fifth of the row. An operator that one of the two does not have is *only before* or *only after*.

        In turns is possible where *before* and *after* are two calls, as of two functions. A call that was changed in place, such as by
        another optimiser under the same name, is gone. That is noticed where its operators are others now, and where both are the same call;
        then the caption says why the two were measured apart, *after* runs again several times, and the interval has room for how much those
        times differ. Profiles `from_trace` cannot run: their verdicts say *measured apart*, for nobody knows what the machine did in between.
        """
        if not isinstance(after, Profile):
            raise TypeError(f"after={after!r}: must be a Profile, the result of fk.profile(...)")
        budget = BUDGET if time_budget is None else positive("time_budget", time_budget, "seconds")
        mine, theirs = (each.trace.device or ("a GPU" if each.joined.on_gpu else "a CPU") for each in (self, after))
        if mine != theirs:
            raise ValueError(f"after ran on {theirs}, before on {mine}: pass two profiles of one device")
        rows, how = compared(self, after, budget, in_turns)
        return Table(rows, caption=f"before and after, seconds a step, {how}", formats=FORMATS)

    def to_frame(self) -> Any:
        """`table` as a data frame of pandas or polars: see `flopkit.tables.Table.to_frame`."""
        return self.table().to_frame()

    def plot(self) -> Any:
        """A `flopkit.charts.Figure`: the operators as dots on the roofline, sized by their seconds.

        Raises
        ------
        ValueError
            Where no roof is known, or nothing has FLOPs.
        """
        from flopkit.charts.plots import profile_on_roof

        return profile_on_roof(self)

    def to_chrome_trace(self, path: Any) -> Path:
        """Write the trace again, each event with the row that it belongs to and that row's columns, for Perfetto or ``chrome://tracing``.

        Parameters
        ----------
        path : Any
            The file; packed where it ends in ``.gz``.
        """
        file = Path(path)
        columns = {key_of(row): {name: row[name] for name in (*MARKS, *COLUMNS)} for row in self.rows}
        added = {id(event.source): columns[key] for event, key in self.joined.owners if key in columns}
        events = []
        for each in self.trace.contents["traceEvents"]:
            ours = {"args": {**(each.get("args") or {}), "flopkit": added[id(each)]}} if id(each) in added else {}
            events.append({**each, **ours})
        text = json.dumps({**self.trace.contents, "traceEvents": events}).encode()
        file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
        return file

    def summary(self) -> list[str]:
        """The profile in a few lines."""
        steps = len(self.joined.steps)
        spread = f" ± {units.percent(self.seconds_ci[1] / self.seconds - 1)}" if steps > 1 else ""
        plain = "the time without it was not measured"
        if self.plain is not None and self.overhead is not None:
            lost = "what profiling adds is lost in the noise"
            adds = f"profiling adds {units.percent(self.overhead)}" if self.overhead >= 0 else lost
            plain = f"{units.seconds(self.plain.seconds)} without it (fk.measure): {adds}"
        sent = [sum(row[name] for row in self.rows) for name in ("communication", "hidden")]
        return [
            f"{units.seconds(self.seconds)}{spread} a step under the profiler ({units.count(steps, 'steps')}); {plain}",
            f"{units.percent(self.idle / self.seconds)} idle; {units.percent(self.coverage)} of the operators' seconds are joined; "
            + (f"roof of {self.device_name}" if self.device is not None else "no roof is known: .on(device), or fk.ceilings() once"),
            *([f"communication {units.seconds(sent[0])}, of which {units.seconds(sent[1])} hidden"] if sent[0] else []),
            *self.notes,
        ]  # fmt: skip

    def __repr__(self) -> str:
        return "\n".join([*self.summary(), "", str(self._first())])

    def _repr_html_(self) -> str:
        return as_html(self.summary(), self._first(), self.advice())

    def _first(self, most: int = 12) -> Table:
        table = self.by_op()
        more = f" (the first {most} of {len(table)})" if len(table) > most else ""
        return Table(table.rows[:most], caption=table.caption + more, formats=FORMATS, columns=table.columns)

    def roof(self) -> tuple[float, float]:
        """Bandwidth of the device, and its peak in the number format with the most FLOPs."""
        flops: Counter[str] = Counter()
        for entry, *_ in self.report.order:
            flops[format_of(entry.work.dtype)] += flops_of(self.report, [entry])
        device = devices.device(self.device) if isinstance(self.device, str) else self.device
        mode = self.dtype or devices.fastest_mode(device, flops.most_common(1)[0][0])
        at_ridge = roofline(SimpleNamespace(flops=1, bytes=1), device, mode)
        return float(at_ridge.bandwidth), float(at_ridge.peak)

    @cached_property
    def device_name(self) -> str:
        """Whose roof the rows are compared with."""
        name = getattr(self.device, "name", self.device)
        return name if isinstance(name, str) else type(self.device).__name__

    def _found(self) -> Any:
        name = self.trace.device if self.joined.on_gpu else "here"
        try:
            return devices.device(name) if name else None
        except (ValueError, RuntimeError, ImportError) as error:
            self.notes += [f"no roof: {error}"] * self.joined.on_gpu
            return None

    def _table(self, marks: Sequence[str], caption: str, place: Callable[[dict[str, Any]], Key]) -> Table:
        rows, whole = grouped(self.rows, place, self.joined), f"{caption}, convention {self.report.convention}"
        return Table(rows, caption=whole, formats=FORMATS, columns=[*marks, *COLUMNS])
