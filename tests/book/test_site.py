"""What the local Sphinx extensions make of a book, on a small one that is built here in seconds: with an address and without one."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("jupyter_book")
pytest.importorskip("vl_convert")

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SITE = "https://someone.github.io/some-book/"
PAGES = {
    "glossary.md": """\
---
description: What the words of the small book mean, each of them in a sentence or two.
---
# Glossary

```{glossary}
MFU
model FLOPs utilisation
    The useful share, a < b & c. A second sentence.
```
""",
    "references.md": """\
---
description: Where the small book has it from, two sources in two groups, with their links.
---
# References

## One

```{bibliography}
:filter: keywords == "one"
:list: bullet
```

## Two

```{bibliography}
:filter: keywords == "two"
:list: bullet
```
""",
    "references.bib": """\
@misc{dao2022, author = {Dao, T. and others}, title = {{FlashAttention}}, note = {a kernel}, year = {2022}, eprint = {2205.14135}, archiveprefix = {arXiv}, keywords = {one}}
@misc{tool, title = {{A tool}}, url = {https://www.example.org/a/long/address}, keywords = {two}}
""",
}
TEXT = """\
# Start

The [MFU](glossary.md#term-MFU), by [Dao et al. 2022](references.md#dao2022) and [a tool](references.md#tool).
See Figure 2.1 and (2.1), `Figure 2.1` in code, Figure 2.2 that is not there, and (2.7).

$$a = b \\tag{2.1}$$

A layer of 12 GFLOPs.

| name | takes |
|:--|:--|
| `hardware_flops`, `tests/test_a.py` | 12 GB |

```{eval-rst}
An example:

>>> print("12 GFLOPs")
12 GFLOPs
```
"""
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
FIGURE = '<figure class="x" id=my-figure data-name="my-figure"><figcaption>Figure 2.1. A title</figcaption></figure>\n'


def written(folder, address, code="", tags=()):
    """A copy of the repository whose pages are those above, the first with a cell of *code*, if there is one."""
    for name in ("book/book_ext", "book/_static", "flopkit"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "_config.yml", folder)
    toc = {
        "format": "jb-book",
        "root": "book/index",
        "chapters": [{"file": "book/glossary"}, {"file": "book/references"}],
    }
    (folder / "_toc.yml").write_text(yaml.safe_dump(toc), "utf8")
    urls = f'[project.urls]\nRepository = "{address}"\n' if address else ""
    (folder / "pyproject.toml").write_text(f'[project]\nname = "flopkit"\n{urls}', "utf8")
    for name, text in PAGES.items():
        (folder / "book" / name).write_text(text, "utf8")
    cells = [
        {"cell_type": "markdown", "id": f"c{n}", "metadata": {}, "source": s} for n, s in enumerate((TEXT, FIGURE))
    ]
    if code:
        cells.append(
            {
                "cell_type": "code",
                "id": "code",
                "metadata": {"tags": [*tags]},
                "source": code,
                "outputs": [],
                "execution_count": None,
            }
        )
    described = {"description": 'A small book: "start" here, with words & sources, and no more than that.'}
    notebook = {"cells": cells, "metadata": described | {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "book" / "index.ipynb").write_text(json.dumps(notebook), "utf8")


def build(folder, address):
    written(folder, address)
    done = made(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "_build" / "html"


def made(folder):
    start = "import sys; from jupyter_book.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "build", "-W", "-n", "--keep-going", "--quiet", "."]
    environment = {**os.environ, "PYTHONPATH": str(folder), "READTHEDOCS": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    return build(tmp_path_factory.mktemp("local"), None)


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    return build(tmp_path_factory.mktemp("public"), "https://github.com/Someone/some-book")


def article(folder, page):
    text = (folder / page).read_text("utf8")
    return text[text.index("<article") : text.index("</article>")]


def test_links_to_terms_say_what_they_mean(local):
    link = re.search(r"<a [^>]*glossary\.html#term-MFU[^>]*>", article(local, "book/index.html"))[0]
    assert 'title="The useful share, a &lt; b &amp; c."' in link and "fk-term" in link
    glossary = article(local, "book/glossary.html")
    assert 'id="term-MFU"' in glossary and 'id="term-model-FLOPs-utilisation"' in glossary


def test_links_to_sources_arrive(local):
    page, references = article(local, "book/index.html"), article(local, "book/references.html")
    for key in ("dao2022", "tool"):
        assert f'href="references.html#{key}"' in page and references.count(f'id="{key}"') == 1
    text = re.sub(r"<[^>]+>", "", references).replace("\u00a0", " ")
    assert "T. Dao and others. FlashAttention (a kernel). 2022. arXiv:2205.14135" in text
    assert "A tool. example.org" in text and 'href="https://www.example.org/a/long/address"' in references
    assert text.index("One") < text.index("FlashAttention") < text.index("Two") < text.index("A tool")


def test_mentions_lead_to_figures_and_equations(local):
    page = article(local, "book/index.html")
    assert page.count('href="#my-figure"') == 1 and ">Figure 2.1</a>" in page
    assert 'href="#eq-2-1"' in page and 'id="eq-2-1"' in page
    assert "Figure 2.2 that is not there, and (2.7)" in page


def test_lines_break_where_they_may(local):
    """A number keeps its unit, code in a table breaks at its joints, and an example stays as it can be run."""
    page = article(local, "book/index.html")
    assert "12\u00a0GFLOPs." in page and "12\u00a0GB" in page
    breaks = re.sub(r"</?span[^>]*>", "", page)
    assert ">hardware_<wbr>flops<" in breaks and ">tests/<wbr>test_<wbr>a.<wbr>py<" in breaks
    example = page.split("An example:")[1]
    assert (
        "12 GFLOPs" in re.sub(r"<[^>]+>", "", example) and "12\u00a0GFLOPs" not in example and 'class="gp"' in example
    )


def test_every_page_has_its_description(local, public):
    for folder in (local, public):
        text = (folder / "book/index.html").read_text("utf8")
        assert text.count('<meta name="description"') == 1
        assert (
            '<meta name="description" content="A small book: &quot;start&quot; here, with words &amp; sources, and no more than that."'
            in text
        )
        for page in ("search.html", "genindex.html", "404.html", "book/glossary.html"):
            assert (folder / page).read_text("utf8").count('<meta name="description"') == 1, page


def test_without_an_address_no_page_names_one(local):
    assert not (local / "sitemap.xml").exists()
    for page in (*local.glob("*.html"), *local.glob("book/*.html")):
        text = page.read_text("utf8")
        assert 'property="og:' not in text and 'rel="canonical"' not in text and "github.io" not in text, page
    lost = (local / "404.html").read_text("utf8")
    assert 'href="book/index.html"' in lost and 'href="/' not in lost and 'src="/' not in lost


def test_with_an_address_pages_carry_it(public):
    page = (public / "book/index.html").read_text("utf8")
    assert f'<meta property="og:url" content="{SITE}book/index.html" />' in page
    assert f'<meta property="og:image" content="{SITE}_static/picture.png" />' in page
    assert (public / "_static/picture.png").is_file()
    assert '<meta property="og:description" content="A small book: ' in page
    assert f'<link rel="canonical" href="{SITE}book/index.html" />' in page
    lost = (public / "404.html").read_text("utf8")
    assert 'href="/some-book/book/index.html"' in lost
    relative = [
        each
        for each in re.findall(r'(?:href|src)="([^"]*)"', lost)
        if not re.match(r"/some-book/|#|https:|javascript:", each)
    ]
    assert relative == [], "a lost visitor's browser would look for these in the wrong folder"


def test_the_site_map_names_all_pages_after_a_partial_build_too(public):
    want = {f"{SITE}book/{name}.html" for name in ("index", "glossary", "references")}
    for _ in range(2):
        found = re.findall(r"<loc>(.*?)</loc>", (public / "sitemap.xml").read_text("utf8"))
        assert set(found) == want and len(found) == 3
        page = public.parents[1] / "book/glossary.md"
        page.write_text(page.read_text("utf8") + "\nOne more line.\n", "utf8")
        assert made(public.parents[1]).returncode == 0


def test_a_figure_that_cannot_be_drawn_fails_the_build(tmp_path):
    """Jupyter prints the traceback of what a cell shows, and goes on."""
    written(
        tmp_path,
        None,
        "class Figure:\n    def _repr_html_(self):\n        raise ValueError('no such mark')\n\n\nFigure()",
    )
    done = made(tmp_path)
    assert done.returncode != 0 and "could not be shown: ValueError: no such mark" in done.stderr


def test_a_fold_says_what_is_in_it(tmp_path):
    written(tmp_path, None, "print(6 * 7)", tags=("hide-input", "hide-output"))
    done = made(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    page = article(tmp_path / "_build" / "html", "book/index.html")
    assert re.findall(r"collapsed admonition-title\">([^<]+)<", page) == ["Show the code", "Show the result"]
