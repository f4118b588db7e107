"""A plugin for pytest: what nbval executed, the build of the book need not execute again.

nbval runs each chapter as the build does (`FLOPKIT_BOOK`, no progress bars). When all cells of a chapter have passed,
their outputs go into the cache from which Jupyter Book takes them (book/book_ext/execution_cache.py).
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path

import nbval.plugin
import pytest
from nbformat import NotebookNode

from book_ext import execution_cache

ROOT = Path(__file__).resolve().parent.parent


@functools.cache
def cache():
    """Jupyter's cache for the book as it is now."""
    from jupyter_cache import get_cache

    return get_cache(ROOT / "_build" / "executed" / execution_cache.key(ROOT))


class Kernel(nbval.plugin.RunningKernel):
    """A kernel that shows figures as the built pages have them."""

    def __init__(self, *args, **kwargs):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in execution_cache.INHERITED.items():
                patch.setenv(name, value)
            super().__init__(*args, **kwargs)


def notebook(cells, nb):
    """The notebook *nb* with the outputs that nbval got from its code *cells*, or None if one of them was not run."""
    done = copy.deepcopy(nb)
    code = [cell for cell in done.cells if cell.cell_type == "code"]
    if set(cells) != set(range(len(code))):
        return None
    for count, (number, outputs) in enumerate(sorted(cells.items()), 1):
        code[number].execution_count = count
        code[number].outputs = [NotebookNode(each) for each in outputs]
        for each in code[number].outputs:
            if each.output_type == "execute_result":
                each.execution_count = count
    return done


class Executed:
    def __init__(self):
        self.passed: dict[Path, dict[int, list]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if isinstance(item, nbval.plugin.IPyNbCell) and report.when == "call" and report.passed:
            path = Path(item.path)
            cells = self.passed.setdefault(path, {})
            cells[item.cell_num] = item.test_outputs
            done = notebook(cells, item.parent.nb)
            if done is not None and path.is_relative_to(ROOT / "book"):
                self.keep(path, done)
        return report

    def keep(self, path, done):
        from jupyter_cache.base import CacheBundleIn

        bundle = CacheBundleIn(done, str(path), data={"execution_seconds": None})
        cache().cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def install(config):
    nbval.plugin.RunningKernel = Kernel
    config.pluginmanager.register(Executed(), "executed")
