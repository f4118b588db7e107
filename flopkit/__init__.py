"""flopkit: every FLOP accounted for.

Closed forms, counters and measurements for the arithmetic and the memory traffic of neural networks.

>>> import flopkit as fk
>>> fk.matmul(m=4096, k=4096, n=4096).flops
137438953472

Importing this package loads nothing heavy: each public name, and each room, is fetched when first used. Which names there
are is in one place, ``__init__.pyi``, which type checkers read, too.
"""

from __future__ import annotations

_HOMES: dict[str, str] = {}  # public name: the room it comes from; empty until somebody asks


def __getattr__(name: str) -> object:
    from importlib import import_module

    homes = _read_homes()
    if name == "__all__":
        value: object = sorted(homes)
    elif name not in homes and not _is_room(name):
        raise AttributeError(f"module 'flopkit' has no attribute {name!r}{_way_out(name)}")
    elif homes.get(name, "flopkit") == "flopkit":
        value = import_module(f"flopkit.{name}")
    else:
        value = getattr(import_module(homes[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_read_homes())


def _read_homes() -> dict[str, str]:
    if not _HOMES:
        import ast

        lines = (line for line in ast.parse(_file("__init__.pyi")).body if isinstance(line, ast.ImportFrom))
        _HOMES.update({alias.name: line.module for line in lines for alias in line.names})  # at once, for other threads
    return _HOMES


def _is_room(name: str) -> bool:
    """Whether there is a module of this name: ``fk.training.adam_step`` needs no second import."""
    from importlib.util import find_spec

    return name.isidentifier() and not name.startswith("_") and find_spec(f"flopkit.{name}") is not None


def _way_out(name: str) -> str:
    """What to type instead of a name that is not here."""
    if name.startswith("_"):  # tools ask for those
        return ""
    from flopkit.names import elsewhere, hint

    answer = elsewhere(name)
    return f"; here it is {answer}" if answer else f"; {hint(name, __dir__(), listed='dir(flopkit)')}"


def _file(path: str) -> str:
    from pkgutil import get_data

    return get_data("flopkit", path).decode()
