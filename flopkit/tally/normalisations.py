"""Normalisations, one operation at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flopkit.sizes import Flag, Whole, checked, divides
from flopkit.tally.ledger import Ledger, elementwise
from flopkit.tally.pointwise import total
from flopkit.tally.runs import run
from flopkit.tally.scalar import Tally

__all__ = ["EPSILON", "batch_norm", "group_norm", "layer_norm", "rms_norm"]

EPSILON = 1e-5


def standardised(values: Sequence[Any]) -> tuple[list[Any], Any, Any]:
    """Values brought to mean 0 and variance 1; the mean and the variance they had."""
    mean = total(values) / len(values)
    deviations = [value - mean for value in values]
    variance = total(d * d for d in deviations) / len(values)
    reciprocal = 1 / (variance + EPSILON).sqrt()
    return [d * reciprocal for d in deviations], mean, variance


def rms_normed(row: Sequence[Any], weight: Any) -> list[Any]:
    """A row divided by the root of its mean square, times a weight where there is one."""
    reciprocal = 1 / (total(value * value for value in row) / len(row) + EPSILON).sqrt()
    return _scaled([value * reciprocal for value in row], weight, None)


@checked
def layer_norm(*, tokens: Whole, d: Whole, weight: Flag = True, bias: Flag = True) -> Ledger:
    """Layer normalisation of each row.

    >>> counted = layer_norm(tokens=1, d=8)
    >>> counted.divides, counted.square_roots, counted.vector_flops
    (3, 1, 61)
    """
    weight, bias = bool(weight), bool(bias)

    def algorithm(x: Any, weight: Any = None, bias: Any = None) -> Any:
        with elementwise("norm"):
            return [_scaled(standardised(row)[0], weight, bias) for row in x]

    shapes = {"x": (tokens, d)} | ({"weight": (d,)} if weight else {}) | ({"bias": (d,)} if bias else {})
    return run(f"layer_norm({tokens=}, {d=}, {weight=}, {bias=})", shapes, algorithm)


@checked
def rms_norm(*, tokens: Whole, d: Whole, weight: Flag = True) -> Ledger:
    """RMS normalisation of each row.

    >>> rms_norm(tokens=1, d=8).vector_flops
    36
    """
    weight = bool(weight)

    def algorithm(x: Any, weight: Any = None) -> Any:
        with elementwise("norm"):
            return [rms_normed(row, weight) for row in x]

    shapes = {"x": (tokens, d)} | ({"weight": (d,)} if weight else {})
    return run(f"rms_norm({tokens=}, {d=}, {weight=})", shapes, algorithm)


@checked
def batch_norm(
    *, batch: Whole, channels: Whole, positions: Whole, affine: Flag = True, training: Flag = False
) -> Ledger:
    """Batch normalisation of each channel, with the running statistics or (*training*) the batch's own.

    >>> batch_norm(batch=2, channels=3, positions=4).vector_flops
    105
    """
    affine, training = bool(affine), bool(training)
    momentum, length = 0.1, batch * positions

    def algorithm(x: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None) -> Any:
        y: list[list[Any]] = [[] for _ in x]
        running_mean, running_var = list(running_mean), [Tally(value) for value in running_var]
        with elementwise("norm"):
            for c in range(channels):
                row = [value for image in x for value in image[c]]
                if training:
                    normed, mean, variance = standardised(row)
                    running_mean[c] = running_mean[c] * (1 - momentum) + mean * momentum
                    variance = variance * (length / max(length - 1, 1))
                    running_var[c] = running_var[c] * (1 - momentum) + variance * momentum
                else:
                    reciprocal = 1 / (running_var[c] + EPSILON).sqrt()
                    normed = [(value - running_mean[c]) * reciprocal for value in row]
                if affine:
                    normed = [value * weight[c] + bias[c] for value in normed]
                for i, image in enumerate(y):
                    image.append(normed[i * positions : (i + 1) * positions])
        return {"y": y, "running_mean": running_mean, "running_var": running_var} if training else y

    shapes: dict[str, tuple[int, ...]] = {"x": (batch, channels, positions)}
    shapes |= {"running_mean": (channels,)}
    shapes |= {"weight": (channels,), "bias": (channels,)} if affine else {}
    title = f"batch_norm({batch=}, {channels=}, {positions=}, {affine=}, {training=})"
    return run(title, shapes, algorithm, running_var=[0.5 + c / channels for c in range(channels)])


@checked
def group_norm(*, batch: Whole, channels: Whole, positions: Whole, groups: Whole, affine: Flag = True) -> Ledger:
    """Group normalisation: each group of channels of each image.

    >>> group_norm(batch=1, channels=4, positions=2, groups=2).vector_flops
    66
    """
    affine = bool(affine)
    divides("groups", groups, "channels", channels)
    width = channels // groups

    def algorithm(x: Any, weight: Any = None, bias: Any = None) -> Any:
        y = []
        with elementwise("norm"):
            for image in x:
                rows: list[Any] = []
                for g in range(groups):
                    block = image[g * width : (g + 1) * width]
                    normed, _, _ = standardised([value for row in block for value in row])
                    rows += [normed[i * positions : (i + 1) * positions] for i in range(width)]
                if affine:
                    rows = [[v * weight[c] + bias[c] for v in row] for c, row in enumerate(rows)]
                y.append(rows)
        return y

    shapes: dict[str, tuple[int, ...]] = {"x": (batch, channels, positions)}
    shapes |= {"weight": (channels,), "bias": (channels,)} if affine else {}
    return run(f"group_norm({batch=}, {channels=}, {positions=}, {groups=}, {affine=})", shapes, algorithm)


def _scaled(row: list[Any], weight: Any, bias: Any) -> list[Any]:
    if weight is not None:
        row = [value * w for value, w in zip(row, weight, strict=True)]
    if bias is not None:
        row = [value + b for value, b in zip(row, bias, strict=True)]
    return row
