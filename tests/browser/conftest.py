"""A small site of demo figures, so that the front end is tested before and beside the book."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from served import served

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Demo</title>
<link rel="icon" href="data:,"><style>body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 820px; padding: 0 1rem }}
html[data-theme=dark] {{ background: #121212; color: #ced6dd }}</style>{head}</head><body><main><h1>Demo</h1>{body}</main></body></html>"""

SHARED = '<link rel="stylesheet" href="_static/figure.css"><script src="_static/figure.js?v=1" defer></script>'


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
def gallery_site(tmp_path_factory):
    """A page for each figure of the gallery, such as `dense_roofline.html`."""
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    from flopkit.book import gallery
    from flopkit.charts import html

    pages = {f"{name}.html": (SHARED, html.fragment(getattr(gallery, name)())) for name in gallery.__all__}
    with served(_folder(tmp_path_factory.mktemp("gallery"), pages)) as address:
        yield address


@pytest.fixture(scope="session")
def calculator_site(tmp_path_factory):
    """`calculator.html` by itself."""
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    from flopkit.book.gallery import calculator
    from flopkit.charts import html

    pages = {"calculator.html": (SHARED, html.fragment(calculator()))}
    with served(_folder(tmp_path_factory.mktemp("calculator"), pages)) as address:
        yield address


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
