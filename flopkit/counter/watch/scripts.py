"""TorchScript: what its graphs run without an operator, such as convolutions for oneDNN and kernels that it fuses, no dispatcher shows.

After a call from Python the graph that ran says which there were, as often as they are written down, whatever loops and branches do: each is
a row of `uncounted`, the first with the bytes of the call.
"""

from __future__ import annotations

from typing import Any

import torch

from flopkit.counter.calls import OpCall
from flopkit.counter.watch.changes import Changes
from flopkit.counter.watch.state import heres
from flopkit.counter.work import unknown

__all__ = ["install"]

DIFFERENTIATED = "TorchScript may have fused element-wise operators in a graph that it differentiates: those are not seen"

_UNSEEN = (
    "mkldnn_convolution", "MKLDNNGroup", "MKLDNNHardSwish", "MKLDNNHardSigmoid", "MKLDNNHardTanh", "MKLDNNRelu6", "MKLDNNClamp",
    "MKLDNNScalarMul", "MKLDNNLayerNorm", "TensorExprGroup", "TensorExprDynamicGroup", "FusionGroup", "CudaFusionGroup",
    "oneDNNFusionGroup", "StaticSubgraph",
)  # fmt: skip


def install(changes: Changes) -> None:
    """See the calls of TorchScript from Python until *changes* are undone."""
    for kind in (torch.jit.ScriptFunction, torch.ScriptMethod):
        changes.replace(kind, "__call__", _calling)


def _calling(original: Any) -> Any:
    def __call__(script: Any, /, *args: Any, **kwargs: Any) -> Any:
        out = original(script, *args, **kwargs)
        watching = [here for here in heres() if not here.watcher.closed and not here.busy]
        graph = torch._C._last_executed_optimized_graph() if watching else None
        if graph is None:
            return out
        if _can_fuse() and graph.findAllNodes("prim::DifferentiableGraph"):
            for here in watching:
                here.watcher.notes.add(DIFFERENTIATED)
        found = [f"prim.{name}" for name in _UNSEEN for _ in graph.findAllNodes(f"prim::{name}")]
        if found:
            with torch.DisableTorchFunction():
                size = OpCall(script, args, kwargs, out).bytes()
            for here in watching:
                for place, op in enumerate(found):
                    here.watcher.unseen(op, unknown(0 if place else size))
        return out

    return __call__


def _can_fuse() -> bool:
    return bool(torch._C._jit_can_fuse_on_cpu() or (torch._C._jit_can_fuse_on_gpu() and torch.cuda.is_available()))
