"""Write the repository's address wherever it is needed: pyproject.toml, CITATION.cff, README.md, the preface, each chapter's install cell.

    python tools/address.py https://github.com/someone/book
    python tools/address.py          the address that pyproject.toml has, else that of this clone's remote `origin`

In a text the passages between `<!-- NAME -->` and `<!-- /NAME -->` are written here, once for no address and once for one. The buttons of the
built pages and the site map follow from pyproject.toml.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
import notebooks  # noqa: E402

from flopkit.__about__ import _address, repository  # noqa: E402

PASSAGES = {  # without an address, with one
    "repository": ("the book's repository", "[the book's repository]({})"),
    "issue": ("open an issue in the book's repository", "[open an issue]({}/issues)"),
    "colab": (
        "In Colab, install flopkit first; the first cell tells you how.",
        "In Colab the first cell installs flopkit and changes nothing that Colab ships.",
    ),
}
LINE = re.compile(r'^(?:# )?(Repository = |repository-code: )".*"$', re.MULTILINE)
MARKED = re.compile(rf"<!-- ({'|'.join(PASSAGES)}) -->.*?<!-- /\1 -->")


def for_browsers(url: str) -> str | None:
    """The https form of an address as git knows it, without name and password; None for a path on this machine."""
    url = re.sub(r"^(?:(?:ssh|git)://(?:[\w-]+@)?|[\w-]+@)([\w.-]+)[:/]", r"https://\1/", url.strip())
    return _address(re.sub(r"^(https?://)[^/]*@", r"\1", url)) if re.match(r"https?://", url) else None


def told(text: str, address: str | None) -> str:
    """*text* with its passages as they are with *address*, or without one."""
    return MARKED.sub(lambda m: f"<!-- {m[1]} -->{PASSAGES[m[1]][bool(address)].format(address)}<!-- /{m[1]} -->", text)


def main(given: str) -> int:
    origin = ["git", "-C", str(ROOT), "config", "remote.origin.url"]
    known = given or repository() or subprocess.run(origin, capture_output=True, text=True).stdout
    if not (address := for_browsers(known)):
        sys.exit(f"{known.strip() or 'nothing'!r} is no address on the web: make address ADDRESS=https://…")
    for path in (ROOT / "pyproject.toml", ROOT / "CITATION.cff"):
        path.write_text(LINE.sub(rf'\1"{address}"', path.read_text("utf8")), "utf8")
    for path in (ROOT / "README.md", *(ROOT / "book").glob("*.ipynb")):
        path.write_text(told(path.read_text("utf8"), address), "utf8")
    print(f"the repository is {address}")
    return notebooks.main(check=False)


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
