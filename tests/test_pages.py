"""Every page of the built book: offline, quiet, readable on a phone and in the dark, and without grave faults for a screen reader.

`open_page` asserts at the end of each test that the page asked no other host and logged no error. Figures have tests of
their own; here a page is looked at as a page.
"""

from __future__ import annotations

from pathlib import Path

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
        page.locator(".bd-article mjx-container").first.wait_for(timeout=10_000)
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("path", ["index.html", "genindex.html"])
def test_other_pages_are_quiet(open_page, path):
    page = open_page(path)
    page.wait_for_timeout(300)
    assert page.title()


def test_search_finds(open_page):
    page = open_page("search.html?q=FLOP")
    page.locator("#search-results li a").first.wait_for(timeout=10_000)
