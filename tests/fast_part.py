"""What `make test-fast` runs, a quick check of the code while working, and what it leaves to `make test`.

The sample is the same for everybody: of a test with many parameters it takes those whose names have the right checksum.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent

# Left to `make test`: the counter's tests, whole networks, each figure at each of its settings, built pages.
THOROUGH = (
    "counter",
    "models/test_vision.py",
    "models/test_convnets.py",
    "models/test_display_names.py",
    "models/test_activations.py",
    "models/test_windows.py",
    "book/gallery",
    "book/test_site.py",
    "browser",
    "zoo",
)
# Of these folders it runs this much.
SAMPLE = (
    "counter/test_against_torch.py",
    "counter/test_attention.py",
    "counter/test_bytes.py",
    "counter/test_conventions_of_reports.py",
    "counter/test_every_operator.py",
    "counter/test_modules.py",
    "counter/test_phases.py",
    "counter/test_products_counted.py",
    "counter/test_report.py",
    "counter/test_unknown.py",
    "book/gallery/test_conventions.py",
    "book/gallery/test_dense.py",
)
# One in so many parameters of a test, and one at least.
ONE_IN = 4
# Seconds each: they start other programs or measure. A whole file, or a test of it.
COSTLY = (
    "book/test_executed.py::test_a_chapter_runs_in_a_kernel_of_a_reader",
    "book/test_links.py::test_numbers_are_consecutive_and_mentions_exist",
    "diagnosis/test_threads.py::test_of_arbitrary_mfus_few_are_explained",
    "experiments/test_all_reduce.py",
    "experiments/test_cnn_operators.py",
    "experiments/test_cnns.py",
    "experiments/test_experiments.py",
    "experiments/test_experts.py",
    "experiments/test_on_a_card.py::test_an_experiment",
    "experiments/test_on_a_card.py::test_what_is_computed_again_is_no_part_of_mfu",
    "experiments/test_strategies.py",
    "experiments/test_under_counters.py::test_the_operators_add_up_to_the_step",
    "experiments/test_wire.py",
    "integrations/test_attached.py::test_a_program_does_what_it_does_by_itself",
    "integrations/test_attached.py::test_a_program_that_dies_dies_as_by_itself",
    "integrations/test_attached.py::test_the_ranks_of_torchrun",
    "integrations/test_transformers.py::test_an_evaluation_is_in_no_step",
    "measuring/test_ceilings.py::test_a_wrong_product_is_kept_and_is_no_peak",
    "measuring/test_ceilings.py::test_from_the_search_to_the_kept_file",
    "profiling/test_gloo.py::test_a_step_of_two_processes_shows_its_communication",
    "recordings/test_traces.py::test_rates_take_in_every_call",
    "test_benchmarks.py::test_a_part_gives_rows_of_the_table",
    "test_cli.py::test_an_error_does_not_repeat_a_whole_file",
    "test_house.py::test_in_the_counter_a_plain_name_is_for_another_file",
)


def is_thorough(path: Path) -> bool:
    """Whether `--most`, and so `--fast`, passes over this file."""
    if path.suffix != ".py" or any(path == TESTS / kept for kept in SAMPLE):
        return False
    return any((TESTS / name) in (path, *path.parents) for name in THOROUGH)


def is_costly_file(path: Path) -> bool:
    """Whether `--fast` passes over this file, too."""
    return any(path == TESTS / name for name in COSTLY)


def sampled(names: Sequence[str]) -> set[str]:
    """Of the names of tests, such as ``tests/test_a.py::test_b[c]``, those that `--fast` runs.

    >>> names = [f"tests/test_a.py::test_b[{i}]" for i in range(100)]
    >>> found = sampled(["tests/test_a.py::test_c", "tests/test_a.py::test_d[only]", *names])
    >>> len(found), found == sampled([*reversed(names), "tests/test_a.py::test_d[only]", "tests/test_a.py::test_c"])
    (26, True)
    """
    tests: dict[str, list[str]] = {}
    for name in names:
        tests.setdefault(name.partition("[")[0], []).append(name)
    found: set[str] = set()
    for test, each in tests.items():
        if test.removeprefix("tests/") in COSTLY:
            continue
        chosen = [name for name in each if _checksum(name) % ONE_IN == 0]
        found.update(chosen if len(each) > 1 and chosen else [min(each, key=_checksum)])
    return found


def _checksum(name: str) -> int:
    return zlib.crc32(name.encode())


def of_items(items: list[Any]) -> tuple[list[Any], list[Any]]:
    """pytest's items: those that `--fast` runs, and the others, among them all that are marked ``slow``."""
    names = sampled([item.nodeid for item in items if not item.get_closest_marker("slow")])
    return [item for item in items if item.nodeid in names], [item for item in items if item.nodeid not in names]
