"""Sphinx extension: where lines may break. The chapters themselves hold plain spaces.

A number and its unit stay on one line, and so does 7 × 7. Code in a table may break
behind `_`, `.` and `/`, so that narrow columns do not break `hardware_flops` in
mid-word.
"""

import re

from docutils import nodes

PREFIX = "[kMGTPEZ]?"
UNIT = rf"%|{PREFIX}(?:FLOPs?|MACs?|B|FLOP/s|B/s|FLOP/B)\b|[µmn]?s\b|[GMT]i?B\b|tokens?\b|FLOPs per byte\b"
GAP = re.compile(rf"(?<=\d) (?={UNIT}|× \d)|(?<=\d ×) (?=\d)|(?<=\d\u00a0×) (?=\d)")
PART = re.compile(r"(?<=\w[_./])(?=\w)")
AS_IT_IS = (nodes.literal, nodes.literal_block, nodes.doctest_block, nodes.math, nodes.math_block, nodes.raw)


def keep_together(app, doctree, docname):
    for text in list(doctree.findall(nodes.Text)):
        if not isinstance(text.parent, AS_IT_IS):
            kept = GAP.sub("\u00a0", text)
            if kept != text:
                text.parent.replace(text, nodes.Text(kept))
    for block in doctree.findall(nodes.literal_block):  # the pages' examples end with an empty line, for doctest
        if block.rawsource == block.astext():
            block.rawsource = block.rawsource.rstrip()
            block.clear()
            block += nodes.Text(block.rawsource)
    for entry in doctree.findall(nodes.entry):
        for code in entry.findall(nodes.literal):
            first, *rest = PART.split(code.astext())
            if rest and app.builder.format == "html":
                code.children.clear()
                code += nodes.Text(first)
                for part in rest:
                    code += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]


def setup(app):
    app.connect("doctree-resolved", keep_together)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
