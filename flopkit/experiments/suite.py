"""The experiments one after the other, into a recording. Each case is written as soon
as it is measured; a second run goes on from there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from flopkit import machine, names
from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.catalogue import NAMES, experiment
from flopkit.measuring.ceilings import ceilings
from flopkit.measuring.provenance import provenance
from flopkit.recordings.recording import Recording
from flopkit.sizes import positive

__all__ = ["Suite", "chosen", "record"]

NOBODY = "not named"


class _AnotherRun(ValueError):
    """Somebody else has written to the file since this run last did."""


class _NotKept(OSError):
    """The file cannot be written to: what is measured from here on would be lost."""


@dataclass(frozen=True)
class Suite:
    """What a run of the suite left.

    Parameters
    ----------
    recording : Recording
        As it is in the file.
    new : int
        Cases that were measured in this run.
    failed : Mapping[str, str]
        Experiments that ended in an error, and in which; what they had measured before
        is kept.
    """

    recording: Recording
    new: int
    failed: Mapping[str, str]


def chosen(only: Sequence[str] | None) -> list[str]:
    """The names of the experiments that are asked for, in the order of the catalogue;
    None: all.

    >>> chosen(["Matmul-Sizes"])
    ['matmul_sizes']
    """
    wanted = {names.find(name, NAMES, "an experiment") for name in (NAMES if only is None else only)}
    return [name for name in NAMES if name in wanted]


def record(
    path: str | Path, *, only: Sequence[str] | None = None, device: str | None = None, scale: str | None = None,
    time_budget: float | None = None, attribution: Mapping[str, str] | None = None,
) -> Suite:  # fmt: skip
    """Measure experiments into a file, or go on with a file that an earlier run left.

    Parameters
    ----------
    path : str or Path
        The file of the recording.
    only : Sequence[str], optional
        Names of experiments. None: all.
    device : str, optional
        ``"cpu"`` or ``"cuda"``. None: the CUDA device where there is one.
    scale : str, optional
        ``"toy"``, ``"cpu"`` or ``"gpu"``: how large the cases are. None: by the device.
    time_budget : float, optional
        Seconds of a case. None: by the scale.
    attribution : Mapping[str, str], optional
        *who*, *machine* and *licence*, for a recording that others will see; kept when
        the file is begun.

    Raises
    ------
    ValueError
        For a file that was recorded elsewhere, on another device, with other versions,
        switches or sizes, and for one to which another run writes at the same time;
        nothing of that run is lost.
    OSError
        For a file that cannot be written to, before anything is measured or when a case
        is to be kept.
    KeyboardInterrupt
        When the user stops it; the message says that nothing is lost.

    Notes
    -----
    A new file begins with the ceilings of the device, a minute on a CPU; those that
    `flopkit.ceilings` kept serve, too. Toy sizes do without.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = record(f"{folder}/mine.json", only=["matmul_sizes"], device="cpu", scale="toy")
    ...     again = record(f"{folder}/mine.json", only=["matmul_sizes"], device="cpu", scale="toy")
    >>> first.new, again.new, again.failed
    (3, 0, {})
    """
    path, wanted = Path(path), chosen(only)
    if time_budget is not None:
        positive("time_budget", time_budget, "seconds")
    bench = Bench(device, scale, time_budget=time_budget)
    here = {**provenance(bench.device), "scale": bench.scale}
    recording = _begun(path, here, attribution or {})
    written, before = path.read_bytes(), len(recording.results)
    failed: dict[str, str] = {}
    for each in recording.results:
        bench.known[bench.key(each["experiment"], each["params"], each["dtype"])] = dict(each)

    def save(changed: Recording) -> None:
        nonlocal recording, written
        try:
            if path.read_bytes() != written:
                raise _AnotherRun(f"{path} was changed by another run: wait until it ends, or name another file")
            recording = changed.write(path)
            written = path.read_bytes()
        except OSError as error:
            kept = f"{len(recording.results)} measurements are kept in it"
            raise _NotKept(
                f"{path} cannot be written to: {error}; {kept}: make room, then run the same command to go on"
            ) from error

    bench.keep = lambda found: save(recording.added(found))
    try:
        if recording.ceilings is None and (roof := _roof(bench, here["torch"])) is not None:
            save(Recording(recording.attribution, recording.provenance, roof, recording.results))
        with tqdm(wanted, unit="experiment", disable=None) as bar:
            for name in bar:
                for found in _run(name, bench, failed):
                    bar.set_description(f"{name}: {found['case']}"[:60])
    except KeyboardInterrupt as stop:
        kept = f"interrupted; {len(recording.results)} measurements are kept in {path}: run the same command to go on"
        raise KeyboardInterrupt(kept) from stop
    return Suite(recording, len(recording.results) - before, failed)


def _roof(bench: Bench, torch: str) -> Mapping[str, Any] | None:
    """The ceilings of the device: those that are kept, if they are of this torch and as
    many threads, else measured now. A toy does without."""
    if bench.scale == "toy":
        return None
    kept = machine.read_ceilings(bench.device)
    if kept is not None and (kept.get("torch"), kept["threads"]) == (torch, machine.threads(bench.device)):
        return kept
    return ceilings(bench.device).record()


def _run(name: str, bench: Bench, failed: dict[str, str]) -> Iterator[Record]:
    """The records of an experiment; what ends it early, such as a package or memory
    that is missing, does not end the others."""
    try:
        yield from experiment(name).run(bench)
    except (_AnotherRun, _NotKept):
        raise
    except Exception as error:
        failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"


def _begun(path: Path, here: Mapping[str, Any], attribution: Mapping[str, str]) -> Recording:
    """The recording to go on with: the one in the file, if it was made here, or an
    empty one."""
    if not path.exists():
        about = {"who": NOBODY, "machine": str(here["device"]), "licence": "not stated", **attribution}
        return Recording(about, here).write(path)  # at once, as below
    old = Recording.read(path)
    for name, value in here.items():
        if name != "when" and old.provenance[name] != value:
            raise ValueError(
                f"{path} was recorded with {name}={old.provenance[name]!r}, and here it is {value!r}: one recording is of one place; "
                "name another file"
            )
    for name, text in attribution.items():
        if old.attribution[name] != text:
            raise ValueError(f"{path} names {name}={old.attribution[name]!r}, not {text!r}: name another file")
    with tempfile.TemporaryFile(dir=path.resolve().parent):  # a folder that cannot be written to is not to cost an hour
        return old
