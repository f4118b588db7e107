"""What is imported while something is counted: torch's own modules may calculate as they are loaded, which is no work of the program's."""

import importlib
import sys

import torch

import flopkit as fk

PRODUCT = "import torch\nPRODUCT = torch.ones(8, 8) @ torch.ones(8, 8)\n"


def test_a_module_of_torch_that_calculates_while_it_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "loaded_in_a_test.py").write_text(PRODUCT)
    monkeypatch.setattr(torch, "__path__", [*torch.__path__, str(tmp_path)])
    with fk.counting() as report:
        module = importlib.import_module("torch.loaded_in_a_test")
        torch.ones(4, 4) @ torch.ones(4, 4)
    monkeypatch.delitem(sys.modules, "torch.loaded_in_a_test")
    del torch.loaded_in_a_test
    assert module.PRODUCT[0, 0] == 8
    assert report.flops == 2 * 4 * 4 * 4
    assert not any(row["calls"] for row in report.by_op() if row["flops"] == 2 * 8 * 8 * 8)


def test_one_that_fails_leaves_the_rest_counted(tmp_path, monkeypatch):
    (tmp_path / "failing_in_a_test.py").write_text(PRODUCT + "1 / 0\n")
    monkeypatch.setattr(torch, "__path__", [*torch.__path__, str(tmp_path)])
    with fk.counting() as report:
        try:
            importlib.import_module("torch.failing_in_a_test")
        except ZeroDivisionError:
            torch.ones(4, 4) @ torch.ones(4, 4)
    assert report.flops == 2 * 4 * 4 * 4


def test_a_module_of_the_program_counts(tmp_path, monkeypatch):
    (tmp_path / "program_in_a_test.py").write_text(PRODUCT)
    monkeypatch.syspath_prepend(tmp_path)
    report = fk.count(importlib.import_module, "program_in_a_test")
    monkeypatch.delitem(sys.modules, "program_in_a_test")
    assert report.flops == 2 * 8 * 8 * 8


def test_a_module_that_is_changed_once_it_is_loaded(monkeypatch):
    name = "torch.nn.attention.bias"
    importlib.import_module(name)
    before = sys.modules.pop(name)
    try:
        with fk.counting():
            module = importlib.import_module(name)
            assert module is not before
            assert "__new__" in vars(module.CausalBias)
            assert isinstance(module.causal_lower_right(3, 5), module.CausalBias)
    finally:
        sys.modules[name] = torch.nn.attention.bias = before


def test_a_pool_whose_module_is_loaded_meanwhile(monkeypatch):
    name = "multiprocessing.pool"
    importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    with fk.counting() as report, importlib.import_module(name).ThreadPool(1) as pool:
        pool.apply(torch.mm, (torch.ones(4, 4), torch.ones(4, 4)))
    assert report.flops == 2 * 4 * 4 * 4
