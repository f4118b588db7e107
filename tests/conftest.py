"""What every test can use: the built book in Chromium, and the report that the book prints about its tests.

A browser test is marked `browser` and takes `open_page`. Without Chromium or without a built book it is skipped and says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections import Counter
from importlib import metadata
from pathlib import Path

import fast_part
import pytest
from served import served
from watched import Watched

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
REPORT = ROOT / "_build" / "test-report.json"

# -------------------------------------------------------------------------------------------------------------- the fast part

# Tests of these turn torch itself upside down: one process runs them, in their order.
TURN_TORCH = {"counter", "peers", "zoo"}


def pytest_ignore_collect(collection_path, config):
    """What is left out is not even imported."""
    fast = config.getoption("--fast")
    if (fast or config.getoption("--most")) and fast_part.is_thorough(collection_path):
        return True
    return True if fast and fast_part.is_costly_file(collection_path) else None


def pytest_collection_modifyitems(config, items):
    """The models of the zoo are counted where `-m` asks for them (`make zoo`), and a sample of them, which has no mark, always.

    With `--fast` a sample of all tests runs: see `fast_part.py`.
    """
    if "zoo" not in config.getoption("markexpr"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("zoo")])
        items[:] = [item for item in items if not item.get_closest_marker("zoo")]
    if config.getoption("--fast"):
        items[:], others = fast_part.of_items(items)
        config.hook.pytest_deselected(items=others)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Of several processes, one runs all tests of a file, and one all that turn torch upside down."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return "torch" if TURN_TORCH.intersection(Path(file).parts) else file

    return ByFile(config, log)


# ---------------------------------------------------------------------------------------------------------------- the report

TITLES = {
    "checks": "Code and docstrings",
    "chapters": "Chapters, and what measures",
    "browser": "The built book in a browser",
}
PACKAGES = ("numpy", "torch", "torchvision", "altair", "sympy", "jupyter-book", "pytest", "hypothesis")


def pytest_addoption(parser):
    parser.addoption(
        "--report", choices=sorted(TITLES), help="note the outcome under this name in _build/test-report.json"
    )
    parser.addoption(
        "--most", action="store_true", help="leave out the files that THOROUGH names in tests/fast_part.py"
    )
    parser.addoption(
        "--fast", action="store_true", help="of the others run a sample, one in ONE_IN parameters, and nothing COSTLY"
    )


def pytest_configure(config):
    # Tests share the machine with each other: that a few calls take longer is nothing that they could mend.
    from flopkit.measuring import protocol

    protocol.DISTURBED = float("inf")
    if config.pluginmanager.hasplugin("nbval"):
        import executed

        executed.install(config)
    if config.getoption("--report") and not hasattr(
        config, "workerinput"
    ):  # a worker tells the process that started it
        config.pluginmanager.register(Report(config.getoption("--report")), "report")


class Report:
    """Counts outcomes by file and writes them for the page "How this book is tested"."""

    def __init__(self, part):
        self.part, self.start = part, time.time()
        self.files: dict[str, Counter] = {}
        self.skipped: list[dict] = []

    def pytest_runtest_logreport(self, report):
        outcome = report.outcome
        if report.when != "call" and outcome == "passed":
            return  # setting up and tearing down count only where they fail or skip
        path = report.nodeid.split("::")[0]
        self.files.setdefault(path, Counter())[outcome] += 1
        if outcome == "skipped":
            reason = getattr(report, "wasxfail", None) or (
                report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            )
            self.skipped.append({"file": path, "test": report.nodeid, "reason": reason.removeprefix("Skipped: ")})

    def pytest_collectreport(self, report):
        if report.outcome != "passed":
            self.files.setdefault(report.nodeid.split("::")[0] or ".", Counter())[report.outcome] += 1

    def pytest_sessionfinish(self, session):
        whole = {"parts": {}}
        if self.part != "checks" and REPORT.is_file():  # the checks come first and begin a new report
            whole = json.loads(REPORT.read_text("utf8"))
        whole["platform"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
        whole["versions"] = {"Python": platform.python_version(), **versions()}
        whole["parts"][self.part] = {
            "title": TITLES[self.part],
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "seconds": round(time.time() - self.start, 1),
            "commit": commit(),
            "counts": dict(sum(self.files.values(), Counter())),
            "files": {path: dict(counts) for path, counts in sorted(self.files.items())},
            "skipped": self.skipped,
        }
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", "utf8")


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def commit() -> str | None:
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()
    return None


# --------------------------------------------------------------------------------------------------------------- the browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium_path() -> str | None:
    """$CHROMIUM, else the first Chromium or Chrome on the path."""
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if name and (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def site():
    """The address of the built book, served on this machine."""
    if not (HTML / "index.html").is_file():
        pytest.skip("the book is not built: run `make html` first")
    with served(HTML) as address:
        yield address


@pytest.fixture(scope="session")
def chromium():
    if chromium_path() is None:
        pytest.skip("no Chromium on this machine: install it, or name it in $CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium_path(), headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, request):
    """`open_page("book/index.html", **context options) -> page`; `url=` opens another address, such as a file.

    At the end of the test each page must have asked no other host, logged no error or warning, and found all its files.
    """
    opened = []

    def open_(path="", url=None, **options):
        opened.append(Watched(chromium, **options))
        page = opened[-1].page
        page.goto(url or f"{request.getfixturevalue('site')}/{path}", wait_until="load")
        return page

    yield open_
    try:
        for watched in opened:
            watched.check()
    finally:
        for watched in opened:
            watched.context.close()
