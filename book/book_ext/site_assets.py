"""Sphinx extension: the book's own style and scripts, and the buttons that lead to its
repository."""

import hashlib
import re
from pathlib import Path

from flopkit.__about__ import repository

MARK = 'class="fk-figure'  # pages that hold a figure carry it


def buttons(app, config):
    """Repository, issue and Colab buttons, where pyproject.toml says where the
    repository is."""
    if address := repository():
        config.html_theme_options |= {
            "repository_url": address,
            "repository_branch": "main",
            "use_repository_button": True,
            "use_issues_button": True,
            "launch_buttons": {"colab_url": "https://colab.research.google.com"},
        }


def folders(app):
    root = Path(app.confdir)
    return [folder for folder in (root / "book/_static", root / "flopkit/charts/static") if folder.is_dir()]


def assets(app, config):
    """Add both folders of static files; their hash is a setting, so that a change in
    one of them rewrites every page."""
    digest = hashlib.sha256()
    for folder in folders(app):
        config.html_static_path.append(str(folder))
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
    config.site_assets = digest.hexdigest()


def on_page(app, pagename, templatename, context, doctree):
    app.add_css_file("book.css")
    app.add_js_file("searching.js")
    if pagename.endswith("hardware"):
        app.add_js_file("sorting.js", loading_method="defer")
    if MARK not in context.get("body", ""):
        return
    app.add_css_file("figure.css")
    app.add_js_file("figure.js", loading_method="defer")


def lighten(app, exception):
    """The script and the style of figures without comments and indentation: every page
    with a figure loads them."""
    for name in ("figure.js", "figure.css"):
        path = Path(app.outdir) / "_static" / name
        if path.is_file():
            path.write_text(re.sub(r"^\s*//.*\n|/\*.*?\*/\n?|^\s+", "", path.read_text("utf8"), flags=re.M), "utf8")


def setup(app):
    app.add_config_value("site_assets", "", "html")
    app.connect("config-inited", buttons)
    app.connect("config-inited", assets)
    app.connect("html-page-context", on_page, priority=400)
    app.connect("build-finished", lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
