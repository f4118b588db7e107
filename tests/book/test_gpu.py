"""The page "What was never run on a GPU" names each file that has code for CUDA devices, and what it says of the counters is what they accept."""

import re
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from flopkit.measuring.hardware.cases import CASES, counted, prepared

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "book" / "gpu.md").read_text("utf8")
FOR_CUDA = re.compile(r"torch\.cuda|\bcuda\.\w|\"cuda\"|\"nccl\"|pynvml|\.is_cuda|\bcudart\b|\bgpu=|\"ncu\"")


def for_cuda():
    return {
        str(path.relative_to(ROOT / "flopkit"))
        for path in (ROOT / "flopkit").rglob("*.py")
        if FOR_CUDA.search(path.read_text("utf8"))
    }


def listed(text):
    """Files and folders in the first column of the tables, each below the folder that the head of its table names."""
    found = set()
    for folder, rows in re.findall(r"^\| File in `flopkit/([\w/]*)`.*\n\|[:|-]+\n((?:\|.*\n)+)", text, re.M):
        for row in rows.splitlines():
            found |= {folder + name for name in re.findall(r"`([\w/.]+)`", row.split("|")[1])}
    return found


def missing(text):
    files = listed(text)
    folders = tuple(name for name in files if name.endswith("/"))
    return sorted(name for name in for_cuda() if name not in files and not name.startswith(folders))


def test_each_file_for_cuda_is_listed_and_each_listed_one_exists():
    assert missing(TEXT) == []
    assert len(listed(TEXT)) > 30 and [name for name in listed(TEXT) if not (ROOT / "flopkit" / name).exists()] == []


@pytest.mark.parametrize("name", ["timers.py", "ncu.py", "decode.py", "counter/"])
def test_a_file_that_is_left_out_is_noticed(name):
    assert missing(TEXT.replace(f"`{name}`", "something")) != []


def test_the_page_says_what_is_accepted():
    """Each interval of a case stands in the table, and the page says how many cases there are."""
    table = TEXT.split("## What we expect")[1].split("\n## ")[0]
    cells = {row.split("|")[2].strip() for row in table.splitlines() if row.startswith("| ")} - {"Executed / counted"}
    said = {
        "shown only" if c.accepted is None else " to ".join(f"{x:g}" for x in dict.fromkeys(c.accepted))
        for c in CASES.values()
    }
    assert cells == said
    assert len(CASES) == 18 and TEXT.count("eighteen") == 2
    traffic = {case.bytes_accepted for case in CASES.values()} - {None}
    assert traffic == {(0.9, 1.1)} and table.count("Memory traffic 0.9 to 1.1 of the count") == 2


def test_what_the_page_says_of_torch():
    """Where this fails, torch has mended its formula for groups, and the page is to say so."""
    run = prepared(CASES["depthwise_fb"], "meta")
    with FlopCounterMode(display=False) as theirs:
        run()
    times = theirs.get_total_flops() / counted(CASES["depthwise_fb"], run)["flops"]
    assert f"counts {times:.0f} times as much" in TEXT and f"PyTorch {torch.__version__.rpartition('.')[0]} " in TEXT


def test_the_command_stands_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf8")
    steps = makefile.split("\ngpu:")[1].split("\n\n")[0]
    assert "    make gpu\n" in TEXT
    assert [steps.index(part) for part in ("pytest", "flopkit record", "flopkit counters")] == sorted(
        steps.index(part) for part in ("pytest", "flopkit record", "flopkit counters")
    )
