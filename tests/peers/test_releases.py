"""Which versions of a tool something is known of: of the one that was asked, and of later ones as far as they do the same."""

import re

import pytest
import torch
import torch.nn.functional as F

import flopkit as fk
from flopkit.peers import asking, why
from flopkit.peers.asking import sure
from flopkit.peers.releases import Releases, release
from flopkit.peers.why import read

CPU_ATTENTION = "scaled_dot_product_attention, flash (CPU)"


def test_versions_are_compared_by_their_numbers():
    assert release("2.9") < release("2.13") == release("2.13.0+cpu") < release("2.13.1") < release("2.14.0.dev20261101")
    with pytest.raises(ValueError, match="version='new': must begin with numbers"):
        release("new")


def test_from_one_up_to_another():
    some, one = Releases("2.13.0", "2.15"), Releases("0.1.1.post22")
    assert [v in some for v in ("2.12.9", "2.13", "2.13.0+cpu", "2.14.1", "2.15.0", None)] == [0, 1, 1, 1, 0, 0]
    assert [v in one for v in ("0.1.1.post22", "0.1.1.post22+local", "0.1.1", "0.1.2", None)] == [1, 1, 0, 0, 0]
    for until in ("2.13", "2.12"):
        with pytest.raises(ValueError, match=f"until='{until}': must be later than since='2.13.0'"):
            Releases("2.13.0", until)


@pytest.mark.parametrize("tool", why.blind_spots())
def test_what_was_asked_is_known_and_unchanged(tool):
    known = why.blind_spots()[tool]
    asked = known.releases.since
    assert asked in known.unchanged and asked in known.releases and known.changes(asked) == ""
    assert (known.unchanged == known.releases) == (tool != "torch")


@pytest.fixture
def pretend(monkeypatch):
    def version(version):
        monkeypatch.setattr(asking, "version", lambda package: version)

    return version


def test_a_later_version_that_does_the_same_is_as_good(pretend, capsys):
    pretend("2.14.1+cu130")
    assert sure("torch", "torch.profiler") and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("2.15.0", f"(this is 2.15.0, which counts {CPU_ATTENTION})"),
        ("2.16.0", "(this is 2.16.0)"),
        ("2.12.1", "(this is 2.12.1)"),
    ],
)
def test_one_that_does_something_else_is_told(pretend, capsys, version, says):
    pretend(version)
    assert not sure("torch")
    assert capsys.readouterr().out == f"not checked here: torch 2.13.0 and later, before 2.15 {says}\n"


@pytest.mark.parametrize(
    ("version", "why_half"),
    [
        ("2.13.0", "scaled_dot_product_attention: 0 (2.048 kFLOPs)"),
        ("2.14.1+cu130", "scaled_dot_product_attention: 0 (2.048 kFLOPs)"),
        ("2.15.0", "not known"),
        ("2.16.0", "not known of this version"),
    ],
)
def test_the_reason_is_that_of_the_version(version, why_half):
    """Of a product and attention the half without attention is what torch printed up to 2.14; a later one would have another reason."""
    q = torch.ones(1, 2, 8, 4)
    report = fk.count(lambda: F.scaled_dot_product_attention(q, q, q) @ q.mT)
    answer = asking.Answer("torch", version, "", 2 * 2 * 8 * 8 * 4, "FLOPs", 2)
    assert why.reason(answer, report) == why_half


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('zero = [{ operator = "mv", until = "2.20" }]', "torch: of 'mv' ['2.20'] must lie within 2.13.0 and later, before 2.16"),
        ('zero = [{ operator = "mv", since = "2.13" }]', "torch: of 'mv' ['2.13'] must lie within 2.13.0 and later, before 2.16"),
        ('zero = [{ operator = "mv", until = "2.15", since = "2.15" }]', "until='2.15': must be later than since='2.15'"),
        ('zero = [{ operator = "mv", til = "2.15" }]', "til"),
        ('zero = []\nadds = "biases"', "adds"),
    ],
)  # fmt: skip
def test_a_file_is_checked(text, says):
    head = '[torch]\nsince = "2.13.0"\nuntil = "2.16"\n'
    with pytest.raises((ValueError, TypeError), match=re.escape(says)):
        read(head + text)


def test_an_operator_that_became_zero_later():
    known = read('[torch]\nsince = "2.13"\nuntil = "2.16"\nzero = ["mv", { operator = "dot", since = "2.14" }]')[
        "torch"
    ]
    assert known.unchanged == Releases("2.13", "2.14") and known.changes("2.15.0") == "counts no dot"
    assert ["2.13.0" in known.zero["dot"], "2.15.0" in known.zero["dot"], "2.15.0" in known.zero["mv"]] == [0, 1, 1]
