"""Element-wise work and softmax, one operation at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flopkit.sizes import Whole, checked, choice
from flopkit.tally.ledger import Ledger, elementwise
from flopkit.tally.runs import run
from flopkit.tally.scalar import Tally

__all__ = ["activation", "cross_entropy", "dropout", "residual", "scale", "softmax"]


def _each(title: str, inputs: Sequence[str], elements: int, function: Callable[..., Any]) -> Ledger:
    """*function* of each element of the *inputs*."""

    def algorithm(**columns: Any) -> Any:
        with elementwise():
            return [function(*values) for values in zip(*columns.values(), strict=True)]

    return run(title, dict.fromkeys(inputs, (elements,)), algorithm)


def largest(values: Any) -> Any:
    """The maximum, from −∞: a compare an element."""
    best = Tally(-math.inf)
    for value in values:
        if value > best:
            best = value
    return best


def total(values: Any) -> Any:
    """The sum, from zero: an addition an element."""
    sum_ = Tally(0.0)
    for value in values:
        sum_ = sum_ + value
    return sum_


def softened(row: Any) -> Any:
    """The softmax of a row."""
    top = largest(row)
    powers = [(value - top).exp() for value in row]
    sum_ = total(powers)
    return [power / sum_ for power in powers]


def _relu(x: Any) -> Any:
    return x if x > 0 else Tally(0.0)


def _clipped(x: Any) -> Any:
    x = _relu(x)
    return x if x < 6 else Tally(6.0)


def _gelu(x: Any) -> Any:
    return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1)


def _gelu_tanh(x: Any) -> Any:
    return x * 0.5 * (((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).tanh() + 1)


def silu(x: Any) -> Any:
    return x / ((-x).exp() + 1)


def _least(x: Any, most: float) -> Any:
    return x if x < most else Tally(float(most))


def _most(x: Any, least: float) -> Any:
    return x if x > least else Tally(float(least))


def _oai(gate: Any, up: Any) -> Any:
    return (up + 1) * (gate * (1 / ((gate * -1.702).exp() + 1)))


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "relu": _relu,
    "relu6": _clipped,
    "leaky_relu": lambda x: x * (1.0 if x > 0 else 0.01),
    "relu2": lambda x: (x if x > 0 else Tally(0.0)) ** 2,
    "sigmoid": lambda x: 1 / ((-x).exp() + 1),
    "tanh": lambda x: x.tanh(),
    "silu": silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "quick_gelu": lambda x: x / ((x * -1.702).exp() + 1),
    "hardsigmoid": lambda x: _clipped(x + 3) / 6,
    "hardswish": lambda x: x * (_clipped(x + 3) / 6),
    "swiglu": lambda gate, up: silu(gate) * up,
    "geglu": lambda gate, up: _gelu(gate) * up,
    "geglu_tanh": lambda gate, up: _gelu_tanh(gate) * up,
    "reglu": lambda gate, up: _relu(gate) * up,
    "swiglu_clamped": lambda gate, up: silu(_least(gate, 10)) * _least(_most(up, -10), 10),
    "swiglu_oai": lambda gate, up: _oai(_least(gate, 7), _least(_most(up, -7), 7)),
}
_OF_TWO = ("swiglu", "geglu", "geglu_tanh", "reglu", "swiglu_clamped", "swiglu_oai")


@checked
def activation(kind: str, *, elements: Whole) -> Ledger:
    """An activation of each element; those with a gate (swiglu, geglu, …) take two inputs.

    >>> activation("silu", elements=2)
    activation('silu', elements=2)
    operation                   in contractions  element-wise
    additions                                 0             2
    divisions                                 0             2
    exponentials and their like               0             2
    all                                       0             6
    6 vector FLOPs
    """
    function = _FUNCTIONS[choice("kind", kind, tuple(_FUNCTIONS))]
    inputs = ("gate", "up") if kind in _OF_TWO else ("x",)
    return _each(f"activation({kind!r}, {elements=})", inputs, elements, function)


@checked
def softmax(*, rows: Whole, columns: Whole) -> Ledger:
    """Softmax of each row, after its maximum is subtracted.

    >>> counted = softmax(rows=2, columns=10)
    >>> counted.comparisons, counted.exponentials, counted.vector_flops
    (20, 20, 100)
    """

    def algorithm(x: Any) -> Any:
        with elementwise():
            return [softened(row) for row in x]

    return run(f"softmax({rows=}, {columns=})", {"x": (rows, columns)}, algorithm)


@checked
def residual(*, elements: Whole) -> Ledger:
    """The sum of a branch and its input.

    >>> residual(elements=8).adds
    8
    """
    return _each(f"residual({elements=})", ("x", "branch"), elements, lambda x, branch: x + branch)


@checked
def scale(*, elements: Whole, by: float = 0.5) -> Ledger:
    """Every element times one constant.

    >>> scale(elements=8).multiplies
    8
    """
    return _each(f"scale({elements=}, {by=})", ("x",), elements, lambda x: x * by)


@checked
def dropout(*, elements: Whole, p: float = 0.5) -> Ledger:
    """Each element is kept and scaled where a random number says so, or else multiplied by zero.

    >>> counted = dropout(elements=8)
    >>> counted.comparisons, counted.multiplies
    (8, 8)
    """
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p < 1:
        raise ValueError(f"p={p!r}: must be a probability from 0 to below 1, such as 0.5")

    def dropped(x: Any, chance: Any) -> Any:
        return x * (1 / (1 - p) if chance > 2 * p - 1 else 0.0)

    return _each(f"dropout({elements=}, {p=})", ("x", "chance"), elements, dropped)


@checked
def cross_entropy(*, tokens: Whole, vocab: Whole) -> Ledger:
    """The mean over *tokens* of log Σ exp(logits) − the logit of the right answer.

    >>> counted = cross_entropy(tokens=2, vocab=5)
    >>> counted.exponentials, counted.vector_flops  # exponentials and logarithms
    (12, 49)
    """

    def algorithm(logits: Any, answers: list[int]) -> Any:
        with elementwise():
            losses = []
            for row, answer in zip(logits, answers, strict=True):
                top = largest(row)
                losses.append(total((value - top).exp() for value in row).log() + top - row[answer])
            return total(losses) / tokens

    answers = [7 * token % vocab for token in range(tokens)]
    return run(f"cross_entropy({tokens=}, {vocab=})", {"logits": (tokens, vocab)}, algorithm, answers=answers)
