"""What a model shows of itself: rows that add up, formulas that give the FLOPs beside them, and a line that says what it is."""

import numpy
import pytest
import sympy

import flopkit as fk
from flopkit.models import Experts, transformer

SEQ, BATCH = 300, 2
CAUSAL = BATCH * SEQ * (SEQ + 1) // 2
TEXT = [
    "llama-3-8b",
    "gpt2",
    "mixtral-8x7b",
    "deepseek-v3",
    "palm-540b",
    "gopher-280b",
    "bert-base",
    "t5-base",
    "gpt-oss-20b",
]


def window(w):
    return BATCH * (w * (w + 1) // 2 + (SEQ - w) * w)


def table(name):
    model = fk.load(name)
    return model, model.table(batch=BATCH) if model.patches else model.table(seq=SEQ, batch=BATCH)


@pytest.mark.parametrize("name", [*TEXT, "vit-b-16"])
def test_the_rows_add_up_to_the_forward_pass(name):
    model, rows = table(name)
    whole = model.forward(batch=BATCH) if model.patches else model.forward(seq=SEQ, batch=BATCH)
    *parts, last = rows
    assert last["part"] == "total" and last["share"] == 1
    for column in ("FLOPs", "params", "bytes"):
        assert last[column] == getattr(whole, column.lower())
        assert sum(row[column] for row in parts if row["level"] == 0) == last[column]
    assert sum(row["share"] for row in parts if row["level"] == 0) == pytest.approx(1)


@pytest.mark.parametrize("name", [*TEXT, "deepseek-v3 with mtp"])
def test_what_is_inside_adds_up_to_the_row_above(name):
    model = fk.load(name.removesuffix(" with mtp"), mtp=name.endswith("mtp"))
    rows = list(model.table(seq=SEQ, batch=BATCH))
    heads = [place for place, row in enumerate(rows[:-1]) if rows[place + 1]["level"] > row["level"]]
    assert heads
    for place in heads:
        inside = []
        for row in rows[place + 1 :]:
            if row["level"] <= rows[place]["level"]:
                break
            inside.append(row)
        for column in ("FLOPs", "params", "bytes"):
            assert sum(row[column] for row in inside) == rows[place][column], rows[place]["part"]
        assert {row["times"] for row in inside} == {rows[place]["times"]}


@pytest.mark.parametrize("name", [*TEXT, "vit-b-16"])
def test_each_formula_gives_the_flops_beside_it(name):
    """Times how many equal parts there are; a window leaves fewer pairs."""
    model, rows = table(name)
    seq = model.patches.tokens if model.patches else SEQ
    for row in rows:
        text = row["formula"].replace("·", "*")
        if not text:
            assert row["FLOPs"] == 0 or row["part"] == "total" or "layers" in row["part"], row
            continue
        values = {"tokens": BATCH * seq, "batch": BATCH, "q": seq, "kv": seq}
        found = {row["times"] * eval(text, values | {"pairs": pairs}) for pairs in (CAUSAL, window(128))}
        assert row["FLOPs"] in found, row


def test_how_many_layers_of_each_kind():
    rows = {row["part"]: row["times"] for row in fk.load("deepseek-v3", mtp=True).table(seq=8)}
    assert rows["layers, kind 1"] == 3 and rows["layers, kind 2"] == 58 and rows["mtp"] == 1
    assert rows["  experts"] == 1, "the last of that name stands in the layer for multi-token prediction"


def test_the_columns_and_the_caption():
    rows = fk.load("llama-3-8b").table(seq=8192)
    assert rows.columns == ["part", "times", "formula", "FLOPs", "share", "params", "bytes"]
    assert rows.caption == "llama-3-8b, forward, 1 × 8,192 tokens, convention EXACT"
    assert "  q_proj             32  2·tokens·4096·4096    8.796 TFLOPs  6.26 %    536,870,912  5.369 GB" in str(rows)
    assert "<td" in rows._repr_html_()


def test_a_sweep_and_a_symbol_have_a_table():
    model = fk.load("llama-3-8b")
    lengths = numpy.array([1024, 2048])
    assert model.table(seq=lengths)[-1]["FLOPs"].tolist() == [model.forward(seq=s).flops for s in (1024, 2048)]
    n = sympy.Symbol("n", positive=True, integer=True)
    assert model.table(seq=n)[-1]["FLOPs"].subs(n, 1024) == model.forward(seq=1024).flops
    assert "n" in str(model.table(seq=n))


def test_a_length_is_needed():
    with pytest.raises(TypeError, match="llama-3-8b: seq= is missing"):
        fk.load("llama-3-8b").table()


SMALL = dict(name="small", d_model=64, vocab=100, layers=2, heads=4)


@pytest.mark.parametrize(
    "model, line",
    [
        (transformer(**SMALL, kv_heads=2, d_ff=96),
         "small: 74,560 parameters, layers 2, width 64, heads 4, 2 for keys and values, vocabulary 100"),
        (transformer(**SMALL, experts=Experts(experts=4, top_k=1, d_ff=32), source="here"),
         "small: 95,552 parameters, 58,688 of them active, layers 2, width 64, heads 4, vocabulary 100 [here]"),
    ],
)  # fmt: skip
def test_a_line_says_what_it_is(model, line):
    assert repr(model) == line and str(model) == "small"


def test_the_rows_of_a_notebook():
    shown = fk.load("t5-base")._repr_html_()
    for text in ("t5-base", "222,903,552", "12 and 12 of the encoder", "768", "32,128", "t5x"):
        assert text in shown
    assert "classes" in fk.load("vit-b-16")._repr_html_()
    assert "8 for keys and values" in fk.load("llama-3-8b")._repr_html_()
