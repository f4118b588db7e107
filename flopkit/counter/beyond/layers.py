"""Which layers and functions were called, with which shapes: what counters go by that are made of hooks, or that trace."""

from __future__ import annotations

import contextlib
import dis
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch._jit_internal import boolean_dispatch

from flopkit.counter.watching.places import shares

__all__ = ["FUNCTIONS", "Layer", "install", "note", "noting"]

_POOLS = [f"{kind}_pool{dims}d" for kind in ("avg", "max", "adaptive_avg", "adaptive_max") for dims in (1, 2, 3)]
_POOLS += [f"{pool}_with_indices" for pool in _POOLS if "max" in pool]
_BY_NAME = (
    "linear", "multi_head_attention_forward", "relu", "prelu", "elu", "leaky_relu", "relu6", "silu", "gelu", "softmax",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "interpolate", "grid_sample", *_POOLS,
)  # fmt: skip
FUNCTIONS: dict[Any, str] = {
    **{getattr(F, name): name for name in _BY_NAME},
    torch.batch_norm: "torch.batch_norm",  # its arguments come in another order than those of F.batch_norm
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
}
# A sign (``a + b``) calls the same method as its name does (``a.add(b)``), and only who calls it tells which: tools that replace
# the method see the one and not the other.
_SIGNS = frozenset({torch.Tensor.add, torch.Tensor.mul, torch.Tensor.matmul, torch.Tensor.__matmul__})
_NOT_F = frozenset({torch.batch_norm, torch.layer_norm, torch.group_norm})
_SETTINGS: dict[type, tuple[str, ...]] = {}  # their names, of torch's own layers
_WITH_PARTS = (torch.nn.MultiheadAttention,)  # layers that are made of others, and count as one
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
    """A layer as a hook meets it: its path, its class, its settings, the shapes of its own parameters; no tensor and no module."""

    __slots__ = ("kind", "parameters", "path", "settings")

    def __init__(self, module: Any, path: str) -> None:
        self.path = path
        self.kind = type(module)
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
        self.parameters = {
            name: parameter.shape for name, parameter in module._parameters.items() if parameter is not None
        }


def note(here: Any, module: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Put down a call of *module*, if it is a layer: one that is made of no others. Of a root, whatever it is: the batch."""
    if _graph_task() != -1 or (traces and _is_tracing()):  # in a backward pass: done again; in a trace: what is looked at is recorded
        return
    place = here.place
    if "." not in place.path:
        root = (place.path, _length(args), shares(place))
        here.ledger.roots[root] = here.ledger.roots.get(root, 0) + 1
    if module._modules and type(module) not in _WITH_PARTS:
        return
    with torch._C.DisableTorchFunction():
        layer = place.layer
        if layer is None:
            layer = place.layer = Layer(module, place.path)
        if type(module) in _WITH_PARTS:
            key: Any = (layer, tuple(_told(each) for each in (*args, *kwargs.values())), _told(out))
        else:
            given: Any = args[0] if args else next(iter(kwargs.values()), None)
            try:
                key = (layer, given.shape if type(given) in _TENSORS else _shape(given), out.shape if type(out) in _TENSORS else _shape(out))
            except RuntimeError:  # a strided nested tensor has no single shape
                key = (layer, _shape(given), _shape(out))
    layers = here.ledger.layers
    layers[key] = layers.get(key, 0) + 1


def noting(func: Any, run: Callable[..., Any] | None) -> Callable[..., Any]:
    """How to call *func*, by *run* if it is given, and to put the call down: its name, the class of the layer that calls it, what it
    was given, what came out, whether it was looked up by its name."""
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


def _note_call(here: Any, called: str, args: Any, kwargs: Any, out: Any, looked_up: bool) -> None:
    module = here.place.module
    try:
        given = tuple([
            each.shape if type(each) in _TENSORS else each if type(each) in _SIMPLE else _told(each) for each in args
        ])  # fmt: skip
        came = out.shape if type(out) in _TENSORS else _told(out)
    except RuntimeError:  # a strided nested tensor has no single shape
        given, came = tuple([_told(each) for each in args]), _told(out)
    named = tuple([(word, _told(each)) for word, each in kwargs.items()]) if kwargs else ()
    key = (called, type(None if module is None else module()), (given, named), came, looked_up)
    functions = here.ledger.functions
    functions[key] = functions.get(key, 0) + 1


_SIGN_CODES = frozenset(code for name, code in dis.opmap.items() if name.startswith("BINARY_"))
_BETWEEN = frozenset(
    map(id, map(vars, (F, torch.overrides, torch.functional, sys.modules[boolean_dispatch.__module__])))
)


_sites: dict[Any, Any] = {}  # what was found for a place in the source: the code (held, so that its number is not given out again), the answer


def _asked_for(frame: Any, func: Any, name: str, sign: bool) -> bool:
    """`_looked_up`, found once for each place in the source and each function there."""
    if id(frame.f_globals) in _BETWEEN:
        return _looked_up(frame, func, name, sign)
    code = frame.f_code
    site = (id(code), frame.f_lasti, func)
    found = _sites.get(site)
    if found is None:
        if len(_sites) > 10_000:
            _sites.clear()
        found = _sites[site] = (code, _looked_up(frame, func, name, sign))
    return bool(found[1])


def _looked_up(frame: Any, func: Any, name: str, sign: bool) -> bool:
    """Whether who calls *func* says ``F.name(...)``, ``torch.name(...)`` or ``x.name(...)`` there, so that what a tool puts in its
    place is called: not a sign, nor ``sum(...)``, nor what was imported or kept under a name of its own."""
    while id(frame.f_globals) in _BETWEEN and frame.f_back is not None:
        frame = frame.f_back
    code = frame.f_code
    if name not in code.co_names or (frame.f_globals.get(name) is func and name not in _attributes(code)):
        return False
    return not sign or code.co_code[frame.f_lasti] not in _SIGN_CODES


@lru_cache(256)
def _attributes(code: Any) -> frozenset[str]:
    """The names that *code* looks up in something else."""
    return frozenset(step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_ATTR", "LOAD_METHOD"))


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
        return tuple([_told(each) for each in value])
    return value if isinstance(value, (int, str, float)) else None


def _shape(value: Any) -> Any:
    """The shape of a tensor, or of the first one in a tuple; of packed sequences that of their data."""
    if isinstance(value, torch.Tensor):
        return _sizes(value)
    if isinstance(value, tuple) and value:
        return _shape(value[0])
    return None


def _sizes(tensor: torch.Tensor) -> Any:
    """The shape of a tensor; None of a strided nested one, which has no single shape."""
    return None if tensor.is_nested and tensor.layout is torch.strided else tensor.shape
