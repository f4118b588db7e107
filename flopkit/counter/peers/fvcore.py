"""fvcore 0.1.5: the operators of a trace, forward only. It prints multiply-adds under the name of FLOPs, and adds norms and pools."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from flopkit.counter.peers import dispatch
from flopkit.counter.peers.calls import Called, estimate, functions, is_shape, scripted
from flopkit.counter.peers.families import rows_of
from flopkit.counter.peers.lines import ATTENTION, arguments, lines, name, shape
from flopkit.counter.peers.seen import Fails, Row, Seen

__all__ = ["seen"]

UNSEEN = "it has no rule for {}, counts 0, and logs a warning"
WORD = "it has no rule for a convolution that is padded by a word"
SPREAD = "of a product it reads the first factor, and how wide the second is: not what the first is spread over"
VECTOR = "it takes a dense layer with a single row for one as wide as it is long"
ESTIMATE = "of einsum it takes what numpy estimates, in numpy's order, and to four digits"
WHOLE = "what is made of products inside of one operator is that operator in its trace, and has no rule"
THREADS = (
    "what other threads compute is not in its trace, and it fails where a gradient is wanted of what they give back"
)
TENSOR = "a tensordot whose dimensions stand in a tensor is in this number, and not in its"
CONSTANT = "RuntimeError: Cannot insert a Tensor that requires grad as a constant. Consider making it a parameter or input, or detaching the gradient"
SCRIPT = "RuntimeError: register_forward_pre_hook is not supported on ScriptModules"
UNIT = "FLOPs"
REALLY = "multiply-adds, and operations of norms and pools"
_MADE_OF_PRODUCTS = ("tensordot", "inner", "matrix_power", "multi_dot", "chain_matmul", "cov", "corrcoef")
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::linear", "aten::convolution", "aten::_convolution")


def seen(source: Any) -> Seen:
    """What ``FlopCountAnalysis(model, inputs).total()`` would print of the forward passes that *source* watched.

    Convolutions and matrix products are taken as the dispatcher shows them. fvcore meets them one floor above, and its rules there
    differ for some: for a convolution with ``padding="same"`` or ``"valid"`` it has none, of ``matmul`` it reads the first factor's
    shape and the second one's last size (and fails where that is a vector), and ``einsum`` it leaves to numpy. What is different
    is put right by the calls of those functions, and so is what runs inside of ``torch.tensordot`` and others that are made of
    products: they are single operators in a trace, without a rule. One thing cannot be seen from a run: a result that nothing uses is
    not in its trace, and is in this number.
    """
    ledger = source.ledger()
    _raise_what_it_raises(source)
    macs: Counter[str] = Counter()
    vectors = set()  # matrices that a vector was multiplied by, for which it has no rule
    whole = {layer.path for layer, *_ in ledger.layers if layer.kind.__name__ in ("RNN", "GRU", "LSTM")}  # one operator
    for line in lines(source):
        op = name(line.entry)
        unseen = line.hidden or (line.inside and line.group == ATTENTION) or line.path in whole
        if line.phase == "forward" and not unseen and op in _PRODUCTS and not _of_a_row(line.entry, op):
            family = "convolution" if "conv" in op else "dense"
            macs[family] += line.calls * dispatch.count(line.entry) // 2
        if op == "aten::mv":
            vectors.add(shape(arguments(line.entry).get("self")))
    added: Counter[str] = Counter()
    other: dict[str, list[int]] = {}
    remarks = {THREADS: None} if ledger.elsewhere else {}
    for call in functions(source):
        if call.elsewhere:
            continue
        what, each = _added(call)
        added[what] += call.times * each
        if call.name == "tensordot" and is_shape(call.given(2, "dims")):
            remarks[TENSOR] = None
            continue
        reason, gap = _otherwise(call, vectors)
        if gap:
            found = other.setdefault(reason, [0, 0])
            found[0] += call.times
            found[1] += call.times * gap
    total, rows = rows_of(source, {f: 2 * n for f, n in macs.items()}, {f: 2 * n for f, n in added.items()}, UNSEEN)
    rows += [Row(_ROWS[reason], calls, 0, 2 * gap, reason) for reason, (calls, gap) in other.items()]
    value = sum(macs.values()) + sum(added.values()) + sum(gap for _, gap in other.values())
    return Seen("fvcore", value, UNIT, REALLY, total, rows, tuple(remarks))


def _raise_what_it_raises(source: Any) -> None:
    """It hangs hooks to every module; and a parameter that does not belong to the model cannot be in a trace."""
    if scripted(source):
        raise Fails(SCRIPT)
    if any(layer.learns and not layer.registered for layer, *_ in source.ledger().layers):
        raise Fails(CONSTANT)


_ROWS = {
    WORD: "convolutions padded by a word",
    SPREAD: "products of several matrices",
    VECTOR: "dense layers with one row",
    ESTIMATE: "einsum, as estimated",
    WHOLE: "products inside of others",
}


def _of_a_row(entry: Any, op: str) -> bool:
    """Whether this is a dense layer whose weight is a vector, which is put right by its call."""
    return op == "aten::linear" and len(shape(arguments(entry).get("weight")) or ()) == 1


def _otherwise(call: Called, vectors: Any) -> tuple[str, int]:
    """Multiply-adds that its rule finds in a call, less those which the dispatcher shows of it; and why."""
    function = call.name
    if function in ("conv1d", "conv2d", "conv3d") and isinstance(call.given(4, "padding"), str):
        w = call.given(1, "weight")
        batch = call.out[0] if len(call.out) == len(w) else 1
        return WORD, -batch * prod(w) * prod(call.out[2 - len(w) :])
    if function in ("matmul", "@"):
        return SPREAD, _product(call, vectors)
    if function == "linear":
        w = call.given(1, "weight")
        return VECTOR, prod(call.x) * w[0] if len(w) == 1 else 0
    if function == "einsum":
        return ESTIMATE, _einsum(call)
    return (WHOLE, -_shown(call)) if function in _MADE_OF_PRODUCTS else ("", 0)


def _product(call: Called, vectors: Any) -> int:
    first, second = call.args[0] if call.args else call.given(0, "input"), call.given(1, "other")
    if not (is_shape(first) and is_shape(second) and is_shape(call.out)):
        return 0
    if "out" in call.named:
        raise Fails(f"AssertionError: {[list(first), list(second), list(call.out)]}")
    if len(second) == 1:
        raise Fails("IndexError: list index out of range")
    shown = prod(call.out) * first[-1]
    if len(first) == 1 and len(second) > 2 and (prod(second) // first[0] if first[0] else 0, *first) in vectors:
        shown = 0  # all of the second's matrices were taken as one, which the dispatcher shows as no product of two
    return int(prod(first) * second[-1] - shown)


def _einsum(call: Called) -> int:
    equation, *shapes = call.args
    shapes = list(shapes[0]) if len(shapes) == 1 and not is_shape(shapes[0]) else shapes
    if not all(map(is_shape, shapes)):
        return 0
    plain = equation.replace(" ", "")
    letters = {letter: chr(97 + place) for place, letter in enumerate(dict.fromkeys(filter(str.isalpha, plain)))}
    plain = "".join(letters.get(letter, letter) for letter in plain)
    if plain == "abc,abd->acd":
        found = prod(shapes[0]) * shapes[1][-1]
    elif plain == "abc,adc->adb":
        found = prod(shapes[0]) * shapes[1][1]
    else:
        found = int(estimate(plain, shapes) // 2)
    return int(found - _shown(call))


def _shown(call: Called) -> int:
    """Multiply-adds that the dispatcher shows of a function made of products: it is called once more, on meta, where nobody watches."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

    macs = 0

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal macs
            if func in (torch.ops.aten.bmm.default, torch.ops.aten.mm.default):
                macs += prod(args[0].shape) * args[1].shape[-1]
            return func(*args, **(kwargs or {}))

    if call.name in ("cov", "corrcoef"):  # (which looks at values)
        return int(prod(call.x) * (call.x[0] if len(call.x) == 2 else 1))
    function = getattr(torch.linalg if call.name == "multi_dot" else torch, call.name)
    with (
        _disable_current_modes(),
        torch._C.DisableTorchFunction(),
        torch.inference_mode(False),
        torch.no_grad(),
        Watching(),
    ):
        function(
            *map(_made_up, call.args), **{word: _made_up(each) for word, each in call.named.items() if word != "out"}
        )
    return macs


def _made_up(told: Any) -> Any:
    """An argument as remembered, with tensors that have no contents."""
    import torch

    if is_shape(told):
        return torch.empty(told, device="meta")
    return [_made_up(each) for each in told] if isinstance(told, tuple) else told


def _added(call: Called) -> tuple[str, int]:
    function, x = call.name, call.x
    if function in ("batch_norm", "torch.batch_norm"):
        scaled = call.given(3 if function == "batch_norm" else 1, "weight") is not None
        if not call.given(5, "training"):
            return "norms", prod(x) * (1 + scaled)
        return "norms", prod(x) * (4 + scaled) if _normed(x) else 0
    if function in ("layer_norm", "group_norm", "instance_norm"):
        place = 3 if function == "instance_norm" else 2
        return "norms", prod(x) * (4 + (call.given(place, "weight") is not None)) if _normed(x) else 0
    if function == "torch.instance_norm":
        return "norms", prod(x) * (4 + (call.given(1, "weight") is not None)) if _normed(x) else 0
    if function == "adaptive_avg_pool2d" or (
        function == "interpolate" and len(x) == 4 and call.given(3, "mode") == "area"
    ):
        return "pools", prod(x)
    if function == "interpolate" and len(x) == 4:
        return "upsampling", {"nearest": 1, "bilinear": 4}.get(call.given(3, "mode") or "nearest", 0) * prod(call.out)
    if function == "grid_sample":
        return "sampling", 4 * prod(call.out)
    return "nothing", 0


def _normed(x: Any) -> bool:
    """Its rule for norms wants from two to five dimensions."""
    if not 2 <= len(x) <= 5:
        raise Fails(f"AssertionError: {list(x)}")
    return True
