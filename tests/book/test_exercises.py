"""Exercises: an answer as people write it, what is said to it, and the same in a page without a kernel."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from answering import page_of

from flopkit.book.lessons import NotYet, check, solution
from flopkit.book.lessons.answers import SHARED, remark
from flopkit.book.lessons.boxes import Box, box_of
from flopkit.book.lessons.notation import READING

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr("flopkit.book.lessons.exercises._SOLUTIONS", {})


def ask(answer, expected, **more):
    solution("0.1", value=expected, **more)
    return check("0.1", value=answer)


RIGHT = [
    (210, 210, {}),
    (210.0, 210, {}),
    (np.int64(210), np.float64(210), {}),
    (2**60, 2**60, {}),
    (0.1 + 0.2, 0.3, {}),
    (1 / 3, Fraction(1, 3), {}),
    (0.3333, 1 / 3, {"rel": 1e-3}),
    ("Memory ", "memory", {}),
    (True, True, {}),
]
WRONG = [
    (105, 210, "105: half of what is asked$"),
    (420, 210, "twice what is asked"),
    (210_000, 210, "a thousand times too large$"),
    (0.21, 210, "a thousand times too small$"),
    (33.0, 0.33, "a hundred times what is asked: if it is in per cent, write the sign"),
    (-210, 210, "right but for its sign"),
    (209, 210, "close, but not to the last digit"),
    (2**60 + 1, 2**60, "close, but not to the last digit"),
    (300, 210, "300: too large"),
    (1 / 210, 210, "the other way round"),
    (0.7, 0.3, "what is left of the whole"),
    (100, 210, "100: too small"),
    (3, 0, "too large"),
    (float("nan"), 210, "not what is asked for"),
    ("compute", "memory", "compute: not what is asked for"),
    ("many", 210, "not a number that can be read"),
    (2, True, "not what is asked for"),
]


@pytest.mark.parametrize("answer, expected, more", RIGHT)
def test_right(answer, expected, more):
    assert repr(ask(answer, expected, **more)) == "Exercise 0.1, value: right"


@pytest.mark.parametrize("answer, expected, hint", WRONG)
def test_wrong(answer, expected, hint):
    with pytest.raises(NotYet, match=hint) as error:
        ask(answer, expected)
    assert isinstance(error.value, AssertionError)
    assert error.value._render_traceback_() == [f"Not yet: {error.value}"]


def test_a_mistake_that_the_exercise_knows():
    with pytest.raises(NotYet, match="value: 295: that is the ridge itself"):
        ask(295, 325, hints={295: "that is the ridge itself"})
    with pytest.raises(ValueError, match="hints: 325 is a right answer"):
        ask(..., 325, hints={325: "no"})
    with pytest.raises(ValueError, match="hints: 75 is a right answer"):  # per cent in a box for a share
        solution("12.2", share=0.75, hints={75: "the % sign is missing"})


def test_two_answers_in_each_others_boxes():
    solution("0.8", exact=0.594, torch=0.639, hints={0.594: "that is exact's", 0.639: "that is torch's"})
    with pytest.raises(NotYet, match="exact: 0.639: that is torch's; torch: 0.594: that is exact's"):
        check("0.8", exact=0.639, torch=0.594)
    assert "torch: right" in repr(check("0.8", exact=0.594, torch=0.639))


def test_the_tolerance_is_kept():
    ask(0.335, 1 / 3, rel=0.01)
    with pytest.raises(NotYet):
        ask(0.335, 1 / 3, rel=0.001)
    with pytest.raises(NotYet):
        ask(0.3333334, 1 / 3)
    ask(0.3333333, 1 / 3)  # as on the page, where it is text


def test_a_wrong_answer_is_not_told_the_right_one():
    with pytest.raises(NotYet) as error:
        ask(7, 123456)
    assert "123" not in str(error.value)


@pytest.mark.parametrize("answer", [..., None])
def test_not_answered_yet(answer):
    assert repr(ask(answer, 210)) == "Exercise 0.1, value: not answered yet"


def test_several_answers():
    solution("0.1", flops=2, bound="memory")
    assert repr(check("0.1", flops=2, bound=...)).split("\n") == [
        "Exercise 0.1, FLOPs: right",
        "Exercise 0.1, bound: not answered yet",
    ]
    with pytest.raises(NotYet, match="FLOPs: 1: half .*; bound: compute: not"):
        check("0.1", flops=1, bound="compute")
    with pytest.raises(ValueError, match="asks for flops, bound, and was given flops"):
        check("0.1", flops=2)


def test_no_exercise():
    with pytest.raises(ValueError, match='exercise "0.2" is not known here: run the folded cell'):
        check("0.2", flops=1)
    with pytest.raises(ValueError, match="has no answer"):
        solution("0.1")


@pytest.mark.parametrize("rel", [-0.1, 1, True, "1%"])
def test_bad_tolerance(rel):
    with pytest.raises(ValueError, match="rel="):
        solution("0.1", rel=rel, value=1)


def test_a_notebook_shows_text_and_keeps_the_box_for_the_page():
    page = ask(..., 210)._repr_html_()
    assert "Exercise 0.1, value: not answered yet" in page and "<form hidden>" in page
    assert "form" not in ask(210, 210)._repr_html_()


TYPED = json.loads((DATA / "answers.json").read_text("utf8"))


def keep(row):
    """The exercise of a row; what is typed into it comes next."""
    hints = dict(row.get("hints", []))
    name = row.get("name", "value")
    solution("0.1", hints=hints, **{name: row["answer"]}, **({"rel": row["rel"]} if "rel" in row else {}))
    return name


@pytest.mark.parametrize("row", TYPED, ids=lambda row: f"{row['answer']}-{row['typed']}")
def test_an_answer_as_text_in_a_notebook(row):
    """The browser reads the same rows, below."""
    name = keep(row)
    if row["says"] == "Right.":
        assert repr(check("0.1", **{name: row["typed"]})) == f"Exercise 0.1, {box_of('0.1', name)}: right"
    else:
        with pytest.raises(NotYet) as error:
            check("0.1", **{name: row["typed"]})
        assert str(error.value) == f"{box_of('0.1', name)}: {row['typed']}: {row['says']}"


@pytest.mark.browser
def test_an_answer_in_the_page(chromium):
    """The script says to each row what Python says, word for word."""
    page = page_of(chromium, [check("0.1", **{keep(row): ...})._repr_html_() for row in TYPED])
    assert page.get_by_text("not answered yet").count() == 0
    page.get_by_role("button").first.click()
    assert page.get_by_role("status").first.inner_text() == "Type an answer first."
    inputs, said = page.get_by_label("Exercise 0.1").all(), []
    for box, row in zip(inputs, TYPED, strict=True):
        box.fill(row["typed"])
        box.press("Enter")
    said = [line.removeprefix("Not yet: ") for line in page.get_by_role("status").all_inner_texts()]
    assert dict(enumerate(said)) == dict(enumerate(row["says"] for row in TYPED))
    page.close()


@pytest.mark.browser
def test_a_hint_for_one_box_alone_in_the_page(chromium):
    """The script gets each box with its own hints."""
    solution("0.7", few=1, many=3, hints={"few": {2: "count the gradients, too"}, 7: "that is a week"})
    page = page_of(chromium, [check("0.7", few=..., many=...)._repr_html_()])
    said = {}
    for typed in ("2", "7"):
        for box in page.get_by_label("Exercise 0.7").all():
            box.fill(typed)
            box.press("Enter")
        said[typed] = page.get_by_role("status").all_inner_texts()
    assert said == {
        "2": ["Not yet: count the gradients, too", "Not yet: too small"],
        "7": ["Not yet: that is a week"] * 2,
    }
    page.close()


def test_a_box_that_no_row_describes():
    assert str(box_of("0.1", "more_tokens")) == "more tokens" and box_of("0.1", "bytes").kind == "bytes"


def test_no_word_of_the_script_hides_another():
    assert all(SHARED[name] is value for name, value in READING.items())


@pytest.mark.parametrize("typed", ["0.16k", "1.6e2", "160"])
def test_a_whole_number_of_things_is_not_rounded(typed):
    assert remark(typed, 161, 1e-9, {}, Box("smallest batch", "tokens")) == "close, but not to the last digit"
    assert remark(typed, 161.2, 1e-9, {}, Box("smallest batch", "tokens")) == ""


def test_units_of_another_kind_are_refused():
    least = Box("least time", "µs")
    assert remark("0.128 ms", 128, 1e-9, {}, least) == ""
    assert remark("128 MB", 128, 1e-9, {}, least) == "asked for in µs: “MB” is something else"
    assert remark("128 parsecs", 128, 1e-9, {}, least) == "asked for in µs: “parsecs” is something else"
    assert remark("12 GB!", 12, 1e-9, {}, Box("ratio", "×")) == "asked for as a factor: “GB” is something else"
    assert remark("12 k", 0.12, 1e-9, {}, Box("share", "%")) == "asked for in %: “k” is something else"
    assert remark("12 T images", 12e12, 1e-9, {}, Box("peak", "FLOP/s")).endswith("“T images” is something else")
    assert remark("12 cents per thousand", 0.12, 1e-9, {}, Box("price", "dollars")).endswith("something else")


@pytest.mark.parametrize("typed", ["33.2 %", "33.2", "0.332", 33.2, 0.332, "33.2 per cent", "33,2%"])
def test_one_rule_for_shares(typed):
    box = Box("MFU", "%")
    assert remark(typed, 0.3317, 1e-9, {}, box) == ""
    colleague = {0.3317 / 2: "that is what the colleague says"}
    assert remark("16.6", 0.3317, 1e-9, colleague, box) == "that is what the colleague says"
    assert remark("10", 0.3317, 1e-9, {}, box) == "too small" and remark("37.3", 0.3317, 1e-9, {}, box) == "too large"


def test_a_hint_may_be_for_one_box_alone():
    """Two sequences are one too many in the first box, and too few in the second."""
    solution("0.7", few=1, many=3, hints={"few": {2: "count the gradients, too"}})
    with pytest.raises(NotYet, match=r"^few: 2: count the gradients, too$"):
        check("0.7", few=2, many=3)
    with pytest.raises(NotYet, match="too small"):
        check("0.7", few=1, many=2)
    with pytest.raises(ValueError, match="'lots' is no answer of exercise 0.7"):
        solution("0.7", few=1, many=3, hints={"lots": {2: "no"}})
    with pytest.raises(ValueError, match="3 is a right answer"):  # in this box, though not in the other
        solution("0.7", few=1, many=3, hints={"many": {3: "no"}})


@pytest.mark.parametrize("answer", [115.6e6, 1.156e8, np.float64(116e6), 115_605_504.0, 115_600_000, 116 * 10**6])
def test_a_float_is_as_exact_as_its_digits(answer):
    """In a notebook as in the page, where it is text."""
    assert remark(answer, 115_605_504, 1e-9, {}, Box("way down", "FLOPs")) == ""
    assert remark(115.7e6, 115_605_504, 1e-9, {}, Box("way down", "FLOPs")) == "close, but not to the last digit"
    assert remark(160e3, 161_000, 1e-9, {}, Box("smallest batch", "tokens")) == "close, but not to the last digit"


def test_t_is_a_token_where_tokens_are_asked_for():
    tokens, images = Box("rate", "tokens/s"), Box("rate", "images/s")
    assert {remark(f"37.1 {unit}", 37.1075, 0.01, {}, tokens) for unit in ("t/s", "T/s", "tok/s", "t per second")} == {
        ""
    }
    assert remark("37.1 kt/s", 37.1075, 0.01, {}, tokens) == "a thousand times too large"
    assert remark("37.1 t/s", 37.1075, 0.01, {}, images) == "a trillion times too large"
