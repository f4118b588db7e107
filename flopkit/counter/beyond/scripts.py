"""What TorchScript runs past the modes: attention that it calls from C++, and what it runs without an operator: convolutions for oneDNN (`torch.jit.optimize_for_inference`) and kernels that it fused.

No dispatcher shows them. After a call from Python the graph that ran says which there were: each is a row of `uncounted`, with the bytes of
the tensors whose shapes the graph knows; what went into the call and came out stands in for those that it does not.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from flopkit.counter.beyond import regions
from flopkit.counter.calls import Call, extent
from flopkit.counter.watching.here import heres
from flopkit.counter.work import unknown

__all__ = ["install"]

_UNSEEN = (
    "mkldnn_convolution", "MKLDNNGroup", "MKLDNNHardSwish", "MKLDNNHardSigmoid", "MKLDNNHardTanh", "MKLDNNRelu6", "MKLDNNClamp",
    "MKLDNNScalarMul", "MKLDNNLayerNorm", "TensorExprGroup", "TensorExprDynamicGroup", "FusionGroup", "CudaFusionGroup",
    "oneDNNFusionGroup", "StaticSubgraph",
)  # fmt: skip
_DIFFERENTIATED = "prim::DifferentiableGraph"
# What `torch.func` wraps has no device that autograd knows of, if it is on meta; under `torch.vmap` torch takes attention apart before that.
_KEYS = ("AutogradCPU", "AutogradCUDA", "AutogradMeta", "AutogradOther", "FuncTorchVmapMode")
BACKWARD = "TorchScript fused kernels of what is differentiated: those of the backward pass are not seen, and are listed nowhere"


def install(stack: contextlib.ExitStack, replace: Callable[..., None]) -> None:
    """See the calls of TorchScript from Python until *stack* is closed. *replace* changes an attribute until then."""
    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        replace(stack, kind, "__call__", _calling)
    _attention(stack)


def _attention(stack: contextlib.ExitStack) -> None:
    """TorchScript calls attention from C++, a layer from inside of a function that was seen: no function mode is asked there, and for a
    while the operator's own kernel tells."""
    op = torch.ops.aten.scaled_dot_product_attention.default

    def attention(*args: Any, **kwargs: Any) -> Any:
        run: Any = op.decompose
        for here in heres():
            if not here.watcher.closed and here.place.region is None:
                run = functools.partial(_as_region, here.watcher, run)
        return run(*args, **kwargs)

    library = torch.library.Library("aten", "IMPL")
    stack.callback(library._destroy)
    for key in _KEYS:
        with warnings.catch_warnings():  # torch says that it had a kernel for `torch.vmap`, too; it has it again afterwards
            warnings.simplefilter("ignore", UserWarning)
            library.impl("scaled_dot_product_attention", attention, key)


def _as_region(watcher: Any, run: Any, *args: Any, **kwargs: Any) -> Any:
    return regions.attention(watcher, run, args, kwargs)


def _calling(original: Any) -> Any:
    def __call__(script: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(script, *args, **kwargs)
        watching = [here for here in heres() if not here.watcher.closed and not here.busy]
        graph: Any = torch._C._last_executed_optimized_graph() if watching else None
        if graph is None:
            return out
        found = list(_unseen(graph))
        if graph.findAllNodes(_DIFFERENTIATED):
            inside, fused = _differentiated(script)
            found += inside
            for here in watching if fused else ():
                here.watcher.notes.add(BACKWARD)
        if found:
            with torch._C.DisableTorchFunction():
                rest = Call(script, args, kwargs, out).bytes()
                rows = []
                for node in found:
                    known, whole = _bytes(node)
                    if not whole:
                        known, rest = known + rest, 0  # once for each call
                    rows.append((node.kind().replace("::", "."), known))
            for here in watching:
                for op, size in rows:
                    here.watcher.unseen(op, unknown(size))
        return out

    return __call__


def _unseen(graph: Any) -> Iterator[Any]:
    """The nodes of *graph* that pass no dispatcher, each as often as it is written down: how often a loop ran, and which branch was
    taken, the graph does not say."""
    for name in _UNSEEN:
        yield from graph.findAllNodes(f"prim::{name}")
    for fork in graph.findAllNodes("prim::fork"):
        yield from _unseen(fork.g("Subgraph"))


def _differentiated(script: Any) -> tuple[list[Any], bool]:
    """The same of the parts of *script* that are differentiated, which have graphs of their own; and whether there are any, or will be
    in their backward passes."""
    forward: list[Any] = []
    backward: list[Any] = []
    if isinstance(script, torch._C.ScriptMethod):
        if script.name != "forward":  # of other methods torch does not say
            return [], True
        script = script.owner
    try:
        for plan in script.get_debug_state().execution_plans.values():
            for found, states in (
                (forward, plan.code.differentiable_op_executor_states),
                (backward, plan.code.grad_executor_states),
            ):
                found.extend(node for graph in _graphs(states()) for node in _unseen(graph))
    except RuntimeError:  # no plan yet: it runs as it was written, and torch takes notes
        pass
    return forward, bool(forward or backward)


def _graphs(states: Any) -> Iterator[Any]:
    for state in states:
        for plan in state.execution_plans.values():
            yield plan.graph


def _bytes(node: Any) -> tuple[int, bool]:
    """Bytes of the tensors that go in and come out, and whether the shapes of all of them are known."""
    total, whole = 0, True
    for value in (*node.inputs(), *node.outputs()):
        if not isinstance(value.type(), torch._C.TensorType):
            continue
        made = value.node()
        if made.kind() in ("prim::ConstantMKLDNNTensor", "prim::Constant") and made.hasAttribute("value"):
            total += extent(made.t("value"))
            continue
        sizes, dtype = value.type().sizes(), value.type().dtype()
        if sizes is None or dtype is None or None in sizes:
            whole = False
        else:
            total += torch.Size(sizes).numel() * dtype.itemsize
    return total, whole
