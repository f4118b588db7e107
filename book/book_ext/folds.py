"""Sphinx extension: a fold says whether code or a result is in it."""

from myst_nb.sphinx_ import HideCodeCellNode

RESULT = {"below-input", "above-output"}


def say_what_is_folded(app, doctree, docname):
    for fold in doctree.findall(HideCodeCellNode):
        if RESULT.intersection(fold["classes"]):
            fold["prompt_show"], fold["prompt_hide"] = "Show the result", "Hide the result"


def setup(app):
    app.connect("doctree-resolved", say_what_is_folded)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
