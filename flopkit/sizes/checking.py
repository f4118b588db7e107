"""`@checked`: the arguments of a formula are checked by their annotations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, ParamSpec, TypeVar

from flopkit.names import hint
from flopkit.sizes.values import LARGEST, factor, flag, number, short, size

__all__ = ["check_fields", "checked"]

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a formula where a caller hands them over: those annotated `Size`, `Count`, `Flag` or `Whole`.

    The formula then gets ints, float64 arrays or symbols, and 1 or 0 for a switch.
    Others are left to the formula. Annotations are read as they are written, so the
    module has ``from __future__ import annotations``, and one that is not known here
    is an error.

    >>> @checked
    ... def square(*, side: Size, bias: Flag = False):
    ...     return side * side + bias
    >>> square(side=3, bias=True)
    10
    >>> square(side=0)
    Traceback (most recent call last):
        ...
    ValueError: side=0: a size must be at least 1
    >>> square(3)
    Traceback (most recent call last):
        ...
    TypeError: square takes its sizes by name: square(side=3)
    """
    by_place = function.__code__.co_argcount
    signature = inspect.signature(function)  # as it is written: True, and not 1
    checks = {name: _check(function.__name__, name, each.annotation) for name, each in signature.parameters.items()}
    defaults = function.__kwdefaults__ or {}
    defaults.update({name: flag(name, value) for name, value in defaults.items() if checks[name] is flag})

    @functools.wraps(function)
    def edge(*args: P.args, **sizes: P.kwargs) -> R:
        if len(args) > by_place:
            raise TypeError(_by_name(function.__name__, args[by_place:], list(checks)[by_place:]))
        if args:
            args = tuple(check(name, value) for (name, check), value in zip(checks.items(), args, strict=False))  # type: ignore[assignment]
        for name, value in sizes.items():
            check = checks.get(name)
            if check is None:
                raise TypeError(_unknown(function.__name__, name, list(checks)))
            # equivalent: 1 -> 2 (a size of 1 is looked at more closely, and passes)
            if type(value) is not int or not 1 <= value <= LARGEST or check is flag:
                sizes[name] = check(name, value)
        return function(*args, **sizes)

    edge.__signature__ = signature  # type: ignore[attr-defined]
    return edge


def check_fields(value: Any) -> None:
    """Check the fields of a frozen dataclass by their annotations, as `checked` checks arguments; other fields are left to it.

    For its ``__post_init__``, in a module with ``from __future__ import annotations``.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Square:
    ...     side: Size
    ...     def __post_init__(self):
    ...         check_fields(self)
    >>> Square(0)
    Traceback (most recent call last):
        ...
    ValueError: side=0: a size must be at least 1
    """
    for each in fields(value):
        if (check := _CHECKS.get(str(each.type), _trust)) is not _trust:
            object.__setattr__(value, each.name, check(each.name, getattr(value, each.name)))


def _check(function: str, name: str, annotation: Any) -> Callable[[str, Any], Any]:
    if isinstance(annotation, str) and annotation in _CHECKS:
        return _CHECKS[annotation]
    written = "not annotated" if annotation is inspect.Parameter.empty else f"annotated {annotation!r}"
    raise TypeError(
        f"{function}: {name} is {written}, which @checked does not know; write one of {', '.join(_CHECKS)}, in a module with "
        "from __future__ import annotations"
    )


def _trust(name: str, value: Any) -> Any:
    return value


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "Size": size,
    "Size | None": lambda name, value: None if value is None else size(name, value),
    "Count": functools.partial(size, minimum=0),
    "Count | None": lambda name, value: None if value is None else size(name, value, minimum=0),
    "Factor": factor,
    "Factor | None": lambda name, value: None if value is None else factor(name, value),
    "Flag": flag,
    "Whole": number,
    "Whole | None": lambda name, value: None if value is None else number(name, value),
    **dict.fromkeys(
        ("Any", "DType", "Mask", "Sequence[int] | None", "Sizes", "Sizes | None", "float", "int", "str"), _trust
    ),
}

_ELSEWHERE = {  # what other libraries call it
    "in_features": "d_in", "out_features": "d_out", "in_channels": "c_in", "out_channels": "c_out", "kernel_size": "kernel",
    "batch_size": "batch", "num_heads": "heads", "n_heads": "heads", "num_key_value_heads": "kv_heads", "embed_dim": "d_model",
    "hidden_size": "d_model", "seq_len": "q", "seq": "q", "is_causal": "mask", "causal": "mask", "num_experts": "experts",
}  # fmt: skip


def _by_name(function: str, values: Sequence[Any], names: Sequence[str]) -> str:
    given = ", ".join(f"{name}={short(value)}" for name, value in zip(names, values, strict=False))
    if not names:
        return f"{function} got {len(values)} more arguments than it takes: {', '.join(map(short, values))}"
    return f"{function} takes its sizes by name: {function}({given})"


def _unknown(function: str, name: str, names: Sequence[str]) -> str:
    if name == "convention":
        return f"{function} has no argument 'convention': it answers under EXACT; {function}(...).under(convention) translates"
    elsewhere = {other: own for other, own in _ELSEWHERE.items() if own in names}
    return f"{function} has no argument {name!r}; {hint(name, names, elsewhere)}"
