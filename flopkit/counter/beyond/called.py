"""Which functions were called, by whom, with which shapes: what counters go by that put functions of their own in torch's place, or trace."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch._jit_internal import boolean_dispatch

from flopkit.counter.beyond.layers import meet
from flopkit.counter.beyond.shapes import SIMPLE, TENSORS, one, told
from flopkit.counter.beyond.traced import is_done_again, traces
from flopkit.counter.told import around

__all__ = ["FUNCTIONS", "file", "noting"]

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
_ALSO_IN_TORCH = frozenset(
    func for func, name in FUNCTIONS.items() if getattr(torch, name, None) is getattr(F, name, 0) is func
)
_other_modes = torch._C._len_torch_function_stack
_graph_task = torch._C._current_graph_task_id


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
        if _graph_task() == -1 and not (traces and is_done_again()):
            here = getattr(watcher.local, "here", None) or watcher.here
            if here.busy:  # torch tries something out while a part of it is imported
                return out
            if _other_modes():
                with torch._C.DisableTorchFunction():
                    _note_call(here, called, args, kwargs, out, looked_up)
            else:
                _note_call(here, called, args, kwargs, out, looked_up)
        return out

    return noted


_NO_MODULE = around((), 1)
_SIZE = torch.Size


def _note_call(here: Any, called: str, args: Any, kwargs: Any, out: Any, looked_up: bool | str) -> None:
    place = here.place
    while place.region is not None:
        place = place.under
    named = tuple([(word, told(each)) for word, each in kwargs.items()]) if kwargs else ()
    try:
        key = (
            called, place, here.ledger.foreign, looked_up, named, out.shape if type(out) in TENSORS else told(out),
            *[each.shape if type(each) in TENSORS else each if type(each) in SIMPLE else told(each) for each in args],
        )  # fmt: skip
    except RuntimeError:  # a strided nested tensor has no single shape
        key = (called, place, here.ledger.foreign, looked_up, named, told(out), *map(told, args))
    functions = here.ledger.functions_at
    times = functions.get(key)
    if times is not None:
        functions[key] = times + 1
        return
    functions[(*key[:5], *[one(each) if type(each) is _SIZE else each for each in key[5:]])] = 1
    if place.layer is None and place.module is not None and (module := place.module()) is not None:
        meet(here, place, module)


def file(calls: dict[Any, int], functions: dict[Any, int]) -> None:
    """Add *calls*, by place and shapes, to those of *functions*, by the modules around."""
    for (name, place, foreign, looked_up, named, came, *given), times in calls.items():
        within = _NO_MODULE if place.layer is None else place.layer.within
        key = (name, within, foreign, tuple(given), named, came, looked_up)
        functions[key] = functions.get(key, 0) + times


_SIGN_CODES = frozenset(code for name, code in dis.opmap.items() if name.startswith("BINARY_"))
_F = vars(F)
_BETWEEN = frozenset(
    map(id, map(vars, (F, torch.overrides, torch.functional, sys.modules[boolean_dispatch.__module__])))
)


_sites: dict[
    Any, Any
] = {}  # what was found for a place in the source: the code (held, so that its number is not given out again), the answer


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
