"""Drawings as data: what touches what, their numbers against arithmetic by hand, and what every one of them must have."""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from flopkit import charts
from flopkit.charts import drawings, theme

ROOT = Path(__file__).resolve().parents[2]
NAMES = [name for name in drawings.__all__ if name != "Drawing"]


def inside(inner, outer):
    """The first mark lies within the second."""
    (a, b, c, d), (left, top, right, bottom) = inner.box, outer.box
    return left - 0.01 <= a and top - 0.01 <= b and c <= right + 0.01 and d <= bottom + 0.01


def words(drawing):
    return " ".join(mark.text for canvas in drawing.canvases for mark in canvas.marks if mark.kind == "text")


# -- every drawing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_says_what_it_shows(name):
    drawing = getattr(drawings, name)()
    assert drawing.name == name.replace("_", "-")
    assert 20 < len(drawing.title) < 100 and not drawing.title.endswith(".")
    assert re.match(r"[A-Z].*[.]$", drawing.alt, re.S) and len(drawing.alt) > len(drawing.title)
    assert repr(drawing) == f"<Drawing {drawing.name!r}: {drawing.title}>"
    assert str(drawing) == f"{drawing.title}\n  {drawing.alt}"


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_is_small_well_formed_and_in_the_colours_of_its_page(name):
    page = getattr(drawings, name)().html()
    ElementTree.fromstring(page.replace(" id=", " id_="))
    assert len(page.encode()) < 12_000
    assert " id=" not in page and "url(" not in page and "<style" not in page  # two of them in a page cannot clash
    coloured = re.findall(r"var\((--fk-\w+),(#\w{6})\)", page)
    assert len(coloured) == len(re.findall(r"#[0-9a-fA-F]{3,8}\b", page)) > 0, "a colour that stays in the dark"
    assert all(theme.VARIABLES[colour] == variable for variable, colour in coloured)
    assert not re.search(r"(fill|stroke)=\"(?!none|currentColor|var\()", page)


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_is_listed(name):
    assert f":: flopkit.charts.drawings.{name}\n" in (ROOT / "book" / "api_book.md").read_text("utf8")


def test_in_the_book_it_is_html_and_in_a_notebook_an_image(monkeypatch):
    drawing = charts.drawings.matrix_product().numbered("2.7")
    monkeypatch.delenv("FLOPKIT_BOOK", raising=False)
    bundle = drawing._repr_mimebundle_()
    assert set(bundle) == {"image/svg+xml", "text/plain"}
    root = ElementTree.fromstring(bundle["image/svg+xml"])
    svg = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{svg}title").text == drawing.heading and root.find(f"{svg}desc").text == drawing.alt
    assert "var(" not in bundle["image/svg+xml"], "an image does not know the page's colours"
    assert root.find(f"{svg}rect").get("fill") == theme.PAPER, "it brings its own ground"
    monkeypatch.setitem(os.environ, "FLOPKIT_BOOK", "1")
    page = drawing._repr_mimebundle_()["text/html"]
    assert "<figcaption>Figure 2.7. K multiply-adds" in page and "id=drawing-2-7 " in page
    assert f'role="img" aria-label="{drawing.alt}"' in page


def test_the_other_colours():
    drawing = drawings.matrix_product()
    dark = drawing.svg("dark")
    assert theme.DARK[theme.PAPER] in dark and theme.PAPER not in dark and theme.BLUE not in dark
    with pytest.raises(ValueError, match="'light' or 'dark'"):
        drawing.svg("night")


# -- products -----------------------------------------------------------------------------------------------------


def test_matrix_product_marks_what_meets():
    drawing = drawings.matrix_product(m=3, k=6, n=5)
    [a], [b], [c] = (drawing.marks(name) for name in "ABC")
    [row], [column], [result] = (drawing.marks(name) for name in ("row", "column", "result"))
    [of_row], [of_column] = drawing.marks("uses of the row"), drawing.marks("uses of the column")
    assert inside(row, a) and row.w == a.w and row.h == a.h / 3
    assert inside(column, b) and column.h == b.h and column.w == b.w / 5
    assert inside(result, c) and (result.y, result.x) == (row.y, column.x) and (result.h, result.w) == (row.h, column.w)
    assert inside(of_row, c) and of_row.w == c.w and of_row.y == row.y
    assert inside(of_column, c) and of_column.h == c.h and of_column.x == column.x
    assert a.w == b.h and a.h == c.h and b.w == c.w and a.y == c.y and b.x == c.x  # the inner sizes agree
    said = words(drawing)
    assert "K = 6 multiply-adds" in said and "= 90 multiply-adds" in said and "= 180 FLOPs" in said  # 3·5·6, twice
    assert "A is used N = 5 times" in said and "B is used M = 3 times" in said


def test_bytes_and_flops_by_hand():
    """H100: 3.35 TB/s and 989.4 TFLOP/s. The weight of 4,096 × 16,384 numbers in bf16 is 134,217,728 bytes."""
    drawing = drawings.bytes_and_flops()
    weights, rest, flops = (drawing.marks(name) for name in ("weight", "inputs and outputs", "arithmetic"))
    seconds = 134_217_728 / 3.35e12  # of the weight
    pixels = weights[0].w / seconds
    assert [bar.w for bar in weights] == [weights[0].w] * 3
    for tokens, moved, computed in zip((1, 64, 325), rest, flops, strict=True):
        assert moved.w == pytest.approx(pixels * tokens * (4096 + 16384) * 2 / 3.35e12)
        assert computed.w == pytest.approx(pixels * 2 * tokens * 4096 * 16384 / 989.4e12)
    assert abs(flops[2].w / (weights[2].w + rest[2].w) - 1) < 0.003  # at 325 tokens both take as long
    assert "136.8 MB" in words(drawing) and "8.59 GFLOPs: 8.7 µs" in words(drawing)


@pytest.mark.parametrize(("k", "drawn"), [(2, 2), (4, 4), (5, 3), (4096, 3)])
def test_dot_product_is_a_chain(k, drawn):
    drawing = drawings.dot_product(k)
    chain = [*drawing.marks("start"), *drawing.marks("fma")]
    assert len(drawing.marks("fma")) == drawn and len(drawing.marks("operand")) == 2 * drawn
    arrows = drawing.marks("sum")
    for arrow in arrows:
        starts = any(abs(arrow.x - box.box[2]) < 0.01 for box in [*chain, *drawing.marks("left out")])
        assert starts or k > 4
    assert arrows[0].x == chain[0].box[2] and arrows[0].box[2] == chain[1].x
    assert f"{k:,} multiplies, {k - 1:,} adds: {2 * k - 1:,}" in words(drawing)
    assert f"{k:,} FMAs: {2 * k:,} FLOPs" in words(drawing)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: drawings.matrix_product(m=8), r"matrix_product\(m=8\): give a whole number from 2 to 7"),
        (lambda: drawings.matrix_product(k=3), r"matrix_product\(k=3\): give a whole number from 4 to 7"),
        (lambda: drawings.matrix_product(n=4.0), r"matrix_product\(n=4.0\)"),
        (lambda: drawings.dot_product(True), r"dot_product\(k=True\)"),
        (lambda: drawings.bytes_and_flops(tokens=(1,)), "give two to five"),
        (lambda: drawings.bytes_and_flops(device="t4"), "no peak for bf16"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
