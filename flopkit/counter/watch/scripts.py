"""What TorchScript runs past the modes: attention that it calls from C++, kernels that it fuses, and what it runs without an operator:
convolutions for oneDNN (`torch.jit.optimize_for_inference`).

A script runs as it was written while it is counted, and what TorchScript made of it stays as it is: so nothing is fused, forward or backward.
What is in the graph without an operator no dispatcher shows. After a call from Python the graph that ran says which there were: each is a row
of `uncounted`, with the bytes of the tensors whose shapes the graph knows; what went into the call and came out stands in for those that it
does not.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from flopkit.counter.beyond import regions
from flopkit.counter.calls import OpCall, extent
from flopkit.counter.watch.changes import Changes, catch_up, waiting
from flopkit.counter.watch.state import heres
from flopkit.counter.work import unknown

__all__ = ["install"]

_UNSEEN = (
    "mkldnn_convolution", "MKLDNNGroup", "MKLDNNHardSwish", "MKLDNNHardSigmoid", "MKLDNNHardTanh", "MKLDNNRelu6", "MKLDNNClamp",
    "MKLDNNScalarMul", "MKLDNNLayerNorm", "TensorExprGroup", "TensorExprDynamicGroup", "FusionGroup", "CudaFusionGroup",
    "oneDNNFusionGroup", "StaticSubgraph",
)  # fmt: skip
# What `torch.func` wraps has no device that autograd knows of, if it is on meta; under `torch.vmap` torch takes attention apart before that.
_KEYS = ("AutogradCPU", "AutogradCUDA", "AutogradMeta", "AutogradOther", "FuncTorchVmapMode")


_WITH_A_TEXT = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)  # that are made of one


def install(changes: Changes) -> None:
    """See the calls of TorchScript from Python until *changes* are undone."""
    before = torch._C._jit_set_profiling_mode(False)  # no looking at what runs, in order to fuse it later
    changes.callback(torch._C._jit_set_profiling_mode, before)
    run = torch.jit.ScriptFunction.__call__
    written: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
    for kind in (torch.jit.ScriptFunction, torch.ScriptMethod):
        changes.replace(kind, "__call__", functools.partial(_calling, run, written))
    waiting.append(functools.partial(_attention, changes))
    changes.callback(waiting.clear)
    changes.replace(torch._C, "DisableTorchFunction", _disabling)


def _disabling(original: Any) -> Any:
    def disable() -> Any:
        catch_up()
        return original()

    return disable


def _attention(changes: Changes) -> None:
    """TorchScript calls attention from C++, a layer from inside of a function that was seen: no function mode is asked there, and for a
    while the operator's own kernel tells. That takes long, so it waits for the first sign of such a call (`catch_up`)."""
    op = torch.ops.aten.scaled_dot_product_attention.default

    def attention(*args: Any, **kwargs: Any) -> Any:
        run: Any = op.decompose
        for here in heres():
            if not here.watcher.closed and here.place.region is None:
                run = functools.partial(_as_region, here.watcher, run)
        return run(*args, **kwargs)

    library = torch.library.Library("aten", "IMPL")
    changes.callback(library._destroy)
    with warnings.catch_warnings():
        # torch says that it had a kernel for `torch.vmap`, too; it has it again afterwards
        warnings.simplefilter("ignore", UserWarning)
        for key in _KEYS:
            library.impl("scaled_dot_product_attention", attention, key)


def _as_region(watcher: Any, run: Any, *args: Any, **kwargs: Any) -> Any:
    return regions.attention(watcher, run, args, kwargs)


def _calling(run: Any, written: Any, original: Any) -> Any:
    def __call__(script: Any, /, *args: Any, **kwargs: Any) -> Any:
        catch_up()
        watching = [here for here in heres() if not here.watcher.closed and not here.busy]
        given = _arguments(script, args, kwargs) if watching and not torch._C._is_tracing() else None
        if given is None:
            return original(script, *args, **kwargs)
        if script not in written:
            try:
                written[script] = torch._C._create_function_from_graph(script.name, script.graph.copy())
            except RuntimeError:  # a method of a class in C++ has no graph
                written[script] = None
        function = written[script]
        if function is None:
            return original(script, *args, **kwargs)
        try:
            out = run(function, *given)
        except Exception as error:
            text = str(error)
            if text.endswith(": \n") and (said := watching[0].failed) and type(error) in _WITH_A_TEXT:
                # TorchScript tells where it was, and of an error that comes through Python not what it said.
                raise type(error)(f"{text[:-1]}{said}\n") from None
            raise
        found = list(_unseen(torch._C._last_executed_optimized_graph()))
        if found:
            with torch.DisableTorchFunction():
                rest = OpCall(script, args, kwargs, out).bytes()
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


def _arguments(script: Any, args: Any, kwargs: Any) -> list[Any] | None:
    """All arguments of a call, one by one; None where some are missing or too many, or want to be asked (as those of `torch.fx` do)."""
    method = isinstance(script, torch.ScriptMethod)
    expected = script.schema.arguments[method:]
    given, named = list(args), dict(kwargs)
    if len(given) > sum(not argument.kwarg_only for argument in expected):
        return None
    if any(
        hasattr(type(each), "__torch_function__") and not isinstance(each, torch.Tensor)
        for each in (*args, *kwargs.values())
    ):
        return None
    for argument in expected[len(given) :]:
        if argument.name in named:
            given.append(named.pop(argument.name))
        elif argument.has_default_value():
            given.append(argument.default_value)
        else:
            return None
    if named:
        return None
    return [script.owner, *given] if method else given


def _unseen(graph: Any) -> Iterator[Any]:
    """The nodes of *graph* that pass no dispatcher, each as often as it is written down: how often a loop ran, and which branch was
    taken, the graph does not say."""
    for name in _UNSEEN:
        yield from graph.findAllNodes(f"prim::{name}")
    for fork in graph.findAllNodes("prim::fork"):
        yield from _unseen(fork.g("Subgraph"))


def _bytes(node: Any) -> tuple[int, bool]:
    """Bytes of the tensors that go in and come out, and whether the shapes of all of them are known."""
    total, whole = 0, True
    for value in (*node.inputs(), *node.outputs()):
        if not isinstance(value.type(), torch.TensorType):
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
