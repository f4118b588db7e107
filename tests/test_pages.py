"""Every page of the built book: offline, quiet, readable on a phone and in the dark, and without grave faults for a screen reader.

Figures have tests of their own; here a page is looked at as a page.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
HTML = Path(__file__).resolve().parent.parent / "_build" / "html"
PAGES = sorted(str(p.relative_to(HTML)) for p in (HTML / "book").rglob("*.html"))
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}


@pytest.mark.parametrize("path", [*PAGES, "index.html", "search.html", "genindex.html"])
def test_offline_and_quiet(open_page, path):
    """Zero outside requests, zero console errors: `open_page` asserts it at the end."""
    page = open_page(path)
    page.wait_for_timeout(300)
    assert page.title()


@pytest.mark.parametrize("path", PAGES)
def test_from_disk(open_page, path):
    page = open_page(url=(HTML / path).as_uri())
    page.wait_for_timeout(300)
    assert page.locator(".bd-article h1").first.is_visible()


@pytest.mark.parametrize("path", PAGES)
def test_phone(open_page, path):
    """No sideways scrolling at 390 px."""
    page = open_page(path, **PHONE)
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible(open_page, path, scheme):
    """axe-core finds nothing serious or critical."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(path, color_scheme=scheme)
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    # Preloading would ask for the @import of a style beside the page, where it is not.
    found = axe.run(page, options={"preload": False}).response["violations"]
    grave = [
        f"{v['id']}: {v['help']}: {[n['html'][:120] for n in v['nodes'][:3]]}"
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert grave == []


def test_formulas_are_drawn_offline(open_page):
    """Where a page holds a formula, MathJax from this book's own files draws it."""
    with_math = [path for path in PAGES if 'class="math' in (HTML / path).read_text("utf8")]
    if not with_math:
        pytest.skip("no page with a formula yet")
    page = open_page(with_math[0])
    page.wait_for_selector("mjx-container", timeout=10_000)


def test_search_finds(open_page):
    page = open_page("search.html?q=FLOP")
    page.wait_for_selector("#search-results li a", timeout=10_000)
