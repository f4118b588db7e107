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

from flopkit.book.lessons.prose import says
from flopkit.names import Word, hint

__all__ = ["Claim", "Verdict", "Source", "claims", "sources", "verdict"]

LONGEST_QUOTE = 25  # words


class Verdict(Word):
    """What becomes of a claim."""

    HOLDS = "holds"
    UNDER_A_CONVENTION = "holds under a named convention"
    UNDER_A_CONDITION = "holds under a condition"
    MISLEADING = "misleading"
    WRONG = "wrong"
    DATED = "dated"
    UNCHECKED = "cannot be checked"


# In the style of the element itself: JupyterLab and Colab do not have the book's. Plain colours and sides: JupyterLab drops what is newer.
_FRAME = "padding:.6rem 1rem;border:1px solid #888;border-left:4px solid {edge};border-radius:4px"
# Of the edge; the word stands beside it. Each is seen on a light and on a dark page.
_EDGES = {kind: "#00875f" for kind in Verdict if kind.startswith("holds")} | {
    "misleading": "#b87800",
    "wrong": "#d03a3a",
}


@dataclass(frozen=True)
class Claim:
    """A claim in our words, who makes it, and what became of it. ``verdict`` is None while it is open.

    ``number`` is ours, as it is printed, ``of`` says in words what it is; ``finding`` is a sentence or two; ``page`` the chapter's
    file without its ending. ``quote`` is the text's own sentence, ``read`` says where we read it; both are empty where there is none.
    """

    id: str
    claim: str
    source: str
    chapter: int
    verdict: str | None = None
    number: str | None = None
    of: str = ""
    finding: str = ""
    page: str = ""
    quote: str = ""
    read: str = ""

    @property
    def anchor(self) -> str:
        """Where the chapter's cell stands: ``verdict`` leaves this name there."""
        return f"claim-{self.id}"

    @property
    def ours(self) -> str:
        """Our number and what it is, as one sentence; empty where there is none."""
        return f"Our number: {self.number}, {self.of}." if self.number else ""

    def __repr__(self) -> str:
        told = [f"{self.verdict or 'open'}.", self.ours, self.finding]
        return f"Claim {self.id}: {self.claim} ({self.source}) {' '.join(part for part in told if part)}"

    def _repr_html_(self) -> str:
        # The anchor stands inside, so that a link to it opens the fold.
        found = html.escape(" ".join(part for part in (self.ours, self.finding) if part))
        said = f": “{html.escape(self.quote, quote=False)}”" if self.quote else "."
        frame = _FRAME.format(edge=_EDGES.get(self.verdict or "", "#888"))
        folded = (
            f'<details class="fk-claim" style="{frame}"><summary><strong>Claim {self.id}</strong> ({self.verdict or "open"}): '
            f'{html.escape(self.claim)}</summary><p id="{self.anchor}" style="margin:.4rem 0 0">{found} '
            f"The claim stands in {html.escape(self.source)}{said}</p></details>"
        )
        return folded.replace(" %", "&nbsp;%")


@dataclass(frozen=True)
class Source:
    """A text whose claims are checked, and where it can be read; ``url`` is empty where it cannot. ``words`` says what is quoted of it."""

    id: str
    title: str
    author: str
    date: str
    url: str = ""
    words: str = ""

    def __str__(self) -> str:
        return f"{self.author}, “{self.title}”, {self.date}"


def claims() -> Mapping[str, Claim]:
    """The claims by id.

    >>> claims()["B3"].claim
    'The word FLOPs means floating-point operations per second.'
    """
    return _read()


def sources() -> Mapping[str, Source]:
    """The texts by the letter with which the ids of their claims begin.

    >>> sources()["D"].author
    'Marius Hobbhahn, Epoch AI'
    """
    return _sources()


def verdict(id: str, number: Any = None, verdict: str | None = None) -> Claim:
    """Assert that the file of verdicts says what the chapter found.

    Parameters
    ----------
    id : str
        Id of the claim, such as "A2".
    number : Any, optional
        Ours, computed; it must round to the one in the file. None where the file has none.
    verdict : str, optional
        One of "holds", "holds under a named convention", "holds under a condition", "misleading", "wrong", "dated", "cannot be
        checked".
        Dated is what was said of the software of its day, which was not run here.

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
    if verdict not in [*Verdict]:
        raise ValueError(f"verdict={verdict!r}: must be one of {', '.join(map(repr, Verdict))}")
    claim = claims()[id]
    if claim.verdict != verdict:
        raise AssertionError(
            f"claim {id}: the chapter finds {verdict!r}, the file says {claim.verdict or 'open'!r}: "
            f"under [claims.{id}] of flopkit/book/data/verdicts.toml write verdict = {verdict!r}"
        )
    if (number is None) != (claim.number is None):
        raise AssertionError(
            f"claim {id}: the chapter's number is {number!r}, the file's {claim.number!r}: give both or neither"
        )
    if claim.number is not None:
        says(claim.number, number)
    return claim


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(files("flopkit.book").joinpath("data/verdicts.toml").read_text(encoding="utf-8"))


@cache
def _sources() -> Mapping[str, Source]:
    return MappingProxyType({id: Source(id, **entry) for id, entry in _data()["sources"].items()})


@cache
def _read() -> Mapping[str, Claim]:
    found = {}
    for id, entry in _data()["claims"].items():
        claim = Claim(id, **{**entry, "source": str(_sources()[entry["source"]])})
        if claim.verdict is not None and (claim.verdict not in [*Verdict] or not claim.page):
            raise ValueError(f"verdicts.toml, claim {id}: a settled claim needs a page and one of {', '.join(Verdict)}")
        if bool(claim.number) != bool(claim.of):
            raise ValueError(
                f"verdicts.toml, claim {id}: a number needs `of`, which says what it is, and the other way round"
            )
        if claim.verdict is None and (claim.number or claim.finding or claim.page):
            raise ValueError(f"verdicts.toml, claim {id}: a number, finding or page without a verdict")
        if bool(claim.quote) != bool(claim.read) or len(claim.quote.split()) > LONGEST_QUOTE:
            raise ValueError(
                f"verdicts.toml, claim {id}: a quote has at most {LONGEST_QUOTE} words, and `read` says where it was read"
            )
        found[id] = claim
    return MappingProxyType(found)
