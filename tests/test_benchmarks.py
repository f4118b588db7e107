"""The benchmarks still run: each gives rows of the table's form, whatever they measure. No test here looks at a time."""

import importlib.util
import inspect
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
QUICK = {
    "attaching": {"rows_attaching": {"seconds": 0.05}},
    "comparing": {"rows_comparing": {"unchanged": 2, "changed": 1, "seconds": 0.02}},
    "counting": {"memory": {"steps": 200}},
    "run": {
        "rows_imports": {"runs": 1}, "rows_counting": {"runs": 1}, "rows_models": {"runs": 1}, "rows_trees": {"runs": 1},
        "rows_lengths": {"runs": 1, "documents": 10},
    },
}  # fmt: skip
LONG = {  # whole networks, layouts, ceilings, the built book in a browser, a suite of experiments, 1,024 ranks
    "rows_counter", "rows_search", "rows_measuring", "rows_figures", "rows_pages", "rows_record", "rows_commands", "rows_simulating"
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """On a busy machine two that wait for each other take a thousand times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def benchmark(monkeypatch):
    """A file of benchmarks, by its name; it may change where modules are looked for."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])

    def load(name):
        spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_each_part_is_run_here_or_takes_long(benchmark):
    modules = [benchmark(path.stem) for path in FOLDER.glob("*.py")]
    parts = {part for module in modules for part in vars(module) if part.startswith("rows_")}
    assert parts == {part for quick in QUICK.values() for part in quick if part != "memory"} | LONG


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in QUICK.items() for part in parts])
def test_a_part_gives_rows_of_the_table(benchmark, name, part):
    found = getattr(benchmark(name), part)(**QUICK[name][part])
    rows = [*found] if inspect.isgenerator(found) else [found]
    assert rows
    for row in rows:
        what, measured, *_ = row
        assert len(row) == 4 and all(isinstance(cell, str) for cell in row)
        assert what and any(character.isdigit() for character in measured)


def test_a_counter_is_compared_with_the_others(benchmark):
    counting = benchmark("counting")
    taken = counting.measured(counting.tiny, rounds=1)
    assert {"plain", "flopkit", "torch"} <= set(taken)
    assert all(seconds > 0 for seconds in taken.values())


def test_each_simulated_model_is_one_of_the_tests(benchmark):
    """They are run there by their names: 1,024 ranks take a minute."""
    text = (FOLDER.parent / "tests" / "simulation" / "test_ranks.py").read_text("utf8")
    assert all(f"def {name}(layers)" in text for name, _ in benchmark("simulating").MODELS.values())
