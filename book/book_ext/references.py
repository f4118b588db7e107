"""Sphinx extension: the page of references is made from references.bib, and `[Dao et
al. 2022](references.md#dao2022)` leads to an entry.

sphinxcontrib-bibtex reads the file and lists its entries. Here stand the style of an
entry (authors, title, note, where and when, link) and the anchors: the key of an entry,
which a plain Markdown link can name, so that a notebook reads well where there is no
Sphinx.
"""

from urllib.parse import urlparse

from pybtex.plugin import register_plugin
from pybtex.richtext import HRef
from pybtex.style.formatting import toplevel
from pybtex.style.formatting.unsrt import Style as Unsrt
from pybtex.style.template import field, first_of, join, node, optional, sentence, tag, words


@node
def link(children, data):
    """The address of the entry, shown by the name of its site, or of its repository."""
    url = data["entry"].fields["url"]
    parts = urlparse(url)
    name = "/".join(parts.path.split("/")[1:3]) if parts.netloc == "github.com" else parts.netloc.removeprefix("www.")
    return HRef(url, name)


class Style(Unsrt):
    """One form for all kinds of entries: A. Author and others. *Title* (note). Where,
    when. Link."""

    def entry(self, e):
        return toplevel[
            optional[sentence[self.format_names("author")]],
            sentence[words[tag("em")[field("title")], optional[join["(", field("note"), ")"]]]],
            sentence[
                optional[field("edition")],
                optional[field("journal")],
                optional[field("publisher")],
                optional[field("year")],
            ],
            first_of[
                optional[self.format_eprint(e)],
                optional[self.format_doi(e)],
                optional[link if "url" in e.fields else field("url")],
            ],
        ]

    get_article_template = get_book_template = get_misc_template = entry


def name_entries(app, env):
    """Each entry's anchor is its key. bibtex makes its own, one for each list that
    might hold the entry."""
    domain = env.get_domain("cite")
    for citation in domain.citations:
        docname = citation.bibliography_key.docname
        domain.bibliographies[citation.bibliography_key].citation_nodes[citation.key]["ids"] = [citation.key]
        env.metadata[docname].setdefault("myst_slugs", {})[citation.key] = (0, citation.key, citation.key)


def setup(app):
    register_plugin("pybtex.style.formatting", "book", Style)
    app.connect("env-updated", name_entries, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
