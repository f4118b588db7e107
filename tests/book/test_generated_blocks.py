"""Parts of pages that functions make: each names one that is there, and the page is
made anew when what it is made from changes."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("sphinx")
from book_ext import markdown_table
from book_ext.generated_blocks import Generated

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```\{generated\} (\w+):(\w+)\n:from: (.+)\n```$", re.M)
BLOCKS = [
    (page.name, *found)
    for page in sorted((ROOT / "book").glob("*.md"))
    for found in BLOCK.findall(page.read_text("utf8"))
]


def test_every_block_is_seen_here():
    opened = sum(page.read_text("utf8").count("```{generated}") for page in (ROOT / "book").glob("*.md"))
    assert len(BLOCKS) == opened > 20


@pytest.mark.parametrize(("page", "module", "function", "files"), BLOCKS, ids=lambda each: each)
def test_a_block_names_a_function_and_files_that_are_there(page, module, function, files):
    made = importlib.import_module(f"book_ext.{module}")
    assert callable(getattr(made, function)) and not function.startswith("_")
    assert module in ("api_tables", f"{page.removesuffix('.md')}_page")
    for pattern in files.split():
        assert pattern.startswith("_build/") or list(ROOT.glob(pattern)), pattern


def test_a_page_is_new_when_its_function_or_a_file_changes(tmp_path, monkeypatch):
    for name in ("a.json", "b.json", "c.txt"):
        (tmp_path / name).touch()
    noted, parsed = [], []
    env = SimpleNamespace(app=SimpleNamespace(confdir=tmp_path), note_dependency=noted.append)
    state = SimpleNamespace(
        document=SimpleNamespace(settings=SimpleNamespace(env=env)), nested_parse=lambda lines, *_: parsed.extend(lines)
    )
    monkeypatch.setattr(markdown_table, "made", lambda: "one\ntwo", raising=False)
    block = [
        "generated",
        ["markdown_table:made"],
        {"from": "*.json later.json"},
        [],
        1,
        0,
        "",
        state,
        SimpleNamespace(reporter=None),
    ]
    Generated(*block).run()
    assert parsed == ["one", "two"]
    files = [str(tmp_path / name) for name in ("a.json", "b.json", "later.json")]
    assert noted == [*files, markdown_table.__file__]
