"""Sphinx extension: the book asks nothing of the network.

MathJax and the Vega bundle come from pinned Python packages and are copied to
`_static/vendor/`. They are gathered under `_build`, not under book/_static, because
Jupyter Book puts every script it finds there on every page. A built page that names a
script, style, picture or font on another host fails the build.
"""

import importlib.util
import re
import shutil
from pathlib import Path

from sphinx.errors import SphinxError

from flopkit.charts.html import vega_bundle

MATHJAX = (
    "tex-chtml.js",
    "output/chtml/fonts/woff-v2",
    "input/tex/extensions",
    "a11y",
    "sre/mathmaps/base.json",
    "sre/mathmaps/en.json",
)


def gather(app):
    """Fill _build/vendor and let Sphinx copy it."""
    if app.builder.format != "html":
        return
    root = Path(app.confdir) / "_build" / "vendor"
    vendor = root / "vendor"
    mathjax = Path(importlib.util.find_spec("mathjax").submodule_search_locations[0]) / "static/mathjax/es5"
    for name in MATHJAX:
        source, target = mathjax / name, vendor / "mathjax" / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    bundle = vega_bundle()
    target = vendor / "vega.js"
    if not target.exists() or target.read_text("utf8") != bundle:
        target.write_text(bundle, "utf8")
    app.config.html_static_path.append(str(root))


def drop_thebe(app, pagename, templatename, context, doctree):
    """Jupyter Book loads sphinx-thebe always, which declares one constant twice (an
    error in the console) and names a CDN."""

    def ours(asset):
        inline = getattr(asset, "attributes", {}).get("body") or ""
        return "THEBE_JS_URL" not in inline and "thebe" not in str(getattr(asset, "filename", asset) or "")

    for kind in ("script_files", "css_files"):
        context[kind][:] = [asset for asset in context[kind] if ours(asset)]


RESOURCE = re.compile(
    r"""<(?:script|img|iframe|source|audio|video|embed)\b[^>]*?\bsrc=["']?((?:https?:)?//[^"'\s>]+)""", re.I
)
LINK = re.compile(
    r"""<link\b(?=[^>]*\brel=["']?(?:[\w -]*\b)?(?:stylesheet|preload|modulepreload|icon|preconnect|dns-prefetch|manifest)\b)[^>]*?\bhref=["']?((?:https?:)?//[^"'\s>]+)""",
    re.I,
)
STYLE = re.compile(r"""(?:@import\s+(?:url\()?|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")


def outside(folder):
    """Lines `file: address` for each resource under `folder` that a browser would fetch
    from another host."""
    found = set()
    for path in folder.rglob("*"):
        if path.suffix == ".html" and "_static" not in path.relative_to(folder).parts:
            text = path.read_text("utf8", "replace")
            found |= {(path, m) for pattern in (RESOURCE, LINK) for m in pattern.findall(text)}
        elif path.suffix == ".css":
            found |= {(path, m) for m in STYLE.findall(path.read_text("utf8", "replace"))}
    return sorted(f"{path.relative_to(folder)}: {address}" for path, address in found)


def finish(app, exception):
    if exception or app.builder.format != "html":
        return
    out = Path(app.outdir)
    pages = {out / f"{name}.html" for name in app.env.found_docs}
    for page in (out / "book").rglob("*.html"):
        if page not in pages:
            page.unlink()  # a chapter that has gone
    if bad := outside(out):
        raise SphinxError("these pages would ask another host:\n  " + "\n  ".join(bad))


def setup(app):
    app.connect("builder-inited", gather)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
