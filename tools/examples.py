"""Run the examples of a page: its ```python blocks with `>>>`, one after the other, in one session.

    python tools/examples.py README.md

The release runs it with the wheel instead of the checkout: started as a file, Python finds no flopkit beside it.
"""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path


def run(path: Path) -> doctest.TestResults:
    """How many examples failed, and how many there are; what failed is printed."""
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text("utf8"), re.M | re.S)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    session: dict[str, object] = {}
    for number, block in enumerate(block for block in blocks if ">>>" in block):
        test = doctest.DocTestParser().get_doctest(block, session, f"{path.name}, block {number}", path.name, 0)
        runner.run(test, clear_globs=False)
        session = test.globs
    return doctest.TestResults(runner.failures, runner.tries)


if __name__ == "__main__":
    import flopkit

    found = run(Path(sys.argv[1]))
    print(
        f"{found.attempted - found.failed} of {found.attempted} examples of {sys.argv[1]} hold with {flopkit.__file__}"
    )
    sys.exit(found.failed > 0 or not found.attempted)
