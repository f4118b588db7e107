"""A mixture of experts: a router, the experts it chooses, and those that every token shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flopkit.arithmetic import Number, ceil_div, is_zero, log2, maximum, minimum, where
from flopkit.cost import Cost
from flopkit.dtypes import DType, nbytes, real
from flopkit.layers.pointwise import ACTIVATIONS, SOFTMAX_FLOPS
from flopkit.sizes import Count, Factor, Flag, Size, checked, divides, number, offence

__all__ = ["ExpertLoad", "expected_experts", "expert_load", "moe"]


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
    capacity: Factor | None = None,
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

    Without a *capacity* no token is dropped: how the router spreads the tokens changes none of the FLOPs.
    With one, each expert computes exactly ``ceil(capacity·tokens·top_k / experts)`` rows, so ``experts`` times as many stand for
    ``tokens·top_k`` in all of the above, whatever the routing: rows that no token fills are computed, too, and tokens that find no
    row are dropped (`expert_load` says how many). The weights of all experts are read.

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
    capacity : Factor, optional
        The capacity factor: rows of each expert, over the tokens that each would get under a balanced load. None: no limit.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, for top_k larger than experts, a capacity that is not positive, or a complex dtype.

    Notes
    -----
    Not counted: hidden features moved between the matrices, sorting and gathering of tokens (some programs do it by a product with
    a one-hot matrix), an auxiliary loss, communication between devices. With a capacity the FLOPs are executed ones: an MFU counts
    those of the layer without.

    References
    ----------
    Shazeer et al. 2017, eq. 1 to 5; Fedus et al. 2021 (Switch Transformers), eq. 3, for the capacity factor; Dai et al. 2024
    (DeepSeekMoE) for shared experts.

    Examples
    --------
    >>> layer = moe(tokens=1, d_model=4096, d_ff=14336, experts=8, top_k=2)  # Mixtral-8x7B
    >>> layer.flops, layer.params
    (704708608, 1409318912)

    Padded to 1.25 times a balanced load, each of the 8 experts computes 320 rows of 1,024 tokens:

    >>> sizes = dict(tokens=1024, d_model=4096, d_ff=14336, experts=8, top_k=2)
    >>> moe(**sizes, capacity=1.25).macs_by_kind["products"] == 8 * 320 * 3 * 4096 * 14336
    True
    """
    if wrong := offence(lambda top_k, experts: top_k > experts, top_k, experts):
        raise ValueError(f"top_k={wrong[0]} is more than experts={wrong[1]}: choose at most as many as there are")

    expert = (2 + gated) * d_model * d_ff
    chosen = tokens * top_k if capacity is None else experts * _limit(capacity, tokens * top_k, experts)
    rows = chosen + tokens * shared
    routing = SOFTMAX_FLOPS * experts + top_k * experts + 2 * top_k
    hidden = (ACTIVATIONS["silu"].flops + gated) * rows * d_ff
    combining = (rows + chosen) * d_model
    reached = (minimum(experts, tokens * top_k) if capacity is None else experts) + shared
    return Cost(
        "moe",
        macs_by_kind={"router": tokens * d_model * experts, "products": rows * expert},
        vector_by_kind={"routing": tokens * routing, "elementwise": hidden + combining},
        bytes=2 * nbytes(tokens * d_model, real(dtype))
        + nbytes(d_model * experts, dtype)
        + reached * (2 + gated) * nbytes(d_model * d_ff, dtype),
        params_by_role={"weight": d_model * experts + (experts + shared) * expert},
    )


@checked
def expected_experts(*, experts: Size, top_k: Size, tokens: Size) -> Number:
    """How many different experts so many *tokens* choose on average, where each chooses by chance.

        experts · (1 − (1 − top_k / experts)^tokens)

    A token misses a given expert with the probability 1 − top_k / experts. This supposes that all experts are equally likely and that
    tokens choose independently of each other. Routers are not so even: texts of one kind prefer some experts, and then fewer are chosen.

    Parameters
    ----------
    experts, top_k : Size
        Experts to choose from, and chosen for each token, all different.
    tokens : Size
        Tokens of a step.

    Returns
    -------
    Number
        An average, which need not be whole. The most is ``min(experts, tokens · top_k)``.

    Raises
    ------
    ValueError or TypeError
        For a bad size, and for top_k larger than experts.

    Examples
    --------
    32 users of DeepSeek-V3 could choose all 256 experts:

    >>> round(expected_experts(experts=256, top_k=8, tokens=32), 1)
    163.3
    """
    if wrong := offence(lambda top_k, experts: top_k > experts, top_k, experts):
        raise ValueError(f"top_k={wrong[0]} is more than experts={wrong[1]}: choose at most as many as there are")
    return experts * (1 - (1 - top_k / experts) ** tokens)


@dataclass(frozen=True, kw_only=True)
class ExpertLoad:
    """How many tokens each expert and each device gets, and what that costs in time and in dropped tokens.

    Parameters
    ----------
    assignments : Number
        Pairs of a token and an expert that it chose: tokens · top_k.
    experts, ranks : Number
        How many experts there are, and over how many devices they are spread.
    busiest, busiest_rank : Number
        Assignments of the busiest expert, and of the busiest device.
    limit : Number or None
        Rows that each expert computes at most. None: as many as come.
    overflow : Number
        Assignments that find no row.

    Examples
    --------
    >>> expert_load([7, 1, 4, 4], ranks=2).slowdown
    1.0
    """

    assignments: Number
    experts: Number
    ranks: Number
    busiest: Number
    busiest_rank: Number
    limit: Number | None
    overflow: Number

    @property
    def imbalance(self) -> Number:
        """Tokens of the busiest expert, over those of the average expert."""
        return self.busiest * self.experts / self.assignments

    @property
    def rank_imbalance(self) -> Number:
        """Tokens that reach the busiest device, over those of the average device."""
        return self.busiest_rank * self.ranks / self.assignments

    @property
    def dropped(self) -> Number:
        """Share of the assignments that a capacity drops."""
        return self.overflow / self.assignments

    @property
    def empty(self) -> Number:
        """Share of the computed rows that hold no token. Without a capacity there are none."""
        return 0 if self.limit is None else 1 - (self.assignments - self.overflow) / (self.experts * self.limit)

    @property
    def slowdown(self) -> Number:
        """Rows of the busiest device, over those of a balanced load without padding: the factor on the time of compute-bound experts.

        Devices wait for the busiest one. Under a capacity each computes the same number of rows.
        """
        return self.rank_imbalance if self.limit is None else self.experts * self.limit / self.assignments


@checked
def expert_load(
    counts: Sequence[int] | None = None,
    *,
    tokens: Size | None = None,
    experts: Size | None = None,
    top_k: Size | None = None,
    skew: Factor = 1,
    ranks: Size = 1,
    capacity: Factor | None = None,
) -> ExpertLoad:
    """What unequal routing costs: the busiest expert, the busiest of *ranks* devices, and the tokens that a capacity drops.

    Either from *counts*, which a router gave, or from a model of them, where the busiest expert gets *skew* times the average:
    the busiest ``i`` of E experts together get ``tokens·top_k·(i/E)^a`` of the assignments, with ``a = 1 − log(skew)/log(E)``.
    The busiest of n devices then gets ``n^(1−a)`` times the average. Numbers of such a load are averages, and need not be whole.

    Parameters
    ----------
    counts : Sequence[int], optional
        Tokens that each expert got, in the order in which the experts are spread over the devices.
    tokens, experts, top_k : Size, optional
        Sizes of the layer as in `moe`, in place of *counts*.
    skew : Factor, optional
        Tokens of the busiest expert over those of the average one; at most experts / top_k, as no token chooses an expert twice.
    ranks : Size, optional
        Devices over which the experts are spread, neighbours together. With a *skew* the busiest experts are neighbours.
    capacity : Factor, optional
        The capacity factor: each expert takes at most ``ceil(capacity·tokens·top_k / experts)`` tokens and drops the others. None: no limit.

    Returns
    -------
    ExpertLoad
        With ``imbalance``, ``rank_imbalance``, ``slowdown``, ``dropped`` and ``empty``.

    Raises
    ------
    ValueError or TypeError
        For both counts and sizes, or neither; for ranks that do not divide experts, a skew below 1 or too large, and bad sizes.

    Examples
    --------
    >>> load = expert_load([900, 500, 400, 248], ranks=2, capacity=1.25)  # 1,024 tokens choose 2 of 4 experts
    >>> load.imbalance, load.rank_imbalance, load.dropped
    (1.7578125, 1.3671875, 0.126953125)

    Eight H100 share the 256 experts of DeepSeek-V3, and the busiest expert gets four times the average:

    >>> load = expert_load(tokens=4096, experts=256, top_k=8, skew=4, ranks=8)
    >>> round(load.slowdown, 3)
    1.682
    """
    sizes = {"tokens": tokens, "experts": experts, "top_k": top_k}
    if counts is not None:
        if given := [name for name, value in sizes.items() if value is not None] + ["skew"] * (not _is_one(skew)):
            raise ValueError(f"counts are given, so {', '.join(given)} must not be: they follow from the counts")
        return _counted(counts, ranks, capacity)
    if missing := [name for name, value in sizes.items() if value is None]:
        raise ValueError(f"pass counts, or {', '.join(missing)}: expert_load(tokens=, experts=, top_k=, skew=)")
    skew = float(skew) if isinstance(skew, Fraction) else skew
    if offence(lambda top_k, experts: top_k > experts, top_k, experts):
        raise ValueError(f"top_k={top_k} is more than experts={experts}: choose at most as many as there are")
    if offence(lambda skew: skew < 1, skew):
        raise ValueError(f"skew={skew}: must be at least 1, which is a balanced load")
    if offence(lambda skew, experts, top_k: skew * top_k > experts, skew, experts, top_k):
        raise ValueError(
            f"skew={skew}: must be at most experts / top_k = {experts} / {top_k}, since no token chooses an expert twice"
        )
    divides("ranks", ranks, "experts", experts)
    assignments: Number = tokens * top_k  # type: ignore[operator]
    steepness = log2(skew) / log2(maximum(experts, 2))  # 1 − a: how fast the load falls off
    overflow: Number = 0
    limit = None if capacity is None else _limit(capacity, assignments, experts)
    if limit is not None:

        def beyond(first: Number) -> Number:
            """Assignments of the busiest *first* experts that their limits do not take."""
            return assignments * (first / experts) ** (1 - steepness) - limit * first

        # Loads fall, so the sum of what is beyond a limit is largest when it is taken over all experts that exceed theirs. The density
        # of the load, (1 − s)·x^(−s), falls to the limit at x: the last expert to exceed it lies on either side of there.
        density = minimum(1, (1 - steepness) * assignments / (experts * limit))
        # equivalent: 1 -> 2 [4] (of equal loads all exceed the limit or none)
        last = maximum(1, ceil_div(experts * density ** (1 / where(skew > 1, steepness, 1)), 1))  # type: ignore[operator]
        overflow = maximum(0, maximum(beyond(last), beyond(maximum(1, last - 1))))
    return ExpertLoad(
        assignments=assignments,
        experts=experts,
        ranks=ranks,
        busiest=skew * assignments / experts,
        busiest_rank=assignments / ranks * ranks**steepness,
        limit=limit,
        overflow=overflow,
    )


def _limit(capacity: Number, assignments: Number, experts: Number) -> Number:
    """Rows of each expert. A fraction is split, so that a reading in doubles rounds only once."""
    if isinstance(capacity, Fraction):
        return ceil_div(capacity.numerator * assignments, capacity.denominator * experts)
    return ceil_div(capacity * assignments, experts)


def _counted(counts: Sequence[int], ranks: Number, capacity: Number | None) -> ExpertLoad:
    """The load of a router's own counts: a list, an array or a tensor."""
    listed = counts.tolist() if hasattr(counts, "tolist") else list(counts)
    loads = [number(f"counts[{i}]", n, minimum=0) for i, n in enumerate(listed)]
    if is_zero(sum(loads)):
        raise ValueError(f"counts={listed}: must hold at least one token")
    ranks = number("ranks", ranks)
    divides("ranks", ranks, "experts", len(loads))
    each = len(loads) // ranks
    limit = None if capacity is None else _limit(capacity, sum(loads), len(loads))
    return ExpertLoad(
        assignments=sum(loads),
        experts=len(loads),
        ranks=ranks,
        busiest=max(loads),
        busiest_rank=max(sum(loads[i : i + each]) for i in range(0, len(loads), each)),
        limit=limit,
        overflow=0 if limit is None else sum(max(0, load - limit) for load in loads),
    )


def _is_one(value: Any) -> bool:
    return isinstance(value, (int, float, Fraction)) and value == 1
