"""Chapters keep one shape, so that a reader finds the same thing in the same place in each."""

import pytest
from chapters import Cell, Notebook, notebooks, shape_problems

CHAPTERS = [book for book in notebooks() if book.is_chapter]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=[chapter.name for chapter in CHAPTERS])
def test_shape(chapter):
    problems = shape_problems(chapter)
    assert not problems, f"{chapter.title}:\n" + "\n".join(problems)


def test_chapters_are_numbered_in_order():
    numbers = [int(chapter.title.split()[1]) for chapter in CHAPTERS]
    assert len(set(numbers)) == len(numbers), f"two chapters have one number: {numbers}"


# -- the tests bite ---------------------------------------------------------------------------------------------

FILLER = "word " * 1600
BOX = "\n\n> **Takeaway.** So."
GUESS = 'predict("How many?", options={"1": "Why not.", "2": "Why."}, answer="2")'


def chapter(**changes):
    """A chapter in shape, of which single parts can be replaced; None leaves a part out."""
    parts = {
        "title": "# 2 Dense layers",
        "question": "One token keeps 1 of 300 lanes busy. How many ride along for free?",
        "time": "**Time** 30 minutes. **You need** chapter 1.",
        "able": "## You will be able to\n\n- count\n- compare",
        "predict": "## Predict",
        "derive": "## Derive\n\n" + FILLER + BOX,
        "more": "### More\n\n" + BOX,
        "count": "## Count\n\n" + BOX,
        "play": "## Play",
        "measure": "## Measure",
        "theory": "## Theory against measurement",
        "mistakes": "## Mistakes people make\n\nSee [a thread](https://example.org/1).",
        "exercises": "## Exercises\n\nQuestions.",
        "solved": "<details><summary>Solution</summary>So.</details>\n" * 5,
        "summary": "## Summary\n\n" + "- a line\n" * 5,
    }
    code = {
        "install": [("import importlib.util", ("install",))],
        "predict": [(GUESS, ("remove-input",))],
        "derive": [('derivation("FLOPs", expression)', ()), ("drawings.dot_product(k=4)", ("remove-input",))],
        "more": [(GUESS, ("remove-input",)), (GUESS, ("remove-input",)), ("assert 1", ("remove-cell",))],
        "count": [("drawings.peak()", ()), ("assert 1", ("hide-cell",)), ('says("1 s", 1)', ("remove-cell",))],
        "play": [("gallery.dense_roofline()", ())],
        "measure": [('fk.experiments.here("dense_batch")', ())],
        "theory": [("Table(compared)", ("remove-input",))],
        "exercises": [
            cell
            for i in range(1, 6)
            for cell in (
                (f'solution("2.{i}", flops=1)\nassert 1', ("solution", "remove-cell")),
                (f'flops = ...\ncheck("2.{i}", flops=flops)', ("exercise", "remove-input")),
            )
        ],
    }
    for name, change in changes.items():
        (code if name.endswith("_code") else parts)[name.removesuffix("_code")] = change
    cells = []
    for name, text in parts.items():
        if text is not None:
            cells.append(text if isinstance(text, Cell) else Cell("markdown", text))
        cells += [Cell("code", *cell) for cell in code.get("install" if name == "time" else name) or ()]
    return Notebook("sample", tuple(cells))


def test_a_chapter_in_shape():
    assert chapter().is_chapter
    assert shape_problems(chapter()) == []


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"question": "Dense layers matter."}, "must be a question with a number"),
        ({"question": "How many ride along?"}, "must be a question with a number"),
        ({"time": "A line without minutes."}, "minutes and prerequisites"),
        ({"install_code": None}, "install cell"),
        ({"able": "## You will be able to\n\nCount."}, "at least two things"),
        ({"able": None}, '"## You will be able to" is missing'),
        ({"predict": None}, '"## Predict" is missing'),
        ({"predict_code": None}, "no cell calls predict"),
        ({"predict_code": [('predict("How many?")', ())]}, "remove-input"),
        ({"more_code": None}, "1 guesses: at least 3 are asked"),
        ({"more_code": None, "predict_code": [("\n".join([GUESS] * 3), ("remove-input",))]}, "where they arise"),
        ({"derive_code": [('derivation("FLOPs", 1)', ())]}, "1 drawings"),
        ({"more": "### More"}, "2 takeaways"),
        ({"more": "### More" + BOX * 2}, "one a section"),
        (
            {"time": "**Time** 60 minutes. **You need** chapter 1."},
            "60 minutes are said; by its words, code and exercises it takes 30",
        ),
        ({"count_code": [("assert 1", ())]}, "in the reader's sight"),
        ({"count_code": [("assert 1", ("remove-cell",))] * 2}, "2 cells of checks in one section"),
        ({"count_code": [("assert 1", ("remove-cell",)), ("f(x)", ())]}, "stands before other code"),
        ({"derive_code": None}, "derivation"),
        ({"count_code": None}, "Count: no code cell"),
        ({"play_code": [("plot()", ())]}, "no figure"),
        ({"measure": None}, '"## Measure" is missing'),
        ({"theory": None}, '"## Theory against measurement" is missing'),
        ({"measure_code": None}, "Measure: no code cell"),
        ({"theory_code": None}, "Theory against measurement: no code cell"),
        ({"mistakes": "## Mistakes people make\n\nMany."}, "no link"),
        ({"count": "## Play\n\n## Count"}, "twice"),
        ({"count": "## Summary\n\n## Count"}, "must keep this order"),
        ({"solved": "<details>So.</details>\n" * 4}, "4 folded solutions of 5 exercises"),
        ({"solved": "<details>So.\n" * 5}, "each closed"),
        ({"exercises_code": [('solution("2.1", a=1)', ("solution", "remove-cell"))]}, "none can be answered"),
        ({"exercises_code": [('a = ...\ncheck("2.1", a=a)', ("exercise", "remove-input"))]}, "stands above its check"),
        ({"exercises_code": [('a = 1\ncheck("2.1", a=a)', ("exercise", "remove-input"))]}, "write `name = ...`"),
        ({"exercises_code": [('a = ...\ncheck("2.1", a=a)', ("exercise",))]}, "the reader's cell needs the tags"),
        ({"exercises_code": [('solution("2.1", a=1)', ("solution",))]}, "needs the tags solution and remove-cell"),
        ({"summary": "## Summary\n\n- one line"}, "1 lines, 5 are asked"),
        ({"derive": "## Derive\n\nShort."}, "words; a chapter has"),
        ({"derive": "## Derive\n\n" + FILLER * 3}, "words; a chapter has"),
        ({"derive": "## Derive\n\n```{note}\n```\n\n" + FILLER}, "noise"),
        ({"derive": "## Derive\n\n{glue}`x` " + FILLER}, "noise"),
        ({"derive": "## Derive\n\n![](a.png) " + FILLER}, "no alt text"),
    ],
)
def test_out_of_shape(changes, problem):
    problems = shape_problems(chapter(**changes))
    assert any(problem in found for found in problems), problems


def test_a_tag_names_a_section_whose_heading_says_what_is_found():
    found = Cell("markdown", "## Counted, too, it is 4.2 %\n\n" + BOX, ("count",))
    assert shape_problems(chapter(count=found)) == []
    assert "Count" in chapter(count=found).headings()
    untagged = Cell("markdown", found.text)
    assert any('"## Count" is missing' in each for each in shape_problems(chapter(count=untagged)))
    inside = Cell("markdown", "So.\n\n" + found.text, ("count",))
    assert any("must begin with its heading" in each for each in shape_problems(chapter(count=inside)))


def test_stored_outputs():
    book = chapter()
    shown = Notebook("sample", (*book.cells, Cell("code", "1", (), 1, None)))
    assert any("outputs" in found for found in shape_problems(shown))


def test_headings_in_code_are_none():
    assert shape_problems(chapter(derive="## Derive\n\n```\n## Summary\n```\n" + FILLER + BOX)) == []
