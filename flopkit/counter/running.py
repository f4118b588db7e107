"""`count` and `counting`: watch a program, and say what it did."""

from __future__ import annotations

import contextlib
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from flopkit import units
from flopkit.arithmetic import brief
from flopkit.counter.report import Report
from flopkit.counter.watch.compiler import left_to_python, uncompiled

__all__ = ["UncountedError", "count", "counting", "in_order"]


class UncountedError(RuntimeError):
    """Raised under ``strict=True``: an operator without a formula ran. ``.report`` is what was counted.

    >>> import torch, flopkit as fk
    >>> @torch.library.custom_op(
    ...     "docs::halved", mutates_args=()
    ... )
    ... def halved(x: torch.Tensor) -> torch.Tensor:
    ...     return torch.from_numpy(x.numpy() / 2)
    >>> try:
    ...     fk.count(halved, torch.ones(4), strict=True)
    ... except fk.UncountedError as error:
    ...     print(error.report.uncounted)
    [{'operator': 'docs.halved', 'calls': 1, 'bytes': 32}]
    """

    def __init__(self, report: Report) -> None:
        names = ", ".join(
            f"{row['operator']} ({units.count(row['calls'], 'calls')}), {row['bytes']:,} bytes"
            for row in report.uncounted
        )
        super().__init__(
            f"not counted: {names}. Register a formula with @fk.formula(op), or pass strict=False to have them listed"
        )
        self.report = report

    def __reduce__(self) -> Any:  # from a worker's process, too
        return UncountedError, (self.report,)


@left_to_python
def count(fn: Callable[..., Any], /, *args: Any, strict: bool = False, **kwargs: Any) -> Report:
    """Run ``fn(*args, **kwargs)`` once, unchanged, and report what it did.

    FLOPs: two for each multiply-add of matrix products, convolutions, attention and other contractions; element-wise work
    stands apart in `Report.vector_flops`. Bytes: the compulsory traffic of each operator. The default convention is TORCH: every
    position of a score matrix counts; ``report.under(fk.conventions.EXACT)`` counts those that the program's mask lets through.

    Parameters
    ----------
    fn : Callable[..., Any]
        A model, or any function. It really runs: BatchNorm's statistics move in train mode as they do in a call of your
        own, and ``backward()`` adds to ``.grad``. Put the model on the meta device to count without memory or arithmetic.
    *args : Any
        What *fn* is called with.
    strict : bool, optional
        Raise `UncountedError` if an operator without a formula ran, instead of listing it in `Report.uncounted`.
    **kwargs : Any
        What *fn* is called with, by name.

    Raises
    ------
    TypeError
        If *fn* cannot be called.
    ImportError
        Without torch.
    UncountedError
        If *strict* is set and an operator has no formula.

    Notes
    -----
    If *fn* has an argument ``strict`` of its own, ``fk.count(lambda: fn(x, strict=True))`` passes it. An exception inside *fn*
    reaches you unchanged, with nothing left behind.

    Not counted: what no dispatcher sees: arithmetic in NumPy or in Python itself, extensions that launch kernels without an
    operator, other processes. The page *The counter in detail* has the whole list.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> layer = torch.nn.Linear(16, 32)
    >>> fk.count(layer, torch.ones(8, 16)).flops
    8192
    """
    if not callable(fn):
        raise TypeError(
            f"fn={_shown(fn)} cannot be called: pass a model or a function and its arguments, fk.count(model, x), "
            "or use `with fk.counting() as report:` around your code"
        )
    with _counting(strict, name=_name(fn)) as report:
        result = fn(*args, **kwargs)  # kept until counting ends, as a caller would keep it
        if late := _not_run(result):
            report.add_note(
                f"{_name(fn)} returned {late}, which has not run to its end: what it does later is not counted; "
                "run it in a function or in `with fk.counting()`"
            )
            if isinstance(result, types.CoroutineType):
                result.close()
    return report


@left_to_python
def in_order(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
    """As `flopkit.count`, and the report also keeps every call in its order, in ``order``: what a profile joins to the events of a trace.

    Parameters
    ----------
    fn : Callable[..., Any]
        A model, or any function.
    *args : Any
        What *fn* is called with.
    **kwargs : Any
        What *fn* is called with, by name.

    Examples
    --------
    >>> import torch
    >>> report = in_order(torch.nn.Linear(3, 5), torch.ones(2, 3))
    >>> [entry.op for entry, where, is_inside in report.order]
    ['t', 'addmm']
    """
    order: list[Any] = []
    with _counting(False, name=_name(fn), order=order) as report:
        kept = fn(*args, **kwargs)  # until counting ends, as a caller would keep it
        del kept
    report.order = order
    return report


@left_to_python
def counting(*program: Any, strict: bool = False, attention: str = "auto") -> contextlib.AbstractContextManager[Report]:
    """Count whatever runs in the block: forward, backward, the optimiser.

    The report can be read inside the block, too: its numbers grow. Threads that are started inside are counted.

    Parameters
    ----------
    *program : Any
        Must be empty: the program goes into the block.
    strict : bool, optional
        Raise `UncountedError` at the end if an operator without a formula ran.
    attention : str, optional
        ``"auto"``: executed FLOPs and bytes follow the kernel that ran; on meta and fake tensors, where none runs, flash is
        assumed. ``"flash"`` and ``"math"`` take that kernel instead. Model FLOPs are the same under each.

    Raises
    ------
    TypeError
        If a program is passed as an argument.
    ValueError
        For another *attention*.
    ImportError
        Without torch.
    UncountedError
        If *strict* is set and an operator has no formula.

    Examples
    --------
    >>> import torch, flopkit as fk
    >>> w = torch.ones(4, 4, requires_grad=True)
    >>> x = torch.ones(2, 4)
    >>> with fk.counting() as report:
    ...     (x @ w).sum().backward()
    >>> report.model_flops, report.backward.flops
    (128, 64)
    """
    if program:
        what = ", ".join(map(_shown, program))
        raise TypeError(
            f"counting({what}): the program goes into the block, `with fk.counting() as report:`, or to fk.count(model, x)"
        )
    return _Counting(strict, attention)


class _Counting(contextlib.AbstractContextManager[Report]):
    """What `counting` returns: each time that it is entered it begins a count of its own."""

    def __init__(self, strict: bool, attention: str) -> None:
        self._given = strict, attention
        self._block: Any = None

    @left_to_python
    def __enter__(self) -> Report:
        if self._block is not None:
            raise RuntimeError(
                "this fk.counting() is being entered already: call fk.counting() again for a block inside of it"
            )
        block = _counting(*self._given)
        report = block.__enter__()
        self._block = block
        return report

    @left_to_python
    def __exit__(self, *error: Any) -> bool | None:
        block, self._block = self._block, None
        return block.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"fk.counting() has no {name!r}: the report has the numbers, `with fk.counting() as report:`"
        )

    def __call__(self, *program: Any) -> Any:
        what = ", ".join(map(_shown, program))
        raise TypeError(
            f"fk.counting()({what}): no decorator, for the report would be lost: call fk.count(function, x), or write "
            "`with fk.counting() as report:` around the call"
        )


@left_to_python
@contextlib.contextmanager
def _counting(
    strict: bool, attention: str = "auto", name: str = "", order: list[Any] | None = None
) -> Iterator[Report]:
    if not isinstance(strict, bool):
        raise TypeError(f"strict={strict!r}: must be True or False")
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportError("counting a program needs torch, which is not installed: pip install torch") from None
    from flopkit.counter.watch import patches
    from flopkit.counter.watch.mode import Watcher
    from flopkit.counter.watch.session import Session

    with uncompiled(), _progress(name) as progress:
        session = Session(attention, order)
        watcher, report = Watcher(session, progress if name else None), Report(session)
        try:
            with patches.installed(), watcher.on_this_thread():
                yield report
        except (RuntimeError, NotImplementedError) as error:
            if "meta tensor" in str(error):
                error.add_note(
                    "A tensor on meta has no values, and this program asks for one. Ways out, such as torch's FakeTensorMode: page "
                    "'What the counter counts', section 'When meta refuses'."
                )
            raise
        finally:
            watcher.finish()
    if strict and report.uncounted:
        raise UncountedError(report)


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[int], None]]:
    """A bar that appears when counting takes longer than two seconds."""
    start, bar = time.monotonic(), None

    def progress(seen: int) -> None:
        nonlocal bar
        if bar is None and time.monotonic() - start > 2:
            from tqdm.auto import tqdm

            bar = tqdm(desc=f"counting {name}", unit=" operators", leave=False, disable=None)
        if bar is not None:
            bar.update(seen - bar.n)

    try:
        yield progress
    finally:
        if bar is not None:
            bar.close()


def _shown(value: Any) -> str:
    """*value* in a message: a tensor by its shape, anything else cut short."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    return brief(" ".join(repr(value).split()), 60)


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", None) or type(fn).__name__


_FUTURES = frozenset({"Future", "ApplyResult"})  # concurrent.futures, asyncio, torch.futures; multiprocessing.pool
_LATER = (Iterator, types.CoroutineType, types.AsyncGeneratorType)


def _not_run(result: Any) -> str:
    """What *result* is, if its work is still to come: a generator, a coroutine, ``map(...)``, a future; also where a list holds it."""
    for each in (result, *(result if isinstance(result, (list, tuple, set)) else ())):
        if any(kind.__name__ in _FUTURES for kind in type(each).__mro__):
            late = not (each.done() if hasattr(each, "done") else each.ready())
        else:  # an iterator that knows how many are left, such as a list's, has them at hand
            late = isinstance(each, _LATER) and not hasattr(each, "__length_hint__")
        if late:
            return f"a {type(each).__name__}"
    return ""
