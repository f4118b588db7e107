"""Which layers were called, with which shapes: what counters go by that are made of hooks."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from flopkit.counter.beyond.shapes import TENSORS, one, shape_of, told
from flopkit.counter.beyond.traced import is_done_again
from flopkit.counter.told import Packed, around
from flopkit.counter.watching.places import Place, shares

__all__ = ["Layer", "file", "layer_of", "meet", "note", "take_down"]

_SETTINGS: dict[type, tuple[str, ...]] = {}  # their names, of torch's own layers
# Layers that count as one, though there may be others below them: parts, parametrisations, what a derived class adds, a script's.
_ATTENTION = torch.nn.MultiheadAttention
_WITH_PARTS = (
    _ATTENTION, torch.nn.Linear, torch.nn.Bilinear, torch.nn.modules.conv._ConvNd, torch.nn.RNNBase, torch.nn.RNNCellBase,
    torch.nn.modules.batchnorm._NormBase, torch.nn.LayerNorm, torch.nn.GroupNorm, torch.nn.RMSNorm,
    torch.jit.ScriptModule, torch.nn.TransformerEncoderLayer,
)  # fmt: skip


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, (int, str, float, type(None)))


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

    __slots__ = (
        "_given",
        "_own",
        "alive",
        "around",
        "full",
        "kind",
        "leaf",
        "learns",
        "path",
        "strays",
        "times",
        "within",
    )

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
        self._given: Any = None
        self._own: tuple[tuple[str, Any], ...] = ()
        self.learns = False
        self.strays: tuple[Layer, ...] = ()

    @property
    def registered(self) -> bool:
        """Whether the model, whose hooks a tool sets, knows it: it was not made on the spot, nor kept in a plain list."""
        return ".(" not in self.path

    @property
    def settings(self) -> dict[str, Any] | None:
        """Its own, by name."""
        return None if self._given is None else dict(zip(*self._given, strict=True))

    @property
    def parameters(self) -> dict[str, Any] | None:
        """The shapes of its own, by name."""
        return None if self._given is None else dict(self._own)

    @property
    def is_read(self) -> bool:
        """Whether its settings were taken down."""
        return self._given is not None

    def read(self, module: Any) -> None:
        """Take down its settings and parameters."""
        self.kind = type(module)  # a lazy one was of another class until now
        given = vars(module)
        names = _SETTINGS.get(self.kind)
        if names is None:
            names = tuple([name for name, value in given.items() if name[0] != "_" and _is_plain(value)])
            if self.kind.__module__.startswith(
                "torch.nn.modules."
            ):  # whose constructors give all of a class the same settings
                _SETTINGS[self.kind] = names
        else:
            names = tuple([name for name in names if name in given])
        self._given = names, tuple([given[name] for name in names])
        with contextlib.suppress(TypeError):  # something in it has no hash
            self._given = _settings.setdefault(self._given, self._given)
        own = []
        for name, parameter in module._parameters.items():
            if parameter is not None:
                own.append((name, one(parameter.shape)))
                self.learns = self.learns or parameter.requires_grad
        shapes = tuple(own)
        self._own = _settings.setdefault(shapes, shapes)
        if len(_settings) > 10_000:
            _settings.clear()


_settings: dict[Any, Any] = {}  # one for all that are equal (not kept by `one`: a tuple may equal a shape and be none)
_ways: tuple[Any, dict[int, int]] = (None, {})  # the last root that shares parts, and in how many ways it comes to each


def layer_of(watcher: Any, place: Place, module: Any) -> Layer:
    """The layer that stands for *module*, whose place is *place*."""
    found: Layer | None = place.layer
    if found is None:
        outer = _around(watcher, place)
        found = place.layer = Layer(module, place, outer, _times(watcher, place, module))
        if not found.registered:
            root = place
            while root.under is not None and root.under.module is not None:
                root = root.under
            if root is not place and root.layer is not None:
                root.layer.strays += (found,)
    return found


def _around(watcher: Any, place: Place) -> Layer | None:
    """The layer of the module that called the one at *place*, if one did."""
    outer = place.under
    while outer is not None and outer.path == place.path:
        outer = outer.under
    module = None if outer is None or outer.module is None else outer.module()
    return None if outer is None or module is None else layer_of(watcher, outer, module)


def _times(watcher: Any, place: Place, module: Any) -> int:
    """In how many ways the root of *place* comes to *module*."""
    global _ways
    top = watcher.modules.roots.get(place.path.partition(".")[0])
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
    if "." not in place.path:
        _note_root(here, place, module, args)
    if module._modules and not isinstance(module, _WITH_PARTS):
        return
    with torch._C.DisableTorchFunction():
        given: Any = args[0] if args else next(iter(kwargs.values()), None)
        if isinstance(module, _ATTENTION):
            key: Any = (place, tuple([told(each) for each in (*args, *kwargs.values())]), told(out), len(args))
        elif type(given) in TENSORS and type(out) in TENSORS:
            try:
                key = (place, one(given.shape), one(out.shape), len(args))
            except RuntimeError:  # a strided nested tensor has no single shape
                key = (place, shape_of(given), shape_of(out), len(args))
        elif isinstance(given, PackedSequence):
            key = (place, _packed(given, out), shape_of(out), len(args))
        else:
            key = (place, shape_of(given), shape_of(out), len(args))
    layers = here.ledger.layers_at
    layers[key] = layers.get(key, 0) + 1
    layer = place.layer
    if layer is None:
        meet(here, place, module)
    elif not layer.is_read:
        layer.read(module)


def meet(here: Any, place: Place, module: Any) -> None:
    """A module is called for the first time. What its layer is to know of it is asked when its root has been called (`take_down`); at once of
    one that was made on the spot, perhaps, and is not to be held on to, and where processes share what a parameter holds: after the call it
    may have another shape."""
    if ".(" in place.path or here.watcher.shares:
        layer_of(here.watcher, place, module).read(module)
    else:
        here.fresh[place] = module


def take_down(watcher: Any, fresh: dict[Place, Any]) -> None:
    """Make the layers of these modules: when their root has been called, in one go, which is quicker than one by one."""
    while fresh:
        place, module = fresh.popitem()
        layer = layer_of(watcher, place, module)
        if not layer.is_read:
            layer.read(module)


def file(calls: dict[Any, int], layers: dict[Any, int]) -> None:
    """Add *calls*, by place and shapes, to those of *layers*."""
    for (place, given, out, placed), times in calls.items():
        if place.layer is not None:  # of a thread that runs on it may be about to be made
            key = (place.layer, given, out, placed)
            layers[key] = layers.get(key, 0) + times


def _note_root(here: Any, place: Place, module: Any, args: Any) -> None:
    layer = place.layer or layer_of(here.watcher, place, module)
    if layer.full is None:
        layer.full = next(module.parameters(), None) is not None
    for stray in layer.strays:
        stray.learns = stray.learns and stray.alive is not None and stray.alive() is not None
    root = (place.path, _length(args), layer.full)
    here.ledger.roots[root] = here.ledger.roots.get(root, 0) + 1


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
    return Packed(
        given.data.shape, len(given.batch_sizes), states[1] if states is not None and len(states) == 3 else None
    )
