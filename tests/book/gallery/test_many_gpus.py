"""The figures of chapter 17: an all-reduce against the room of collectives and printed points, the exchange of gradients by hand."""

import random
import re

import pytest
from chapters import notebooks

from flopkit import parallel
from flopkit.book.gallery import all_reduce_time, gradient_exchange
from flopkit.book.gallery.all_reduces import ALGORITHMS, RUNS
from flopkit.published import nccl_tests

TIMES, SHARES = all_reduce_time(), gradient_exchange()


def tried(figure, count):
    rng = random.Random(figure.name)
    start = figure.settings()
    yield from ({**start, **preset} for preset in figure.presets.values())
    for _ in range(count):
        yield {name: rng.choice(control.options) for name, control in figure.controls.items()}


@pytest.mark.parametrize("state", list(tried(TIMES, 40)))
def test_times_are_those_of_a_cluster(state):
    """A ring over full nodes is `Exchange.on`; trees send 2·S and switches S, in a node the whole, between nodes a GPU's part."""
    found, n, g = TIMES.at(**state), state["ranks"], min(state["in_node"], state["ranks"])
    nodes, S = -(-n // g), state["size"]
    link, network, latency = (state[name] for name in ("link", "network", "latency"))
    if ALGORITHMS[state["algorithm"]] == "ring":
        place = parallel.cluster("dgx-h100").replace(per_node=72, link=link, network=network, link_latency=latency, network_latency=latency)  # fmt: skip
        least = parallel.all_reduce(bytes=S, ranks=nodes * g).on(place, in_node=g)
    else:
        sends = 2 if ALGORITHMS[state["algorithm"]] == "tree" else 1
        hops = sum(2 * (k - 1).bit_length() if sends == 2 else 2 for k in (g, nodes) if k > 1)
        least = max(sends * S / link if g > 1 else 0, sends * S / g / network if nodes > 1 else 0) + hops * latency
    assert found["seconds"] == pytest.approx(least, rel=1e-12)
    assert found["busbw"] == pytest.approx(2 * (n - 1) / n * S / least)
    [row] = [row for row in TIMES.rows(**state) if row["bytes"] == 2**20]
    assert row["took"] == pytest.approx(TIMES.at(**{**state, "size": 2**20})["seconds"])


def test_the_dots_are_what_people_printed():
    marks = [layer for layer in TIMES.spec()["layer"] if layer["mark"].get("type") == "point"]
    [dots] = [each["data"]["values"] for each in marks if len(each.get("data", {}).get("values", ())) > 50]
    printed = {(row.system, row.bytes): (row.seconds, row.bus / 1e9) for row in nccl_tests()}
    assert len(dots) > 80
    for dot in dots:
        assert (dot["took"], dot["bus"]) == printed[RUNS[dot["run"]], dot["bytes"]]
    assert TIMES.at(run="8 H100, one node")["reached"] == 483.05e9


def test_presets_are_bounds_of_their_runs():
    """Rings are slower in no printed row but those in which a switch may add: eight H100s above a few GB."""
    for name in ("16 A100, thin network", "64 H100"):
        state = TIMES.presets[name]
        rows = [row for row in nccl_tests() if row.system == RUNS[state["run"]] and row.bytes >= 2**10]
        for row in rows:
            assert TIMES.at(**{**state, "size": row.bytes, "latency": 0.2e-6})["seconds"] <= row.seconds


MOVED = {  # bytes per parameter: weights in the forward pass, weights and gradients in the backward pass; tokens over P/B that hide both
    "ZeRO-1 or 2, fp32": (2, 0, 4, 1),
    "ZeRO-3, bf16": (2, 2, 2, 1),
    "ZeRO-3, fp32": (2, 2, 4, 1.5),
    "DDP, bf16": (0, 2, 2, 1),
    "DDP, fp32": (0, 4, 4, 2),
}


@pytest.mark.parametrize("state", list(tried(SHARES, 25)))
def test_the_exchange_by_hand(state):
    """Weights hide only behind the forward pass, a third of the FLOPs; gradients, and weights gathered again, only behind the backward pass."""
    ahead, *behind, _ = MOVED[state["moved"]]
    link, network, peak = {"A": (300e9, 25e9, 312e12), "H": (450e9, 50e9, 989.4e12), "B": (900e9, 100e9, 2250e12)}[state["where_"][0]]  # fmt: skip
    n, g, P = state["ranks"], state["in_node"], 1e9 * int(state["params"].split()[0])
    nodes = n // g

    def seconds(bytes):
        return max((g - 1) / g * P * bytes / link, (nodes - 1) / nodes * P * bytes / g / network)

    compute = 6 * P * state["tokens"] / peak
    passes = ((seconds(ahead), compute / 3), (sum(map(seconds, behind)), 2 * compute / 3))
    exchange = sum(sent for sent, _ in passes)
    left = sum(max(0, sent - beside) for sent, beside in passes)
    found = SHARES.at(**state)
    close = {"rel": 2e-3, "abs": 1e-4}
    assert found["exchange"] == pytest.approx(exchange, rel=1e-6)
    assert found["compute"] == pytest.approx(compute, rel=1e-3)
    assert found["share"] == pytest.approx(exchange / (exchange + compute), **close)
    assert found["left"] == pytest.approx(left / (left + compute), **close)
    assert found["hidden"] == pytest.approx(max(sent / beside for sent, beside in passes) * state["tokens"], **close)
    late = [sent > beside for sent, beside in passes]
    said = {(0, 0): "nothing", (1, 0): "the forward pass", (0, 1): "the backward pass", (1, 1): "both passes"}
    assert found["late"] == said[tuple(late)] or min(abs(sent / beside - 1) for sent, beside in passes) < 2e-3
    rows = {row["each"]: row for row in SHARES.rows(**state)}
    assert rows[state["tokens"]]["after"] == pytest.approx(found["share"]) and rows[state["tokens"]]["beside"] == pytest.approx(found["left"])  # fmt: skip
    for row in rows.values():
        assert (row["beside"] == 0) == (row["each"] >= found["hidden"] * (1 - 1e-12))


def test_the_tokens_that_hide_the_exchange_are_those_of_the_chapters_table():
    """Of k nodes, (k − 1)/k times what the table of thresholds says of very many."""
    book = next(book for book in notebooks() if book.name == "17_many_gpus")
    rows = re.findall(r"^\| ([^|]+?) \| ([\d+ ]+) \| ([\d+ ]+) \| ([\d.]* ?)P/B \|$", book.prose, re.MULTILINE)
    printed = {
        name: (sum(map(int, ahead.split("+"))), sum(map(int, behind.split("+"))), float(times or 1))
        for name, ahead, behind, times in rows
    }
    assert printed == {name: (ahead, sum(behind), times) for name, (ahead, *behind, times) in MOVED.items()}
    assert set(SHARES.controls["moved"].options) == set(printed)
    for name, (*_, times) in printed.items():
        for in_node, nodes in ((1, 64), (8, 8), (2, 4096)):
            found = SHARES.at(moved=name, in_node=in_node, ranks=in_node * nodes)["hidden"]
            assert found == pytest.approx(times * (nodes - 1) / nodes * 989.4e12 / (in_node * 50e9), rel=2e-3), name


def test_the_share_has_no_model_size_in_it():
    shares = {SHARES.at(params=params)["share"] for params in SHARES.controls["params"].options}
    assert max(shares) - min(shares) < 1e-12
    assert SHARES.at(params="405 billion")["exchange"] == pytest.approx(SHARES.at(params="1 billion")["exchange"] * 405)
