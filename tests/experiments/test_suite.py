"""The suite: every case is in the file as soon as it is measured, and a second run goes on, wherever the first one was ended."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import flopkit as fk
from flopkit import machine
from flopkit.cli import main
from flopkit.experiments import bench, experiment, record, suite
from flopkit.recordings import Recording

ROOT = Path(fk.__file__).parents[1]
RUN = [
    sys.executable,
    "-m",
    "flopkit",
    "record",
    "--only",
    "matmul_sizes",
    "--device",
    "cpu",
    "--scale",
    "toy",
    "--time-budget",
    "0.2",
]
CASES = 3


# Run by a Python of its own: torch is loaded once, and each run is a fork of it. The first one ends by itself and says how long a run takes;
# the others are killed after a part of that time. Each prints what it left; after a run that ended by itself, the next begins a new file.
KILLED = """
import os, signal, sys, time, torch
from pathlib import Path
from flopkit.experiments import record
path, whole = Path(sys.argv[1]), None
for moment in range(19):
    begin = time.perf_counter()
    child = os.fork()
    if not child:
        record(path, only=["matmul_sizes"], device="cpu", scale="toy", time_budget=0.2)
        os._exit(0)
    if whole is not None:
        time.sleep(whole * (moment % 12) / 10)
        os.kill(child, signal.SIGKILL)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    whole = whole or time.perf_counter() - begin
    print("killed" if killed else "ended", path.read_bytes().hex() if path.exists() else "nothing")
    if not killed:
        path.unlink()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which this system does not have")
def test_a_run_that_is_killed_at_any_moment_loses_nothing(tmp_path):
    """Whatever a kill leaves is whole, and what was measured stays as it was; the next run measures the rest."""
    path = tmp_path / "mine.json"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    kept, ends, sizes = (), [], set()
    for end, left in map(str.split, ran.stdout.splitlines()):
        now = ()
        if left != "nothing":
            path.write_bytes(bytes.fromhex(left))
            now = Recording.read(path).results
        assert now[: len(kept)] == kept, "what was measured before is lost or has changed"
        assert end == "killed" or len(now) == CASES
        kept = now if end == "killed" else ()
        ends.append(end)
        sizes.add(len(now))
    assert ends.count("killed") > 3 and {1, 2} & sizes, f"nothing was interrupted between cases: {ends}, {sizes}"


def test_stopped_before_each_case(tmp_path, monkeypatch):
    """Ctrl-C again and again: each run measures one case more, and none twice."""
    path, measured, real = tmp_path / "mine.json", [], bench.measure

    def one_a_run(*args, **kwargs):
        if len(measured) == run:
            raise KeyboardInterrupt
        measured.append(1)
        return real(*args, **kwargs)

    monkeypatch.setattr(bench, "measure", one_a_run)
    for run in range(CASES):
        with pytest.raises(
            KeyboardInterrupt, match=f"interrupted; {run} measurements are kept in .*run the same command"
        ):
            record(path, only=["matmul_sizes"], device="cpu", scale="toy")
        assert len(Recording.read(path).results) == run
    run = CASES
    last = record(path, only=["matmul_sizes"], device="cpu", scale="toy")
    assert (last.new, len(last.recording.results), len(measured)) == (1, CASES, CASES)


def test_ctrl_c_is_one_line_and_code_130(tmp_path, monkeypatch, capsys):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "measure", stopped)
    assert main([*RUN[3:], "--out", str(tmp_path / "mine.json")]) == 130
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("flopkit: interrupted; 0 measurements are kept in ")


def test_a_case_is_written_before_the_next_one_begins(tmp_path, monkeypatch):
    path, seen, real = tmp_path / "mine.json", [], bench.measure
    monkeypatch.setattr(
        bench, "measure", lambda *a, **k: seen.append(len(Recording.read(path).results)) or real(*a, **k)
    )
    assert record(path, only=["matmul_sizes"], device="cpu", scale="toy").new == CASES
    assert seen == list(range(CASES))


def test_two_runs_do_not_write_one_file(tmp_path, monkeypatch):
    """The one that finds the file changed ends, and what the other one wrote stays."""
    path, real = tmp_path / "mine.json", bench.measure

    def meanwhile(*args, **kwargs):
        found = real(*args, **kwargs)
        old = Recording.read(path)
        Recording({**old.attribution, "who": "the other run"}, old.provenance, None, old.results).write(path)
        return found

    monkeypatch.setattr(bench, "measure", meanwhile)
    with pytest.raises(ValueError, match="mine.json was changed by another run: wait until it ends, or name another"):
        record(path, only=["matmul_sizes", "dense_batch"], device="cpu", scale="toy")
    assert Recording.read(path).attribution["who"] == "the other run"


def test_a_file_that_cannot_be_written_to_ends_the_run(tmp_path, monkeypatch, capsys):
    """Every further case would be measured and lost."""
    path, measured, real = tmp_path / "mine.json", [], bench.measure
    monkeypatch.setattr(bench, "measure", lambda *a, **k: measured.append(1) or real(*a, **k))

    def full(*args):
        if len(measured) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine.os, "fsync", full)
    assert main([*RUN[3:], "--out", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{path} cannot be written to" in said and "No space left" in said
    assert "1 measurements are kept in it: make room, then run the same command to go on" in said
    assert len(measured) == 2 and len(Recording.read(path).results) == 1 and list(tmp_path.iterdir()) == [path]

    def no_folder(*args, **kwargs):
        raise PermissionError("no permission")

    monkeypatch.setattr(
        suite.tempfile, "TemporaryFile", no_folder
    )  # when a run goes on, it is asked before an hour is spent
    with pytest.raises(PermissionError, match="no permission"):
        record(path, only=["matmul_sizes"], device="cpu", scale="toy")
    assert len(measured) == 2


@pytest.mark.parametrize("budget", ["nan", "inf", "-1", "0"])
def test_a_budget_that_is_none_begins_no_recording(tmp_path, capsys, budget):
    path = tmp_path / "mine.json"
    assert (
        main(["record", "--only", "matmul_sizes", "--scale", "toy", "--out", str(path), "--time-budget", budget]) == 2
    )
    assert "must be a finite number of seconds above 0" in capsys.readouterr().err and not path.exists()


def test_an_experiment_that_fails_ends_no_other(tmp_path, monkeypatch, capsys):
    real = experiment("matmul_sizes")

    def broken(self, on):
        yield from list(real_run(self, on))[:1]
        raise RuntimeError("CUDA out of\nmemory")

    real_run = type(real).run
    monkeypatch.setattr(type(real), "run", broken)
    done = record(tmp_path / "mine.json", only=["matmul_sizes"], device="cpu", scale="toy")
    assert done.failed == {"matmul_sizes": "RuntimeError: CUDA out of memory"} and done.new == CASES
    assert main([*RUN[3:], "--out", str(tmp_path / "mine.json"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["experiments"][0]["failed"] == "RuntimeError: CUDA out of memory"


@pytest.mark.parametrize("what", ["device", "torch", "commit", "flags", "scale"])
def test_a_recording_is_of_one_place(tmp_path, what):
    path = tmp_path / "mine.json"
    first = record(path, only=["matmul_sizes"], device="cpu", scale="toy").recording
    other = {"flags": {"threads": 64}, "scale": "gpu"}.get(what, "another")
    Recording(first.attribution, {**first.provenance, what: other}, None, first.results).write(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"recorded with {what}=.*name another file"):
        record(path, only=["matmul_sizes"], device="cpu", scale="toy")
    assert path.read_bytes() == before


def test_who_measured_is_said_once(tmp_path):
    path, about = tmp_path / "mine.json", {"who": "A. Reader", "machine": "a laptop", "licence": "CC0-1.0"}
    here = dict(only=["matmul_sizes"], device="cpu", scale="toy")
    assert record(path, **here, attribution=about).recording.attribution == about
    assert record(path, **here).recording.attribution == about
    with pytest.raises(ValueError, match="names who='A. Reader', not 'B'"):
        record(path, **here, attribution={"who": "B"})


def test_a_damaged_file_is_not_overwritten(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"schema": "flopkit.rec')
    with pytest.raises(ValueError, match="move it away"):
        record(path, only=["matmul_sizes"], device="cpu", scale="toy")
    assert path.read_text() == '{"schema": "flopkit.rec'


def test_names():
    assert suite.chosen(None) == list(suite.NAMES)
    with pytest.raises(ValueError, match="matmul_sizes"):
        suite.chosen(["matmul_size"])


class Roof:
    def record(self):
        return {
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "title": "a CPU",
            "when": "2026-01-01T00:00:00+00:00",
            "memory": None,
            "matmul": {},
            "traffic": {},
            "of": "now",
        }


@pytest.fixture
def ceilings_measured(tmp_path, monkeypatch):
    """How often ceilings were measured; no experiment is."""
    times = []
    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(tmp_path / "kept"))
    monkeypatch.setattr(suite, "ceilings", lambda device: times.append(device.type) or Roof())
    monkeypatch.setattr(suite, "_run", lambda *args: iter(()))
    return times


def test_a_recording_begins_with_the_ceilings(tmp_path, ceilings_measured):
    path = tmp_path / "mine.json"
    for _ in range(2):  # the second run finds them in the file
        record(path, device="cpu", scale="cpu")
        assert Recording.read(path).ceilings == Roof().record() and ceilings_measured == ["cpu"]
    assert record(tmp_path / "toy.json", device="cpu", scale="toy").recording.ceilings is None
    assert ceilings_measured == ["cpu"]


@pytest.mark.parametrize(("changed", "measured"), [({}, []), ({"torch": "1.0"}, ["cpu"]), ({"threads": 99}, ["cpu"])])
def test_kept_ceilings_serve_where_they_are_of_this_place(tmp_path, ceilings_measured, changed, measured):
    kept = {"title": machine.title("cpu"), "when": "2026-01-01", "memory": None, "of": "before", **changed}
    machine.keep_ceilings({**Roof().record(), **kept})
    found = record(tmp_path / "mine.json", device="cpu", scale="cpu").recording.ceilings
    assert ceilings_measured == measured and found["of"] == ("now" if measured else "before")
