"""The page "What a GPU said": its tables are made from the recorded counts, and its sentences say what is in them."""

import re
from pathlib import Path

import pytest

from book_ext import gpu_page
from flopkit.measuring.hardware.cases import CASES
from flopkit.measuring.hardware.tiles import tiles
from flopkit.recordings import hardware_counts, recordings
from flopkit.recordings.recording import Recording

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "book" / "gpu.md").read_text("utf8")
FOUND = hardware_counts()


def rows(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_each_program_has_its_row():
    found = rows(gpu_page.cases())
    assert list(gpu_page.PROGRAMS) == list(CASES) == list(FOUND.cases) and len(found) == len(CASES) == 18
    assert "Eighteen small programs" in TEXT
    for row, case in zip(found, CASES.values(), strict=True):
        ratio = float(row[2].strip("*"))
        assert ratio == pytest.approx(FOUND.cases[case.name]["ratio"], rel=1e-4)
        low, high = case.accepted or (0.0, 9.0)
        assert row[2].startswith("**") or low <= ratio <= high * (1 + 1e-9), row


def test_what_is_bold_is_explained_by_tiles():
    bold = {case for row, case in zip(rows(gpu_page.cases()), CASES, strict=True) if row[2].startswith("**")}
    assert bold == {"mm_bf16_ragged", "mlp_fb", "mlp_fb_checkpoint", "first_layer_fb"}
    beyond = {name for name in bold if FOUND.cases[name]["ratio"] > CASES[name].accepted[1]}
    assert beyond == bold - {"mm_bf16_ragged"} and "Three rows did not come out as expected" in TEXT


def test_tables_of_the_step():
    sums = rows(gpu_page.sums())
    assert len(sums) == 5 and all(row[2] == row[3] for row in sums)
    assert max(float(row[2]) for row in sums) == pytest.approx(4, abs=0.01) and sums[1][0].startswith("16 →")
    norms = [float(row[2]) for row in rows(gpu_page.norms())]
    assert norms == sorted(norms) and 1 <= norms[0] < 1.02 and norms[-1] == pytest.approx(1.4, abs=0.005)
    largest = rows(gpu_page.norms())[-1][1]
    assert largest == "77.07 MB"  # above the 60 MB of the cache, and all others below
    assert sum(line["watched"] for line in FOUND.steps["mobilenet_v2"]) == 29 and "resnet50" not in FOUND.steps


def test_the_sentences_say_what_was_counted():
    products = [line for line in FOUND.steps["gpt_block"] if line["counted"]["flops"] and tiles(line["kernels"][0])]
    assert len(products) == 15 and "all 15 products of a GPT block" in TEXT
    one = FOUND.cases["first_layer_fb"]["kernels"][0]
    assert one["kernel"].startswith("nvjet_sm90_tst_192x192_64x3_1x2_")
    assert one["executed"]["bf16"] / (2 * 8192 * 16384 * 4096) == pytest.approx(1.04, abs=0.001)
    share = {name: each["bytes_ratio"] for name, each in FOUND.cases.items()}
    assert round(share["add_fp32"], 2) == round(share["mul_fp32"], 2) == 0.99 and round(share["mm_bf16"], 2) == 1.75
    assert round(share["first_layer_fb"]) == 3 and share["flash"] < 1.01
    assert round(FOUND.cases["flash_causal"]["ratio"], 3) == 1.031 and (3 * 56 - 2) ** 2 == 27556 and 9 * 56**2 == 28224
    strange = max(
        each["executed"]["fp16 vector"] / each["counted"]["flops"]
        for name, each in FOUND.cases.items()
        if CASES[name].dtype == "fp32" and "fp16 vector" in each["executed"]
    )
    assert 0.01 < strange < 0.1
    clones = [line for line in FOUND.steps["mobilenet_v2"] if line["operator"] == "clone" and line["watched"]]
    assert clones and all(line["memory"] == 0 and line["counted"]["bytes"] > 1e6 for line in clones)


def test_counts_on_both_devices():
    names = {each["program"] for each in FOUND.programs}
    assert len(FOUND.programs) == 34 and len(names) == 17
    assert all(each["cpu"] == each["gpu"] > 0 for each in FOUND.programs)
    assert FOUND.busy["busy"] == 0.831 and FOUND.busy["sm_mhz"] == 1470 and round(FOUND.busy["ratio"], 3) == 1.005


def test_what_was_recorded_is_said():
    [one] = [each for each in recordings("ours") if each.provenance["type"] == "cuda"]
    assert isinstance(one, Recording) and {each["verdict"] for each in one.results} == {"ok"}
    said = gpu_page.recorded()
    assert said.startswith(f"{len(one.results)} measurements of 13 experiments") and "2.11.0" in said
    assert f"In {sum(not each['steady'] for each in one.results)} the times" in said
    cnns = sum(each["experiment"] == "cnns" for each in one.results)
    assert 54 - cnns == 8 and "Eight of the 54 cases of `cnns`" in TEXT
    assert "all_reduce" not in {each["experiment"] for each in one.results}
    rounds = [len(each["seconds"]["round_means"]) for each in one.results]
    assert sum(6 <= each < 8 for each in rounds) > len(rounds) / 2 and "after six or seven rounds" in TEXT
    clocks = [each["monitor"]["sm_mhz"]["median"] for each in one.results if each["experiment"] == "matmul_tiles"]
    assert 1400 < min(clocks) and max(clocks) < 1700


def test_the_command_stands_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf8")
    steps = makefile.split("\ngpu:")[1].split("\n\n")[0]
    assert "    make gpu\n" in TEXT
    order = [steps.index(part) for part in ("pytest", "flopkit record", "flopkit counters")]
    assert order == sorted(order)


def test_the_address_of_what_a_page_generates():
    assert set(re.findall(r"gpu_page:(\w+)", TEXT)) <= {name for name in dir(gpu_page) if not name.startswith("_")}
