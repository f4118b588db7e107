"""What runs with no operator around it, so that no dispatcher shows it: Triton kernels that are launched directly, compiled packages, CUDA
graphs that are replayed, and what TorchScript fuses or gives to oneDNN.

A Triton kernel with a formula (`flopkit.formula`) is counted by it; all else is a row of `uncounted` with the bytes of its tensors, each
once. An autotuner's trials are not counted: the launch is one call, however many kernels it tries. What an operator launches that has a
formula of its own (`torch.library.triton_op` and `@fk.formula` on that) belongs to the operator.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from flopkit.counter import registry
from flopkit.counter.calls import OpCall
from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.state import busy, counting_states
from flopkit.counter.work import Work, unknown

# Classes whose `run` launches a kernel, by the module they are in: compiled, tuned, chosen by heuristics, interpreted.
MODULES: Mapping[str, tuple[str, ...]] = {
    "triton.runtime.jit": ("JITFunction",),
    "triton.runtime.autotuner": ("Autotuner", "Heuristics"),
    "triton.runtime.interpreter": ("InterpretedFunction",),
}
# What runs a package that AOTInductor compiled, and its row: `torch._inductor.aoti_load_package`, and `torch._export.aot_load` by device.
_RUNNER = "AOTIModelContainerRunner"
PACKAGES = (
    *(("AOTIModelPackageLoader", name, "inductor.AOTICompiledModel") for name in ("run", "boxed_run")),
    *((f"{_RUNNER}{device}", "run", f"inductor.{_RUNNER}") for device in ("Cpu", "Cuda", "Xpu", "Mps")),
)
FBGEMM = "fbgemm_linear_fp16_weight_fp32_activation"
_OF_TORCHSCRIPT = (
    "mkldnn_convolution", "MKLDNNGroup", "MKLDNNHardSwish", "MKLDNNHardSigmoid", "MKLDNNHardTanh", "MKLDNNRelu6", "MKLDNNClamp",
    "MKLDNNScalarMul", "MKLDNNLayerNorm", "TensorExprGroup", "TensorExprDynamicGroup", "FusionGroup", "CudaFusionGroup",
    "oneDNNFusionGroup", "StaticSubgraph",
)  # fmt: skip
AHEAD = "inductor.AOTCompiledFunction"
GRAPH, REPLAYED = (
    "cuda.CUDAGraph",
    "a CUDA graph was replayed: neither what it ran nor the bytes that it moved are seen",
)
LATE = "Triton was loaded while this was counted: kernels that were launched directly, if any, are not seen"
DIFFERENTIATED = "TorchScript may have fused element-wise operators of a graph that it differentiates: not seen"


def loaded() -> list[str]:
    """Which of `MODULES` are loaded."""
    return [name for name in MODULES if name in sys.modules]


def install(changes: Changes) -> None:
    """See the launches of what is loaded by now until *changes* are undone."""
    for module, kinds in MODULES.items():
        for kind in [getattr(sys.modules.get(module), name, None) for name in kinds]:
            if hasattr(kind, "run"):
                changes.replace(kind, "run", _launching)
            elif hasattr(kind, "__getitem__"):  # the interpreter, up to Triton 3.6: ``kernel[grid]`` launches
                changes.replace(kind, "__getitem__", _indexing)
    compiled: Any = torch._C._aoti
    packages = ((getattr(compiled, kind, None), name, op) for kind, name, op in PACKAGES)
    for owner, name, op in ((torch, FBGEMM, FBGEMM), *packages):
        if hasattr(owner, name):
            changes.replace(owner, name, functools.partial(recorded_as_uncounted, op))
    graph: Any = torch.cuda.CUDAGraph
    changes.replace(graph, "replay", lambda original: recorded_as_uncounted(GRAPH, original, REPLAYED))
    ahead = getattr(sys.modules.get("torch._dynamo.aot_compile"), "AOTCompiledFunction", None)
    if ahead is not None:
        changes.replace(ahead, "guard_check", _guarding)
        changes.replace(ahead, "__call__", _running_ahead)
    for kind in (torch.jit.ScriptFunction, torch.ScriptMethod):
        changes.replace(kind, "__call__", _scripting)


def _bytes(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    with torch.DisableTorchFunction():
        return OpCall(func, args, kwargs, out).bytes()


def recorded_as_uncounted(op: str, original: Any, note: str = "") -> Any:
    """*original*, each call of which is a row of `uncounted` under the name *op*."""

    def call(*args: Any, **kwargs: Any) -> Any:
        states = counting_states()
        moved = _bytes(original, args, kwargs, None)  # now: a package empties the list that it is given
        with busy(states):
            out = original(*args, **kwargs)
        for state in states:
            work = replace(unknown(moved + _bytes(original, (), {}, out)), note=note)
            state.add_without_operator(op, work)
        return out

    return call


def _launching(original: Any) -> Any:
    def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        states = [] if kwargs.get("warmup") else counting_states()
        with busy(states):  # the kernels beneath, an autotuner's trials, the interpreter's own operators
            out = original(kernel, *args, **kwargs)
        given = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
        name = getattr(_beneath(kernel)[-1], "__name__", type(kernel).__name__)
        for state in states:
            state.add_without_operator(f"triton.{name}", _work(kernel, args, given))
        return out

    return run


def _indexing(original: Any) -> Any:
    def __getitem__(kernel: Any, grid: Any) -> Any:
        launch = original(kernel, grid)
        return functools.partial(_launching(lambda _, *args, **kwargs: launch(*args, **kwargs)), kernel)

    return __getitem__


def _beneath(kernel: Any) -> list[Any]:
    """The kernel, and what it wraps: an autotuner its heuristics, those a compiled function, that one a Python function."""
    found = [kernel]
    while getattr(found[-1], "fn", None) is not None and len(found) < 10:
        found.append(found[-1].fn)
    return found


def _work(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
    call = OpCall(kernel, args, kwargs, None)
    formula = next(filter(None, map(registry.users_formula, _beneath(kernel))), None)
    return unknown(call.bytes()) if formula is None else formula(call)


def _guarding(original: Any) -> Any:
    """A function that was compiled ahead of time takes tensors that a mode watches for others than it was compiled for."""

    def guard_check(function: Any, *args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return original(function, *args, **kwargs)

    return guard_check


def _running_ahead(original: Any) -> Any:
    """It runs as it is: its operators count, and kernels that its compiler may have made are listed, as one call."""

    def __call__(function: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(function, *args, **kwargs)
        if getattr(function._artifacts, "backend_name", "") not in ("eager", "aot_eager"):
            for state in counting_states():
                state.add_without_operator(AHEAD, unknown(_bytes(original, args, kwargs, out)))
        return out

    return __call__


def _scripting(original: Any) -> Any:
    """After a call from Python the graph that ran says what was in it, as often as that is written down, whatever loops and branches do."""

    def __call__(script: Any, /, *args: Any, **kwargs: Any) -> Any:
        out = original(script, *args, **kwargs)
        states = counting_states()
        graph: Any = torch._C._last_executed_optimized_graph() if states else None
        if graph is None:
            return out
        on_gpu = torch._C._jit_can_fuse_on_gpu() and torch.cuda.is_available()
        if (on_gpu or torch._C._jit_can_fuse_on_cpu()) and graph.findAllNodes("prim::DifferentiableGraph"):
            for state in states:
                state.session.notes.add(DIFFERENTIATED)
        found = [f"prim.{name}" for name in _OF_TORCHSCRIPT for _ in graph.findAllNodes(f"prim::{name}")]
        moved = _bytes(script, args, kwargs, out) if found else 0
        for state in states:
            for place, op in enumerate(found):
                state.add_without_operator(op, unknown(0 if place else moved))  # the bytes of the call, once
        return out

    return __call__
