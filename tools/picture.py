"""Take the README's picture: the first figure of the preface in the built book, as a reader sees it. Run `make picture`."""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from conftest import FLAGS, chromium_path  # noqa: E402

PAGE = ROOT / "_build" / "html" / "book" / "index.html"
PICTURE = ROOT / "book" / "_static" / "picture.png"

with sync_playwright() as p:
    browser = p.chromium.launch(executable_path=chromium_path(), args=FLAGS)
    page = browser.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=1.5)
    page.goto(PAGE.as_uri())
    figure = page.locator("figure.fk-figure").first
    figure.scroll_into_view_if_needed()
    figure.locator(".fk-live svg").wait_for()
    page.wait_for_timeout(500)
    page.add_style_tag(
        content=".bd-header-article, .skip-link, #pst-skip-link, .fk-caption, .fk-data, .fk-readouts { display: none !important }"
    )
    figure.screenshot(path=PICTURE)
    browser.close()
print(PICTURE.relative_to(ROOT), f"{PICTURE.stat().st_size / 1000:.0f} kB")
