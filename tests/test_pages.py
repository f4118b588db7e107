"""Every page of the built book: offline, quiet, readable on a phone and in the dark, and without grave faults for a screen reader.

`open_page` asserts at the end of each test that the page asked no other host and logged no error. Figures have tests of
their own; here a page is looked at as a page.
"""

from __future__ import annotations

import posixpath
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

pytestmark = pytest.mark.browser
HTML = Path(__file__).resolve().parent.parent / "_build" / "html"
PAGES = sorted(str(p.relative_to(HTML)) for p in (HTML / "book").rglob("*.html"))
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
# Preloading would ask for the @import of a style beside the page, where it is not.
AXE = {"preload": False, "resultTypes": ["violations"]}
CONTRAST = {**AXE, "runOnly": {"type": "rule", "values": ["color-contrast"]}}


@pytest.mark.parametrize("path", PAGES)
def test_served_page_is_quiet_and_accessible(open_page, path):
    """axe-core finds nothing serious or critical, neither in the light nor (where only colours differ) in the dark."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(path, color_scheme="light")
    page.wait_for_timeout(300)
    assert page.title()
    for scheme, options in (("light", AXE), ("dark", CONTRAST)):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function("want => document.documentElement.dataset.theme === want", arg=scheme)
        page.wait_for_timeout(300)
        found = axe.run(page, options=options).response["violations"]
        grave = [
            f"{v['id']}: {v['help']}: {[n['html'][:120] for n in v['nodes'][:3]]}"
            for v in found
            if v["impact"] in ("serious", "critical")
        ]
        assert grave == [], scheme


@pytest.mark.parametrize("path", PAGES)
def test_page_from_disk_on_a_phone(open_page, path):
    """Opened as a file at 390 px: the heading is there, nothing scrolls sideways, formulas are drawn."""
    page = open_page(url=(HTML / path).as_uri(), **PHONE)
    assert page.locator(".bd-article h1").first.is_visible()
    if page.locator(".bd-article .math").count():
        page.locator(".bd-article mjx-container:visible").first.wait_for(timeout=10_000)
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    cut = page.locator(".bd-article mjx-math:visible").evaluate_all(
        "all => all.filter(m => m.getBoundingClientRect().right > innerWidth).map(m => m.textContent)"
    )
    assert cut == [], "a phone shows only a part of these formulas"


def test_each_page_is_described():
    said = {}
    for path in [*PAGES, "search.html", "genindex.html", "404.html"]:
        found = re.findall(r'<meta name="description" content="([^"]*)"', (HTML / path).read_text("utf8"))
        assert len(found) == 1 and 50 <= len(unescape(found[0])) <= 200, f"{path}: {found}"
        said[path] = found[0]
    assert len(set(said.values())) == len(said)


def test_links_inside_the_book_arrive():
    """Each link of an article leads to a page that is there and to a place that is on it: a term, a source, an equation."""
    text = {path: (HTML / path).read_text("utf8") for path in PAGES}
    places = {path: set(re.findall(r'\bid="?([^"\s>]+)', page)) for path, page in text.items()}
    lost, terms = [], 0
    for path, page in text.items():
        article = page[page.index("<article") : page.index("</article>")]
        for address in re.findall(r'<a [^>]*?href="([^"]+)"', article):
            if re.match(r"[a-z]+:", address):
                continue
            name, _, place = unescape(unquote(address)).partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
            terms += place.startswith("term-")
            if not (HTML / target).is_file() or (place and target in places and place not in places[target]):
                lost.append(f"{path}: {address}")
    assert lost == [] and terms > 50


def test_a_link_to_a_claim_opens_it(open_page):
    """Claims are folded in the chapters; the page of claims links to what is inside."""
    page = open_page("book/16_decode.html")
    assert not page.locator("#claim-B12").is_visible() and page.locator("summary", has_text="Claim B12").is_visible()
    [target] = set(re.findall(r'href="(16_decode\.html#claim-B12)"', (HTML / "book/claims.html").read_text("utf8")))
    page = open_page(f"book/{target}")
    assert page.locator("#claim-B12").is_visible() and not page.locator("#claim-B11").is_visible()


def test_a_term_says_what_it_means(open_page):
    """To a mouse and a screen reader as the title, to the keyboard under the line and inside the page, on a phone as well."""
    page = open_page("book/02_dense.html", **PHONE)
    link = page.locator("a.fk-term", has_text="memory-bound").first
    assert link.get_attribute("title").startswith("Limited by memory traffic")
    page.keyboard.press("Tab")  # from here on the browser shows where the keyboard is
    link.focus()
    box = link.evaluate(
        "e => { const s = getComputedStyle(e, '::after'); return [s.content, s.display, parseFloat(s.width)] }"
    )
    assert "Limited by memory traffic" in box[0] and box[1] == "block" and 100 < box[2] < 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("path", ["index.html", "genindex.html", "404.html", "_modules/flopkit/layers/products.html"])
def test_other_pages_are_quiet(open_page, path):
    page = open_page(path)
    page.wait_for_timeout(300)
    assert page.title()


def test_search_finds(open_page):
    page = open_page("search.html?q=FLOP")
    page.locator("#search-results li a").first.wait_for(timeout=10_000)
