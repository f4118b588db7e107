"""Matrix products and dense layers."""

from __future__ import annotations

from typing import Any

from flopkit import macs as bare
from flopkit.arithmetic import Number, is_zero
from flopkit.cost import Cost
from flopkit.dtypes import DType, is_complex, nbytes
from flopkit.sizes import Flag, Size, checked

__all__ = ["contraction", "dense", "matmul"]


@checked
def matmul(*, m: Size, k: Size, n: Size, batch: Size = 1, dtype: DType = "bf16") -> Cost:
    """A product of two matrices, (m × k) · (k × n), *batch* times over.

    FLOPs: ``2·batch·m·k·n``. Each of the ``m·n`` outputs is a dot product of length *k*: *k* multiplications and,
    done one by one, *k* − 1 additions; the convention counts *k* multiply-adds.
    Bytes: ``batch·(m·k + k·n + m·n)`` numbers of *dtype*, each operand read once, the result written once.

    Parameters
    ----------
    m, k, n : Size
        Rows of the result, inner size, columns of the result.
    batch : Size, optional
        How many such products, each with operands of its own.
    dtype : DType, optional
        Number format, for the bytes (and, if complex, four real multiply-adds for one).

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1.

    Notes
    -----
    Not counted: the addition of ``beta·C`` in a general matrix multiply, transposes, data moved twice by a kernel.

    References
    ----------
    Golub and Van Loan, Matrix Computations, section 1.1 (2mkn flops).

    Examples
    --------
    >>> matmul(m=5, k=3, n=7).flops
    210
    """
    return Cost(
        "matmul",
        macs_by_kind={"products": contraction(bare.product(batch * m, k, n), dtype)},
        bytes=nbytes(batch * m * k, dtype) + nbytes(batch * k * n, dtype) + nbytes(batch * m * n, dtype),
    )


@checked
def dense(*, tokens: Size, d_in: Size, d_out: Size, bias: Flag = False, dtype: DType = "bf16") -> Cost:
    """A dense (fully connected, linear) layer: every token times the same d_in × d_out weight.

    FLOPs: ``2·tokens·d_in·d_out``. Vector FLOPs: ``tokens·d_out`` additions where there is a bias.
    Bytes: ``tokens·d_in + d_in·d_out + tokens·d_out`` numbers (and *d_out* of bias): the weight is read once, however
    many tokens share it. Parameters: ``d_in·d_out`` (and *d_out* of bias).

    Parameters
    ----------
    tokens : Size
        Rows of the input: tokens, or batch times positions.
    d_in, d_out : Size
        Features in and out.
    bias : Flag, optional
        Whether a bias is added (or a parameter that holds 1 or 0).
    dtype : DType, optional
        Number format of input, weight and output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1.

    Notes
    -----
    Not counted: an activation that follows, the backward pass.

    Examples
    --------
    >>> layer = dense(tokens=1, d_in=4096, d_out=14336)
    >>> layer.flops, layer.params
    (117440512, 58720256)
    """
    return weighted(
        "dense", bare.product(tokens, d_in, d_out), tokens * d_in, d_in * d_out, tokens * d_out, d_out, bias, dtype
    )


def contraction(macs: Number, dtype: Any) -> Number:
    """Real multiply-adds in *macs* multiply-adds of *dtype*: four each where it is complex (8 FLOPs).

    >>> contraction(10, "bf16"), contraction(10, "complex64")
    (10, 40)
    """
    return bare.of_numbers(macs, is_complex(dtype))


def weighted(
    name: str, macs: Number, inputs: Number, weight: Number, outputs: Number, biases: Number, bias: Number, dtype: Any
) -> Cost:
    """A layer of *macs* multiply-adds with a *weight* and, where *bias* is on, one of the *biases* added to each output.

    >>> weighted("layer", 12, 3, 12, 4, 4, True, "fp32").bytes
    92
    """
    has_bias = not is_zero(bias)
    traffic = nbytes(inputs, dtype) + nbytes(weight, dtype) + nbytes(outputs, dtype)
    return Cost(
        name,
        macs_by_kind={"products": contraction(macs, dtype)},
        vector_by_kind={"elementwise": bias * outputs * (2 if is_complex(dtype) else 1)} if has_bias else {},
        bytes=traffic + nbytes(bias * biases, dtype) if has_bias else traffic,
        params_by_role={"weight": weight} | ({"bias": bias * biases} if has_bias else {}),
    )
