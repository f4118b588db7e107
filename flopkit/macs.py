"""The closed forms, bare: how much arithmetic an operation of given sizes is. Nothing is checked here, and nothing is added to it.

The formulas of `flopkit.layers` (which check their sizes, and know bytes and parameters) and those of the counter (which read the sizes off
tensors) both call them, so that each is written once. Products, convolutions and pairs take any reading of a number (int, array, symbol,
parameter) and give multiply-adds; bands, recurrent layers and what places and windows there are take ints; what follows LAPACK takes ints
and gives FLOPs, as its sources do, for `nearest_even` to round.

"LAWN 41" is LAPACK Working Note 41 (Blackford and Dongarra, *Installation Guide for LAPACK*, appendix C), "GVL" Golub and Van Loan,
*Matrix Computations*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from math import log2, prod
from typing import Any

from flopkit.arithmetic import Number, exact_div, maximum

__all__ = [
    "Recurrent", "adaptive_taps", "band_keys", "band_pairs", "broadcast", "convolution", "eigh", "filters", "fourier", "levels", "lu",
    "nearest_even", "of_numbers", "product", "qr", "reflectors", "seen", "svd",
]  # fmt: skip


# -- products, convolutions, pairs --------------------------------------------------------------------------------


def of_numbers(macs: Number, complex: bool) -> Number:
    """Multiply-adds of real numbers in *macs* multiply-adds: four each where the numbers are complex (8 FLOPs).

    >>> of_numbers(10, complex=True)
    40
    """
    return 4 * macs if complex else macs


def product(rows: Number, inner: Number, columns: Number) -> Number:
    """``out[i, j] = Σ_k a[i, k]·b[k, j]``: a dot product of length *inner* for each row and each column.

    >>> product(5, 3, 7)
    105
    """
    return rows * inner * columns


def filters(channels: Number, fan: Number, groups: Number, taps: Number) -> Number:
    """Numbers in a convolution's weight: for each of the *channels* the taps over one group of the other side's *fan*.

    >>> filters(16, 24, groups=8, taps=9)
    432
    """
    return channels * exact_div(fan, groups) * taps


def convolution(positions: Number, weight: Number) -> Number:
    """At each position every number of the *weight* (`filters`) is multiplied once. Taps on padding are among them.

    Positions are those of the output, of all images; of a transposed convolution, those of the input. Each of the two gradients is
    as much.

    >>> convolution(5 * 9 * 4, filters(16, 24, groups=8, taps=9))
    77760
    """
    return positions * weight


def seen(queries: Number, keys: Number) -> Number:
    """Pairs of queries and keys where the last query sees *keys* keys, and each one before it one fewer, down to none.

    With ``T(n) = n(n+1)/2`` for n > 0 and 0 below: ``T(keys) − T(keys − queries)``. Where there are fewer keys than that, what lies
    beyond them is such a number, too: a band of a mask is a sum of a few.

    >>> seen(4, 4), seen(1, 4), seen(4, 2)
    (10, 4, 3)
    """
    most, least = maximum(keys, 0), maximum(keys - queries, 0)
    return exact_div(
        (most - least) * (most + least + 1), 2
    )  # and not T − T: in a sweep the difference of two large floats is lost


def band_pairs(q: int, kv: int, left: int | None = None, right: int | None = None, offset: int = 0) -> int:
    """Pairs (i, j) of *q* queries and *kv* keys with ``i + offset - left <= j <= i + offset + right``; None: no bound.

    An *offset* of 0 aligns the first query with the first key (top-left), ``kv - q`` the last with the last (bottom-right).

    >>> band_pairs(3, 5, right=0), band_pairs(3, 5, right=0, offset=2), band_pairs(3, 3, left=1, right=0)
    (6, 12, 5)
    """
    upper = q * kv if right is None else _below(q, kv, offset + right)
    lower = 0 if left is None else _below(q, kv, offset - left - 1)
    return max(upper - lower, 0)


def _below(q: int, kv: int, diagonal: int) -> int:
    """Pairs with ``j - i <= diagonal``, less those whose keys lie beyond the last."""
    return int(seen(q, q + diagonal) - seen(q, q + diagonal - kv))


def band_keys(q: int, kv: int, left: int | None, right: int | None, offset: int) -> int:
    """Keys that at least one of *q* queries sees under the same band.

    >>> band_keys(1, 8192, left=1023, right=0, offset=8191)
    1024
    """
    if q <= 0:
        return 0
    first = 0 if left is None else max(offset - left, 0)
    last = kv - 1 if right is None else min(q - 1 + offset + right, kv - 1)
    return max(last - first + 1, 0)


# -- recurrent layers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recurrent:
    """The size of a recurrent network, and its multiply-adds.

    Each step of each direction takes ``gates·hidden·(inputs + fed back)``: what is fed back is the hidden state or, where that is projected
    (``hidden·projected`` more), the projection.
    """

    gates: int  # LSTM 4, GRU 3, a plain layer 1
    rows: int  # steps of all sequences together
    batch: int  # sequences
    inputs: int  # numbers of one step of the input
    hidden: int  # numbers of a hidden state
    layers: int = 1
    directions: int = 1
    projected: int = 0  # size of the projected hidden state; 0: it is not

    def from_input(self, first: bool = True) -> int:
        """With the weights of the input, those of the first layer left out where *first* is False."""
        wide = self.directions * (self.projected or self.hidden)
        sizes = (self.inputs if first else 0) + (self.layers - 1) * wide
        return self.directions * self.rows * self.gates * self.hidden * sizes

    def from_state(self, rows: int) -> int:
        """With the weights of the state in *rows* steps of each layer and direction."""
        return self.layers * self.directions * rows * self.gates * self.hidden * (self.projected or self.hidden)

    @property
    def projection(self) -> int:
        """Of the projection."""
        return self.units * self.projected

    @property
    def forward(self) -> int:
        """Of the forward pass.

        >>> Recurrent(gates=4, rows=5 * 2, batch=2, inputs=4, hidden=6).forward == 5 * 2 * 4 * 6 * (4 + 6)
        True
        """
        return self.from_input() + self.from_state(self.rows) + self.projection

    def backward(self, input: bool = True, weights: bool = True, state: bool = True) -> int:
        """Of the gradients: of the input, of the weights, of the initial state."""
        through = self.from_state(self.rows if state else self.rows - self.batch) if self.rows else 0
        return self.from_input(input) + through + self.projection + (self.forward if weights else 0)

    @property
    def units(self) -> int:
        """Hidden units of all layers, directions and steps."""
        return self.layers * self.directions * self.rows * self.hidden


# -- places and windows -------------------------------------------------------------------------------------------


def broadcast(*shapes: Sequence[Any]) -> int:
    """Numbers in the shape that *shapes* broadcast to.

    >>> broadcast((5, 1, 3), (4, 1))
    60
    """
    sizes = zip_longest(*(tuple(map(int, reversed(shape))) for shape in shapes), fillvalue=1)
    return prod(0 if 0 in each else max(each) for each in sizes)


def levels(n: int) -> int:
    """⌈log₂ n⌉: compares that place a number among n − 1 others.

    >>> [levels(n) for n in (1, 2, 3, 1024, 1025)]
    [0, 1, 2, 10, 11]
    """
    return max(n - 1, 0).bit_length()


def adaptive_taps(size: int, outputs: int) -> int:
    """Elements along one dimension under all windows of adaptive pooling: window i goes from ⌊i·size/outputs⌋ to ⌈(i + 1)·size/outputs⌉.

    >>> adaptive_taps(7, 1), adaptive_taps(8, 4), adaptive_taps(5, 3)
    (7, 8, 7)
    """
    return sum(-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs))


# -- linear algebra, Fourier transforms ---------------------------------------------------------------------------


def nearest_even(flops: float | Fraction) -> int:
    """*flops* rounded to the nearest even integer, so that half of it is whole multiply-adds; a tie goes to the multiple of four.

    >>> nearest_even(166.67), nearest_even(9)
    (166, 8)
    """
    return 2 * round(flops / 2)


def fourier(points: int) -> int:
    """5·N·log₂N of one transform of N points, in all its dimensions, rounded to the nearest even integer.

    That is the radix-2 algorithm of Cooley and Tukey, N/2·log₂N butterflies of 10 real operations, and the number by which FFTW
    states its speed (Frigo and Johnson, 2005). A real transform of N numbers counts the same here, though half would do.

    >>> fourier(8), fourier(12)
    (120, 216)
    """
    return nearest_even(5 * points * log2(points)) if points > 1 else 0


def lu(m: int, n: int) -> Fraction:
    """A factorisation with row exchanges, m·n² - n³/3 for m ≥ n (LAWN 41, getrf): 2n³/3 of a square matrix.

    >>> lu(3, 3), lu(6, 3) == lu(3, 6) == 45
    (Fraction(18, 1), True)
    """
    m, n = max(m, n), min(m, n)
    return m * n * n - Fraction(n**3, 3)


def qr(m: int, n: int) -> Fraction:
    """Householder's factorisation, 2·m·n² - 2n³/3 for m ≥ n (LAWN 41, geqrf).

    >>> qr(3, 3)
    Fraction(36, 1)
    """
    return 2 * lu(m, n)


def reflectors(m: int, n: int, k: int) -> Fraction:
    """The m × n matrix that k reflectors stand for, 4·m·n·k - 2·(m + n)·k² + 4k³/3 (LAWN 41, orgqr).

    >>> reflectors(3, 3, 3) == qr(3, 3)
    True
    """
    return 4 * m * n * k - 2 * (m + n) * k * k + Fraction(4 * k**3, 3)


def svd(m: int, n: int, vectors: bool, full: bool = False) -> Fraction:
    """Singular values, or all three factors: the cheaper of Golub and Reinsch's algorithm and Chan's (GVL, section 8.6).

    Values: 4·m·n² - 4n³/3 or 2·m·n² + 2n³. Thin factors: 14·m·n² + 8n³ or 6·m·n² + 20n³; full ones: 4·m²·n + 8·m·n² + 9n³ or
    4·m²·n + 22n³. (m ≥ n)

    >>> svd(3, 3, vectors=False), svd(3, 3, vectors=True)
    (Fraction(72, 1), Fraction(567, 1))
    """
    m, n = max(m, n), min(m, n)
    if not vectors:
        return min(4 * m * n * n - Fraction(4 * n**3, 3), Fraction(2 * m * n * n + 2 * n**3))
    whole = min(4 * m * m * n + 8 * m * n * n + 9 * n**3, 4 * m * m * n + 22 * n**3)
    thin = min(14 * m * n * n + 8 * n**3, 6 * m * n * n + 20 * n**3)
    return Fraction(whole if full else min(whole, thin))


def eigh(n: int, vectors: bool) -> Fraction:
    """The symmetric QR algorithm: 4n³/3 for the values, 9n³ with the vectors (GVL, section 8.3).

    >>> eigh(3, vectors=False), eigh(3, vectors=True)
    (Fraction(36, 1), Fraction(243, 1))
    """
    return Fraction(9 * n**3) if vectors else Fraction(4 * n**3, 3)
