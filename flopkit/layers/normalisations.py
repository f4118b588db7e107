"""Normalisations: layer, RMS, batch and group norm. All their work is vector work."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import Number
from flopkit.cost import Cost
from flopkit.dtypes import DType, nbytes, real
from flopkit.sizes import Flag, Size, checked, divides

__all__ = ["batch_norm", "group_norm", "layer_norm", "rms_norm"]

STATISTICS_FLOPS = 4  # an element: add (mean), subtract (deviation), multiply and add (variance)
ROOT_FLOPS = 3  # a group: add epsilon, square root, divide
MEANS_FLOPS = 2  # a group: divide the sum and the sum of squares by their length


@checked
def layer_norm(
    *,
    tokens: Size,
    d: Size,
    weight: Flag = True,
    bias: Flag = True,
    dtype: DType = "bf16",
) -> Cost:
    """Layer normalisation: each row of *d* features to mean 0 and variance 1, then scaled and shifted.

    FLOPs: none. Vector FLOPs: ``tokens·((5 + weight + bias)·d + 5)``. An element takes an addition (mean), a
    subtraction, a multiplication and an addition (variance), a multiplication by the reciprocal deviation, and one
    each for *weight* and *bias*; a row takes two divisions by *d*, the addition of epsilon, a square root and a
    division. Sums start from zero.
    Bytes: the input read once, the output written once, weight and bias. Parameters: ``(weight + bias)·d``.

    Parameters
    ----------
    tokens : Size
        Rows that are normalised.
    d : Size
        Features of each row.
    weight, bias : Flag, optional
        Whether each feature is scaled and shifted (or parameters that hold 1 or 0).
    dtype : DType, optional
        Number format of input, output and parameters, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, or a complex dtype.

    Notes
    -----
    Not counted: a second reading of the input by a kernel in two passes, statistics kept for the backward pass.

    References
    ----------
    Ba, Kiros and Hinton 2016, eq. 4.

    Examples
    --------
    >>> norm = layer_norm(tokens=1, d=768)
    >>> norm.flops, norm.vector_flops, norm.params
    (0, 5381, 1536)
    """
    weights = nbytes(weight * d, dtype) + nbytes(bias * d, dtype)
    return _norm(
        "layer_norm", normalised(tokens * d, tokens, weight + bias), tokens * d, weights, (weight + bias) * d, dtype
    )


@checked
def rms_norm(*, tokens: Size, d: Size, weight: Flag = True, dtype: DType = "bf16") -> Cost:
    """Root-mean-square normalisation: each row of *d* features divided by the root of its mean square.

    FLOPs: none. Vector FLOPs: ``tokens·((3 + weight)·d + 4)``. An element takes a multiplication and an addition (sum
    of squares), a multiplication by the reciprocal root, and one for *weight*; a row takes a division by *d*, the
    addition of epsilon, a square root and a division.
    Bytes: the input read once, the output written once, the weight. Parameters: ``weight·d``.

    Parameters
    ----------
    tokens : Size
        Rows that are normalised (for a norm of queries and keys: tokens times heads).
    d : Size
        Features of each row.
    weight : Flag, optional
        Whether each feature is scaled (or a parameter that holds 1 or 0).
    dtype : DType, optional
        Number format of input, output and weight, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, or a complex dtype.

    Notes
    -----
    Not counted: conversions to float32 and back, a second reading of the input.

    References
    ----------
    Zhang and Sennrich 2019, eq. 4.

    Examples
    --------
    >>> norm = rms_norm(tokens=1, d=4096)
    >>> norm.flops, norm.vector_flops, norm.params
    (0, 16388, 4096)
    """
    flops = root_mean_squared(tokens * d, tokens, weight)
    return _norm("rms_norm", flops, tokens * d, nbytes(weight * d, dtype), weight * d, dtype)


@checked
def batch_norm(
    *,
    batch: Size,
    channels: Size,
    positions: Size,
    affine: Flag = True,
    training: Flag = False,
    dtype: DType = "bf16",
) -> Cost:
    """Batch normalisation: each channel to mean 0 and variance 1, over the batch and all positions.

    FLOPs: none. Vector FLOPs with the running statistics (``training=False``):
    ``(2 + 2·affine)·batch·channels·positions + 3·channels``. An element takes a subtraction, a multiplication by the
    reciprocal deviation, and a multiplication and an addition where *affine*; a channel takes the addition of epsilon,
    a square root and a division. With ``training=True`` an element takes 3 more (an addition for the mean, a
    multiplication and an addition for the variance; the deviation is shared) and a channel 9 more (two divisions, the
    variance's correction, and two multiplications and an addition for each of the running mean and variance).
    Bytes: the input read once, the output written once, weight and bias where *affine*, and the running statistics
    (in training read and written). Parameters: ``2·channels`` where *affine*; running statistics are not trained.

    Parameters
    ----------
    batch, channels : Size
        Images, and channels of each.
    positions : Size
        Rows times columns of an image (1 for a plain vector).
    affine : Flag, optional
        Whether each channel is scaled and shifted (or a parameter that holds 1 or 0).
    training : Flag, optional
        Whether the batch's own statistics are used (or a parameter that holds 1 or 0).
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, or a complex dtype.

    Notes
    -----
    Not counted: folding into the convolution before it, statistics kept for the backward pass, and that a kernel in
    training reads its input twice.

    References
    ----------
    Ioffe and Szegedy 2015, algorithms 1 and 2.

    Examples
    --------
    >>> norm = batch_norm(batch=1, channels=64, positions=112 * 112)
    >>> norm.vector_flops, norm.params
    (3211456, 128)
    """
    elements = batch * channels * positions
    flops = batch_normalised(elements, channels, 2 * affine, training, training)
    weights = 2 * nbytes(affine * channels, dtype) + (1 + training) * 2 * nbytes(channels, dtype)
    return _norm("batch_norm", flops, elements, weights, 2 * affine * channels, dtype)


@checked
def group_norm(
    *,
    batch: Size,
    channels: Size,
    positions: Size,
    groups: Size,
    affine: Flag = True,
    dtype: DType = "bf16",
) -> Cost:
    """Group normalisation: each group of channels of each image to mean 0 and variance 1.

    FLOPs: none. Vector FLOPs: ``(5 + 2·affine)·batch·channels·positions + 5·batch·groups``: what `layer_norm` takes,
    with a group in place of a row.
    Bytes: the input read once, the output written once, weight and bias. Parameters: ``2·channels`` where *affine*.

    Parameters
    ----------
    batch, channels : Size
        Images, and channels of each.
    positions : Size
        Rows times columns of an image.
    groups : Size
        Groups of channels; 1 normalises the image as a whole, ``groups=channels`` is instance normalisation.
    affine : Flag, optional
        Whether each channel is scaled and shifted (or a parameter that holds 1 or 0).
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, groups that do not divide the channels, or a complex dtype.

    Notes
    -----
    Not counted: a second reading of the input by a kernel in two passes.

    References
    ----------
    Wu and He 2018, eq. 1 to 7.

    Examples
    --------
    >>> group_norm(batch=1, channels=320, positions=64 * 64, groups=32).vector_flops
    9175200
    """
    divides("groups", groups, "channels", channels)
    elements = batch * channels * positions
    flops = normalised(elements, batch * groups, 2 * affine)
    weights = 2 * nbytes(affine * channels, dtype)
    return _norm("group_norm", flops, elements, weights, 2 * affine * channels, dtype)


# The same numbers, bare: for the counter, too. *affine*: how many of weight and bias there are.


def normalised(elements: Number, groups: Number, affine: Number) -> Number:
    """Vector FLOPs of numbers that are brought to mean 0 and variance 1, group by group.

    >>> normalised(768, 1, affine=2)
    5381
    """
    return (STATISTICS_FLOPS + 1 + affine) * elements + (MEANS_FLOPS + ROOT_FLOPS) * groups


def root_mean_squared(elements: Number, groups: Number, affine: Number) -> Number:
    """The same without a mean.

    >>> root_mean_squared(4096, 1, affine=1)
    16388
    """
    return (3 + affine) * elements + (1 + ROOT_FLOPS) * groups


def batch_normalised(elements: Number, channels: Number, affine: Number, training: Number, running: Number) -> Number:
    """By the statistics of the batch (*training*), which may be kept as *running* ones, or by those.

    >>> batch_normalised(64 * 112 * 112, 64, affine=2, training=False, running=False)
    3211456
    """
    per_channel = ROOT_FLOPS + training * (MEANS_FLOPS + 7 * running)
    return (2 + affine + (STATISTICS_FLOPS - 1) * training) * elements + per_channel * channels


def _norm(name: str, flops: Number, elements: Number, weights: Number, params: Number, dtype: Any) -> Cost:
    """Each element read once and written once, and the bytes of the *weights* read."""
    traffic = 2 * nbytes(elements, real(dtype)) + weights
    return Cost(name, vector_by_kind={"norm": flops}, bytes=traffic, params_by_role={"norm": params})
