"""The backward pass of torch's chunked `linear_cross_entropy` where nothing is reduced.

It is no operator but a Python function, which makes the logits once more, chunk by chunk, beside the gradients. What runs in it becomes one
call, in which that product is recomputation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from flopkit.counter.calls import tensors
from flopkit.counter.ledger import Ledger
from flopkit.counter.watch.state import counting_states
from flopkit.counter.work import COUNTED, Work

OP = "torch_nn._linear_cross_entropy_batch_chunked_no_reduction_backward"
NODE = "GeneratedBackwardFor_torch_nn__linear_cross_entropy_batch_chunked_no_reduction_defaultBackward"


def as_one_call(original: Any) -> Any:
    """*original*, the `apply` of such a node, whose operators become one call."""

    def apply(node: Any, *gradients: Any, **by_name: Any) -> Any:
        states = counting_states()
        ledgers = [state.ledger for state in states]
        dtype = str(next(tensors((gradients, by_name))).dtype).removeprefix("torch.")  # of the input, too
        for state in states:
            state.ledger = Ledger()
        try:
            return original(node, *gradients, **by_name)
        finally:
            for state, ledger in zip(states, ledgers, strict=True):
                seen, state.ledger = state.ledger, ledger
                work, by_torch = _of(seen, sum(map(bool, node.needs_input_grad[:2])))
                state.add_without_operator(OP, replace(work, dtype=dtype), by_torch)

    return apply


def _of(seen: Ledger, gradients: int) -> tuple[Work, int]:
    """The work of the call, and what torch's counter says of it: a product for each gradient, as large as the one for the logits. (The dot
    products are the loss, which is not asked for again: element-wise work here as in the forward pass.)"""
    macs, vector = Counter[bool](), Counter[str]()
    moved = by_torch = 0
    for (entry, where), calls in seen.calls.items():
        work = entry.work
        macs[entry.op == "dot"] += calls * sum(work.model.values())
        for kind, flops in work.vector.items():
            vector[kind] += calls * flops
        moved += calls * work.bytes
        by_torch += (calls - seen.unseen[entry, where]) * (entry.by_torch or 0)
    vector["elementwise"] += 2 * macs[True]
    one = macs[False] // (1 + gradients)
    model, again = {"products": one * gradients}, {"products": one}
    return Work(COUNTED, model, recomputed=again, vector=dict(vector), bytes=moved), by_torch
