"""The page "How this book is tested": what it makes of a report, and that what it names is there."""

import json
import re
from pathlib import Path

import pytest

from book_ext import tested_page

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "book" / "tested.md").read_text("utf8")


@pytest.fixture
def page(monkeypatch):
    """The part that is made from a report; None: from no report."""

    def tell(report, folder):
        path = folder / "report.json"
        if report is not None:
            path.write_text(json.dumps(report), "utf8")
        monkeypatch.setattr(tested_page, "REPORT", path)
        return tested_page.tables()

    return tell


def part(title, files, skipped=()):
    counts = {key: sum(file.get(key, 0) for file in files.values()) for key in ("passed", "failed", "skipped")}
    return dict(
        title=title, date="2031-02-03", seconds=1234.5, commit="abc", counts=counts, files=files, skipped=list(skipped)
    )


def test_what_ran_is_in_sight_and_the_files_are_folded(page, tmp_path):
    skipped = [{"file": "tests/test_a.py", "test": "t", "reason": "no a | b"}]
    checks = part(
        "Code", {"tests/test_a.py": {"passed": 7, "failed": 2, "skipped": 1}, "book/x.ipynb": {"passed": 9}}, skipped
    )
    browser = part("Browser", {"tests/test_pages.py": {"passed": 5}})
    report = {"parts": {"checks": checks, "browser": browser}, "platform": "Some OS", "versions": {"torch": "9.9"}}
    text = page(report, tmp_path)
    open_, *folds = text.split("<details>")
    assert "Code: **16 passed**, 2 failed, 1 left out, in 1,234 s, 2031-02-03, commit `abc`" in open_
    assert "Browser: **5 passed**" in open_ and "Some OS, with torch 9.9" in open_ and "| `" not in open_
    assert len(folds) == text.count("</details>") == 4
    assert "| `tests/test_a.py` | 7 | 2 | 1 |" in folds[0] and "| `tests/test_a.py` | 1 | no a / b |" in folds[-1]
    assert "tests/test_pages.py" in folds[2] and "tests/test_pages.py" not in folds[0]


def test_a_part_that_is_not_in_the_report_is_not_spoken_of(page, tmp_path):
    """The browser tests come after the build; the page says nothing of them until it is built again."""
    text = page(
        {"parts": {"checks": part("Code", {"tests/t.py": {"passed": 1}})}, "platform": "p", "versions": {}}, tmp_path
    )
    assert "rowser" not in text and "Nothing was left out." in text
    assert "without running the tests" in page(None, tmp_path / "elsewhere")


def test_what_the_page_names_is_there():
    named = re.findall(r"`(tests/[\w./]*)`", TEXT)
    assert len(named) > 10 and [path for path in named if not (ROOT / path).exists()] == []
    for target in re.findall(r"`make ([\w-]+)`", TEXT):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf8"), re.M), target


def test_the_rooms_that_mutations_change_are_those_that_the_page_names():
    modules = (ROOT / "tools" / "mutations.py").read_text("utf8")
    for room in ("layers", "models", "training", "conventions", "rooflines", "counter/formulas"):
        assert re.search(rf'["/]{room}["./]', modules), room
    assert not re.search(r'"flopkit/(charts|lessons)', modules)
