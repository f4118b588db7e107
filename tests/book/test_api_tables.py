"""Tables that the reference pages make from flopkit's own data: nothing is missing, and
what only torch's tests use is left out."""

from book_ext import api_tables, counter_details_page
from flopkit import conventions, recordings
from flopkit.conventions import KINDS, VECTOR_KINDS
from flopkit.counter.formulas.unknown import UNEXPLAINED
from flopkit.layers.pointwise import ACTIVATIONS


def rows(table):
    head, rule, *lines = table.splitlines()
    assert head.count("|") == rule.count("|") and all(line.count("|") == head.count("|") for line in lines)
    return lines


def test_every_kind_of_work_is_listed_where_it_belongs():
    lines = rows(api_tables.kinds())
    assert len(lines) == len(KINDS) + len(VECTOR_KINDS)
    for kind in (KINDS | VECTOR_KINDS).values():
        [line] = [line for line in lines if line.startswith(f"| `{kind.name}` |")]
        assert kind.text in line and ("`macs_by_kind`" in line) == (kind.name in KINDS)
        assert ("(not executed)" in line) == (not kind.executed)


def test_every_convention_is_listed_with_its_source():
    lines = rows(api_tables.conventions())
    wanted = {name: value for name, value in vars(conventions).items() if isinstance(value, conventions.Convention)}
    assert len(lines) == len(wanted) and lines[0].startswith("| `EXACT` |")
    for name, convention in wanted.items():
        assert f"| `{name}` | {convention.source} |" in lines


def test_kinds_and_verdicts_of_measurements_are_listed():
    lines = rows(api_tables.recordings())
    assert lines[0] == f"| `training` | kind | {recordings.MEASURED_KINDS['training']} |"
    assert len(lines) == len(recordings.MEASURED_KINDS) + len(recordings.VERDICTS)
    assert f"| `above the peak` | verdict | {recordings.VERDICTS['above the peak']} |" in lines


def test_every_activation_is_listed_with_its_flops():
    lines = rows(api_tables.activations())
    assert len(lines) == len(ACTIVATIONS)
    for line, (name, recipe) in zip(lines, ACTIVATIONS.items(), strict=True):
        assert line == f"| `{name}` | {recipe.flops} | {recipe.steps} |"


def test_operators_that_a_program_may_meet_are_listed_once():
    text = "\n".join(rows(counter_details_page.unexplained()))
    for name, reason in UNEXPLAINED.items():
        assert text.count(f"`{name}`") == (not reason.startswith("only torch's own tests")), name
