"""What is imported before something is counted and meanwhile. Torch's own modules may calculate as they are loaded, which is no work of the program's."""

import importlib
import subprocess
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


# -- before ------------------------------------------------------------------------------------------------------


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_importing_loads_no_torch():
    done = python(
        "import sys, flopkit; from flopkit import count, counting, formula; assert 'torch' not in sys.modules; print('well')"
    )
    assert done.stdout == "well\n", done.stderr


def test_without_torch():
    done = python(
        "import sys; sys.modules['torch'] = None\n"
        "import flopkit as fk\n"
        "for use in (lambda: fk.count(print), lambda: fk.counting().__enter__()):\n"
        "    try: use()\n"
        "    except ImportError as error: print('torch' in str(error) and 'pip install' in str(error))\n"
        "print(fk.matmul(m=1, k=1, n=1).flops)"
    )
    assert done.stdout == "True\nTrue\n2\n", done.stderr
