"""Which operator is explained by which formula."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from fractions import Fraction
from operator import index
from typing import Any

from flopkit.cost import Cost
from flopkit.counter.calls import OpCall, name_of
from flopkit.counter.work import COUNTED, Work, counted, settled

__all__ = ["FORMULAS", "explains", "formula", "forget", "users_formula"]

Formula = Callable[[OpCall], Work]

FORMULAS: dict[str, Formula] = {}  # ours, by the operator's name
_PLACES: dict[str, str] = {}  # the file of each
_THEIRS: dict[Any, Formula] = {}  # the user's, by name or by the kernel itself
RULES: dict[
    Any, Any
] = {}  # what the counter knows of operators; another one whenever a formula is registered or dropped


def explains(*names: str) -> Callable[[Formula], Formula]:
    """Register one of our formulas for all overloads of the operators *names*: ``"mm bmm"``, of torch's own unless it says whose.

    It takes an `OpCall` and gives a `Work`.
    """

    def register(function: Formula) -> Formula:
        place = inspect.getfile(function)
        for name in [name if "::" in name else f"aten::{name}" for each in names for name in each.split()]:
            if _PLACES.setdefault(name, place) != place:  # a file that is loaded again says the same again
                raise ValueError(f"two formulas explain {name}: in {_PLACES[name]} and {place}")
            FORMULAS[name] = function
        return function

    return register


def formula(op: Any, *, bytes: Callable[..., Any] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a formula for an operator of your own, so that `count` knows it.

    Parameters
    ----------
    op : Any
        What is called: ``torch.ops.mylib.fused_mlp`` (all its overloads, or one), the function that
        ``torch.library.custom_op`` made, a Triton kernel, or the operator's name, ``"mylib::fused_mlp"``.
    bytes : Callable[..., Any], optional
        What gives the bytes that the operator moves, an int, from the same arguments. Left out, they are its tensors, each read
        or written once, as with every other operator: give it for an operator that reads only part of a tensor.

    Raises
    ------
    TypeError
        Where *op* is no operator or *bytes* no function, and, when counting, where the result is no number of FLOPs or of
        bytes.
    ValueError
        For a name in ``aten::`` or ``prims::`` that this torch does not have.

    Notes
    -----
    The decorated function is called with the arguments of the operator, once for each set of shapes and dtypes, and with its
    result as ``out`` where it takes such an argument. Of a Triton kernel's arguments by name (block sizes, warps) it gets those that it
    has a parameter for, and it is called at each launch. It returns FLOPs as an int, a multiply-add being two, or a `Cost`, whose
    FLOPs and vector FLOPs are taken over; not its bytes, which are those of the dtype that the `Cost` was made with. A formula of
    yours goes before one of ours; registering again replaces it.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> @torch.library.custom_op(
    ...     "docs::double_product", mutates_args=()
    ... )
    ... def double_product(
    ...     x: torch.Tensor, w: torch.Tensor
    ... ) -> torch.Tensor:
    ...     y = 2 * (x.numpy() @ w.numpy())
    ...     return torch.from_numpy(y)
    >>> @fk.formula(double_product)
    ... def _(x, w):
    ...     (m, k), n = x.shape, w.shape[1]
    ...     return fk.matmul(m=m, k=k, n=n)
    >>> x, w = torch.ones(2, 3), torch.ones(3, 5)
    >>> report = fk.count(double_product, x, w)
    >>> report.flops, report.bytes == 4 * (2 * 3 + 3 * 5 + 2 * 5)
    (60, True)
    """
    key = _key(op)
    if bytes is not None and not callable(bytes):
        raise TypeError(f"bytes={bytes!r}: must be a function of the operator's arguments that returns bytes as an int")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise TypeError(f"@fk.formula({key}) decorates a function of the operator's arguments, not {function!r}")
        global RULES
        _THEIRS[key] = _adapted(key, function, bytes)
        RULES = {}
        return function

    return register


def forget(op: Any) -> None:
    """Drop the formula that was registered for *op* with `formula`."""
    global RULES
    _THEIRS.pop(_key(op), None)
    RULES = {}


def users_formula(func: Any) -> Formula | None:
    """The user's formula for an operator or a kernel: of this overload first, of the operator next."""
    if not _THEIRS:
        return None
    keys: list[Any] = [_full_name(func)] if hasattr(func, "_schema") else []
    keys += [name_of(func), *([func] if isinstance(func, Hashable) else [])]
    return next((_THEIRS[key] for key in keys if key in _THEIRS), None)


def _full_name(func: Any) -> str:
    return f"{func._schema.name}.{func._schema.overload_name or 'default'}"


def _key(op: Any) -> Any:
    """What *op* is found by again."""
    if isinstance(op, str):
        if "::" not in op:
            raise TypeError(f"op={op!r}: the name of an operator has its namespace in front, e.g. 'mylib::{op}'")
        _exists(op)
        return op
    if hasattr(op, "_opoverload"):  # torch.library.custom_op
        return name_of(op._opoverload)
    if hasattr(op, "_schema"):  # one overload
        return _full_name(op)
    if hasattr(op, "_qualified_op_name"):  # all overloads
        return op._qualified_op_name
    if hasattr(op, "py_kernels"):  # a higher-order operator
        return name_of(op)
    if hasattr(op, "run") and hasattr(op, "fn"):  # a Triton kernel
        return op
    raise TypeError(
        f"op={op!r} is no operator: pass torch.ops.mylib.name, what torch.library.custom_op made, a Triton kernel, or 'mylib::name'. "
        "A plain Python function needs no formula: what it calls is counted"
    )


def _exists(name: str) -> None:
    """One of torch's own operators must be there: other libraries may be loaded later."""
    import torch

    space, _, short = name.partition("::")
    if space in ("aten", "prims") and not hasattr(getattr(torch.ops, space), short.partition(".")[0]):
        raise ValueError(
            f"op={name!r}: torch {torch.__version__} has no such operator, so this formula would never be asked"
        )


def _adapted(key: Any, function: Callable[..., Any], moved: Callable[..., Any] | None) -> Formula:
    flops_of = _called(key, function)
    bytes_of = None if moved is None else _called(key, moved)

    def work(call: OpCall) -> Work:
        bytes = call.bytes() if bytes_of is None else _whole(key, "bytes", bytes_of(call), "bytes as an int")
        found = flops_of(call)
        if isinstance(found, Cost):
            # The numbers of a Cost by kind: which of them count is the report's convention.
            return Work(COUNTED, dict(found.macs_by_kind), vector=dict(found.vector_by_kind), bytes=bytes)
        flops = _whole(key, "FLOPs", found, "FLOPs as an int, or a Cost such as fk.matmul(...)")
        return counted(settled(Fraction(flops, 2)), bytes)

    return work


def _called(key: Any, function: Callable[..., Any]) -> Callable[[OpCall], Any]:
    """How to call a function of the user's with the arguments of an operator's call."""
    parameters = inspect.signature(function).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    def called(call: OpCall) -> Any:
        given = dict(call.kwargs)
        if not hasattr(key, "run"):
            if "out" not in call.named and (anything or "out" in parameters):
                given["out"] = call.out
        elif not anything:  # of a kernel's arguments (block sizes, warps) it takes those that it names
            given = {name: value for name, value in given.items() if name in parameters}
        return function(*call.args, **given)

    return called


def _whole(key: Any, what: str, found: Any, must: str) -> int:
    """*found* as a count of *what*, or an error that names it."""
    try:
        whole = int(found) if isinstance(found, float) and found.is_integer() else index(found)
    except TypeError:
        whole = None
    if whole is None or isinstance(found, bool):
        raise TypeError(f"the formula for {key} returned {found!r}: it must return {must}")
    if whole < 0:
        raise ValueError(f"the formula for {key} returned {whole} {what}: a count is never negative")
    return whole
