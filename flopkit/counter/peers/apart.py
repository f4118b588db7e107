"""Encoder layers that torch ran as one operator, as tools meet them: the hooks that they hang to modules keep torch from doing so."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

from flopkit.counter.ledger import Ledger, Where
from flopkit.counter.peers.lines import arguments, name, shape
from flopkit.counter.told import around

__all__ = ["PACKED", "apart", "packed"]

PACKED = "torch runs a whole encoder layer as one operator, but not under its hooks, which would see the parts"
_OP = "aten::_transformer_encoder_layer_fwd"


class _Apart:
    """A watcher that has seen the parts."""

    def __init__(self, source: Any, ledger: Ledger) -> None:
        self.met_meta = source.met_meta
        self._ledger = ledger

    def ledger(self) -> Ledger:
        return self._ledger


def packed(source: Any) -> bool:
    """Whether an encoder layer ran as one operator."""
    return any(name(entry) == _OP for entry, _ in source.ledger().calls)


def apart(source: Any) -> Any:
    """What *source* would have seen if encoder layers had run as their parts. Each is run once more, with tensors that have no contents.

    Left as they are: all of them while anybody counts in this thread, who would count that, too; and those of nested tensors.
    """
    from flopkit.counter.watching.here import heres

    if not packed(source) or any(not here.watcher.closed for here in heres()):
        return source
    before, after = source.ledger(), Ledger()
    after.take(before)
    hosts = {layer.path: layer for layer, *_ in before.layers}
    for key, calls in before.calls.items():
        entry, where = key
        sizes = shape(arguments(entry).get("src")) if name(entry) == _OP else None
        if sizes is None or where.path not in hosts:
            continue
        found = _parts(arguments(entry), sizes)
        del after.calls[key]
        elsewhere = after.elsewhere.pop(key, 0)
        for part, foreign in ((calls - elsewhere, False), (elsewhere, True)):
            if part:
                _put(after, found, hosts[where.path], part, foreign)
    return _Apart(source, after)


def _parts(args: dict[str, Any], sizes: tuple[int, ...]) -> Ledger:
    """What there is to see of one call of a layer of these sizes, with a hook."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import _disable_current_modes

    from flopkit.counter.watching import patches
    from flopkit.counter.watching.watcher import Watcher

    watcher = Watcher()
    with _alone(), _disable_current_modes(), torch.inference_mode(False), torch.no_grad(), FakeTensorMode():
        layer = torch.nn.TransformerEncoderLayer(
            args["embed_dim"],
            args["num_heads"],
            (shape(args["ffn_weight_1"]) or (0,))[0],
            activation="gelu" if args["use_gelu"] else "relu",
            batch_first=True,
            norm_first=args["norm_first"],
        ).eval()
        layer.register_forward_hook(lambda *_: None)
        square, rows = torch.empty(sizes[1], sizes[1]), torch.empty(sizes[0], sizes[1])
        kind = None if args["mask"] is None else args["mask_type"]
        with patches.installed(), watcher.on_this_thread():
            layer(torch.empty(sizes), square if kind in (0, 2) else None, rows if kind in (1, 2) else None)
    watcher.finish()
    return watcher.ledger()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Without what would have attention inside of a layer run in another way now: function modes (a default device is one), and torch told
    not to take the fast path, which the layer took."""
    import torch
    from torch.overrides import _pop_mode, _push_mode

    fast = torch.backends.mha.get_fastpath_enabled()
    modes = [_pop_mode() for _ in range(torch._C._len_torch_function_stack())]
    torch.backends.mha.set_fastpath_enabled(True)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for mode in reversed(modes):
            _push_mode(mode)


def _put(after: Ledger, found: Ledger, host: Any, calls: int, foreign: bool) -> None:
    """Enter what was *found*, so many times, as parts of the layer *host*."""
    for (entry, where), times in found.calls.items():
        key = (entry, Where(where.phase, _below(host, where.path), where.inside))
        after.calls[key] = after.calls.get(key, 0) + calls * times
        if foreign:
            after.elsewhere[key] = after.elsewhere.get(key, 0) + calls * times
    for (layer, *call), times in found.layers.items():
        part = copy.copy(layer)
        part.path, part.times = _below(host, layer.path), host.times
        part.around = (*host.around, *layer.around[1:]) if part.registered else host.around
        after.layers[(part, *call)] = calls * times
    for (function, inner, _, *call), times in found.functions.items():
        new = (function, around((*host.around, *inner.classes[1:]), host.times), foreign, *call)
        after.functions[new] = after.functions.get(new, 0) + calls * times


def _below(host: Any, path: str) -> str:
    """The path of a part, as the program's model has it."""
    return ".".join([host.path, *path.split(".")[1:]])
