"""Sphinx extension: `[MFU](glossary.md#term-MFU)` leads to the term in the glossary,
and says what it means where the mouse or the keyboard rests.

MyST finds headings of other pages by name; here the glossary's terms join them. In the
built page such a link carries the first sentence of the definition as its `title`: a
mouse that rests on the link shows it, a screen reader reads it, book.css shows it on
keyboard focus. A touch follows the link. In a notebook it is a link and nothing else.
"""

import hashlib
import re
from pathlib import Path

from docutils import nodes

GLOSSARY = "book/glossary"
LINK = re.compile(r"glossary\.html#(term-[\w-]+)$")


def first_sentence(definition):
    text = re.sub(r"\s+", " ", definition.astext())
    return re.match(r".+?[.](?= [A-Z]|$)|.+", text)[0]


def targets(app, doctree):
    """The terms are names that a Markdown link may use."""
    if app.env.docname == GLOSSARY:
        slugs = app.env.metadata[GLOSSARY].setdefault("myst_slugs", {})
        for term in doctree.findall(nodes.term):
            slugs |= {name: (term.line, name, term.astext()) for name in term["ids"]}


def meanings(app):
    """Anchor -> first sentence of the definition."""
    found = {}
    for item in app.env.get_doctree(GLOSSARY).findall(nodes.definition_list_item):
        said = first_sentence(item.next_node(nodes.definition))
        found |= {name: said for term in item.findall(nodes.term) for name in term["ids"]}
    return found


def explain(app, doctree, docname):
    for link in doctree.findall(nodes.reference):
        if match := LINK.search(link.get("refuri", "")):
            if not hasattr(app, "meanings"):
                app.meanings = meanings(app)
            link["reftitle"] = app.meanings[match[1]]
            link["classes"].append("fk-term")


def on_change(app, config):
    """The glossary is a setting, so that a change in it rewrites every page that
    explains a term."""
    config.glossary = hashlib.sha256((Path(app.confdir) / f"{GLOSSARY}.md").read_bytes()).hexdigest()


def setup(app):
    app.add_config_value("glossary", "", "html")
    app.connect("config-inited", on_change)
    app.connect("doctree-read", targets)
    app.connect("doctree-resolved", explain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
