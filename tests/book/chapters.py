"""What the tests of the book read a chapter with: its cells, sections, prose and calls, and what is wrong with them."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

from flopkit import charts
from flopkit.lessons import claims, numbers_in
from flopkit.lessons.claims import Claim
from flopkit.lessons.prose import number_text

BOOK = Path(__file__).resolve().parents[2] / "book"

SECTIONS = (
    "You will be able to",
    "Predict",
    "Derive",
    "Count",
    "Play",
    "Measure",
    "Theory against measurement",
    "Mistakes people make",
    "Exercises",
    "Summary",
)
MAY_WAIT = ("Measure", "Theory against measurement")  # they need recordings from a GPU
WORDS = (1500, 3500)
EXERCISES = 5
SUMMARY_LINES = 5


@dataclass(frozen=True)
class Cell:
    kind: str
    text: str
    tags: tuple[str, ...] = ()
    outputs: int = 0
    execution_count: int | None = None


@dataclass(frozen=True)
class Notebook:
    name: str
    cells: tuple[Cell, ...]

    @property
    def title(self) -> str:
        return self.cells[0].text.splitlines()[0] if self.cells else ""

    @property
    def is_chapter(self) -> bool:
        return bool(re.match(r"# \d+ \S", self.title))

    @property
    def prose(self) -> str:
        return "\n\n".join(cell.text for cell in self.cells if cell.kind == "markdown")

    @property
    def code(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.kind == "code"]

    def sections(self) -> dict[str, list[Cell]]:
        """The cells of each section by its heading; what stands before the first is under ''."""
        found: dict[str, list[Cell]] = {"": []}
        heading = ""
        for cell in self.cells:
            if cell.kind == "code":
                found[heading].append(cell)
                continue
            for part in re.split(r"^(?=## )", without_code(cell.text), flags=re.MULTILINE):
                if part.startswith("## "):
                    first, _, part = part.partition("\n")
                    heading = first.removeprefix("## ").strip()
                    found.setdefault(heading, [])
                if part.strip():
                    found[heading].append(Cell("markdown", part))
        return found

    def headings(self) -> list[str]:
        return re.findall(r"^## (.+?)\s*$", without_code(self.prose), flags=re.MULTILINE)


def notebook(name: str, cells: list[dict]) -> Notebook:
    return Notebook(
        name,
        tuple(
            Cell(
                cell["cell_type"],
                cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"]),
                tuple(cell.get("metadata", {}).get("tags", ())),
                len(cell.get("outputs", ())),
                cell.get("execution_count"),
            )
            for cell in cells
        ),
    )


def notebooks() -> list[Notebook]:
    paths = sorted(path for path in BOOK.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
    return [notebook(path.stem, json.loads(path.read_text("utf8"))["cells"]) for path in paths]


# -- reading ----------------------------------------------------------------------------------------------------


def without_code(markdown: str) -> str:
    return re.sub(r"^(```+|~~~+).*?^\1", " ", markdown, flags=re.DOTALL | re.MULTILINE)


def words(markdown: str) -> int:
    """Words of prose: no code, no formulas, no tags, no addresses."""
    text = without_code(markdown)
    for pattern in (r"\$\$.*?\$\$", r"\$[^$\n]+\$", r"<[^>]+>", r"(?<=\])\([^)]+\)"):
        text = re.sub(pattern, " ", text, flags=re.DOTALL)
    return len(re.findall(r"[^\W_][\w.,'’/%-]*", text))


def calls(cells: list[Cell], *names: str) -> list[ast.Call]:
    """Calls of functions with one of these names, as `says(…)` or `lessons.says(…)`, in the code of cells."""
    found = []
    for cell in cells:
        if cell.kind == "code":
            text = re.sub(r"^(\s*)[%!].*$", r"\1pass", cell.text, flags=re.MULTILINE)
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and _called(node) in names:
                    found.append(node)
    return found


def _called(call: ast.Call) -> str:
    return getattr(call.func, "id", None) or getattr(call.func, "attr", "")


def literal(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def predicted(cells: list[Cell]) -> str:
    """What guesses tell the reader as true: the question, the right option, the reveal."""
    told = []
    for call in calls(cells, "predict"):
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        told += [literal(call.args[0]) if call.args else literal(given.get("question")), literal(given.get("reveal"))]
        options, answer = given.get("options"), given.get("answer")
        if (
            isinstance(options, ast.List)
            and isinstance(answer, ast.Constant)
            and answer.value in range(len(options.elts))
        ):
            told.append(literal(options.elts[answer.value]))
    return "\n\n".join(text for text in told if text)


def findings(book: Notebook) -> list[str]:
    """What the page of claims says that this chapter found."""
    return [claim.finding for claim in settled(book)]


def settled(book: Notebook) -> list[Claim]:
    """Claims that a cell of the chapter settles; where one has a number, `verdict` compares it."""
    return [claim for claim in claims().values() if claim.page == book.name]


def pictured(book: Notebook) -> list[str]:
    """What the figures in the chapter are said to show, to those who read it and to those who hear it."""
    figures = dict.fromkeys(
        call.func.attr
        for call in calls(book.code, *charts.__all__)
        if isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "charts"
    )
    shown = (getattr(charts, name)() for name in figures if name in charts.gallery.__all__)
    return [f"{figure.title}\n\n{figure.alt}" for figure in shown]


# -- judging ----------------------------------------------------------------------------------------------------


def prose_problems(book: Notebook) -> list[str]:
    """Numbers in the prose that no cell says or cites, and cells that say what the prose does not."""
    prose = "\n\n".join([book.prose, predicted(book.code), *findings(book), *pictured(book)])
    backed = {text for call in calls(book.code, "says", "cites") if call.args and (text := literal(call.args[0]))}
    keys = {_key(text) for text in (*backed, *(claim.number for claim in settled(book) if claim.number))}
    problems = [
        f'{number!r} is neither said nor cited: add says("{number}", …) or cites("{number}", "who says so")'
        for number in numbers_in(prose)
        if _key(number) not in keys
    ]
    plain = _key(re.sub(r"[*_`]", "", prose))
    present = {_key(number) for number in numbers_in(prose)}
    problems += [
        f"says({text!r}, …) stands in a cell, but {text!r} is not in the prose"
        for call in calls(book.code, "says")
        if (text := literal(call.args[0])) and _key(text) not in present and _key(text) not in plain
    ]
    problems += [
        f"line {call.lineno} of a cell says a number that is not written out: says(…) needs the text of the prose itself"
        for call in calls(book.code, "says", "cites")
        if not call.args or literal(call.args[0]) is None
    ]
    return problems


def _key(text: str) -> str:
    return re.sub(r"[\s\u00a0\u202f]", "", number_text(text))


def owed(book: Notebook) -> list[str]:
    return [heading for heading in MAY_WAIT if heading not in book.headings()]


def shape_problems(book: Notebook) -> list[str]:
    """Where a chapter leaves the order that all chapters keep."""
    return [*_opening(book), *_order(book), *_parts(book), *_form(book)]


def _opening(book: Notebook) -> list[str]:
    problems = []
    before = "\n\n".join(cell.text for cell in book.sections()[""] if cell.kind == "markdown")
    paragraphs = [part.strip() for part in before.split("\n\n") if part.strip()][1:]
    question = paragraphs[0] if paragraphs else ""
    if "?" not in question or not re.search(r"\d", question):
        problems.append("the first paragraph under the title must be a question with a number")
    if not any(re.match(r"\*\*Time\*\*.*\d+.*min", part) for part in paragraphs):
        problems.append('a line must say minutes and prerequisites before the first section: "**Time** 40 minutes. …"')
    if not book.code or "install" not in book.code[0].tags:
        problems.append('the first code cell must be the install cell, tagged "install" (make notebooks writes it)')
    return problems


def _order(book: Notebook) -> list[str]:
    headings = [heading for heading in book.headings() if heading in SECTIONS]
    problems = [f'"## {heading}" is missing' for heading in SECTIONS if heading not in (*headings, *MAY_WAIT)]
    problems += [f'"## {heading}" stands there twice' for heading in set(headings) if headings.count(heading) > 1]
    if headings != sorted(headings, key=SECTIONS.index):
        problems.append(f"the sections must keep this order: {', '.join(SECTIONS)}; they are: {', '.join(headings)}")
    return problems


def _parts(book: Notebook) -> list[str]:
    sections = {heading: [] for heading in SECTIONS} | book.sections()

    def text(heading: str) -> str:
        return "\n\n".join(cell.text for cell in sections[heading] if cell.kind == "markdown")

    def items(heading: str) -> int:
        return len(re.findall(r"^(?:[-*]|\d+\.) ", text(heading), flags=re.MULTILINE))

    problems = []
    if items("You will be able to") < 2:
        problems.append("You will be able to: list at least two things")
    if not calls(sections["Predict"], "predict"):
        problems.append("Predict: no cell calls predict(…)")
    for cell in book.code:
        if calls([cell], "predict") and not {"remove-input", "hide-input"} & set(cell.tags):
            problems.append('a cell with predict(…) shows its answer in the page: tag it "remove-input"')
    if not calls(sections["Derive"], "derivation"):
        problems.append("Derive: no cell prints a formula from the code with derivation(…)")
    for heading in ("Count", "Play"):
        if not any(cell.kind == "code" for cell in sections[heading]):
            problems.append(f"{heading}: no code cell")
    if "charts" not in "".join(cell.text for cell in sections["Play"] if cell.kind == "code"):
        problems.append("Play: no figure of flopkit.charts")
    if not re.search(r"\]\(https?://", text("Mistakes people make")):
        problems.append("Mistakes people make: no link to a thread or a paper")
    folded = len(re.findall(r"<details", text("Exercises")))
    if folded < EXERCISES or folded != len(re.findall(r"</details>", text("Exercises"))):
        problems.append(
            f"Exercises: {folded} folded solutions, at least {EXERCISES} are asked, each closed by </details>"
        )
    asserted = len(calls(sections["Exercises"], "check")) + sum(
        isinstance(node, ast.Assert)
        for cell in sections["Exercises"]
        if cell.kind == "code"
        for node in ast.walk(ast.parse(cell.text))
    )
    if asserted < EXERCISES:
        problems.append(f"Exercises: cells assert {asserted} answers, at least {EXERCISES} are asked")
    if items("Summary") != SUMMARY_LINES:
        problems.append(f"Summary: {items('Summary')} lines, {SUMMARY_LINES} are asked, each a list item")
    return problems


def _form(book: Notebook) -> list[str]:
    problems = []
    count = words(book.prose)
    if not WORDS[0] <= count <= WORDS[1]:
        problems.append(f"{count:,} words; a chapter has {WORDS[0]:,} to {WORDS[1]:,}")
    if any(cell.outputs or cell.execution_count for cell in book.code):
        problems.append("outputs or execution counts are stored: run `make notebooks`")
    if noise := re.search(r"^```\{\w|\{(?:glue|cite|ref|numref|doc|eq)[\w:]*\}`", book.prose, flags=re.MULTILINE):
        problems.append(f"{noise.group()!r} reads as noise outside the built page: use plain Markdown or a colon fence")
    if re.search(r"!\[\s*\]\(", book.prose):
        problems.append("an image has no alt text")
    return problems
