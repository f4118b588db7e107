"""Where work belongs: the module that asked for it, in forward and again in backward.

In the forward pass the module is the one that is being called. In the backward pass autograd says which node it is at, and a `AutogradTimeline`
(`autograd`) which module was being called when that node was made. So nothing is hooked to a tensor, and shared modules, modules whose input needs no gradient and modules that return objects of
their own are all found.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch

from flopkit.counter.ledger import Where

__all__ = ["OUTSIDE", "Modules", "Scope", "shares"]


class Scope:
    """A module path, and the attention call inside it, if any, that work belongs to. (A model has many: they hold little until asked.)"""

    __slots__ = ("inside", "module", "names", "path", "region", "shared", "spot", "spots")

    def __init__(
        self,
        path: str,
        module: weakref.ref[Any] | None = None,
        region: Any = None,
        inside: dict[int, Scope] | None = None,
    ) -> None:
        self.path, self.module, self.region = path, module, region
        self.inside = inside  # places of the modules called from here, by id
        self.names: dict[int, str] | None = None  # of the modules below this one, by id, as last looked up
        self.spot: Where | None = None  # as last asked for
        self.spots: dict[tuple[str, bool], Where] | None = None  # all, where there are several
        self.shared: bool | None = (
            None  # of a root: whether two modules below it share a child; None until it was called
        )

    def of_region(self, region: Any) -> Scope:
        """This place inside of an attention call."""
        return Scope(self.path, self.module, region, self.inside)

    def where(self, phase: str, taken: bool = False) -> Where:
        """This place in *phase*, for the ledger; *taken*: of what an attention call takes for its own."""
        spot = self.spot
        if spot is None:
            spot = self.spot = Where(phase, self.path, taken)
        elif spot.phase != phase or spot.inside != taken:
            if self.spots is None:
                self.spots = {(spot.phase, spot.inside): spot}
            spot = self.spots.get((phase, taken))
            if spot is None:
                spot = self.spots[phase, taken] = Where(phase, self.path, taken)
            self.spot = spot
        return spot

    def holds(self, module: Any) -> bool:
        """Whether this is the place of *module*."""
        return self.module is not None and self.module() is module

    def keep(self, module: Any, place: Scope) -> None:
        """Remember the place of *module*, called from here."""
        if self.inside is None:
            self.inside = {}
        _keep(self.inside, module, place)


OUTSIDE = Scope("")


class Modules:
    """Names of modules by the way they are reached, as `torch.nn.Module.named_modules` spells them.

    A module that is called outside of any other is a root, and stands under its class's name (``Linear``, the next one
    ``Linear (2)``). One that is called by another is found among that one's descendants, so a module that two parents share has
    two names. Where the caller itself has several for it, the first in the order of `named_modules` is taken. A module that is called
    again in a backward pass (checkpointing) keeps the name it was called by before. What is not registered anywhere (a module in a
    plain list, or made on the spot) stands below its caller as ``(Linear)``. A copy that data parallelism makes has its original's
    name. A root that is gone leaves its name to the next of its class.
    """

    def __init__(self) -> None:
        self.roots: dict[str, Scope] = {}  # and what is registered nowhere
        self.latest: dict[int, Scope] = {}
        self.lock = threading.Lock()

    def place(self, module: Any, under: Scope, again: bool = False) -> Scope:
        """The place of *module*, called from *under*, where that has none for it yet."""
        with self.lock:
            found = self._own(module, under)
            if found is None:
                found = self._found(module, under, again)
                if under.module is not None and found is not under:
                    under.keep(module, found)
                _keep(self.latest, module, found)
        return found

    def _own(self, module: Any, under: Scope) -> Scope | None:
        """The place of *module* where the caller has it for a child, and no other can be meant by it. Its other children get theirs."""
        parent = under.module() if under.module is not None else None
        top = self.roots.get(under.path.partition(".")[0])
        if parent is None or top is None:
            return None
        if top.shared is None and not shares(top):
            self._grow(top)
        if top.shared:
            return None
        found = None
        for name, child in parent._modules.items():
            if child is None:
                continue
            place = under.inside.get(id(child)) if under.inside else None
            if place is None or not place.holds(child):
                place = Scope(f"{under.path}.{name}", weakref.ref(child))
                under.keep(child, place)
                _keep(self.latest, child, place)
            if child is module:
                found = place
        return found

    def _grow(self, top: Scope) -> None:
        """The places of all modules below *top*, which have one name each, and whose callers will be those that hold them: made in one go,
        which is quicker than one by one, each while a kernel's numbers fill the caches."""
        latest = self.latest
        ahead: list[tuple[Scope, str, Any]] = [] if _is_gone(top) else [(top, top.path, top.module())]  # type: ignore[misc]
        for under, path, parent in ahead:  # which grows on the way
            inside = under.inside
            if inside is None:
                inside = under.inside = {}
            for name, child in parent._modules.items():
                number = id(child)
                if (
                    child is None
                    or child is parent
                    or ((known := inside.get(number)) is not None and known.holds(child))
                ):
                    continue
                place = inside[number] = latest[number] = Scope(f"{path}.{name}", weakref.ref(child))
                if child._modules:  # a list or dict of modules is not called: what it holds is called by the one around
                    called = type(child).forward is not _NEVER_CALLED
                    ahead.append((place if called else under, place.path, child))

    def _found(self, module: Any, under: Scope, again: bool) -> Scope:
        parent = under.module() if under.module is not None else None
        if parent is not None:
            name = _name_below(under, parent, module)
            if name is None and getattr(module, "_is_replica", False):
                name = _name_of_original(parent, module)
            if name is not None:
                return Scope(f"{under.path}.{name}", weakref.ref(module)) if name else under
        latest = self.latest.get(id(module))
        if latest is not None and (again or parent is None) and latest.holds(module):
            return latest
        if again or parent is not None:
            root = next((r for r in self.roots.values() if self._holds(r, module)), None)
            if root is not None:
                return self._found(module, root, again)
        name = type(module).__name__
        path = name if parent is None else f"{under.path}.({name})"
        number = 1
        while True:
            found = self.roots.get(path)
            if found is None or (parent is not None and not _is_gone(found)):
                found = self.roots[path] = Scope(path, weakref.ref(module))
                return found
            if _is_gone(found):
                found.module = weakref.ref(module)
                found.inside = None
                return found
            number += 1
            path = f"{name} ({number})"

    @staticmethod
    def _holds(root: Scope, module: Any) -> bool:
        top = root.module() if root.module is not None else None
        return top is not None and any(child is module for child in top.modules())


_NEVER_CALLED = torch.nn.Module.forward


def shares(root: Scope) -> bool:
    """Whether two modules below *root* have a child in common. Looked up once."""
    if root.shared is None:
        root.shared = _with_two_parents(root.module() if root.module is not None else None)
    return root.shared


def _with_two_parents(top: Any) -> bool:
    parents = {id(top): top}
    ahead = [] if top is None else [top]
    for module in ahead:  # which grows on the way
        for child in module._modules.values():
            if child is None:
                continue
            known = parents.get(id(child))
            if known is None:
                parents[id(child)] = module
                ahead.append(child)
            elif known is not module:
                return True
    return False


def _is_gone(place: Scope) -> bool:
    return place.module is None or place.module() is None


def _keep(known: dict[int, Scope], module: Any, place: Scope) -> None:
    """Remember a module's place, and forget, now and then, those of modules that are gone."""
    known[id(module)] = place
    size = len(known)
    if size >= 64 and size & (size - 1) == 0:
        for key in [key for key, old in known.items() if _is_gone(old)]:
            del known[key]


def _name_of_original(parent: Any, replica: Any) -> str | None:
    """The name, seen from *parent*, of the module that *replica* was copied from: the first that has its class and its children."""
    for name, child in parent.named_modules():
        if name and type(child) is type(replica) and child._modules.keys() == replica._modules.keys():
            return str(name)
    return None


def _name_below(under: Scope, parent: Any, module: Any) -> str | None:
    """The name of *module* as seen from *parent*, at *under*; empty for *parent* itself, None where it is not below."""
    name = under.names.get(id(module)) if under.names else None
    if name is None or _named(parent, name) is not module:
        under.names = _names(parent)
        name = under.names.get(id(module))
    return name


def _named(parent: Any, name: str) -> Any:
    for part in name.split(".") if name else ():
        parent = parent._modules[part] if parent is not None and part in parent._modules else None
    return parent


def _names(parent: Any) -> dict[int, str]:
    """The names of all modules below *parent*, by id, each the first that `named_modules` comes to."""
    found: dict[int, str] = {}
    ahead = [("", parent)]
    while ahead:
        name, module = ahead.pop()
        if module is not None and id(module) not in found:
            found[id(module)] = name
            prefix = f"{name}." if name else ""
            ahead.extend([(f"{prefix}{part}", child) for part, child in module._modules.items()][::-1])
    return found
