"""Convolutions in one, two and three dimensions: grouped, depthwise, dilated, transposed."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from flopkit import macs
from flopkit.arithmetic import Number
from flopkit.cost import Cost
from flopkit.dtypes import DType
from flopkit.layers.positions import check_fit, check_output, check_reach, conv_output
from flopkit.layers.products import weighted
from flopkit.sizes import Flag, Size, Sizes, checked, divides, number, short, spread

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


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
    return _conv("conv2d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, bias, dtype, padding=padding)


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

    Parameters
    ----------
    batch, c_in, c_out : Size
        Sequences, channels in, channels out.
    l_out : Size, optional
        Positions of the output. None: what the input gives with this *padding*.
    kernel : Sizes
        Taps: an int; an array is a sweep.
    groups : Size, optional
        Independent groups of channels; ``groups=c_in`` is a depthwise convolution.
    stride, dilation : Sizes, optional
        As *kernel*. They change no FLOP at a given output.
    l_in : Size, optional
        Positions of the input, for the bytes. None: output times stride.
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

    See Also
    --------
    conv2d : What is counted, what is not, and the source.

    Examples
    --------
    >>> conv1d(batch=1, c_in=80, c_out=384, l_out=3000, kernel=3).flops  # Whisper-tiny's first layer
    552960000
    """
    axes = (("l", l_in, l_out),)
    return _conv("conv1d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, bias, dtype, padding=padding)


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

    Parameters
    ----------
    batch, c_in, c_out : Size
        Volumes, channels in, channels out.
    d_out, h_out, w_out : Size, optional
        Planes, rows and columns of the output. None: what the input gives with this *padding*.
    kernel : Sizes
        An int, or a triple (depth, height, width) in a tuple or list; an array is a sweep.
    groups : Size, optional
        Independent groups of channels; ``groups=c_in`` is a depthwise convolution.
    stride, dilation : Sizes, optional
        As *kernel*. They change no FLOP at a given output.
    d_in, h_in, w_in : Size, optional
        Planes, rows and columns of the input, for the bytes. None: output times stride.
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

    See Also
    --------
    conv2d : What is counted, what is not, and the source.

    Examples
    --------
    >>> conv3d(batch=1, c_in=2, c_out=4, d_out=3, h_out=3, w_out=3, kernel=3).flops
    11664
    """
    axes = (("d", d_in, d_out), ("h", h_in, h_out), ("w", w_in, w_out))
    return _conv("conv3d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, bias, dtype, padding=padding)


@checked
def conv_transpose2d(
    *,
    batch: Size,
    c_in: Size,
    c_out: Size,
    h_in: Size,
    w_in: Size,
    kernel: Sizes,
    groups: Size = 1,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    h_out: Size | None = None,
    w_out: Size | None = None,
    bias: Flag = False,
    dtype: DType = "bf16",
) -> Cost:
    """A transposed convolution: the input gradient of a convolution, run forward.

    FLOPs: ``2·batch·c_in·h_in·w_in·(c_out/groups)·k_h·k_w``: every input position spreads over the kernel's taps, so
    it is the *input* positions that count. Products that land outside a cropped output count.
    Vector FLOPs: one addition an output where there is a bias.
    Bytes: the input, the weight and the output, once each. Parameters: ``c_in·(c_out/groups)·k_h·k_w`` (and *c_out*).

    Parameters
    ----------
    batch, c_in, c_out : Size
        Images, channels in, channels out.
    h_in, w_in : Size
        Rows and columns of the input.
    kernel : Sizes
        An int, or a pair (height, width) in a tuple or list; an array is a sweep.
    groups : Size, optional
        Independent groups of channels.
    stride, dilation : Sizes, optional
        As *kernel*. They change no FLOP at a given input.
    h_out, w_out : Size, optional
        Rows and columns of the output, for the bytes and the bias. None: input times stride.
    bias : Flag, optional
        Whether a bias is added (or a parameter that holds 1 or 0).
    dtype : DType, optional
        Number format of input, weight and output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, groups that do not divide the channels, and an output that is larger than the kernels reach.

    Notes
    -----
    Not counted: the zeros between the input's positions, where a kernel puts them there and convolves.

    References
    ----------
    Dumoulin and Visin 2016, section 4.

    Examples
    --------
    >>> conv_transpose2d(batch=1, c_in=8, c_out=4, h_in=5, w_in=5, kernel=2, stride=2).flops
    6400
    """
    axes = (("h", h_in, h_out), ("w", w_in, w_out))
    return _conv("conv_transpose2d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, bias, dtype, True)


@checked
def conv_transpose1d(
    *,
    batch: Size,
    c_in: Size,
    c_out: Size,
    l_in: Size,
    kernel: Sizes,
    groups: Size = 1,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    l_out: Size | None = None,
    bias: Flag = False,
    dtype: DType = "bf16",
) -> Cost:
    """A one-dimensional transposed convolution: ``2·batch·c_in·l_in·(c_out/groups)·kernel`` FLOPs.

    Vector FLOPs, bytes and parameters are as in `conv_transpose2d`, with one axis instead of two.

    Parameters
    ----------
    batch, c_in, c_out : Size
        Sequences, channels in, channels out.
    l_in : Size
        Positions of the input.
    kernel : Sizes
        Taps: an int; an array is a sweep.
    groups : Size, optional
        Independent groups of channels.
    stride, dilation : Sizes, optional
        As *kernel*. They change no FLOP at a given input.
    l_out : Size, optional
        Positions of the output, for the bytes and the bias. None: input times stride.
    bias : Flag, optional
        Whether a bias is added (or a parameter that holds 1 or 0).
    dtype : DType, optional
        Number format of input, weight and output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, groups that do not divide the channels, and an output that is larger than the kernels reach.

    See Also
    --------
    conv_transpose2d : What is counted, what is not, and the source.

    Examples
    --------
    >>> conv_transpose1d(batch=1, c_in=8, c_out=4, l_in=5, kernel=2, stride=2).flops
    640
    """
    axes = (("l", l_in, l_out),)
    return _conv("conv_transpose1d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, bias, dtype, True)


@checked
def conv_transpose3d(
    *,
    batch: Size,
    c_in: Size,
    c_out: Size,
    d_in: Size,
    h_in: Size,
    w_in: Size,
    kernel: Sizes,
    groups: Size = 1,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    d_out: Size | None = None,
    h_out: Size | None = None,
    w_out: Size | None = None,
    bias: Flag = False,
    dtype: DType = "bf16",
) -> Cost:
    """A three-dimensional transposed convolution: ``2·batch·c_in·d_in·h_in·w_in·(c_out/groups)·k_d·k_h·k_w`` FLOPs.

    Vector FLOPs, bytes and parameters are as in `conv_transpose2d`, with three axes instead of two.

    Parameters
    ----------
    batch, c_in, c_out : Size
        Volumes, channels in, channels out.
    d_in, h_in, w_in : Size
        Planes, rows and columns of the input.
    kernel : Sizes
        An int, or a triple (depth, height, width) in a tuple or list; an array is a sweep.
    groups : Size, optional
        Independent groups of channels.
    stride, dilation : Sizes, optional
        As *kernel*. They change no FLOP at a given input.
    d_out, h_out, w_out : Size, optional
        Planes, rows and columns of the output, for the bytes and the bias. None: input times stride.
    bias : Flag, optional
        Whether a bias is added (or a parameter that holds 1 or 0).
    dtype : DType, optional
        Number format of input, weight and output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, groups that do not divide the channels, and an output that is larger than the kernels reach.

    See Also
    --------
    conv_transpose2d : What is counted, what is not, and the source.

    Examples
    --------
    >>> conv_transpose3d(batch=1, c_in=2, c_out=4, d_in=3, h_in=3, w_in=3, kernel=2, stride=2).flops
    3456
    """
    axes = (("d", d_in, d_out), ("h", h_in, h_out), ("w", w_in, w_out))
    return _conv("conv_transpose3d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, bias, dtype, True)


_Axes = tuple[tuple[str, Number, Number], ...]  # one a dimension: its letter, positions in, positions out


def _with_output(
    letter: str, in_: Number, out: Number, padding: Number, kernel: Number, stride: Number, dilation: Number
) -> tuple[str, Number, Number]:
    """An axis and its output, which is given or follows from the input and its padding."""
    if out is not None and padding is not None:
        raise ValueError(f"padding={padding} beside {letter}_out={short(out)}, which says it already: leave one out")
    if out is None and in_ is None:
        raise TypeError(f"{letter}_out is missing: give it, or {letter}_in= and padding=")
    if out is None:
        sizes = {"size_in": in_, "kernel": kernel, "stride": stride, "dilation": dilation}
        out = conv_output(**sizes, padding=padding or 0)
    return letter, in_, out


def _conv(
    name: str, batch: Number, c_in: Number, c_out: Number, axes: _Axes, kernel: Sizes, groups: Number, stride: Sizes, dilation: Sizes,
    bias: Number, dtype: Any, transposed: bool = False, padding: Sizes | None = None,
) -> Cost:  # fmt: skip
    """The common part: channels × positions dot products over a group's channels and the kernel's taps."""
    divides("groups", groups, "c_in", c_in)
    divides("groups", groups, "c_out", c_out)
    taps, steps = spread("kernel", kernel, len(axes)), spread("stride", stride, len(axes))
    gaps = spread("dilation", dilation, len(axes))
    follows = [not transposed and out is None for *_, out in axes]  # then it fits
    if not transposed:
        around = (
            (None,) * len(axes)
            if padding is None
            else spread("padding", padding, len(axes), partial(number, minimum=0))
        )
        windows = zip(axes, around, taps, steps, gaps, strict=True)
        axes = tuple(_with_output(*axis, *window) for axis, *window in windows)
    ins = [out * step if given is None else given for (_, given, out), step in zip(axes, steps, strict=True)]
    outs = [in_ * step if given is None else given for (_, in_, given), step in zip(axes, steps, strict=True)]
    for (letter, in_, out), fits, *window in zip(axes, follows, taps, steps, gaps, strict=True):
        if fits or in_ is None or out is None:
            continue
        if transposed:
            check_reach(letter, in_, out, *window)
        else:
            check_fit(letter, in_, out, *window)
            check_output(letter, in_, out, *window)
    channels, positions, fan = (c_in, ins, c_out) if transposed else (c_out, outs, c_in)
    weight = macs.filters(channels, fan, groups, math.prod(taps))
    inputs, outputs = batch * c_in * math.prod(ins), batch * c_out * math.prod(outs)
    work = macs.convolution(batch * math.prod(positions), weight)
    return weighted(name, work, inputs, weight, outputs, c_out, bias, dtype)
