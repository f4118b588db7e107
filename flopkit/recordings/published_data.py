"""What others measured, as it lies in flopkit/data/measured: a header (TOML) and rows (CSV) for each source."""

from __future__ import annotations

import contextlib
import csv
import html
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from flopkit import names
from flopkit.recordings.plausibility import judged
from flopkit.tables import Table

__all__ = ["COLUMNS", "Dataset", "MEASURED_KINDS", "UNITS", "dataset", "dataset_names"]

_FOLDER = files("flopkit").joinpath("data/measured")

MEASURED_KINDS = {
    "training": "forward and backward pass, mostly with the optimiser",
    "inference": "forward pass of a network",
    "backward": "backward pass alone",
    "prefill": "a language model reads a prompt",
    "decode": "a language model writes one sequence, token by token",
    "serving": "a language model writes many sequences at once",
    "matmul": "matrix products",
    "convolution": "convolutions and their gradients",
    "attention": "attention, fused or not",
    "kernel": "other single operations",
}

UNITS = (
    "images/s", "sequences/s", "samples/s", "tokens/s", "tokens/s/GPU",
    "TFLOP/s", "TFLOP/s/GPU", "GB/s", "ms", "min/1000 iterations",
)  # fmt: skip

COLUMNS = ("table", "kind", "workload", "device", "count", "precision", "batch", "seq", "setting", "value", "unit")
_WHOLE = ("count", "batch", "seq")


@dataclass(frozen=True, repr=False)
class Dataset:
    """The measurements of one source.

    Parameters
    ----------
    name : str
        What `dataset` calls it.
    title : str
        Who measured, and what the collection is called.
    source : str
        Its address.
    commit : str
        The version that was read.
    date : str
        When it was measured or published.
    read : str
        When it was copied.
    licence : str
        Under which licence the source stands.
    software : str
        Versions, as far as they are printed.
    measured : str
        What was measured, and how.
    caveats : tuple[str, ...]
        What is to be known before a row is quoted.
    left_out : str
        Which of the source's columns and rows are not here, and why.
    above_peak : str
        What explains rows above the peak, where that is known.

    Examples
    --------
    >>> dataset("gpt-fast")
    gpt-fast, decoding one sequence (2024-09-15): 33 rows, BSD-3-Clause. https://github.com/meta-pytorch/gpt-fast
    """

    name: str
    title: str
    source: str
    commit: str
    date: str
    read: str
    licence: str
    software: str
    measured: str
    caveats: tuple[str, ...]
    left_out: str
    above_peak: str
    _header: Mapping[str, Any] = field(compare=False)

    @property
    def columns(self) -> dict[str, str]:
        """Its own columns, beside those that every row has, and what they hold."""
        return dict(self._header.get("columns", {}))

    @property
    def devices(self) -> dict[str, str | None]:
        """The devices as the source names them, and which of `flopkit.device_names` each is; None: ``without_device`` says why."""
        return {said: None if ":" in name else name for said, name in self._header["devices"].items()}

    @property
    def without_device(self) -> dict[str, str]:
        """Why the others have no name here: "card not stated: …", or "not in flopkit: …".

        >>> dataset("tensorrt_llm").without_device
        {'A100': 'card not stated: SXM or PCIe, 40 or 80 GB'}
        """
        return {said: name for said, name in self._header["devices"].items() if ":" in name}

    @property
    def peaks(self) -> dict[str, dict[str, float]]:
        """Peaks in FLOP/s that the source states for devices that flopkit does not know."""
        stated = self._header.get("peaks", {})
        return {device: {dtype: rate * 1e12 for dtype, rate in peaks.items()} for device, peaks in stated.items()}

    def address(self, table: str) -> str:
        """Where a table of it stands, in the version that was read.

        >>> dataset("gpt_fast").address("one")[-50:]
        '1d3129541c5bfb4f715abc33d1c5f408d204/README.md#L90'
        """
        entry = self._header["tables"][table]
        if "url" in entry:
            return str(entry["url"])
        kind = "blob" if "." in entry["path"].rpartition("/")[2] else "tree"
        line = f"#L{entry['line']}" if "line" in entry else ""
        return f"{self.source}/{kind}/{self.commit}/{entry['path']}{line}"

    @cached_property
    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """Every row, judged: see `find` for what it holds."""
        lines = csv.DictReader(_FOLDER.joinpath(f"{self.name}.csv").read_text("utf-8").splitlines())
        return tuple(MappingProxyType(judged(self._row(line), self)) for line in lines)

    def table(self) -> Table:
        """Its rows, with the columns that hold something."""
        return shown(list(self.rows), f"{self.title}. {self.measured}")

    def _row(self, line: Mapping[str, str]) -> dict[str, Any]:
        tables = self._header["tables"]
        table = line.get("table") or next(iter(tables))
        cells = {key: text for key, text in line.items() if text}
        said: dict[str, Any] = {**self._header.get("every", {}), **tables[table], **cells}
        row = {key: said.get(key) for key in (*COLUMNS, *self.columns)} | {"table": table}
        for key in ("value", *_WHOLE, *self.columns):
            row[key] = None if row[key] is None else _number(row[key])
        return {
            "dataset": self.name, **row, "device_name": self.devices[said["device"]], "source": f"{self.title} ({self.date})",
            "url": self.address(table), "software": self.software, "date": self.date, "licence": self.licence,
        }  # fmt: skip

    def suspicion(self, row: Mapping[str, Any]) -> str:
        """What speaks against a row that no bound refutes; empty: nothing that is known."""
        entries = self._header.get("suspect", [])
        found = [entry["why"] for entry in entries if all(row[key] == value for key, value in entry["match"].items())]
        return "; ".join(found)

    def __repr__(self) -> str:
        return f"{self.title} ({self.date}): {len(self.rows):,} rows, {self.licence}. {self.source}"

    def _repr_html_(self) -> str:
        about = {
            "measured": self.measured, "software": self.software, "licence": self.licence, "left out": self.left_out,
            "caveats": " ".join(self.caveats),
        }  # fmt: skip
        items = "".join(f"<dt>{key}</dt><dd>{html.escape(text)}</dd>" for key, text in about.items())
        link = f'<a href="{html.escape(self.source)}">{html.escape(self.title)}</a> ({html.escape(self.date)})'
        return f"<p>{link}: {len(self.rows):,} rows</p><dl>{items}</dl>"


def dataset(name: str) -> Dataset:
    """The measurements of one source.

    Parameters
    ----------
    name : str
        One of the names in `datasets`.

    Raises
    ------
    ValueError
        For a name that is not known, with near ones.

    Examples
    --------
    >>> one = dataset("lambda training")
    >>> one.licence
    'none stated: values only, with their source'
    >>> print(one.caveats[0])
    The unit is not written in the file: images, sequences or tokens a second, as the task logs it.
    """
    return _read(names.find(name, dataset_names(), "a collection of measurements"))


@cache
def dataset_names() -> tuple[str, ...]:
    """The names, in the order of the alphabet.

    >>> dataset_names()[:2]
    ('cnn_benchmarks', 'convnet_benchmarks')
    """
    return tuple(sorted(entry.name[:-5] for entry in _FOLDER.iterdir() if entry.name.endswith(".toml")))


def shown(rows: list[Mapping[str, Any]], caption: str) -> Table:
    """*rows* as a table that shows what a reader asks for first; the rest stays in its rows."""
    wanted = [key for key in (*COLUMNS[2:], "share", "verdict") if any(row[key] is not None for row in rows)]
    formats = {"share": lambda share: f"{100 * share:.3g} %"}
    return Table(rows, caption=caption, columns=[*wanted, "source"], formats=formats)


@cache
def _read(name: str) -> Dataset:
    header = tomllib.loads(_FOLDER.joinpath(f"{name}.toml").read_text("utf-8"))
    about = {key: header[key] for key in Dataset.__dataclass_fields__ if isinstance(header.get(key), str)}
    return Dataset(
        name=name, caveats=tuple(header["caveats"]), above_peak=about.pop("above_peak", ""), _header=header, **about
    )


def _number(text: Any) -> Any:
    """*text* as the number it is, as the text it is otherwise."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
