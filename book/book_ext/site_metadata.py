"""Sphinx extension: what a page tells a search engine, a shared link and a lost
visitor.

Each page has a description: `description: …` in a page's front matter or in a
notebook's metadata. Where the book's address is known (flopkit.__about__.site), it also
gets a site map (sphinx-sitemap), the tags of a shared link (sphinxext-opengraph) and a
page for wrong addresses that finds its way from any depth (sphinx-notfound-page).
Without an address no page names one, and 404.html has relative links.
"""

from html import escape
from urllib.parse import urlparse

from flopkit.__about__ import site

# Pages that Sphinx makes.
SPECIAL = {
    "search": "Search the chapters, the glossary and the API of this book on counting FLOPs and bytes of neural networks.",
    "genindex": "The index of this book: every term of its glossary and every name that the package flopkit offers, by letter.",
    "404": "There is no page at this address of the book. Its contents, its search and its first page are a click away.",
}


def lost(prefix=""):
    """The page that stands where there is none; `prefix` is the site's folder on its
    host."""
    body = (
        '<section class="tex2jax_ignore mathjax_ignore" id="page-not-found"><h1>Page not found</h1>'
        f'<p>There is no page at this address. Try the <a href="{prefix}book/index.html">first page</a> '
        f'or the <a href="{prefix}search.html">search</a>.</p></section>'
    )
    return {"title": "Page not found", "body": body}


def addressed(app, config):
    """What the three extensions want to know."""
    folder = urlparse(site()).path
    config.html_baseurl = config.ogp_site_url = site()
    config.sitemap_url_scheme = "{link}"  # no folder for a language
    config.ogp_site_name = config.html_title = config.html_title or config.project
    config.ogp_image = "_static/picture.png"
    config.ogp_image_alt = "A figure of the book: the roofline of a GPU and a layer on it, with sliders"
    config.ogp_social_cards = {"enable": False}  # they would be drawn by matplotlib
    config.notfound_urls_prefix = folder
    config.notfound_context = lost(folder)


def describe(app, pagename, templatename, context, doctree):
    meta = context.get("meta") or {}
    if description := SPECIAL.get(pagename) or meta.get("description"):
        meta["og:description"] = description
        context["metatags"] = (
            context.get("metatags", "") + f'<meta name="description" content="{escape(description)}" />\n'
        )


def every_page(app, exception):
    """The site map names all pages, though an incremental build writes only some."""
    links = app.env.app.sitemap_links
    while not links.empty():
        links.get()
    for name in sorted(app.env.found_docs):
        links.put((f"{name}.html", None))


def setup(app):
    app.connect("html-page-context", describe, priority=300)
    if site():
        for name in ("sphinxext.opengraph", "sphinx_sitemap", "notfound.extension"):
            app.setup_extension(name)
        app.connect("config-inited", addressed, priority=300)
        app.connect("build-finished", every_page, priority=300)
    else:
        app.connect("html-collect-pages", lambda app: [("404", lost(), "page.html")])
    return {"parallel_read_safe": True, "parallel_write_safe": True}
