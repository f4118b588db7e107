"""What the tests of the book read a chapter with: its cells, sections, prose and calls, and what is wrong with them."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

from flopkit import charts
from flopkit.book import drawings, gallery
from flopkit.book.lessons import claims, numbers_in
from flopkit.book.lessons.claims import Claim
from flopkit.book.lessons.prose import number_text

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
MARKS = {
    "derive": "Derive",
    "count": "Count",
    "play": "Play",
    "measure": "Measure",
    "theory": "Theory against measurement",
}
"""Tags of a Markdown cell that begins such a section: its heading says what is found, and need not name the section."""
WORDS = (1500, 3100)
EXERCISES = 5
SUMMARY_LINES = 5
GUESSES = 3
DRAWINGS = 2
NO_FIGURES = {"Dots", "measured", "published"}  # of flopkit.charts: what `on_one_roof` is given
TAKEAWAYS = 3
TAKEAWAY = re.compile(r"^> \*\*Takeaway\.\*\* \S", re.MULTILINE)
UNSEEN = {
    "install",
    "install-peers",
    "remove-cell",
    "remove-input",
    "hide-cell",
    "hide-input",
}  # tags of cells whose code the page does not show


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
        """The cells of each section by its name; what stands before the first is under ''."""
        found: dict[str, list[Cell]] = {"": []}
        for name, cells in self.named():
            found.setdefault(name, []).extend(cells)
        return found

    def named(self) -> list[tuple[str, list[Cell]]]:
        """Each section's name and cells, in order: its heading, or what the tag of the cell that begins it says (`MARKS`)."""
        found: list[tuple[str, list[Cell]]] = [("", [])]
        for cell in self.cells:
            if cell.kind == "code":
                found[-1][1].append(cell)
                continue
            marked = next((MARKS[tag] for tag in cell.tags if tag in MARKS), None)
            for part in re.split(r"^(?=## )", without_code(cell.text), flags=re.MULTILINE):
                if part.startswith("## "):
                    first, _, part = part.partition("\n")
                    found.append((marked or first.removeprefix("## ").strip(), []))
                    marked = None
                if part.strip():
                    found[-1][1].append(Cell("markdown", part))
        return found

    def headings(self) -> list[str]:
        return [name for name, _ in self.named()[1:]]


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
    for pattern in (r"\$\$.*?\$\$", r"\$[^$\n]+\$", r"</?[A-Za-z][^<>]*>|<!--.*?-->", r"(?<=\])\([^)]+\)"):
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
    """What guesses tell the reader: the question, the right option, the reply to each option."""
    told = []
    for call in calls(cells, "predict"):
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        options = given.get("options")
        told += [literal(call.args[0]) if call.args else None, literal(given.get("answer"))]
        told += map(literal, options.values if isinstance(options, ast.Dict) else ())
    return "\n\n".join(text for text in told if text)


def findings(book: Notebook) -> list[str]:
    """What the page of claims says that this chapter found."""
    return [f"{claim.of}. {claim.finding}" for claim in settled(book)]


def settled(book: Notebook) -> list[Claim]:
    """Claims that a cell of the chapter settles; where one has a number, `verdict` compares it."""
    return [claim for claim in claims().values() if claim.page == book.name]


def charted(cells: list[Cell]) -> list[ast.Call]:
    """The calls `gallery.NAME(…)`, `drawings.NAME(…)` and `charts.on_one_roof(…)`, in their order."""
    found = []
    for cell in cells:
        shown = []
        for call in calls([cell], *(set(charts.__all__) - NO_FIGURES), *gallery.__all__, *drawings.__all__):
            room = ast.unparse(call.func).rpartition(".")[0]
            if room in ("charts", "gallery", "drawings"):
                shown.append(call)
        found += sorted(shown, key=lambda call: (call.lineno, call.col_offset))
    return found


def pictured(book: Notebook) -> list[str]:
    """What the figures and drawings in the chapter are said to show, to those who see them and to those who don't."""
    shown = dict.fromkeys(call.func.attr for call in charted(book.code) if call.func.attr in gallery.__all__)
    made = [getattr(gallery, name)() for name in shown]
    figures = [figure for each in made for figure in (each if isinstance(each, charts.Tasks) else [each])]
    return [f"{figure.title}\n\n{figure.alt}" for figure in figures]


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
    bare = re.sub(r"[*_`]", "", prose)
    plain = re.sub(r"\s", "", bare) + _key(bare)  # the latter without what follows a "2 times"
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


def shape_problems(book: Notebook) -> list[str]:
    """Where a chapter leaves the order that all chapters keep."""
    return [
        *_opening(book),
        *_order(book),
        *_parts(book),
        *_teaching(book),
        *_checks(book),
        *_exercises(book),
        *_form(book),
    ]


def minutes(book: Notebook) -> int:
    """What a chapter takes: 180 words a minute, five seconds a line of code that the page shows, four minutes an exercise."""
    lines = sum(len(cell.text.splitlines()) for cell in book.code if not UNSEEN & set(cell.tags))
    asked = {call.args[0].value for call in calls(book.code, "check") if call.args and literal(call.args[0])}
    return round((words(book.prose) / 180 + lines * 5 / 60 + 4 * len(asked)) / 5) * 5


def _opening(book: Notebook) -> list[str]:
    problems = []
    before = "\n\n".join(cell.text for cell in book.sections()[""] if cell.kind == "markdown")
    paragraphs = [part.strip() for part in before.split("\n\n") if part.strip()][1:]
    question = paragraphs[0] if paragraphs else ""
    if "?" not in question or not re.search(r"\d", question):
        problems.append("the first paragraph under the title must be a question with a number")
    said = next((found for part in paragraphs if (found := re.match(r"\*\*Time\*\* (\d+) minutes", part))), None)
    if not said:
        problems.append('a line must say minutes and prerequisites before the first section: "**Time** 40 minutes. …"')
    elif abs(int(said[1]) - minutes(book)) > 5:
        problems.append(f"{said[1]} minutes are said; by its words, code and exercises it takes {minutes(book)}")
    if not book.code or "install" not in book.code[0].tags:
        problems.append('the first code cell must be the install cell, tagged "install" (make notebooks writes it)')
    return problems


def _order(book: Notebook) -> list[str]:
    headings = [heading for heading in book.headings() if heading in SECTIONS]
    problems = [f'"## {heading}" is missing' for heading in SECTIONS if heading not in headings]
    problems += [
        f"a cell tagged {tag} must begin with its heading: {cell.text[:40]!r}"
        for cell in book.cells
        for tag in cell.tags
        if cell.kind == "markdown" and tag in MARKS and not cell.text.startswith("## ")
    ]
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
    for heading in ("Count", "Play", "Measure", "Theory against measurement"):
        if not any(cell.kind == "code" for cell in sections[heading]):
            problems.append(f"{heading}: no code cell")
    if "gallery" not in "".join(cell.text for cell in sections["Play"] if cell.kind == "code"):
        problems.append("Play: no figure of flopkit.book.gallery")
    if not re.search(r"\]\(https?://", text("Mistakes people make")):
        problems.append("Mistakes people make: no link to a thread or a paper")
    if items("Summary") != SUMMARY_LINES:
        problems.append(f"Summary: {items('Summary')} lines, {SUMMARY_LINES} are asked, each a list item")
    return problems


def _teaching(book: Notebook) -> list[str]:
    """Guesses where they arise, drawings, one takeaway a section."""
    problems = []
    guesses = len(calls(book.code, "predict"))
    if guesses < GUESSES or guesses == len(calls(book.sections().get("Predict", []), "predict")):
        problems.append(
            f"{guesses} guesses: at least {GUESSES} are asked, some of them outside Predict, where they arise"
        )
    drawn = sum(ast.unparse(call.func.value) == "drawings" for call in charted(book.code))
    if drawn < DRAWINGS:
        problems.append(f"{drawn} drawings (drawings.NAME(…)): at least {DRAWINGS} are asked")
    boxes = [
        len(TAKEAWAY.findall("\n".join(cell.text for cell in part if cell.kind == "markdown")))
        for part in _passages(book)
    ]
    if sum(boxes) < TAKEAWAYS or max(boxes) > 1:
        problems.append(f'{sum(boxes)} takeaways ("> **Takeaway.** …"): at least {TAKEAWAYS} are asked, one a section')
    return problems


def _passages(book: Notebook) -> list[list[Cell]]:
    """The cells between one heading, of any depth, and the next."""
    found: list[list[Cell]] = [[]]
    for cell in book.cells:
        if cell.kind == "code":
            found[-1].append(cell)
            continue
        for part in re.split(r"^(?=##+ )", without_code(cell.text), flags=re.MULTILINE):
            if part.startswith("##"):
                found.append([])
            if part.strip():
                found[-1].append(Cell("markdown", part))
    return found


def _checks(book: Notebook) -> list[str]:
    """What only asserts is out of sight, and stands once, at the end of its section."""
    problems = []
    for part in _passages(book):
        guards = [
            i
            for i, cell in enumerate(part)
            if _guards(cell) and not {"solution", "exercise", "hide-cell"} & set(cell.tags)
        ]
        for i in guards:
            if "remove-cell" not in part[i].tags:
                problems.append(
                    f"a check is in the reader's sight: move it into a cell tagged remove-cell: {part[i].text[:60]!r}"
                )
        if len(guards) > 1:
            problems.append(
                f"{len(guards)} cells of checks in one section, one is asked: {part[guards[0]].text[:60]!r}"
            )
        elif guards and any(cell.kind == "code" for cell in part[guards[0] + 1 :]):
            problems.append(f"a cell of checks stands before other code of its section: {part[guards[0]].text[:60]!r}")
    return problems


def _guards(cell: Cell) -> bool:
    if cell.kind != "code" or {"install", "install-peers"} & set(cell.tags):
        return False
    tree = ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", cell.text, flags=re.MULTILINE))
    return bool(calls([cell], "says", "cites")) or any(isinstance(node, ast.Assert) for node in ast.walk(tree))


def _exercises(book: Notebook) -> list[str]:
    """Question, the folded cell that keeps the answer, the reader's cell with open answers, the folded solution."""
    cells = book.sections().get("Exercises", [])
    problems = []
    folded = sum(cell.text.count("<details") for cell in cells if cell.kind == "markdown")
    closed = sum(cell.text.count("</details>") for cell in cells if cell.kind == "markdown")
    known: set[str] = set()
    asked = []
    for cell in cells:
        if cell.kind == "code":
            known |= {literal(call.args[0]) or "" for call in calls([cell], "solution") if call.args}
        if calls([cell], "solution") and not {"solution", "remove-cell"} <= set(cell.tags):
            problems.append("Exercises: a cell with solution(…) needs the tags solution and remove-cell")
        for call in calls([cell], "check"):
            number = (call.args and literal(call.args[0])) or ""
            asked.append(number)
            if not {"exercise", "remove-input"} <= set(cell.tags):
                problems.append(f"exercise {number}: the reader's cell needs the tags exercise and remove-input")
            if number not in known:
                problems.append(f'exercise {number}: no solution("{number}", …) stands above its check')
            open_ = {
                target.id
                for node in ast.walk(ast.parse(cell.text))
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is ...
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            if not call.keywords or any(getattr(keyword.value, "id", None) not in open_ for keyword in call.keywords):
                problems.append(
                    f'exercise {number}: write `name = ...`, then check("{number}", name=name), for each answer'
                )
    chapter = (re.match(r"# (\d+)", book.title) or ("", ""))[1]
    if asked != [f"{chapter}.{i}" for i in range(1, len(asked) + 1)] or len(asked) < EXERCISES:
        problems.append(
            f"Exercises: {', '.join(asked) or 'none'} can be answered, {chapter}.1 to at least {chapter}.{EXERCISES} are asked"
        )
    if folded != closed or folded < len(asked):
        problems.append(
            f"Exercises: {folded} folded solutions of {len(asked)} exercises, each closed by </details>, are asked"
        )
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
