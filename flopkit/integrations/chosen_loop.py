"""Whose steps a training program makes: of several optimisers the one that steps least often in the loop."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["ChosenLoop", "no_optimizer"]

_PATIENCE = 20  # times the steps of warming up: by then each optimiser has made two, or it is none of the loop


def no_optimizer() -> None:
    """A reference to nothing."""


class ChosenLoop:
    """The optimisers of a loop, and the one whose steps are the loop's.

    Examples
    --------
    >>> class Optimizer: ...
    >>> critic, generator = Optimizer(), Optimizer()
    >>> loop = ChosenLoop(warm_up=2)
    >>> [loop.warm(each) for each in (critic, generator, critic, critic, generator)]
    [False, False, False, False, True]
    >>> loop.leader() is generator, loop.holds(critic)
    (True, True)
    """

    def __init__(self, warm_up: int) -> None:
        self._warm_up = warm_up  # steps that go by before one is chosen
        # Of those among which one is chosen; and those that stepped before it was chosen.
        self._steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.leader: Callable[[], Any] = no_optimizer
        self.most = self._times_left = 0

    def warm(self, optimizer: Any) -> bool:
        """A step of *optimizer* goes by; whether the loop is known from here on, and this is its leader."""
        steps = self._steps
        steps[optimizer] = steps.get(optimizer, 0) + 1
        self.most = max(self.most, steps[optimizer])
        patience = _PATIENCE * self._warm_up if self._times_left < 2 else math.inf
        if min(steps.values()) < self._warm_up and max(steps.values()) < patience:
            return False
        of_the_loop = {each: n for each, n in steps.items() if n >= min(2, self._warm_up)}
        if steps[optimizer] > min(of_the_loop.values()):
            return False
        self.leader = weakref.ref(optimizer)
        self._optimizers = weakref.WeakSet(of_the_loop)
        return True

    def steps_of(self, optimizer: Any) -> int:
        """Steps that *optimizer* made before the loop was known."""
        return self._steps.get(optimizer, 0)

    def holds(self, optimizer: Any) -> bool:
        """Whether *optimizer* is one of the loop's."""
        return optimizer in self._optimizers

    def leave(self) -> None:
        """The leader is gone, or another loop has begun: choose anew."""
        self._steps, self.leader = weakref.WeakKeyDictionary(), no_optimizer
        self._times_left += 1
