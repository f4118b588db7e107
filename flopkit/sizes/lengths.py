"""Documents of unequal length in one batch: what their lengths add up to."""

from __future__ import annotations

import struct
from array import array
from typing import Any

from flopkit.sizes.values import number, short

__all__ = ["Lengths", "lengths_of"]

_FITS = 2**62  # sums below this stay in an int64


class Lengths:
    """The lengths of documents in tokens, and what they add up to.

    A pass over documents that do not see each other depends on nothing else: their
    tokens, the pairs of tokens that see each other, the chunks of a state. Each sum is
    an exact int.

    Parameters
    ----------
    values : Any
        A one-dimensional NumPy array of integers of at least 1: see `lengths_of`.

    Examples
    --------
    >>> documents = lengths_of([3, 1, 2])
    >>> documents.count, documents.tokens, documents.longest, documents.squares
    (3, 6, 3, 14)
    """

    def __init__(self, values: Any) -> None:
        self.count = len(values)
        self.longest = int(values[values.argmax()])
        if self.longest**2 * self.count >= _FITS:
            values = values.astype(object)  # of Python's ints
        self._values = values
        self.tokens = int(values.sum())
        self.squares = int(values.dot(values))

    def seen(self, width: Any = None) -> int:
        """Pairs of a token and one that it sees, which is itself or before it in the
        same document: ``Σ s(s+1)/2``; where it sees *width* tokens at most, less
        ``Σ e(e+1)/2`` with ``e = max(s − width, 0)``.

        >>> lengths_of([3, 1, 2]).seen(), lengths_of([3, 1, 2]).seen(2)
        (10, 9)
        """
        import numpy

        pairs = self.squares + self.tokens
        if width is None or (width := number("window", width)) >= self.longest:
            return pairs // 2
        beyond = numpy.maximum(self._values - width, 0)
        return (pairs - int(beyond.dot(beyond)) - int(beyond.sum())) // 2

    def within(self, width: Any) -> int:
        """Pairs of a token and one that it sees in its own chunk of *width* tokens of its
        document: ``Σ ⌊s/w⌋·T(w) + T(s mod w)``, with ``T(n) = n(n+1)/2``.

        >>> lengths_of([3, 1, 2]).within(2)
        8
        """
        size = number("chunk", width)
        whole, rest = self._values // size, self._values % size
        return (int(whole.sum()) * size * (size + 1) + int(rest.dot(rest)) + int(rest.sum())) // 2

    def chunks(self, size: Any) -> int:
        """Chunks of *size* tokens, the last one of a document full or not:
        ``Σ ⌈s/size⌉``.

        >>> lengths_of([3, 1, 2]).chunks(2)
        4
        """
        return -int((-self._values // number("chunk", size)).sum())

    def filled(self, size: Any) -> int:
        """Tokens of the chunks of *size* tokens, those that fill up the last one of a
        document among them; a document that is shorter than a chunk is one of its own length.

        >>> lengths_of([3, 1, 2]).filled(2)
        7
        """
        return int(self._filled(number("chunk", size)).sum())

    def filled_pairs(self, size: Any) -> int:
        """Pairs of two of these tokens in one chunk.

        >>> lengths_of([3, 1, 2]).filled_pairs(2)
        13
        """
        import numpy

        return int(self._filled(width := number("chunk", size)).dot(numpy.minimum(self._values, width)))

    def _filled(self, width: int) -> Any:
        import numpy

        return numpy.where(self._values < width, self._values, -(-self._values // width) * width)


def lengths_of(value: Any) -> Lengths:
    """Check *value*, the lengths of documents: a list, tuple, range, array or tensor of
    whole numbers of at least 1.

    >>> lengths_of([512, 0, 4096])
    Traceback (most recent call last):
        ...
    ValueError: lengths[1]=0: a size must be at least 1
    """
    import numpy

    if isinstance(value, Lengths):
        return value
    if getattr(value, "is_meta", False):
        raise TypeError(f"lengths={short(value)}: a tensor on meta has no values; pass a list of ints")
    if hasattr(value, "is_floating_point") and not value.is_floating_point():
        value = value.cpu().numpy()  # a tensor of torch
    if hasattr(value, "tolist") and not (isinstance(value, (numpy.ndarray, array)) and numpy.ndim(value)):
        value = value.tolist()  # a column of a table
    if isinstance(value, int):
        raise TypeError(f"lengths={value}: must be a list of the tokens of each document; of one length is seq={value}")
    if not isinstance(value, (list, tuple, range, array, numpy.ndarray)):
        raise TypeError(f"lengths={short(value)}: must be a list of the tokens of each document, such as [512, 3584]")
    if not len(value):
        raise ValueError("lengths=[]: there is no document; give the tokens of each, such as [512, 3584]")
    if numpy.ndim(value[0]):
        raise TypeError(f"lengths={short(value)}: must be one list for the whole batch; join those of its rows")
    found = _integers(value)
    if found is not None and found[found.argmin()] > 0:
        ones = () if isinstance(value, numpy.ndarray) else numpy.flatnonzero(found == 1)
        if not any(isinstance(value[place], bool) for place in ones):
            return Lengths(found)
    if found is not None and len(found) > 1 and found[0] == 0 and (numpy.diff(found) > 0).all():
        raise ValueError(
            f"lengths={short(value)}: these look like cu_seqlens, the places where documents begin and the last one ends; "
            "give numpy.diff(cu_seqlens)"
        )
    checked = [number(f"lengths[{place}]", each) for place, each in enumerate(value)]
    return Lengths(numpy.array(checked, dtype=object))


def _integers(value: Any) -> Any:
    """An int64 array of *value*; None where some of it is none, or is too large for it."""
    import numpy

    if isinstance(value, numpy.ndarray):
        return (
            value.astype("int64", copy=False)
            if numpy.can_cast(value.dtype, "int64") and value.dtype.kind in "iu"
            else None
        )
    try:
        return numpy.frombuffer(struct.pack(f"{len(value)}q", *value), "int64")
    except struct.error:
        return None
