"""Finding what was measured: by workload, kind, device, number format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from flopkit import names
from flopkit.devices import Device, device as known_device, device_names
from flopkit.recordings.plausibility import VERDICTS
from flopkit.recordings.published_data import MEASURED_KINDS, dataset as _collection, dataset_names, shown
from flopkit.tables import Table

__all__ = ["datasets", "find", "words"]

Row = Mapping[str, Any]
Test = Callable[[Row], bool]


def find(
    workload: str | None = None, *, kind: str | None = None, device: str | Device | None = None, precision: str | None = None,
    count: int | None = None, dataset: str | None = None, verdict: str | None = None,
) -> Table:  # fmt: skip
    """Published measurements, each with who measured it, on what, and whether it can be true.

    Parameters
    ----------
    workload : str, optional
        What ran: a model such as ``"llama-3.1-8b"`` or ``"resnet50"``, an operation such as ``"matmul"`` or ``"attention"``.
    kind : str, optional
        One of the kinds in ``flopkit.recordings.MEASURED_KINDS``: ``"training"``,
        ``"inference"``, ``"backward"``, ``"prefill"``, ``"decode"``, ``"serving"``,
        ``"matmul"``, ``"convolution"``, ``"attention"``, ``"kernel"``.
    device : str or Device, optional
        A device of flopkit, or words of the name that the source gives: ``"a100"`` finds every A100.
    precision : str, optional
        The number format of the products; for decoding, of the weights.
    count : int, optional
        How many devices ran together.
    dataset : str, optional
        One of the names in `datasets`.
    verdict : str, optional
        ``"possible"``, ``"above the peak"``, ``"suspect"`` or ``"not judged"``.

    Returns
    -------
    Table
        A row a measurement. It shows the columns that a reader asks for first; each of its ``rows`` also has *kind*, *device_name* (in
        `flopkit.device_names`, or None), *flops_per_s* or *bytes_per_s* of all devices together and how that was *counted*, *share* and
        *share_of* (of the peak in its number format, or of the bandwidth), *why* (the reason of the verdict), *url*, *software*, *date*,
        *licence*, and the columns of its own collection: `Dataset.columns`.

    Raises
    ------
    ValueError
        For a name that is not known, with near ones; and where nothing was measured, with what there is.

    Notes
    -----
    *value* and *unit* are as published. A share of the peak is no MFU: training counts three forward passes, causal attention in them where
    the length is known, and recomputation not. A row above the peak stays, with its reason. No row is a measurement of ours.

    Examples
    --------
    >>> rows = find("llama-3.1-8b", kind="training", device="h100", precision="bf16", count=8)
    >>> [(row["value"], row["unit"], round(row["share"], 3)) for row in rows]
    [(5762, 'tokens/s/GPU', 0.3), (6667, 'tokens/s/GPU', 0.347)]
    >>> rows[0]["url"].rpartition("/")[2]
    'llama3_h100_202412_torchtitan.md#L25'
    """
    asked = {"workload": workload, "kind": kind, "precision": precision, "verdict": verdict}
    collections = dataset_names()
    if dataset is not None:
        collections = (names.find(dataset, collections, "a collection of measurements", argument="dataset"),)
    rows = [row for name in collections for row in _collection(name).rows]
    tests: dict[str, Test] = {}
    for key, given in asked.items():
        if given is not None:
            known = [*MEASURED_KINDS] if key == "kind" else [*VERDICTS] if key == "verdict" else _values(key, rows)
            meant = names.find(given, known, f"a {key} of published measurements", argument=key)
            tests[key] = partial(_equals, key, meant)
    if device is not None:
        tests["device"] = _on(device, rows)
    if count is not None:
        tests["count"] = partial(_equals, "count", count)
    rows = _chosen(rows, tests, {**asked, "device": device, "count": count})
    sources = dict.fromkeys(row["source"] for row in rows)
    return shown(rows, f"{len(rows):,} published measurements. Sources: {'; '.join(sources)}")


def datasets() -> Table:
    """The collections: who measured what, how many rows of it are here, and what was left out.

    Examples
    --------
    >>> "timm" in [row["dataset"] for row in datasets()]
    True
    """
    found = [_collection(name) for name in dataset_names()]
    rows = [
        {
            "dataset": one.name, "title": one.title, "date": one.date, "rows": len(one.rows),
            "kinds": ", ".join(_values("kind", one.rows)), "licence": one.licence, "source": one.source, "left out": one.left_out,
        }
        for one in found
    ]  # fmt: skip
    caption = f"{sum(len(one.rows) for one in found):,} published measurements"
    return Table(rows, caption=caption, columns=["dataset", "title", "date", "rows", "kinds", "licence"])


def _chosen(rows: Sequence[Row], tests: Mapping[str, Test], asked: Mapping[str, Any]) -> list[Row]:
    """The *rows* that pass every test; an error says which test none passes, and what there is instead."""
    left, passed = list(rows), ""
    for key, test in tests.items():
        fit = [row for row in left if test(row)]
        if not fit:
            there = ", ".join(map(str, _values(key, left)))
            raise ValueError(f"{key}={asked[key]!r}: nothing was measured{passed}; there is {there}")
        left = fit
        passed += f"{',' if passed else ' with'} {key}={asked[key]!r}"
    return left


def _values(key: str, rows: Sequence[Row]) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows if row[key] is not None))


def _equals(key: str, meant: Any, row: Row) -> bool:
    return bool(row[key] == meant)


def _on(asked: str | Device, rows: Sequence[Row]) -> Test:
    """Whether a row was measured on that device: by flopkit's name of it, or by the words of the published one."""
    if isinstance(asked, Device):
        return partial(_equals, "device_name", asked.name)
    if not isinstance(asked, str) or not asked.strip():
        raise TypeError(f"device={asked!r}: must be a name, such as 'h100-sxm', or a flopkit.Device")
    try:
        name = known_device(asked).name
    except ValueError:
        name = None
    wanted = words(asked)

    def fits(row: Row) -> bool:
        said = words(row["device"]) | words(row["device_name"] or "")
        return wanted <= said or (name is not None and row["device_name"] == name)

    if not name and not any(map(fits, rows)):
        known = [*device_names(), *_values("device", rows)]
        raise ValueError(f"device={asked!r} is in no published measurement; {names.hint(asked, known)}")
    return fits


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower())) - {"nvidia", "amd", "intel", "geforce", "tesla"}
