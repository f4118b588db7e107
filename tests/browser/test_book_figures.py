"""Every figure of the built book: each control moved to random values, and what the page then says compared with flopkit's Python."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path

import pytest

pytest.importorskip("altair")
pytest.importorskip("playwright.sync_api")

from reader import (
    PHONE,
    anything,
    are_close,
    compare,
    compare_options,
    compare_table,
    css,
    look,
    other,
    pixels,
    put,
    settle,
    show,
    step,
    turn,
)

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
    "attention-pairs": 0.6, "backward-stack": 0.4, "cnn-anatomy": 0.65, "recompute-policies": 0.6, "model-parts": 0.4,
    "layer-shares": 0.65,
    "calculator-fit": 0.35, "calculator-layout": 0.4, "calculator-utilisation": 0.35, "conventions-compared": 0.35, "utilisation-ceilings": 0.6, "parallel-step": 0.4,
}  # fmt: skip
# How much of each chart's room lies under its lowest word, with the name of its figure.
BELOW = """() => [...document.querySelectorAll(".fk-figure .fk-chart:not(.fk-none)")].filter(chart => chart.checkVisibility()).map(chart => {
  const room = chart.getBoundingClientRect(), words = [...chart.querySelectorAll("svg text")];
  return [chart.closest("figure").dataset.name, (room.bottom - Math.max(...words.map(e => e.getBoundingClientRect().bottom))) / room.height];
})"""
DRAWN = """node => [...node.querySelectorAll('.fk-live svg :is(path, text, rect, line)')].map(e =>
  [e.tagName, e.getAttribute('d'), e.getAttribute('transform'), e.getAttribute('width'), e.textContent].join(' '))"""


@pytest.fixture(scope="module")
def figures():
    """Every figure of the gallery, by name."""
    made = [getattr(gallery, name)() for name in gallery.__all__]
    return {figure.name: figure for each in made for figure in (each if isinstance(each, charts.Tasks) else [each])}


def made(figures, name):
    assert name in figures, f"no function in flopkit.charts makes the figure {name!r}; tests cannot compare it"
    return figures[name]


class Sheet:
    """A page on which the tests of a chapter meet its figures, each of them as a reader first sees it."""

    def __init__(self, page, path, figures):
        self.page, self.figures, self.viewport = page, figures, page.viewport_size
        self.below, self.at_first = {}, {}
        for dark in (False, True):  # before any figure is scrolled to, and drawn
            self.colour(dark)
            self.below[dark] = page.evaluate(BELOW)
        for name in (name for where, name in SHOWN if where == path):
            node = show(page, name)
            assert name not in figures or settled(node) == figures[name].settings(), f"{name} begins elsewhere"
            self.at_first[name] = node.evaluate(DRAWN)

    def colour(self, dark):
        scheme = "dark" if dark else "light"
        self.page.emulate_media(color_scheme=scheme)
        self.page.wait_for_function("want => document.documentElement.dataset.theme === want", arg=scheme)

    def figure(self, name):
        if self.page.viewport_size != self.viewport:
            self.page.set_viewport_size(self.viewport)
        node = show(self.page, name)
        node.evaluate("node => node.querySelectorAll('.fk-data, .fk-code').forEach(fold => { fold.open = false; })")
        if name in self.figures and settled(node) != self.figures[name].settings():
            reset(self.page, self.figures[name], node)
        return node


def settled(node):
    return json.loads(node.get_attribute("data-settled"))


def reset(page, figure, node):
    node.get_by_role("button", name="Reset").click()
    settle(page, node, figure.settings())


@pytest.fixture
def sheet(keep_page, figures):
    """`sheet(path, phone=False, dark=False) -> Sheet`. The wide page is opened in the light, the phone's in the dark."""

    def open_(path, phone=False, dark=False):
        options = {**PHONE, "color_scheme": "dark"} if phone else {"color_scheme": "light"}
        found = keep_page(path, lambda page: Sheet(page, path, figures), **options)
        found.colour(dark)
        return found

    return open_


@pytest.mark.parametrize(("path", "name"), MEASURED)
def test_a_measured_figure_has_its_numbers_and_nothing_to_set(sheet, path, name):
    """A row for each dot and, on a roof, whose and of which; what cannot be compared with Python may not have controls."""
    node = sheet(path).figure(name)
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
        named = rf"{re.escape(owner)}: (datasheet|measured) roof|Each roof is that of the device.s datasheet"
        assert re.search(named, said), f"no roof is named for {owner!r}"


@pytest.mark.parametrize(("path", "name"), REMADE)
def test_random_settings_give_what_python_gives(sheet, figures, path, name):
    """Each control is moved by hand from where it starts; then all are set at once."""
    on, figure, rng = sheet(path), made(figures, name), random.Random(name)
    page, node = on.page, on.figure(name)
    compare(figure, node, {})
    compare_options(figure, node)
    seen = [look(node, {})]
    if figure.table:
        node.locator(".fk-data > summary").click()
    for move, settings in [
        (turn, other(figure, rng)),
        *((put, {**figure.settings(), **preset}) for preset in figure.presets.values()),
        *((put, anything(figure, rng)) for _ in range(8)),
    ]:
        move(page, figure, node, settings)
        compare(figure, node, settings)
        if figure.table:
            compare_table(figure, node, settings)
        seen.append(look(node, settings))
    swatches, marks = (set().union(*each) for each in zip(*seen, strict=True))
    assert swatches <= marks, "a legend shows what no setting draws"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
@pytest.mark.parametrize(("path", "name"), SHOWN)
def test_the_picture_is_there_and_can_be_read(sheet, figures, path, name, phone, dark):
    on = sheet(path, phone, dark)
    page, node = on.page, on.figure(name)
    below = [share for each, share in on.below[dark] if each == name]
    assert max(below, default=0) < 0.3, "a gap under the picture, while nothing is drawn"
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
        figure, rng = made(figures, name), random.Random(f"{name} {dark} {phone}")
        for _ in range(4):
            settings = anything(figure, rng)
            put(page, figure, node, settings)
            look(node, settings)


@pytest.mark.parametrize(("path", "name"), REMADE)
def test_without_scripts(keep_page, figures, path, name):
    page, figure = keep_page(path, java_script_enabled=False), made(figures, name)
    node = page.locator(f'figure[data-name="{name}"]')
    text = node.inner_text()
    assert all(each in text for each in [*figure.texts().values(), *figure.setting_texts().values()])
    assert node.locator(".fk-panel :is(input, select, button):visible").count() == 0, "a dead control"
    if figure.chart:
        assert (
            node.locator(".fk-chart > svg").is_visible()
            and node.locator(".fk-chart > svg").bounding_box()["width"] > 300
        )


@pytest.mark.parametrize(("path", "name"), REMADE)
def test_the_picture_forgets_where_it_has_been(sheet, figures, path, name):
    """Back at the start the chart is drawn as at first: nothing in it was computed from what it had computed before."""
    on, figure, rng = sheet(path), made(figures, name), random.Random(name)
    page, node = on.page, on.figure(name)
    if figure.chart is None or not figure.controls:
        return
    for _ in range(3):
        step(page, figure, node, anything(figure, rng))
    reset(page, figure, node)
    at_first = on.at_first[name]
    assert len(at_first) > 10 and sorted(node.evaluate(DRAWN)) == sorted(at_first)  # filters may change the order
