"""The file of verdicts, the cells that assert it, and the page that is made from it."""

import re
import sys
from dataclasses import replace

import pytest
from chapters import calls, literal, notebooks

import flopkit as fk
from book_ext import claims_page
from flopkit.book.lessons import claims, sources, verdict as _verdict
from flopkit.published.rows import read

module = sys.modules[_verdict.__module__]

SETTLED = [claim for claim in claims().values() if claim.verdict is not None]


def test_every_claim_has_a_place():
    ids = [
        f"{letter}{n}"
        for letter, last in {"A": 11, "B": 18, "C": 8, "D": 11, "E": 7}.items()
        for n in range(1, last + 1)
    ]
    assert list(claims()) == ids
    for claim in claims().values():
        assert 1 <= claim.chapter <= 19
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
    for name in ("D1", "D3", "D5"):
        assert claims()[name].verdict == "dated" and "2021" in claims()[name].finding


def test_no_cell_settles_what_the_file_leaves_open():
    for book in notebooks():
        for call in calls(book.code, "verdict"):
            assert call.args and claims()[literal(call.args[0])].page == book.name


def test_the_page_shows_every_claim_once():
    """Settled ones with verdict, number in words, finding and chapter; the others as open."""
    settled = claims_page.settled()
    for claim in claims().values():
        assert settled.count(f'id="{claim.id}"') == 1 and claim.claim in settled
    assert ("No chapter settles these yet" in settled) == (len(SETTLED) < len(claims()))
    for claim in SETTLED:
        entry = settled.split(f'id="{claim.id}"')[1].split("<span id=")[0]
        assert (
            claim.verdict.replace("under a named", "by") in entry.lower()
            and claim.finding in entry
            and claim.ours in entry
        )
        assert f'"{claim.page}.html#{claim.anchor}"' in entry
    unchecked = [claim.id for claim in SETTLED if claim.verdict == "cannot be checked"]
    assert (
        f"{len(SETTLED) - len(unchecked)} of {len(claims())} claims are settled; {len(unchecked)} cannot be checked."
        in settled
    )
    assert "1 cannot be checked" in claims_page.texts() and unchecked == ["B10"]


def test_the_gravest_verdicts_come_first_and_a_filter_counts_each():
    page = claims_page.settled()
    offered = re.findall(r'value="(\w+)"[^>]*> ([^<(]+) \((\d+)\)', page)
    assert [text for _, text, _ in offered][:4] == ["all", "wrong", "misleading", "holds"] and int(
        offered[0][2]
    ) == len(SETTLED)
    shown = re.findall(r'data-verdict="(\w+)">\n\n<span id="(\w+)">', page)
    assert len(shown) == len(SETTLED)
    for slug, kind, count in offered[1:]:
        own = [claim.id for claim in SETTLED if claim.verdict == kind]
        assert [name for value, name in shown if value == slug] == own and int(count) == len(own)
    order = [slug for slug, _, _ in offered[1:]]
    assert [slug for slug, _ in shown] == sorted((slug for slug, _ in shown), key=order.index)


def test_a_claim_without_a_verdict_is_shown_as_open(monkeypatch):
    known = claims()
    first = next(iter(known))
    monkeypatch.setattr(claims_page, "claims", lambda: known | {first: replace(known[first], verdict=None)})
    settled = claims_page.settled()
    waiting = settled.split("No chapter settles these yet:")[1]
    assert settled.count(f'id="{first}"') == 1 and f'id="{first}"' in waiting and known[first].claim in waiting
    assert f"{len(SETTLED) - 2} of {len(known)} claims are settled; 1 cannot" in settled and "hapter" not in waiting


def test_an_open_claim_promises_no_chapter_that_is_not_there():
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


SMALL = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def test_a_quote_is_short_says_where_it_was_read_and_has_the_numbers_of_the_claim():
    quoted = {claim.id: claim for claim in claims().values() if claim.quote}
    assert set(quoted) == {"B1", "B2", "B3", "B4", "B17", "C1", "C2", *(f"D{n}" for n in range(1, 12))}
    for claim in quoted.values():
        assert 5 <= len(claim.quote.split()) <= 25 and claim.quote == claim.quote.strip() and "“" not in claim.quote
        assert len(claim.read.split()) > 3, claim.id
        ours = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", claim.claim.replace(",", ""))}
        ours |= {float(SMALL.index(word)) for word in re.findall(r"\w+", claim.claim.lower()) if word in SMALL}
        ours |= {1.0} if " a " in claim.claim else set()
        theirs = {float(number) for number in re.findall(r"(?<![A-Za-z\d.])\d+(?:\.\d+)?", claim.quote)}
        assert theirs <= ours, (claim.id, theirs - ours)


def test_the_page_shows_a_quote_beside_its_claim_and_says_why_there_is_none():
    page, told = claims_page.settled(), claims_page.texts()
    for claim in SETTLED:
        entry = page.split(f'id="{claim.id}"')[1].split("<span id=")[0]
        before, folded = entry.split("<details>")
        assert before.split("</span>")[1].strip() == claim.claim, "one line a claim, all else is folded"
        attributed = f'{sources()[claim.id[0]].author}: <q class="fk-quote">{claim.quote}</q>'
        assert (attributed in folded) == bool(claim.quote)
        assert f">Computed in chapter {claim.chapter}</a>" in folded
        assert not claim.quote or claim.read in entry
        told_briefly = re.search("<summary><b>(.*?)</summary>", entry)[1].replace("</b>", "").split(" · ")
        assert told_briefly == [part for part in (claim.verdict.replace("under a named", "by"), claim.number) if part]
        assert (f"“{claim.quote}”" in claim._repr_html_()) == bool(claim.quote)
    for source in sources().values():
        assert source.words in told and ("quoted" in source.words or "our words" in source.words or source.id == "A")


@pytest.mark.parametrize(
    "entry", [{"quote": "as they say"}, {"read": "their page"}, {"quote": "so " * 26, "read": "their page"}]
)
def test_a_quote_without_its_place_or_too_long_is_refused(monkeypatch, entry):
    claim = {"claim": "It is so.", "source": "D", "chapter": 1, **entry}
    monkeypatch.setattr(module, "_data", lambda: {"claims": {"D1": claim}})
    with pytest.raises(ValueError, match="at most 25 words"):
        module._read.__wrapped__()


def test_sources_are_linked_where_they_can_be_read():
    page = claims_page.texts()
    assert [source.id for source in sources().values() if not source.url] == ["A"]
    for source in sources().values():
        assert source.author in page and (not source.url or f"[{source.title}]({source.url})" in page)
        own = [claim for claim in claims().values() if claim.id[0] == source.id]
        done = sum(claim in SETTLED and claim.verdict != "cannot be checked" for claim in own)
        assert re.search(rf"\*\*{source.id}\*\*.*{source.date}\. {done} of {len(own)} claims", page)


def test_b12_says_both_bounds():
    """The finding's numbers are those of the two bounds of a step: everything overlapped, and layers in order."""
    finding = claims()["B12"].finding
    step = fk.serving.decode("llama-3-70b", "h100-sxm", context=512, batch=453, count=8)
    first = fk.serving.batch_at_ridge("llama-3-70b", "h100-sxm", context=512, part="dense")
    assert f"takes {1e3 * step.in_order.seconds:.1f} ms instead of {1e3 * step.seconds:.1f}" in finding
    assert f"from {first} users on" in finding
    assert fk.serving.batch_at_ridge("llama-3-70b", "h100-sxm", context=512, part="cache") is None
