"""Sphinx extension: a page's part that is made by a Python function, from data, while
the book is built.

    ```{generated} tested_page:tables
    :from: _build/test-report.json flopkit/book/data/*.toml
    ```

The function, in a module of this package, takes no argument and returns Markdown. A
change in its module makes the page new, and so does a change in a file that `from`
names (from the top folder).
"""

import importlib
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective


class Generated(SphinxDirective):
    required_arguments = 1
    option_spec = {"from": directives.unchanged}

    def run(self):
        name, _, function = self.arguments[0].partition(":")
        module = importlib.import_module(f"book_ext.{name}")
        root = Path(self.env.app.confdir)
        for pattern in self.options.get("from", "").split():
            for path in sorted(root.glob(pattern)) or [root / pattern]:  # one that is not there yet may come
                self.env.note_dependency(str(path))
        self.env.note_dependency(module.__file__)
        text = getattr(module, function)()
        holder = nodes.container()
        self.state.nested_parse(text.splitlines(), self.content_offset, holder)
        return holder.children


def setup(app):
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
