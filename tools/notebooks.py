"""Keep the chapters in one form, so that a difference in git is a difference in the text.

    python tools/notebooks.py            rewrite book/*.ipynb
    python tools/notebooks.py --check    say which ones are not in the form, and fail if any

The form: no outputs, no execution counts, an id on every cell that stays what it is, the kernel `python3`, no editor's
metadata but the page's description, no blank cells; solutions and guards are folded in JupyterLab as they are in the book. Two cells are written here: the one tagged
`install`, from the version and the repository's address in pyproject.toml, and the one tagged `install-peers`, from its extra `peers`.

Links between chapters are relative: Sphinx follows them, and so do JupyterLab and GitHub. Colab does not. Absolute ones would lead
a reader of the built book out of it, so they have to be made in a copy for Colab, once there is an address.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from flopkit.__about__ import __version__, repository  # noqa: E402

PEERS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]["optional-dependencies"]["peers"]
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
KEPT_CELL_METADATA = ("jupyter", "mystnb", "slideshow", "tags")


def install_cell(address: str | None, version: str = __version__) -> str:
    """The first code cell of a chapter: it does something only where flopkit is missing.

    In a clone the kernel is the wrong one. Elsewhere, as in Colab, it installs the version that the chapter was written with,
    by its tag, and only what Colab has already or does not miss (so not the extra `book`, which would replace Colab's kernel).
    """
    if address:
        elsewhere = f'    %pip install --quiet "flopkit[charts] @ git+{address}@v{version}"'
    else:
        elsewhere = (
            "    raise ModuleNotFoundError(\n"
            "        'flopkit is in no index yet. In Colab: `%pip install \"flopkit[charts] @ git+ADDRESS\"`, with the address of the '\n"
            '        "repository that you have this notebook from. On your machine: clone that repository and run `make lab` in it"\n'
            "    )"
        )
    return f"""\
import importlib.util
import pathlib

if importlib.util.find_spec("flopkit") is None:
    if pathlib.Path("../flopkit").is_dir():
        raise ModuleNotFoundError(
            "this kernel has no flopkit: choose the kernel of the folder .venv (`make lab` opens JupyterLab with it), "
            'or run `%pip install -e "..[torch,charts]"` here, which installs it for this kernel'
        )
{elsewhere}"""


def peers_cell(lines: list[str]) -> str:
    """A cell that installs the other tools, `lines` as in the extra `peers`: commented out, for it is the reader's choice."""
    tools = [line for line in lines if not line.startswith(("flopkit", "transformers"))]
    return (
        "# The other tools. `make book` and `make lab` have installed them; in Colab remove the # of the next line, then restart.\n"
        f"# %pip install --quiet {' '.join(json.dumps(tool) for tool in tools)}"
    )


def text_of(cell: dict) -> str:
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def folds(tags: list[str]) -> dict[str, bool]:
    """What JupyterLab folds of a cell: the code of a guess, a guard and a solution. An exercise stays open: it is the reader's."""
    folded = {"remove-cell", "remove-input", "solution"} & set(tags) and "exercise" not in tags
    return {"source_hidden": True} if folded else {}


def tidy_cell(cell: dict, taken: set[str], address: str | None) -> dict:
    metadata = {key: cell["metadata"][key] for key in KEPT_CELL_METADATA if cell.get("metadata", {}).get(key)}
    folded = folds(metadata.get("tags", []))
    if folded:
        metadata = {**metadata, "jupyter": folded}
    if {"predict", "solution"} & set(metadata.get("tags", [])):
        metadata["cellView"] = "form"  # Colab folds by this, and by the line "# @title"
    metadata = dict(sorted(metadata.items()))
    text = text_of(cell).strip("\n")
    if cell["cell_type"] == "code" and "install" in metadata.get("tags", []):
        text = install_cell(address)
    if cell["cell_type"] == "code" and "install-peers" in metadata.get("tags", []):
        text = peers_cell(PEERS)
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
    described = {"description": said} if (said := book.get("metadata", {}).get("description")) else {}
    fixed = {"cells": cells, "metadata": {**described, **METADATA}, "nbformat": 4, "nbformat_minor": 5}
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
