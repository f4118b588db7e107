"""All-reduce: two processes over gloo give the mean of what they hold, and a step the gradients of both batches, overlapped or not."""

import json
from types import SimpleNamespace

import pytest
import torch

import flopkit as fk
from flopkit.experiments import Bench, all_reduce, ranks

STEPS = ["alone", "after", "overlapped"]


@pytest.fixture(scope="module")
def records(toy):
    return toy("all_reduce")[1]


def test_two_processes_over_gloo(records):
    sizes, steps = records[:2], records[2:]
    assert [each["params"]["numbers"] for each in sizes] == [2**10, 2**14]
    assert [each["params"]["mode"] for each in steps] == STEPS
    for each in records:
        assert (each["params"]["backend"], each["params"]["ranks"]) == ("gloo", 2)
        # on a machine that is busy with other tests a few calls may take much longer
        assert each["verdict"] in ("ok", "disturbed") and each["error"] < 1e-5 and each["seconds"]["mean"] > 0


def test_bytes_on_the_wire(records):
    """Of two ranks each sends half of its tensor and half of the sums: as many bytes as the tensor has."""
    assert [each["extra"]["wire_bytes"] for each in records[:2]] == [4 * 2**10, 4 * 2**14]
    assert [each["extra"]["wire_bytes"] for each in records[2:]] == [0, 4 * 2 * 32 * 32, 4 * 2 * 32 * 32]
    assert [ranks.wire_bytes(n, 8) for n in (1, 2, 4, 8)] == [0, 8, 12, 14]


def test_counts(records):
    """Three products a layer but two of the first; the mode changes nothing of that."""
    net = torch.nn.Sequential(*(torch.nn.Linear(32, 32, bias=False) for _ in range(2)))
    x = torch.randn(8, 32)
    counted = fk.count(lambda: net(x).square().mean().backward()).under("EXACT").flops
    assert [each["counted"]["flops"] for each in records] == [0, 0, counted, counted, counted]
    assert counted == 5 * 2 * 8 * 32 * 32


def test_what_is_known_is_not_measured_again(records, monkeypatch):
    asked = []

    def measured(cases, dtype, time_budget):
        asked.extend(cases)
        yield from ({"verdict": "ok", "of": each} for each in cases)

    monkeypatch.setattr(all_reduce, "_measured", measured)
    known = {Bench.key(each["experiment"], each["params"], each["dtype"]): each for each in (records[0], records[3])}
    kept = []
    again = list(all_reduce.run(Bench("cpu", "toy", known=known, keep=kept.append)))
    assert [again[0], again[3]] == [records[0], records[3]] and kept == [again[1], again[2], again[4]]
    assert asked == [each["params"] for each in kept] == [each["of"] for each in kept]
    asked.clear()
    everything = {Bench.key(each["experiment"], each["params"], each["dtype"]): each for each in records}
    assert list(all_reduce.run(Bench("cpu", "toy", known=everything))) == records and not asked


@pytest.mark.parametrize(("cards", "backend", "count"), [(8, "nccl", 8), (1, "gloo", 2)])
def test_a_gpu_alone_has_nobody_to_reduce_with(monkeypatch, cards, backend, count):
    asked = []

    def measured(cases, dtype, time_budget):
        asked.append(dtype)
        yield from ({} for _ in cases)

    monkeypatch.setattr(all_reduce, "_measured", measured)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    monkeypatch.setattr(Bench, "dtypes", ("bf16", "fp32"))
    bench = Bench("cpu", "gpu")
    bench.device = SimpleNamespace(type="cuda")
    found = list(all_reduce.run(bench))
    assert {(each["params"]["backend"], each["params"]["ranks"]) for each in found} == {(backend, count)}
    assert asked == ["bf16" if backend == "nccl" else "fp32"]
    assert max(each["params"].get("numbers", 0) for each in found) == (2**28 if backend == "nccl" else 2**23)


def test_ranks_that_fail_say_why():
    with pytest.raises(RuntimeError, match=r"(?s)before all cases were measured.*KeyError"):
        next(all_reduce._measured([{"ranks": 1, "backend": "gloo", "what": "all_reduce"}], "fp32", 0.05))


def test_all_ranks_make_the_calls_that_the_first_one_makes(monkeypatch):
    """What the first rank says, the other hears, one broadcast after the other."""
    said, calls = [], {"first": 0, "other": 0}

    def run(rank):
        def one():
            calls[rank] += 1

        return one

    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, source, group: said.append(int(tensor)))
    first = ranks.Together(run("first"), None, False)
    found = [len(first.calls(n)) for n in (1, 5, 2)]
    first.end()
    assert found == [1, 5, 2] and said == [1, 5, 2, 0]
    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, source, group: tensor.fill_(said.pop(0)))
    ranks.Together(run("other"), None, False).follow()
    assert calls["first"] == calls["other"] and not said


def test_records_are_plain(records):
    assert json.loads(json.dumps(records, allow_nan=False)) == records
