"""What is asked of a tool that is not there, or that is there and cannot be imported."""

from __future__ import annotations

import pytest
import torch

from flopkit.counter.peers import asked
from flopkit.counter.peers.recorded import versions


@pytest.fixture
def broken(monkeypatch):
    """thop as it is where distutils is gone: installed, with a version, and not to be imported."""
    monkeypatch.setattr(asked, "load", lambda name: None)
    monkeypatch.setattr(asked, "version", lambda name: versions()["thop"])


def test_a_tool_that_cannot_be_imported_is_missing(broken, capsys):
    answer = asked.ask("thop", torch.nn.Linear(2, 2), torch.ones(1, 2))
    assert (answer.value, answer.said) == (None, "missing")
    assert not asked.sure("thop")
    assert "thop" in capsys.readouterr().out
