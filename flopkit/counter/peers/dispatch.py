"""torch's own counter, ``torch.utils.flop_counter.FlopCounterMode``, as of torch 2.13: 23 formulas, and 0 for everything else.

It is a dispatch mode as ours is, so it meets the same operators. What it makes of each is said here: its formulas, and where they
are wrong. Nothing of torch's file is called.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from flopkit.counter.ledger import Entry
from flopkit.counter.peers.lines import ATTENTION, Line, arguments, lines, name, shape, truth
from flopkit.counter.peers.seen import Row, Seen

__all__ = ["count", "seen"]

NO_FORMULA = "it has no formula for {}, counts 0 and says nothing"
GROUPS = "it does not divide the weight gradient of a grouped convolution by the groups"
LAYOUT = "it reads (batch, length, heads, size) as (batch, heads, length, size)"
COMPLEX = "it counts a complex multiply-add as a real one"
THREAD = "it watches only the thread in which it was entered"
KERNEL = "it does not look inside an operator that torch cannot take apart"
NO_KERNEL = "attention has no kernel here: it sees plain products, and no recomputation in the backward pass"
OTHER = "its formula for {} is another"

Shape = tuple[int, ...]


def seen(source: Any) -> Seen:
    """What FlopCounterMode would print of the run that *source* watched."""
    found: dict[tuple[str, str], list[int]] = {}
    value = total = 0
    remarks: dict[str, None] = {}
    parts = {ATTENTION}
    for line in lines(source):
        true = truth(line)
        told = 0 if line.hidden else line.calls * count(line.entry)
        total += true
        value += told
        if line.inside:
            parts.add(line.group)
        if true or told:
            row = found.setdefault((line.group, _reason(line, true, told)), [0, 0, 0])
            row[0] += 0 if line.inside else line.calls
            row[1] += true
            row[2] += told
        if name(line.entry).endswith("::cond"):
            remarks["it runs both branches of a cond, and takes the larger for each operator"] = None
    rows = [Row(op, calls, true, told, reason) for (op, reason), (calls, true, told) in found.items()]
    return Seen("torch (FlopCounterMode)", value, "FLOPs", "FLOPs", total, _together(rows, parts), tuple(remarks))


def _reason(line: Line, true: int, told: int) -> str:
    if line.inside or line.group == ATTENTION or true == told:
        return ""
    if line.hidden:
        return THREAD if line.hidden == "thread" else KERNEL
    op = name(line.entry)
    if op not in FORMULAS:
        return NO_FORMULA.format(line.group)
    if told * 4 == true:
        return COMPLEX
    if op == "aten::convolution_backward":
        return GROUPS
    if op in ("aten::_flash_attention_forward", "aten::_efficient_attention_forward"):
        return LAYOUT
    return OTHER.format(line.group)


def _together(rows: list[Row], parts: set[str]) -> list[Row]:
    """Attention is a line for us and whatever ran inside for a dispatch mode: the two are put together."""
    found = [row for row in rows if row.operator not in parts]
    for op in sorted(parts):
        mine = [row for row in rows if row.operator == op]
        if mine:
            calls, flops, told = (sum(getattr(row, what) for row in mine) for what in ("calls", "flops", "seen"))
            called = "attention as this device runs it" if op == ATTENTION else op
            reason = "" if flops == told else NO_KERNEL if told else NO_FORMULA.format(called)
            found.append(Row(op, calls, flops, told, reason))
    return found


def count(entry: Entry) -> int:
    formula = FORMULAS.get(name(entry))
    if formula is None:
        return 0
    return int(formula(arguments(entry), entry))


# -- its formulas ------------------------------------------------------------------------------------------------


def _product(a: Shape, b: Shape) -> int:
    """(…, m, k) times (…, k, n): dtypes, masks and zeros do not matter."""
    return 2 * prod(a) * b[-1]


def _shapes(args: dict[str, Any], *names: str) -> list[Shape]:
    found = [shape(args.get(each)) for each in names]
    return [] if None in found else found  # type: ignore[return-value]


def _products(first: str, second: str) -> Callable[[dict[str, Any], Entry], int]:
    def formula(args: dict[str, Any], entry: Entry) -> int:
        pair = _shapes(args, first, second)
        return _product(*pair) if pair else 0

    return formula


def _linear(args: dict[str, Any], entry: Entry) -> int:
    """Under inference mode a layer arrives whole, and is taken apart into the same product."""
    pair = _shapes(args, "input", "weight")
    return 2 * prod(pair[0]) * prod(pair[1][:-1]) if pair else 0


def _convolution(args: dict[str, Any], entry: Entry) -> int:
    pair = _shapes(args, "input", "weight")
    return _slides(pair[0], pair[1], _output(args, pair[0], pair[1]), bool(args.get("transposed"))) if pair else 0


def _slides(x: Shape, w: Shape, out: Shape, transposed: bool) -> int:
    """Weights of all groups as they lie in memory: (out, in / groups, …), transposed (in, out / groups, …)."""
    return 2 * x[0] * prod(w) * prod((x if transposed else out)[2:])


def _output(args: dict[str, Any], x: Shape, w: Shape) -> Shape:
    def each(name: str, place: int, usual: int) -> int:
        given = args.get(name)
        if not isinstance(given, (list, tuple)) or not given:
            return usual
        return int(given[place if len(given) > 1 else 0])

    sizes = [
        (length + 2 * each("padding", i, 0) - each("dilation", i, 1) * (kernel - 1) - 1) // each("stride", i, 1) + 1
        for i, (length, kernel) in enumerate(zip(x[2:], w[2:], strict=False))
    ]
    return (x[0], w[0], *sizes)


def _convolution_backward(args: dict[str, Any], entry: Entry) -> int:
    found = _shapes(args, "grad_output", "input", "weight")
    if not found:
        return 0
    gradient, x, w = found
    wanted = args.get("output_mask") or (True, True, True)
    transposed = bool(args.get("transposed"))
    flops = 0
    if wanted[0]:
        flops += _slides(gradient, w, x, not transposed)
    if wanted[1]:
        # Input and gradient of all channels slide over each other: each of the groups is taken to see every channel.
        slid, over = (gradient, x) if transposed else (x, gradient)
        flops += 2 * slid[1] * over[1] * over[0] * prod(over[2:]) * prod(w[2:])
    return flops


def _fused(args: dict[str, Any], entry: Entry) -> int:
    """Every position of the score matrix, twice the head's size: (batch, heads, length, size)."""
    found = _shapes(args, "query", "key", "value")
    if not found:
        return 0
    q, k, v = found
    return 2 * q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])


def _fused_backward(args: dict[str, Any], entry: Entry) -> int:
    """Five products: the scores once more, and four gradients."""
    found = _shapes(args, "query", "key", "value")
    if not found:
        return 0
    q, k, v = found
    return 2 * q[0] * q[1] * q[2] * k[2] * (3 * q[3] + 2 * v[3])


def _varlen(inner: Callable[[dict[str, Any], Entry], int], offsets: str) -> Callable[[dict[str, Any], Entry], int]:
    """The same of the kernels beneath, which take (batch, length, heads, size): read in the wrong order, unless offsets are given."""

    def formula(args: dict[str, Any], entry: Entry) -> int:
        if args.get(offsets) is not None:  # by the true lengths, which stand in a tensor: as we count them
            return round(2 * (sum(entry.work.done.values()) + sum(entry.work.again.values())))
        return inner(args, entry)

    return formula


def _flex(inner: Callable[[dict[str, Any], Entry], int]) -> Callable[[dict[str, Any], Entry], int]:
    """FlexAttention has no schema; its first three arguments are queries, keys and values. The block mask is not looked at."""

    def formula(args: dict[str, Any], entry: Entry) -> int:
        given = entry.key[1] if isinstance(entry.key, tuple) and len(entry.key) > 1 else ()
        return inner(dict(zip(("query", "key", "value"), given, strict=False)), entry)

    return formula


FORMULAS: dict[str, Callable[[dict[str, Any], Entry], int]] = {
    "aten::mm": _products("self", "mat2"),
    "aten::addmm": _products("mat1", "mat2"),
    "aten::bmm": _products("self", "mat2"),
    "aten::baddbmm": _products("batch1", "batch2"),
    "aten::_scaled_mm": _products("self", "mat2"),
    "aten::linear": _linear,
    "aten::convolution_backward": _convolution_backward,
    "higher_order::flex_attention": _flex(_fused),
    "higher_order::flex_attention_backward": _flex(_fused_backward),
    "aten::_flash_attention_forward": _varlen(_fused, "cum_seq_q"),
    "aten::_flash_attention_backward": _varlen(_fused_backward, "cum_seq_q"),
    "aten::_efficient_attention_forward": _varlen(_fused, "cu_seqlens_q"),
    "aten::_efficient_attention_backward": _varlen(_fused_backward, "cu_seqlens_q"),
}
for _kernel in ("efficient", "flash", "cudnn"):
    FORMULAS[f"aten::_scaled_dot_product_{_kernel}_attention"] = _fused
    FORMULAS[f"aten::_scaled_dot_product_{_kernel}_attention_backward"] = _fused_backward
for _operator in (
    "convolution",
    "_convolution",
    "cudnn_convolution",
    "convolution_overrideable",
    "_slow_conv2d_forward",
):
    FORMULAS[f"aten::{_operator}"] = _convolution
