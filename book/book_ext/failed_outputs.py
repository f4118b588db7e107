"""Sphinx extension: a cell whose output could not be shown is a warning, which the build takes for an error.

Jupyter catches what a figure raises while it is drawn: the cell ends well, and the page
shows a traceback in the place of the figure.
"""

from docutils import nodes
from sphinx.util import logging

ALLOWED = "tag_raises-exception"
logger = logging.getLogger(__name__)


def look(app, doctree):
    for cell in doctree.findall(nodes.container):
        classes = cell.get("classes", ())
        if "cell" not in classes or ALLOWED in classes:
            continue
        for shown in cell.findall(nodes.literal_block):
            if "traceback" in shown.get("classes", ()):
                last = shown.astext().strip().splitlines()[-1]
                logger.warning("the output of a cell could not be shown: %s", last, location=cell, type="book", subtype="failed_output")  # fmt: skip


def setup(app):
    app.connect("doctree-read", look)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
