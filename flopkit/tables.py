"""Rows as a table that shows itself: aligned text in a terminal, HTML in a notebook."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["Table", "as_html"]


class Table:
    """Rows (one mapping each) under columns, with a caption.

    Columns of numbers are aligned to the right.

    Parameters
    ----------
    rows : Sequence[Mapping[str, Any]]
        Values by column. They are kept as they are, in ``rows``.
    caption : str, optional
        A line above the table.
    formats : Mapping[str, Callable[[Any], str]], optional
        How the values of a column are shown, by column.
    columns : Sequence[str], optional
        Which columns are shown, in this order. None: all.
    folded : str, optional
        A word, such as ``"yours"``. HTML folds the rows in which a value begins with it under a line that opens.

    Examples
    --------
    >>> print(Table([{"layer": "up", "FLOPs": 2048}, {"layer": "down", "FLOPs": 64}], caption="two layers"))
    two layers
    layer  FLOPs
    up     2,048
    down      64
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        caption: str = "",
        formats: Mapping[str, Callable[[Any], str]] | None = None,
        columns: Sequence[str] | None = None,
        folded: str = "",
    ) -> None:
        self.rows = [dict(row) for row in rows]
        self.columns = list(dict.fromkeys(name for row in self.rows for name in row) if columns is None else columns)
        self.caption = caption
        self._folded = folded
        self._formats = dict(formats or {})

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def __str__(self) -> str:
        cells = [self.columns, *[[self._shown(name, row.get(name)) for name in self.columns] for row in self.rows]]
        widths = [max(len(line[i]) for line in cells) for i in range(len(self.columns))]
        right = [self._is_number(name) for name in self.columns]
        lines = [
            "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
            for line in cells
        ]
        return "\n".join([self.caption] * bool(self.caption) + lines)

    __repr__ = __str__

    def to_frame(self) -> Any:
        """The rows as a data frame of pandas, or of polars where only that is installed: every column, numbers as numbers.

        Columns that are not shown come last.

        Raises
        ------
        ImportError
            Where neither is installed.
        """
        names = dict.fromkeys([*self.columns, *(name for row in self.rows for name in row)])
        columns = {name: [row.get(name) for row in self.rows] for name in names}
        for package in ("pandas", "polars"):
            try:
                module = import_module(package)
            except ImportError:
                continue
            if package == "pandas":
                return module.DataFrame(columns)
            large = {
                name: module.Series(name, values, dtype=module.Object)  # no column of numbers holds these
                for name, values in columns.items()
                if any(isinstance(value, int) and abs(value) >= 2**127 for value in values)
            }
            return module.DataFrame({**columns, **large}, strict=False)  # an int may stand above a float
        raise ImportError("to_frame() needs pandas or polars, and neither is installed: pip install pandas")

    def _is_number(self, name: str) -> bool:
        return bool(self.rows) and not any(isinstance(row.get(name), str) for row in self.rows)

    def _shown(self, name: str, value: Any) -> str:
        return self._formats[name](value) if name in self._formats and value is not None else _text(value)

    def _repr_html_(self) -> str:
        def cell(tag: str, name: str, value: str) -> str:
            side, scope = "right" if self._is_number(name) else "left", ' scope="col"' if tag == "th" else ""
            kept = html.escape(value).replace(" %", "&nbsp;%").replace("  ", "&nbsp;&nbsp;")  # two blanks: a row set in
            if tag == "td" and side == "right":
                kept = kept.replace(" ", "&nbsp;")  # a number and its unit
            return f'<{tag}{scope} style="text-align:{side}">{kept}</{tag}>'

        def table(rows: Sequence[Mapping[str, Any]], caption: str = "") -> str:
            head = "".join(cell("th", name, name) for name in self.columns)
            body = "".join(
                "<tr>" + "".join(cell("td", name, self._shown(name, row.get(name))) for name in self.columns) + "</tr>"
                for row in rows
            )
            above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
            return f'<table class="fk-table" tabindex="0">{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'

        def is_folded(row: Mapping[str, Any]) -> bool:
            return bool(self._folded) and any(str(value).startswith(self._folded) for value in row.values())

        under = [row for row in self.rows if is_folded(row)]
        others = [row for row in self.rows if not is_folded(row)]
        alone = bool(under) and not others  # then the fold takes the caption
        shown = "" if alone else table(others, self.caption)
        if under:
            count = f"{len(under)} row{'s' * (len(under) > 1)}"
            name = self.caption if alone and self.caption else self._folded.capitalize()
            shown += f"<details><summary>{html.escape(name)}: {count}</summary>{table(under)}</details>"
        return shown


def as_html(lines: Iterable[str], *tables: Table) -> str:
    """Lines of text, and *tables* below them: how what has both shows itself in a notebook.

    >>> as_html(["2 < 3"])
    '<div>2 &lt; 3</div>'
    """
    return "".join([*(f"<div>{html.escape(line)}</div>" for line in lines), *(table._repr_html_() for table in tables)])


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return "" if value is None else str(value)
