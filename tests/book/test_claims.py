"""The file of verdicts, the cells that assert it, and the page that is made from it."""

import pytest
from chapters import calls, literal, notebooks

from flopkit.lessons import claims, claims_markdown, claims_table

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


def test_the_page_shows_every_claim():
    page = claims_markdown()
    for claim in claims_table():
        assert f'id="{claim.id}"' in page
    assert page.count('class="fk-open"') == len(claims()) - len(SETTLED)
    assert "\n\n" not in page[page.index("<table") : page.index("</table>")], "a blank line would end the HTML block"
