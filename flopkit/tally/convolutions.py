"""Convolutions by nested loops, in any number of dimensions: grouped, strided, dilated, padded, transposed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flopkit.sizes import Flag, Whole, divides, flag, number, spread
from flopkit.tally.ledger import Ledger, contraction, elementwise
from flopkit.tally.products import dot
from flopkit.tally.runs import run
from flopkit.tally.scalar import Tally

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


def conv1d(*, batch: Whole, c_in: Whole, c_out: Whole, l_out: Whole, **rest: Any) -> Ledger:
    """A one-dimensional convolution; see `conv2d`.

    >>> conv1d(batch=1, c_in=2, c_out=3, l_out=4, kernel=3).macs
    72
    """
    return _conv("conv1d", batch, c_in, c_out, {"l": l_out}, **rest)


def conv2d(*, batch: Whole, c_in: Whole, c_out: Whole, h_out: Whole, w_out: Whole, **rest: Any) -> Ledger:
    """A two-dimensional convolution: each output is a dot product over a group's channels and the kernel's taps.

    Further sizes are *kernel*, *groups*, *stride*, *dilation*, *bias* as in the formula, and *padding*: zeros around the
    image, which are multiplied like any other number. *h_in*, *w_in* None: the smallest input that gives this output.

    >>> conv2d(batch=1, c_in=4, c_out=2, h_out=3, w_out=3, kernel=3, groups=2, padding=1)
    conv2d(batch=1, c_in=4, c_out=2, h_out=3, w_out=3, kernel=(3, 3), groups=2, stride=(1, 1), dilation=(1, 1), padding=(1, 1), bias=False)
    operation        in contractions  element-wise
    multiplications              324             0
    additions                    306             0
    all                          630             0
    324 multiply-adds, counted as 2 each: 648 FLOPs
    """
    return _conv("conv2d", batch, c_in, c_out, {"h": h_out, "w": w_out}, **rest)


def conv3d(*, batch: Whole, c_in: Whole, c_out: Whole, d_out: Whole, h_out: Whole, w_out: Whole, **rest: Any) -> Ledger:
    """A three-dimensional convolution; see `conv2d`.

    >>> conv3d(batch=1, c_in=1, c_out=1, d_out=2, h_out=2, w_out=2, kernel=2).macs
    64
    """
    return _conv("conv3d", batch, c_in, c_out, {"d": d_out, "h": h_out, "w": w_out}, **rest)


def conv_transpose1d(*, batch: Whole, c_in: Whole, c_out: Whole, l_in: Whole, **rest: Any) -> Ledger:
    """A one-dimensional transposed convolution; see `conv_transpose2d`.

    >>> conv_transpose1d(batch=1, c_in=2, c_out=3, l_in=4, kernel=3).macs
    72
    """
    return _transposed("conv_transpose1d", batch, c_in, c_out, {"l": l_in}, **rest)


def conv_transpose2d(*, batch: Whole, c_in: Whole, c_out: Whole, h_in: Whole, w_in: Whole, **rest: Any) -> Ledger:
    """A transposed convolution: each input number, times each tap, is added to the output it reaches.

    Further sizes are *kernel*, *groups*, *stride*, *dilation*, *bias* as in the formula, and *padding*: how many rows
    and columns are cropped off each side of the output. Products that land there are made and thrown away.

    >>> counted = conv_transpose2d(batch=1, c_in=2, c_out=3, h_in=2, w_in=2, kernel=3)
    >>> counted.macs, counted.adds
    (216, 168)
    """
    return _transposed("conv_transpose2d", batch, c_in, c_out, {"h": h_in, "w": w_in}, **rest)


def conv_transpose3d(
    *, batch: Whole, c_in: Whole, c_out: Whole, d_in: Whole, h_in: Whole, w_in: Whole, **rest: Any
) -> Ledger:
    """A three-dimensional transposed convolution; see `conv_transpose2d`.

    >>> conv_transpose3d(batch=1, c_in=1, c_out=1, d_in=2, h_in=2, w_in=2, kernel=2).macs
    64
    """
    return _transposed("conv_transpose3d", batch, c_in, c_out, {"d": d_in, "h": h_in, "w": w_in}, **rest)


def _conv(name: str, batch: Whole, c_in: Whole, c_out: Whole, positions: dict[str, Whole], **rest: Any) -> Ledger:
    title, (batch, c_in, c_out, groups), outs, taps, steps, gaps, pads, bias, inputs = _sizes(
        name, batch, c_in, c_out, positions, "_out", **rest
    )
    ins = []
    for letter, out, tap, step, gap, pad in zip(positions, outs, taps, steps, gaps, pads, strict=True):
        least = (out - 1) * step + gap * (tap - 1) + 1 - 2 * pad
        given = inputs.pop(f"{letter}_in", None)
        ins.append(max(least, 1) if given is None else number(f"{letter}_in", given))
        if not least <= ins[-1] < least + step:
            raise ValueError(
                f"{letter}_in={ins[-1]} does not give {letter}_out={out}: pass {max(least, 1)} or another padding"
            )
    _no_more(name, inputs)

    def algorithm(x: Any, weight: Any, bias: Any = None) -> Any:
        fan = c_in // groups

        def number(image: Any, channel: int, position: tuple[int, ...]) -> Any:
            first = channel // (c_out // groups) * fan
            reach = [
                [p * step - pad + gap * t for t in range(tap)]
                for p, step, pad, gap, tap in zip(position, steps, pads, gaps, taps, strict=True)
            ]
            under = [_at(image[first + c], where) for c in range(fan) for where in itertools.product(*reach)]
            value = dot(under, [w for c in range(fan) for w in _flat(weight[channel][c])])
            return value if bias is None else _plus(value, bias[channel])

        def plane(image: Any, channel: int) -> Any:
            return _filled(outs, lambda position: number(image, channel, position))

        return [[plane(image, channel) for channel in range(c_out)] for image in x]

    shapes = {"x": (batch, c_in, *ins), "weight": (c_out, c_in // groups, *taps)} | ({"bias": (c_out,)} if bias else {})
    return run(title, shapes, algorithm)


def _transposed(name: str, batch: Whole, c_in: Whole, c_out: Whole, positions: dict[str, Whole], **rest: Any) -> Ledger:
    title, (batch, c_in, c_out, groups), ins, taps, steps, gaps, pads, bias, more = _sizes(
        name, batch, c_in, c_out, positions, "_in", **rest
    )
    _no_more(name, more)
    outs = [
        (n - 1) * step + gap * (tap - 1) + 1 - 2 * pad
        for n, tap, step, gap, pad in zip(ins, taps, steps, gaps, pads, strict=True)
    ]
    if min(outs) < 1:
        raise ValueError(f"padding={pads} crops the whole output of {name}: use a smaller one")

    def algorithm(x: Any, weight: Any, bias: Any = None) -> Any:
        fan_in, fan_out = c_in // groups, c_out // groups

        def spread_out(image: Any) -> list[dict[tuple[int, ...], Any]]:
            sums: list[dict[tuple[int, ...], Any]] = [{} for _ in range(c_out)]
            for channel, at, tap in itertools.product(range(c_in), _grid(ins), _grid(taps)):
                to = tuple(
                    p * step + gap * t - pad for p, t, step, gap, pad in zip(at, tap, steps, gaps, pads, strict=True)
                )
                inside = all(0 <= p < n for p, n in zip(to, outs, strict=True))
                for c in range(fan_out):
                    product = _at(image[channel], at) * _at(weight[channel][c], tap)
                    reached = sums[channel // fan_in * fan_out + c]
                    if inside:
                        reached[to] = reached[to] + product if to in reached else product
            return sums

        def plane(reached: dict[tuple[int, ...], Any], b: Any) -> Any:
            def number(at: tuple[int, ...]) -> Any:
                value = reached.get(at, Tally(0.0))
                return value if b is None else _plus(value, b)

            return _filled(outs, number)

        images = []
        for image in x:
            with contraction():
                sums = spread_out(image)
            images.append([plane(sums[c], None if bias is None else bias[c]) for c in range(c_out)])
        return images

    shapes = {"x": (batch, c_in, *ins), "weight": (c_in, c_out // groups, *taps)} | ({"bias": (c_out,)} if bias else {})
    return run(title, shapes, algorithm)


def _sizes(
    name: str, batch: Whole, c_in: Whole, c_out: Whole, positions: dict[str, Whole], side: str, *, kernel: Any, groups: Whole = 1,
    stride: Any = 1, dilation: Any = 1, padding: Any = 0, bias: Flag = False, **more: Any,
) -> Any:  # fmt: skip
    batch, c_in, c_out, groups = map(number, ("batch", "c_in", "c_out", "groups"), (batch, c_in, c_out, groups))
    divides("groups", groups, "c_in", c_in)
    divides("groups", groups, "c_out", c_out)
    axes = len(positions)
    places = [number(letter + side, n) for letter, n in positions.items()]
    windows = (("kernel", kernel), ("stride", stride), ("dilation", dilation))
    kernel, stride, dilation = (spread(what, value, axes, number) for what, value in windows)
    pads = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * axes
    padding = tuple(number("padding", pad, minimum=0) for pad in pads)
    bias = bool(flag("bias", bias))
    listed = ", ".join(f"{letter}{side}={n}" for letter, n in zip(positions, places, strict=True))
    title = f"{name}({batch=}, {c_in=}, {c_out=}, {listed}, {kernel=}, {groups=}, {stride=}, {dilation=}, {padding=}, {bias=})"
    return title, (batch, c_in, c_out, groups), places, kernel, stride, dilation, padding, bias, more


def _no_more(name: str, rest: dict[str, Any]) -> None:
    if rest:
        raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(rest))!r}")


def _grid(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, lengths))


def _at(block: Any, where: tuple[int, ...]) -> Any:
    """The number at a position; zero outside, which is the padding."""
    for index in where:
        if not 0 <= index < len(block):
            return Tally(0.0)
        block = block[index]
    return block


def _plus(value: Any, bias: Any) -> Any:
    with elementwise():
        return value + bias


def _flat(block: Any) -> list[Any]:
    return [number for row in block for number in _flat(row)] if isinstance(block, list) else [block]


def _filled(lengths: Sequence[int], value: Callable[[tuple[int, ...]], Any], at: tuple[int, ...] = ()) -> Any:
    """Nested lists with *value* of each position."""
    if len(at) == len(lengths):
        return value(at)
    return [_filled(lengths, value, (*at, i)) for i in range(lengths[len(at)])]
