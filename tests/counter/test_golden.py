"""Programs whose every operator is held to the answer that was kept; `python tools/golden.py` compares them all, and the whole suite."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import flopkit as fk

pytest.importorskip("torchvision")
pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

TOOL = Path(__file__).resolve().parents[2] / "tools" / "golden.py"
spec = importlib.util.spec_from_file_location("golden", TOOL)
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

KEPT = golden.kept()


@pytest.mark.parametrize("name", golden.QUICK)
@pytest.mark.filterwarnings("ignore")
def test_every_operator_costs_what_it_did(name):
    if KEPT["versions"] != golden.versions():
        pytest.skip(f"the answers were kept with {KEPT['versions']}, this is {golden.versions()}")
    assert golden.differences_of_program(name, golden.kept_program(name), KEPT["programs"][name]) == []


def test_all_programs_are_kept():
    assert set(KEPT["programs"]) == set(golden.PROGRAMS) and set(golden.QUICK) <= set(golden.PROGRAMS)
    assert golden.FILE.stat().st_size < 300_000


def test_another_work_is_named():
    """A program with one product more; a signature with another work, one that is new, one that is gone."""
    then = {"model": 2, "rows": {"mm": "aa", "add": "bb"}}
    assert golden.differences_of_program("p", {"model": 4, "rows": {"mm": "cc", "add": "bb"}}, then) == [
        "p: model 2 was, 4 is",
        "p: the rows of mm differ",
    ]
    wrong, alone = golden.differences_of_suite(
        {"mm": {"1": "a", "2": "b"}, "new": {"1": "a"}}, {"mm": {"1": "c", "2": "a b"}, "gone": {"1": "a"}}
    )
    assert wrong == ["mm: another work for 1 of 2 signatures"]
    assert alone == ["gone: 1 signatures that are not met any more", "new: 1 signatures that were not met before"]


def test_a_formula_that_changes_is_seen(monkeypatch):
    """The product's formula off by one multiply-add: both halves of the tool say so."""
    import torch

    def works():
        found = []
        with golden.every_report(lambda report: found.extend(golden.lines_of(report))):
            fk.count(torch.mm, torch.ones(2, 3), torch.ones(3, 5))
        return [(op, signature, work) for op, signature, work, _, _ in found if op == "mm"]

    [(_, signature, before)] = works()
    mine = fk.formula(torch.ops.aten.mm)
    try:
        mine(lambda a, b, **_: 2 * 31)
        [(_, same, after)] = works()
    finally:
        from flopkit.counter.registry import forget

        forget(torch.ops.aten.mm)
    assert same.startswith(signature[:-1]) and after != before  # a formula of the user's is told the floats, too
    assert works() == [("mm", signature, before)]
