"""A mixture of experts: a router, the experts it chooses, and those that every token shares."""

from __future__ import annotations

from flopkit.arithmetic import minimum
from flopkit.cost import Cost
from flopkit.dtypes import DType, nbytes, real
from flopkit.layers.pointwise import ACTIVATIONS, SOFTMAX_FLOPS
from flopkit.sizes import Count, Flag, Size, checked, offence

__all__ = ["moe"]


@checked
def moe(
    *,
    tokens: Size,
    d_model: Size,
    d_ff: Size,
    experts: Size,
    top_k: Size,
    shared: Count = 0,
    gated: Flag = True,
    dtype: DType = "bf16",
) -> Cost:
    """A mixture-of-experts layer: each token goes through its *top_k* of *experts* and through all *shared* ones.

    FLOPs: ``2·tokens·d_model·experts`` for the router (kind ``"router"``) and
    ``2·tokens·(top_k + shared)·(2 + gated)·d_model·d_ff`` for the experts: two matrices each, three where *gated*.
    Vector FLOPs: the router's softmax (5 an expert), the choice (*top_k* scans: a compare an expert each) and the chosen
    weights made to sum to one (an addition and a division each); in an expert ``3 + gated`` a hidden feature (SiLU,
    times the gated branch); to combine, a multiplication and an addition a feature of each chosen expert, and an
    addition of each shared one.
    Bytes, for the layer as one operator: its input and output, the router, and the weights of
    ``min(experts, tokens·top_k) + shared`` experts, the most that so few tokens can reach.
    Parameters: all experts, shared ones and the router, however few are chosen.

    Parameters
    ----------
    tokens : Size
        Rows of the input.
    d_model, d_ff : Size
        Features in and out, and hidden features of each expert, shared ones too.
    experts, top_k : Size
        Experts to choose from, and chosen for each token.
    shared : Count, optional
        Experts that every token goes through, of width *d_ff* each.
    gated : Flag, optional
        Whether an expert has a third matrix whose output multiplies the hidden features (as in SwiGLU).
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, for top_k larger than experts, or a complex dtype.

    Notes
    -----
    Not counted: hidden features moved between the matrices, sorting and gathering of tokens, an auxiliary loss, tokens
    dropped or padded by a capacity limit, communication between devices.

    References
    ----------
    Shazeer et al. 2017, eq. 1 to 5; Dai et al. 2024 (DeepSeekMoE) for shared experts.

    Examples
    --------
    >>> layer = moe(tokens=1, d_model=4096, d_ff=14336, experts=8, top_k=2)  # Mixtral-8x7B
    >>> layer.flops, layer.params
    (704708608, 1409318912)
    """
    if wrong := offence(lambda top_k, experts: top_k > experts, top_k, experts):
        raise ValueError(f"top_k={wrong[0]} is more than experts={wrong[1]}: choose at most as many as there are")

    expert = (2 + gated) * d_model * d_ff
    active = top_k + shared
    routing = SOFTMAX_FLOPS * experts + top_k * experts + 2 * top_k
    hidden = (ACTIVATIONS["silu"].flops + gated) * active * d_ff
    combining = (2 * top_k + shared) * d_model
    reached = minimum(experts, tokens * top_k) + shared
    return Cost(
        "moe",
        macs_by_kind={"router": tokens * d_model * experts, "products": tokens * active * expert},
        vector_by_kind={"routing": tokens * routing, "elementwise": tokens * (hidden + combining)},
        bytes=2 * nbytes(tokens * d_model, real(dtype))
        + nbytes(d_model * experts, dtype)
        + reached * (2 + gated) * nbytes(d_model * d_ff, dtype),
        params_by_role={"weight": d_model * experts + (experts + shared) * expert},
    )
