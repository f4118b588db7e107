"""The figures of a whole model, against the trees of the published models and against arithmetic by hand."""

import re

import pytest

import flopkit as fk
from flopkit.book.gallery import model_parts, six_n_error
from flopkit.book.gallery.models import (
    COUNTS,
    DASHES,
    EXACT_ROW,
    KAPLAN_ROW,
    MODELS,
    PALM_ROW,
    SIX_N_ROW,
    TORCH_ROW,
    slug,
)
from flopkit.charts import theme

PARTS, ERRORS = model_parts(), six_n_error()
PRESETS = {
    "GPT-2": "gpt2", "GPT-3": "gpt-3-175b", "Llama-2-7B": "llama-2-7b", "Llama-3-8B": "llama-3-8b", "Llama-3-70B": "llama-3-70b",
    "Llama-3.1-405B": "llama-3.1-405b",
}  # fmt: skip


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_is_the_published_model(preset):
    settings = PARTS.presets[preset]
    model = fk.load(PRESETS[preset])
    step = model.train_step(seq=settings["length"])
    at = PARTS.at(**settings)
    assert at["params"] == model.params
    for name, convention in (("exact", "EXACT"), ("torch", "TORCH"), ("six_n", "SIX_N"), ("palm", "PALM")):
        assert at[name] == pytest.approx(step.under(convention).flops_per_token, rel=1e-12), convention
    kaplan = model.params - (2 - model.tied) * model.vocab * model.d_model
    assert at["kaplan"] == pytest.approx(6 * kaplan, rel=1e-12)


def test_every_preset_is_tried():
    assert set(PRESETS) == set(PARTS.presets)


def test_gpt_2_by_hand():
    """12 layers of 12·768² weights at 1,024 tokens; a visible pair of tokens meets in 2·768 multiply-adds of a layer."""
    at = PARTS.at()
    layers, head = 12 * 12 * 768**2, 50257 * 768
    assert at["projections"] == 6 * layers / 3 and at["mlp"] == 6 * layers * 2 / 3
    assert at["head"] == 6 * head
    assert at["visible"] == 6 * 12 * 2 * 768 * 1025 / 2
    assert at["every"] == 6 * 12 * 2 * 768 * 1024
    assert at["lookup"] == 0  # tied: the table is in N once, and it is the head's
    vectors = 12 * (9 * 768 + 4 * 768) + 2 * 768 + 1024 * 768
    assert at["vectors"] == pytest.approx(6 * vectors)
    assert PARTS.at(tied="not tied")["lookup"] == 6 * head


@pytest.mark.parametrize("preset", PRESETS)
def test_the_segments_of_a_bar_add_up(preset):
    rows = {row["count"]: row for row in PARTS.rows(**PARTS.presets[preset])}
    assert tuple(rows) == COUNTS
    for row in rows.values():
        assert sum(value for name, value in row.items() if name.startswith("of_")) == pytest.approx(row["against"])
    assert rows[EXACT_ROW]["against"] == pytest.approx(1)
    assert rows[KAPLAN_ROW]["against"] < rows[SIX_N_ROW]["against"] < rows[PALM_ROW]["against"]
    assert rows[TORCH_ROW]["of_scores"] == rows[PALM_ROW]["of_scores"] > rows[EXACT_ROW]["of_scores"]


def test_six_n_of_each_model():
    at = ERRORS.at(length=1024)
    for title, name in MODELS.items():
        step = fk.load(name).train_step(seq=1024)
        exact = step.under("SIX_N").flops_per_token / step.flops_per_token - 1
        assert at[slug(title)] == pytest.approx(exact, abs=1e-12), title
    every = ERRORS.at(length=1024, pairs="every score (TORCH)")
    assert every["of_gpt_2"] == pytest.approx(-0.1262, abs=5e-5)


def test_a_window_bends_a_line():
    """Of 62 layers of Gemma-3-27B, 52 see at most 1,024 tokens: 32 heads of 128, so a pair costs 6·2·4,096 FLOPs in training."""
    model, length = fk.load("gemma-3-27b"), 131072
    pairs = 10 * length * (length + 1) / 2 + 52 * (1024 * 1025 / 2 + (length - 1024) * 1024)
    weights = model.params - sum(model.forward(seq=1).params_by_role[role] for role in ("norm",))
    exact = 6 * weights + 6 * 2 * 4096 * pairs / length
    assert ERRORS.at(length=length)["of_gemma_3_27b"] == pytest.approx(6 * model.params / exact - 1, rel=1e-6)


def test_what_n_is():
    without, kaplan = list(ERRORS.controls["counted"].options)[1:]
    step = fk.load("llama-3-8b").train_step(seq=1024)
    assert ERRORS.at(counted=without)["of_llama_3_8b"] == pytest.approx(
        6 * (fk.load("llama-3-8b").params - 128256 * 4096) / step.flops_per_token - 1
    )
    gpt = fk.load("gpt2")
    n = gpt.params - 1024 * 768
    assert ERRORS.at(counted=without)["of_gpt_2"] == pytest.approx(
        6 * n / gpt.train_step(seq=1024).flops_per_token - 1
    ), "a tied table is the head's: it stays"
    assert ERRORS.at(counted=kaplan)["of_gpt_2"] == pytest.approx(
        6 * (n - 50257 * 768) / gpt.train_step(seq=1024).flops_per_token - 1
    )


def test_longer_sequences_always_lower_the_line():
    for title in MODELS:
        values = [row[slug(title)] for row in ERRORS.rows()]
        assert values == sorted(values, reverse=True), title
        assert -1 < values[-1] and values[0] < 0.25  # the axis holds them


def test_lines_are_told_apart_and_the_untied_are_named():
    """Lines end in round caps, which close a gap that is no wider than they are."""
    width = theme.config()["line"]["strokeWidth"]
    assert theme.config()["line"]["strokeCap"] == "round"
    assert all(gap > width for dash in DASHES if dash != [1, 0] for gap in dash[1::2]), "a dashed line that looks solid"
    untied = [title for title, name in MODELS.items() if not fk.load(name).tied]
    assert untied == ["Llama-3-8B", "Llama-3.1-405B"]
    assert {shown.label for shown in ERRORS.readouts if "(untied)" in shown.label} == {
        f"{title} (untied)" for title in untied
    }
    near = ERRORS.texts(length=4096)
    assert near["of_gpt_2"].startswith("−") and ERRORS.texts(length=256)["of_llama_3_8b"].startswith("+")
    assert all(re.fullmatch(r"[+−]\d+(\.\d\d?)? %", text) for text in near.values()), near
