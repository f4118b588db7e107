"""Every figure of the built book: each control moved to random values, and what the page then says compared with flopkit's Python."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import pytest

pytest.importorskip("altair")
pytest.importorskip("playwright.sync_api")

from reader import PHONE, anything, are_close, compare, compare_table, css, look, pixels, put, settle, show, turn

from flopkit import charts
from flopkit.book import gallery
from flopkit.charts import theme

pytestmark = pytest.mark.browser
HTML = Path(__file__).resolve().parents[2] / "_build" / "html"
SHOWN = sorted(
    (str(path.relative_to(HTML)), name)
    for path in HTML.rglob("*.html")
    for name in set(re.findall(r'<figure class="fk-figure"[^>]* data-name="([\w-]+)"', path.read_text("utf8")))
)
# A figure that a function of flopkit.charts makes can be made again, to compare. One that a chapter makes from what it measured cannot.
TABBED = [
    make.replace("_", "-") for make in gallery.__all__ if getattr(gallery, make).__annotations__["return"] == "Tasks"
]
REMADE = [
    (path, name)
    for path, name in SHOWN
    if name.replace("-", "_") in gallery.__all__ or name.rpartition("-")[0] in TABBED
]
MEASURED = [each for each in SHOWN if each not in REMADE]


@pytest.mark.parametrize("path", sorted({path for path, _ in SHOWN}))
def test_a_page_is_light(path):
    """A page with what its figures load, compressed as a server sends it."""
    static = [HTML / "_static" / name for name in ("figure.js", "figure.css", "vendor/vega.js")]
    size = sum(len(gzip.compress(file.read_bytes(), 6)) for file in (HTML / path, *static))
    assert size < 350_000, f"{size:,} bytes"


# The largest share of a picture that may be inked: lines and labels, but for figures whose areas or bars fill the frame.
LINES = 0.25
FILLED = {
    "attention-pairs": 0.6, "backward-stack": 0.4, "cnn-anatomy": 0.65, "expert-loads": 0.6, "recompute-policies": 0.6, "model-parts": 0.4,
    "layer-shares": 0.65,
    "calculator-fit": 0.35, "calculator-utilisation": 0.35, "conventions-compared": 0.35, "utilisation-ceilings": 0.6, "parallel-step": 0.4,
}  # fmt: skip
# How much of a chart's room lies under its lowest word.
BELOW = """chart => { const room = chart.getBoundingClientRect(), words = [...chart.querySelectorAll("svg text")];
  return (room.bottom - Math.max(...words.map(e => e.getBoundingClientRect().bottom))) / room.height; }"""


@pytest.fixture(scope="module")
def figures():
    """Every figure of the gallery, by name."""
    made = [getattr(gallery, name)() for name in gallery.__all__]
    return {figure.name: figure for each in made for figure in (each if isinstance(each, charts.Tasks) else [each])}


def made(figures, name):
    assert name in figures, f"no function in flopkit.charts makes the figure {name!r}; tests cannot compare it"
    return figures[name]


@pytest.mark.parametrize(("path", "name"), MEASURED)
def test_a_measured_figure_has_its_numbers_and_nothing_to_set(open_page, path, name):
    """A row for each dot and, on a roof, whose and of which; what cannot be compared with Python may not have controls."""
    page = open_page(path)
    node = show(page, name)
    assert node.locator(".fk-panel :is(input, select)").count() == 0, (
        f"no function in flopkit.charts makes {name!r}: tests cannot compare it"
    )
    node.locator(".fk-data > summary").click()
    dots = node.locator(".fk-live svg .mark-symbol.role-mark path")
    assert node.locator(".fk-data tbody tr").count() == dots.count() > 0
    swatches, marks = look(node, {})
    assert swatches <= marks
    said, head = node.inner_text(), node.locator(".fk-data thead th").first.inner_text().strip().lower()
    if head != "whose":  # a figure without a roof, such as rates over time
        return
    for owner in {row.split("\t")[0].strip() for row in node.locator(".fk-data tbody tr").all_inner_texts()}:
        assert re.search(rf"{re.escape(owner)}: (datasheet|measured) roof", said), f"no roof is named for {owner!r}"


@pytest.mark.parametrize(("path", "name"), REMADE)
def test_random_settings_give_what_python_gives(open_page, figures, path, name):
    page, figure, rng = open_page(path), made(figures, name), random.Random(name)
    node = show(page, name)
    compare(figure, node, {})
    seen = [look(node, {})]
    if figure.table:
        node.locator(".fk-data > summary").click()
    for settings in [
        *({**figure.settings(), **preset} for preset in figure.presets.values()),
        *(anything(figure, rng) for _ in range(8)),
    ]:
        turn(page, figure, node, settings)
        compare(figure, node, settings)
        if figure.table:
            compare_table(figure, node, settings)
        seen.append(look(node, settings))
    swatches, marks = (set().union(*each) for each in zip(*seen, strict=True))
    assert swatches <= marks, "a legend shows what no setting draws"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize(("path", "name"), SHOWN)
def test_the_picture_is_there_and_can_be_read(open_page, figures, path, name, options, dark):
    page = open_page(path, color_scheme="dark" if dark else "light", **options)
    below = [
        chart.evaluate(BELOW) for chart in page.locator(f'[data-name="{name}"] .fk-chart:not(.fk-none):visible').all()
    ]
    assert max(below, default=0) < 0.3, "a gap under the picture, while nothing is drawn"
    node = show(page, name)
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    if node.locator(".fk-none").count():
        return
    svg = node.locator(".fk-live svg")
    assert svg.bounding_box()["width"] > 300
    if (height := round(svg.bounding_box()["height"])) > page.viewport_size[
        "height"
    ] - 150:  # the page's own bar lies over a taller picture
        page.set_viewport_size({**page.viewport_size, "height": height + 300})
        svg.scroll_into_view_if_needed()
    inset = "e => e.getBoundingClientRect().x - (e.closest('.cell_output') ?? e.parentNode).getBoundingClientRect().x"
    assert node.evaluate(inset) == 0, "it begins where the text does, in the dark, too"
    assert css(page, node, "--fk-ink") == (theme.DARK[theme.INK] if dark else theme.INK)
    seen = pixels(svg.screenshot())
    ground, words = seen[0], theme.DARK[theme.MUTED] if dark else theme.MUTED
    assert (sum(ground) < 200) == dark, f"the chart stands on {ground}"
    inked = (abs(seen - ground).max(axis=-1) > 60).mean()
    assert 0.003 < inked < FILLED.get(name, LINES), f"{inked:.1%} of the picture is inked"
    assert are_close(seen, words).sum() > 30
    look(node, {})
    if (path, name) in REMADE:
        figure, rng = made(figures, name), random.Random(f"{name} {dark} {options}")
        for _ in range(4):
            settings = anything(figure, rng)
            put(page, figure, node, settings)
            look(node, settings)


@pytest.mark.parametrize(("path", "name"), REMADE)
def test_without_scripts(open_page, figures, path, name):
    page, figure = open_page(path, java_script_enabled=False), made(figures, name)
    node = page.locator(f'figure[data-name="{name}"]')
    text = node.inner_text()
    assert all(each in text for each in [*figure.texts().values(), *figure.setting_texts().values()])
    assert node.locator(".fk-panel :is(input, select, button):visible").count() == 0, "a dead control"
    if figure.chart:
        assert (
            node.locator(".fk-chart > svg").is_visible()
            and node.locator(".fk-chart > svg").bounding_box()["width"] > 300
        )


DRAWN = """node => [...node.querySelectorAll('.fk-live svg :is(path, text, rect, line)')].map(e =>
  [e.tagName, e.getAttribute('d'), e.getAttribute('transform'), e.getAttribute('width'), e.textContent].join(' '))"""


@pytest.mark.parametrize(("path", "name"), REMADE)
def test_the_picture_forgets_where_it_has_been(open_page, figures, path, name):
    """Back at the start the chart is drawn as at first: nothing in it was computed from what it had computed before."""
    page, figure, rng = open_page(path), made(figures, name), random.Random(name)
    node = show(page, name)
    if figure.chart is None or not figure.controls:
        return
    at_first = node.evaluate(DRAWN)
    for _ in range(3):
        turn(page, figure, node, anything(figure, rng))
    node.get_by_role("button", name="Reset").click()
    settle(page, node, figure.settings())
    assert len(at_first) > 10 and sorted(node.evaluate(DRAWN)) == sorted(at_first)  # filters may change the order
