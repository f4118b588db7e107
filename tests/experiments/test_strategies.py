"""Strategies on real processes: gradients are those of one process, and the bytes that the system saw are those that are foretold."""

import json

import pytest
import torch

from flopkit.experiments import experiment
from flopkit.experiments.expectations import Confirmation
from flopkit.parallel import all_gather, all_reduce, reduce_scatter, send
from flopkit.recordings import Case, records as recorded

SIZES = {"layers": 2, "width": 128, "tokens": 128, "ranks": 2}
on_a_cpu = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="torch 2.6 has no fully_shard on a CPU"
)


@pytest.fixture(scope="module")
def records(toy):
    return {each["params"]["strategy"]: each for each in toy("strategies")[1]}


def foretold(layers, width, tokens, ranks):
    """Bytes of a step on both ranks together, by closed form: what a ring sends, and what gloo's reduce-scatter sends more."""
    layer = 4 * (8 * width * width + 2 * width)
    x = 4 * tokens * ranks * width
    gather, scatter, reduce = (
        make(bytes=1, ranks=ranks).sent * 1.0 for make in (all_gather, reduce_scatter, all_reduce)
    )
    share = {
        "data": (reduce * layers * layer, 0),
        "fully_sharded": (2 * gather * layers * layer, scatter * layers * layer),
        "fully_sharded_kept": (gather * layers * layer, scatter * layers * layer),
        # of the first layer's input no gradient is asked, but of its norm's output
        "tensor": (2 * layers * reduce * x, 0),
        "sequence": (2 * layers * gather * x, 2 * layers * scatter * x),
        "pipeline": (
            send(bytes=x).sent,
            0,
        ),  # two micro-batches of half of it, from the first rank on, from the last back
    }
    return {name: ranks * (plain + more) for name, (plain, more) in share.items()}, {
        name: ranks * (plain + 2 * more) for name, (plain, more) in share.items()
    }


@on_a_cpu
def test_six_strategies_have_the_gradients_of_one_process(records):
    assert [*records] == ["data", "fully_sharded", "fully_sharded_kept", "tensor", "sequence", "pipeline"]
    for each in records.values():
        assert each["verdict"] in ("ok", "disturbed") and each["error"] < 1e-5
    assert json.loads(json.dumps(records, allow_nan=False)) == records


@on_a_cpu
def test_what_was_seen_is_what_was_foretold(records):
    ring, gloo = foretold(**SIZES)
    for name, each in records.items():
        found = each["extra"]
        assert (found["of_a_ring"], found["foretold"]) == (ring[name], gloo[name]), name
        if "written" not in found:
            pytest.skip("this system does not say what a process writes")
        assert found["foretold"] <= found["written"] <= 1.02 * found["foretold"], name


@on_a_cpu
def test_the_prediction_of_the_bytes_can_hold_and_can_fail(records):
    if "written" not in records["data"]["extra"]:
        pytest.skip("this system does not say what a process writes")
    cases = [Case(each, "ours", "", "two processes") for each in records.values()]
    bytes, seconds = experiment("strategies").findings("cpu", cases)
    assert bytes.confirmation == Confirmation.HELD and len(bytes.values) == 6
    assert [each["params"]["strategy"] for each in seconds.cases] == ["fully_sharded", "data"]
    more = {**records["pipeline"]["extra"], "written": 1.03 * records["pipeline"]["extra"]["foretold"]}
    cases[-1] = Case({**records["pipeline"], "extra": more}, "ours", "", "two processes")
    assert experiment("strategies").findings("cpu", cases)[0].confirmation == Confirmation.FAILED


def test_the_recording_that_comes_with_flopkit_has_the_bytes_of_the_closed_form():
    """From the file, within 2 %: what the system saw the processes write in a step."""
    cases = {each["params"]["strategy"]: each for each in recorded("strategies", owner="ours", refused=True)}
    assert [*cases] == [*foretold(**SIZES)[0]]
    for name, each in cases.items():
        ring, gloo = foretold(**{size: each["params"][size] for size in SIZES})
        assert (each["extra"]["of_a_ring"], each["extra"]["foretold"]) == (ring[name], gloo[name]), name
        assert gloo[name] <= each["extra"]["written"] <= 1.02 * gloo[name], name
