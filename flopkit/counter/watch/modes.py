"""torch's stack of dispatch modes, which it does not publish: what is on it, and leaving a mode that others were entered after."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatch_modes

__all__ = [
    "dispatch_modes", "how_many_dispatch", "is_selective_checkpoint_around", "leave", "pop_dispatch", "push_dispatch",
]  # fmt: skip

push_dispatch = torch._C._push_on_torch_dispatch_stack
pop_dispatch: Any = torch._C._pop_torch_dispatch_stack
how_many_dispatch = torch._C._len_torch_dispatch_stack
_CHOOSING = frozenset(("_CachingTorchDispatchMode", "_CachedTorchDispatchMode"))  # forward, and when it is recomputed


def is_selective_checkpoint_around() -> bool:
    """Whether a mode is at work that asks of each operator whether its result is kept."""
    return any(type(mode).__name__ in _CHOOSING for mode in dispatch_modes())


def leave(mode: Any) -> None:
    """Exit a watcher. Modes that were entered after it and are still there (another count, in another task of the thread) stay."""
    modes: list[Any] = dispatch_modes()
    if not any(other is mode for other in modes):
        return
    above: list[Any] = []
    while modes.pop() is not mode:
        above.append(pop_dispatch(None))
    if above and mode.is_at_home():
        # Each mode keeps in lists what torch's flags ("is any mode at work?") were when it was entered, and sets them so when it leaves.
        # The one that stays longest has to set them as they were before both.
        last = above[-1]
        times = sum(other is last for other in above)
        for name, flags in vars(mode).items():
            if name.startswith("old_") and name.endswith("_flags") and flags:
                theirs = vars(last).get(name, ())
                if len(theirs) >= times:
                    flags[-1], theirs[-times] = theirs[-times], flags[-1]
    mode.__exit__(None, None, None)
    for other in reversed(above):
        push_dispatch(other)
