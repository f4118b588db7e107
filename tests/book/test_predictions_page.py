"""The page of predictions: every experiment and every part of it, and of each whether
it held, on each machine."""

import re

from book_ext import predictions_page
from flopkit.book.explanations import MACHINES
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
        rows = [line for line in page.splitlines() if f"| {shown} |" in line or f"| {shown} (" in line]
        assert len(rows) == sum(part.confirmation == word for parts in found for part in parts)
        assert sum("(unsteady) |" in row or "launch-bound" in row for row in rows) == sum(
            bool(part.weak) for parts in found for part in parts if part.confirmation == word
        )
    tested = next(line for line in predictions_page.tally().splitlines() if "Parts tested" in line)
    assert tested.split("|")[2:-1] == [f" {len(parts)} " for parts in found]


def test_each_experiment_that_failed_is_explained_and_what_is_missing_is_said():
    failed, results = predictions_page.failed(), predictions_page.results()
    for machine in MACHINES:
        assert failed.count(f"### {machine.heading}\n\n{machine.lead}") == 1
        for name, reason in machine.reasons.items():
            assert failed.count(f"- **{experiment(name).title}.** {reason(machine)}") == 1
        for why in machine.missing.values():
            assert results.count(f": not measured. {why}") == 1


def test_what_a_prediction_means_is_said_beside_it():
    """The depthwise convolution has a factor of the channels fewer FLOPs, of each
    machine's."""
    [(words, meant)] = experiment("convolutions").meant.items()
    assert experiment("convolutions").prediction.count(words) == 1
    assert [name for name in NAMES if experiment(name).meant] == ["convolutions"]
    assert f"{words} [meant: {meant}], but" in predictions_page.results()
    for machine, share in zip(MACHINES, ("1/256 of the FLOPs", "1/128 on the CPU"), strict=True):
        of = machine.cases("convolutions")
        few, many = (of(kind=kind, layout="NHWC")["counted"]["flops"] for kind in ("depthwise", "dense"))
        assert meant.find(f"1/{many // few} ") == meant.index(share) and many % few == 0
