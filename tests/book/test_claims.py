"""The file of verdicts, the cells that assert it, and the page that is made from it."""

import re
import runpy
from pathlib import Path

import pytest
from chapters import calls, literal, notebooks

from flopkit.lessons import claims, sources

SETTLED = [claim for claim in claims().values() if claim.verdict is not None]


def test_every_claim_has_a_place():
    ids = [
        f"{letter}{n}"
        for letter, last in {"A": 11, "B": 18, "C": 8, "D": 11, "E": 7}.items()
        for n in range(1, last + 1)
    ]
    assert list(claims()) == ids
    for claim in claims().values():
        assert 1 <= claim.chapter <= 18
        assert claim.claim.endswith(".")


@pytest.mark.parametrize("claim", SETTLED, ids=[claim.id for claim in SETTLED])
def test_a_cell_asserts_each_verdict(claim):
    pages = {book.name: book for book in notebooks()}
    assert claim.page in pages, f"claim {claim.id}: book/{claim.page}.ipynb does not exist"
    asserted = [literal(call.args[0]) for call in calls(pages[claim.page].code, "verdict") if call.args]
    assert asserted.count(claim.id) == 1, (
        f"claim {claim.id}: book/{claim.page}.ipynb must call verdict({claim.id!r}, …) once"
    )


def test_a_text_of_2021_is_not_called_wrong_by_the_software_of_2026():
    """Epoch's text is of November 2021: what it says of tools and profilers was not put to the tools of that day."""
    for name in ("D1", "D5"):
        assert claims()[name].verdict == "dated" and "2021" in claims()[name].finding


def test_no_cell_settles_what_the_file_leaves_open():
    for book in notebooks():
        for call in calls(book.code, "verdict"):
            assert call.args and claims()[literal(call.args[0])].page == book.name


PAGE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "book" / "_ext" / "claimed.py"))


def test_the_page_shows_every_claim_once():
    """Settled ones with verdict, number in words, finding and chapter; the others as open."""
    settled, still_open = PAGE["settled"](), PAGE["still_open"]()
    for claim in claims().values():
        here, there = (still_open, settled) if claim.verdict is None else (settled, still_open)
        assert here.count(f'id="{claim.id}"') == 1 and f'id="{claim.id}"' not in there
        assert claim.claim in here
    for claim in SETTLED:
        entry = settled.split(f'id="{claim.id}"')[1].split("<span id=")[0]
        assert claim.verdict in entry.lower() and claim.finding in entry and claim.ours in entry
        assert f'"{claim.page}.html#{claim.anchor}"' in entry
    assert f"{len(SETTLED)} of {len(claims())} claims are settled" in settled


def test_our_number_is_told_in_words():
    for claim in SETTLED:
        assert claim.number is None or len(claim.of.split()) > 3, claim.id
        assert not claim.of.endswith("."), claim.id


def test_sources_are_linked_where_they_can_be_read():
    page = PAGE["texts"]()
    assert [source.id for source in sources().values() if not source.url] == ["A"]
    for source in sources().values():
        assert source.author in page and (not source.url or f"[{source.title}]({source.url})" in page)
        own = [claim for claim in claims().values() if claim.id[0] == source.id]
        done = sum(claim in SETTLED for claim in own)
        assert re.search(rf"\*\*{source.id}\*\*.*{source.date}\. {done} of its {len(own)} claims", page)
