"""Code that a page shows runs as it stands there: each name in it is imported or made in code that the page shows, too."""

import builtins
import symtable

import pytest
from chapters import UNSEEN, Cell, Notebook, notebooks

BOOKS = notebooks()
UNSEEN_CODE = UNSEEN - {"hide-cell", "hide-input"}  # those two fold, and open
GIVEN = {*dir(builtins), "display"}  # by Python, and by every notebook


def scopes(table):
    yield table
    for inner in table.get_children():
        yield from scopes(inner)


def strangers(book):
    """Names that the code on the page reads, and that only code out of sight has made."""
    there, found = set(GIVEN), []
    for cell in book.code:
        if UNSEEN_CODE.isdisjoint(cell.tags):
            lines = (line for line in cell.text.splitlines() if not line.lstrip().startswith(("%", "!")))
            cell_wide = symtable.symtable("\n".join(lines), book.name, "exec")
            there.update(
                name.get_name() for name in cell_wide.get_symbols() if name.is_assigned() or name.is_imported()
            )
            read = {
                name.get_name()
                for scope in scopes(cell_wide)
                for name in scope.get_symbols()
                if name.is_referenced() and (scope is cell_wide or name.is_global())
            }
            found += sorted(read - there)
    return found


@pytest.mark.parametrize("book", BOOKS, ids=[book.name for book in BOOKS])
def test_code_on_the_page_names_only_what_the_page_shows(book):
    assert strangers(book) == []


def test_a_name_that_only_hidden_code_imports_is_found():
    hidden = Cell("code", "from flopkit.units import seconds\nx = 1", ("remove-cell",))
    shown = Cell("code", "import flopkit as fk\nprint(seconds(fk.dense(tokens=1, d_in=x, d_out=2).flops))")
    folded = Cell("code", "def f(x):\n    return x\ny = [z for z in range(3)]", ("hide-input",))
    assert strangers(Notebook("sample", (hidden, shown, folded, Cell("code", "f(y)")))) == ["seconds", "x"]
