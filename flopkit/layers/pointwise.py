"""Work done element by element, or row by row: activations, softmax, residual, dropout, scaling, the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flopkit.arithmetic import Number
from flopkit.cost import Cost
from flopkit.dtypes import DType, nbytes, real
from flopkit.sizes import Count, Size, checked, choice

__all__ = ["ACTIVATIONS", "activation", "cross_entropy", "dropout", "residual", "scale", "softmax"]

SOFTMAX_FLOPS = 5  # an element: compare (maximum), subtract, exponential, add (sum), divide
LOGSUMEXP_FLOPS = 4  # an element: the same without the division
ID_BYTES = 8  # token numbers are int64


class Activation(NamedTuple):
    """Vector FLOPs of one output element, how they come about, and how many input elements it takes."""

    flops: int
    steps: str
    inputs: int = 1


ACTIVATIONS: Mapping[str, Activation] = {
    "relu": Activation(1, "max(x, 0): compare"),
    "relu6": Activation(2, "min(max(x, 0), 6): two compares"),
    "leaky_relu": Activation(2, "x or a·x: compare, multiply"),
    "relu2": Activation(2, "max(x, 0)²: compare, multiply"),
    "sigmoid": Activation(3, "1/(1 + exp(−x)): exponential, add, divide"),
    "tanh": Activation(1, "tanh(x), as one evaluation"),
    "silu": Activation(3, "x/(1 + exp(−x)): exponential, add, divide"),
    "gelu": Activation(5, "0.5·x·(1 + erf(x/√2)): three multiplies, erf, add"),
    "gelu_tanh": Activation(9, "0.5·x·(1 + tanh(a·(x + b·x³))): six multiplies, two adds, tanh"),
    "quick_gelu": Activation(4, "x/(1 + exp(−1.702·x)): multiply, exponential, add, divide"),
    "hardsigmoid": Activation(4, "min(max(x + 3, 0), 6)/6: add, two compares, divide"),
    "hardswish": Activation(5, "x·hardsigmoid(x): add, two compares, divide, multiply"),
    "swiglu": Activation(4, "silu(gate)·up: exponential, add, divide, multiply", inputs=2),
    "geglu": Activation(6, "gelu(gate)·up: four multiplies, erf, add", inputs=2),
    "geglu_tanh": Activation(10, "gelu_tanh(gate)·up: seven multiplies, two adds, tanh", inputs=2),
    "reglu": Activation(2, "relu(gate)·up: compare, multiply", inputs=2),
    "swiglu_clamped": Activation(7, "silu(g)·u, g = min(gate, 10), u = up between ±10: three compares, exponential, add, divide, multiply", inputs=2),
    "swiglu_oai": Activation(10, "(u + 1)·g·sigmoid(1.702·g), g = min(gate, 7), u = up between ±7: three compares, two adds, three multiplies, "
                             "exponential, divide", inputs=2),
}  # fmt: skip
"""The activations by name, and what each costs."""


@checked
def activation(kind: str, *, elements: Size, dtype: DType = "bf16") -> Cost:
    """A non-linear function of each element: relu, gelu, silu, swiglu, …

    FLOPs: none. Vector FLOPs: ``flops(kind)·elements``; one evaluation of exp, tanh or erf is one, a change of sign is
    none. `ACTIVATIONS` lists each recipe: 1 for relu and tanh, 3 for sigmoid and silu, 4 for swiglu and quick_gelu, 5 for
    gelu, 9 for gelu_tanh, 10 for geglu_tanh (Gemma) and swiglu_oai (gpt-oss).
    Bytes: the input read, the output written; swiglu, geglu, reglu and their variants read two inputs (gate and up). Parameters: none.

    Parameters
    ----------
    kind : str
        A name in `ACTIVATIONS`.
    elements : Size
        Numbers of the *output*.
    dtype : DType, optional
        Number format of input and output, for the bytes.

    Raises
    ------
    ValueError
        For an unknown kind (with the known ones) or a bad size.
    TypeError
        For what is no number.

    Notes
    -----
    Not counted: what the hardware spends inside one exponential.

    References
    ----------
    Shazeer 2020 (GLU variants); Hendrycks and Gimpel 2016 (GELU, all three forms); Ramachandran et al. 2017 (SiLU).

    Examples
    --------
    >>> act = activation("swiglu", elements=14336)
    >>> act.vector_flops, act.bytes
    (57344, 86016)
    """
    kind = kind.lower() if isinstance(kind, str) else kind
    recipe = ACTIVATIONS[choice("kind", kind, tuple(ACTIVATIONS))]
    return vector_work(kind, recipe.flops * elements, (recipe.inputs + 1) * nbytes(elements, real(dtype)))


def vector_work(name: str, flops: Number, bytes: Number) -> Cost:
    """Work that is all element by element, without parameters.

    >>> vector_work("copy", 0, 8).bytes
    8
    """
    return Cost(name, vector_by_kind={"elementwise": flops}, bytes=bytes)


@checked
def softmax(*, rows: Size, columns: Size, dtype: DType = "bf16") -> Cost:
    """Softmax over each row, made safe by subtracting the row's maximum.

    FLOPs: none. Vector FLOPs: ``5·rows·columns``: compare, subtract, exponential, add, divide for each element; maximum
    and sum start from −∞ and 0.
    Bytes: the input read once, the output written once. Parameters: none.

    Parameters
    ----------
    rows : Size
        Distributions.
    columns : Size
        Entries of each.
    dtype : DType, optional
        Number format of input and output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, or a complex dtype.

    Notes
    -----
    Not counted: that a kernel in several passes reads its input again.

    References
    ----------
    Milakov and Gimelshein 2018, algorithm 2.

    Examples
    --------
    >>> softmax(rows=2, columns=1000).vector_flops
    10000
    """
    return vector_work("softmax", SOFTMAX_FLOPS * rows * columns, 2 * nbytes(rows * columns, real(dtype)))


@checked
def residual(*, elements: Size, dtype: DType = "bf16") -> Cost:
    """A residual connection: the sum of a branch and its input.

    FLOPs: none. Vector FLOPs: ``elements`` additions. Bytes: both terms read, the sum written. Parameters: none.

    Parameters
    ----------
    elements : Size
        Numbers of the sum.
    dtype : DType, optional
        Number format of all three tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, or a complex dtype.

    Notes
    -----
    Not counted: bytes that a fused kernel saves.

    References
    ----------
    He et al. 2015, eq. 1.

    Examples
    --------
    >>> add = residual(elements=4096)
    >>> add.vector_flops, add.bytes
    (4096, 24576)
    """
    return vector_work("residual", elements, 3 * nbytes(elements, real(dtype)))


@checked
def scale(*, elements: Size, factors: Count = 0, dtype: DType = "bf16") -> Cost:
    """Multiplication of every element by a factor: one constant, or factors that are read.

    FLOPs: none. Vector FLOPs: ``elements`` multiplications. Bytes: the input and the *factors* read, the output
    written. Parameters: none.

    Parameters
    ----------
    elements : Size
        Numbers of the tensor.
    factors : Count, optional
        Numbers read beside it: none for a constant, batch·channels for squeeze-and-excite.
    dtype : DType, optional
        Number format of input, factors and output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, or a complex dtype.

    Notes
    -----
    Not counted: a constant itself; a matrix product with a general scale does not need this pass at all.

    Examples
    --------
    >>> scale(elements=4096).vector_flops
    4096
    """
    return vector_work("scale", elements, 2 * nbytes(elements, real(dtype)) + nbytes(factors, dtype))


@checked
def dropout(*, elements: Size, dtype: DType = "bf16") -> Cost:
    """Dropout in training: each element is kept and scaled, or set to zero. In inference it is absent and costs nothing.

    FLOPs: none. Vector FLOPs: ``2·elements``: a compare of the random number and a multiplication by 0 or 1/(1 − p).
    Bytes: the input read, the output written. Parameters: none.

    Parameters
    ----------
    elements : Size
        Numbers of the tensor.
    dtype : DType, optional
        Number format of input and output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, or a complex dtype.

    Notes
    -----
    Not counted: making the random numbers, a mask stored for the backward pass (a byte an element in PyTorch).

    References
    ----------
    Srivastava et al. 2014, with the scaling done in training.

    Examples
    --------
    >>> dropout(elements=4096).vector_flops
    8192
    """
    return vector_work("dropout", 2 * elements, 2 * nbytes(elements, real(dtype)))


@checked
def cross_entropy(*, tokens: Size, vocab: Size, dtype: DType = "bf16") -> Cost:
    """The mean cross-entropy of logits over a vocabulary with one right answer a token.

    FLOPs: none; the product that makes the logits is a dense layer. Vector FLOPs: ``tokens·(4·vocab + 4) + 1``. A logit
    takes a compare, a subtraction, an exponential and an addition; a token takes a logarithm, the maximum added back,
    the right logit subtracted, and an addition to the mean, which is divided once.
    Bytes: the logits and an int64 answer a token read, one number written. Parameters: none.

    Parameters
    ----------
    tokens : Size
        Predictions.
    vocab : Size
        Classes of each.
    dtype : DType, optional
        Number format of logits and loss, for the bytes; often fp32.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, or a complex dtype.

    Notes
    -----
    Not counted: a probability matrix that an unfused implementation writes and reads.

    References
    ----------
    Goodfellow, Bengio and Courville 2016, Deep Learning, section 6.2.2.3.

    Examples
    --------
    >>> loss = cross_entropy(tokens=8192, vocab=128256, dtype="fp32")
    >>> loss.vector_flops, loss.bytes
    (4202725377, 4202758148)
    """
    traffic = nbytes(tokens * vocab, real(dtype)) + ID_BYTES * tokens + nbytes(1, dtype)
    return vector_work("cross_entropy", tokens * (LOGSUMEXP_FLOPS * vocab + 4) + 1, traffic)
