"""Sphinx extension: a page's part that is made by a Python function, from data, while the book is built.

    ```{generated} module:function
    :from: _build/test-report.json flopkit/book/data/verdicts.toml
    ```

The function takes no argument and returns Markdown. `from` names the files (from the top folder) whose change makes the page new.
Modules in this folder and in flopkit can be named.
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
        root = Path(self.env.app.confdir)
        for name in self.options.get("from", "").split():
            self.env.note_dependency(str(root / name))
        module, _, function = self.arguments[0].partition(":")
        text = getattr(importlib.import_module(module), function)()
        holder = nodes.container()
        self.state.nested_parse(text.splitlines(), self.content_offset, holder)
        return holder.children


def setup(app):
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
