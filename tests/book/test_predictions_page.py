"""The page of predictions: every experiment and every part of it, and of each whether
it held, on each machine."""

import re

from book_ext import predictions_page
from flopkit.book.explanations import H200, MACHINES
from flopkit.book.explanations.h200 import held_by_chance, undecided
from flopkit.experiments import NAMES, experiment
from flopkit.experiments.expectations import Confirmation


def test_the_page_has_every_experiment_and_every_part():
    page = predictions_page.results()
    as_written = re.sub(r" \[meant: .*?\]", "", page)
    for name in NAMES:
        asked = experiment(name)
        assert f"### {asked.title}" in page and asked.prediction in as_written
    found = [[part for name in NAMES for part in machine.findings(name)] for machine in MACHINES]
    for word in Confirmation:
        shown = f"**{word}**" if word == "failed" else word
        rows = [line for line in page.splitlines() if re.search(rf"\| {re.escape(shown)}( \||:? ?\(|: missed)", line)]
        assert len(rows) == sum(part.confirmation == word for parts in found for part in parts)
        assert sum("unsteady" in row or "launch-bound" in row for row in rows) == sum(
            bool(part.weak) for parts in found for part in parts if part.confirmation == word
        )
        assert sum("missed, but" in row for row in rows) == sum(
            bool(part.missed) for parts in found for part in parts if part.confirmation == word == "not clear"
        )
    tested = next(line for line in predictions_page.tally().splitlines() if "Parts tested" in line)
    assert tested.split("|")[2:-1] == [f" {len(parts)} " for parts in found]


def test_what_missed_is_explained_under_its_experiment_and_what_is_missing_is_said():
    recurs, results = predictions_page.recurs(), predictions_page.results()
    about = dict(zip(NAMES, re.split(r"^### .*$", results, flags=re.M)[1:], strict=True))
    for machine in MACHINES:
        assert recurs.count(f"**{machine.heading}.** {machine.lead}") == 1
        for name, reason in machine.reasons.items():
            assert about[name].count(f"**Why, on {machine.name}.** {reason(machine)}\n") == 1
        for name, why in machine.missing.items():
            assert about[name].count(f"{predictions_page.titled(machine)}: not measured. {why}") == 1
        for name in NAMES:  # of what a recording was not made for nothing is said
            assert machine.asked(name) or predictions_page.titled(machine) not in about[name]
    assert about["matmul_tiles"].count(undecided(H200)) == 1 == results.count(undecided(H200))
    assert about["backward_ratio"].count(held_by_chance(H200)) == 1 == results.count(held_by_chance(H200))
    by_chance = held_by_chance(H200)  # 3 tensors move over 2, at 8.9 % of the data sheet's bandwidth
    assert "moves 1.50×" in by_chance and "only 10 %" in by_chance


def test_what_a_prediction_means_is_said_beside_it():
    """The depthwise convolution has a factor of the channels fewer FLOPs, of each
    machine's."""
    [(words, meant)] = experiment("convolutions").meant.items()
    assert experiment("convolutions").prediction.count(words) == 1
    assert [name for name in NAMES if experiment(name).meant] == ["convolutions"]
    assert f"{words} [meant: {meant}], but" in predictions_page.results()
    asked = [machine for machine in MACHINES if machine.asked("convolutions")]
    for machine, share in zip(asked, ("1/256 of the FLOPs", "1/128 on the CPU"), strict=True):
        of = machine.cases("convolutions")
        few, many = (of(kind=kind, layout="NHWC")["counted"]["flops"] for kind in ("depthwise", "dense"))
        assert meant.find(f"1/{many // few} ") == meant.index(share) and many % few == 0
