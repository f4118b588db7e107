"""A small site of demo figures, so that the front end is tested before and beside the book."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
from served import served
from watched import Watched

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Demo</title>
<link rel="icon" href="data:,"><style>body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 820px; padding: 0 1rem }}
html[data-theme=dark] {{ background: #121212; color: #ced6dd }}</style>{head}</head><body><main><h1>Demo</h1>{body}</main></body></html>"""

HERE = Path(__file__).parent
SHARED = '<link rel="stylesheet" href="_static/figure.css"><script src="_static/figure.js?v=1" defer></script>'


def pytest_collection_modifyitems(items):
    """What a page is opened or made for runs one after the other."""
    ours = [
        (i, item, page)
        for i, item in enumerate(items)
        if item.path.parent == HERE and (page := callspec(item).get("path") or callspec(item).get("made"))
    ]
    for (i, _, _), (_, item, _) in zip(ours, sorted(ours, key=lambda one: (one[1].path, str(one[2]))), strict=True):
        items[i] = item


def callspec(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


class Kept:
    """The pages of a chapter that are open, by how they were opened, each with what a test makes of it at first."""

    def __init__(self):
        self.path, self.pages = "", {}

    def leave(self):
        """Close all; what came late counts, too."""
        left, self.pages = [watched for watched, _ in self.pages.values()], {}
        try:
            for watched in left:
                watched.check()
        finally:
            for watched in left:
                watched.context.close()


@pytest.fixture(scope="session")
def kept(chromium):
    kept = Kept()
    yield kept
    kept.leave()


@pytest.fixture
def keep_page(chromium, site, kept, request):
    """`keep_page(path, first=None, **context options)`: as `open_page`, for a page that stays open for the next tests of this path.

    Gives the page, or what `first(page)` made of it when it was opened. After a test that fails its pages are opened anew.
    """
    used, failed = set(), request.session.testsfailed

    def open_(path, first=None, **options):
        if path != kept.path:
            kept.leave()
            kept.path = path
        key = json.dumps(options, sort_keys=True)
        used.add(key)
        if key not in kept.pages:
            watched = Watched(chromium, **options)
            kept.pages[key] = [watched, watched.page]
            watched.page.goto(f"{site}/{path}", wait_until="load")
            if first:
                kept.pages[key][1] = first(watched.page)
        return kept.pages[key][1]

    yield open_
    try:
        for key in used:
            kept.pages[key][0].check(0)
    except AssertionError:
        failed = None
        raise
    finally:
        if request.session.testsfailed != failed:
            for key in used:
                kept.pages.pop(key)[0].context.close()


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory):
    """`figures.html` as in the book (shared script), `live.html` as from two kernels (all inside), `twins.html` the same figure twice,
    `faulty.html` what a test must complain of."""
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    import demo_figure as demo

    from flopkit.charts import html

    figures = [demo.roofline(), demo.bars(), demo.calculator()]
    pages = {
        "figures.html": (SHARED, "<p>Words.</p>".join(map(html.fragment, figures))),
        "live.html": ("", html.standalone(figures[0]) + html.standalone(figures[1])),
        "twins.html": (SHARED, html.fragment(figures[1]) + html.fragment(figures[1])),
        "faulty.html": (SHARED, "".join(html.fragment(demo.faulty(fault)) for fault in demo.FAULTS)),
    }
    return _folder(tmp_path_factory.mktemp("site"), pages)


@pytest.fixture(scope="session")
def demo_site(demo_folder):
    with served(demo_folder) as address:
        yield address


@pytest.fixture(scope="session")
def gallery_folder(tmp_path_factory):
    """Pages of the gallery's figures: all processes of a run share them."""
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "gallery"
    if not folder.is_dir():
        made = _folder(tmp_path_factory.mktemp("gallery"), {})
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(folder)
    return folder


@pytest.fixture(scope="session")
def gallery_page(gallery_folder):
    """`gallery_page("dense_roofline")`: the address of the page of a figure of the gallery, which is made where it is not there yet."""
    from flopkit.book import gallery
    from flopkit.charts import html

    with served(gallery_folder) as address:

        def page(name):
            file = gallery_folder / f"{name}.html"
            if not file.is_file():
                new = file.with_suffix(f".{os.getpid()}")
                new.write_text(PAGE.format(head=SHARED, body=html.fragment(getattr(gallery, name)())), "utf8")
                new.replace(file)
            return f"{address}/{file.name}"

        yield page


@pytest.fixture(scope="session")
def calculator_site(gallery_page):
    """`calculator.html` by itself."""
    return gallery_page("calculator").rpartition("/")[0]


@pytest.fixture(scope="session")
def search_site(tmp_path_factory):
    """`search.html` and a `page.html` of 200 words, with Sphinx's scripts in the order of a built book."""
    themes = Path(pytest.importorskip("sphinx").__file__).parent / "themes/basic/static"
    folder = tmp_path_factory.mktemp("search")
    ours = Path(__file__).parents[2] / "book/_static/searching.js"
    for path in (*(themes / name for name in ("doctools.js", "sphinx_highlight.js", "searchtools.js")), ours):
        shutil.copy(path, folder / path.name)
    empty = {key: {} for key in ("alltitles", "indexentries", "objects", "objnames", "objtypes")}
    index = {
        "docnames": ["page"],
        "filenames": ["page.md"],
        "titles": ["A page"],
        "terms": {"flop": 0},
        "titleterms": {"page": 0},
    }
    (folder / "searchindex.js").write_text(f"Search.setIndex({json.dumps(index | empty)})", "utf8")
    (folder / "language_data.js").write_text("var stopwords = []; class Stemmer { stemWord = word => word; }", "utf8")
    settings = {"URL_ROOT": "./", "BUILDER": "html", "FILE_SUFFIX": ".html", "LINK_SUFFIX": ".html"}
    every = ["doctools.js", "sphinx_highlight.js", "searching.js"]
    search = ["searchtools.js", "language_data.js", "searchindex.js"]
    pages = {
        "page.html": (every, f"<p>{' '.join(f'word{n:03}' for n in range(200))}</p>"),
        "search.html": (every + search, '<div id="search-results"></div>'),
    }
    for name, (scripts, body) in pages.items():
        head = f"<script>const DOCUMENTATION_OPTIONS = {json.dumps(settings)};</script>"
        head += "".join(f'<script src="{each}"></script>' for each in scripts)
        (folder / name).write_text(PAGE.format(head=head, body=body), "utf8")
    with served(folder) as address:
        yield address


def _folder(folder, pages):
    """The pages, given as (head, body), with the style, the script and Vega beside them."""
    from flopkit.charts import html

    (folder / "_static" / "vendor").mkdir(parents=True)
    for name in ("figure.js", "figure.css"):
        shutil.copy(html.STATIC / name, folder / "_static" / name)
    (folder / "_static" / "vendor" / "vega.js").write_text(html.vega_bundle(), "utf8")
    for name, (head, body) in pages.items():
        (folder / name).write_text(PAGE.format(head=head, body=body), "utf8")
    return folder
