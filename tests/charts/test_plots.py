"""Pictures of results: their rows are the result's own numbers, and they draw where nothing can be fetched."""

import json
import re

import numpy
import pytest
import torch
from torch import nn

import flopkit as fk
from flopkit.charts import Figure, html, theme
from flopkit.charts.plots import MOST
from flopkit.cost import Cost

MODEL = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Sequential(nn.Linear(32, 32), nn.ReLU()), nn.Linear(32, 4))


def step():
    MODEL(torch.ones(4, 8)).sum().backward()


REPORT = fk.count(step)
LAYER = fk.load("llama-3-8b").layer(seq=8192)


def test_a_cost_by_part():
    figure = LAYER.plot()
    rows = {row["part"]: row for row in figure.rows()}
    assert sum(row["flops"] for row in rows.values()) == LAYER.flops
    assert sum(row["bytes"] for row in rows.values()) == LAYER.bytes
    assert sum(row["bytes_share"] for row in rows.values()) == pytest.approx(1)
    by_name = {part.name: part for part in LAYER.parts}
    assert list(rows) == list(by_name)  # in their order
    assert rows["gate_proj"]["flops"] == by_name["gate_proj"].flops
    assert "gate_proj 23.3 % and 12 %" in figure.alt and "EXACT" in figure.caption
    assert "FLOPs" in figure.svg() and "962.1 GFLOPs" in figure.svg()


def test_parts_of_one_name_are_one_bar():
    up = fk.dense(tokens=3, d_in=2, d_out=4).named("up")
    [row] = Cost.total("two", [up, up]).plot().rows()
    assert (row["part"], row["flops"], row["bytes"]) == ("up", 2 * up.flops, 2 * up.bytes)


def test_a_cost_without_parts_is_one_bar():
    [row] = fk.dense(tokens=1, d_in=2, d_out=3).plot().rows()
    assert (row["part"], row["flops_share"], row["flops"]) == ("dense", 1, 12)
    [row] = fk.activation("relu", elements=3).plot().rows()
    assert (row["flops_share"], row["bytes_share"]) == (0, 1)
    assert fk.activation("relu", elements=3).plot().svg()


def test_many_parts_are_a_few_and_the_others():
    network = fk.models.cnn("resnet50")
    rows = network.plot().rows()
    assert len(rows) == MOST and rows[-1]["part"] == f"{len(network.parts) - MOST + 1} others"
    assert sum(row["flops"] for row in rows) == network.flops and sum(row["bytes"] for row in rows) == network.bytes
    least = min(row["flops"] for row in rows[:-1])
    names = {row["part"] for row in rows}
    assert all(part.flops <= least for part in network.parts if part.name not in names)


@pytest.mark.parametrize("tokens", [numpy.array([1, 2]), "altair", "sympy"])
def test_a_sweep_or_a_symbol_is_no_picture(tokens):
    import altair
    import sympy

    tokens = {"altair": altair.param(name="t", value=1), "sympy": sympy.Symbol("t")}.get(str(tokens), tokens)
    with pytest.raises(TypeError, match="dense has flops=.*make the cost of plain sizes"):
        fk.dense(tokens=tokens, d_in=2, d_out=3).plot()


def test_a_report_by_module():
    figure = REPORT.plot()
    rows = {row["module"]: row for row in figure.rows()}
    wanted = {row["module"] or "(the model)": row for row in REPORT.by_module()}
    assert rows.keys() == wanted.keys()
    for name, row in rows.items():
        assert (row["flops"], row["backward"], row["bytes"]) == tuple(
            wanted[name][k] for k in ("flops", "backward", "bytes")
        )
    assert "optimizer" not in rows["2"] and "TORCH" in figure.caption
    assert figure.svg().count("backward")
    assert {row["module"].count(".") for row in REPORT.plot(depth=1).rows()} == {0}


def test_a_report_is_drawn_as_deep_as_fits():
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(12)))
    rows = fk.count(blocks, torch.ones(1, 4)).plot().rows()
    assert [row["module"] for row in rows] == ["(the model)", *map(str, range(12))]
    flat = nn.Sequential(*(nn.Linear(4, 4) for _ in range(30)))
    figure = fk.count(flat, torch.ones(1, 4)).plot()
    assert len(figure.rows()) == MOST and "Not drawn: 11 modules with less." in figure.caption
    with fk.counting() as nothing:
        pass
    with pytest.raises(ValueError, match="nothing was counted"):
        nothing.plot()


@pytest.mark.parametrize("result", [LAYER, REPORT], ids=["cost", "report"])
def test_it_shows_itself_without_a_network(result):
    figure = result.plot()
    assert isinstance(figure, Figure)
    page = html.fragment(figure)
    assert f'aria-label="{html.escape(figure.alt)}"' in page and "fk-panel" not in page and "<table>" in page
    shown = figure._repr_mimebundle_()
    assert 'class="fk-vega"' in shown["text/html"] and not re.search(r'(src|href)="http', shown["text/html"])
    assert shown["text/plain"] == figure.title


def test_the_expressions_of_the_page_give_the_same_numbers():
    figure = LAYER.plot()
    flow = figure.signals().flow()
    for value, row in zip(flow["values"], figure.rows(), strict=True):
        for name, expression in flow["columns"].items():
            assert (
                eval(expression, {"datum": value, "indexof": list.index}) == row[name]
            )  # a look-up is written alike in both languages


@pytest.mark.parametrize(
    "result, longest",
    [(LAYER, max(part.flops for part in LAYER.parts) / LAYER.flops), (REPORT, REPORT.flops)],
    ids=["cost", "report"],
)
def test_the_words_behind_the_longest_bar_have_room(result, longest):
    spec = result.plot().spec()
    scales = re.findall(r'"scale": {"domain": \[([\d.]+), ([\d.]+)\], "nice": false}', json.dumps(spec))
    assert {float(low) for low, _ in scales} == {0}
    assert [float(high) / longest for _, high in scales] == pytest.approx([1.2] * len(scales)) and scales


def test_each_row_has_its_height():
    few, many = (nn.Sequential(*(nn.Linear(4, 4) for _ in range(n))) for n in (2, 12))
    low, high = (fk.count(model, torch.ones(1, 4)).plot().height for model in (few, many))
    assert high - low == 10 * 24 and low > 3 * 24


def test_those_that_are_told_are_the_largest():
    figure = fk.count(
        nn.Sequential(*(nn.Linear(4, n) for n in (1,)), *(nn.Linear(1, 1) for _ in range(9))), torch.ones(1, 4)
    ).plot()
    told = re.search(r"Of all FLOPs: (.*)\.$", figure.alt)[1].split(", ")
    assert len(told) == 3 and told[0].startswith("0 ")
    assert len(re.findall(r" and ", LAYER.plot().alt.partition("bytes: ")[2])) == 3


def test_one_module_is_left_out():
    figure = fk.count(nn.Sequential(*(nn.Linear(4, 4) for _ in range(MOST))), torch.ones(1, 4)).plot()
    assert "Not drawn: 1 module with less." in figure.caption


@pytest.mark.parametrize("result", [LAYER, REPORT], ids=["cost", "report"])
def test_words_keep_the_grid_off(result):
    bars, halo, words = (layer["mark"] for layer in result.plot().spec()["layer"])
    assert bars["type"] == "bar" and words.items() < halo.items() and halo["strokeWidth"] == theme.HALO
