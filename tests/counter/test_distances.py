"""Distances between rows: 2·P·R·M FLOPs, below 25 rows and above, where torch takes another way."""

import math

import pytest
import torch
import torch.nn.functional as F
from cases import WAYS, Table, call, t
from hypothesis import given, settings, strategies as st
from programs import PLACES, at, leaf, passes

import flopkit as fk


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("rows", [5, 30])
def test_cdist(rows, p, place):
    with at(place) as device:
        x, y = leaf(rows, 3, device=device), leaf(6, 3, device=device)
        once = 2 * rows * 6 * 3
        assert passes(lambda: torch.cdist(x, y, p)) == (once, 2 * once)
        sides = 1 + (
            rows > 25 and p == 2
        )  # differentiating its way by a product, torch takes both sides whatever is asked
        assert passes(lambda: torch.cdist(x, y.detach(), p)) == (once, sides * once)


@settings(max_examples=15, deadline=None)
@given(batch=st.integers(0, 3), p=st.integers(0, 40), r=st.integers(0, 40), m=st.integers(1, 4))
def test_linear_in_everything(batch, p, r, m):
    assert fk.count(torch.cdist, torch.ones(batch, p, m), torch.ones(batch, r, m)).flops == batch * 2 * p * r * m


@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"])
def test_the_way_makes_no_difference(mode):
    x, y = leaf(2, 30, 3), leaf(2, 6, 3)
    assert passes(lambda: torch.cdist(x, y, compute_mode=mode))[0] == 2 * 2 * 30 * 6 * 3


def test_a_root_for_each_distance():
    assert fk.count(torch.cdist, torch.ones(5, 3), torch.ones(6, 3)).vector_flops == 30


@pytest.mark.parametrize("place", PLACES)
def test_pdist(place):
    with at(place) as device:
        assert passes(lambda: F.pdist(leaf(6, 3, device=device))) == (2 * 15 * 3, 4 * 15 * 3)


# -- a table: every way of running -----------------------------------------------------------------------------------

TABLE = Table()
case = TABLE.case

# fmt: off
case("cdist of few rows", lambda: call(torch.cdist, t(2, 6, 5), t(2, 7, 5)), 2 * 2 * 6 * 7 * 5)
case("cdist of many rows", lambda: call(torch.cdist, t(40, 5), t(30, 5)), 2 * 40 * 30 * 5)
case("cdist with p = 1", lambda: call(torch.cdist, t(40, 5), t(30, 5), p=1.0), 2 * 40 * 30 * 5)
# fmt: on


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TABLE)
def test_flops(name, way):
    TABLE.check(name, way)
