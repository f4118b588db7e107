"""The exercises of the chapters: each box, what is said to right and wrong answers, and what a solution prints."""

import ast
import itertools
import json
import re
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest
from answering import page_of, put, reply

from flopkit.book.lessons.boxes import box_of, boxes

ROOT = Path(__file__).parents[2]

# Every box of every chapter: its answer, and what is said to right, wrong and differently written ones. (tests/browser/test_book_exercises.py
# tries them in the built book, where the hints of the chapters also speak.)
TABLE = json.loads((ROOT / "tests" / "data" / "exercises.json").read_text("utf8"))
ROWS = [(number, name, row) for number, asked in TABLE.items() for name, row in asked.items()]


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr("flopkit.book.lessons.exercises._SOLUTIONS", {})


@pytest.mark.parametrize("number, name, row", ROWS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_exercise_in_a_notebook(number, name, row):
    put(number, name, row)
    assert {typed: reply(number, name, typed) for typed in row["says"]} == row["says"]
    numbers = [typed for typed in row["says"] if typed.replace(".", "", 1).isdecimal() and str(float(typed)) == typed]
    assert {typed: reply(number, name, float(typed)) for typed in numbers} == {
        typed: row["says"][typed] for typed in numbers
    }


@pytest.mark.browser
def test_every_exercise_in_the_page(chromium):
    page = page_of(chromium, [put(*each) for each in ROWS])
    said = page.evaluate(
        """rows => [...document.forms].map((form, i) => rows[i].map(typed => {
            form.querySelector("input").value = typed;
            form.requestSubmit();
            return form.querySelector("output").value.replace("Not yet: ", "");
        }))""",
        [list(row["says"]) for _, _, row in ROWS],
    )
    for (number, name, row), lines in zip(ROWS, said, strict=True):
        assert (number, name, dict(zip(row["says"], lines, strict=True))) == (number, name, row["says"])
    page.close()


def in_chapters():
    """What the exercises of the chapters ask for, their question and their printed solution, by number."""
    found = {}
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        cells = json.loads(path.read_text("utf8"))["cells"]
        for place, cell in enumerate(cells):
            if "solution" not in cell["metadata"].get("tags", []):
                continue
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "solution":
                    names = {word.arg for word in node.keywords} - {"rel", "hints"}
                    question, printed = ("".join(cells[place + step]["source"]) for step in (-1, 2))
                    found[node.args[0].value] = names, question.split("</details>")[-1], printed.split("</details>")[0]
    return found


CHAPTERS = in_chapters()
PRINTED = r"(?<![\w.,·])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\d.,]*[\d·])( ?(?:%|[kMGTPE]?(?:FLOPs?(?:/s)?|B/s|B|bytes)\b|[mµ]?s\b|days\b))?"


@pytest.mark.parametrize("number", CHAPTERS)
def test_what_a_solution_prints_is_right_and_so_is_what_it_rounds_to(number):
    """Of each number that a solution prints and a box takes: rounded to as many digits as the box asks for, or more."""
    for name, row in TABLE[number].items():
        put(number, name, row)
        box = box_of(number, name)
        for before, behind, unit in re.findall(PRINTED, CHAPTERS[number][2]):
            if isinstance(row["answer"], str) or reply(number, name, before + behind + unit) != "Right.":
                continue
            value = Decimal(before.replace(",", "") + behind)
            for digits, way in itertools.product(range(box.digits, 9), (ROUND_HALF_UP, ROUND_HALF_EVEN)):
                last = value.adjusted() - digits + 1
                if value and value.as_tuple().exponent < last <= 0:
                    typed = f"{value.quantize(Decimal(1).scaleb(last), way):f}{unit}"
                    assert (typed, reply(number, name, typed)) == (typed, "Right."), (name, before + behind + unit)


def test_an_exercise_says_what_its_letters_are():
    for number, asked in boxes().items():
        for name, box in asked.items():
            for letter, value in box.letters.items():
                assert letter.isalpha() and re.search(
                    rf"(?<![\d.,]){re.escape(value)}(?![\d.,]*\d)", CHAPTERS[number][1]
                )
            if box.same:
                put(number, name, TABLE[number][name])
                assert reply(number, name, box.same) == reply(number, name, "unchanged") == "Right."


def test_each_exercise_has_its_row():
    asked = {number: names for number, (names, *_) in CHAPTERS.items()}
    assert {number: set(row) for number, row in boxes().items()} == asked, "flopkit/book/data/exercises.toml"
    assert {number: set(row) for number, row in TABLE.items()} == asked, "tests/data/exercises.json"


@pytest.mark.parametrize("number", boxes())
def test_a_label_is_words_with_a_unit(number):
    labels = [str(box) for box in boxes()[number].values()]
    assert len(set(labels)) == len(labels)
    assert not [label for label in labels if "_" in label or len(label) < 3 or label.startswith(",")]
    for box in boxes()[number].values():
        assert not box.choices or not box.unit


def test_no_chapter_tells_how_to_write_an_answer():
    """The boxes read every way: per cent or a share, with a unit or without, a letter or its word."""
    told = r"(?:%|per cent) sign|with the sign|in per cent|with its unit|with letters|such as 0\.|give (?:it (?:in|as)|a fraction|its letter|decimals)"
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        cells = json.loads(path.read_text("utf8"))["cells"]
        for question, cell in itertools.pairwise(cells):
            if "solution" in cell["metadata"].get("tags", []):
                asked = "".join(question["source"] + cell["source"]).split("</details>")[-1]
                assert not re.findall(told, asked, re.I), path.name
