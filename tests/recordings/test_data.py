"""What lies in flopkit/data/measured: every header and every row has what a reader needs to believe it."""

import csv
import io
import math
import re
import tomllib
from pathlib import Path

import pytest

import flopkit as fk
from flopkit.recordings.published_data import COLUMNS, MEASURED_KINDS, UNITS, dataset, dataset_names

FOLDER = Path(fk.__file__).parent / "data/measured"
NAMES = dataset_names()
HEADERS = {name: tomllib.loads((FOLDER / f"{name}.toml").read_text("utf8")) for name in NAMES}
LINES = {name: list(csv.DictReader(io.StringIO((FOLDER / f"{name}.csv").read_text("utf8")))) for name in NAMES}
TEXTS = ("title", "source", "commit", "date", "read", "licence", "software", "measured", "left_out")
PARTS = {*TEXTS, "caveats", "above_peak", "columns", "devices", "peaks", "every", "tables", "suspect"}
ROWS = {name: fk.recordings.dataset(name).rows for name in NAMES}
ZEROS = {"causal", "padding_h", "padding_w"}  # the columns in which nothing is an answer, too


def test_each_collection_has_a_header_and_rows():
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.{end}" for name in NAMES for end in ("toml", "csv")}
    assert len(NAMES) >= 20 and sum(map(len, ROWS.values())) > 6000


def test_the_data_stay_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 700_000


@pytest.mark.parametrize("name", NAMES)
def test_header(name):
    header = HEADERS[name]
    assert header.keys() <= PARTS and {*TEXTS, "caveats", "devices", "tables"} <= header.keys()
    assert all(isinstance(header[key], str) and header[key].strip() for key in TEXTS if key != "commit")
    assert re.fullmatch(r"https://[\w./-]+", header["source"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", header["read"])
    assert re.match(r"20[12]\d", header["date"])
    assert header["caveats"] and all(text.endswith(".") for text in header["caveats"])
    assert header["left_out"] == "nothing" or header["left_out"].endswith(".")
    for table in header["tables"].values():
        assert table["about"]
        assert ("url" in table) != ("path" in table)
    if any("path" in table for table in header["tables"].values()):
        assert re.fullmatch(r"[0-9a-f]{7,40}", header["commit"]), "a path is worth nothing without its version"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_a_header_goes_unused(name):
    header, lines, rows = HEADERS[name], LINES[name], ROWS[name]
    known = {*COLUMNS, *header.get("columns", {})}
    assert set(lines[0]) <= known, "a column that the header does not explain"
    assert set(header.get("columns", {})) <= set(lines[0]), "an explained column that is not there"
    assert {row["table"] for row in rows} == set(header["tables"])
    assert {row["device"] for row in rows} == set(header["devices"])
    for values in (header.get("every", {}), *header["tables"].values()):
        assert values.keys() <= {*known, "path", "line", "url", "about"}
    for suspect in header.get("suspect", []):
        assert any(all(row[key] == value for key, value in suspect["match"].items()) for row in rows), suspect
    for device, peaks in header.get("peaks", {}).items():
        assert header["devices"][device].startswith("not in flopkit: ") and peaks, "a peak that flopkit knows itself"


def test_a_device_has_its_name_or_the_reason_why_not():
    """A board that several devices share a name with is not guessed; one that flopkit does not know has no device of its name."""
    for name in NAMES:
        found = dataset(name)
        assert list(found.devices) == list(HEADERS[name]["devices"])
        for said, device in found.devices.items():
            reason = found.without_device.get(said)
            assert (device in fk.device_names()) != (reason is not None), (name, said)
            if reason is None:
                continue
            kind, _, why = reason.partition(": ")
            assert kind in ("card not stated", "not in flopkit") and len(why.split()) >= 3, (name, said)
            with pytest.raises(ValueError, match="not a device in the data"):
                fk.device(said)


@pytest.mark.parametrize("name", NAMES)
def test_every_row(name):
    for line, row in zip(LINES[name], ROWS[name], strict=True):
        assert None not in line and None not in line.values(), "a line with more or fewer cells than the first"
        assert row["kind"] in MEASURED_KINDS and row["unit"] in UNITS
        assert row["workload"] and row["workload"] == row["workload"].strip().lower()
        assert type(row["count"]) is int and row["count"] >= 1
        assert isinstance(row["value"], (int, float)) and 0 < row["value"] < math.inf
        for key in ("batch", "seq"):
            assert row[key] is None or (type(row[key]) is int and row[key] >= 1)
        assert row["device_name"] is None or row["device_name"] in fk.device_names()
        assert re.match(r"https://[\w.-]+/\w", row["url"]) and " " not in row["url"]
        for key in ("source", "licence", "software", "date", "verdict"):
            assert row[key]
        for key in HEADERS[name].get("columns", {}):
            assert row[key] is None or isinstance(row[key], str) or row[key] > 0 or key in ZEROS


@pytest.mark.parametrize("name", NAMES)
def test_no_measurement_stands_twice(name):
    seen = [tuple(sorted((key, str(value)) for key, value in row.items())) for row in ROWS[name]]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("name", NAMES)
def test_values_are_as_published(name):
    """The file keeps the digits that the source prints: a cell is a plain decimal number, without separators or exponents."""
    assert all(re.fullmatch(r"\d+(\.\d+)?", line["value"]) for line in LINES[name])


def test_a_link_leads_to_the_version_that_was_read():
    for name in NAMES:
        for row in ROWS[name]:
            if row["url"].startswith(HEADERS[name]["source"]) and "path" in HEADERS[name]["tables"][row["table"]]:
                assert f"/{HEADERS[name]['commit']}/" in row["url"]


def test_where_a_licence_is_missing_it_says_so():
    unlicensed = {name for name in NAMES if HEADERS[name]["licence"].startswith("none stated")}
    assert unlicensed == {"kipply", "lambda_machines", "lambda_training", "llama_cpp"}


def test_the_data_are_in_the_package():
    """flit takes every file below the package, whatever its name, unless it is excluded."""
    project = tomllib.loads((FOLDER.parents[2] / "pyproject.toml").read_text("utf8"))
    assert project["build-system"]["build-backend"] == "flit_core.buildapi"
    excluded = project["tool"]["flit"].get("sdist", {}).get("exclude", [])
    assert not [path for path in excluded if path.startswith("flopkit")]
