"""Which output positions a kernel has that slides along an axis, and which it cannot have: for convolutions and pooling."""

from __future__ import annotations

from flopkit.arithmetic import Number, maximum
from flopkit.sizes import checked, number, offence

__all__ = ["conv_output"]


@checked
def conv_output(*, size_in: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> int:
    """Output positions along one axis: ``floor((size_in + 2·padding − dilation·(kernel−1) − 1)/stride) + 1``.

    For numbers only: a division rounded down has no place in a formula that is also read symbolically.

    Parameters
    ----------
    size_in : int
        Positions of the input.
    kernel : int
        Taps of the kernel.
    stride : int, optional
        Positions from one output to the next.
    padding : int, optional
        Positions added at each end.
    dilation : int, optional
        Positions from one tap to the next.

    Raises
    ------
    ValueError
        Where the kernel is larger than the padded input.

    Examples
    --------
    >>> conv_output(size_in=224, kernel=7, stride=2, padding=3)
    112
    """
    size_in, kernel, stride = number("size_in", size_in), number("kernel", kernel), number("stride", stride)
    padding, dilation = number("padding", padding, minimum=0), number("dilation", dilation)
    reach = dilation * (kernel - 1) + 1
    if reach > size_in + 2 * padding:
        raise ValueError(
            f"kernel={kernel} with dilation={dilation} reaches over {reach} positions and the padded input has only "
            f"{size_in + 2 * padding}: use a smaller kernel, or padding of at least {-(-(reach - size_in) // 2)}"
        )
    return (size_in + 2 * padding - reach) // stride + 1


def _farthest(size_in: Number, kernel: Number, stride: Number, dilation: Number) -> Number:
    """Positions that a transposed kernel reaches: no padding, and the largest output_padding."""
    return (size_in - 1) * stride + dilation * (kernel - 1) + maximum(stride, dilation)


def _padding(size_in: Number, size_out: Number, kernel: Number, stride: Number, dilation: Number) -> Number:
    """Padding in all that the last position needs to fit; below zero, as many positions are left over."""
    return (size_out - 1) * stride + dilation * (kernel - 1) + 1 - size_in


def _no_fit(size_in: Number, size_out: Number, kernel: Number, stride: Number, dilation: Number) -> Number:
    odd = _padding(size_in, size_out, kernel, stride, dilation) % 2 == 1  # a stride above 1 leaves a slack
    return (dilation * (kernel - 1) + 1 > size_in) & odd & (stride == 1) & (size_out != size_in)


def _no_output(size_in: Number, size_out: Number, kernel: Number, stride: Number, dilation: Number) -> Number:
    least = _padding(size_in, size_out, kernel, stride, dilation)
    return (least + stride - 1 < 0) | (least > 2 * (dilation * (kernel - 1) + 1))


def check_fit(letter: str, size_in: Number, size_out: Number, kernel: Number, stride: Number, dilation: Number) -> None:
    """Refuse a kernel that is larger than the input unless a padding does that is symmetric, or "same", which leaves the size as it is."""
    if wrong := offence(_no_fit, size_in, size_out, kernel, stride, dilation):
        size_in, size_out, kernel, stride, dilation = wrong
        raise ValueError(
            f"kernel={kernel} reaches over {dilation * (kernel - 1) + 1} positions and the input has {letter}_in={size_in}: "
            f"no padding gives {letter}_out={size_out}; use a smaller kernel, or give padding= in the place of {letter}_out="
        )


def check_reach(
    letter: str, size_in: Number, size_out: Number, kernel: Number, stride: Number, dilation: Number
) -> None:
    """Refuse an output that a transposed kernel does not reach."""
    if wrong := offence(lambda out, *others: out > _farthest(*others), size_out, size_in, kernel, stride, dilation):
        most = int(_farthest(*wrong[1:]))
        raise ValueError(
            f"{letter}_out={wrong[0]}: a transposed kernel of {wrong[2]} with stride {wrong[3]} spreads "
            f"{letter}_in={wrong[1]} over at most {most} positions; give {most} or fewer"
        )


def check_output(
    letter: str, size_in: Number, size_out: Number, kernel: Number, stride: Number, dilation: Number
) -> None:
    """Refuse an output that no padding of up to the kernel's reach on each side gives."""
    if wrong := offence(_no_output, size_in, size_out, kernel, stride, dilation):
        size_in, size_out, kernel, stride, dilation = wrong
        reach = dilation * (kernel - 1) + 1
        without = max((size_in - reach) // stride + 1, 0)
        raise ValueError(
            f"{letter}_out={size_out}: a kernel of {kernel} with stride {stride} over {letter}_in={size_in} gives {without} "
            f"positions without padding and at most {(size_in + reach) // stride + 1} with it; give padding= in its place, and the output follows"
        )
