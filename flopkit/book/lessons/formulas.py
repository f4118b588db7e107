"""A formula shown as mathematics: the chapter's LaTeX is printed from the function that counts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from flopkit import units

__all__ = ["Formula", "derivation"]


@dataclass(frozen=True)
class Formula:
    """A named SymPy expression, with numbers for its symbols where an example is wanted."""

    name: str
    expression: Any
    values: tuple[tuple[str, Any], ...] = ()
    unit: str = ""
    order: tuple[str, ...] = ()
    number: str = ""

    @property
    def value(self) -> Any:
        """The expression with the numbers put in: an int where it is one."""
        left = set(self.expression.free_symbols) - {symbol for symbol, _ in self._pairs()}
        if left:
            names = ", ".join(sorted(map(str, left)))
            raise ValueError(f"{self.name} has no value yet: give numbers for {names}")
        result = self.expression.subs(self._pairs())
        return int(result) if result.is_Integer else float(result)

    def latex(self) -> str:
        """The formula in LaTeX, without dollars."""
        import sympy

        # SymPy sorts factors and terms by name: stand-ins whose names sort as the reader wants them.
        places = {name: place for place, name in enumerate(self.order)}
        symbols = sorted(self.expression.free_symbols, key=lambda one: (places.get(one.name, len(places)), one.name))
        stand_ins = {one: sympy.Symbol(f"x{place:03d}", **one.assumptions0) for place, one in enumerate(symbols)}
        names = {stand_in: _symbol_latex(one.name) for one, stand_in in stand_ins.items()}
        words = any(len(one.name.partition("_")[0]) > 1 for one in symbols)
        terms = "old" if self.order else None
        gap = r" \, " if words else None  # two upright words side by side would read as one
        text = f"{_name_latex(self.name)} = {sympy.latex(self.expression.xreplace(stand_ins), symbol_names=names, mul_symbol=gap, order=terms)}"
        if self.values:
            text += f" = {_value_latex(self.value, self.unit)}"
        return text

    def _repr_latex_(self) -> str:
        if self.number:
            return rf"$${self.latex()} \tag{{{self.number}}}$$"
        return rf"$\displaystyle {self.latex()}$"

    def __repr__(self) -> str:
        value = f" = {_value_text(self.value, self.unit)}" if self.values else ""
        return f"{self.name} = {self.expression}{value}" + (f"    ({self.number})" if self.number else "")

    def _pairs(self) -> list[tuple[Any, Any]]:
        given = dict(self.values)
        return [(symbol, given[symbol.name]) for symbol in self.expression.free_symbols if symbol.name in given]


def derivation(name: str, expression: Any, unit: str = "", order: str = "", number: str = "", **values: Any) -> Formula:
    """Show a formula that a flopkit function gave when its sizes were SymPy symbols.

    Parameters
    ----------
    name : str
        What stands left of the equals sign.
    expression : Any
        The SymPy expression, such as ``fk.matmul(m=m, k=k, n=n).flops``.
    unit : str, optional
        Unit of the value, where numbers are put in.
    order : str, optional
        The symbols in the order in which factors are written, such as "M K N"; else alphabetical.
    number : str, optional
        Number of the equation in its chapter, such as "2.1"; it stands in brackets at the right.
    **values : Any
        A number for each symbol by its name, to show the result as well.

    Raises
    ------
    TypeError
        For something that is no SymPy expression.
    ValueError
        For a value whose symbol does not occur.

    Examples
    --------
    >>> import flopkit as fk, sympy
    >>> m, k, n = sympy.symbols("m k n", positive=True, integer=True)
    >>> derivation("FLOPs", fk.matmul(m=m, k=k, n=n).flops).latex()
    '\\\\mathrm{FLOPs} = 2 k m n'
    >>> derivation("FLOPs", fk.matmul(m=m, k=k, n=n).flops, m=5, k=3, n=7)
    FLOPs = 2*k*m*n = 210
    """
    if not hasattr(expression, "free_symbols"):
        raise TypeError(
            f"expression={expression!r}: must be a SymPy expression; call the formula with sympy.symbols(...) as sizes"
        )
    known = {symbol.name for symbol in expression.free_symbols}
    for given in values:
        if given not in known:
            raise ValueError(
                f"{given}={values[given]!r}: {name} has no symbol {given}; it has {', '.join(sorted(known))}"
            )
    wanted = tuple(order.split())
    for one in wanted:
        if one not in known:
            raise ValueError(f"order={order!r}: {name} has no symbol {one}; it has {', '.join(sorted(known))}")
    return Formula(name, expression, tuple(values.items()), unit, wanted, number)


def _symbol_latex(name: str) -> str:
    """One letter stays italic, a word stands upright, what follows ``_`` goes below.

    >>> _symbol_latex("n"), _symbol_latex("tokens"), _symbol_latex("d_in")
    ('n', '\\\\mathrm{tokens}', 'd_{\\\\mathrm{in}}')
    """
    base, _, below = name.partition("_")
    below = below.replace("_", r"\,")
    return _upright(base) + (f"_{{{_upright(below)}}}" if below else "")


def _upright(word: str) -> str:
    return word if len(word) == 1 else rf"\mathrm{{{word}}}"


def _name_latex(name: str) -> str:
    return name if re.search(r"[\\^_{}]", name) else _upright(name.replace(" ", r"\ "))


def _value_text(value: Any, unit: str) -> str:
    if unit:
        return units.format_value(value, unit)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _value_latex(value: Any, unit: str) -> str:
    return rf"\text{{{_value_text(value, unit)}}}".replace("%", r"\%").replace("×", r"$\times$")
