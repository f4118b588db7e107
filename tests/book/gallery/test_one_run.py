"""The preface's figure: FLOPs of a token of Llama-3-8B added up by hand."""

import pytest

import flopkit as fk
from flopkit.book.gallery import one_run
from flopkit.book.gallery.one_run import RECIPES

FIGURE = one_run()
LAYER = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 4096 * 14336 * 3  # query and output, key and value, the three of the MLP
TABLE = 128256 * 4096
NORMS = 65 * 4096  # two in each of the 32 layers, and the last
SEQ = 8192


def test_every_recipe_by_hand():
    products = 2 * (32 * LAYER + TABLE)
    pair = 32 * 32 * 2 * 2 * 128  # layers, heads, score and value, two for each multiply-add
    visible, every = pair * (SEQ + 1) / 2, pair * SEQ
    six_n = 6 * (32 * LAYER + 2 * TABLE + NORMS)  # all parameters, as the PaLM paper counts
    want = [
        3 * (products + visible),
        3 * (products + every / 2),
        3 * (products + every),
        six_n,
        six_n + 3 * every,
        3 * (products + visible) / 2,
        3 * (products + visible),
    ]
    rows = FIGURE.rows(seq=SEQ, tokens_per_s=10000)
    assert [row["recipe"] for row in rows] == list(RECIPES)
    for row, flops in zip(rows, want, strict=True):
        assert row["per_token"] == pytest.approx(flops, rel=1e-12), row["recipe"]
        peak = 1978.8e12 if "sparse" in row["recipe"] else 989.4e12
        assert row["called"] == pytest.approx(flops * 10000 / peak, rel=1e-12)


def test_the_run_is_one_that_was_measured():
    """torchtitan's table of December 2024: Llama-3.1-8B on eight H100s in bf16, compiled; its board is not the SXM that we divide by."""
    [row] = [
        row for row in fk.recordings.find(dataset="torchtitan", workload="llama-3.1-8b").rows
        if row["table"] == "fsdp-8" and row["precision"] == "bf16" and "compile" in row["setting"]
    ]  # fmt: skip
    start = FIGURE.settings()
    assert (start["tokens_per_s"], start["seq"], row["count"]) == (row["value"], row["seq"], 8)
    for said in ("6,667 tokens/s", "torchtitan's authors", "December 2024", "eight H100s", "500 W"):
        assert said in FIGURE.caption, said
    assert "500 W" in row["device"]
    now, old = (fk.load(name).train_step(seq=SEQ).flops_per_token for name in ("llama-3.1-8b", "llama-3-8b"))
    assert FIGURE.at()["visible"] == pytest.approx(now) and now == old
    assert {f"{bar['called']:.0%}" for bar in FIGURE.rows()} == {"17%", "32%", "35%", "39%", "41%"}


def test_six_n_charges_a_look_up_where_the_two_tables_are_apart():
    """Llama-3-8B has an input table and a head; of a model that ties them, as PaLM does, 6N counts the head alone."""
    found = FIGURE.at(seq=SEQ)
    products = found["every"] - found["scores_every"]
    assert products == 3 * 2 * (32 * LAYER + TABLE)
    assert found["six_n"] - products == 6 * (TABLE + NORMS)


@pytest.mark.parametrize(
    ("settings", "recipe"),
    [
        ({}, 0),
        ({"scores": "half of the scores"}, 1),
        ({"scores": "all scores"}, 2),
        ({"scores": "6N, no scores"}, 3),
        ({"scores": "6N and all scores (PaLM)"}, 4),
        ({"multiply_add": "one"}, 5),
        ({"peak": "sparse bf16 peak"}, 6),
    ],
)
def test_the_reader_s_recipe_lands_on_a_bar(settings, recipe):
    assert FIGURE.at(**settings)["utilisation"] == pytest.approx(FIGURE.rows()[recipe]["called"])


def test_a_rate_above_the_chip_s_limit_is_called_impossible():
    """The limit is 132 · 4,096 · 1,980 MHz = 1.0705e15 FLOP/s; a token of 51.47 GFLOPs reaches it at 20,799 a second, and the peak at 19,222."""
    assert FIGURE.at(tokens_per_s=19000)["possible"] == "below the peak"
    assert FIGURE.at(tokens_per_s=20000)["possible"] == "above the peak"
    assert FIGURE.at(tokens_per_s=20000, seq=16384)["possible"] == "no"
    assert "1.071 PFLOP/s" in FIGURE.caption


@pytest.mark.parametrize("scores", FIGURE.controls["scores"].options)
def test_what_an_h100_can_do_does_not_depend_on_the_recipe(scores):
    found = FIGURE.at(scores=scores, multiply_add="one", tokens_per_s=20000)
    assert found["possible"] == "above the peak"
    assert found["needed"] == pytest.approx(FIGURE.at()["visible"] * 20000)
