"""Where work belongs: the module that asked for it, in forward and again in backward.

In the forward pass the module is the one that is being called. In the backward pass autograd says which node it is at, nodes are
numbered in the order in which the forward pass made them, and a `Trail` remembers which module was being called at which number.
So nothing is hooked to a tensor, and shared modules, modules whose input needs no gradient and modules that return objects of
their own are all found.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from flopkit.counter.ledger import Where

__all__ = ["OUTSIDE", "Modules", "Place", "Trail"]

LONGEST_TRAIL = 200_000  # marks kept; older graphs than that are attributed to no module


@dataclass(eq=False, slots=True)
class Place:
    """A module path, and the attention call inside it, if any, that work belongs to."""

    path: str
    module: weakref.ref[Any] | None = None
    region: Any = None
    inside: dict[int, Place] = field(default_factory=dict)  # places of the modules called from here, by id
    spots: dict[tuple[str, bool], Where] = field(default_factory=dict)

    def where(self, phase: str, taken: bool = False) -> Where:
        """This place in *phase*, for the ledger."""
        found = self.spots.get((phase, taken))
        if found is None:
            found = self.spots[phase, taken] = Where(phase, self.path, taken)
        return found


OUTSIDE = Place("")


class Trail:
    """Which place was current when autograd gave out which sequence number, in one thread."""

    __slots__ = ("numbers", "places")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.places: list[Place] = []

    def mark(self, number: int, place: Place) -> None:
        """From sequence number *number* on, nodes belong to *place*."""
        if self.numbers and self.numbers[-1] >= number:
            while len(self.numbers) > 1 and self.numbers[-2] >= number:
                self.numbers.pop()
                self.places.pop()
            self.numbers[-1], self.places[-1] = number, place
            return
        if self.places and self.places[-1] is place:
            return
        self.numbers.append(number)
        self.places.append(place)
        if len(self.numbers) > LONGEST_TRAIL:
            del self.numbers[: LONGEST_TRAIL // 2], self.places[: LONGEST_TRAIL // 2]

    def at(self, number: int) -> Place | None:
        """The place that the node of this sequence number belongs to."""
        found = bisect_right(self.numbers, number) - 1
        return self.places[found] if found >= 0 else None


class Modules:
    """Names of modules by the way they are reached, as `torch.nn.Module.named_modules` spells them.

    A module that is called outside of any other is a root, and stands under its class's name (``Linear``, the next one
    ``Linear (2)``). One that is called by another is found among that one's descendants, so a module that two parents share has
    two names. A module that is called again in a backward pass (checkpointing) keeps the name it was called by before.
    """

    def __init__(self) -> None:
        self.roots: dict[int, Place] = {}
        self.latest: dict[int, Place] = {}
        self.taken: dict[str, int] = {}
        self.lock = threading.Lock()

    def place(self, module: Any, under: Place, again: bool = False) -> Place:
        """The place of *module*, called from *under*."""
        known = under.inside.get(id(module))
        if known is not None and known.module is not None and known.module() is module:
            return known
        with self.lock:
            found = self._found(module, under, again)
        self.latest[id(module)] = found
        return found

    def _found(self, module: Any, under: Place, again: bool) -> Place:
        parent = under.module() if under.module is not None else None
        if parent is not None:
            name = _name_below(parent, module)
            if name is not None:
                found = under if not name else Place(f"{under.path}.{name}", weakref.ref(module))
                under.inside[id(module)] = found
                return found
        latest = self.latest.get(id(module))
        if (
            latest is not None
            and latest.module is not None
            and latest.module() is module
            and (again or under is OUTSIDE)
        ):
            return latest
        root = next((r for r in self.roots.values() if self._holds(r, module)), None)
        if root is not None and (again or under is not OUTSIDE):
            return self._found(module, root, again)
        name = type(module).__name__
        number = self.taken[name] = self.taken.get(name, 0) + 1
        found = Place(name if number == 1 else f"{name} ({number})", weakref.ref(module))
        self.roots[id(module)] = found
        return found

    @staticmethod
    def _holds(root: Place, module: Any) -> bool:
        top = root.module() if root.module is not None else None
        return top is not None and any(child is module for child in top.modules())


def _name_below(parent: Any, module: Any) -> str | None:
    """The name of *module* as seen from *parent*, the nearest first; empty for *parent* itself, None where it is not below."""
    if module is parent:
        return ""
    level = [("", parent)]
    seen = {id(parent)}
    while level:
        below = []
        for prefix, owner in level:
            for name, child in owner._modules.items():
                if child is module:
                    return f"{prefix}{name}"
                if child is not None and id(child) not in seen:
                    seen.add(id(child))
                    below.append((f"{prefix}{name}.", child))
        level = below
    return None
