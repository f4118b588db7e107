"""Sphinx extension: "Figure 2.1" and "(2.1)" in the text lead to the figure and the
equation that bear the number.

The numbers stand in the chapters as plain text, `figure.numbered("2.1")`,
`derivation(…, number="2.1")` and `\\tag{2.1}`, and references are plain text as well:
they read the same in Colab and on paper. Here the built page gets its links.
tests/book/test_links.py holds the order.
"""

import re

from docutils import nodes

FIGURE = re.compile(r"<figure [^>]*?\bid=([\w-]+)[^>]*>.*?<figcaption>(Figure \d+\.\d+)\.", re.S)
EQUATION = re.compile(r"\\tag\{(\d+\.\d+)\}")
MENTION = re.compile(r"Figure \d+\.\d+|(?<=\()\d+\.\d+(?=\))")
LITERAL = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw, nodes.reference)


def places(env):
    """ "Figure 2.1" or "2.1" -> the page and the anchor."""
    if not hasattr(env, "numbered_places"):
        env.numbered_places = {}
    return env.numbered_places


def forget(app, env, docname):
    env.numbered_places = {number: place for number, place in places(env).items() if place[0] != docname}


def collect(app, doctree):
    docname, found = app.env.docname, places(app.env)
    for block in doctree.findall(nodes.raw):
        found |= {number: (docname, name) for name, number in FIGURE.findall(block.astext())}
    for block in doctree.findall(nodes.math_block):
        for number in EQUATION.findall(block.astext()):
            anchor = f"eq-{number.replace('.', '-')}"  # the theme's script takes anchors for selectors: no dot
            block["ids"].append(anchor)
            found[number] = (docname, anchor)


def link(app, doctree, docname):
    found = places(app.env)
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, LITERAL) or not MENTION.search(text):
            continue
        parts, end = [], 0
        for match in MENTION.finditer(text):
            if match[0] in found:
                page, anchor = found[match[0]]
                address = "" if page == docname else app.builder.get_relative_uri(docname, page)
                parts += [nodes.Text(text[end : match.start()])]
                parts += [nodes.reference("", match[0], refuri=f"{address}#{anchor}", internal=True)]
                end = match.end()
        text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def setup(app):
    app.connect("env-purge-doc", forget)
    app.connect("doctree-read", collect)
    app.connect("doctree-resolved", link)
    return {"env_version": 2, "parallel_read_safe": False, "parallel_write_safe": True}
