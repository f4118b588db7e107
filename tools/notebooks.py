"""Keep the chapters in one form, so that a difference in git is a difference in the text.

    python tools/notebooks.py            rewrite book/*.ipynb
    python tools/notebooks.py --check    say which ones are not in the form, and fail if any

The form: no outputs, no execution counts, an id on every cell that stays what it is, the kernel `python3`, no editor's
metadata, no blank cells; solutions and guards are folded in JupyterLab as they are in the book. The cell tagged `install` is written here, from the repository's address in pyproject.toml.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from flopkit.__about__ import repository  # noqa: E402

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
KEPT_CELL_METADATA = ("cellView", "jupyter", "mystnb", "slideshow", "tags")


def install_cell(address: str | None) -> str:
    """The first code cell of a chapter: it does something only where flopkit is missing."""
    if address:
        remedy = f'    %pip install --quiet "flopkit[charts] @ git+{address}"'
    else:
        remedy = (
            "    raise ModuleNotFoundError(\n"
            '        "flopkit is not installed: clone the repository of this book, then run `pip install -e .[book]` in it"\n'
            "    )"
        )
    return f'import importlib.util\n\nif importlib.util.find_spec("flopkit") is None:\n{remedy}'


def text_of(cell: dict) -> str:
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def folds(tags: list[str]) -> dict[str, bool]:
    """What JupyterLab folds of a cell: a solution whole, so that running everything gives nothing away; of a guess and a guard the code."""
    if "solution" in tags:
        return {"outputs_hidden": True, "source_hidden": True}
    return {"source_hidden": True} if {"remove-cell", "remove-input"} & set(tags) else {}


def tidy_cell(cell: dict, taken: set[str], address: str | None) -> dict:
    metadata = {key: cell["metadata"][key] for key in KEPT_CELL_METADATA if cell.get("metadata", {}).get(key)}
    folded = folds(metadata.get("tags", []))
    if folded:
        metadata = dict(sorted({**metadata, "jupyter": folded}.items()))
    text = text_of(cell).strip("\n")
    if cell["cell_type"] == "code" and "install" in metadata.get("tags", []):
        text = install_cell(address)
    name = cell.get("id", "")
    if not re.fullmatch(r"[\w-]{1,64}", name) or name in taken:
        seed = text
        while not name or name in taken:
            seed = name = hashlib.sha256(seed.encode()).hexdigest()[:8]
    taken.add(name)
    out = {"cell_type": cell["cell_type"], "id": name, "metadata": metadata, "source": text.splitlines(keepends=True)}
    if cell["cell_type"] == "code":
        out |= {"execution_count": None, "outputs": []}
    elif cell.get("attachments"):
        out["attachments"] = cell["attachments"]
    return dict(sorted(out.items()))


def tidy(text: str, address: str | None) -> str:
    """The notebook `text` in the form described above."""
    book = json.loads(text)
    taken: set[str] = set()
    cells = [tidy_cell(cell, taken, address) for cell in book["cells"] if text_of(cell).strip()]
    fixed = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(fixed, indent=1, ensure_ascii=False) + "\n"


def main(check: bool) -> int:
    address = repository()
    untidy = 0
    for path in sorted((ROOT / "book").rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts:
            continue
        before = path.read_text("utf8")
        after = tidy(before, address)
        if after != before:
            untidy += 1
            print(path.relative_to(ROOT), "is not in the stored form: run `make notebooks`" if check else "rewritten")
            if not check:
                path.write_text(after, "utf8")
    return 1 if check and untidy else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
