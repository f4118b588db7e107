"""The tables of the page "How this book is tested", from the report that `make test` leaves in _build/test-report.json."""

import json
from collections import Counter
from pathlib import Path

REPORT = Path(__file__).resolve().parents[2] / "_build" / "test-report.json"
KINDS = {
    "tests": "Tests of the code",
    "flopkit": "Examples in docstrings",
    "book": "Cells of chapters",
    "browser": "The built book in a browser",
}


def kind(path, part):
    return "browser" if part == "browser" else path.split("/")[0]


def tables():
    """Markdown: when and where the tests ran, how many passed, by file, and what was left out and why."""
    if not REPORT.is_file():
        return "This copy of the book was built without running the tests first. `make test` runs them and fills this page."
    report = json.loads(REPORT.read_text("utf8"))
    lines = []
    for part in report["parts"].values():
        lines.append(
            f"- {part['title']}: **{part['counts'].get('passed', 0):,} passed**, {part['counts'].get('failed', 0):,} failed, "
            f"{part['counts'].get('skipped', 0):,} skipped, in {part['seconds']:,.0f} s, {part['date']}"
            + (f", commit `{part['commit']}`" if part.get("commit") else "")
        )
    if "browser" not in report["parts"]:
        lines.append("- The browser tests had not run yet when this page was built.")
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines += ["", f"Ran on {report['platform']} with {versions}.", ""]
    groups = {}
    for name, part in report["parts"].items():
        for path, counts in part["files"].items():
            groups.setdefault(kind(path, name), []).append((path, counts))
    for group, title in KINDS.items():
        if group in groups:
            lines += ["", f"## {title}", "", "| File | Passed | Failed | Skipped |", "|:--|--:|--:|--:|"]
            lines += [
                f"| `{path}` | {c.get('passed', 0)} | {c.get('failed', 0)} | {c.get('skipped', 0)} |"
                for path, c in sorted(groups[group])
            ]
    lines += ["", "## Left out, and why", "", *left_out(report)]
    return "\n".join(lines)


def left_out(report):
    reasons = Counter((s["file"], s["reason"]) for part in report["parts"].values() for s in part["skipped"])
    if not reasons:
        return ["Nothing was skipped."]
    rows = [f"| `{file}` | {n} | {reason.replace('|', '/')} |" for (file, reason), n in sorted(reasons.items())]
    return ["| File | Tests | Reason |", "|:--|--:|:--|", *rows]
