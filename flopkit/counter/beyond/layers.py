"""Which layers were called, with which shapes: what counters go by that are made of hooks."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from flopkit.counter.beyond.shapes import TENSORS, one, shape_of, told
from flopkit.counter.beyond.traced import is_done_again
from flopkit.counter.told import Packed, around
from flopkit.counter.watching.places import Place, shares

__all__ = ["Layer", "layer_of", "note"]

_SETTINGS: dict[type, tuple[str, ...]] = {}  # their names, of torch's own layers
# Layers that count as one, though there may be others below them: parts, parametrisations, what a derived class adds, a script's.
_ATTENTION = torch.nn.MultiheadAttention
_WITH_PARTS = (
    _ATTENTION, torch.nn.Linear, torch.nn.Bilinear, torch.nn.modules.conv._ConvNd, torch.nn.RNNBase, torch.nn.RNNCellBase,
    torch.nn.modules.batchnorm._NormBase, torch.nn.LayerNorm, torch.nn.GroupNorm, torch.nn.RMSNorm,
    torch.jit.ScriptModule, torch.nn.TransformerEncoderLayer,
)  # fmt: skip
_PLAIN = (int, bool, str, float, tuple, type(None))


class Layer:
    """A module as hooks meet it; no tensor, and not the module.

    Parameters
    ----------
    path, kind : its name, its class.
    around : the classes of the modules around it that belong to the model, its own last.
    times : in how many ways the model's root comes to it: more than one where parents share it. What belongs to no model has those of
        the module that calls it.
    leaf : whether it has no modules below it.
    full : of a root: whether there are parameters in it or below it.
    settings, parameters : its own, the parameters as shapes; None until it was called to the end.
    learns : whether a gradient is wanted of one of its own parameters; not of what was made on the spot, and is gone.
    strays : of a root: those that it calls and that do not belong to it.
    within : *around* and *times*, of functions that it calls.
    """

    __slots__ = ("alive", "around", "full", "kind", "leaf", "learns", "parameters", "path", "settings", "strays", "times", "within")

    def __init__(self, module: Any, place: Place, outer: Layer | None, ways: int) -> None:
        self.path, self.kind = place.path, type(module)
        self.around: tuple[type, ...] = outer.around if outer is not None else ()
        self.times: int = outer.times if outer is not None else 1
        self.alive = None
        if self.registered:
            self.around, self.times = one((*self.around, self.kind)), ways
        else:
            self.alive = weakref.ref(module)
        self.within = around(self.around, self.times)
        self.leaf = not module._modules
        self.full: bool | None = None
        self.settings: Any = None
        self.parameters: Any = None
        self.learns = False
        self.strays: tuple[Layer, ...] = ()

    @property
    def registered(self) -> bool:
        """Whether the model, whose hooks a tool sets, knows it: it was not made on the spot, nor kept in a plain list."""
        return ".(" not in self.path

    def read(self, module: Any) -> None:
        """Take down its settings and parameters."""
        self.kind = type(module)  # a lazy one was of another class until now
        known = _SETTINGS.get(self.kind)
        if known is None:
            self.settings = {
                name: value for name, value in vars(module).items() if name[0] != "_" and isinstance(value, _PLAIN)
            }
            if self.kind.__module__.startswith("torch.nn.modules."):  # whose constructors give all of a class the same settings
                _SETTINGS[self.kind] = tuple(self.settings)
        else:
            given = vars(module)
            self.settings = {name: given[name] for name in known if name in given}
        self.parameters = {}
        for name, parameter in module._parameters.items():
            if parameter is not None:
                self.parameters[name] = one(parameter.shape)
                self.learns = self.learns or parameter.requires_grad


_ways: tuple[Any, dict[int, int]] = (None, {})  # the last root that shares parts, and in how many ways it comes to each


def layer_of(here: Any, place: Place, module: Any) -> Layer:
    """The layer that stands for *module*, which is being called at *place*."""
    if place.layer is None:
        for each, _ in here.stack:  # those around first, the outermost to begin with
            around = None if each.layer is not None or each.module is None else each.module()
            if around is not None:
                _make(here, each, around)
        if place.layer is None:
            _make(here, place, module)
    found: Layer = place.layer
    return found


def _make(here: Any, place: Place, module: Any) -> None:
    stack, outer = here.stack, None
    below = len(stack) if place is here.place else next((n for n, (each, _) in enumerate(stack) if each is place), len(stack))
    for n in range(below - 1, -1, -1):
        each = stack[n][0]
        if each.module is not None and each.path != place.path:
            outer = each.layer
            break
    found = place.layer = Layer(module, place, outer, _times(here, place, module))
    if not found.registered:
        root = next((each for each, _ in stack[:below] if each.module is not None), None)
        if root is not None and root.layer is not None:
            root.layer.strays += (found,)


def _times(here: Any, place: Place, module: Any) -> int:
    """In how many ways the root of *place* comes to *module*."""
    global _ways
    top = here.watcher.modules.roots.get(place.path.partition(".")[0])
    if top is None or top is place or top.shared is False or not shares(top):
        return 1
    if _ways[0] is not top:
        _ways = (top, _counted(top.module()))
    return _ways[1].get(id(module), 1)


def _counted(root: Any) -> dict[int, int]:
    """In how many ways *root* comes to each module below it; a parent that has a child by two names comes to it once."""
    order: dict[int, Any] = {}
    begun = set()  # a module may be below itself

    def visit(module: Any) -> None:
        begun.add(id(module))
        for child in module.children():
            if id(child) not in begun:
                visit(child)
        order[id(module)] = module

    visit(root)
    ways = dict.fromkeys(order, 0) | {id(root): 1}
    for module in reversed(order.values()):  # parents before their children
        for child in module.children():
            ways[id(child)] += ways[id(module)]
    return ways


def note(here: Any, module: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Put down a call of *module*, if it is a layer: one that is made of no others. Of a root, whatever it is: the batch."""
    if is_done_again():
        return
    place = here.place
    layer = place.layer or layer_of(here, place, module)
    if "." not in place.path:
        if layer.full is None:
            layer.full = next(module.parameters(), None) is not None
        for stray in layer.strays:
            stray.learns = stray.learns and stray.alive is not None and stray.alive() is not None
        root = (place.path, _length(args), layer.full)
        here.ledger.roots[root] = here.ledger.roots.get(root, 0) + 1
    if module._modules and not isinstance(module, _WITH_PARTS):
        return
    with torch._C.DisableTorchFunction():
        if layer.settings is None:
            layer.read(module)
        given: Any = args[0] if args else next(iter(kwargs.values()), None)
        if isinstance(module, _ATTENTION):
            key: Any = (layer, tuple(told(each) for each in (*args, *kwargs.values())), told(out), len(args))
        elif isinstance(given, PackedSequence):
            key = (layer, _packed(given, out), shape_of(out), len(args))
        else:
            try:
                key = (
                    layer, one(given.shape) if type(given) in TENSORS else shape_of(given),
                    one(out.shape) if type(out) in TENSORS else shape_of(out), len(args),
                )  # fmt: skip
            except RuntimeError:  # a strided nested tensor has no single shape
                key = (layer, shape_of(given), shape_of(out), len(args))
    layers = here.ledger.layers
    layers[key] = layers.get(key, 0) + 1


def _length(args: Any) -> int | None:
    """The batch that a root is given: the length of its first argument; 1 without any, None where it has none."""
    if not args:
        return 1
    try:
        return len(args[0])
    except (TypeError, RuntimeError):  # a number; a strided nested tensor
        return None


def _packed(given: PackedSequence, out: Any) -> Packed:
    """How many sequences they are stands in a tensor; a recurrent layer's states have it as a size."""
    states = shape_of(out[1]) if isinstance(out, tuple) and len(out) > 1 else None
    return Packed(given.data.shape, len(given.batch_sizes), states[1] if states is not None and len(states) == 3 else None)
