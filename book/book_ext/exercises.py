"""Sphinx extension: what guesses and exercises of a page need, once a page; takeaways
get a frame.

The script of exercises (exercises.js, beside this file) gets the patterns and words of
flopkit.book.lessons.answers.
"""

import json
import re
from pathlib import Path

from docutils import nodes

from flopkit.book.lessons.answers import SHARED
from flopkit.book.lessons.prediction import STYLE

SCRIPT = Path(__file__).with_name("exercises.js")
EMPTY = "const SHARED = {};"


def script():
    text = SCRIPT.read_text("utf8")
    if EMPTY not in text:
        raise ValueError(f"{SCRIPT.name}: the line {EMPTY!r}, in whose place the words go, is missing")
    text = text.replace(EMPTY, f"const SHARED = {json.dumps(SHARED)};")
    return re.sub(r"^\s*//.*\n|^\s+", "", text, flags=re.M)  # without comments and indentation


def once_a_page(app, pagename, templatename, context, doctree):
    shown = "" if doctree is None else "".join(raw.astext() for raw in doctree.findall(nodes.raw))
    if "fk-exercise" in shown:
        app.add_js_file(None, body=script())
    if "fk-predict" in shown:
        context["metatags"] = context.get("metatags", "") + f"<style>{STYLE}</style>"


def frame_takeaways(app, doctree):
    """A block quote that begins with a bold "Takeaway": plain Markdown, which also
    reads well in a notebook."""
    for quote in doctree.findall(nodes.block_quote):
        if quote.astext().startswith("Takeaway"):
            quote["classes"].append("fk-takeaway")


def setup(app):
    app.connect("doctree-read", frame_takeaways)
    app.connect("html-page-context", once_a_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
