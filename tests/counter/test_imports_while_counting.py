"""What is imported before something is counted and meanwhile."""

import importlib
import subprocess
import sys

import flopkit as fk

PRODUCT = "import torch\nPRODUCT = torch.ones(8, 8) @ torch.ones(8, 8)\n"


def test_a_module_of_the_program_counts(tmp_path, monkeypatch):
    (tmp_path / "program_in_a_test.py").write_text(PRODUCT)
    monkeypatch.syspath_prepend(tmp_path)
    report = fk.count(importlib.import_module, "program_in_a_test")
    monkeypatch.delitem(sys.modules, "program_in_a_test")
    assert report.flops == 2 * 8 * 8 * 8


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


def test_torch_compile_that_was_kept_from_a_count_compiles():
    """Where nothing was compiled yet, the name that a program keeps is the counter's own for a while."""
    done = python(
        "import sys, torch\n"
        "import flopkit as fk\n"
        "with fk.counting():\n"
        "    from torch import compile as kept\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "graphs = []\n"
        "def backend(graph, inputs):\n"
        "    graphs.append(graph)\n"
        "    return graph.forward\n"
        "print(kept(lambda x: x + x, backend=backend)(torch.ones(2)).tolist(), len(graphs))\n"
    )
    assert done.stdout == "[2.0, 2.0] 1\n", done.stderr
