"""Threads that a program starts, and tasks that it gives to a pool: watched by whoever watches the thread that starts them."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.state import heres

__all__ = ["install", "watch_pools"]

POOLS = frozenset({"concurrent.futures.thread", "multiprocessing.pool"})  # their tasks are watched one by one


def install(changes: Changes) -> None:
    """See threads start until *changes* are undone."""
    changes.replace(threading.Thread, "start", _starting)
    changes.replace(ThreadPoolExecutor, "submit", _submitting)


def watch_pools(changes: Changes, module: Any) -> None:
    """See the tasks of `multiprocessing.pool`, a module that few load."""
    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
        changes.replace(module.ThreadPool, name, _submitting)


def _watched(run: Any) -> Any:
    """*run*, to be watched in another thread by whoever watches this one."""
    watchers = [(here.watcher, here.place) for here in heres() if not here.watcher.closed]
    if not watchers:
        return run

    def watched(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for watcher, place in watchers:
                if not watcher.closed:
                    stack.enter_context(watcher.on_this_thread(place))
                    watcher.here.ledger.foreign = True
            return run(*args, **kwargs)

    return watched


def _starting(original: Any) -> Any:
    def start(thread: threading.Thread) -> None:
        pool = getattr(getattr(thread, "_target", None), "__module__", "") in POOLS
        if heres() and not pool and "run" not in vars(thread):
            run = _watched(thread.run)

            def once() -> None:
                del thread.run
                run()

            thread.run = once  # type: ignore[method-assign]
            try:
                original(thread)
            except BaseException:  # it did not start
                vars(thread).pop("run", None)
                raise
            return
        original(thread)

    return start


def _submitting(original: Any) -> Any:
    def submit(pool: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return original(pool, _watched(fn), *args, **kwargs)

    return submit
