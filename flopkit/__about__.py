"""Who this package is: its version, and where its repository lives.

The repository's address is that of `[project.urls]` in pyproject.toml; `make address` writes it there and into the texts. The Colab
button, the install cell of each chapter and the messages of this package follow from it. While it is not set, `repository()` is
None and each of them does without.
"""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"


def repository() -> str | None:
    """The repository's address, such as "https://github.com/someone/book", or None while it is not set."""
    return _address(_urls().get("Repository"))


def site() -> str | None:
    """Where the book is published: `Documentation` of `[project.urls]`, else the GitHub Pages of the repository, else None."""
    if address := _address(_urls().get("Documentation")):
        return f"{address}/"
    import re

    found = re.fullmatch(r"https://github\.com/([^/]+)/([^/]+)", repository() or "")
    return f"https://{found[1].lower()}.github.io/{found[2]}/" if found else None


def _urls() -> dict[str, str]:
    """From the checkout's pyproject.toml where there is one, else from the installed package's metadata."""
    pyproject = Path(__file__).parent.parent / "pyproject.toml"
    if pyproject.is_file():
        import tomllib

        project = tomllib.loads(pyproject.read_text("utf8")).get("project", {})
        if project.get("name") == "flopkit":
            return dict(project.get("urls", {}))
    from importlib import metadata

    try:
        entries = metadata.metadata("flopkit").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return {}
    return dict(entry.split(", ", 1) for entry in entries)


def _address(url: str | None) -> str | None:
    """`url` without a trailing slash; None for nothing and for a placeholder in capitals (OWNER, REPO)."""
    if not url or "OWNER" in url or "REPO" in url:
        return None
    return url.rstrip("/").removesuffix(".git")
