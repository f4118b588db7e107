"""Vector FLOPs of pooling where windows reach over a border: of each only the elements of the image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings, strategies as st

import flopkit as fk


def image(*shape):
    return torch.empty(*shape, device="meta")


def vector(fn, *args, **kwargs):
    return fk.count(fn, *args, strict=True, **kwargs).vector_flops


def test_pooling_at_a_border():
    """Windows of 2, 3, 3 and 2 elements; of 2, 3 and 2; of 3 and, cut off, 2."""
    assert vector(F.avg_pool2d, image(1, 1, 4, 4), 3, 1, 1) == (2 + 3 + 3 + 2) ** 2 + 16
    assert vector(F.max_pool2d, image(1, 1, 5, 5), 3, 2, 1) == (2 + 3 + 2) ** 2
    assert vector(F.avg_pool1d, image(1, 1, 4), 3, 2, ceil_mode=True, count_include_pad=False) == 3 + 2 + 2


# Along one dimension: kernel, step, padding, dilation.
SLIDES = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2), st.integers(1, 3))


@settings(max_examples=40, deadline=None)
@given(st.tuples(*[st.integers(4, 9)] * 2), st.tuples(SLIDES, SLIDES), st.booleans())
def test_every_window_holds_what_of_it_lies_in_the_image(sides, slides, ceil_mode):
    """Pooled ones, each pixel by itself: how many windows is it in?"""
    kernel, step, padding, dilation = zip(*slides, strict=True)
    padding = tuple(min(p, k // 2) for p, k in zip(padding, kernel, strict=True))  # more is refused
    assume(all(side + 2 * p > (k - 1) * d for side, p, k, d in zip(sides, padding, kernel, dilation, strict=True)))
    pixels = torch.eye(sides[0] * sides[1]).unflatten(1, (1, *sides))

    def taps(pooled):
        return int((pooled > 0).sum())

    batch = image(2, 3, *sides)
    largest = F.max_pool2d(pixels, kernel, step, padding, dilation, ceil_mode)
    assert vector(F.max_pool2d, batch, kernel, step, padding, dilation, ceil_mode) == 6 * taps(largest)
    means = F.avg_pool2d(pixels, kernel, step, padding, ceil_mode)
    expected = 6 * (taps(means) + means[0].numel())
    assert vector(F.avg_pool2d, batch, kernel, step, padding, ceil_mode) == expected
    batch.requires_grad_()
    report = fk.count(lambda: F.avg_pool2d(batch, kernel, step, padding, ceil_mode).sum().backward())
    assert report.backward.vector_flops == expected
