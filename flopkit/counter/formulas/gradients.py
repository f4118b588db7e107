"""Which gradients a backward pass needs, where one kernel computes more than were asked for."""

from __future__ import annotations

from typing import Any

__all__ = ["asked"]


def asked(node: Any, count: int) -> tuple[bool, ...]:
    """Which of the first *count* inputs autograd needs a gradient of, for the node that is running; all where none is known.

    >>> asked(None, 2)
    (True, True)
    """
    if node is None:
        return (True,) * count
    answers = [follower is not None and _runs(follower) for follower, _ in node.next_functions[:count]]
    answers += [True] * (count - len(answers))
    return tuple(answers) if any(answers) else (True,) * count


def _runs(follower: Any) -> bool:
    from flopkit.counter.watch.autograd import will_run

    try:
        return bool(will_run(follower))
    except RuntimeError:  # a leaf, in autograd.grad: asked for
        return True
