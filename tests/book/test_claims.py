"""The file of verdicts, the cells that assert it, and the page that is made from it."""

import re

import pytest
from chapters import calls, literal, notebooks

import flopkit as fk
from book_ext import claims_page
from flopkit.book.lessons import claims, sources
from flopkit.published.rows import read

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


def test_the_page_shows_every_claim_once():
    """Settled ones with verdict, number in words, finding and chapter; the others as open."""
    settled, still_open = claims_page.settled(), claims_page.still_open()
    for claim in claims().values():
        here, there = (still_open, settled) if claim.verdict is None else (settled, still_open)
        assert here.count(f'id="{claim.id}"') == 1 and f'id="{claim.id}"' not in there
        assert claim.claim in here
    for claim in SETTLED:
        entry = settled.split(f'id="{claim.id}"')[1].split("<span id=")[0]
        assert claim.verdict in entry.lower() and claim.finding in entry and claim.ours in entry
        assert f'"{claim.page}.html#{claim.anchor}"' in entry
    assert f"{len(SETTLED)} of {len(claims())} claims are settled" in settled


def test_the_verdicts_come_first_with_the_gravest_on_top():
    """A line a verdict with a link to each of its claims, so that a reader need not walk through all of them."""
    lines = [line for line in claims_page.settled().splitlines() if line.startswith("- *")]
    kinds = [re.match(r"- \*([^*]+)\* \((\d+)\)", line) for line in lines]
    assert [kind[1] for kind in kinds][:3] == ["wrong", "misleading", "holds"]
    for kind, line in zip(kinds, lines, strict=True):
        own = [claim.id for claim in SETTLED if claim.verdict == kind[1]]
        assert re.findall(r'href="#(\w+)"', line) == own and int(kind[2]) == len(own)
    assert sum(int(kind[2]) for kind in kinds) == len(SETTLED)


def test_an_open_claim_promises_no_chapter_that_is_not_there():
    assert "hapter" not in claims_page.still_open()
    for claim in claims().values():
        exists = any(book.name.startswith(f"{claim.chapter:02}_") for book in notebooks())
        assert exists == (claim.verdict is not None), claim.id


def test_a_text_that_says_for_whom_is_not_blamed_for_leaving_it_out():
    """B17's text says "user-serving", and names Blackwell Ultra: the restatement keeps both, and the finding computes them."""
    claim, model = claims()["B17"], fk.load("megatron-1t")

    def step(device, count, **formats):
        return fk.serving.decode(model, device, context=2048, count=count, **formats).tokens_per_s

    def fewest(device, **formats):
        return next(n for n in range(1, 999) if step(device, n, **formats) >= 1000)

    assert "for a user" in claim.claim and "Blackwell Ultra" in claim.claim and "how many users" not in claim.finding
    assert fk.device("gb300").bandwidth == fk.device("b200").bandwidth
    assert fewest("b200", weights="fp8") == fewest("gb300", weights="fp8") == 130 and "130 of them" in claim.finding
    assert fewest("gb300", weights="fp4") == 67 and "In fp4, 67 are enough" in claim.finding
    assert f"{1000 / step('gb300', 72, weights='fp4'):.0%}" == "92%" and "92 % of it" in claim.finding


def test_what_findings_say_of_other_tables():
    """C1: what Meta and DeepSeek print beside MosaicML's runs. B10: the row that rests on an assumption. C2: which GPUs hold the step."""
    meta = [row["mfu_pct"] for row in read("llama_3")["rows"]]
    [deepseek] = [row[-2:] for row in read("deepseek_v3")["table4"] if row[0] == "MPFT"]
    assert f"{min(meta)} to {max(meta)} %" in claims()["C1"].finding
    assert all(f"{share:.2f} %" in claims()["C1"].finding for share in deepseek)
    assert "That is one vendor." in claims()["C1"].finding
    assert "if we assume its batch, 6 · 2²⁰ tokens" in claims()["B10"].finding
    need = fk.load("llama-3-8b").train_memory(seq=8192).total
    assert 2 * fk.device("h100-sxm").memory < need < fk.device("mi300x").memory
    assert "Two H100s are too small for that, and one MI300X is not" in claims()["C2"].finding


def test_our_number_is_told_in_words():
    for claim in SETTLED:
        assert claim.number is None or len(claim.of.split()) > 3, claim.id
        assert not claim.of.endswith("."), claim.id


def test_sources_are_linked_where_they_can_be_read():
    page = claims_page.texts()
    assert [source.id for source in sources().values() if not source.url] == ["A"]
    for source in sources().values():
        assert source.author in page and (not source.url or f"[{source.title}]({source.url})" in page)
        own = [claim for claim in claims().values() if claim.id[0] == source.id]
        done = sum(claim in SETTLED for claim in own)
        assert re.search(rf"\*\*{source.id}\*\*.*{source.date}\. {done} of its {len(own)} claims", page)
