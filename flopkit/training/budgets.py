"""How a budget of FLOPs is split between parameters and tokens, by the laws that people quote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from flopkit.cost import amount
from flopkit.sizes import positive
from flopkit.tables import Table

__all__ = ["LAWS", "Law", "compute_optimal"]

_PF_DAY = 1e15 * 86400


class Law(NamedTuple):
    """A law of the best split: FLOPs a token for so many FLOPs, which the tokens then follow from."""

    name: str
    a_token: Callable[[Any], Any]
    parameters: bool  # whether its FLOPs a token are 6 for each parameter
    source: str


def _fitted(a: float, alpha: float, b: float, beta: float) -> Callable[[Any], Any]:
    """The split that minimises a·N^−alpha + b·D^−beta where 6·N·D = C (Hoffmann et al. 2022, eq. 4)."""
    scale = (alpha * a / (beta * b)) ** (1 / (alpha + beta))
    return lambda flops: 6 * scale * (flops / 6) ** (beta / (alpha + beta))


LAWS = (
    Law("Chinchilla's rule of 20", lambda flops: 6 * (flops / 120) ** 0.5, True,
        "Hoffmann et al. 2022, table 3: 67 billion parameters, 1.5·10¹² tokens; as a rule of thumb, 20 tokens a parameter"),
    Law("Chinchilla, fitted again", _fitted(482.01, 0.3478, 2085.43, 0.3658), True,
        "Besiroglu et al. 2024, arXiv:2404.10102: the third approach of Hoffmann et al. on data read from their figure"),
    Law("Kaplan", lambda flops: 6 * 1.3e9 * (flops / _PF_DAY) ** 0.73, True,
        "Kaplan et al. 2020, arXiv:2001.08361, appendix A: 1.3·10⁹ parameters without embeddings for a PF-day, exponent 0.73"),
    Law("DeepSeek LLM", lambda flops: 0.1715 * flops**0.5243, False,
        "DeepSeek-AI 2024, arXiv:2401.02954, eq. 4: FLOPs a token without the vocabulary's product"),
)  # fmt: skip
"""The laws, each with its source. They differ in their data and in what they count as FLOPs; a model that is to be served is often trained
on far more tokens than any of them asks for."""


def compute_optimal(flops: Any, first: Mapping[str, Any] | None = None) -> Table:
    """The parameters and tokens that each law of ``LAWS`` asks for, for a budget of training FLOPs.

        parameters · 6 · tokens = flops

    Parameters
    ----------
    flops : Any
        FLOPs of the whole training, forward and backward.
    first : Mapping[str, Any], optional
        A row to stand above the others.

    Returns
    -------
    Table
        A row a law: *law*, *FLOPs a token*, *parameters* (None where the law has none), *tokens*, *tokens a parameter*, *source*.

    Raises
    ------
    ValueError or TypeError
        For FLOPs that are no positive number.

    Notes
    -----
    The laws were fitted to dense models of text, with their authors' data, schedules and counts of FLOPs.

    Examples
    --------
    Gopher's budget, for which Chinchilla was made: 70 billion parameters, 1.4·10¹² tokens.

    >>> rule = compute_optimal(5.76e23)[0]
    >>> f"{rule['parameters']:.3g}, {rule['tokens']:.3g}"
    '6.93e+10, 1.39e+12'
    """
    budget = positive("flops", flops, "FLOPs")
    rows: list[dict[str, Any]] = [] if first is None else [dict(first)]
    for law in LAWS:
        each = law.a_token(budget)
        params = each / 6 if law.parameters else None
        tokens = budget / each
        rows.append(
            {"law": law.name, "FLOPs a token": each, "parameters": params, "tokens": tokens}
            | {"tokens a parameter": None if params is None else tokens / params, "source": law.source}
        )
    formats: dict[str, Callable[[Any], str]] = {"FLOPs a token": partial(amount, unit="FLOPs")}
    for name in ("parameters", "tokens"):
        formats[name] = lambda n: "" if n is None else f"{n:.3g}"
    formats["tokens a parameter"] = lambda n: "" if n is None else f"{n:.1f}"
    return Table(rows, caption=f"Splits of {amount(budget, 'FLOPs')}", formats=formats)
