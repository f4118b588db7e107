"""The tool that changes one constant at a time, tried on a package of three formulas."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "mutations.py"

FORMULAS = '''
EACH = 2

def area(a, b):
    return EACH * a * b

def edge(a, b):
    """Never told from 3 by the test below."""
    return max(3, a + b)

def forgotten(a):
    return a - 1

def doubled(a):
    """Compared with itself alone."""
    return 2 * a
'''

TESTS = """
from toy.formulas import area, edge

def test_area():
    assert area(3, 5) == 30

def test_edge():
    assert edge(10, 20) == 30
"""

EARLY = """
from toy.formulas import area, doubled

EMPTY, SIX = area(0, 5), doubled(3)

def test_doubled():
    assert doubled(3) == SIX
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_what_a_test_sees_is_caught_and_the_rest_is_named(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "toy" / "formulas.py").write_text(FORMULAS)
    (tmp_path / "tests" / "test_toy.py").write_text(TESTS)
    (tmp_path / "tests" / "test_early.py").write_text(EARLY)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["browser", "slow"]\n')
    command = [
        sys.executable,
        TOOL,
        "--root",
        tmp_path,
        "--tests",
        "tests",
        "--verbose",
        "--jobs",
        "1",
        "toy/formulas.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()

    def short(line):  # without the line as it becomes
        return re.sub("  in  .*?(  caught|$)", r"\1", line)

    def verdicts(place):
        return {
            line.split("  ->  ")[1]
            for line in map(short, lines)
            if f"formulas.py:{place}  ->" in line and "caught by" in line
        }

    by = "  caught by tests/test_toy.py::"
    assert verdicts("2 (module): 2") == {f"3{by}test_area"}  # in a new process: the constant of the module
    assert verdicts("5 area: EACH * a * b") == {
        f"EACH * a + b{by}test_area",
        f"EACH * a{by}test_area",
        f"b{by}test_area",
    }
    assert verdicts("5 area: EACH * a") == {f"EACH + a{by}test_area", f"EACH{by}test_area", f"a{by}test_area"}
    assert verdicts("9 edge: a + b") == {f"a - b{by}test_edge"}
    survived = {short(line) for line in lines if line.startswith("survived")}
    assert survived == {"survived: toy/formulas.py:9 edge: 3  ->  4"} | {
        f"survived: toy/formulas.py:16 doubled: {change}"  # a value that was there before the change tells nothing
        for change in ("2 * a  ->  2 + a", "2 * a  ->  2", "2 * a  ->  a", "2  ->  3")
    }
    assert {short(line) for line in lines if line.startswith("not run")} == {
        "not run: toy/formulas.py:12 forgotten: a - 1  ->  a + 1",
        "not run: toy/formulas.py:12 forgotten: 1  ->  2",
    }
    row = next(line.split() for line in lines if line.startswith("all"))
    assert row == ["all", "15", "8", "0", "0", "0", "2", "5"]
    assert (tmp_path / "toy" / "formulas.py").read_text() == FORMULAS
