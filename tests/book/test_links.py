"""What chapters refer to exists: terms of the glossary at their first use, sources, and the numbers of figures and equations."""

import ast
import json
import re

import pytest
from chapters import BOOK, Cell, Notebook, calls, charted, literal, notebooks

BOOKS = {book.name: book for book in notebooks()}
CHAPTERS = [book for book in BOOKS.values() if book.is_chapter]
LINK = re.compile(r"\[([^\[\]]+)\]\(([\w./-]*)#([^)\s]+)\)")

# Words that are used before their chapter explains them, or explained in another one: a link stands at their first use.
LINKED = {
    "index": "utilisation, EXACT",
    "01_one_flop": "peak, dot products, fused multiply-add, multiply-accumulate, contraction work, vector FLOPs, causal mask, EXACT, TORCH, FVCORE, utilisation, SXM, tensor cores, bf16, meta",
    "02_dense": "bf16, kernel, compulsory traffic, arithmetic intensity, ridge point, memory-bound, roofline, fuses, fp8, MFU, gated MLP",
    "03_convolution": "arithmetic intensity, groups, depthwise convolution, transposed convolution, tensor cores, batch norm, SXM, fuse, utilisation, model FLOPs",
    "04_attention": "attention core, utilisation, causal mask, prefill, decode, latent attention, grouped-query attention, multi-query attention, gated MLP, EXACT, TORCH",
    "05_the_rest": "fuse, SwiGLU, flash kernel, vector FLOPs, memory-bound, logit, cross-entropy, meta",
    "06_whole_model": "6N, MLP, EXACT, vector work, backward pass, TORCH, meta device",
    "07_eight_tools": "TORCH, silent zero, hook, trace, dispatcher, meta",
    "08_backward": "LoRA, backward pass, utilisation, frozen, vector FLOPs, attention core, fused, Model FLOPs, Hardware FLOPs, EXACT, TORCH, checkpoint",
    "09_checkpointing": "backward pass, Activation checkpointing, HFU, MFU, bf16, gated MLP, attention core, Model FLOPs, hardware FLOPs",
    "11_measuring": "bf16, limit, rounds, CUDA graph, L2, tf32",
    "12_roofline": "roofline, arithmetic intensity, ridge point, peak, utilisation, bf16, compute-bound, memory-bound, prefill, decode, compulsory, CUDA graph",
    "13_utilisation": "Model FLOPs, MFU, Hardware FLOPs, HFU, Goodput, EXACT, TORCH, 6N, peak, sparse peak, SXM, limit, Decoding, MBU",
    "14_inverted_bottleneck": "utilisation, depthwise convolutions, meta",
    "10_experts": "mixture of experts, gated MLP, EXACT, fp8, Decoding, model FLOPs, TORCH",
    "calculator": "MFU, model FLOPs, EXACT, HFU, TORCH",
    "15_fusion": "fuse, attention core, memory-bound, ridge point, model FLOPs, meta, EXACT",
    "16_decode": "batches, arithmetic intensity, ridge point, KV cache, prefill, decode, grouped-query attention, latent attention, sliding window, mixture of experts, meta, EXACT, TORCH, MFU, MBU",
    "17_many_gpus": "ranks, collective, all-reduce, Data parallelism, EXACT, reduce-scatter, all-gather, bus bandwidth, ZeRO",
    "18_splitting": "Tensor parallelism, pipeline, micro-batches, bubble, Expert parallelism, Context parallelism",
    "19_clinic": "roofline, utilisation",
}


def terms():
    """The anchors of the glossary, as Sphinx makes them."""
    blocks = re.findall(r"^```\{glossary\}\n(.*?)^```", (BOOK / "glossary.md").read_text("utf8"), re.M | re.S)
    names = [line for block in blocks for line in block.splitlines() if line and line[0] != " "]
    return ["term-" + re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") for name in names]


def sources():
    return re.findall(r"^@\w+\{([\w-]+),", (BOOK / "references.bib").read_text("utf8"), re.M)


def plain(markdown):
    """The text without headings, code, formulas, tags and addresses, each replaced by blanks so that places stay."""
    for pattern in (
        r"(?ms)^```.*?^```",
        r"`[^`]*`",
        r"(?s)\$\$.*?\$\$",
        r"(?m)^#.*$",
        r"(?<=\])\([^)]*\)",
        r"\$[^$\n]+\$",
        r"<[^>]+>",
    ):
        markdown = re.sub(pattern, lambda match: " " * len(match[0]), markdown)
    return markdown


def link_problems(book, terms, sources):
    """Links to the glossary or the references that lead nowhere, and those to a term that is used before."""
    found = []
    for match in LINK.finditer(book.prose):
        text, page, anchor = match.groups()
        if page == "glossary.md":
            if anchor not in terms:
                found.append(f"[{text}]: the glossary has no {anchor}")
            if re.search(rf"(?<![\w-]){re.escape(text)}(?![\w-])", plain(book.prose[: match.start()])):
                found.append(f"[{text}] is linked to the glossary, but not where it is used first")
        elif page == "references.md" and anchor not in sources:
            found.append(f"[{text}]: references.bib has no {anchor}")
    return found


@pytest.mark.parametrize("name", BOOKS)
def test_links_to_terms_and_sources(name):
    assert link_problems(BOOKS[name], terms(), sources()) == []
    linked = {text for text, page, _ in LINK.findall(BOOKS[name].prose) if page == "glossary.md"}
    assert set(LINKED[name].split(", ")) <= linked


def test_pages_link_to_terms_and_sources():
    for page in BOOK.glob("*.md"):
        for text, target, anchor in LINK.findall(page.read_text("utf8")):
            assert target != "glossary.md" or anchor in terms(), f"{page.name}: {text}"
            assert target != "references.md" or anchor in sources(), f"{page.name}: {text}"


def test_each_term_and_source_stands_there_once():
    assert len(set(terms())) == len(terms()) > 60
    assert len(set(sources())) == len(sources()) > 60
    entries = (BOOK / "references.bib").read_text("utf8").split("\n@")[1:]
    groups = set(re.findall(r':filter: keywords == "(\w+)"', (BOOK / "references.md").read_text("utf8")))
    for entry in entries:
        assert re.search(r"keywords = \{(\w+)\}", entry)[1] in groups, "no list of the page shows " + entry[:30]


# -- numbers ------------------------------------------------------------------------------------------------------


def figures(book):
    """Number of each figure that a cell shows, '' where it has none."""
    found = []
    for cell in book.code:
        if "remove-cell" not in cell.tags:
            numbered = {}  # the call of a figure -> its number
            for call in calls([cell], "numbered"):
                if isinstance(call.func.value, ast.Call):
                    numbered[ast.unparse(call.func.value)] = literal(call.args[0])
            found += [numbered.get(ast.unparse(call), "") for call in charted([cell])]
    return found


def equations(book):
    """Number of each displayed equation, None where it has none."""
    found = []
    for cell in book.cells:
        if cell.kind == "markdown":
            for formula in re.findall(r"\$\$.*?\$\$", cell.text, re.S):
                number = re.search(r"\\tag\{([\d.]+)\}\$\$$", formula)
                found.append(number and number[1])
        else:
            for call in calls([cell], "derivation"):
                found.append(next((literal(k.value) for k in call.keywords if k.arg == "number"), None))
    return found


def number_problems(book, known_figures, known_equations):
    chapter = book.title.split()[1]
    found = []
    for what, numbers in (("figures", figures(book)), ("equations", equations(book))):
        want = [f"{chapter}.{n}" for n in range(1, len(numbers) + 1)]
        if numbers != want:
            found.append(f"its {what} bear {numbers}, not {want}")
    prose = plain(book.prose)
    found += [f"there is no Figure {n}" for n in re.findall(r"[Ff]igures? (\d+\.\d+)", prose) if n not in known_figures]
    found += [f"there is no equation ({n})" for n in re.findall(r"\((\d+\.\d+)\)", prose) if n not in known_equations]
    return found


@pytest.mark.parametrize("chapter", CHAPTERS, ids=[chapter.name for chapter in CHAPTERS])
def test_numbers_are_consecutive_and_mentions_exist(chapter):
    known = [{n for book in CHAPTERS for n in numbers(book)} for numbers in (figures, equations)]
    assert number_problems(chapter, *known) == []
    assert figures(chapter) and equations(chapter)


# -- descriptions -------------------------------------------------------------------------------------------------


def test_every_page_is_described_in_its_own_words():
    said = {}
    for page in sorted(BOOK.iterdir()):
        if page.suffix == ".md":
            found = re.match(r'---\ndescription: "?(.+?)"?\n---\n', page.read_text("utf8"))
            said[page.name] = found and found[1]
        elif page.suffix == ".ipynb":
            said[page.name] = json.loads(page.read_text("utf8"))["metadata"].get("description")
    assert [name for name, text in said.items() if not text or not 50 <= len(text) <= 200] == []
    assert len(set(said.values())) == len(said) > 10


# -- the tests bite -----------------------------------------------------------------------------------------------


def sample(prose, *code):
    return Notebook("sample", (Cell("markdown", "# 2 Sample\n\n" + prose), *(Cell("code", text) for text in code)))


@pytest.mark.parametrize(
    "prose, problem",
    [
        ("The [MFU](glossary.md#term-MFU), by [Dao](references.md#dao2022).", None),
        ("# MFU\n\n`MFU` [a](x.md#MFU) $MFU$ and the [MFU](glossary.md#term-MFU).", None),
        ("The [MFU](glossary.md#term-mfu).", "the glossary has no term-mfu"),
        ("The MFU. The [MFU](glossary.md#term-MFU).", "not where it is used first"),
        ("By [Dao](references.md#dao).", "references.bib has no dao"),
    ],
)
def test_bad_links(prose, problem):
    problems = link_problems(sample(prose), ["term-MFU"], ["dao2022"])
    assert problems == [] if problem is None else problem in problems[0]


FIGURE, EQUATION = 'gallery.dense_roofline().numbered("2.1")', 'derivation("x", y, number="2.1")'


@pytest.mark.parametrize(
    "prose, code, problem",
    [
        ("Figure 2.1 and (2.1), then (2.2).\n\n$$a \\tag{2.1}$$", [EQUATION.replace("2.1", "2.2")], None),
        ("Nothing.", [FIGURE, EQUATION], None),
        ("Nothing.", ["gallery.dense_roofline()"], "figures bear ['']"),
        ("Nothing.", [FIGURE, FIGURE], "figures bear"),
        ("Nothing.", ['derivation("x", y)'], "equations bear [None]"),
        ("$$a$$", [], "equations bear [None]"),
        ("Nothing.", [EQUATION.replace("2.1", "3.1")], "equations bear ['3.1']"),
        ("See Figure 2.7.", [], "there is no Figure 2.7"),
        ("By (2.7).", [], "there is no equation (2.7)"),
    ],
)
def test_bad_numbers(prose, code, problem):
    problems = number_problems(sample(prose, *code), {"2.1"}, {"2.1", "2.2"})
    assert problems == [] if problem is None else problem in problems[0]
