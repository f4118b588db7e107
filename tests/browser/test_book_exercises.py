"""Every exercise box of the built book: its answer is the table's, and it takes what the table says is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from flopkit.book.lessons.boxes import box_of

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
TABLE = json.loads((ROOT / "tests" / "data" / "exercises.json").read_text("utf8"))
PAGES = sorted(
    str(path.relative_to(HTML)) for path in HTML.rglob("*.html") if '<div class="fk-exercise"' in path.read_text("utf8")
)
TAKES = """(box, answers) => answers.filter(typed => {
    box.querySelector("input").value = typed;
    box.querySelector("form").requestSubmit();
    return box.querySelector("output").value === "Right.";
})"""


def test_every_exercise_is_in_a_page(open_page):
    """Boxes by their labels, which a reader sees."""
    rows = {
        f"Exercise {number}, {box_of(number, name)}:": row
        for number, asked in TABLE.items()
        for name, row in asked.items()
    }
    seen = set()
    for path in PAGES:
        for box in open_page(path).locator(".fk-exercise").all():
            label = box.locator("label").inner_text().strip()
            assert label in rows, f"{path}: {label}"
            seen.add(label)
            kept, row = json.loads(box.get_attribute("data-kept")), rows[label]
            answer = row["answer"] if isinstance(row["answer"], str) else pytest.approx(row["answer"], rel=1e-6)
            assert (kept["answer"], kept["rel"]) == (answer, row.get("rel", 1e-9)), f"{path}: {label}"
            right = [typed for typed, says in row["says"].items() if says == "Right."]
            assert box.evaluate(TAKES, list(row["says"])) == right, f"{path}: {label}"
    assert seen == rows.keys()
