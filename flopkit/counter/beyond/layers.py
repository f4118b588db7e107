"""Which layers and functions were called, with which shapes: what counters go by that are made of hooks, or that trace."""

from __future__ import annotations

import contextlib
import dis
import sys
import weakref
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch._jit_internal import boolean_dispatch
from torch.nn.utils.rnn import PackedSequence

from flopkit.counter.told import Listed, Packed, around
from flopkit.counter.watching.places import Place, shares

__all__ = ["FUNCTIONS", "Layer", "install", "note", "noting"]

_POOLS = [f"{kind}_pool{dims}d" for kind in ("avg", "max", "adaptive_avg", "adaptive_max") for dims in (1, 2, 3)]
_POOLS += [f"{pool}_with_indices" for pool in _POOLS if "max" in pool]
_BY_NAME = (
    "linear", "multi_head_attention_forward", "relu", "prelu", "elu", "leaky_relu", "relu6", "silu", "gelu", "softmax",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "interpolate", "grid_sample", *_POOLS,
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "local_response_norm",
)  # fmt: skip
FUNCTIONS: dict[Any, str] = {
    **{getattr(F, name): name for name in _BY_NAME},
    torch.batch_norm: "torch.batch_norm",  # its arguments come in another order than those of F.batch_norm
    torch.instance_norm: "torch.instance_norm",
    torch.layer_norm: "layer_norm",
    torch.group_norm: "group_norm",
    **dict.fromkeys((torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__), "matmul"),
    **dict.fromkeys((torch.mm, torch.Tensor.mm), "mm"),
    **dict.fromkeys((torch.bmm, torch.Tensor.bmm), "bmm"),
    **dict.fromkeys((torch.addmm, torch.Tensor.addmm), "addmm"),
    torch.baddbmm: "baddbmm",
    torch.einsum: "einsum",
    **dict.fromkeys((torch.add, torch.Tensor.add), "add"),
    **dict.fromkeys((torch.mul, torch.Tensor.mul), "mul"),
    # Made of products, and a single operator in a trace.
    torch.tensordot: "tensordot",
    torch.chain_matmul: "chain_matmul",
    torch.linalg.multi_dot: "multi_dot",
    **dict.fromkeys((torch.inner, torch.Tensor.inner), "inner"),
    **dict.fromkeys((torch.matrix_power, torch.Tensor.matrix_power, torch.linalg.matrix_power), "matrix_power"),
    **dict.fromkeys((torch.cov, torch.Tensor.cov), "cov"),
    **dict.fromkeys((torch.corrcoef, torch.Tensor.corrcoef), "corrcoef"),
}
# A sign (``a + b``) calls the same method as its name does (``a.add(b)``), and only who calls it tells which: tools that replace
# the method see the one and not the other.
_SIGNS = frozenset({torch.Tensor.add, torch.Tensor.mul, torch.Tensor.matmul, torch.Tensor.__matmul__})
_NOT_F = frozenset({torch.batch_norm, torch.instance_norm, torch.layer_norm, torch.group_norm})
_ALSO_IN_TORCH = frozenset(func for func, name in FUNCTIONS.items() if getattr(torch, name, None) is getattr(F, name, 0) is func)
_SETTINGS: dict[type, tuple[str, ...]] = {}  # their names, of torch's own layers
# Layers that count as one, though there may be others below them: parts, parametrisations, what a derived class adds, a script's.
_ATTENTION = torch.nn.MultiheadAttention
_WITH_PARTS = (
    _ATTENTION, torch.nn.Linear, torch.nn.Bilinear, torch.nn.modules.conv._ConvNd, torch.nn.RNNBase, torch.nn.RNNCellBase,
    torch.nn.modules.batchnorm._NormBase, torch.nn.LayerNorm, torch.nn.GroupNorm, torch.nn.RMSNorm,
    torch.jit.ScriptModule, torch.nn.TransformerEncoderLayer,
)  # fmt: skip
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_other_modes = torch._C._len_torch_function_stack
_graph_task = torch._C._current_graph_task_id
_is_tracing = torch._C._is_tracing
traces: list[None] = []  # one for each call of `torch.jit.trace` under way, in whatever thread
_PLAIN = (int, bool, str, float, tuple, type(None))
_SIMPLE = frozenset({int, bool, str, float, type(None)})


def install(stack: contextlib.ExitStack, replace: Callable[..., None]) -> None:
    """While `torch.jit.trace` records, a shape that is looked at is recorded, too: nothing is put down of what is called meanwhile."""

    def tracing(original: Any) -> Any:
        def trace(*args: Any, **kwargs: Any) -> Any:
            traces.append(None)
            try:
                return original(*args, **kwargs)
            finally:
                traces.pop()

        return trace

    for owner, name in _TRACES:
        replace(stack, owner, name, tracing)
    if _is_tracing():  # what is traced counts
        traces.append(None)
        stack.callback(traces.pop)


_TRACES: list[tuple[Any, str]] = [
    (owner, name)
    for owner in (torch._C, torch._C.ScriptModule)
    for kind in ("function_from_trace", "graph_by_tracing", "method_from_trace")
    for name in (f"_create_{kind}", f"_create_{kind}_with_dict")
    if name in vars(owner)
]


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
            self.around, self.times = _one((*self.around, self.kind)), ways
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
                self.parameters[name] = _one(parameter.shape)
                self.learns = self.learns or parameter.requires_grad


_ways: tuple[Any, dict[int, int]] = (None, {})  # the last root that shares parts, and in how many ways it comes to each


def _layer(here: Any, place: Place, module: Any) -> Layer:
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
    if _graph_task() != -1 or (traces and _is_tracing()):  # in a backward pass: done again; in a trace: what is looked at is recorded
        return
    place = here.place
    layer = place.layer or _layer(here, place, module)
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
            key: Any = (layer, tuple(_told(each) for each in (*args, *kwargs.values())), _told(out), len(args))
        elif isinstance(given, PackedSequence):
            key = (layer, _packed(given, out), _shape(out), len(args))
        else:
            try:
                key = (
                    layer, _one(given.shape) if type(given) in _TENSORS else _shape(given),
                    _one(out.shape) if type(out) in _TENSORS else _shape(out), len(args),
                )  # fmt: skip
            except RuntimeError:  # a strided nested tensor has no single shape
                key = (layer, _shape(given), _shape(out), len(args))
    layers = here.ledger.layers
    layers[key] = layers.get(key, 0) + 1


def noting(func: Any, run: Callable[..., Any] | None) -> Callable[..., Any]:
    """How to call *func*, by *run* if it is given, and to put the call down: its name, the modules around it, whether another thread
    calls it, what it was given, what came out, whether it was looked up by its name."""
    name, own = FUNCTIONS[func].removesuffix("_with_indices"), func not in _NOT_F
    sign = func in _SIGNS

    def noted(watcher: Any, func: Any, args: Any, kwargs: Any) -> Any:
        called, looked_up = name, own and _asked_for(sys._getframe(2), func, name, sign)
        if sign and not looked_up:
            if name != "matmul":
                return func(*args, **kwargs)
            called = "@"
        out = func(*args, **kwargs) if run is None else run(watcher, func, args, kwargs)
        if _graph_task() == -1 and not (traces and _is_tracing()):
            here = getattr(watcher.local, "here", None) or watcher.here
            if _other_modes():
                with torch._C.DisableTorchFunction():
                    _note_call(here, called, args, kwargs, out, looked_up)
            else:
                _note_call(here, called, args, kwargs, out, looked_up)
        return out

    return noted


_NO_MODULE = around((), 1)


def _note_call(here: Any, called: str, args: Any, kwargs: Any, out: Any, looked_up: bool | str) -> None:
    place = here.place
    module = None if place.module is None else place.module()
    layer = None if module is None else place.layer or _layer(here, place, module)
    try:
        given = tuple([
            _one(each.shape) if type(each) in _TENSORS else each if type(each) in _SIMPLE else _told(each) for each in args
        ])  # fmt: skip
        came = _one(out.shape) if type(out) in _TENSORS else _told(out)
    except RuntimeError:  # a strided nested tensor has no single shape
        given, came = tuple([_told(each) for each in args]), _told(out)
    named = tuple([(word, _told(each)) for word, each in kwargs.items()]) if kwargs else ()
    within = _NO_MODULE if layer is None else layer.within
    key = (called, within, here.ledger.foreign, given, named, came, looked_up)
    functions = here.ledger.functions
    functions[key] = functions.get(key, 0) + 1


_SIGN_CODES = frozenset(code for name, code in dis.opmap.items() if name.startswith("BINARY_"))
_F = vars(F)
_BETWEEN = frozenset(
    map(id, map(vars, (F, torch.overrides, torch.functional, sys.modules[boolean_dispatch.__module__])))
)


_sites: dict[Any, Any] = {}  # what was found for a place in the source: the code (held, so that its number is not given out again), the answer


def _asked_for(frame: Any, func: Any, name: str, sign: bool) -> bool | str:
    """`_looked_up`, found once for each place in the source and each function there. Where it is another function of torch.nn.functional
    that calls *func*, that one's name."""
    while id(frame.f_globals) in _BETWEEN and frame.f_back is not None:
        caller = frame.f_code.co_name
        if caller != name and frame.f_globals is _F and caller.strip("_").removesuffix("_with_indices") != name:
            return caller if name in frame.f_code.co_names else False
        frame = frame.f_back
    code = frame.f_code
    site = (id(code), frame.f_lasti, func)
    found = _sites.get(site)
    if found is None:
        if len(_sites) > 10_000:
            _sites.clear()
        found = _sites[site] = (code, _looked_up(frame, func, name, sign))
    answer: bool = found[1]
    return answer


def _looked_up(frame: Any, func: Any, name: str, sign: bool) -> bool:
    """Whether who calls *func* says ``F.name(...)``, ``torch.name(...)`` or ``x.name(...)`` there, so that what a tool puts in its
    place is called: not a sign, nor ``sum(...)``, nor what was imported or kept under a name of its own."""
    code = frame.f_code
    if name not in code.co_names or (frame.f_globals.get(name) is func and name not in _attributes(code)):
        return False
    if func in _ALSO_IN_TORCH and _owner(frame, name) is torch:  # where no tool puts anything
        return False
    return not sign or code.co_code[frame.f_lasti] not in _SIGN_CODES


def _owner(frame: Any, name: str) -> Any:
    """What *name* was looked up in for the call that *frame* is at, if that has a global name there: the call's source begins with it."""
    steps = list(dis.get_instructions(frame.f_code))
    begins = {step.offset: step.positions and step.positions[0::2] for step in steps}
    owner = None
    for before, step in pairwise(steps):
        if step.argval == name and step.opname in _LOOKS_UP and begins[step.offset] == begins.get(frame.f_lasti):
            owner = frame.f_globals.get(before.argval) if before.opname == "LOAD_GLOBAL" else None
    return owner


_LOOKS_UP = ("LOAD_ATTR", "LOAD_METHOD")


@lru_cache(256)
def _attributes(code: Any) -> frozenset[str]:
    """The names that *code* looks up in something else."""
    return frozenset(step.argval for step in dis.get_instructions(code) if step.opname in _LOOKS_UP)


def _length(args: Any) -> int | None:
    """The batch that a root is given: the length of its first argument; 1 without any, None where it has none."""
    if not args:
        return 1
    try:
        return len(args[0])
    except (TypeError, RuntimeError):  # a number; a strided nested tensor
        return None


def _told(value: Any) -> Any:
    """Of a tensor its shape, of plain settings their value, of tuples and lists each part, of the rest nothing."""
    if type(value) in _SIMPLE:
        return value
    if isinstance(value, torch.Tensor):
        return _sizes(value)
    if isinstance(value, (tuple, list)):
        told = [_told(each) for each in value]
        return Listed(told) if isinstance(value, list) else tuple(told)
    return value if isinstance(value, (int, str, float)) else None


def _shape(value: Any) -> Any:
    """The shape of a tensor, of the first one in a tuple or list, of the last one in a dict; of packed sequences that of their data."""
    if isinstance(value, torch.Tensor):
        return _sizes(value)
    if isinstance(value, (tuple, list)) and value:
        return _shape(value[0])
    return _shape([*value.values()][-1]) if isinstance(value, dict) and value else None


def _packed(given: PackedSequence, out: Any) -> Packed:
    """How many sequences they are stands in a tensor; a recurrent layer's states have it as a size."""
    states = _shape(out[1]) if isinstance(out, tuple) and len(out) > 1 else None
    return Packed(given.data.shape, len(given.batch_sizes), states[1] if states is not None and len(states) == 3 else None)


def _sizes(tensor: torch.Tensor) -> Any:
    """The shape of a tensor; None of a strided nested one, which has no single shape."""
    return None if tensor.is_nested and tensor.layout is torch.strided else _one(tensor.shape)


_ones: dict[Any, Any] = {}


def _one(value: Any) -> Any:
    """One shape, or tuple of classes, for all that are equal, so that few are kept: Python looks through what is kept now and then, and
    that takes time."""
    if len(_ones) > 10_000:
        _ones.clear()
    return _ones.setdefault(value, value)
