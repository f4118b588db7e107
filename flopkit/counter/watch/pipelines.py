"""Which tensors a pipeline's stage sends and receives for its backward pass: it does so outside of autograd, where nothing else tells."""

from __future__ import annotations

import sys
from typing import Any

from torch.utils.weak import WeakIdKeyDictionary

from flopkit.counter.calls import tensors
from flopkit.counter.watch.changes import Changes

_gradients: Any = WeakIdKeyDictionary()  # those that were handed out to be sent or received


def install(changes: Changes) -> None:
    """Look at what a stage hands out, where pipelines are in use."""
    if (stages := sys.modules.get("torch.distributed.pipelining.stage")) is not None:
        for name in ("get_bwd_send_ops", "get_bwd_recv_ops"):
            changes.replace(stages._PipelineStageBase, name, _handing_out)
        changes.callback(_gradients.clear)


def _handing_out(original: Any) -> Any:
    def ops(stage: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(stage, *args, **kwargs)
        for each in found:
            _gradients[each.tensor] = True
        return found

    return ops


def of_backward(args: Any) -> bool:
    """Whether an operator outside of autograd sends or receives gradients of a pipeline."""
    return bool(_gradients) and any(each in _gradients for each in tensors(args))
