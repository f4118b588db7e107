"""Which gradients a backward pass needs, where one kernel computes more than were asked for."""

from __future__ import annotations

from typing import Any

__all__ = ["asked"]


def asked(node: Any, count: int) -> tuple[bool, ...]:
    """Which of the first *count* inputs autograd needs a gradient of, for the node that is running; all where none is known.

    >>> asked(None, 2)
    (True, True)
    """
    from flopkit.counter.watch.autograd import will_run

    if node is None:
        return (True,) * count
    answers = []
    for follower, _ in node.next_functions[:count]:
        needed = follower is not None
        if needed:
            try:
                needed = bool(will_run(follower))
            except RuntimeError:  # a leaf, in autograd.grad: asked for
                needed = True
        answers.append(needed)
    answers += [True] * (count - len(answers))
    return tuple(answers) if any(answers) else (True,) * count
