"""Every figure of the gallery has a page that shows it, a test of its numbers, and a line among the API."""

import json
from pathlib import Path

import pytest

from flopkit.book import gallery

ROOT = Path(__file__).resolve().parents[3]
TESTS = [path.read_text("utf8") for path in (ROOT / "tests" / "book" / "gallery").glob("test_*.py")]
CELLS = [
    "".join(cell["source"])
    for path in (ROOT / "book").glob("*.ipynb")
    for cell in json.loads(path.read_text("utf8"))["cells"]
    if cell["cell_type"] == "code"
]
CELLS += [path.read_text("utf8") for path in (ROOT / "book/book_ext").glob("*_page.py")]


@pytest.mark.parametrize("name", gallery.__all__)
def test_a_figure_is_shown_tested_and_listed(name):
    assert any(f"gallery.{name}()" in cell for cell in CELLS), "no chapter and no page shows it"
    assert any(f"{name}()" in text for text in TESTS), "no file in tests/book/gallery makes it"
    assert f":: flopkit.book.gallery.{name}\n" in (ROOT / "book" / "api_book.md").read_text("utf8"), "it is not listed"
