"""All-reduce over a wire of a chosen speed: no call is faster than the wire lets it be, the card sends what a ring needs, and where the
system refuses such a wire, a sentence says why."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from flopkit.experiments import Bench, all_reduce, cards, experiment, wire
from flopkit.experiments.expectations import Confirmation
from flopkit.recordings import Case, records

SIZES, SPEEDS = (2**14, 2**17), (100, 400)


@pytest.fixture(scope="module")
def measured(toy):
    """Skipped, with the reason, where the system refuses."""
    return {(each["params"]["megabits"], each["params"]["numbers"]): each for each in toy("wire")[1]}


def test_each_speed_and_size(measured):
    assert [*measured] == [(speed, numbers) for speed in SPEEDS for numbers in SIZES]
    for each in measured.values():
        assert each["verdict"] in ("ok", "disturbed") and each["error"] < 1e-6


def test_the_card_sends_what_a_ring_needs_and_headers(measured):
    """Of two ranks each sends 2(n − 1)/n = 1 times its tensor. Packets of 9,000 bytes have headers of 66, and the other's are acknowledged."""
    for (_, numbers), each in measured.items():
        assert each["extra"]["wire_bytes"] == 4 * numbers
        assert 1 < each["extra"]["card_bytes"] / each["extra"]["wire_bytes"] < 1.04


def test_no_call_is_faster_than_the_wire(measured):
    """All bytes but those of the full bucket go at the wire's speed. Without the limit a call takes about a millisecond."""
    for (speed, _), each in measured.items():
        least = 8 * (each["extra"]["wire_bytes"] - each["extra"]["burst"]) / (1e6 * speed)
        assert each["seconds"]["fastest"] > 0.98 * least


def test_the_wire_is_what_a_large_tensor_waits_for(measured):
    """At 100 Mbit/s 524 kB need 42 ms; at 400 Mbit/s a quarter. What else runs on the machine delays even the faster of two calls."""
    slow, fast = (measured[speed, SIZES[-1]]["seconds"]["fastest"] for speed in SPEEDS)
    assert slow < 1.5 * 8 * 4 * SIZES[-1] / 100e6 and fast < 0.75 * slow


def test_a_user_without_rights_has_a_wire_in_a_namespace_of_their_own(monkeypatch):
    monkeypatch.setattr(cards.os, "geteuid", lambda: 1000)
    if why := cards.refused.__wrapped__():
        pytest.skip(why)
    case = {"what": "wire", "megabits": 200, "numbers": 2**16, "backend": "gloo", "ranks": 2}
    assert cards.command("{}")[:4] == ["unshare", "--user", "--map-root-user", "--net"]
    with contextlib.closing(all_reduce._measured([case], "fp32", 0.051234)) as found:
        assert next(found)["seconds"]["fastest"] > 0.9 * (8 * 4 * 2**16 - 8 * cards.burst(200)) / 200e6
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(b"0.051234" in each for each in running), "a rank was left"


@pytest.mark.parametrize(
    ("platform", "path", "said", "why"),
    [
        ("darwin", cards.PATHS, "", "needs Linux's network namespaces, and this is darwin"),
        ("linux", "/nowhere", "", "needs unshare, nsenter, ip, tc, which this machine lacks: install util-linux and iproute2"),
        ("linux", cards.PATHS, "unshare failed: Operation not permitted\n", r"\(unshare failed: Operation not permitted\): run as root"),
        ("linux", cards.PATHS, "", r"\(exit status 1\): run as root"),
    ],
)  # fmt: skip
def test_where_it_is_refused_a_sentence_says_why_and_nothing_is_measured(monkeypatch, platform, path, said, why):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(cards, "PATHS", path)
    monkeypatch.setattr(cards.shutil, "which", lambda name, path: None if path == "/nowhere" else f"{path}/{name}")
    monkeypatch.setattr(cards, "_run", lambda asked: subprocess.CompletedProcess(asked, 1, "", said))
    monkeypatch.setattr(cards, "refused", cards.refused.__wrapped__)
    monkeypatch.setattr(all_reduce.subprocess, "Popen", lambda *args, **how: pytest.fail("it began"))
    sentence = cards.refused()
    assert sentence.endswith(".") and "\n" not in sentence and sentence.count(". ") == 0
    with pytest.raises(OSError, match=why):
        list(wire.run(Bench("cpu", "toy")))


def made(speed, numbers, seconds, verdict="ok", card=1.01):
    took = {"mean": seconds, "low": 0.999 * seconds, "high": 1.001 * seconds}
    params = {"what": "wire", "megabits": speed, "numbers": numbers, "backend": "gloo", "ranks": 2}
    extra = {"wire_bytes": 4.0 * numbers, "card_bytes": card * 4 * numbers, "burst": cards.burst(speed)}
    record = {"params": params, "dtype": "fp32", "verdict": verdict, "steady": True, "notes": [], "case": ""}
    return Case({**record, "seconds": took, "extra": extra}, "ours", "", "two processes")


def a_millisecond_and(more, **how):
    """Cases that take a latency of a millisecond, and for each byte *more* times the wire's time."""
    return [
        made(speed, n, 1e-3 + more[speed] * 8 * 4 * n / (1e6 * speed), **how)
        for speed in (100, 1000, 10000)
        for n in (2**12, 2**18, 2**20)
    ]


def test_the_prediction_can_hold_and_can_fail():
    as_said = {100: 1.0, 1000: 1.1, 10000: 2.5}
    held = experiment("wire").findings("cpu", a_millisecond_and(as_said))
    assert [part.confirmation for part in held] == [Confirmation.HELD] * 5
    assert [len(part.values) for part in held] == [6, 1, 1, 1, 1]
    assert [part.values[0].mean for part in held[1:4]] == pytest.approx([1.0, 1.1, 2.5])
    assert [len(part.cases) for part in held] == [0, 2, 2, 2, 2]
    for place, more in enumerate(({100: 1.05}, {1000: 1.3}, {10000: 1.5}, {1000: 20}), 1):
        found = experiment("wire").findings("cpu", a_millisecond_and({**as_said, **more}))
        assert found[place].confirmation == Confirmation.FAILED
    assert (
        experiment("wire").findings("cpu", a_millisecond_and(as_said, card=1.03))[0].confirmation == Confirmation.FAILED
    )


def test_a_table_by_speed():
    """4 MB at 100 Mbit/s: 336 ms by the wire, and a millisecond of latency."""
    row, *others = wire.by_speed(a_millisecond_and({100: 1.0, 1000: 1.1, 10000: 2.5}))
    assert len(others) == 2 and (row["whose"], row["wire"]) == ("ours", 100)
    assert row["smallest"] == pytest.approx(1e-3 + 8 * 4 * 2**12 / 100e6)
    assert row["largest"] == pytest.approx(1e-3 + 0.33554432)
    assert row["by the wire"] == pytest.approx(0.33554432 / 0.33654432)
    assert row["further byte"] == pytest.approx(1.0)


def test_a_table_shows_nothing_that_was_refused_and_nothing_of_one_size():
    small, large = made(100, 2**18, 0.1, verdict="disturbed"), made(100, 2**20, 0.4)
    [row] = wire.by_speed([large, small])
    assert row["smallest"] is row["further byte"] is None and row["largest"] == 0.4
    [row] = wire.by_speed([made(100, 2**18, 0.1), made(100, 2**20, 0.4, verdict="disturbed")])
    assert row["largest"] is row["by the wire"] is row["further byte"] is None
    [row] = wire.by_speed([large])
    assert row["further byte"] is None and wire.by_speed([]).rows == []
    str(wire.by_speed([small]))


def test_the_recording_that_comes_with_flopkit():
    """By hand, from the file: bytes by the card beside those of the ring, 2(n − 1)/n of the tensor, and no case faster than its wire."""
    cases = records("wire", owner="ours", refused=True)
    assert len(cases) == 9
    for case in cases:
        of, extra = case["params"], case["extra"]
        assert extra["wire_bytes"] == 2 * (of["ranks"] - 1) / of["ranks"] * 4 * of["numbers"]
        assert case["seconds"]["mean"] > 8 * extra["wire_bytes"] / (1e6 * of["megabits"])
        if of["megabits"] <= 1000 and of["numbers"] >= 2**18:  # the wire takes most of the time
            assert case["seconds"]["mean"] < 1.2 * 8 * extra["wire_bytes"] / (1e6 * of["megabits"])
        if of["numbers"] >= 2**18:
            assert extra["wire_bytes"] < extra["card_bytes"] < 1.02 * extra["wire_bytes"]
