"""The ceilings of a device: the most FLOP/s and bytes/s that simple calls reach on it, measured by the protocol of `flopkit.measure`."""

from __future__ import annotations

import contextlib
import html
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from tqdm import tqdm

from flopkit import machine, units
from flopkit.__about__ import __version__
from flopkit.derivations import number_format
from flopkit.devices import Device, measured_device
from flopkit.measuring import workloads
from flopkit.measuring.arguments import rotating
from flopkit.measuring.running import measure
from flopkit.measuring.timers import timer_for
from flopkit.sizes import positive
from flopkit.tables import Table

__all__ = ["Ceilings", "ceilings"]

BUDGET = {"cpu": 35.0, "cuda": 120.0}  # s: checks and random numbers come on top
CALLS = 20  # of a shape in the search, at most
LAUNCHES = 1000
TRAFFIC_KINDS = 3
TWICE = 20.0  # s of a budget from which each ceiling is measured twice, with all others in between
SURE = 0.05  # half of the interval, over the rate


@dataclass(frozen=True, repr=False)
class Ceilings:
    """What `flopkit.ceilings` found: plain values, and the device that they make.

    Parameters
    ----------
    title : str
        What the machine calls the device.
    kind : str
        ``"cpu"`` or ``"cuda"``.
    matmul : Mapping[str, Mapping[str, Any]]
        By number format: ``flops_per_s`` of the best product, its 95 % interval ``low`` to ``high``, its ``shape`` (m, n, k), ``steady``,
        ``verdict``.
    traffic : Mapping[str, Mapping[str, Any]]
        The same of ``copy``, ``triad`` and ``read``, with ``bytes_per_s``.
    launch_s : float
        Seconds from one launch of a tiny call to the next.
    when : str
        Date and time, UTC.
    threads : int, optional
        Threads that computed, on a CPU.
    memory : float, optional
        Bytes of main memory.
    torch : str, optional
        Its version.
    flopkit : str, optional
        Its version.
    notes : tuple[str, ...], optional
        What a reader of the numbers should know.

    Examples
    --------
    >>> held = {"low": 9.9e10, "high": 1.01e11, "steady": True, "verdict": "ok"}
    >>> found = Ceilings(
    ...     "my CPU",
    ...     "cpu",
    ...     matmul={"fp32": {"flops_per_s": 1e11, "shape": [1024, 1024, 1024], **held}},
    ...     traffic={"copy": {"bytes_per_s": 1e10, **held}},
    ...     launch_s=7e-7,
    ...     when="2026-01-01T00:00:00+00:00",
    ... )
    >>> found.device().ridge("fp32")
    10.0
    """

    title: str
    kind: str
    matmul: Mapping[str, Mapping[str, Any]]
    traffic: Mapping[str, Mapping[str, Any]]
    launch_s: float
    when: str
    threads: int | None = None
    memory: float | None = None
    torch: str = ""
    flopkit: str = ""
    notes: tuple[str, ...] = ()

    def device(self) -> Device:
        """A device ``"here"`` whose peaks and bandwidth are these ceilings, for rooflines; what was refused is left out."""
        return measured_device(self.record())

    def record(self) -> dict[str, Any]:
        """Plain values, as recordings keep them."""
        return {**asdict(self), "notes": list(self.notes)}

    def table(self) -> Table:
        """One row for each number format and each kind of traffic."""
        lines = [
            (f"matmul {dtype}", units.si(found["flops_per_s"], "FLOP/s"), units.percent(_half(found)), " × ".join(map(str, found["shape"])), found["verdict"])
            for dtype, found in self.matmul.items()
        ]  # fmt: skip
        lines += [
            (name, units.si(found["bytes_per_s"], "B/s"), units.percent(_half(found)), "", found["verdict"])
            for name, found in self.traffic.items()
        ]
        lines.append(("launch", units.seconds(self.launch_s), "", "", ""))
        columns = ("ceiling", "value", "±", "shape", "verdict")
        threads = f", {self.threads} threads" if self.threads else ""
        return Table(
            [dict(zip(columns, line, strict=True)) for line in lines],
            caption=f"{self.title}{threads}, measured {self.when[:10]}",
        )

    def __repr__(self) -> str:
        return "\n".join((str(self.table()), *(f"- {note}" for note in self.notes)))

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"{self.table()._repr_html_()}<ul>{notes}</ul>"


def ceilings(
    device: Any = None, dtypes: Iterable[Any] | None = None, time_budget: float | None = None, keep: bool = True
) -> Ceilings:
    """Measure the ceilings of one of this machine's devices: matrix products by number format, memory traffic, launches.

    Of each format some shapes are tried, a dozen on a CPU and some forty on a GPU. The fastest is measured again from the beginning, with
    other numbers, since the fastest of many short timings is too fast. With 20 s or more it is measured once more after all the others, since
    a machine that other programs share, or a virtual one, is slow for seconds; the faster of the two is the ceiling. Traffic is that of arrays which no cache holds.

    Parameters
    ----------
    device : Any, optional
        ``"cpu"``, ``"cuda"`` or one of torch's devices. None: the CUDA device where there is one, else the CPU.
    dtypes : Iterable[Any], optional
        Number formats, among them ``"tf32"`` and ``"fp8"`` on a GPU. None: those for which the device has units.
    time_budget : float, optional
        Seconds of timing together. None: 35 on a CPU, 120 on a GPU; checks and random numbers take some more.
    keep : bool, optional
        Whether to write the result where ``flopkit.device("here")`` and `flopkit.measure` find it: a file in the folder ``ceilings`` of
        ``~/.flopkit/recordings``, or of ``$FLOPKIT_RECORDINGS``. A file of the same device is replaced.

    Returns
    -------
    Ceilings
        With ``matmul``, ``traffic``, ``launch_s``, and ``device()``, a `flopkit.Device` for rooflines.

    Raises
    ------
    ValueError
        For a number format that torch cannot multiply on the device's kind, and for a budget that is not positive.

    Notes
    -----
    A ceiling is no limit: a program may be faster, by a shape that was not tried. Close other programs before measuring.

    Examples
    --------
    >>> import flopkit as fk
    >>> found = fk.ceilings("cpu", dtypes=["fp32"], time_budget=0.5, keep=False)  # far too short a time for good numbers
    >>> found.matmul["fp32"]["flops_per_s"] == found.device().peak("fp32")
    True
    """
    import torch

    where = machine.place(device)
    if time_budget is not None:
        positive("time_budget", time_budget, "seconds")
    chosen = _chosen(where, dtypes)
    seconds = BUDGET[where.type] if time_budget is None else time_budget
    passes = 2 if seconds >= TWICE else 1
    part = seconds / ((1 + passes) * len(chosen) + passes * TRAFFIC_KINDS)  # of a search, or of a measurement
    notes: list[str] = []
    matmul: dict[str, dict[str, Any]] = {}
    moved: dict[str, dict[str, Any]] = {}
    shapes: dict[str, workloads.Shape] = {}
    on_device = torch.cuda.device(where) if where.type == "cuda" else contextlib.nullcontext()
    with on_device, tqdm(total=passes * (len(chosen) + TRAFFIC_KINDS), desc="ceilings", leave=False, delay=1) as bar:
        for _ in range(passes):
            for dtype in chosen:
                bar.set_description(f"ceilings: {dtype}")
                try:
                    with workloads.tf32_allowed(dtype == "tf32"):
                        if dtype not in shapes:
                            shapes[dtype] = _fastest(where, dtype, part)
                        product = workloads.product(where, dtype, shapes[dtype])
                        notes += _measured(matmul, dtype, "flops_per_s", product, part, shape=list(shapes[dtype]))
                except RuntimeError as error:  # torch has no such product here, or no memory for it
                    notes.append(f"{dtype} was not measured: {str(error).partition(chr(10))[0]}")
                bar.update()
            for name, work in workloads.traffic(where):
                bar.set_description(f"ceilings: {name}")
                notes += _measured(moved, name, "bytes_per_s", work, part)
                bar.update()
        launch = _launch(torch, where)
    if unsure := [
        name
        for name, found in (matmul | moved).items()
        if not found["steady"] or _half(found) > SURE or found["verdict"] == "disturbed"
    ]:
        notes.append(f"not sure, since times varied: {', '.join(unsure)}; close other programs and measure again")
    made = Ceilings(
        title=machine.title(where), kind=where.type, matmul=matmul, traffic=moved, launch_s=launch,
        when=datetime.now(UTC).isoformat(timespec="seconds"), threads=machine.threads(where), memory=machine.memory(where),
        torch=str(torch.__version__), flopkit=__version__, notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip
    if keep:
        machine.keep_ceilings(made.record())
    return made


def _chosen(where: Any, dtypes: Iterable[Any] | None) -> list[str]:
    if isinstance(dtypes, str):
        raise TypeError(f"dtypes={dtypes!r}: give number formats in a list, such as [{dtypes!r}]")
    chosen = list(dict.fromkeys(workloads.dtypes(where) if dtypes is None else map(number_format, dtypes)))
    known = [dtype for dtype in workloads.TORCH if where.type == "cuda" or dtype not in ("tf32", "fp8")]
    if not chosen or not set(chosen) <= set(known):
        raise ValueError(f"dtypes={chosen}: products that can be measured on {where.type} are of {', '.join(known)}")
    return chosen


def _fastest(where: Any, dtype: str, seconds: float) -> workloads.Shape:
    """The shape with the highest rate in its fastest call. Shapes that would not end within the time are left out."""
    import torch

    shapes = workloads.shapes(where, dtype)
    end = time.perf_counter() + seconds
    best, chosen = 0.0, shapes[0]
    for shape in shapes:
        work = 2.0 * shape[0] * shape[1] * shape[2]
        left = end - time.perf_counter()
        if best and 5 * work / best > left:  # the timer makes some calls of its own
            break
        load = workloads.product(where, dtype, shape)
        timer, _ = timer_for(rotating(load.fn, [(load.args, {})]), torch, where.type == "cuda")
        calls = CALLS if not best else max(1, min(CALLS, int(best * left / len(shapes) / work)))
        rate = work / min(timer.calls(calls))
        if rate > best:
            best, chosen = rate, shape
    return chosen


def _measured(
    kept: dict[str, dict[str, Any]], name: str, rate: str, load: workloads.Workload, seconds: float, **more: Any
) -> list[str]:
    """Measure a load and keep its *rate* with the interval and what is *more* known; the notes, where the result is refused."""
    found = measure(load.fn, *load.args, time_budget=seconds, flops=load.flops, bytes=load.bytes, check=load.check)
    work = found.flops if rate == "flops_per_s" else found.bytes
    low, high = found.seconds_ci
    least = max(low, found.fastest)  # a wide interval may reach below zero seconds
    interval = {rate: work / found.seconds, "low": work / high, "high": work / least}
    _keep(kept, name, {**interval, "steady": found.steady, "verdict": found.verdict, **more}, rate)
    return [] if found.verdict == "ok" else [f"{name}: {note}" for note in found.notes]


def _keep(kept: dict[str, dict[str, Any]], name: str, found: dict[str, Any], rate: str) -> None:
    """The faster of two measurements whose results were not refused: what else a machine does only slows a call down."""
    if name not in kept or (found["verdict"] == "ok", found[rate]) > (kept[name]["verdict"] == "ok", kept[name][rate]):
        kept[name] = found


def _half(found: Mapping[str, Any]) -> float:
    """Half of the interval, over the rate."""
    return float((found["high"] - found["low"]) / 2 / found.get("flops_per_s", found.get("bytes_per_s", 0)))


def _launch(torch: Any, where: Any) -> float:
    """Seconds from one launch of a tiny call to the next: on a CPU the cost of torch's call, on a GPU that or the kernel's."""
    x = torch.ones(1, device=where)

    def once() -> float:
        if where.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(LAUNCHES):
            x.neg_()
        if where.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / LAUNCHES

    once()
    return statistics.median(once() for _ in range(20))
