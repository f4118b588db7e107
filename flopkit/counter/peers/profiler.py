"""``torch.profiler`` with ``with_flops=True``, as of torch 2.13 on a CPU: products and 2-d convolutions, and every number of the first
factor of ``mul`` and summand of ``add``; it sees what operators call inside of themselves, and backward passes, too."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from flopkit.counter.ledger import Entry
from flopkit.counter.peers import dispatch
from flopkit.counter.peers.calls import Called, functions
from flopkit.counter.peers.families import family_of
from flopkit.counter.peers.lines import Line, arguments, lines, name, shape, truth
from flopkit.counter.peers.seen import Row, Seen

__all__ = ["seen"]

NO_FORMULA = "it has no formula for {}, nor for what that calls inside"
PARTS = "it has no formula for {}, and sees the products that it is made of on a CPU"
AGAIN = "it has no formula for {}, of which the backward pass consists"
INSIDE = (
    "what operators call inside of themselves is in this number for lstm, grouped products, attention and encoder layers, bilinear "
    "forms and distances alone"
)
BIASES = "sums with a vector inside of attention and recurrent layers are taken for biases, which it does not see, for they are added in place"
GRADIENTS = (
    "which sums of gradients are added in place, where it does not see them, cannot be told: none is in this number"
)
META = "on meta it also sees what torch makes shapes up with, which is not in this number"
NUMBERS = "products of numbers"
_WITH_DENSE_INSIDE = ("MultiheadAttention", "RNN", "LSTM", "GRU")  # whose calls of dense layers nobody sees
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear")
_INSIDE = ("aten::_grouped_mm", "aten::_native_multi_head_attention")  # run as products on a CPU
_MADE_OF = ("aten::_trilinear", "aten::_euclidean_dist")  # of products that are not the same work
_EMPTY = ("aten::mkldnn_rnn_layer", "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::mv", "aten::dot")
_BACKWARD = ("aten::convolution_backward", "aten::_scaled_dot_product_flash_attention_for_cpu_backward")


def seen(source: Any) -> Seen:
    """The sum of ``event.flops`` over ``key_averages()``, for all that *source* watched."""
    true: dict[tuple[str, bool], list[int]] = {}
    told: dict[tuple[str, bool], int] = {}
    added: dict[str, int] = {}
    remarks: dict[str, None] = {}
    in_place = _InPlace(source)
    for line in lines(source):
        ahead = line.phase == "forward"
        if flops := truth(line):
            row = true.setdefault((line.group, ahead), [0, 0])
            row[0] += line.calls
            row[1] += flops
            op = name(line.entry)
            known = (
                *_PRODUCTS,
                "aten::_transformer_encoder_layer_fwd",
                *_INSIDE,
                *_MADE_OF,
                *_EMPTY,
                *_BACKWARD,
                "aten::convolution",
                "",
            )
            if op not in known:
                remarks[INSIDE] = None
        if line.hidden == "thread":
            continue
        unseen, why = in_place.take(line)
        if why:
            remarks[why] = None
        if unseen == line.calls:
            continue
        if name(line.entry) in _MADE_OF:
            products, numbers = _made_of(line.entry)
            told[line.group, ahead] = told.get((line.group, ahead), 0) + line.calls * products
            added[NUMBERS] = added.get(NUMBERS, 0) + line.calls * numbers
            continue
        what, each = _count(line)
        if what:
            added[what] = added.get(what, 0) + (line.calls - unseen) * each
        elif each:
            told[line.group, ahead] = told.get((line.group, ahead), 0) + line.calls * each
    if source.met_meta:
        remarks[META] = None
    slides = _convolutions(source)
    found = []
    for (group, ahead), (calls, flops) in true.items():
        mine = told.pop((group, ahead), 0)
        if ahead and family_of(group) == "convolution":
            mine = min(flops, slides)
            slides -= mine
        label = group if ahead else f"{group}, not forward"
        why = PARTS if f"aten::{group}" in _MADE_OF else NO_FORMULA if ahead else AGAIN
        found.append(Row(label, calls, flops, mine, "" if mine == flops else why.format(group)))
    for (group, _), flops in told.items():  # parts of attention, whose line is above
        found.append(Row(f"{group}, its parts", 0, 0, flops, f"it adds {group}"))
    if slides:
        added["convolutions"] = slides
    found += [Row(what, 0, 0, flops, f"it adds {what}") for what, flops in added.items() if flops]
    value = sum(row.seen for row in found)
    total = sum(flops for _, flops in true.values())
    return Seen(
        "torch.profiler", value, "FLOPs", "FLOPs, sums and products of numbers too", total, found, tuple(remarks)
    )


class _InPlace:
    """Sums that are added in place where no mode watches: of gradients, and of the biases of dense layers that did not run as one product."""

    def __init__(self, source: Any) -> None:
        dense: Counter[Any] = Counter()  # calls with a bias, of more than two dimensions, by what came out and the bias
        whole: Counter[Any] = (
            Counter()
        )  # those that ran as one, by the sizes of both matrices; those of two dimensions left out
        for line in lines(source):
            args = arguments(line.entry) if name(line.entry) in ("aten::addmm", "aten::linear") else {}
            if name(line.entry) == "aten::addmm":
                whole[shape(args.get("mat1")), shape(args.get("mat2"))] += line.calls
            elif (x := shape(args.get("input"))) and (w := shape(args.get("weight"))) and args.get("bias") is not None:
                whole[(prod(x[:-1]), x[-1]), w[::-1]] += line.calls  # in inference mode
        calls = [call for call in functions(source) if call.name == "linear" and call.given(2, "bias") is not None]
        for call in calls:
            if len(call.x) < 3:
                whole[_factors(call)] -= call.times
        for call in calls:
            if len(call.x) > 2:
                as_one = min(call.times, max(whole[_factors(call)], 0))
                whole[_factors(call)] -= as_one
                dense[tuple(call.out), tuple(call.given(2, "bias"))] += call.times - as_one
        self.biases = dense
        self.opaque = [layer.path for layer, *_ in source.ledger().layers if layer.kind.__name__ in _WITH_DENSE_INSIDE]

    def take(self, line: Line) -> tuple[int, str]:
        """How many of these calls it does not see, and what is unsure about that."""
        if name(line.entry) != "aten::add":
            return 0, ""
        if line.phase == "backward":
            return line.calls, GRADIENTS
        sizes = _sizes(line.entry.key)
        if len(sizes) < 2 or len(sizes[0]) < 3 or len(sizes[1]) != 1:
            return 0, ""
        if line.path in self.opaque or line.phase != "forward":
            return line.calls, BIASES
        key = tuple(sizes[0]), tuple(sizes[1])
        found = min(line.calls, self.biases[key])
        self.biases[key] -= found
        return found, ""


def _factors(call: Called) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of the matrices that a dense layer multiplies."""
    w = call.given(1, "weight")
    return (prod(call.x[:-1]), call.x[-1]), tuple(w[::-1])


def _count(line: Line) -> tuple[str, int]:
    """What one call adds under a name of its own, or else FLOPs of the operator."""
    op, entry = name(line.entry), line.entry
    if op in ("aten::add", "aten::mul"):
        sizes = _sizes(entry.key)
        return ("sums" if op == "aten::add" else NUMBERS), prod(sizes[0]) if sizes else 0
    if op in _PRODUCTS:
        return "", dispatch.count(entry)
    if op in _INSIDE:
        return "", round(2 * sum(entry.work.done.values()))
    if (
        op == "aten::_transformer_encoder_layer_fwd"
    ):  # one of its dense layers is a product with an activation, without a formula
        given, w = (shape(arguments(entry).get(each)) or () for each in ("src", "ffn_weight_1"))
        return "", round(2 * sum(entry.work.done.values())) - 2 * prod(given) * (w[0] if given and w else 0)
    if op == "aten::repeat":
        times = arguments(entry).get("repeats") or ()
        return "sums inside of repeat", 0 if 0 in times else len(times)
    if op == "aten::mkldnn_rnn_layer":
        args = arguments(entry)
        return "sums of biases", prod(shape(args.get("weight2")) or (0,)) if args.get("has_biases") else 0
    return "", 0


def _made_of(entry: Entry) -> tuple[int, int]:
    """FLOPs of the products that an operator calls inside of itself, and numbers that it multiplies."""
    args = arguments(entry)
    if name(entry) == "aten::_trilinear":
        return _trilinear(args)
    first, second = shape(args.get("x1")), shape(args.get("x2"))
    if first is None or second is None:
        return 0, 0
    # Rows are made longer by two, their squared lengths and ones, and the first ones are taken twice.
    return 2 * prod(first[:-1]) * second[-2] * (first[-1] + 2), prod(first)


def _trilinear(args: dict[str, Any]) -> tuple[int, int]:
    """Slice by slice along one dimension: a product of the first two, and one of that with the third."""
    sizes: list[list[int]] = []
    for which in ("1", "2", "3"):
        given = list(shape(args.get(f"i{which}")) or ())
        for place in sorted(args[f"expand{which}"]):
            given.insert(place, 1)
        sizes.append(given)
    if len({len(each) for each in sizes}) > 1:
        return 0, 0
    along, summed = args.get("unroll_dim", 1), set(args["sumdim"]) - {args.get("unroll_dim", 1)}
    slices = max(each[along] for each in sizes)
    first, second, third = ([*each[:along], 1, *each[along + 1 :]] for each in sizes)
    early = summed & set(args["expand3"])
    buffer, products, numbers = _pair(first, second, early)
    _, more, others = _pair(buffer, third, summed - early)
    return slices * (products + more), slices * (numbers + others)


def _pair(left: list[int], right: list[int], summed: set[int]) -> tuple[list[int], int, int]:
    """The sizes of a product that is summed over some dimensions; its FLOPs, or the numbers that are multiplied if none is summed."""
    both = [max(a, b) if min(a, b) else 0 for a, b in zip(left, right, strict=True)]
    if not summed:
        return both, 0, prod(left)
    # What only one of them has along a summed dimension is added up beforehand.
    alone = {place for place in summed if min(left[place], right[place]) == 1}
    kept = [1 if place in summed else size for place, size in enumerate(both)]
    return kept, 2 * prod(size for place, size in enumerate(both) if place not in alone), 0


def _sizes(key: Any) -> list[Any]:
    """The shapes of the arguments, however the call is filed; a number that comes first has the shape ()."""
    import torch

    found: list[Any] = []
    for part in key[1:] if isinstance(key, tuple) else ():
        if isinstance(part, torch.Size):
            found.append(part)
        elif isinstance(part, type) and not found:
            found.append(())
        elif isinstance(part, tuple) and part and not isinstance(part[0], (int, bool)):
            found += _sizes((None, *part))
    return found


def _convolutions(source: Any) -> int:
    """Convolutions of images by `conv2d`, with a padding in numbers."""
    flops = 0
    for call in functions(source):
        if (
            call.name == "conv2d"
            and not call.elsewhere
            and len(call.x) == 4
            and not isinstance(call.given(4, "padding"), str)
        ):
            flops += call.times * 2 * call.x[0] * prod(call.given(1, "weight")) * prod(call.out[2:])
    return flops
