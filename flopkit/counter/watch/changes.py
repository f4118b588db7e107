"""Changes to torch and to Python that are undone when nobody counts any more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

lock = threading.RLock()


class Changes(contextlib.ExitStack):
    """What is to be undone, the last first, whatever fails on the way."""

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Set an attribute to what *make* makes of it."""
        own = vars(owner)  # what a class hands out may be something else
        if name in own:
            self.callback(setattr, owner, name, own[name])
        else:
            self.callback(delattr, owner, name)
        setattr(owner, name, make(getattr(owner, name)))
