"""Embeddings: a look-up, which looks like a product and is none, and the ways to tell positions apart."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import Number
from flopkit.cost import Cost
from flopkit.dtypes import DType, nbytes, real
from flopkit.layers.pointwise import ID_BYTES, vector_work
from flopkit.sizes import Size, checked, offence

__all__ = ["embedding", "learned_positions", "rotary", "sinusoidal_positions"]


@checked
def embedding(*, tokens: Size, vocab: Size, d_model: Size, dtype: DType = "bf16") -> Cost:
    """A token embedding: one row of a vocab × d_model table a token.

    FLOPs: none under EXACT: rows are copied. As a product of one-hot rows with the table, which some conventions count,
    it would be ``2·tokens·vocab·d_model``; those multiply-adds are kept under the kind ``"embedding"``.
    Bytes: ``tokens·d_model`` numbers gathered, as many written, and an int64 number a token. The table as a whole is not
    read; a row that several tokens share counts for each of them, as how many share one depends on the text.
    Parameters: ``vocab·d_model``.

    Parameters
    ----------
    tokens : Size
        Rows looked up.
    vocab : Size
        Rows of the table.
    d_model : Size
        Features of a row.
    dtype : DType, optional
        Number format of the table and the output, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, or a complex dtype.

    Notes
    -----
    Not counted: rows read again or found in a cache.

    Examples
    --------
    >>> table = embedding(tokens=4096, vocab=128256, d_model=4096)
    >>> table.flops, table.bytes, table.params
    (0, 67141632, 525336576)
    """
    return Cost(
        "embedding",
        macs_by_kind={"embedding": tokens * vocab * d_model},
        bytes=2 * nbytes(tokens * d_model, real(dtype)) + ID_BYTES * tokens,
        params_by_role={"embedding": vocab * d_model},
    )


@checked
def learned_positions(*, batch: Size, seq: Size, positions: Size, d_model: Size, dtype: DType = "bf16") -> Cost:
    """Learned position embeddings: a row of a table for each position, added to the token's features.

    FLOPs: none. Vector FLOPs: ``batch·seq·d_model`` additions. Bytes: the features read and written, and *seq* rows of
    the table, which all sequences share. Parameters: ``positions·d_model``.

    Parameters
    ----------
    batch, seq : Size
        Sequences, and tokens of each.
    positions : Size
        Rows of the table, the longest sequence it allows.
    d_model : Size
        Features of a token.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, for a sequence longer than the table, or a complex dtype.

    Notes
    -----
    Not counted: the position numbers, which need not be stored.

    References
    ----------
    Radford et al. 2018 (GPT); Gehring et al. 2017.

    Examples
    --------
    >>> table = learned_positions(batch=1, seq=1024, positions=1024, d_model=768)
    >>> table.vector_flops, table.params
    (786432, 786432)
    """
    if wrong := offence(lambda seq, positions: seq > positions, seq, positions):
        raise ValueError(f"seq={wrong[0]} is longer than the table of positions={wrong[1]}: use a shorter sequence")
    return _added("learned_positions", batch, seq, d_model, dtype, {"position": positions * d_model})


@checked
def sinusoidal_positions(*, batch: Size, seq: Size, d_model: Size, dtype: DType = "bf16") -> Cost:
    """Sinusoidal position embeddings: a fixed table of sines and cosines, added to the token's features.

    FLOPs: none. Vector FLOPs: ``batch·seq·d_model`` additions. Bytes: the features read and written, and *seq* rows of
    the table, which all sequences share. Parameters: none.

    Parameters
    ----------
    batch, seq : Size
        Sequences, and tokens of each.
    d_model : Size
        Features of a token.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, or a complex dtype.

    Notes
    -----
    Not counted: making the table (a multiplication and a sine or cosine an entry, once for all layers and steps).

    References
    ----------
    Vaswani et al. 2017, section 3.5.

    Examples
    --------
    >>> sinusoidal_positions(batch=1, seq=1024, d_model=512).vector_flops
    524288
    """
    return _added("sinusoidal_positions", batch, seq, d_model, dtype, {})


@checked
def rotary(*, batch: Size, seq: Size, heads: Size, head_dim: Size, dtype: DType = "bf16") -> Cost:
    """Rotary position embedding of queries or keys: each pair of features is turned by its position's angle.

    FLOPs: none; turning is element-wise work, also where a program does it by a product of inner size 1.
    Vector FLOPs: ``3·batch·seq·heads·head_dim``: a pair takes four multiplications, an addition and a subtraction.
    Bytes: the features read and written, and ``seq·head_dim`` numbers of cosines and sines, which all heads and
    sequences share. Parameters: none.

    Parameters
    ----------
    batch, seq : Size
        Sequences, and tokens of each.
    heads : Size
        Heads that are turned; for queries and keys together, heads + kv_heads.
    head_dim : Size
        Features of a head that are turned, an even number.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, for an odd head_dim, or a complex dtype.

    Notes
    -----
    Not counted: making the table of angles, features of a head that are left as they are.

    References
    ----------
    Su et al. 2021, eq. 34.

    Examples
    --------
    >>> rotary(batch=1, seq=1, heads=32 + 8, head_dim=128).vector_flops
    15360
    """
    if wrong := offence(lambda head_dim: head_dim % 2 == 1, head_dim):
        raise ValueError(f"head_dim={wrong[0]}: features are turned in pairs, so pass an even number")
    elements = batch * seq * heads * head_dim
    return vector_work("rotary", 3 * elements, 2 * nbytes(elements, real(dtype)) + nbytes(seq * head_dim, dtype))


def _added(name: str, batch: Number, seq: Number, d_model: Number, dtype: Any, params: dict[str, Number]) -> Cost:
    return Cost(
        name,
        vector_by_kind={"elementwise": batch * seq * d_model},
        bytes=2 * nbytes(batch * seq * d_model, real(dtype)) + nbytes(seq * d_model, dtype),
        params_by_role=params,
    )
