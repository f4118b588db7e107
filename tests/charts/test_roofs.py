"""Measurements of several owners on one roofline."""

import pytest

from flopkit.charts import Dots, on_one_roof


@pytest.fixture
def layers():
    theirs = Dots("theirs", 1e12, 1e11).add("slow", 1e9, 1e9, 0.02).add("fast", 1e9, 1e6, 2e-3)
    mine = Dots("mine", 1e9, 1e9, "measured").add("slow", 1e6, 1e6, 1e-3)
    return [theirs, Dots("nobody", 1.0, 1.0), mine]


def test_each_dot_is_a_share_of_its_own_device(layers):
    rows = on_one_roof(layers, "A title", "A conclusion.").data()
    assert [(row["whose"], row["label"]) for row in rows] == [("theirs", "slow"), ("theirs", "fast"), ("mine", "slow")]
    assert [row["intensity"] for row in rows] == pytest.approx([0.1, 100, 1])
    assert [row["rate"] for row in rows] == pytest.approx([0.05, 0.5, 1])
    assert [row["roof"] for row in rows] == pytest.approx([0.1, 1, 1])


def test_the_plot_holds_every_dot_and_names_its_owner(layers):
    figure = on_one_roof(layers, "A title", "A conclusion.")
    assert "theirs: datasheet ceilings; mine: measured ceilings" in figure.caption and "nobody" not in figure.caption
    axes = figure.spec()["layer"][1]["encoding"]
    for name, of in (("x", "intensity"), ("y", "rate")):
        low, high = axes[name]["scale"]["domain"]
        assert all(low < row[of] < high for row in figure.data())
    assert axes["color"]["scale"]["domain"] == axes["shape"]["scale"]["domain"] == ["theirs", "mine"]


def test_nothing_and_twice_the_same_are_refused(layers):
    with pytest.raises(ValueError, match="nothing was measured"):
        on_one_roof([Dots("nobody", 1.0, 1.0)], "A title", "A conclusion.")
    layers[0].add("slow", 1, 1, 1)
    with pytest.raises(ValueError, match="'theirs: slow' stands there twice"):
        on_one_roof(layers, "A title", "A conclusion.")
