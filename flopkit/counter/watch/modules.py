"""Where work belongs: the module that asked for it, in forward and again in backward.

In the forward pass that is the module which is being called. In the backward pass autograd says which node it is at, and the
`AutogradTimeline` which module was being called when that node was made. Nothing is hooked to a tensor, so shared modules, modules
whose input needs no gradient and modules that return objects of their own are all found.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from flopkit.counter.ledger import Where


class Scope:
    """A module path, and the attention call inside it, if any, that work belongs to. (A model has many: they hold little until asked.)"""

    __slots__ = ("children", "families", "last", "module", "names", "path", "region")

    def __init__(self, path: str, module: Callable[[], Any] = lambda: None, region: Any = None) -> None:
        self.path, self.module, self.region = path, module, region
        self.children: dict[int, Scope] | None = None  # scopes of the modules called from this one, by id
        self.names: dict[int, str] | None = None  # of the modules below this one, by id, as last looked up
        self.families = 0  # that had been registered then
        self.last: Where | None = None  # as last asked for

    def of_region(self, region: Any) -> Scope:
        """This scope inside of an attention call."""
        inner = Scope(self.path, self.module, region)
        inner.children = self.children
        return inner

    def where(self, phase: str, taken: bool = False) -> Where:
        """This scope in *phase*, for the ledger; *taken*: of what an attention call takes for its own."""
        where = self.last
        if where is None or where.phase != phase or where.in_attention != taken:
            where = self.last = Where(phase, self.path, taken)
        return where

    def holds(self, module: Any) -> bool:
        """Whether this is the scope of *module*."""
        return self.module() is module


OUTSIDE = Scope("")


class Modules:
    """Names of modules by the way they are reached, as `torch.nn.Module.named_modules` spells them.

    A module that is called outside of any other is a root, and stands under its class's name (``Linear``, the next one
    ``Linear (2)``). One that is called by another is found among that one's descendants, so a module that two parents share has
    two names. Where the caller itself has several for it, the first in the order of `named_modules` is taken. A module that is called
    again in a backward pass (checkpointing) keeps the name it was called by before. What is not registered anywhere (a module in a
    plain list, or made on the spot) stands below its caller as ``(Linear)``, and so does a copy that `torch.nn.DataParallel` makes. A root
    that is gone leaves its name to the next of its class.
    """

    def __init__(self) -> None:
        self.roots: dict[str, Scope] = {}  # and what is registered nowhere
        self.families: list[Scope] = []  # of them, those that have modules below them
        self.alone: dict[int, Scope] = {}  # and those that have none, by id
        self.latest: dict[int, Scope] = {}
        self.lock = threading.RLock()

    def scope_of(self, module: Any, under: Scope, recomputed: bool = False) -> Scope:
        """The scope of *module*, called from *under*, where that has none for it yet."""
        with self.lock:
            found = self._found(module, under, recomputed)
            if under.module() is not None and found is not under:
                if under.children is None:
                    under.children = {}
                _keep(under.children, module, found)
            _keep(self.latest, module, found)
        return found

    def _found(self, module: Any, under: Scope, recomputed: bool) -> Scope:
        parent = under.module()
        if parent is not None:
            name = _name_below(under, parent, module)
            if name is not None:
                return Scope(f"{under.path}.{name}", weakref.ref(module)) if name else under
        latest = self.latest.get(id(module))
        if latest is not None and (recomputed or parent is None) and latest.holds(module):
            return latest
        if recomputed or parent is not None:
            self.families = [root for root in self.families if root.module() is not None]
            root = self.alone.get(id(module))
            if root is None or not root.holds(module):
                root = next((each for each in self.families if _is_below(each, module)), None)
            if root is not None:
                return self._found(module, root, recomputed)
        name = type(module).__name__
        path = name if parent is None else f"{under.path}.({name})"
        number = 1
        while True:
            found = self.roots.get(path)
            if found is None or (parent is not None and found.module() is not None):
                return self._root(Scope(path), module)
            if found.module() is None:
                return self._root(found, module)
            number += 1
            path = f"{name} ({number})"

    def _root(self, scope: Scope, module: Any) -> Scope:
        """*scope* as that of *module*, which is registered nowhere."""
        scope.module, scope.children, scope.names = weakref.ref(module), None, None
        self.roots[scope.path] = scope
        if module._modules:
            if scope not in self.families:
                self.families.append(scope)
        else:
            _keep(self.alone, module, scope)
        return scope


def _is_below(root: Scope, module: Any) -> bool:
    top = root.module()
    return top is not None and _name_below(root, top, module) is not None


def _keep(known: dict[int, Scope], module: Any, scope: Scope) -> None:
    """Remember a module's scope, and forget, now and then, those of modules that are gone. (A scope may be another module's by then.)"""
    known[id(module)] = scope
    size = len(known)
    if size >= 64 and size & (size - 1) == 0:
        for key in [key for key, old in known.items() if id(old.module()) != key]:
            del known[key]


def _name_below(under: Scope, parent: Any, module: Any) -> str | None:
    """The name of *module* as seen from *parent*, at *under*; empty for *parent* itself, None where it is not below."""
    name = under.names.get(id(module)) if under.names is not None else None
    if name is not None and _named(parent, name) is module:
        return name
    if (
        under.names is None or under.families != registered.families or module in registered
    ):  # else it is where it was: nowhere
        under.names, under.families = {id(child): name for name, child in parent.named_modules()}, registered.families
    name = under.names.get(id(module))
    return name if name is None or _named(parent, name) is module else None


class _Registered:
    """The modules that were given to another while somebody counts. One that was made on the spot is looked for among all others only once."""

    def __init__(self) -> None:
        self.found: dict[int, weakref.ref[Any]] = {}
        self.families = 0  # how many of them had modules of their own

    def add(self, parent: Any, name: str, module: Any) -> None:
        """torch tells of a module that is registered."""
        if module is not None:
            self.found[id(module)] = weakref.ref(module)
            self.families += bool(module._modules)

    def __contains__(self, module: Any) -> bool:
        ref = self.found.get(id(module))
        return ref is not None and ref() is module


registered = _Registered()


def _named(parent: Any, name: str) -> Any:
    for part in name.split(".") if name else ():
        parent = parent._modules.get(part) if parent is not None else None
    return parent
