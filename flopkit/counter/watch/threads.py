"""Threads that a program starts, and tasks that it gives to a pool: watched by whoever watches the thread that starts them."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.state import state_of, thread_states

POOLS = frozenset({"concurrent.futures.thread", "multiprocessing.pool"})  # their tasks are watched one by one


def install(changes: Changes) -> None:
    """See threads start, and tasks, until *changes* are undone."""
    changes.replace(threading.Thread, "start", _starting)
    changes.replace(ThreadPoolExecutor, "submit", _submitting)
    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
        changes.replace(ThreadPool, name, _submitting)


def _watched(run: Any) -> Any:
    """*run*, to be watched in another thread by whoever watches this one."""
    sessions = [(state.session, state.scope) for state in thread_states() if not state.session.closed]
    if not sessions:
        return run

    def watched(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for session, scope in sessions:
                if not session.closed:
                    stack.enter_context(session.mode.on_this_thread(scope))
                    state_of(session).ledger.foreign = True
            return run(*args, **kwargs)

    return watched


def _starting(original: Any) -> Any:
    def start(thread: threading.Thread) -> None:
        pool = getattr(getattr(thread, "_target", None), "__module__", "") in POOLS
        if pool or not thread_states() or "run" in vars(thread):
            return original(thread)
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

    return start


def _submitting(original: Any) -> Any:
    def submit(pool: Any, /, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (_watched(args[0]), *args[1:])
        elif "func" in kwargs:
            kwargs["func"] = _watched(kwargs["func"])
        return original(pool, *args, **kwargs)

    return submit
