"""The tools themselves, where they are installed: what the chapter and the tests compare with.

``python -m flopkit.peers.installed`` prints the folder that ultralytics-thop is installed into. It has the same module name
as thop, so it stands apart from it, and is imported from there.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["APART", "load", "version"]

APART = Path(sys.prefix) / "flopkit-peers" / "ultralytics-thop"
_MODULES = {"fvcore": "fvcore.nn", "torch": "torch.utils.flop_counter", "ultralytics-thop": "thop"}
_loaded: dict[str, Any] = {}


def load(tool: str) -> Any:
    """The module of *tool* (its name on PyPI); None where it is not installed, or cannot be imported here.

    >>> load("a-tool-that-nobody-wrote") is None
    True
    """
    if tool not in _loaded:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old packages announce their own future
            _loaded[tool] = _apart() if tool == "ultralytics-thop" else _import(_MODULES.get(tool, tool))
    return _loaded[tool]


def version(tool: str) -> str | None:
    """The version of *tool* that is installed; None where none is."""
    if tool == "ultralytics-thop":
        found = next(iter(metadata.distributions(name=tool, path=[str(APART)])), None)
        return found.version if found else None
    try:
        return re.sub(r"-(\d+)$", r".post\1", metadata.version(tool))  # thop writes its version in an older form
    except metadata.PackageNotFoundError:
        return None


def _import(name: str) -> Any:
    if importlib.util.find_spec(name.split(".")[0]) is None:
        return None
    try:
        return importlib.import_module(name)
    except ImportError:  # thop needs distutils, calflops needs transformers
        return None


def _apart() -> Any:
    """ultralytics-thop from its own folder, without being taken for thop, or thop for it."""
    if not (APART / "thop" / "__init__.py").exists():
        return None
    aside = _set_aside()
    sys.path.insert(0, str(APART))
    try:
        return importlib.import_module("thop")
    except ImportError:
        return None
    finally:
        sys.path.remove(str(APART))
        _set_aside()
        sys.modules.update(aside)


def _set_aside() -> dict[str, Any]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "thop"}


if __name__ == "__main__":
    print(APART)
