"""Transposed convolutions in one, two and three dimensions: the input gradient of a
convolution, run forward."""

from __future__ import annotations

import math
from typing import Any

from flopkit import macs
from flopkit.arithmetic import Number
from flopkit.cost import Cost
from flopkit.dtypes import DType
from flopkit.layers.positions import check_reach
from flopkit.layers.products import weighted
from flopkit.sizes import Flag, Size, Sizes, checked, divides, spread

__all__ = ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


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
    return _conv("conv_transpose2d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, bias, dtype)


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
    The other parameters are those of `conv_transpose2d`.

    Parameters
    ----------
    batch, c_in, c_out : Size
        Sequences, channels in, channels out.
    l_in : Size
        Positions of the input.
    kernel : Sizes
        Taps: an int; an array is a sweep.
    l_out : Size, optional
        Positions of the output, for the bytes and the bias. None: input times stride.

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
    return _conv("conv_transpose1d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, bias, dtype)


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
    The other parameters are those of `conv_transpose2d`.

    Parameters
    ----------
    batch, c_in, c_out : Size
        Volumes, channels in, channels out.
    d_in, h_in, w_in : Size
        Planes, rows and columns of the input.
    kernel : Sizes
        An int, or a triple (depth, height, width) in a tuple or list; an array is a sweep.
    d_out, h_out, w_out : Size, optional
        Planes, rows and columns of the output, for the bytes and the bias. None: input times stride.

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
    return _conv("conv_transpose3d", batch, c_in, c_out, axes, kernel, groups, stride, dilation, bias, dtype)


def _conv(
    name: str, batch: Number, c_in: Number, c_out: Number, axes: tuple[tuple[str, Number, Number], ...], kernel: Sizes, groups: Number,
    stride: Sizes, dilation: Sizes, bias: Number, dtype: Any,
) -> Cost:  # fmt: skip
    """The common part: each position of each input channel spreads over the channels of
    a group and the taps. Of each axis the letter, positions in and out."""
    divides("groups", groups, "c_in", c_in)
    divides("groups", groups, "c_out", c_out)
    n = len(axes)
    taps, steps, gaps = spread("kernel", kernel, n), spread("stride", stride, n), spread("dilation", dilation, n)
    for (letter, in_, out), *window in zip(axes, taps, steps, gaps, strict=True):
        if out is not None:
            check_reach(letter, in_, out, *window)
    ins = [in_ for _, in_, _ in axes]
    outs = [in_ * step if out is None else out for (_, in_, out), step in zip(axes, steps, strict=True)]
    weight = macs.filters(c_in, c_out, groups, math.prod(taps))
    inputs, outputs = batch * c_in * math.prod(ins), batch * c_out * math.prod(outs)
    work = macs.convolution(batch * math.prod(ins), weight)
    return weighted(name, work, inputs, weight, outputs, c_out, bias, dtype)
