"""What two chapters say of the same thing: chapter 1's table of tools and chapter 7's are made from the same recorded runs."""

from __future__ import annotations

from chapters import notebooks

from flopkit.peers.recorded import recorded, versions
from flopkit.units import parse

BOOKS = {book.name: book for book in notebooks()}


def test_the_first_chapter_s_tools_print_what_the_seventh_s_print():
    """The table of chapter 1 names the version of each tool that was run, and its number is that of flopkit/data/counters.toml."""
    [cell] = [cell for cell in BOOKS["01_one_flop"].code if "in_print = [" in cell.text]
    before = "from flopkit.tables import Table\nfrom flopkit.units import si\n"
    names: dict = {}
    exec(before + cell.text, names)
    run = recorded()["ResNet-50"].printed
    rows = {source.split()[0]: (source, printed) for source, printed, *_ in names["in_print"]}
    for tool in ("fvcore", "ptflops", "thop", "torch", "calflops"):
        source, printed = rows[tool]
        assert source.split()[1] == versions()[tool].split(".post")[0]
        value, _, half = parse(printed.replace("flops", "FLOPs"))
        assert abs(value - run[tool]) <= half, (source, printed, run[tool])
