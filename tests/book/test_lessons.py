"""Lessons: what a chapter says is what is computed, a guess reveals itself without a kernel, an exercise answers."""

import re
import subprocess
import sys
import tomllib
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pytest

import flopkit as fk
from flopkit import units
from flopkit.book.lessons import (
    cites,
    claims,
    claims as claims_room,  # the function
    derivation,
    numbers_in,
    predict,
    says,
    sources,
    verdict,
)
from flopkit.book.lessons.claims import Claim, Verdict

CLAIMS_ROOM = sys.modules["flopkit.book.lessons.claims"]


# -- says -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, value",
    [
        ("137.4 GFLOPs", 137438953472),
        ("3.35 TB/s", 3.35e12),
        ("989.4 TFLOP/s", 989.4e12),
        ("1.07e15 FLOP/s", 1.0705e15),
        ("3.4 × 10⁸ FLOPs", 3.4e8),
        ("10⁹ FLOPs", 10**9),
        ("8 GiB", 8 * 2**30),
        ("15.5 GMACs", 15_470_264_320),
        ("295 FLOPs per byte", 295.34),
        ("295 FLOP/B", 294.5),  # the lower edge of what rounds to 295
        ("26,624 tokens", 26624),
        ("325 tokens", 324.60),
        ("8.03 billion parameters", 8_030_261_248),
        ("0.3 %", 0.00338),
        ("0.3%", 0.0025),
        ("50 per cent", 0.5),
        ("−3 %", -0.031),
        ("13.6×", 13.64),
        ("13.6 times fewer", Fraction(136, 10)),
        ("1.2 ms", 0.00121),
        ("34.7 days", 34.7 * 86400),
        ("2-byte", 2),
        ("about 325 tokens", 325),
        ("about 300 tokens", 325),
        ("≈ 5 GB", 5.2e9),
        ("7 ms", np.float64(0.007)),
        ("2.5 s", np.float32(2.5)),
        ("42", np.int64(42)),
    ],
)
def test_what_the_prose_may_say(text, value):
    assert says(text, value) is None


@pytest.mark.parametrize(
    "text, value, instead",
    [
        ("137.5 GFLOPs", 137438953472, "137.4 GFLOPs"),
        ("137.4 GFLOPs", 274877906944, "274.9 GFLOPs"),
        ("137.4 GFLOPs", 137.4e12, "137.4 TFLOPs"),
        ("295 FLOP/B", 295.6, "296 FLOP/B"),
        ("26,624 tokens", 26625, "26,625 tokens"),
        ("300 tokens", 325, "325 tokens"),
        ("about 300 tokens", 355, "about 355 tokens"),
        ("about 0.3 %", 0.0036, "about 0.4 %"),
        ("0.3 %", 0.3, "30.0 %"),
        ("13.6×", 13.7, "13.7×"),
        ("2 bytes", 4, "4 bytes"),
        ("1.2 ms", 0.00127, "1.3 ms"),
        ("34.7 days", 35 * 86400, "35.0 days"),
    ],
)
def test_what_the_prose_may_not_say(text, value, instead):
    with pytest.raises(AssertionError) as error:
        says(text, value)
    message = str(error.value)
    assert repr(text) in message and message.endswith(f"write {instead!r}")
    says(instead, value)  # and what it proposes holds


@pytest.mark.parametrize("value", [137438953472, 3.35e12, 0.1, 12345.678, 2**53 + 1, 1e-7])
@pytest.mark.parametrize("unit", ["FLOPs", "B/s", "s", "%", "×", "tokens", "FLOP/B"])
def test_what_a_read_out_prints_may_be_said(value, unit):
    says(units.format_value(value, unit), value)


@pytest.mark.parametrize(
    "text, value, kind, message",
    [
        ("some GFLOPs", 1e9, ValueError, "no number"),
        ("35 GFLOPS", 35e9, ValueError, "could be a count or a rate"),
        (35, 35, TypeError, "text=35: must be the number as the prose prints it"),
        ("3 s", True, TypeError, "value=True"),
        ("3 s", None, TypeError, "value=None"),
        ("3 s", "3", TypeError, "value='3'"),
        ("3 s", float("nan"), TypeError, "value=nan.*one finite number"),
        ("3 s", float("inf"), TypeError, "value=inf.*one finite number"),
        ("3 s", np.array([3, 4]), TypeError, "must be one finite number"),
        ("3 FLOPs", fk.matmul(m=1, k=1, n=1), TypeError, r"whole Cost: pass one of its numbers, e.g. .flops"),
    ],
)
def test_what_cannot_be_said(text, value, kind, message):
    with pytest.raises(kind, match=message):
        says(text, value)


def test_symbols_with_a_value_can_be_said():
    sympy = pytest.importorskip("sympy")
    says("7 FLOPs", sympy.Integer(7))
    says("325 tokens", sympy.Rational(3246, 10))
    with pytest.raises(TypeError, match="one finite number"):
        says("7 FLOPs", sympy.Symbol("n"))


def test_cites():
    cites("46.2 %", "Chowdhery et al., PaLM, 2022, table 3")
    cites("35 GFLOPS", "a sentence quoted from a datasheet")  # not ours to correct
    for text, source in [
        ("forty", "Chowdhery et al., 2022"),
        ("46.2 %", ""),
        ("46.2 %", "PaLM"),
        (46.2, "Chowdhery 2022"),
    ]:
        with pytest.raises(ValueError):
            cites(text, source)


# -- numbers in prose -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prose, found",
    [
        ("137.4 GFLOPs, 4.1 GMACs and 312 TFLOP/s", ["137.4 GFLOPs", "4.1 GMACs", "312 TFLOP/s"]),
        (
            "3.35 TB/s of 80 GB or 80 GiB, 16 bytes, 2 bytes per number",
            ["3.35 TB/s", "80 GB", "80 GiB", "16 bytes", "2 bytes per number"],
        ),
        ("40 µs, 1.2 ms, 3 s, 2 hours, 34.7 days", ["40 µs", "1.2 ms", "3 s", "2 hours", "34.7 days"]),
        ("0.3 %, 50%, 7 per cent", ["0.3 %", "50%", "7 %"]),
        ("13.6× fewer, 2 times as fast, (7×)", ["13.6×", "2×", "7×"]),
        (
            "9.5–10.6 TFLOP/s, 2 to 3 ms, a 4.1 or an 8.2 GFLOPs network",
            ["9.5 TFLOP/s", "10.6 TFLOP/s", "2 ms", "3 ms", "4.1 GFLOPs", "8.2 GFLOPs"],
        ),
        ("1.07e15 FLOP/s, 10⁹ FLOPs, 3.4 × 10^8 FLOPs", ["1.07e15 FLOP/s", "1e9 FLOPs", "3.4 × 10^8 FLOPs"]),
        ("down by −3 %, **0.3 %** and *12 µs*, 2&nbsp;MB, 5\u202f%", ["−3 %", "0.3 %", "12 µs", "2 MB", "5 %"]),
        ("# A heading of 3 GB\n\n| a | 7 % |", ["3 GB", "7 %"]),
        ("<summary>It is 12 %</summary>", ["12 %"]),
        ("295 FLOPs per byte, 0.5 FLOP/B, 35 GFLOPS", ["295 FLOPs per byte", "0.5 FLOP/B", "35 GFLOPS"]),
        ("twice 3 GB is again 3 GB", ["3 GB"]),
    ],
)
def test_numbers_that_prose_must_back(prose, found):
    assert numbers_in(prose) == found


@pytest.mark.parametrize(
    "prose",
    [
        "a 3×3 kernel on 3×224×224, 1×1×C, 2×tokens",
        "`4 GB` and ```\n5 GB\n```\n"[:7],
        "\n```python\nx = '5 GB'\n```\n",
        "$2 \\cdot 10^9$ and $$137\\,\\text{GFLOPs, or 137 GB}$$",
        "4,096 tokens, 8 billion parameters, chapter 3, page 12, 1,830 MHz, 10 B200s, H100-80GB",
        "[a thread](https://example.org/15%25/3%20GB) and https://example.org/12%",
        '<img src="a.png" width="50%">',
        "**Time** 40 minutes. **You need** chapter 1.",
        "tokens · 4,096 · 2 bytes",
        "<!-- 3 GB -->",
    ],
)
def test_numbers_that_are_none(prose):
    assert numbers_in(prose) == []


# -- predict ----------------------------------------------------------------------------------------------------


def guess(**changes):
    options = {"1 & 2": "That is three.", "`3` < **4**": "It is **4**, by [this](https://example.org)."}
    given = {"options": options, "answer": "`3` < **4**"}
    return predict(changes.pop("question", "Is 3 < 4?"), **(given | changes))


class Outline(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_a_guess_is_a_labelled_group_of_radio_buttons():
    page = guess()._repr_html_()
    outline = Outline(page).found
    inputs = [a for tag, a in outline if tag == "input"]
    assert [a["type"] for a in inputs] == ["radio", "radio"] and len({a["name"] for a in inputs}) == 1
    assert [a["for"] for tag, a in outline if tag == "label"] == [a["id"] for a in inputs]
    assert [a["class"] for a in inputs] == ["fk-o0", "fk-o1"]
    assert "checked" not in inputs[0] and "checked" not in inputs[1]
    assert [tag for tag, _ in outline].count("fieldset") == [tag for tag, _ in outline].count("legend") == 1
    assert not {"script", "button", "form"} & {tag for tag, _ in outline}, "no script: it works in a static page"
    assert (
        "<legend>Is 3 &lt; 4?</legend>" in page
        and "1 &amp; 2" in page
        and "<code>3</code> &lt; <strong>4</strong>" in page
    )
    assert '<a href="https://example.org">this</a>' in page
    assert "\n\n" not in page, "a blank line would end an HTML block in Markdown"


def test_a_page_of_the_book_has_the_style_once(monkeypatch):
    assert guess()._repr_html_().startswith("<style>")
    monkeypatch.setenv("FLOPKIT_BOOK", "1")
    assert guess()._repr_html_().startswith("<fieldset")


def test_two_guesses_on_a_page_do_not_share_a_choice():
    names = [re.search(r'name="([^"]+)"', guess(question=question)._repr_html_())[1] for question in ("One?", "Two?")]
    assert names[0] != names[1]
    assert guess()._repr_html_() == guess()._repr_html_()  # and builds are reproducible


def test_a_guess_in_a_terminal_keeps_its_secret():
    assert "It is" not in repr(guess()) and "a) 1 & 2" in repr(guess())
    assert "That is" not in repr(guess()) and guess().options["1 & 2"] == "That is three."


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"options": {"one": "So."}}, "give two to 6"),
        ({"options": {str(i): "So." for i in range(7)}}, "give two to 6"),
        ({"options": {"one": "So.", "two": " "}, "answer": "one"}, "'two' has no reply"),
        ({"answer": "3"}, "answer='3': must be one of the options, '1 & 2', "),
        ({"question": "Guess"}, "must end with a question mark"),
    ],
)
def test_no_guess(changes, message):
    with pytest.raises(ValueError, match=message):
        guess(**changes)


@pytest.mark.browser
def test_a_guess_reveals_itself_when_it_is_made(chromium):
    page = chromium.new_page(java_script_enabled=False)
    page.set_content(f"<!doctype html><html lang=en><title>guess</title>{guess()._repr_html_()}")
    told = page.get_by_role("status")
    assert "Choose" in told.inner_text() and "It is" not in told.inner_text() and "That is" not in told.inner_text()
    page.get_by_label("1 & 2").check()
    assert told.inner_text() == "No. That is three."
    page.keyboard.press("ArrowDown")
    assert told.inner_text() == "Yes. It is 4, by this."
    page.close()


@pytest.mark.browser
def test_print_tells(chromium):
    page = chromium.new_page()
    page.set_content(f"<!doctype html><html lang=en><title>guess</title>{guess()._repr_html_()}")
    page.emulate_media(media="print")
    assert page.get_by_role("status").inner_text() == "Yes. It is 4, by this."
    page.close()


# -- verdicts ---------------------------------------------------------------------------------------------------


@pytest.fixture
def one_claim(monkeypatch):
    def settle(**fields):
        claim = Claim("Z1", "Water is wet.", "an old text", 2, **fields)
        monkeypatch.setattr(CLAIMS_ROOM, "claims", lambda: {"Z1": claim})
        return claim

    return settle


def test_a_verdict_that_the_file_confirms(one_claim):
    claim = one_claim(verdict="holds", number="1.2×", of="wet < dry", finding="By touch.", page="02_dense")
    assert verdict("Z1", 1.2, "holds") is claim
    page = claim._repr_html_()
    line, folded = page.split("</summary>")
    assert "Claim Z1" in line and "(holds): Water is wet." in line
    assert (
        'id="claim-Z1"' in folded and "Our number: 1.2×, wet &lt; dry. By touch." in folded and "an old text" in folded
    )
    frame = re.search(r"style=\"([^\"]*)\"", page)[1]
    assert "border:1px solid" in frame and "color-mix" not in frame and "inline" not in frame, "JupyterLab drops these"
    assert repr(claim).endswith("(an old text) holds. Our number: 1.2×, wet < dry. By touch.")


def test_the_edge_of_a_claim_tells_its_verdict(one_claim):
    """By a colour that is seen on a white and on a dark page (3:1); the word stands in the line, for whoever sees no colours."""

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    edges = {}
    for word in (*Verdict, None):
        page = one_claim(verdict=word)._repr_html_()
        assert f"({word or 'open'})" in page
        edges[word] = re.search(r"border-left:4px solid (#\w+)", page)[1]
    assert edges["holds"] == edges["holds under a named convention"]
    assert len({edges[word] for word in ("holds", "misleading", "wrong", None)}) == 4
    for edge in (edge for word, edge in edges.items() if word in ("holds", "misleading", "wrong")):
        assert 1.05 / (light(edge) + 0.05) >= 3 and (light(edge) + 0.05) / (light("#121212") + 0.05) >= 3, edge


@pytest.mark.parametrize(
    "fields, number, found, message",
    [
        ({}, None, "holds", "the file says 'open'.*write verdict = 'holds'"),
        ({"verdict": "wrong", "page": "x"}, None, "holds", "the chapter finds 'holds', the file says 'wrong'"),
        ({"verdict": "holds", "page": "x", "number": "1.2×"}, 1.3, "holds", r"write '1.3×'"),
        ({"verdict": "holds", "page": "x", "number": "1.2×"}, None, "holds", "give both or neither"),
        ({"verdict": "holds", "page": "x"}, 1.2, "holds", "give both or neither"),
    ],
)
def test_a_verdict_that_the_file_denies(one_claim, fields, number, found, message):
    one_claim(**fields)
    with pytest.raises(AssertionError, match=message):
        verdict("Z1", number, found)


def test_no_verdict():
    with pytest.raises(ValueError, match="id='Z9' is not a claim"):
        verdict("Z9", verdict="holds")
    with pytest.raises(ValueError, match="verdict='true': must be one of 'holds'"):
        verdict("A1", verdict="true")
    with pytest.raises(ValueError, match="verdict=None: must be one of"):
        verdict("A1")


def test_an_open_claim_says_so():
    assert repr(Claim("Y1", "Ice is water.", "a text", 3)).endswith("(a text) open.")


@pytest.mark.parametrize(
    "fields, message",
    [
        ('verdict = "true"\npage = "x"', "a settled claim needs a page"),
        ('verdict = "holds"\npage = "x"\nnumber = "2×"', "a number needs `of`"),
        ('verdict = "holds"\npage = "x"\nof = "one over the other"', "a number needs `of`"),
        ('finding = "By touch."', "without a verdict"),
    ],
)
def test_an_entry_that_lacks_something_is_refused(monkeypatch, fields, message):
    text = f'[claims.A1]\nclaim = "Water is wet."\nsource = "A"\nchapter = 1\n{fields}\n'
    monkeypatch.setattr(
        CLAIMS_ROOM, "_data", lambda: {**tomllib.loads(text), "sources": {"A": dict(title="t", author="a", date="d")}}
    )
    monkeypatch.setattr(CLAIMS_ROOM, "_sources", CLAIMS_ROOM._sources.__wrapped__)
    with pytest.raises(ValueError, match=f"claim A1: .*{message}"):
        CLAIMS_ROOM._read.__wrapped__()


def test_claims_of_the_file():
    assert claims_room is claims
    assert len(claims()) == 55
    assert {id[0] for id in claims()} == set(sources()) == set("ABCDE")
    with pytest.raises(TypeError):
        claims()["A1"] = None


# -- derivation -------------------------------------------------------------------------------------------------


def test_a_formula_is_printed_from_the_code():
    sympy = pytest.importorskip("sympy")
    m, k, n = sympy.symbols("m k n", positive=True, integer=True)
    shown = derivation("FLOPs", fk.matmul(m=m, k=k, n=n).flops)
    assert shown._repr_latex_() == r"$\displaystyle \mathrm{FLOPs} = 2 k m n$"
    put_in = derivation("FLOPs", fk.matmul(m=m, k=k, n=n).flops, unit="FLOPs", m=4096, k=4096, n=4096)
    assert put_in.value == 137438953472 and isinstance(put_in.value, int)
    assert put_in.latex().endswith(r"= \text{137.4 GFLOPs}")
    assert repr(put_in) == "FLOPs = 2*k*m*n = 137.4 GFLOPs"
    numbered = derivation("FLOPs", fk.matmul(m=m, k=k, n=n).flops, number="2.1")
    assert numbered._repr_latex_() == r"$$\mathrm{FLOPs} = 2 k m n \tag{2.1}$$"
    assert repr(numbered) == "FLOPs = 2*k*m*n    (2.1)"


def test_names_of_sizes_are_set_as_words():
    sympy = pytest.importorskip("sympy")
    tokens, d_in, head_dim_v = sympy.symbols("tokens d_in head_dim_v", positive=True)
    text = derivation("least time", tokens * d_in + head_dim_v).latex()
    assert r"\mathrm{tokens}" in text and r"d_{\mathrm{in}}" in text and r"\mathrm{head}_{\mathrm{dim\,v}}" in text
    assert text.startswith(r"\mathrm{least\ time} = ")
    assert derivation(r"c_{ij}", tokens).latex().startswith("c_{ij} = ")


def test_a_formula_that_is_none():
    sympy = pytest.importorskip("sympy")
    with pytest.raises(TypeError, match="expression=210: must be a SymPy expression"):
        derivation("FLOPs", 210)
    with pytest.raises(ValueError, match=r"q=3: FLOPs has no symbol q; it has n"):
        derivation("FLOPs", 2 * sympy.Symbol("n"), q=3)
    with pytest.raises(ValueError, match="FLOPs has no value yet: give numbers for k"):
        derivation("FLOPs", sympy.Symbol("n") * sympy.Symbol("k"), n=3).value


def test_lessons_are_light():
    code = "import sys, flopkit.book.lessons; print(*sorted({'numpy', 'torch', 'sympy', 'altair', 'pandas', 'IPython'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
