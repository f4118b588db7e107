"""Make a checkout ready to be built for an index: the tag is the version, and README.md, which the index shows, links to the repository.

    python tools/release.py v0.1.0

Pictures and pages stand beside README.md in the repository and nowhere on the index, so their links become absolute, into the tag. The
address is that of `[project.urls]` in pyproject.toml, which the wheel's metadata carry, too. While it is not set the links stay as they are.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from flopkit.__about__ import __version__, repository  # noqa: E402

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def absolute(text: str, address: str, tag: str) -> str:
    """Markdown *text* with its relative links made absolute: pictures as they are, other files as pages."""

    def link(found: re.Match[str]) -> str:
        picture, label, path = found.groups()
        return f"{picture}[{label}]({address}/{'raw' if picture else 'blob'}/{tag}/{path})"

    return LINK.sub(link, text)


def main(tag: str) -> int:
    if tag != f"v{__version__}":
        print(f"the tag is {tag}, the version {__version__}: the tag must be v{__version__}", file=sys.stderr)
        return 1
    address = repository()
    if address is None:
        print("pyproject.toml names no address: README's links stay relative, and an index would show no picture")
        return 0
    readme = ROOT / "README.md"
    readme.write_text(absolute(readme.read_text("utf8"), address, tag), "utf8")
    print(f"README.md links to {address}, {tag}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
