"""Finding what was measured of an experiment: the reader's own recordings first, then those that come with flopkit, then what others published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from flopkit import machine, names, units
from flopkit.recordings.published_data import dataset
from flopkit.recordings.recording import Recording
from flopkit.recordings.search import find, words
from flopkit.tables import Table

__all__ = ["OWNERS", "Case", "records", "recordings", "shown_records"]

OWNERS = {
    "yours": "the reader's own recordings",
    "ours": "recordings that come with flopkit",
    "theirs": "published measurements",
}

# What others published of an experiment's kind: how `find` is asked.
PUBLISHED: dict[str, dict[str, Any]] = {
    "matmul_sizes": {"workload": "matmul"},
    "matmul_tiles": {"workload": "matmul"},
    "dense_batch": {"workload": "matmul"},
    "convolutions": {"kind": "convolution"},
    "backward_ratio": {"kind": "backward"},
    "attention_kernels": {"kind": "attention"},
    "fusion": {"kind": "kernel"},
    "cnns": {"kind": "inference"},
    "decode": {"kind": "decode"},
    "gpt_step": {"kind": "training", "dataset": "torchtitan"},
}
_SAID = {"possible": "ok"}  # a published verdict in the words of ours
RATES = {"FLOP/s": "flops_per_s", "B/s": "bytes_per_s", "MFU": "mfu", "MBU": "mbu"}  # by columns of a table


class Case(dict[str, Any]):
    """A record, and whose it is.

    Attributes
    ----------
    owner : str
        ``"yours"``, ``"ours"`` or ``"theirs"``.
    whose : str
        Who measured it, on what, when: a line for a figure.
    device : str
        What the machine, or the source, calls the device.
    ceilings : Mapping[str, Any] | None
        What was measured of the device's ceilings, for ``flopkit.devices.measured_device``.
    """

    def __init__(
        self, record: Mapping[str, Any], owner: str, whose: str, device: str, ceilings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(record)
        self.owner, self.whose, self.device, self.ceilings = owner, whose, device, ceilings


def recordings(owner: str) -> list[Recording]:
    """The recordings of the reader (``"yours"``) or those that come with flopkit (``"ours"``), the newest first.

    Raises
    ------
    ValueError
        For a file that is damaged; it names the file.

    Examples
    --------
    >>> all(one.results for one in recordings("ours"))
    True
    """
    whose = names.find(owner, ("yours", "ours"), "an owner of recordings")
    place = machine.folder() if whose == "yours" else _shipped()
    found = [Recording.read(path) for path in _kept(place)]
    return sorted(found, key=lambda one: str(one.provenance["when"]), reverse=True)


def records(
    experiment: str, *, owner: str | None = None, device: str | None = None, dtype: str | None = None, refused: bool = False
) -> list[Case]:  # fmt: skip
    """What is known of an experiment, each record with whose it is.

    Parameters
    ----------
    experiment : str
        Its name.
    owner : str, optional
        ``"yours"``, ``"ours"`` or ``"theirs"``. None: the first of these that has any.
    device : str, optional
        Words of the device's name: ``"h100"`` finds every H100.
    dtype : str, optional
        Number format of the products.
    refused : bool, optional
        Whether results that are wrong, impossible, disturbed, above the peak or suspect are among them: they are not to be plotted.

    Returns
    -------
    list[Case]
        Plain records, as ``flopkit/data/recording.schema.json`` has them, with ``.owner``, ``.whose`` and ``.device``. A case that one owner
        measured twice on one device is there once, the newest. Published ones have *params*, *rates* and *verdict* as far as they are printed,
        and the whole row of `find` as *extra*; they have no *seconds*.

    Raises
    ------
    ValueError
        For an owner that is none, and for a file of the reader's that is damaged.

    Examples
    --------
    >>> [one] = records("matmul_sizes", owner="theirs", device="h100 sxm", dtype="bf16")
    >>> one["rates"]["flops_per_s"], one.owner
    (794500000000000.0, 'theirs')
    >>> one.whose
    'published: S. Bekman, Machine Learning Engineering (2024 to 2026-08), on NVIDIA H100 SXM'
    """
    if owner is not None:
        owner = names.find(owner, OWNERS, "an owner of measurements", argument="owner")

    def fits(case: Case) -> bool:
        shown = refused or case["verdict"] in ("ok", "not judged")
        return shown and words(device or "") <= words(case.device) and dtype in (None, case["dtype"])

    for each in OWNERS if owner is None else [owner]:
        known = _published(experiment) if each == "theirs" else _recorded(each, experiment)
        if found := list(filter(fits, known)):
            return found
    return []


def shown_records(found: Iterable[Mapping[str, Any]], caption: str = "") -> Table:
    """Records as a table that shows what a reader asks for first; their whole is in its rows.

    >>> shown_records([]).columns[:3]
    ['case', 'dtype', 'time']
    """
    rows = []
    for record in found:
        seconds, rates = record.get("seconds"), record["rates"]
        half = seconds and (seconds["high"] - seconds["low"]) / 2 / seconds["mean"]
        row = {"case": record["case"], "dtype": record["dtype"], "time": seconds and seconds["mean"], "±": half}
        row |= {name: rates.get(key) for name, key in RATES.items()}
        verdict = record["verdict"] + ("" if record.get("steady", True) else ", clock not steady")
        rows.append({**row, "verdict": verdict, "record": record})
    always = ["case", "dtype", "time", "±", "FLOP/s", "B/s"]
    columns = [*always, *(name for name in ("MFU", "MBU") if any(row[name] is not None for row in rows)), "verdict"]
    formats = {"time": units.seconds, **dict.fromkeys(("±", "MFU", "MBU"), units.percent)}
    formats |= {name: partial(units.si, unit=name) for name in ("FLOP/s", "B/s")}
    return Table(rows, caption=caption, columns=columns, formats=formats)


def _kept(place: Path) -> list[Path]:
    """The recordings in a folder, if it is there; one that may not be read is an error, and none that looks empty."""
    if not place.exists():
        return []
    return sorted(path for path in place.iterdir() if path.suffix == ".json" and not path.name.startswith("."))


def _shipped() -> Path:
    return Path(str(files("flopkit").joinpath("data/recordings")))


def _recorded(owner: str, experiment: str) -> list[Case]:
    found: dict[tuple[Any, ...], Case] = {}
    for one in recordings(owner):
        when, about = str(one.provenance["when"])[:10], one.attribution
        theirs = f"recorded by {about['who']} on {about['machine']}, {when}"
        whose = f"yours: {one.device}, {when}" if owner == "yours" else theirs
        for record in one.results:
            if record["experiment"] == experiment:
                key = (one.device, record["case"], record["dtype"])
                found.setdefault(key, Case(record, owner, whose, one.device, one.ceilings))
    return list(found.values())


def _published(experiment: str) -> list[Case]:
    if experiment not in PUBLISHED:
        return []
    found = []
    for row in find(**PUBLISHED[experiment]):
        asked = {name: row[name] for name in ("workload", "count", "batch", "seq", "setting") if row[name] is not None}
        own = {name: row[name] for name in dataset(row["dataset"]).columns if row[name] is not None}
        rates = {"flops_per_s": row.get("flops_per_s"), "bytes_per_s": row.get("bytes_per_s"), "mfu": None, "mbu": None}
        record = {
            "experiment": experiment, "case": ", ".join(f"{name}={value}" for name, value in asked.items()), "params": asked | own,
            "dtype": row["precision"], "verdict": _SAID.get(row["verdict"], row["verdict"]), "notes": [row["why"]] * bool(row["why"]),
            "rates": rates, "extra": row,
        }  # fmt: skip
        found.append(Case(record, "theirs", f"published: {row['source']}, on {row['device']}", row["device"]))
    return found
