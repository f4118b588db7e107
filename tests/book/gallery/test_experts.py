"""The model behind the figure of unequal loads: against sums over experts, and times by hand."""

import math
import random

import pytest

import flopkit as fk
from flopkit.book.gallery import expert_loads

FIGURE = expert_loads()
SIZES = {"DeepSeek-V3": (7168, 2048), "Mixtral-8x7B": (4096, 14336), "Qwen3-30B-A3B": (2048, 768)}
CAPACITY = {"no limit": None, "1.0": 1, "1.25": 1.25, "1.5": 1.5, "2.0": 2}


def states():
    rng = random.Random("experts")
    yield from FIGURE.presets.values()
    for _ in range(60):
        yield {name: rng.choice(control.options) for name, control in FIGURE.controls.items()}


@pytest.mark.parametrize("state", list(states()))
def test_loads_and_work(state):
    s = {**FIGURE.settings(), **state}
    d, d_ff = SIZES[s["sizes"]]
    experts, tokens, capacity = s["experts"], s["tokens"], CAPACITY[s["capacity"]]
    top_k, ranks = min(s["top_k"], experts), min(s["ranks"], experts)
    skew = max(1, min(s["skew"], experts / top_k))
    load = fk.expert_load(tokens=tokens, experts=experts, top_k=top_k, skew=skew, ranks=ranks, capacity=capacity)
    found = FIGURE.at(**s)
    for name in ("slowdown", "dropped", "empty", "rank_imbalance"):
        assert math.isclose(found[name], getattr(load, name), abs_tol=1e-12), name
    dtype = s["device"].rpartition(", ")[2]
    layer = {"tokens": tokens, "d_model": d, "d_ff": d_ff, "experts": experts, "top_k": top_k, "dtype": dtype}
    assert math.isclose(found["useful"], fk.moe(**layer).flops)
    assert math.isclose(found["flops"], fk.moe(**layer, capacity=capacity).flops)
    assert math.isclose(found["bytes"], fk.moe(**layer, capacity=capacity).bytes)
    # The busiest device by hand: three products for each of its rows, its weights, its inputs and outputs.
    names = {"H100": "h100-sxm", "H200": "h200", "B200": "b200", "A100": "a100-sxm-80gb"}
    gpu = fk.device(names[s["device"][:4]])
    rows = load.slowdown * tokens * top_k / ranks
    held = experts / ranks if capacity else min(experts / ranks, rows)
    number = {"bf16": 2, "fp8": 1}[dtype]
    computing = rows * 6 * d * d_ff / gpu.peak(dtype)
    moving = number * (held * 3 * d * d_ff + 2 * rows * d) / gpu.bandwidth
    assert math.isclose(found["seconds"], max(computing, moving))
    assert found["bound"] == ("compute" if computing >= moving else "memory")
    useful = (1 - load.dropped) * tokens * top_k * 6 * d * d_ff
    assert math.isclose(found["busy"], useful / (ranks * gpu.peak(dtype) * found["seconds"]))


@pytest.mark.parametrize("state", list(states()))
def test_bars_hold_all_tokens(state):
    """The mean of the bars is the average expert, the first is the busiest, and the line has its devices' means."""
    rows, found = FIGURE.rows(**state), FIGURE.at(**state)
    s = {**FIGURE.settings(), **state}
    assert math.isclose(sum(row["load"] for row in rows) / 64, 1, rel_tol=1e-9)
    if s["capacity"] == "no limit":
        assert math.isclose(sum(row["on_device"] for row in rows) / 64, 1, rel_tol=1e-9)
        assert math.isclose(rows[0]["on_device"], found["rank_imbalance"])
    else:
        assert {row["on_device"] for row in rows} == {found["limit"]}, "each device computes each expert to its limit"
    assert math.isclose(rows[0]["on_device"], found["slowdown"]), "the line begins at the busiest device's rows"
    if s["experts"] <= 64:
        assert math.isclose(rows[0]["load"], found["skewed"])
    for row in rows:
        assert math.isclose(row["kept"] + row["over"], row["load"])
        assert row["over"] * row["vacant"] == 0
        if s["capacity"] != "no limit":
            assert math.isclose(row["kept"] + row["vacant"], found["limit"])


def test_what_the_chapter_reads_off():
    skewed = FIGURE.at(**FIGURE.presets["DeepSeek-V3, busiest 4×"])
    assert round(skewed["slowdown"], 3) == 1.682 and skewed["bound"] == "compute"
    assert FIGURE.at(**FIGURE.presets["Decoding, 128 sequences"])["bound"] == "memory"


def test_the_figure_shows_what_there_is():
    """Six read-outs are two rows on a phone; the legend and the table name no dropped and empty rows where there are none."""
    assert len(FIGURE.readouts) <= 6
    for name, settings in FIGURE.presets.items():
        capped = settings["capacity"] != "no limit"
        drawn = FIGURE.svg(**settings)
        assert "tokens computed" in drawn and "mean expert of each device" in drawn
        assert ("tokens dropped" in drawn, "empty rows computed" in drawn) == (capped, capped), name
        rows = FIGURE.rows(**settings)
        assert all(any(row[shown.name] for row in rows) for shown in FIGURE.table), name
