"""torch's stacks of modes, which it does not publish: what is on them, and leaving a mode that others were entered after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatch_modes

__all__ = [
    "dispatch_modes", "how_many_dispatch", "how_many_functions", "is_selective_checkpoint_around", "leave_dispatch", "leave_functions",
    "pop_dispatch", "push_dispatch",
]  # fmt: skip

push_dispatch = torch._C._push_on_torch_dispatch_stack
pop_dispatch: Any = torch._C._pop_torch_dispatch_stack
how_many_dispatch = torch._C._len_torch_dispatch_stack
how_many_functions = torch._C._len_torch_function_stack
_CHOOSING = frozenset(("_CachingTorchDispatchMode", "_CachedTorchDispatchMode"))  # forward, and when it is run again


def is_selective_checkpoint_around() -> bool:
    """Whether a mode is at work that asks of each operator whether its result is kept."""
    return any(type(mode).__name__ in _CHOOSING for mode in dispatch_modes())


def leave_dispatch(mode: Any) -> None:
    """Exit a dispatch mode. Those that were entered after it and are still there (another count, in another task of the thread) stay."""
    _leave(mode, dispatch_modes, lambda: pop_dispatch(None), push_dispatch)


def leave_functions(mode: Any) -> None:
    """Exit a function mode, as `leave_dispatch` does."""
    _leave(mode, _get_current_function_mode_stack, torch.overrides._pop_mode, torch.overrides._push_mode)


def _leave(mode: Any, stack: Callable[[], Any], pop: Callable[[], Any], push: Callable[[Any], Any]) -> None:
    modes = stack()
    if not any(other is mode for other in modes):
        return
    above = []
    while modes.pop() is not mode:
        above.append(pop())
    if above:
        _hand_over(mode, above[-1], sum(other is above[-1] for other in above))
    mode.__exit__(None, None, None)
    for other in reversed(above):
        push(other)


def _hand_over(mode: Any, after: Any, times: int) -> None:
    """Each mode keeps in lists what torch's flags ("is any mode at work?") were when it was entered, and sets them so when it leaves: where
    the earlier of two leaves first, the later (entered *times* since) has to set them as they were before both."""
    if hasattr(mode, "is_at_home") and not mode.is_at_home():  # a watcher in another thread sets none
        return
    for name, flags in vars(mode).items():
        if name.startswith("old_") and name.endswith("_flags") and flags:
            theirs = vars(after).get(name, ())
            if len(theirs) >= times:
                flags[-1], theirs[-times] = theirs[-times], flags[-1]
