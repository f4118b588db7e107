"""Modules that are made in forward: named below their caller, and looked for in a time that grows with their number."""

import pytest
import torch
from torch import nn

import flopkit as fk

X = torch.ones(1, 4)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x):
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU())(nn.ReLU()(self.l(x)))


def test_they_stand_below_their_caller():
    names = [row["module"] for row in fk.count(nn.Sequential(Block(), Block()), X).by_module()]
    assert [name for name in names if name.startswith("1.")] == [
        "1.l", "1.(ReLU)", "1.(Sequential)", "1.(Sequential).0", "1.(Sequential).1",
    ]  # fmt: skip


def test_the_search_for_them_grows_with_their_number(monkeypatch):
    visited, original = [0], nn.Module.named_modules

    def named_modules(module, *args, **kwargs):
        for each in original(module, *args, **kwargs):
            visited[0] += 1
            yield each

    monkeypatch.setattr(nn.Module, "named_modules", named_modules)
    found = []
    for blocks in (20, 40):
        visited[0] = 0
        fk.count(nn.Sequential(*[Block() for _ in range(blocks)]), X)
        found.append(visited[0])
    assert found[1] == pytest.approx(2 * found[0], rel=0.1)


def test_what_is_registered_while_it_is_counted_has_its_name():
    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.made = nn.Linear(4, 4), nn.ModuleList()
            self.caller = Caller()

        def forward(self, x):
            self.caller(x, nn.ReLU())
            leaf, family = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))
            self.made.append(leaf)
            self.caller(x, leaf)
            self.made.append(family)
            self.late = nn.ModuleDict({"family": nn.Sequential(nn.Linear(4, 4))})
            self.caller(x, self.late["family"])
            return self.caller(self.caller(x, self.first), family)

    class Caller(nn.Module):
        def forward(self, x, module):
            return module(x)

    names = [row["module"] for row in fk.count(Growing(), X).by_module()]
    assert {"made.0", "made.1.0", "late.family.0", "first", "caller.(ReLU)"} <= set(names)
    assert not any("(Linear)" in name for name in names)


def test_nothing_is_kept_of_what_was_registered():
    from torch.nn.modules import module

    from flopkit.counter.watch.modules import registered

    before = dict(module._global_module_registration_hooks)
    fk.count(nn.Sequential(Block()), X)
    assert not registered.found
    assert dict(module._global_module_registration_hooks) == before
