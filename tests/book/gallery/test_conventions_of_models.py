"""The figure of the conventions: each bar is what the model's own training step costs under that convention, and is told as its source says."""

from __future__ import annotations

import pytest

import flopkit as fk
from flopkit.book.gallery import conventions_compared
from flopkit.book.gallery.conventions_of_models import FAMILIES, MODELS, alike, answers, included
from flopkit.published import presets


@pytest.fixture(scope="module")
def figure():
    return conventions_compared()


@pytest.mark.parametrize("title", MODELS)
def test_a_bar_is_the_training_step_under_each_convention_of_its_line(figure, title):
    model = fk.load(MODELS[title])
    for length in (128, 1024, 8192, 131072):
        if model.positions and length > model.positions:
            assert figure.at(model=title, length=length)["too_long"]
            continue
        step = model.train_step(seq=length)
        seen = []
        for row in figure.rows(model=title, length=length):
            for name in row["name"].split(", "):
                seen.append(name)
                assert row["flops"] == pytest.approx(step.under(name).flops_per_token, rel=1e-12), name
                assert row["against"] == pytest.approx(row["flops"] / step.under("EXACT").flops_per_token)
        assert sorted(seen) == sorted(presets())


def test_a_model_with_learned_positions_is_refused_beyond_them(figure):
    assert figure.at(model="GPT-2", length=1024)["too_long"] == ""
    assert "GPT-2 has learned positions for fewer tokens" in figure.description(model="GPT-2", length=2048)
    with pytest.raises(ValueError, match="learned positions for 1024 tokens"):
        fk.load("gpt2").forward(seq=2048)
    assert figure.at(model="Llama-3-8B", length=131072)["too_long"] == ""


def test_what_counts_in_a_line_is_what_the_source_says(figure):
    """PaLM's appendix B, nanoGPT's estimate_mfu, Kaplan's table 1 and fvcore, in words."""
    told = {name: row["counts"] for row in figure.rows() for name in row["name"].split(", ")}
    assert told["PALM"].startswith(
        "products of the layers, all scores, head, embedding, router, norms and biases, learned"
    )
    assert "learned positions" not in told["NANOGPT"] and "norms and biases" in told["NANOGPT"]
    assert told["KAPLAN"] == "products of the layers, half of the scores, router; a multiply-add as two FLOPs"
    assert told["FVCORE"].endswith("all scores, head, router; a multiply-add as one FLOP")
    assert (
        "idle experts" in told["SIX_N"] and "idle experts" not in told["SIX_N_ACTIVE"] and "no scores" in told["SIX_N"]
    )
    assert "softmax" in told["CHINCHILLA"] and "visible" in told["EXACT"] and "all scores" in told["TORCH"]


def test_names_are_joined_only_where_all_answers_are_the_same():
    joined = {name: names for _, of_n in FAMILIES for names in alike(of_n) for name in names.split(", ")}
    assert set(joined) == set(presets())
    for a, one in presets().items():
        for b, other in presets().items():
            assert (joined[a] == joined[b]) == (answers(one) == answers(other)), (a, b)
    assert "norms and biases" in included(presets()["PALM"]) and joined["PALM"] in alike(True)


def test_only_what_is_far_longer_than_exact_leaves_the_chart(figure):
    rows = figure.rows(model="DeepSeek-V3", length=4096)
    assert {row["name"] for row in rows if row["drawn"] < row["flops"]} == {"LLM_FOUNDRY", "SIX_N"}
    assert all(row["drawn"] == row["flops"] for row in figure.rows(model="Llama-3-8B", length=131072))
