"""The last part of the page "How this book is tested", from the report that `make test`
leaves in _build/test-report.json."""

import json
from collections import Counter
from pathlib import Path

REPORT = Path(__file__).resolve().parents[2] / "_build" / "test-report.json"
KINDS = {
    "tests": "Tests of the code, by file",
    "flopkit": "Examples in docstrings, by file",
    "book": "Cells of chapters, by file",
    "browser": "The built book in a browser, by file",
}


def kind(path, part):
    return "browser" if part == "browser" else path.split("/")[0]


def tables():
    """Markdown: when and where the tests ran and how many passed; folded, the same by
    file, and what was left out and why."""
    if not REPORT.is_file():
        return "This copy of the book was built without running the tests first, so it has no results to show. `make test` runs the tests and fills this section."
    report = json.loads(REPORT.read_text("utf8"))
    lines = []
    for part in report["parts"].values():
        counts = part["counts"]
        lines.append(
            f"- {part['title']}: **{counts.get('passed', 0):,} passed**, {counts.get('failed', 0):,} failed, "
            f"{counts.get('skipped', 0):,} left out, in {part['seconds']:,.0f} s, {part['date']}"
            + (f", commit `{part['commit']}`" if part.get("commit") else "")
        )
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines += ["", f"This was on {report['platform']}, with {versions}.", ""]
    groups = {}
    for name, part in report["parts"].items():
        for path, counts in part["files"].items():
            groups.setdefault(kind(path, name), []).append((path, counts))
    for group, title in KINDS.items():
        if group in groups:
            rows = [
                f"| `{path}` | {c.get('passed', 0)} | {c.get('failed', 0)} | {c.get('skipped', 0)} |"
                for path, c in sorted(groups[group])
            ]
            lines += folded(title, ["| File | Passed | Failed | Left out |", "|:--|--:|--:|--:|", *rows])
    lines += folded("What was left out, and why", left_out(report))
    return "\n".join(lines)


def folded(title, lines):
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>", ""]


def left_out(report):
    """What was skipped, and what was expected to fail because something else than this
    package is wrong."""
    reasons = Counter((s["file"], s["reason"]) for part in report["parts"].values() for s in part["skipped"])
    if not reasons:
        return ["Nothing was left out."]
    rows = [f"| `{file}` | {n} | {reason.replace('|', '/')} |" for (file, reason), n in sorted(reasons.items())]
    told = "Skipped tests, and tests that must fail because a tool that they run is wrong."
    return [told, "", "| File | Tests | Reason |", "|:--|--:|:--|", *rows]
