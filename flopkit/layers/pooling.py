"""Pooling over the window of each output position: the largest element, or the mean."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import Number
from flopkit.cost import Cost
from flopkit.dtypes import DType, nbytes, real
from flopkit.layers.pointwise import vector_work
from flopkit.layers.positions import check_fit
from flopkit.sizes import Size, Sizes, checked, offence, spread

__all__ = ["avg_pool2d", "max_pool2d"]


@checked
def max_pool2d(
    *,
    batch: Size,
    channels: Size,
    h_out: Size,
    w_out: Size,
    kernel: Sizes,
    stride: Sizes | None = None,
    h_in: Size | None = None,
    w_in: Size | None = None,
    dtype: DType = "bf16",
) -> Cost:
    """Max pooling: each output is the largest element under the kernel.

    FLOPs: none. Vector FLOPs: ``batch·channels·h_out·w_out·k_h·k_w`` compares, starting from −∞; taps on padding count.
    Bytes: the input read once, the output written once. Parameters: none.

    Parameters
    ----------
    batch, channels : Size
        Images, and channels of each.
    h_out, w_out : Size
        Rows and columns of the output (`conv_output` finds them from an input).
    kernel : Sizes
        An int, or a pair (height, width) in a tuple or list; an array is a sweep.
    stride : Sizes, optional
        As *kernel*. None: the kernel, so that windows touch and do not overlap.
    h_in, w_in : Size, optional
        Rows and columns of the input, for the bytes. None: output times stride.
    dtype : DType, optional
        Number format of input and output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, or a kernel that does not fit the input that is given.

    Notes
    -----
    Not counted: the positions of the maxima, which training keeps.

    References
    ----------
    Dumoulin and Visin 2016, section 3.

    Examples
    --------
    >>> max_pool2d(batch=1, channels=64, h_out=56, w_out=56, kernel=3, stride=2).vector_flops  # ResNet's first
    1806336
    """
    return _pool("max_pool2d", 0, batch, channels, h_out, w_out, kernel, stride, h_in, w_in, dtype)


@checked
def avg_pool2d(
    *,
    batch: Size,
    channels: Size,
    h_out: Size,
    w_out: Size,
    kernel: Sizes,
    stride: Sizes | None = None,
    h_in: Size | None = None,
    w_in: Size | None = None,
    dtype: DType = "bf16",
) -> Cost:
    """Average pooling: each output is the mean of the elements under the kernel.

    FLOPs: none. Vector FLOPs: ``batch·channels·h_out·w_out·(k_h·k_w + 1)``: an addition a tap, starting from 0, and a
    division; taps on padding count. Bytes: the input read once, the output written once. Parameters: none.
    Global average pooling is ``h_out=1, w_out=1`` and a kernel as large as the image.

    Parameters
    ----------
    batch, channels : Size
        Images, and channels of each.
    h_out, w_out : Size
        Rows and columns of the output (`conv_output` finds them from an input).
    kernel : Sizes
        An int, or a pair (height, width) in a tuple or list; an array is a sweep.
    stride : Sizes, optional
        As *kernel*. None: the kernel, so that windows touch and do not overlap.
    h_in, w_in : Size, optional
        Rows and columns of the input, for the bytes. None: output times stride.
    dtype : DType, optional
        Number format of input and output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, or a kernel that does not fit the input that is given.

    Notes
    -----
    Not counted: finding the divisor at a border, where a mean leaves the padding out.

    References
    ----------
    Dumoulin and Visin 2016, section 3.

    Examples
    --------
    >>> avg_pool2d(batch=1, channels=2048, h_out=1, w_out=1, kernel=7).vector_flops  # ResNet-50's last
    102400
    """
    return _pool("avg_pool2d", 1, batch, channels, h_out, w_out, kernel, stride, h_in, w_in, dtype)


def _pool(
    name: str, last: int, batch: Number, channels: Number, h_out: Number, w_out: Number, kernel: Sizes, stride: Sizes | None,
    h_in: Number, w_in: Number, dtype: Any,
) -> Cost:  # fmt: skip
    k_h, k_w = spread("kernel", kernel, 2)
    s_h, s_w = (k_h, k_w) if stride is None else spread("stride", stride, 2)
    ins = []
    for letter, given, out, tap, step in (("h", h_in, h_out, k_h, s_h), ("w", w_in, w_out, k_w, s_w)):
        ins.append(out * step if given is None else given)
        if given is not None:
            check_fit(letter, ins[-1], out, tap, step, 1)
            if wrong := offence(
                lambda in_, out, tap, step: (out - 1) * step + tap + step - 1 < in_, ins[-1], out, tap, step
            ):
                raise ValueError(
                    f"{letter}_out={wrong[1]}: a window of {wrong[2]} with stride {wrong[3]} leaves positions of "
                    f"{letter}_in={wrong[0]} unread that make another output; see fk.layers.positions.conv_output"
                )
    outputs = batch * channels * h_out * w_out
    traffic = nbytes(batch * channels * ins[0] * ins[1], real(dtype)) + nbytes(outputs, dtype)
    return vector_work(name, outputs * (k_h * k_w + last), traffic)
