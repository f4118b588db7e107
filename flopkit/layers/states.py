"""Linear attention: a state of fixed size instead of scores. Gated delta rule and
Mamba-2, token by token or in chunks, and the selective scan of Mamba."""

from __future__ import annotations

from flopkit.arithmetic import Number, ceil_div, divided
from flopkit.cost import Cost
from flopkit.dtypes import DType, nbytes, real
from flopkit.sizes import Size, checked, choice, divides

__all__ = ["gated_delta", "selective_scan", "state_space"]

ALGORITHMS = ("chunked", "recurrent")


@checked
def gated_delta(
    *,
    batch: Size,
    seq: Size,
    heads: Size,
    k_dim: Size,
    v_dim: Size,
    k_heads: Size | None = None,
    algorithm: str = "chunked",
    chunk: Size = 64,
    dtype: DType = "bf16",
) -> Cost:
    """The core of a gated delta rule (Gated DeltaNet, Qwen3-Next): each head keeps a
    state of k_dim × v_dim numbers.

    FLOPs: for each token and head, in two algorithms that give the same output,

    - ``"recurrent"``, token by token: ``2·3·k_dim·v_dim``: what the state holds for the
      key, its correction, and what it holds for the query;
    - ``"chunked"``, in chunks of *chunk* tokens:
      ``2·(chunk·(2·k_dim + v_dim) + 3·k_dim·v_dim) + chunk·(k_dim + v_dim)``: within a
      chunk keys with keys, queries with keys and what they take of the values; reading
      the state twice and updating it; and solving a triangular system for the chunk's
      keys and values. A last chunk that is not full is padded.

    Vector FLOPs, ``"recurrent"``: ``2·k_dim·v_dim + 3·v_dim`` a token and head: the
    state decays and takes the correction; the correction is a difference, times its
    weight; the output is scaled. Those of ``"chunked"`` are not counted.
    Bytes: queries, keys, values and output once; with ``"recurrent"`` the state of each
    sequence read and written once.
    Parameters: none; projections and convolution are layers of their own.

    Parameters
    ----------
    batch, seq : Size
        Sequences, and tokens of each.
    heads : Size
        Heads of values, each with a state.
    k_dim, v_dim : Size
        Features of a query or key, and of a value.
    k_heads : Size, optional
        Heads of queries and keys where fewer, which changes only the bytes. None: as
        many as *heads*.
    algorithm : str, optional
        ``"chunked"``, for training and prefill, or ``"recurrent"``, for decoding.
    chunk : Size, optional
        Tokens of a chunk.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, k_heads not dividing heads, an unknown algorithm, a complex
        dtype.

    Notes
    -----
    Not counted: decays, norms of queries and keys, states of chunks that a program
    keeps for its backward pass. Solving is ``chunk²`` FLOPs a column, as LAPACK counts
    it: those of a matrix whose diagonal is not 1. A program that inverts the matrix
    instead does the solving twice over.

    References
    ----------
    Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks, arXiv:2412.06464, equations
    10 and following; the chunked form as ``torch_chunk_gated_delta_rule`` of
    transformers 5.23 has it.

    Examples
    --------
    >>> sizes = {"batch": 1, "seq": 64, "heads": 32, "k_dim": 128, "v_dim": 128}
    >>> gated_delta(**sizes, algorithm="recurrent").flops, gated_delta(**sizes).flops
    (201326592, 335544320)
    """
    choice("algorithm", algorithm, ALGORITHMS)
    k_heads = heads if k_heads is None else k_heads
    divides("k_heads", k_heads, "heads", heads)
    state = k_dim * v_dim
    moved = nbytes(2 * batch * seq * k_heads * k_dim, real(dtype)) + nbytes(2 * batch * seq * heads * v_dim, dtype)
    if algorithm == "recurrent":
        tokens = batch * seq * heads
        return Cost(
            "gated_delta",
            macs_by_kind={"products": tokens * 3 * state},
            vector_by_kind={"elementwise": tokens * (2 * state + 3 * v_dim)},
            bytes=moved + nbytes(2 * batch * heads * state, dtype),
        )
    tokens = batch * heads * chunk * ceil_div(seq, chunk)
    products = tokens * (chunk * (2 * k_dim + v_dim) + 3 * state) + divided(tokens * chunk * (k_dim + v_dim), 2)
    return Cost("gated_delta", macs_by_kind={"products": products}, bytes=moved)


@checked
def state_space(
    *,
    batch: Size,
    seq: Size,
    heads: Size,
    head_dim: Size,
    state: Size,
    groups: Size = 1,
    algorithm: str = "chunked",
    chunk: Size = 256,
    dtype: DType = "bf16",
) -> Cost:
    """The core of Mamba-2: each head keeps a state of head_dim × state numbers, which
    decays by one factor a token.

    FLOPs: for each token, in two algorithms that give the same output,

    - ``"recurrent"``, token by token: ``2·heads·2·head_dim·state``: the state takes the
      token, and gives the output;
    - ``"chunked"``, in chunks of *chunk* tokens:
      ``2·(groups·chunk·state + heads·(chunk·head_dim + 2·head_dim·state))``: C with B
      and its product with the inputs within a chunk; the state that a chunk makes, and
      what it takes of the state before. Whole chunks are computed, without leaving out what
      their mask hides; a last chunk that is not full is padded.

    Vector FLOPs, ``"recurrent"``: ``heads·head_dim·(state + 1)`` a token: the decay of
    the state, and the input times its step. Those of ``"chunked"`` are not counted.
    Bytes: inputs, B, C and output once; with ``"recurrent"`` the state of each sequence
    read and written once.
    Parameters: none; projections and convolution are layers of their own.

    Parameters
    ----------
    batch, seq : Size
        Sequences, and tokens of each.
    heads, head_dim : Size
        Heads, and features of each.
    state : Size
        Numbers of the state for each feature.
    groups : Size, optional
        Groups of heads that share B and C.
    algorithm : str, optional
        ``"chunked"``, for training and prefill, or ``"recurrent"``, for decoding.
    chunk : Size, optional
        Tokens of a chunk.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, groups not dividing heads, an unknown algorithm, a complex
        dtype.

    Notes
    -----
    Not counted: decays within a chunk, passing states from chunk to chunk, the skip
    connection D·x, the gate.

    References
    ----------
    Dao and Gu 2024, Transformers are SSMs, arXiv:2405.21060, section 6 and listing 1.

    Examples
    --------
    >>> sizes = {"batch": 1, "seq": 256, "heads": 64, "head_dim": 64, "state": 128}
    >>> state_space(**sizes, algorithm="recurrent").flops, state_space(**sizes).flops
    (536870912, 1090519040)
    """
    choice("algorithm", algorithm, ALGORITHMS)
    divides("groups", groups, "heads", heads)
    inner = heads * head_dim
    moved = nbytes(2 * batch * seq * inner, real(dtype)) + nbytes(2 * batch * seq * groups * state, dtype)
    if algorithm == "recurrent":
        return Cost(
            "state_space",
            macs_by_kind={"products": batch * seq * 2 * inner * state},
            vector_by_kind={"elementwise": batch * seq * inner * (state + 1)},
            bytes=moved + nbytes(2 * batch * inner * state, dtype),
        )
    tokens: Number = batch * chunk * ceil_div(seq, chunk)
    each = groups * chunk * state + chunk * inner + 2 * inner * state
    return Cost("state_space", macs_by_kind={"products": tokens * each}, bytes=moved)


@checked
def selective_scan(*, batch: Size, seq: Size, channels: Size, state: Size, dtype: DType = "bf16") -> Cost:
    """The core of Mamba: each channel keeps *state* numbers, each of which decays by a
    factor of its own.

    FLOPs: ``2·batch·seq·channels·state``, in which C reads the state of each channel.
    Vector FLOPs: ``batch·seq·channels·(5·state + 1)``: the decay is the exponential of
    the step times A; the state decays and takes the input, which is the channel's
    number times its step, times B. Since no two numbers of the states decay alike, this
    is no product of matrices, and there is no form in chunks as of Mamba-2.
    Bytes: inputs, steps, B, C, A and output once; the state of each sequence read and
    written once.
    Parameters: none; projections and convolution are layers of their own.

    Parameters
    ----------
    batch, seq : Size
        Sequences, and tokens of each.
    channels : Size
        Features of a token, each with a state.
    state : Size
        Numbers of the state of each channel.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, a complex dtype.

    Notes
    -----
    Not counted: the softplus that makes a step, A as an exponential, the skip connection
    D·x, the gate. A scan that joins neighbours in a tree multiplies decays besides.

    References
    ----------
    Gu and Dao 2023, Mamba, arXiv:2312.00752, equations 2 and 4 and algorithm 2; B
    enters as step·B, as in the authors' program, and not by equation 4's quotient.

    Examples
    --------
    >>> scan = selective_scan(batch=1, seq=128, channels=1536, state=16)
    >>> scan.flops, scan.vector_flops
    (6291456, 15925248)
    """
    tokens = batch * seq
    moved = nbytes(3 * tokens * channels, real(dtype)) + nbytes(2 * tokens * state, dtype)
    return Cost(
        "selective_scan",
        macs_by_kind={"products": tokens * channels * state},
        vector_by_kind={"elementwise": tokens * channels * (5 * state + 1)},
        bytes=moved + nbytes(channels * state, dtype) + nbytes(2 * batch * channels * state, dtype),
    )
