"""The stepper of the online softmax: against a softmax over all scores at once, and a walk that never corrects."""

import math

import pytest

from flopkit.book.gallery import online_softmax_steps
from flopkit.book.gallery.online_softmax import SCORES

FIGURE = online_softmax_steps()


@pytest.mark.parametrize("title", SCORES)
@pytest.mark.parametrize("tile", [1, 2, 3, 4])
def test_tile_by_tile_is_the_softmax_in_one_piece(title, tile):
    """All keys so far: weights relative to no maximum at all, for these scores are small."""
    seen = SCORES[title][: 2 * tile]
    total = sum(math.exp(score) for score in seen)
    mean = sum(math.exp(score) * key for key, score in enumerate(seen, 1)) / total
    found = FIGURE.at(tile=tile, scores=title)
    assert found["m"] == max(seen)
    assert found["total"] * math.exp(max(seen)) == pytest.approx(total)
    assert found["output"] == pytest.approx(mean) == found["exact"]
    for row in FIGURE.rows(tile=tile, scores=title):
        came = row["key"] <= 2 * tile
        assert row["weight"] == row["due"] == pytest.approx(came * math.exp(row["score"] - max(seen)))
    assert sum(row["weight"] for row in FIGURE.rows(tile=tile, scores=title)) == pytest.approx(found["total"])


@pytest.mark.parametrize("title", SCORES)
def test_forgotten_corrections_leave_each_weight_as_it_came(title):
    """A weight is then relative to the largest score of its own day. Where no larger score comes, nothing is wrong."""
    row, sums = SCORES[title], [0.0, 0.0]
    for tile in (1, 2, 3, 4):
        largest = max(row[: 2 * tile])
        for key in (2 * tile - 1, 2 * tile):
            weight = math.exp(row[key - 1] - largest)
            sums = [sums[0] + weight, sums[1] + weight * key]
        found = FIGURE.at(tile=tile, scores=title, forget=True)
        assert (found["total"], found["out"]) == pytest.approx(tuple(sums)) and found["times"] == 1
        bars = FIGURE.rows(tile=tile, scores=title, forget=True)
        assert sum(bar["weight"] for bar in bars) == pytest.approx(sums[0])
        right = found["output"] == pytest.approx(found["exact"])
        assert right == ("forget" in FIGURE.idle(tile=tile, scores=title, forget=True)) == (largest == max(row[:2]))


def test_it_starts_at_the_first_tile():
    """Nothing has been corrected yet: two bars, and the sums of scores 1 and 0."""
    assert FIGURE.at()["total"] == pytest.approx(1 + math.exp(-1)) and FIGURE.at()["out"] == pytest.approx(
        1 + 2 * math.exp(-1)
    )
    assert [row["came"] for row in FIGURE.rows()] == [1, 1, 0, 0, 0, 0, 0, 0]


def test_the_title_is_what_the_preset_shows():
    """The second tile of rising scores shrinks both weights of the first by the same factor, 1/e."""
    before, after = (FIGURE.rows(**FIGURE.presets[name]) for name in ("First tile", "A larger score"))
    ratios = [now["weight"] / then["weight"] for then, now in zip(before[:2], after[:2], strict=True)]
    assert ratios == pytest.approx([math.exp(1 - 2)] * 2)
    assert FIGURE.at(**FIGURE.presets["A larger score"])["times"] == pytest.approx(ratios[0])
    wrong = FIGURE.at(**FIGURE.presets["Forgotten"])
    assert wrong["exact"] / wrong["output"] > 1.5
