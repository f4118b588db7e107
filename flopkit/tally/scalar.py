"""The counting scalar: a number that has its arithmetic counted."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from functools import partialmethod
from typing import Any

from flopkit.sizes import number
from flopkit.tally.ledger import record, take_up, undecided

__all__ = ["Tally", "numbers", "plain"]


class Tally:
    """A number that has its arithmetic counted, in the ledgers of the `counting` blocks around it.

    ``+ - * /``, comparisons, ``** 2`` and the methods ``exp``, ``log``, ``tanh``, ``erf``, ``sin``, ``cos``, ``sqrt`` each
    count as one operation; a change of sign and a copy as none, and so does the 0 that Python's ``sum`` starts from.
    ``value`` is the plain number. It goes into NumPy arrays of dtype ``object``, whose products are counted too.

    >>> from flopkit.tally import counting
    >>> with counting() as ledger:
    ...     y = (Tally(2) + 1) / 3
    >>> y, ledger.operations
    (Tally(1.0), 2)
    """

    __slots__ = ("_flow", "value")
    value: Any
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any, _flow: str = "") -> None:
        self.value = value.value if isinstance(value, Tally) else value
        self._flow = _flow  # "product" until its sum takes it, then that is "sum"; "" for all else

    def __repr__(self) -> str:
        return f"Tally({self.value!r})"

    def __add__(self, other: Any) -> Tally:
        return self._sum("adds", other, operator.add)

    def __radd__(self, other: Any) -> Tally:
        if isinstance(other, int) and other == 0:  # the start of Python's sum()
            return self
        return self.__add__(other)

    def __sub__(self, other: Any) -> Tally:
        return self._sum("subtracts", other, operator.sub)

    def __rsub__(self, other: Any) -> Tally:
        return self._sum("subtracts", other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Tally:
        record("multiplies")
        return Tally(self.value * _value(other), "product")

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tally:
        record("divides")
        return Tally(self.value / _value(other))

    def __rtruediv__(self, other: Any) -> Tally:
        record("divides")
        return Tally(_value(other) / self.value)

    def __pow__(self, power: Any) -> Tally:
        if not isinstance(power, int) or power < 1:
            raise TypeError(f"power={power!r}: only whole powers of at least 1; use .sqrt() for a square root")
        result: Tally = self
        for _ in range(power - 1):
            result = result * self
        return result

    def __neg__(self) -> Tally:
        return Tally(-self.value, self._flow)

    def __lt__(self, other: Any) -> bool:
        return self._compare(operator.lt, other)

    def __le__(self, other: Any) -> bool:
        return self._compare(operator.le, other)

    def __gt__(self, other: Any) -> bool:
        return self._compare(operator.gt, other)

    def __ge__(self, other: Any) -> bool:
        return self._compare(operator.ge, other)

    def __eq__(self, other: Any) -> bool:
        return self._compare(operator.eq, other)

    def _function(self, function: Callable[[float], float], operation: str = "exponentials") -> Tally:
        record(operation)
        return Tally(function(self.value))

    exp = partialmethod(_function, math.exp)
    log = partialmethod(_function, math.log)
    tanh = partialmethod(_function, math.tanh)
    erf = partialmethod(_function, math.erf)
    sin = partialmethod(_function, math.sin)
    cos = partialmethod(_function, math.cos)
    sqrt = partialmethod(_function, math.sqrt, "square_roots")

    def _compare(self, holds: Callable[[Any, Any], bool], other: Any) -> bool:
        record("comparisons")
        return holds(self.value, _value(other))

    def _sum(self, operation: str, other: Any, add: Callable[[Any, Any], Any]) -> Tally:
        """An addition or subtraction. Where nothing is said about it, it belongs to a contraction if it takes up a
        product, or joins two sums of products."""
        flows = (self._flow, other._flow if isinstance(other, Tally) else "")
        joins = "product" in flows or flows == ("sum", "sum")
        if joins and undecided():
            for term in (self, other):
                if isinstance(term, Tally) and term._flow == "product":
                    term._flow = "sum"
                    take_up()
            record(operation, "contraction")
        else:
            record(operation)
        return Tally(add(self.value, _value(other)), "sum" if joins else "")


def _value(number: Any) -> Any:
    return number.value if isinstance(number, Tally) else number


def numbers(*sizes: int, seed: int = 0) -> Any:
    """`Tally` numbers between −1 and 1, the same ones each time: ``numbers(4)`` a list, ``numbers(2, 3)`` two rows of 3.

    >>> len(numbers(2, 3)), len(numbers(2, 3)[0])
    (2, 3)
    """
    draw = random.Random(seed)

    def block(lengths: tuple[int, ...]) -> Any:
        if not lengths:
            return Tally(draw.uniform(-1, 1))
        return [block(lengths[1:]) for _ in range(lengths[0])]

    return block(tuple(number(f"sizes[{axis}]", n) for axis, n in enumerate(sizes)))


def plain(values: Any) -> Any:
    """The plain numbers of nested lists (or a mapping of lists) of `Tally` numbers.

    >>> plain([Tally(1), [Tally(2.5)]])
    [1, [2.5]]
    """
    if isinstance(values, (list, tuple)):
        return [plain(value) for value in values]
    if isinstance(values, dict):
        return {name: plain(value) for name, value in values.items()}
    return _value(values)
