"""Claims of the literature and their verdicts: one file, asserted by the chapters, shown as one page."""

from __future__ import annotations

import html
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from flopkit.lessons.prose import says
from flopkit.names import hint

__all__ = ["VERDICTS", "Claim", "ClaimsTable", "claims", "claims_markdown", "claims_table", "verdict"]

VERDICTS = ("holds", "holds under a named convention", "misleading", "wrong", "dated", "cannot be checked")

# In the style of the element itself: JupyterLab and Colab do not have the book's.
_FRAME = "padding:.6rem 1rem;border:1px solid color-mix(in srgb,currentColor 30%,transparent);border-radius:.3rem;border-inline-start-width:.25rem"


@dataclass(frozen=True)
class Claim:
    """A claim in our words, who makes it, and what became of it. ``verdict`` is None while it is open.

    ``number`` is ours, as it is printed; ``finding`` is one sentence; ``page`` the chapter's file without its ending.
    """

    id: str
    claim: str
    source: str
    chapter: int
    verdict: str | None = None
    number: str | None = None
    finding: str = ""
    page: str = ""

    @property
    def anchor(self) -> str:
        """Where the chapter's cell stands: ``verdict`` leaves this name there."""
        return f"claim-{self.id}"

    def __repr__(self) -> str:
        found = ", ".join(part for part in (self.verdict or "open", self.number) if part)
        return f"Claim {self.id}: {self.claim} ({self.source}) {found}." + (f" {self.finding}" if self.finding else "")

    def _repr_html_(self) -> str:
        found = ", ".join(html.escape(part) for part in (self.verdict or "open", self.number) if part)
        return (
            f'<p id="{self.anchor}" class="fk-claim" style="{_FRAME}"><strong>Claim {self.id}</strong> ({html.escape(self.source)}): '
            f"{html.escape(self.claim)} <strong>Verdict: {found}.</strong> {html.escape(self.finding)}</p>"
        )


class ClaimsTable(tuple[Claim, ...]):
    """The claims in the order of the file, which show themselves as a table. Open ones are shown as open."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        rows = "\n".join(map(_row, self))
        settled = sum(claim.verdict is not None for claim in self)
        return f"""\
<table class="fk-claims">
<caption>{settled} of {len(self)} claims are settled; the others are open until their chapter is written.</caption>
<thead><tr><th scope="col">Id</th><th scope="col">Claim</th><th scope="col">Verdict</th>\
<th scope="col">Our number</th><th scope="col">Chapter</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>"""


def claims() -> Mapping[str, Claim]:
    """The claims by id.

    >>> claims()["B3"].claim
    'The word FLOPs means floating-point operations per second.'
    """
    return _read()


def claims_table() -> ClaimsTable:
    """All claims as a table for a notebook or a page."""
    return ClaimsTable(claims().values())


def claims_markdown() -> str:
    """The same as Markdown, with a list of the sources: the page "Claims checked" is made of it."""
    who = [f"- **{key}**: {about}" for key, about in _sources().items()]
    return "\n".join(
        [claims_table()._repr_html_(), "", "The letter of an id names the text that makes the claim:", "", *who, ""]
    )


def verdict(id: str, number: Any = None, verdict: str | None = None) -> Claim:
    """Assert that the file of verdicts says what the chapter found.

    Parameters
    ----------
    id : str
        Id of the claim, such as "A2".
    number : Any, optional
        Ours, computed; it must round to the one in the file. None where the file has none.
    verdict : str, optional
        One of "holds", "holds under a named convention", "misleading", "wrong", "dated", "cannot be checked".
        Dated is a claim about the software of its day, which today's software cannot test.

    Returns
    -------
    Claim
        The claim, which shows itself and can be linked to.

    Raises
    ------
    AssertionError
        Where the file says otherwise, with what to write there.
    ValueError
        For an id or a verdict that is not known.
    """
    if id not in claims():
        raise ValueError(f"id={id!r} is not a claim in verdicts.toml; {hint(id, claims())}")
    if verdict not in VERDICTS:
        raise ValueError(f"verdict={verdict!r}: must be one of {', '.join(map(repr, VERDICTS))}")
    claim = claims()[id]
    if claim.verdict != verdict:
        raise AssertionError(
            f"claim {id}: the chapter finds {verdict!r}, the file says {claim.verdict or 'open'!r}: "
            f"under [claims.{id}] of flopkit/data/verdicts.toml write verdict = {verdict!r}"
        )
    if (number is None) != (claim.number is None):
        raise AssertionError(
            f"claim {id}: the chapter's number is {number!r}, the file's {claim.number!r}: give both or neither"
        )
    if claim.number is not None:
        says(claim.number, number)
    return claim


def _row(claim: Claim) -> str:
    state = "open" if claim.verdict is None else f"<strong>{html.escape(claim.verdict)}</strong>"
    finding = f"<br><em>Found:</em> {html.escape(claim.finding)}" if claim.finding else ""
    where = str(claim.chapter)
    if claim.verdict is not None:
        where = f'<a href="{claim.page}.html#{claim.anchor}">{where}</a>'
    return (
        f'<tr id="{claim.id}" class="fk-{"open" if claim.verdict is None else "settled"}">'
        f'<th scope="row">{claim.id}</th><td>{html.escape(claim.claim)}{finding}</td><td>{state}</td>'
        f'<td style="white-space:nowrap">{html.escape(claim.number or "")}</td><td>{where}</td></tr>'
    )


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(files("flopkit").joinpath("data/verdicts.toml").read_text(encoding="utf-8"))


@cache
def _sources() -> Mapping[str, str]:
    return {key: f"{it['author']}, “{it['title']}”, {it['date']}" for key, it in _data()["sources"].items()}


@cache
def _read() -> Mapping[str, Claim]:
    found = {}
    for id, entry in _data()["claims"].items():
        claim = Claim(id, **{**entry, "source": _sources()[entry["source"]]})
        if claim.verdict is not None and (claim.verdict not in VERDICTS or not claim.page):
            raise ValueError(
                f"verdicts.toml, claim {id}: a settled claim needs a page and one of {', '.join(VERDICTS)}"
            )
        if claim.verdict is None and (claim.number or claim.finding or claim.page):
            raise ValueError(f"verdicts.toml, claim {id}: a number, finding or page without a verdict")
        found[id] = claim
    return MappingProxyType(found)
