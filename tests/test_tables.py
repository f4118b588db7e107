"""Tables as data frames: every value as it is, in the columns' order, by the package that is there."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import flopkit as fk
from flopkit.tables import Table


@pytest.fixture(params=["pandas", "polars"])
def package(request, monkeypatch):
    """Only this one of the two is there; its data frame is the mapping that it was given."""
    for name in ("pandas", "polars"):
        fake = SimpleNamespace(
            DataFrame=lambda data, name=name, **options: {"of": name, "data": data, "options": options}
        )
        monkeypatch.setitem(sys.modules, name, fake if name == request.param else None)
    return request.param


def test_columns_that_are_shown_come_first_and_missing_values_stay_missing(package):
    table = Table([{"a": 1, "hidden": 2**70}, {"a": 0.5, "b": "x"}], columns=["b", "a"])
    frame = table.to_frame()
    assert frame["of"] == package
    assert list(frame["data"].items()) == [("b", [None, "x"]), ("a", [1, 0.5]), ("hidden", [2**70, None])]
    assert frame["options"] == ({} if package == "pandas" else {"strict": False})


def test_results_are_frames_of_their_tables(package):
    cost = fk.dense(tokens=2, d_in=3, d_out=5)
    assert cost.to_frame() == cost.table().to_frame() and cost.to_frame()["data"]["FLOPs"] == [60]
    report = fk.count(torch.nn.Linear(3, 5), torch.ones(2, 3))
    assert report.to_frame() == report.by_op().to_frame() and sum(report.to_frame()["data"]["flops"]) == 60


def test_pandas_is_asked_first(monkeypatch):
    for name in ("polars", "pandas"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(DataFrame=lambda data, name=name, **_: name))
    assert Table([]).to_frame() == "pandas"


def test_without_either_it_is_said_what_to_install(monkeypatch):
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="needs pandas or polars.*pip install pandas"):
        Table([{"a": 1}]).to_frame()


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_the_real_package_keeps_the_numbers(package, monkeypatch):
    for other in {"pandas", "polars"} - {package}:
        monkeypatch.setitem(sys.modules, other, None)
    frame = Table([{"a": 1, "b": 2**70, "c": 2**127}, {"a": 2.5, "b": 3, "c": 2**127 - 1}]).to_frame()
    assert (
        type(frame).__module__.startswith(package) and list(frame["a"]) == [1, 2.5] and list(frame["b"]) == [2**70, 3]
    )
    assert list(frame["c"]) == [2**127, 2**127 - 1]


def test_a_table_without_a_caption_begins_with_its_columns():
    assert str(Table([{"part": "dense"}])).splitlines()[0] == "part"


# -- columns ----------------------------------------------------------------------------------------------------


def program():
    """A training step with an operator of each status."""
    layer = torch.nn.Linear(3, 5)
    return fk.count(lambda: layer(torch.ones(2, 3)).sum().backward())


def missed():
    q = torch.ones(1, 2, 8, 4)
    return fk.count(torch.nn.functional.scaled_dot_product_attention, q, q, q).as_seen_by("torch")


def ledger():
    with fk.tally.counting() as found:
        fk.tally.dense(tokens=2, d_in=3, d_out=5)
    return found


def unknown():
    """A report of an operator that nobody explains: its row has the columns."""

    @torch.library.custom_op("tests_of_tables::unknown", mutates_args=())
    def op(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() + 1)

    return fk.count(op, torch.ones(3))


def columns_that_are_told(text):
    """The words between asterisks in the paragraph that begins with "Columns:"."""
    (told,) = re.findall(r"Columns: (.*?)(?:\n\s*\n|\Z)", text, re.S)
    return re.findall(r"\*([\w /-]+)\*", told)


DOCUMENTED = {
    "by_op": (fk.Report.by_op, lambda: program().by_op().rows[0]),
    "by_module": (fk.Report.by_module, lambda: program().by_module().rows[0]),
    "uncounted": (fk.Report.uncounted, lambda: unknown().uncounted[0]),
    "as_seen_by": (type(missed()).missed, lambda: missed().missed.rows[0]),
    "roofline": (type(program().roofline("a10")).table, lambda: program().roofline("a10").table().rows[0]),
    "ask_all": (fk.peers.ask_all, lambda: fk.peers.ask_all(torch.nn.Linear(3, 5), torch.ones(2, 3), tools=["torch"]).rows[0]),
    "Cost": (fk.Cost.table, lambda: (fk.dense(tokens=2, d_in=3, d_out=5) + fk.softmax(rows=2, columns=5)).table().rows[0]),
    "Device": (fk.Device.table, lambda: fk.device("h100-sxm").table().rows[0]),
    "Ledger": (type(ledger()).table, lambda: ledger().table().rows[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_columns_that_are_documented_are_there(name):
    documented, row = DOCUMENTED[name]
    assert columns_that_are_told(documented.__doc__) == list(row())


@pytest.mark.parametrize("name", ["by_op", "by_module"])
def test_the_page_on_the_counter_lists_the_same_columns(name):
    page = (Path(__file__).parents[1] / "book" / "counter.md").read_text("utf8")
    table = page.split(f"| Column of `{name}` |")[1].split("\n\n")[0]
    told = [word for line in table.splitlines()[2:] for word in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert told == list(DOCUMENTED[name][1]())


def test_a_number_and_its_per_cent_stay_on_one_line():
    assert (
        ">52&nbsp;%<"
        in Table([{"share": 0.52}], formats={"share": lambda share: f"{share:.0%}".replace("%", " %")})._repr_html_()
    )


def test_a_row_that_is_set_in_and_a_number_with_its_unit_stay_so_in_a_page():
    rows = [{"part": "layers", "FLOPs": 14}, {"part": "  q_proj", "FLOPs": 7}]
    page = Table(rows, formats={"FLOPs": lambda value: f"{value} GFLOPs"})._repr_html_()
    assert ">&nbsp;&nbsp;q_proj<" in page and ">14&nbsp;GFLOPs<" in page and ">layers<" in page


def test_rows_of_a_word_are_folded_in_html_and_stand_in_the_text():
    rows = [{"whose": "ours", "ms": 1.5}, {"whose": "yours, fp32", "ms": 70.0}]
    table = Table(rows, caption="two runs", folded="yours")
    above, under = table._repr_html_().split("<details>")
    assert "ours" in above and "yours" not in above and above.count("<caption>") == 1
    assert (
        under.startswith("<summary>Yours: 1 row</summary><table")
        and "yours, fp32" in under
        and "<caption>" not in under
    )
    assert len(table) == 2 and "yours, fp32" in str(table)
    assert "<details>" not in Table(rows[:1], folded="yours")._repr_html_()
    alone = Table(rows[1:], caption="two runs", folded="yours")._repr_html_()
    assert re.findall("<summary>(.*?)</summary>", alone) == ["two runs: 1 row"]
    assert alone.count("<table") == 1 and "<caption>" not in alone, "no table without rows above the fold"
