"""The attention core: which query sees which key, and what the two products cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from flopkit.arithmetic import Number, ceil_div, maximum, minimum, total
from flopkit.cost import Cost
from flopkit.dtypes import DType, nbytes, real
from flopkit.layers.pointwise import SOFTMAX_FLOPS
from flopkit.macs import seen
from flopkit.sizes import Count, Size, checked, choice, divides, offence

__all__ = ["Around", "Chunks", "Window", "around", "attention", "chunks", "visible_pairs", "visible_rows", "window"]

SCALE_FLOPS = 1
SOFTMAX_KIND = {"scores": "softmax", "hidden": "hidden_softmax"}  # the vector work that goes with pairs


@dataclass(frozen=True)
class Window:
    """A causal sliding window: each query sees *width* keys, itself included."""

    width: Size

    def __str__(self) -> str:
        return f"window({self.width})"


@dataclass(frozen=True)
class Chunks:
    """Causal attention inside chunks of *width* tokens: each query sees the keys of its own chunk up to its own place."""

    width: Size

    def __str__(self) -> str:
        return f"chunks({self.width})"


@dataclass(frozen=True)
class Around:
    """A sliding window on both sides: each query sees its own key and *reach* keys before it and after it."""

    reach: Count

    def __str__(self) -> str:
        return f"around({self.reach})"


Mask: TypeAlias = Literal["full", "causal"] | Window | Chunks | Around
"""Which query sees which key: all, those up to its own place (aligned bottom-right), ``fk.window(w)``, `chunks` of w, or those `around` it."""


@checked
def window(width: Size) -> Window:
    """A causal sliding-window mask: a query sees itself and the *width* − 1 keys before it.

    q queries among kv keys see ``T(kv) − T(kv−q) − T(kv−w) + T(kv−q−w)`` pairs, with w = *width* and ``T(n) = n(n+1)/2`` for
    n > 0, else 0. A window of at least kv keys is a causal mask.

    Parameters
    ----------
    width : Size
        Keys that a query sees, its own included: ``sliding_window`` of Mistral's config.json.

    Raises
    ------
    ValueError or TypeError
        For a width that is not a whole number of at least 1.

    References
    ----------
    Jiang et al. 2023 (Mistral 7B), section 2.

    Examples
    --------
    >>> visible_pairs(3, 3, window(2)), visible_pairs(3, 3, window(3)) == visible_pairs(3, 3, "causal")
    (5, True)
    >>> import flopkit as fk
    >>> fk.attention(batch=1, q=8192, kv=8192, heads=32, head_dim=128, mask=fk.window(4096)).flops
    412350414848
    """
    return Window(width)


@checked
def chunks(width: Size) -> Chunks:
    """Causal attention inside chunks of *width* positions, counted from the first key on (Llama 4).

    Parameters
    ----------
    width : Size
        Tokens of a chunk.

    Examples
    --------
    >>> visible_pairs(5, 5, chunks(2))  # two whole chunks of 3 pairs, and one query alone
    7
    """
    return Chunks(width)


@checked
def around(reach: Count) -> Around:
    """A sliding window of an encoder: a query sees the keys that are at most *reach* places away, before it or after it
    (ModernBERT).

    Parameters
    ----------
    reach : Count
        Keys that a query sees on either side, its own not among them. A window of 128 positions in ModernBERT reaches 64.

    Examples
    --------
    >>> visible_pairs(5, 5, around(1))  # all but the first and the last see three
    13
    """
    return Around(reach)


@checked
def visible_pairs(q: Size, kv: Size, mask: Mask) -> Number:
    """Query-key pairs that *mask* lets through, for *q* queries and *kv* keys of one head.

    Full: ``q·kv``. Causal, aligned bottom-right as in decoding with a cache (the last query sees every key), with
    ``T(n) = n(n+1)/2`` for n > 0 and 0 below: ``T(kv) − T(kv−q)``, which is ``q·kv − q(q−1)/2`` where q ≤ kv.
    Window of w: ``T(kv) − T(kv−q) − T(kv−w) + T(kv−q−w)``.
    Chunks of w: ``P(kv) − P(kv−q)`` with ``P(n) = ⌊n/w⌋·T(w) + T(n mod w)``.
    Around of r: those of a window of r + 1, and after a query ``T(q−1) − T(q−1−r)``, where q ≤ kv.

    Parameters
    ----------
    q, kv : Size
        Queries and keys; kv includes the cache.
    mask : Mask
        ``"full"``, ``"causal"``, ``fk.window(w)``, ``chunks(w)`` or ``around(r)``.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1, an unknown mask, or more queries than keys with a window on
        both sides.

    Examples
    --------
    >>> visible_pairs(4, 4, "full"), visible_pairs(4, 4, "causal"), visible_pairs(1, 4, "causal")
    (16, 10, 4)
    """
    if isinstance(mask, Window):
        whole = maximum(minimum(q, kv - mask.width + 1), 0)  # queries that see as many keys as the window has
        return whole * mask.width + seen(q - whole, minimum(kv, mask.width - 1))
    if isinstance(mask, Around):
        if wrong := offence(lambda q, kv: q > kv, q, kv):
            raise ValueError(f"q={wrong[0]} is more than kv={wrong[1]}: with {mask} each query has a key of its own")
        return visible_pairs(q, kv, Window(mask.reach + 1)) + seen(mask.reach, q - 1)
    if isinstance(mask, Chunks):
        return _in_chunks(kv, mask.width) - _in_chunks(kv - q, mask.width)
    if choice_of_mask(mask) == "full":
        return q * kv
    return seen(q, kv)


def _in_chunks(n: Number, width: Number) -> Number:
    """Pairs of the first *n* tokens."""
    whole = ceil_div(n - width + 1, width)  # n // width, in every reading
    return whole * seen(width, width) + seen(n - whole * width, n - whole * width)


@checked
def visible_rows(q: Size, kv: Size, mask: Mask) -> Number:
    """Rows of K and V that at least one of *q* queries sees: all *kv*, min(kv, q+w−1) under a window of w, min(kv, q+r) around
    each query, or those from the beginning of the first query's chunk on.

    >>> visible_rows(1, 8192, window(1024))
    1024
    """
    if isinstance(mask, Window):
        return minimum(kv, q + mask.width - 1)
    if isinstance(mask, Around):
        return minimum(kv, q + mask.reach)
    if isinstance(mask, Chunks):
        return kv - ceil_div(kv - q - mask.width + 1, mask.width) * mask.width
    choice_of_mask(mask)
    return kv


def choice_of_mask(mask: Any) -> str:
    """Check *mask* where it is a name."""
    if not isinstance(mask, str) or mask not in ("full", "causal"):
        raise ValueError(
            f"mask={mask!r}: must be 'full', 'causal' or fk.window(w) (or chunks(w), around(r), see flopkit.layers.attentions)"
        )
    return mask


@checked
def attention(
    *,
    batch: Size,
    q: Size,
    kv: Size,
    heads: Size,
    head_dim: Size,
    kv_heads: Size | None = None,
    v_head_dim: Size | None = None,
    mask: Mask = "full",
    kernel: str = "flash",
    dtype: DType = "bf16",
) -> Cost:
    """The attention core, softmax(Q·Kᵀ)·V; the projections around it are dense layers.

    FLOPs: ``2·batch·heads·pairs·(head_dim + v_head_dim)``: each pair costs one dot product for its score and one
    scaled row for its value. *pairs* are those that *mask* lets through (`visible_pairs`); under TORCH, all q·kv.
    Vector FLOPs: 6 a pair: scale, and softmax's compare, subtract, exponential, add, divide.
    Bytes, ``kernel="flash"``: Q, K, V read once and the output written, the compulsory traffic: a lower bound. The scores
    never leave the chip, but a tiled kernel reads K and V again for each block of queries, at best from cache.
    ``kernel="math"``: the ``batch·heads·q·kv`` scores move four times as well (written, read, written, read).
    With a window a flash kernel moves only the min(kv, q+w−1) visible rows of K and V, ``"math"`` all of them.

    Parameters
    ----------
    batch : Size
        Sequences.
    q, kv : Size
        Queries and keys of each sequence; kv includes the cache.
    heads, head_dim : Size
        Query heads, and the size of a query or key.
    kv_heads : Size, optional
        Heads of K and V where fewer (GQA, MQA): fewer bytes, the same FLOPs. None: as many as *heads*.
    v_head_dim : Size, optional
        Size of a value where it differs. None: *head_dim*.
    mask : Mask, optional
        ``"full"``, ``"causal"`` (aligned bottom-right) or ``fk.window(w)``.
    kernel : str, optional
        ``"flash"`` or ``"math"``: whether the scores move. It does not change the FLOPs.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a bad size, kv_heads not dividing heads, an unknown mask or kernel, a complex dtype.

    Notes
    -----
    Not counted: projections, rotary embedding, dropout, the addition of a mask tensor, blocks that a kernel computes
    and masks out, further passes over the scores where scale or mask are operators of their own.

    References
    ----------
    Vaswani et al. 2017, eq. 1. Bytes: compulsory traffic, a lower bound; see Dao et al. 2022, Theorem 2, for what a
    tiled kernel really moves.

    Examples
    --------
    >>> attention(batch=5, q=3, kv=3, heads=4, head_dim=8, mask="causal").flops
    3840
    """
    kv_heads = heads if kv_heads is None else kv_heads
    v_head_dim = head_dim if v_head_dim is None else v_head_dim
    divides("kv_heads", kv_heads, "heads", heads)
    choice("kernel", kernel, ("flash", "math"))

    pairs = visible_pairs(q, kv, mask)
    visible = batch * heads * pairs
    hidden = batch * heads * (q * kv - pairs)
    masked = isinstance(mask, Window | Chunks | Around) or mask != "full"
    rows = visible_rows(q, kv, mask) if kernel == "flash" else kv  # the whole score matrix is made of all rows
    queries, keys = batch * heads * q, batch * kv_heads * rows
    tensors = (queries * head_dim, keys * head_dim, keys * v_head_dim, queries * v_head_dim)
    traffic = total(nbytes(tensor, real(dtype)) for tensor in tensors)
    if kernel == "math":
        traffic = traffic + 4 * nbytes(queries * kv, dtype)
    per_pair = SCALE_FLOPS + SOFTMAX_FLOPS
    return Cost(
        "attention",
        macs_by_kind={"scores": visible * (head_dim + v_head_dim)}
        | ({"hidden": hidden * (head_dim + v_head_dim)} if masked else {}),
        vector_by_kind={"softmax": per_pair * visible} | ({"hidden_softmax": per_pair * hidden} if masked else {}),
        bytes=traffic,
    )
