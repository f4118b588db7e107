"""Recordings: written and read without loss, refused where they are damaged, changed by hand, or not whole."""

import copy
import json
import math
import os
import time
from importlib.resources import files

import jsonschema
import pytest

from flopkit import machine
from flopkit.experiments import record
from flopkit.recordings import Recording, recording


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A recording of the smallest cases, made here."""
    return record(
        tmp_path_factory.mktemp("kept") / "mine.json", only=["matmul_sizes"], device="cpu", scale="toy"
    ).recording


def changed(whole, *place, to):
    """The data of the recording with one value changed."""
    data = copy.deepcopy(whole.data())
    at = data
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = to
    return data


def test_the_schema_is_one():
    schema = json.loads((files("flopkit") / "data/recording.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == schema["properties"]["schema"]["const"] == recording.SCHEMA


def test_a_round_trip_loses_nothing(whole, tmp_path):
    there = whole.write(tmp_path / "new folder" / "b.json")
    back = Recording.read(there.path)
    assert back.data() == whole.data() and back.path == there.path
    assert [path.name for path in there.path.parent.iterdir()] == ["b.json"]
    assert back.provenance["scale"] == "toy" and back.device in repr(back)
    assert "3 measurements, on " in repr(back) and back.attribution["who"] == "not named"


def test_every_place_where_a_file_may_be_cut_off(whole, tmp_path):
    text = whole.path.read_bytes()
    path = tmp_path / "cut.json"
    for length in (0, 1, *range(2, len(text) - 3, 97), len(text) - 3):
        path.write_bytes(text[:length])
        with pytest.raises(ValueError, match=r"cut\.json is damaged.*move it away.*record --out"):
            Recording.read(path)


@pytest.mark.parametrize("junk", [b"\xff\xfe{}", b"\x00" * 50, b"[" * 100_000, b'{"schema": NaN}', b"PK\x03\x04"])
def test_junk_is_named(tmp_path, junk):
    (tmp_path / "junk.json").write_bytes(junk)
    with pytest.raises(ValueError, match=r"junk\.json is damaged or no recording.*move it away"):
        Recording.read(tmp_path / "junk.json")


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", '{"schema": "flopkit.recording/2"}'])
def test_another_form_is_named(tmp_path, text):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ValueError, match=r"other\.json is no recording of this flopkit: schema="):
        Recording.read(tmp_path / "other.json")


HELD = {"low": 1e9, "high": 2e9, "steady": True, "verdict": "ok"}
ROOF = {
    "title": "a CPU",
    "when": "2026-01-01T00:00:00+00:00",
    "threads": 2,
    "memory": None,
    "matmul": {},
    "traffic": {},
}
CHANGES = [
    (("results", 0, "seconds", "mean"), -1.0, "results, 0, seconds, mean"),
    (("results", 0, "seconds", "mean"), 1e-9, "outside of its interval|is not"),
    (("results", 1, "rates", "flops_per_s"), 1e15, "results, 1, rates, flops_per_s: 1e\\+15 is not"),
    (("results", 1, "rates", "bytes_per_s"), 1.0, "rates, bytes_per_s"),
    (("results", 0, "counted", "flops"), 9999, "rates, flops_per_s"),
    (("results", 0, "seconds", "fastest"), 1.0, "fastest call took longer"),
    (("results", 0, "floor"), 1.0, "below the floor of 1 s and cannot be ok"),
    (("results", 0, "verdict"), "fine", "results, 0, verdict: 'fine' is not one of"),
    (("results", 0, "params", "n"), [1, 2], "results, 0, params, n"),
    (("results", 0, "surprise"), 1, "'surprise' was unexpected"),
    (("results", 0, "case"), 3, "results, 0, case"),
    (("results", 0, "case"), "n=8", "case: n=8 is not what params say"),
    (("results", 0, "seconds", "round_means"), [1.0, 2.0], "is not the mean of the rounds"),
    (("results", 0, "counted", "flops"), 10**400, "counted, flops"),
    (("ceilings",), {"title": "a CPU"}, "ceilings: "),
    (("results", 0, "seconds", "calls"), 2.5, "calls"),
    (("results",), {}, "results: "),
    (("results", 0), None, "results, 0: None is not of type"),
    (("provenance",), {}, "'when' is a required property"),
    (("provenance", "when"), "yesterday", "when: 'yesterday'"),
    (("provenance", "device"), "", "device"),
    (("attribution", "who"), "", "attribution, who"),
    (("unknown",), 1, "unknown"),
    (("results", 0, "rates", "mfu"), 1e308, "rates, mfu: 1e\\+308 times what the device can do"),
    (("results", 0, "rates", "mbu"), 1e308, "rates, mbu: 1e\\+308 times what the device can do"),
    (("results", 0, "rates", "of_ceiling_flops"), 1e308, "rates, of_ceiling_flops: 1e\\+308 times"),
    (("results", 0, "rates", "of_ceiling_bytes"), 1e308, "rates, of_ceiling_bytes: 1e\\+308 times"),
    (("results", 0, "seconds", "low"), -1, "not in the middle of its interval"),
    (("results", 0, "seconds", "high"), 1e308, "not in the middle of its interval"),
    (("results", 0, "seconds", "median"), 1e308, "a median of 1e\\+308 s is more than twice the mean"),
    (("results", 0, "seconds", "p10_p90"), [1e-9, 1e308], "fastest call, median and tenths are not in order"),
    (("results", 0, "seconds", "p10_p90", 1), 1e308, "fastest call, median and tenths are not in order"),
    (("results", 0, "floor"), 10**400, "a number in it is too large"),
    (("results", 0, "seconds", "mean"), 10**400, "a number in it is too large|not the mean"),
    (("results", 0, "seconds", "round_means"), [10**400, 1], "a number in it is too large|not the mean"),
    (("ceilings",), {**ROOF, "when": "x"}, "ceilings, when: 'x' is no time"),
    (
        ("ceilings",),
        {**ROOF, "matmul": {"fp32": {**HELD, "flops_per_s": 1e308}}},
        "ceilings, fp32: 1e\\+308 is outside of its interval",
    ),
    (
        ("ceilings",),
        {**ROOF, "traffic": {"copy": {**HELD, "bytes_per_s": 1.0, "low": 2.0, "high": 1.0}}},
        "ceilings, copy: 1 is outside",
    ),
]


@pytest.mark.parametrize(("place", "value", "says"), CHANGES)
def test_what_was_changed_by_hand_is_refused(whole, tmp_path, place, value, says):
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(changed(whole, *place, to=value)))
    with pytest.raises(ValueError, match=rf"changed\.json was changed or is not whole: .*({says}).*move it away"):
        Recording.read(path)


@pytest.mark.parametrize("key", ["schema", "attribution", "provenance", "ceilings", "results"])
def test_nothing_may_be_missing(whole, tmp_path, key):
    data = whole.data()
    del data[key]
    (tmp_path / "less.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=key):
        Recording.read(tmp_path / "less.json")


def test_a_case_is_there_once(whole):
    with pytest.raises(ValueError, match="results, 3: the case is there twice"):
        Recording(whole.attribution, whole.provenance, None, (*whole.results, whole.results[0]))


def test_what_is_written_is_checked(whole, tmp_path):
    """As it is when it is read: a record that is none never reaches the file."""
    bad = changed(whole, "results", 0, "seconds", "mean", to=math.nan)["results"][0]
    with pytest.raises(ValueError, match="not a record of matmul_sizes, n=16"):
        whole.added(bad)
    with pytest.raises(ValueError, match="not a recording: provenance"):
        Recording(whole.attribution, {})


def test_a_number_that_json_has_not_leaves_the_old_file(whole, tmp_path):
    path = whole.write(tmp_path / "old.json").path
    before = path.read_bytes()
    odd = whole.added({**whole.results[0], "extra": {"share": math.nan}})
    with pytest.raises(ValueError, match="not JSON compliant"):
        odd.write(path)
    assert path.read_bytes() == before


def test_a_refused_result_is_kept_and_not_plottable(whole, tmp_path):
    results = list(copy.deepcopy(whole.results))
    results[0]["verdict"], results[2]["verdict"] = "impossible", "wrong"
    kept = Recording(whole.attribution, whole.provenance, None, tuple(results)).write(tmp_path / "refused.json")
    back = Recording.read(kept.path)
    assert len(back.results) == 3 and back.plottable() == [back.results[1]]
    assert "3 measurements, 2 of them refused, on" in repr(back)


def test_an_interrupted_write_leaves_the_old_file(whole, tmp_path, monkeypatch):
    path = tmp_path / "old.json"
    before = whole.write(path).path.read_bytes()

    def fails(*args):
        raise OSError("no space left")

    monkeypatch.setattr(machine.os, "fsync", fails)
    with pytest.raises(OSError, match="no space"):
        whole.write(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_without_jsonschema_the_way_out_is_named(whole, monkeypatch):
    recording._validator.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "jsonschema", None)
    with pytest.raises(ImportError, match="jsonschema, which is not installed: pip install jsonschema"):
        Recording.read(whole.path)


def test_an_error_that_is_no_number_is_left_to_its_note():
    """JSON has no infinity."""
    import torch

    import flopkit as fk

    found = fk.measure(torch.mm, torch.ones(4, 4), torch.ones(4, 4), time_budget=0.05, check=lambda a, b: torch.ones(3))
    assert found.error == math.inf and found.record()["error"] is None and found.verdict == "wrong"
    assert any("another form" in note for note in found.notes) and json.dumps(found.record(), allow_nan=False)


def test_ceilings_that_agree_are_read(whole, tmp_path):
    roof = {**ROOF, "matmul": {"fp32": {**HELD, "flops_per_s": 1.5e9}}}
    path = tmp_path / "mine.json"
    path.write_text(
        json.dumps(changed(whole, "ceilings", to=roof)), encoding="utf-8-sig"
    )  # as Windows' editor saves it
    assert Recording.read(path).ceilings == roof


def test_a_key_that_stands_there_twice_is_refused(whole, tmp_path):
    """JSON takes the last one, and the records would be gone."""
    path = tmp_path / "twice.json"
    text = json.dumps(whole.data())
    path.write_text(text[:-1] + ', "results": []}')
    with pytest.raises(ValueError, match=r"twice\.json is damaged or no recording: 'results' stands there twice"):
        Recording.read(path)


def test_thousands_of_records_are_read_in_a_moment(whole):
    data = whole.data()
    one = data["results"][0]
    many = [{**one, "params": {"n": n}, "case": f"n={n}"} for n in range(2000)]
    begun = time.perf_counter()
    assert next(recording._faults({**data, "results": many}), None) is None
    long = time.perf_counter() - begun
    begun = time.perf_counter()
    assert next(recording._faults({**data, "results": many[:500]}), None) is None
    assert long < 10 * (time.perf_counter() - begun)  # as many times as there are more records, about


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name, which this system does not have")
def test_what_is_no_file_is_not_opened(whole, tmp_path):
    """A pipe would wait for ever, /dev/zero fill the memory."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe.json", tmp_path / "zero.json", tmp_path):
        with pytest.raises(OSError, match=r"is no file, but a folder, a pipe or a device: name a file"):
            Recording.read(path)


def test_a_link_stays_one_and_nothing_else_is_written_to(whole, tmp_path):
    """Not through a name that somebody could know: whoever made a link of it chose what is overwritten."""
    precious, path = tmp_path / "precious", tmp_path / "x.json"
    precious.write_text("mine")
    (tmp_path / ".x.json.part").symlink_to(precious)
    whole.write(path)
    assert precious.read_text() == "mine" and Recording.read(path).results == whole.results
    path.chmod(0o600)
    (tmp_path / "link.json").symlink_to(path)
    whole.added({**whole.results[0], "params": {"n": 5}, "case": "n=5"}).write(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink() and len(Recording.read(path).results) == 4
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == [".x.json.part", "link.json", "precious", "x.json"]
