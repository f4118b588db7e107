"""No number in a chapter's prose is simply typed: a cell computes it (says) or attributes it (cites)."""

from types import SimpleNamespace

import pytest
from chapters import Cell, Notebook, notebooks, prose_problems

BOOKS = notebooks()


@pytest.mark.parametrize("book", BOOKS, ids=[book.name for book in BOOKS])
def test_every_number_is_said_or_cited(book):
    problems = prose_problems(book)
    assert not problems, f"{book.name}:\n" + "\n".join(problems)


def sample(prose, code):
    return Notebook("sample", (Cell("markdown", prose), Cell("code", code)))


@pytest.mark.parametrize(
    "prose, code",
    [
        ("It takes 137.4 GFLOPs.", 'says("137.4 GFLOPs", 2 * 4096**3)'),
        ("It takes **about 137.4 GFLOPs**.", 'lessons.says("about 137.4 GFLOPs", 2 * 4096**3)'),
        ("It takes 137.4\u00a0GFLOPs.", 'says("137.4 GFLOPs", 2 * 4096**3)'),
        ("PaLM reached 46.2%.", 'cites("46.2 %", "Chowdhery et al. 2022")'),
        ("## A heading of 3 GB", 'says("3 GB", 3e9)'),
        ("Around 325 tokens are free.", 'says("325 tokens", 325)'),
        (
            "Nothing here but `3 GB`, $4$ GB and \n\n```\n5 GB\n```\n\ntokens · 2 bytes",
            "%matplotlib inline\n!ls\nx = 1",
        ),
    ],
)
def test_good_prose(prose, code):
    assert prose_problems(sample(prose, code)) == []


@pytest.mark.parametrize(
    "prose, code, problem",
    [
        ("It takes 137.4 GFLOPs.", "x = 1", "'137.4 GFLOPs' is neither said nor cited"),
        ("It takes 137.4 GFLOPs.", 'says("137.5 GFLOPs", x)', "'137.4 GFLOPs' is neither said nor cited"),
        ("# 2 Half of 3 %", "x = 1", "'3 %' is neither"),
        ("| a | 13.6× |", "x = 1", "'13.6×' is neither"),
        ("Between 2 and 3 ms.", 'says("3 ms", x)', "'2 ms' is neither"),
        ("<details><summary>x</summary>\n\nIt is 12 MB.\n</details>", "x = 1", "'12 MB' is neither"),
        ("Nothing.", 'says("3 GB", x)', "'3 GB' is not in the prose"),
        ("It is 3 GB.", 'says(f"{n} GB", x)', "needs the text of the prose itself"),
        (
            "Guess.",
            'predict("Is it 3 GB?", options={"1 GB": "No.", "2 GB": "It is 4 GB."}, answer="2 GB")',
            "'4 GB' is neither",
        ),
        (
            "Guess.",
            'predict("Well?", options={"1 GB": "It is 5 GB.", "2 GB": "So."}, answer="2 GB")',
            "'5 GB' is neither",
        ),
        ("Guess.", 'predict("Well?", options={"1 GB": "No.", "2 GB": "So."}, answer="2 GB")', "'2 GB' is neither"),
    ],
)
def test_bad_prose(prose, code, problem):
    assert any(problem in found for found in prose_problems(sample(prose, code)))


def test_words_after_times_are_prose():
    assert (
        prose_problems(sample("It is 2 times as much.\n\nOr 163 tokens.", 'says("163 tokens", x)\nsays("2×", y)')) == []
    )


def test_what_a_figure_is_said_to_show_is_prose(monkeypatch):
    code = "from flopkit.book import gallery\ngallery.one_run()"
    monkeypatch.setattr("flopkit.book.gallery.one_run", lambda: SimpleNamespace(title="A run", alt="It is 52 %."))
    assert any("'52 %' is neither said nor cited" in found for found in prose_problems(sample("Look.", code)))


def test_what_a_chapter_found_is_prose():
    found = "\n".join(prose_problems(Notebook("02_dense", (Cell("code", "x = 1"),))))
    assert "'14 %' is neither said nor cited" in found and "0.012 %" not in found  # its number is the verdict's own


def test_wrong_guesses_need_no_source():
    code = 'predict("Well?", options={"1 GB": "No.", "2 GB": "So."}, answer="2 GB")\nsays("2 GB", 2e9)'
    assert prose_problems(sample("Guess.", code)) == []
