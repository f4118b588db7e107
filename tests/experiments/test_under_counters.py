"""A training step under hardware counters, without them: each operator is counted once for its shapes, and the whole is the sum."""

import json
from types import SimpleNamespace

import pytest
import torch
from ncu_table import BF16, READ, SPIN, table

import flopkit as fk
from flopkit.cli import main
from flopkit.experiments import under_counters
from flopkit.experiments.under_counters import STEPS, compared, is_step, shown, watched


@pytest.mark.parametrize("name", STEPS)
def test_the_operators_add_up_to_the_step(name):
    """Counted one by one, by shape, times their calls: what `flopkit.count` says of the step."""
    run, ran = STEPS[name]("cpu", True), []
    whole = fk.count(run).under("EXACT")
    lines = watched(run, lambda call: (ran.append(1), call())[1])
    for kind in ("flops", "vector_flops", "bytes"):
        assert sum(line["calls"] * line["counted"][kind] for line in lines) == getattr(whole, kind) > 0
    assert len(ran) == sum(line["watched"] for line in lines) < sum(line["calls"] for line in lines)
    assert all(line["watched"] == bool(line["counted"]["bytes"]) for line in lines)


def test_what_is_watched_gives_what_the_operator_gives():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    x, found = torch.ones(2, 4), []
    lines = watched(lambda: found.append(net(x)), lambda call: call())
    assert torch.equal(found[0], net(x))
    [product] = [line for line in lines if line["operator"] == "addmm"]
    assert product["calls"] == 2 and product["counted"]["flops"] == 2 * 2 * 4 * 4  # one shape, two layers


def test_time_that_has_run_out_is_said():
    """What is not watched is counted all the same, and the table says how many there are."""
    lines = watched(STEPS["gpt_block"]("cpu", True), lambda call: call(), seconds=-1)
    assert not any(line["watched"] for line in lines) and any(line["counted"]["flops"] for line in lines)
    moving = sum(bool(line["counted"]["bytes"]) for line in lines)
    said = shown({"step": "gpt_block", "device": "a card", "results": lines})
    assert f"0 operators; {moving} more were not watched" in str(said)


def test_a_program_of_a_step(tmp_path, monkeypatch):
    """On a stand-in for the device: what is watched runs between start and stop, behind the delimiter, and a last delimiter follows."""
    seen = []
    cuda = SimpleNamespace(
        get_device_capability=lambda: (9, 0), get_device_name=lambda: "NVIDIA Test", _sleep=lambda cycles: seen.append("sleep"),
        synchronize=lambda: None, CUDAGraph=torch.cuda.CUDAGraph,
        cudart=lambda: SimpleNamespace(cudaProfilerStart=lambda: seen.append("start"), cudaProfilerStop=lambda: seen.append("stop")),
    )  # fmt: skip
    x = torch.ones(8, 8)
    monkeypatch.setitem(STEPS, "gpt_block", lambda where, small: lambda: torch.mm(x, x))
    with monkeypatch.context() as patched:
        patched.setattr(torch, "cuda", cuda)
        under_counters.run_step(tmp_path, "gpt_block")
    about = json.loads((tmp_path / "cases.json").read_text())
    assert seen == ["start", "sleep", "stop"] * 2 and about["step"] == "gpt_block"
    assert about["counted"]["flops"] == sum(line["counted"]["flops"] for line in about["lines"]) == 2 * 8**3


@pytest.fixture
def kept(tmp_path):
    """A product that was watched, and one for which there was no time; a product executes more than is counted."""
    line = {"operator": "mm", "shapes": [[4096, 4096]] * 2, "dtype": "bfloat16", "calls": 3, "uncounted": False}
    counted = {"flops": 2 * 4096**3, "vector_flops": 0, "bytes": 3 * 2 * 4096**2}
    lines = [{**line, "counted": counted, "watched": watched} for watched in (True, False)]
    about = {"device": "NVIDIA Test", "capability": [9, 0], "torch": "2", "step": "gpt_block", "counted": counted}
    (tmp_path / "cases.json").write_text(json.dumps({**about, "lines": lines}))
    ran = [(SPIN, {}), ("nvjet", {BF16: 2**38, **READ}), (SPIN, {})]
    (tmp_path / "raw.csv").write_text(table(ran))
    return tmp_path


def test_what_was_executed_stands_beside_what_was_counted(kept, capsys):
    assert is_step(kept)
    one, other = compared(kept)["results"]
    assert one["executed"] == {"bf16": 2**38} and one["memory"] == 3 * 2 * 4096**2 and one["kernels"] == ["nvjet"]
    assert "executed" not in other
    assert main(["counters", "--read", str(kept)]) == 0
    said = capsys.readouterr().out
    assert "2.0000" in said and "1.00" in said and "1 more were not watched" in said


def test_files_that_are_not_whole(kept):
    (kept / "raw.csv").write_text(table([(SPIN, {})]))
    with pytest.raises(ValueError, match="of 2 delimiter kernels 1 are there"):
        compared(kept)
    for odd in ('{"step": 1}', '{"step": 1, "capability": 9}', '{"step": 1, "capability": [9, 0], "lines": [3]}'):
        (kept / "cases.json").write_text(odd)
        with pytest.raises(ValueError, match="is not whole: .*run the counters again"):
            compared(kept)
    (kept / "cases.json").write_text("{")
    assert not is_step(kept) and not is_step(kept / "nowhere")
