"""Code that a page shows runs as it stands there: each name in it is imported or made in code that the page shows, too."""

import ast
import builtins

import pytest
from chapters import UNSEEN, Cell, Notebook, notebooks

BOOKS = notebooks()
UNSEEN_CODE = UNSEEN - {"hide-cell", "hide-input"}  # those two fold, and open
GIVEN = {*dir(builtins), "display"}  # by Python, and by every notebook


def made(tree):
    """Names that a cell imports, assigns, defines or takes as a parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def strangers(book):
    """Names that the code on the page reads, and that only code out of sight has made."""
    there, found = set(GIVEN), []
    for cell in book.code:
        if UNSEEN_CODE.isdisjoint(cell.tags):
            lines = (line for line in cell.text.splitlines() if not line.lstrip().startswith(("%", "!")))
            tree = ast.parse("\n".join(lines))
            there.update(made(tree))
            read = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
            found += sorted({name for name in read if name not in there})
    return found


@pytest.mark.parametrize("book", BOOKS, ids=[book.name for book in BOOKS])
def test_code_on_the_page_names_only_what_the_page_shows(book):
    assert strangers(book) == []


def test_a_name_that_only_hidden_code_imports_is_found():
    hidden = Cell("code", "from flopkit.units import seconds\nx = 1", ("remove-cell",))
    shown = Cell("code", "import flopkit as fk\nprint(seconds(fk.dense(tokens=1, d_in=x, d_out=2).flops))")
    folded = Cell("code", "y = [z for z in range(3)]", ("hide-input",))
    assert strangers(Notebook("sample", (hidden, shown, folded, Cell("code", "y")))) == ["seconds", "x"]
