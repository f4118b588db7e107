"""Each row of each published table: reproduced to the printed digit, inside what the rounding of its inputs allows, or listed here as different."""

from pathlib import Path

import pytest

import flopkit as fk
from book_ext import published_page
from flopkit import published
from flopkit.published.rows import Agreement, Row, span

NUMBERS = {  # as many as the sources print, counted there
    "llm_foundry": 216 * 4, "narayanan_2021": 10 + 12 + 2, "korthikanti_2022": 4 * 2 + 1, "nanogpt": 17, "chinchilla_a4": 6,
    "palm_table_3": 6, "llama_3": 1, "deepseek_v3": 3 + 4 + 8, "pope_2022": 4, "gpt_fast": 25, "scaling_book": 10 + 13 + 10, "kipply": 4 + 4 + 2 + 11,
}  # fmt: skip
NOT_REPRODUCED = {
    "llm_foundry": {("153: 7b, 8192", "TFLOP/s a GPU"), ("164: 3b, 8192", "TFLOP/s a GPU")},
    "narayanan_2021": {("text: GPT-3, 1", "days"), ("text: 1 T, 3,", "days")},
    "korthikanti_2022": {(name, "HFU, %") for name in ("22B", "175B", "530B", "1T")},
    "palm_table_3": {("GPT-3", "MFU, %")},
    "scaling_book": {
        ("tpus.md", "tokens at the int8 ridge"),
        ("transformers.md", "parameters, 10⁹"),
        ("training.md", "parameters of LLaMA-2 13B, 10⁹"),
        ("applied-training.md", "parameters of LLaMA-3 70B, 10⁹"),
        ("applied-inference.md", "int8 cache of a token, kB"),
        ("applied-inference.md", "int8, batch 32: memory, GB"),
        ("applied-inference.md", "int4 weights, GB"),
        ("applied-inference.md", "bf16, sequences of 8,192 tokens on 16 v5e"),
        ("applied-inference.md", "int8, sequences of 8,192 tokens on 8 v5e"),
        ("applied-inference.md", "int4, sequences of 8,192 tokens on 4 v5e"),
        ("applied-inference.md", "8,192 tokens on 16 v5e at 40 %, s"),
    },
    "kipply": {
        ("capacity, 52B", "sequences of 2,048 tokens on 3 GPUs"),
        ("capacity, 52B", "tokens beside the weights on 4 GPUs, 10³"),
        ("benchmarks, 13B", "at the bandwidth that a kernel reached, 2 GPUs, ms"),
    },
    "deepseek_v3": {("qwen-72b", "training, GFLOPs a token"), ("llama3-405b", "training, GFLOPs a token")},
}


@pytest.fixture(scope="module")
def found():
    return {name: published.rows(name) for name in published.names()}


def test_no_number_is_left_out(found):
    assert {name: len(rows) for name, rows in found.items()} == NUMBERS


@pytest.mark.parametrize("name", sorted(set(NUMBERS) - {"gpt_fast"}))
def test_what_is_not_reproduced_is_listed_here_and_says_why(found, name):
    different = [row for row in found[name] if row.verdict == Agreement.DIFFERENT]
    listed = NOT_REPRODUCED.get(name, set())
    assert len(different) == len(listed)
    for row in different:
        assert any(row.row.startswith(start) and row.quantity == quantity for start, quantity in listed), row
        assert len(row.why) > 40


def test_gpt_fast_comes_within_a_quarter_of_a_per_cent(found):
    """Bandwidth by its script's own sum of bytes, which is not printed: none comes out to the digit, all but one to 0.25 %."""
    off = {row.row: max(abs(value / float(row.printed) - 1) for value in row.ours) for row in found["gpt_fast"]}
    assert {row for row, share in off.items() if share > 0.0025} == {"llama2-7b, bf16, 1 GPU"}
    assert off["llama2-7b, bf16, 1 GPU"] < 0.012
    assert sum(row.verdict == Agreement.ROUNDING for row in found["gpt_fast"]) == 10


def test_gpt_fast_s_first_row_lies_between_two_sums_of_weights():
    """README of 2023: 104.9 tokens/s and 1,397.31 GB/s. Its script summed all parameters; chapter 13 leaves the embedding's table out."""
    model = fk.load("llama-2-7b")
    whole, table = 2 * model.params, 2 * 32000 * 4096
    assert (whole - table) / 1e9 < 1397.31 / 104.9 < whole / 1e9
    printed = [1397.31 / 104.9, whole / 1e9, (whole - table) / 1e9, model.decode(context=200).bytes / 1e9]
    assert [f"{each:.2f}" for each in printed] == ["13.32", "13.48", "13.21", "13.32"]
    [row] = [row for row in published.rows("gpt_fast") if row.row == "llama2-7b, bf16, 1 GPU"]
    assert row.verdict == Agreement.DIFFERENT and all(f"{each} GB" in row.why for each in ("13.32", "13.48", "13.21"))


def test_korthikanti_s_printed_equation_gives_its_hfu(found):
    """72·B·L·s·h²·(1 + s/3h + v/12hL): twice the model's share for attention, where a forward pass more is a third."""
    for name, hidden, layers, batch, seconds, gpus in (
        ("175B", 12288, 96, 64, 13.75, 64),
        ("530B", 20480, 105, 280, 37.83, 280),
    ):
        printed = next(row for row in found["korthikanti_2022"] if row.row == name and row.quantity == "HFU, %")
        share = 1 + 2048 / (3 * hidden) + 51200 / (12 * hidden * layers)
        equation = 72 * batch * layers * 2048 * hidden**2 * share
        assert f"{100 * equation / (seconds * gpus * 312e12):.1f}" == printed.printed


def test_the_texts_say_how_many_tables_and_numbers_there_are(found):
    """A sentence in a file is not made from the data: a table that comes must change it."""
    root = Path(__file__).parents[2]
    readme, changelog, page = (
        (root / name).read_text("utf8") for name in ("README.md", "CHANGELOG.md", "book/published.md")
    )
    word = {11: "eleven", 12: "twelve", 13: "thirteen", 14: "fourteen"}[len(found)]
    numbers = sum(map(len, found.values()))
    assert f"{word} published tables are recomputed" in readme
    assert f"for {word} published tables" in page
    assert f"{word} published tables, {numbers:,} numbers" in changelog


def test_most_are_reproduced(found):
    rows = [row for table in found.values() for row in table]
    counts = {
        kind: sum(row.verdict == kind for row in rows)
        for kind in (Agreement.REPRODUCED, Agreement.ROUNDING, Agreement.DIFFERENT)
    }
    tally = published.tally()[-1]
    assert {kind: tally[kind] for kind in counts} == counts and tally["numbers"] == len(rows) == sum(counts.values())


@pytest.mark.parametrize(
    ("printed", "ours", "cut", "verdict"),
    [
        ("46.2", (46.2499, 46.2499), False, Agreement.REPRODUCED),
        ("46.2", (46.2501, 46.2501), False, Agreement.DIFFERENT),
        ("46.2", (46.24, 46.26), False, Agreement.ROUNDING),
        ("46.20", (46.21, 46.21), False, Agreement.DIFFERENT),
        ("408", (408.999, 408.999), True, Agreement.REPRODUCED),
        ("408", (407.999, 407.999), True, Agreement.DIFFERENT),
        ("0.99", (0.9944, 0.9944), False, Agreement.REPRODUCED),
    ],
)
def test_a_printed_number_is_an_interval(printed, ours, cut, verdict):
    assert Row("a", "b", "c", printed, ours, cut).verdict == verdict


def test_an_input_that_was_rounded_gives_an_interval():
    assert span(lambda seconds: 12 / seconds, 3.0, 1.0) == (3.0, 6.0)


def test_a_table_names_its_source_and_an_unknown_one_is_told_near_names():
    table = published.check("PaLM table 3")
    assert "arXiv:2204.02311" in table.caption and len(table) == 6
    assert [row["why"] != "" for row in table] == [row["verdict"] == Agreement.DIFFERENT for row in table]
    assert [row["row"] for row in table if row["assumed"]] == ["Gopher"]
    with pytest.raises(ValueError, match="palm_table_3"):
        published.check("palm_table")


def test_gopher_s_row_comes_out_under_an_assumption_that_is_shown(found):
    """PaLM's paper gives steps a second and no batch. Read as 6,000,000, Gopher's "six million tokens" miss the printed 32.5 %."""
    [gopher] = [row for row in found["palm_table_3"] if row.row == "Gopher"]
    step = fk.load("gopher-280b").train_step(seq=2048).under("PALM")
    by_batch = {
        tokens: 100 * step.flops_per_token * 0.0152 * tokens / (4096 * 123e12)
        for tokens in (6 * 2**20, 6_000_000, 3 * 2**20)
    }
    assert gopher.ours[0] == pytest.approx(by_batch[6 * 2**20]) and gopher.verdict == Agreement.REPRODUCED
    assert [f"{share:.1f}" for share in by_batch.values()] == ["32.5", "31.0", "16.2"]
    assert "no batch" in gopher.assumed and "6 · 2²⁰" in gopher.assumed
    assert "6,000,000 gives 31.0 %" in gopher.assumed and "gives 16.2 %" in gopher.assumed


def test_the_page_shows_what_was_assumed_beside_the_numbers_that_come_out(found):
    tables, summary = published_page.tables(), published_page.summary()
    assumed = [row for rows in found.values() for row in rows if row.assumed]
    assert len(assumed) == 1 and all(tables.count(f"*Assumed*: {row.assumed}.") == 1 for row in assumed)
    assert "**In 1 of those that are reproduced, an input is our assumption: the source does not print it.**" in summary


def test_a_number_is_traced_to_the_conventions_that_give_it():
    """DeepSeek-V3's 250 GFLOPs a token: those that count half of the scores or the visible ones, and no table as a product."""
    step = fk.load("deepseek-v3").train_step(seq=4096)
    table = published.translate(250e9, step)
    agree = {row["convention"] for row in table if row["agrees"]}
    assert agree == {"MEGATRON", "DEEPSEEK", "MAXTEXT", "EXACT"}
    assert [abs(row["by the printed"] - 1) for row in table] == sorted(abs(row["by the printed"] - 1) for row in table)
    forward = published.translate(step.forward.flops, step.forward)
    assert forward[0]["convention"] == "EXACT" and forward[0]["by the printed"] == 1
    assert {row["convention"] for row in forward} == set(published.presets())
    recomputed = published.translate(1, fk.load("gpt2").train_step(seq=64, recompute="full"))
    assert {"hardware FLOPs", "hardware FLOPs a token"} <= {row["counted as"] for row in recomputed}


@pytest.mark.parametrize(
    ("printed", "work", "error"), [(0, None, ValueError), (float("nan"), None, ValueError), (1e9, "gpt2", TypeError)]
)
def test_what_cannot_be_traced(printed, work, error):
    with pytest.raises(error):
        published.translate(printed, work)


def test_the_errata_of_the_scaling_book_follow_from_its_own_numbers(found):
    """Three answers contradict the inputs beside them; the others were rounded on the way."""
    errata = {
        row.quantity
        for row in found["scaling_book"]
        if row.verdict == Agreement.DIFFERENT and "a slip in the book" in row.why
    }
    assert errata == {
        "int4 weights, GB",
        "int8, sequences of 8,192 tokens on 8 v5e",
        "int4, sequences of 8,192 tokens on 4 v5e",
    }
    assert 70 * 0.5 == 35 and 8 * 16 - 70 == 58 and int(19e9 / (81e3 * 8192)) == 28 and int(68e9 / (160e3 * 8192)) == 51
    batch, layers, width, context = 8, 40, 5120, 8192
    assert (
        f"{(26 + batch * 6.7) / (8 * 0.82):.2f}" == "12.13" and round(2 * 2 * layers * width * context / 1e9, 1) == 6.7
    )


def test_what_differs_in_transformer_inference_arithmetic_follows_from_its_own_numbers(found):
    """What the reasons say: 16 and 56 GB by the printed bytes of a token and by their rounding, and 12·40·5,120² weights by two bandwidths."""
    why = " ".join(row.why for row in found["kipply"] if row.verdict == Agreement.DIFFERENT)
    exact, rounded = 4 * 64 * 8192, 0.002e9
    fit = [16e9 / (2048 * each) for each in (exact, rounded)]
    assert exact == 2_097_152 and f"hold {fit[0]:.1f} caches" in why and f"and {fit[1]:.1f} at" in why
    assert f"hold {round(56e9 / exact, -2):,.0f} tokens" in why and f"and {56e9 / rounded:,.0f} of" in why
    half = 12 * 40 * 5120**2
    early, late = (1e3 * half / (1.5e12 * share) for share in (0.875, 0.865))
    assert f"{early:.1f} to {late:.1f} ms" in why and f"they are {1e3 * half / (1.555e12 * 0.87):.1f} ms" in why


def test_the_runs_behind_mosaics_table():
    runs = published.llm_foundry_printed()
    assert len(runs) == 216
    [run] = [
        run for run in runs
        if (run["model"], run["seq_len"], run["gpu"], run["n_gpus"]) == ("7b", "65536", "a100_80gb", "8")
    ]  # fmt: skip
    assert (run["tokens_per_s"], run["activation_checkpointing"], run["mfu_pct"]) == ("8108", "True", "46.97")
