"""Convolutions in one, two and three dimensions: grouped, depthwise, dilated."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from flopkit import macs
from flopkit.arithmetic import Number
from flopkit.cost import Cost
from flopkit.dtypes import DType
from flopkit.layers.positions import check_fit, check_output, conv_output
from flopkit.layers.products import weighted
from flopkit.sizes import Flag, Size, Sizes, checked, divides, number, short, spread

__all__ = ["conv1d", "conv2d", "conv3d"]


@checked
def conv2d(
    *,
    batch: Size,
    c_in: Size,
    c_out: Size,
    h_out: Size | None = None,
    w_out: Size | None = None,
    kernel: Sizes,
    groups: Size = 1,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    h_in: Size | None = None,
    w_in: Size | None = None,
    padding: Sizes | None = None,
    bias: Flag = False,
    dtype: DType = "bf16",
) -> Cost:
    """A two-dimensional convolution.

    FLOPs: ``2·batch·c_out·h_out·w_out·(c_in/groups)·k_h·k_w``: every output position of every output channel is a
    dot product over one group's channels and the kernel's taps. Taps that fall on padding count: the usual kernels
    compute them. Vector FLOPs: one addition an output where there is a bias.
    Bytes: the input, the weight and the output, once each. Parameters: ``c_out·(c_in/groups)·k_h·k_w`` (and *c_out*).

    Parameters
    ----------
    batch, c_in, c_out : Size
        Images, channels in, channels out.
    h_out, w_out : Size, optional
        Rows and columns of the output. None: what the input gives with this *padding*.
    kernel : Sizes
        An int, or a pair (height, width) in a tuple or list; an array is a sweep.
    groups : Size, optional
        Independent groups of channels; ``groups=c_in`` is a depthwise convolution.
    stride, dilation : Sizes, optional
        As *kernel*. They change no FLOP at a given output.
    h_in, w_in : Size, optional
        Rows and columns of the input, for the bytes. None: output times stride.
    padding : Sizes, optional
        As *kernel*: zeros at each end of the input, from which the output follows. None: 0, where no output is given.
    bias : Flag, optional
        Whether a bias is added (or a parameter that holds 1 or 0).
    dtype : DType, optional
        Number format of input, weight and output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, groups that do not divide the channels, and a kernel that does not fit the input that is given.

    Notes
    -----
    Not counted: Winograd's or an FFT's savings, a copy into another layout.

    References
    ----------
    Dumoulin and Visin 2016, A guide to convolution arithmetic for deep learning.

    Examples
    --------
    >>> conv2d(batch=5, c_in=24, c_out=16, h_out=9, w_out=4, kernel=3, groups=8).flops
    155520
    >>> stem = conv2d(batch=1, c_in=3, c_out=64, h_in=224, w_in=224, kernel=7, stride=2, padding=3)
    >>> stem == conv2d(batch=1, c_in=3, c_out=64, h_in=224, w_in=224, h_out=112, w_out=112, kernel=7, stride=2)
    True
    """
    axes = (("h", h_in, h_out), ("w", w_in, w_out))
    return _conv("conv2d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, padding, bias, dtype)


@checked
def conv1d(
    *,
    batch: Size,
    c_in: Size,
    c_out: Size,
    l_out: Size | None = None,
    kernel: Sizes,
    groups: Size = 1,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    l_in: Size | None = None,
    padding: Sizes | None = None,
    bias: Flag = False,
    dtype: DType = "bf16",
) -> Cost:
    """A one-dimensional convolution: ``2·batch·c_out·l_out·(c_in/groups)·kernel`` FLOPs.

    Vector FLOPs, bytes and parameters are as in `conv2d`, with one axis instead of two.
    The other parameters are those of `conv2d`.

    Parameters
    ----------
    batch, c_in, c_out : Size
        Sequences, channels in, channels out.
    l_out : Size, optional
        Positions of the output. None: what the input gives with this *padding*.
    kernel : Sizes
        Taps: an int; an array is a sweep.
    l_in : Size, optional
        Positions of the input, for the bytes. None: output times stride.

    Raises
    ------
    ValueError or TypeError
        For a bad size, groups that do not divide the channels, and a kernel that does not fit the input that is given.

    See Also
    --------
    conv2d : What is counted, what is not, and the source.

    Examples
    --------
    >>> conv1d(batch=1, c_in=80, c_out=384, l_out=3000, kernel=3).flops  # Whisper-tiny's first layer
    552960000
    """
    axes = (("l", l_in, l_out),)
    return _conv("conv1d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, padding, bias, dtype)


@checked
def conv3d(
    *,
    batch: Size,
    c_in: Size,
    c_out: Size,
    d_out: Size | None = None,
    h_out: Size | None = None,
    w_out: Size | None = None,
    kernel: Sizes,
    groups: Size = 1,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    d_in: Size | None = None,
    h_in: Size | None = None,
    w_in: Size | None = None,
    padding: Sizes | None = None,
    bias: Flag = False,
    dtype: DType = "bf16",
) -> Cost:
    """A three-dimensional convolution: ``2·batch·c_out·d_out·h_out·w_out·(c_in/groups)·k_d·k_h·k_w`` FLOPs.

    Vector FLOPs, bytes and parameters are as in `conv2d`, with three axes instead of two.
    The other parameters are those of `conv2d`.

    Parameters
    ----------
    batch, c_in, c_out : Size
        Volumes, channels in, channels out.
    d_out, h_out, w_out : Size, optional
        Planes, rows and columns of the output. None: what the input gives with this *padding*.
    kernel : Sizes
        An int, or a triple (depth, height, width) in a tuple or list; an array is a sweep.
    d_in, h_in, w_in : Size, optional
        Planes, rows and columns of the input, for the bytes. None: output times stride.

    Raises
    ------
    ValueError or TypeError
        For a bad size, groups that do not divide the channels, and a kernel that does not fit the input that is given.

    See Also
    --------
    conv2d : What is counted, what is not, and the source.

    Examples
    --------
    >>> conv3d(batch=1, c_in=2, c_out=4, d_out=3, h_out=3, w_out=3, kernel=3).flops
    11664
    """
    axes = (("d", d_in, d_out), ("h", h_in, h_out), ("w", w_in, w_out))
    return _conv("conv3d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, padding, bias, dtype)


def _positions(
    letter: str, in_: Number, out: Number, padding: Number, kernel: Number, stride: Number, dilation: Number
) -> tuple[Number, Number]:
    """Positions of an axis, in and out. An output that is not given follows from the input
    and its padding; one that is must be possible."""
    window = {"kernel": kernel, "stride": stride, "dilation": dilation}
    if out is None:
        if in_ is None:
            raise TypeError(f"{letter}_out is missing: give it, or {letter}_in= and padding=")
        return in_, conv_output(size_in=in_, padding=padding or 0, **window)
    if padding is not None:
        raise ValueError(f"padding={padding} beside {letter}_out={short(out)}, which says it already: leave one out")
    if in_ is None:
        return out * stride, out
    check_fit(letter, in_, out, **window)
    check_output(letter, in_, out, **window)
    return in_, out


def _conv(
    name: str, batch: Number, c_in: Number, c_out: Number, axes: tuple[tuple[str, Number, Number], ...], kernel: Sizes, groups: Number,
    stride: Sizes, dilation: Sizes, padding: Sizes | None, bias: Number, dtype: Any,
) -> Cost:  # fmt: skip
    """The common part: a dot product for each output channel and position, over the
    channels of a group and the taps. Of each axis the letter, positions in and out."""
    divides("groups", groups, "c_in", c_in)
    divides("groups", groups, "c_out", c_out)
    n = len(axes)
    taps, steps, gaps = spread("kernel", kernel, n), spread("stride", stride, n), spread("dilation", dilation, n)
    around = (None,) * n if padding is None else spread("padding", padding, n, partial(number, minimum=0))
    windows = zip(axes, around, taps, steps, gaps, strict=True)
    ins, outs = zip(*(_positions(*axis, *window) for axis, *window in windows), strict=True)
    weight = macs.filters(c_out, c_in, groups, math.prod(taps))
    inputs, outputs = batch * c_in * math.prod(ins), batch * c_out * math.prod(outs)
    work = macs.convolution(batch * math.prod(outs), weight)
    return weighted(name, work, inputs, weight, outputs, c_out, bias, dtype)
