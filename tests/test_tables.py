"""Tables as data frames: every value as it is, in the columns' order, by the package that is there."""

import sys
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
