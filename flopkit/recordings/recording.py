"""A recording: what one device did, case by case, with who measured it and where. A JSON file, checked when it is written and when it is read."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from flopkit import machine

__all__ = ["SCHEMA", "Recording"]

SCHEMA = "flopkit.recording/1"
MOST = 1000  # of a peak or a ceiling: caches are not so much faster than memory
Record = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Recording:
    """Measurements of one device, and where they come from.

    Parameters
    ----------
    attribution : Mapping[str, str]
        *who* measured, on which *machine*, and under which *licence* others may show it.
    provenance : Mapping[str, Any]
        When, on which device, with which clocks, driver, versions and switches: as ``flopkit.measuring.provenance`` gives them.
    ceilings : Mapping[str, Any], optional
        What ``fk.ceilings()`` measured on that device; None: nobody did.
    results : tuple[Mapping[str, Any], ...], optional
        A record a case, refused ones among them.
    path : Path, optional
        The file that it was read from or written to.

    Raises
    ------
    ValueError
        For values that the schema, ``flopkit/data/recording.schema.json``, does not allow, and for records that contradict themselves.
    ImportError
        Where the package jsonschema is missing.

    Examples
    --------
    >>> import tempfile, torch
    >>> from flopkit.experiments import experiment, record
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = record(f"{folder}/mine.json", only=["matmul_sizes"], device="cpu", scale="toy").recording
    ...     read = Recording.read(written.path)
    >>> read.results == written.results, len(read.results), read.provenance["type"]
    (True, 3, 'cpu')
    """

    attribution: Mapping[str, str]
    provenance: Mapping[str, Any]
    ceilings: Mapping[str, Any] | None = None
    results: tuple[Mapping[str, Any], ...] = ()
    path: Path | None = None

    def __post_init__(self) -> None:
        if wrong := next(_faults(self.data()), None):
            raise ValueError(f"not a recording: {wrong}")

    @classmethod
    def read(cls, path: str | Path) -> Recording:
        """The recording in a file.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        ValueError
            For a file that was cut off, changed by hand, or is something else; it says what to do.
        """
        path = Path(path)
        try:
            text = machine.text_of(path)
            data = json.loads(text, parse_constant=_no_number, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is damaged or no recording: {error}; {_way_out(path)}") from error
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            raise ValueError(
                f"{path} is no recording of this flopkit: schema={schema!r}, not {SCHEMA!r}; {_way_out(path)}"
            )
        if wrong := _fault_of(text):
            raise ValueError(f"{path} was changed or is not whole: {wrong}; {_way_out(path)}")
        del data["schema"]
        return _made(**{**data, "results": tuple(data["results"])}, path=path)

    def write(self, path: str | Path) -> Recording:
        """Write it to a file, all or nothing: whoever reads the file, or ends this program, meets the old one or the new one.

        Parameters
        ----------
        path : str or Path
            The file; folders above it are made.
        """
        path = Path(path)
        text = json.dumps(self.data(), ensure_ascii=False, indent=1, allow_nan=False)
        machine.write_whole(path, text + "\n")
        return _made(**{**vars(self), "path": path})

    def added(self, record: Record) -> Recording:
        """The same recording with one more record, which is checked."""
        if wrong := next(_faults_of(record), None):
            raise ValueError(f"not a record of {record.get('experiment')}, {record.get('case')}: {wrong}")
        return _made(**{**vars(self), "results": (*self.results, record)})

    def plottable(self) -> list[Record]:
        """The records whose verdict is ok: what is refused is kept, and never shown as a result."""
        return [record for record in self.results if record["verdict"] == "ok"]

    @property
    def device(self) -> str:
        """What the machine calls the device."""
        return str(self.provenance["device"])

    def data(self) -> dict[str, Any]:
        """What the file holds."""
        return {
            "schema": SCHEMA, "attribution": dict(self.attribution), "provenance": dict(self.provenance),
            "ceilings": None if self.ceilings is None else dict(self.ceilings), "results": [dict(each) for each in self.results],
        }  # fmt: skip

    def __repr__(self) -> str:
        refused = len(self.results) - len(self.plottable())
        kept = f"{len(self.results)} measurements{f', {refused} of them refused' * bool(refused)}"
        return f"{kept}, on {self.device} by {self.attribution['who']}, {str(self.provenance['when'])[:10]}"


def _made(**parts: Any) -> Recording:
    """A recording of parts that were checked already: to check a long one anew for each case would take minutes."""
    made = object.__new__(Recording)
    for name, value in parts.items():
        object.__setattr__(made, name, value)
    return made


def _way_out(path: Path) -> str:
    return f"take it from a copy, or move it away and measure anew: python -m flopkit record --out {path}"


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands there twice")
    return found


def _faults(data: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the data of a recording, first things first."""
    yield from _against(_validator(""), data)
    for i, record in enumerate(data["results"]):
        yield from (f"results, {i}, {fault}" for fault in _contradictions(record))
    seen = set()
    for i, record in enumerate(data["results"]):
        name = (record["experiment"], tuple(sorted(record["params"].items())), record["dtype"])
        if name in seen:
            yield f"results, {i}: the case is there twice"
        seen.add(name)
    if (ceilings := data["ceilings"]) is not None:
        yield from (f"ceilings, {fault}" for fault in _odd_ceilings(ceilings))


@lru_cache(maxsize=16)
def _fault_of(text: str) -> str | None:
    """The first fault of a recording's text, which is JSON. A text that was checked once in this process is not checked again."""
    return next(_faults(json.loads(text)), None)


def _faults_of(record: Record) -> Iterator[str]:
    yield from _against(_validator("#/$defs/record"), record)
    yield from _contradictions(record)


def _against(validator: Any, data: Any) -> Iterator[str]:
    for error in validator.iter_errors(data):
        place = ", ".join(map(str, error.absolute_path))
        yield f"{place or 'the whole'}: {error.message if len(error.message) < 200 else error.message[:200] + ' …'}"


def _contradictions(record: Record) -> Iterator[str]:
    """What does not follow from each other, as after a change by hand."""
    if record["case"] != ", ".join(f"{name}={value}" for name, value in record["params"].items()):
        yield f"case: {record['case']} is not what params say"
    try:
        yield from _odd_times(record["seconds"])
        yield from _odd_rates(record)
    except OverflowError as error:
        yield f"a number in it is too large: {error}"


def _odd_times(seconds: Mapping[str, Any]) -> Iterator[str]:
    mean, median, fastest = (seconds[name] for name in ("mean", "median", "fastest"))
    if (means := seconds["round_means"]) and not math.isclose(statistics.fmean(means), mean, rel_tol=1e-6):
        yield f"seconds: {mean:.6g} s is not the mean of the rounds"
    if not seconds["low"] <= mean <= seconds["high"]:
        yield "seconds: the mean is outside of its interval"
    if not math.isclose(mean - seconds["low"], seconds["high"] - mean, rel_tol=1e-3, abs_tol=1e-6 * mean):
        yield "seconds: the mean is not in the middle of its interval"
    if not fastest <= min(mean, median) * (1 + 1e-9):
        yield "seconds: the fastest call took longer than the mean or the median"
    if median > 2 * mean * (1 + 1e-9):  # half of the calls took as long or longer
        yield f"seconds: a median of {median:.6g} s is more than twice the mean"
    ordered = [fastest, *seconds["p10_p90"][:1], median, *seconds["p10_p90"][1:]]
    if any(a > b * (1 + 1e-9) for a, b in pairwise(ordered)) or ordered[-1] > 10 * mean * (1 + 1e-9):
        yield "seconds: fastest call, median and tenths are not in order"


def _odd_rates(record: Record) -> Iterator[str]:
    seconds, counted, rates, floor = (record[name] for name in ("seconds", "counted", "rates", "floor"))
    for rate, amount in (("flops_per_s", "flops"), ("bytes_per_s", "bytes")):
        if not math.isclose(rates[rate] * seconds["mean"], counted[amount], rel_tol=1e-9):
            yield f"rates, {rate}: {rates[rate]:.6g} is not {counted[amount]:.6g} by {seconds['mean']:.6g} s"
    if record["verdict"] == "ok" and floor is not None and seconds["fastest"] < machine.EARLY * floor:
        yield f"verdict: {seconds['fastest']:.6g} s is below the floor of {floor:.6g} s and cannot be ok"
    for share in ("mfu", "mbu", "of_ceiling_flops", "of_ceiling_bytes"):
        if (rates.get(share) or 0) > MOST:
            yield f"rates, {share}: {rates[share]:.6g} times what the device can do"


def _odd_ceilings(ceilings: Mapping[str, Any]) -> Iterator[str]:
    try:
        datetime.fromisoformat(ceilings["when"])
    except ValueError:
        yield f"when: {ceilings['when']!r:.60} is no time"
    for rate, roofs in (("flops_per_s", ceilings["matmul"]), ("bytes_per_s", ceilings["traffic"])):
        for name, roof in roofs.items():
            if not roof.get("low", 0) <= roof[rate] <= roof.get("high", 1e30):
                yield f"{name}: {roof[rate]:.6g} is outside of its interval"


@cache
def _validator(part: str) -> Any:
    try:
        jsonschema = import_module("jsonschema")
    except ImportError as error:
        raise ImportError(
            "recordings are checked by jsonschema, which is not installed: pip install jsonschema"
        ) from error
    schema = json.loads(files("flopkit").joinpath("data/recording.schema.json").read_text("utf-8"))
    if part:
        schema = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": part}
    return jsonschema.Draft202012Validator(schema)
