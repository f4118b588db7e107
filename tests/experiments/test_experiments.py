"""Every experiment of the catalogue: it runs from end to end at toy size, its records are complete, and what is known is not measured again."""

import json
import re
from pathlib import Path

import pytest

from flopkit.experiments import NAMES, Bench, experiment
from flopkit.recordings import recording

FOLDER = Path(experiment.__code__.co_filename).parent
KEYS = {
    "experiment", "case", "params", "dtype", "verdict", "steady", "notes", "error", "floor", "counted", "seconds", "rates", "protocol",
    "monitor", "extra",
}  # fmt: skip
PLAIN = (int, float, str, bool)


@pytest.fixture(scope="module", params=NAMES)
def ran(request, toy):
    """(experiment, its records at toy size, those that were kept while it ran)."""
    return toy(request.param)


def test_each_file_is_in_the_catalogue():
    files = {path.stem for path in FOLDER.glob("*.py") if "\nPREDICTION = " in path.read_text("utf-8")}
    assert files == set(NAMES) and len(set(NAMES)) == len(NAMES)


def test_none_is_run_twice():
    """Who looks at its records asks `toy` for them, which runs it once; only with another way to measure it is run again."""
    asks = re.compile(r"^def (\w+)\((.*)\):\n((?:    .*\n|\n)+)", re.M)
    for path in Path(__file__).parent.glob("test_*.py"):
        for name, given, body in asks.findall(path.read_text("utf8")):
            if re.search(r'\w\.run\(Bench\("cpu", "toy"\)\)', body):
                assert "monkeypatch" in given or "raises(" in body, f"{path.name}: {name}"


def test_what_it_says_before_it_runs(ran):
    one, _records, _kept = ran
    assert 3 < len(one.title) < 80 and one.title[0].isupper() and not one.title.endswith(".")
    assert len(one.prediction) > 80 and one.prediction.endswith(".")


def test_its_records_are_complete_and_plain(ran):
    one, records, _kept = ran
    assert len(records) > 1
    for record in records:
        assert KEYS <= set(record) and record["experiment"] == one.name
        assert record["params"] and all(isinstance(value, PLAIN) for value in record["params"].values())
        assert all(isinstance(value, PLAIN) for value in record["extra"].values())
        assert json.loads(json.dumps(record, allow_nan=False)) == record
        assert record["seconds"]["mean"] > 0 and record["counted"]["flops"] >= 0 and record["counted"]["bytes"] > 0


@pytest.mark.parametrize("dtype", ["bf16", "tf32", "fp32"])
def test_a_record_says_whether_tf32_was_allowed(dtype):
    """As torch had it while the case ran, whatever it has before and afterwards."""
    import torch

    seen = set()

    def run(x):
        seen.add(torch.backends.cuda.matmul.allow_tf32)
        return x @ x

    record = Bench("cpu", "toy").case("matmul_sizes", {"n": 8}, lambda: (run, torch.ones(8, 8)), dtype)
    assert seen == {record["protocol"]["tf32_allowed"]} == {dtype != "fp32"}
    assert "timer" in record["protocol"]


def test_a_recording_takes_them(ran):
    for record in ran[1]:
        assert list(recording._faults_of(record)) == []


def test_its_results_are_right(ran):
    """On a CPU, whose peak is not known, no time is impossible: "ok" says that the results were right, or a note why they were not checked."""
    for record in ran[1]:
        # ranks judge for themselves
        allowed = {"ok", "disturbed"} if record["experiment"] in ("all_reduce", "strategies", "wire") else {"ok"}
        assert record["verdict"] in allowed, record["notes"]
        assert record["error"] is not None or any("was not checked" in note for note in record["notes"])


def test_no_two_cases_are_the_same(ran):
    keys = [Bench.key(record["experiment"], record["params"], record["dtype"]) for record in ran[1]]
    assert len(set(keys)) == len(keys)


def test_each_record_is_kept_as_soon_as_it_is_there(ran):
    _one, records, kept = ran
    assert kept == records


def test_it_goes_on_where_it_was_interrupted(ran, monkeypatch):
    """The first half is known: those cases come back as they were, and only the others are measured."""
    one, records, _kept = ran
    half = len(records) // 2
    known = {Bench.key(each["experiment"], each["params"], each["dtype"]): each for each in records[:half]}
    measured = []

    class Clock:
        def record(self):
            return {"measured": True, "protocol": {}}

    def ranks(cases, dtype, time_budget):
        yield from (measured.append(each) or {"measured": True} for each in cases)

    monkeypatch.setattr("flopkit.experiments.bench.measure", lambda fn, *args, **how: measured.append(fn) or Clock())
    monkeypatch.setattr("flopkit.experiments.all_reduce._measured", ranks)  # which other processes measure
    again = list(one.run(Bench("cpu", "toy", known=known)))
    assert [each["case"] for each in again] == [each["case"] for each in records]
    assert again[:half] == records[:half] and len(measured) == len(records) - half
    assert all(each["measured"] for each in again[half:])


def test_the_random_numbers_of_the_caller_go_on():
    import torch

    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    Bench("cpu", "toy").randn("fp32", 4)
    assert torch.rand(2).equal(wanted)


def test_random_numbers_come_in_the_format_of_the_products():
    import torch

    bench = Bench("cpu", "toy")
    formats = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}
    for dtype, kind in formats.items():
        assert bench.randn(dtype, 2, 3).dtype == kind
    assert not bench.randn("fp32", 8).equal(bench.randn("fp32", 8))


def test_an_unknown_experiment_is_told_its_neighbours():
    with pytest.raises(ValueError, match="matmul_sizes"):
        experiment("matmul_size")
    with pytest.raises(ValueError, match="scale='huge'"):
        Bench("cpu", "huge")
