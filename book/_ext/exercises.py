"""Sphinx extension: the pages' script for exercises, with the factors that flopkit.lessons.check knows; takeaways get a frame."""

import json
from pathlib import Path

from docutils import nodes

from flopkit.lessons.exercises import FACTORS

SCRIPT = Path(__file__).resolve().parents[1] / "_static" / "exercises.js"
EMPTY = "const FACTORS = [];"


def script():
    text = SCRIPT.read_text("utf8")
    if EMPTY not in text:
        raise ValueError(f"{SCRIPT.name}: the line {EMPTY!r}, which the factors replace, is missing")
    return text.replace(EMPTY, f"const FACTORS = {json.dumps(list(FACTORS.items()))};")


def only_where_asked(app, pagename, templatename, context, doctree):
    if doctree is not None and any("fk-exercise" in raw.astext() for raw in doctree.findall(nodes.raw)):
        app.add_js_file(None, body=script())


def frame_takeaways(app, doctree):
    """A block quote that begins with a bold "Takeaway": plain Markdown, which also reads well in a notebook."""
    for quote in doctree.findall(nodes.block_quote):
        if quote.astext().startswith("Takeaway"):
            quote["classes"].append("fk-takeaway")


def setup(app):
    app.connect("doctree-read", frame_takeaways)
    app.connect("html-page-context", only_where_asked)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
