"""A figure of the gallery in a page that is no notebook, as a part that a function
makes."""

from flopkit.charts import html


def embedded(figure):
    """The figure, with which the page loads the book's script and style."""
    return f"```{{raw}} html\n{html.fragment(figure)}\n```"
