"""Sphinx extension: a name in a signature or a docstring leads to its entry, whichever
module it is written in.

Annotations and docstrings say `Size` and `Cost`, as the code does; the entries are
`flopkit.sizes.Size` and `flopkit.Cost`. A name that leads nowhere is a warning, and so
an error, unless it is Python's own.
"""

import builtins
import collections.abc
import re
import sys
import typing

from numpydoc.xref import DEFAULT_LINKS
from sphinx.util.nodes import make_refnode

OWN = {
    *vars(builtins),
    *typing.__all__,
    *collections.abc.__all__,
    "PathLike",
    "Path",
}  # Python's names, without their modules
MEMBERS = ("method", "classmethod", "staticmethod", "property", "attribute")


def plain(app, config):
    """numpydoc would lead types of Python and NumPy to the web pages of others, and the
    words between types to ours."""
    config.numpydoc_xref_aliases = {name: name for name in DEFAULT_LINKS}
    config.numpydoc_xref_ignore = {"optional", "or", "of"}


def resolve(app, env, node, contnode):
    """The one entry whose last part the name is; among several, the one that `import
    flopkit` offers.

    A member needs its class before it, except within that class, where Sphinx has found
    it already.
    """
    if node.get("refdomain") != "py":
        return None
    name = node["reftarget"].split(".")[-1] if node["reftarget"].startswith("flopkit.") else node["reftarget"]
    entries = dict(env.get_domain("py").find_obj(env, None, None, name, None, 1))
    if "." not in name:
        entries = {full: entry for full, entry in entries.items() if entry.objtype not in MEMBERS}
    places = {(entry.docname, entry.node_id) for entry in entries.values()}
    if f"flopkit.{name}" in entries or len(places) == 1:
        entry = entries.get(f"flopkit.{name}") or next(iter(entries.values()))
        return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, name)
    return contnode if name in OWN or name.split(".")[0] in sys.stdlib_module_names else None


def signature(app, what, name, obj, options, signature, returns):
    """A dataclass as one would write it: a convention by its name, a container that is
    made anew as ``{}``, types without modules."""
    if getattr(obj, "_is_protocol", False):  # a type, and nothing to call
        return "", None
    if signature:
        signature = re.sub(r"Convention\(name='(\w+)'.*?\boutside_again=\w+\)", r"\1", signature)
        signature = re.sub(r"~(?:\w+\.)*", "", signature.replace("<factory>", "{}"))
    return signature, returns


def lines(app, pagename, templatename, context, doctree):
    """A long signature has a line for each parameter. Sphinx makes them a list of
    definitions without terms, which HTML does not know."""
    tags = {
        "<dl>": '<span class="sig-lines">',
        "<dd>": '<span class="sig-line">',
        "</dd>": "</span>",
        "</dl>": "</span>",
    }

    def spans(found):
        return re.sub("</?d[ld]>", lambda tag: tags[tag[0]], found[0])

    context["body"] = re.sub(r'<dt class="sig.*?</dt>', spans, context.get("body", ""), flags=re.S)


def setup(app):
    app.connect("config-inited", plain, priority=100)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-signature", signature)
    app.connect("html-page-context", lines)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
