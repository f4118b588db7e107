"""Measurements of several owners on one roofline."""

import pytest

from flopkit import device
from flopkit.charts import Dots, measured, on_one_roof, published, theme
from flopkit.recordings.cases import Case


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
    assert "theirs: datasheet roof; mine: measured roof" in figure.caption and "nobody" not in figure.caption
    assert on_one_roof(layers[:2], "A title", "A conclusion.").caption == "Each roof is that of the device's datasheet."
    axes = figure.spec()["layer"][1]["encoding"]
    for name, of in (("x", "intensity"), ("y", "rate")):
        low, high = axes[name]["scale"]["domain"]
        assert all(low < row[of] < high for row in figure.data())
    assert axes["color"]["scale"]["domain"] == axes["shape"]["scale"]["domain"] == ["theirs", "mine"]


def test_a_name_stands_beside_the_dots_of_its_label(layers):
    plain = on_one_roof(layers, "A title", "A conclusion.")
    names = {"slow": "the slow one", "fast": ("the fast one", "below"), "mine: slow": "my own"}
    named = on_one_roof(layers, "A title", "A conclusion.", names=names)
    assert [(row["right"], row["below"]) for row in named.data()] == [
        ("the slow one", ""), ("", "the fast one"), ("my own", "")
    ]  # fmt: skip
    marks = [[layer["mark"]["type"] for layer in figure.spec()["layer"]] for figure in (plain, named)]
    assert marks == [["line", "point"], ["line", "text", "text", "point", "text", "text"]]
    texts = [layer for layer in named.spec()["layer"] if layer["mark"]["type"] == "text"]
    dy = {layer["encoding"]["text"]["field"]: layer["mark"]["dy"] for layer in texts}
    assert sorted(dy) == ["below", "right"] and dy["below"] > 10 > dy["right"]  # y runs downwards
    with pytest.raises(ValueError, match=r"\('x', 'left'\): the side must be one of right, above, below"):
        on_one_roof(layers, "A title", "A conclusion.", names={"slow": ("x", "left")})


def test_a_page_of_the_book_leaves_its_builders_dots_out(layers, monkeypatch):
    own = [Dots(whose, 1e9, 1e9, "measured").add("slow", 1e6, 1e6, 1e-3) for whose in ("yours: a CPU", "your run")]
    owners = [
        list(dict.fromkeys(row["whose"] for row in on_one_roof([*layers, *own], "A title", "A conclusion.").data()))
        for page in ("", "1")
        if monkeypatch.setenv("FLOPKIT_BOOK", page) is None
    ]
    assert owners == [["theirs", "mine", "yours: a CPU", "your run"], ["theirs", "mine"]]
    assert "your" not in on_one_roof([*layers, *own], "A title", "A conclusion.").caption


def test_nothing_and_twice_the_same_are_refused(layers):
    with pytest.raises(ValueError, match="nothing was measured"):
        on_one_roof([Dots("nobody", 1.0, 1.0)], "A title", "A conclusion.")
    layers[0].add("slow", 1, 1, 1)
    with pytest.raises(ValueError, match="'theirs: slow' stands there twice"):
        on_one_roof(layers, "A title", "A conclusion.")


def test_published_products_have_their_place():
    from flopkit.recordings import records

    [h800] = published(records("matmul_sizes", owner="theirs", device="h800"))
    row = records("matmul_sizes", owner="theirs", device="h800")[0]["extra"]
    label, flops, bytes, seconds = h800.rows[0]
    assert label == f"m={row['m']}, n={row['n']}, k={row['k']}" and flops == 2 * row["m"] * row["n"] * row["k"]
    assert flops / seconds == pytest.approx(row["value"] * 1e12) and bytes / seconds == pytest.approx(
        row["bandwidth_GBps"] * 1e9
    )
    assert (h800.flops_per_s, h800.bytes_per_s) == (device("h800-sxm").peak("fp8"), device("h800-sxm").bandwidth)
    assert all(0 < each["rate"] <= 1 for each in h800.placed())

    v100 = published(records("matmul_sizes", owner="theirs", device="v100"))
    assert [dots.whose.rpartition(", ")[2] for dots in v100] == ["fp32", "fp16"]
    row = records("matmul_sizes", owner="theirs", device="v100", dtype="fp16")[0]["extra"]
    _label, _flops, bytes, seconds = v100[1].rows[0]
    m, n, k = row["m"], row["n"], row["k"]
    assert bytes == 2 * (m * k + k * n + m * n) and seconds == pytest.approx(row["value"] / 1e3)
    assert len(on_one_roof(v100, "A title", "A conclusion.").data()) == sum(len(dots.rows) for dots in v100)


def test_what_has_no_place_is_left_out():
    from flopkit.recordings import records

    assert published(records("cnns", owner="theirs")) == []
    some = records("matmul_sizes", owner="theirs", device="h800")[:1]
    for change in ({"count": 8}, {"device_name": None}, {"m": None}):
        some[0]["extra"] = {**records("matmul_sizes", owner="theirs", device="h800")[0]["extra"], **change}
        assert published(some) == []


def test_a_recording_that_ships_has_a_name_that_fits_a_legend():
    ok = {"verdict": "ok"}
    found = {
        "title": "a CPU",
        "matmul": {"fp32": {"flops_per_s": 1e11, **ok}},
        "traffic": {"copy": {"bytes_per_s": 1e10, **ok}},
    }
    found |= {"threads": 2, "memory": 1e9, "when": "2026-01-01"}
    record = {"case": "n=8", "dtype": "fp32", "counted": {"flops": 1024, "bytes": 768}, "seconds": {"mean": 1e-6}, **ok}
    said = "recorded by somebody on a machine that takes a whole line to describe, 2026-01-01"
    shipped, own = (
        Case(record, "ours", said, "a CPU", found),
        Case(record, "yours", "yours: a CPU, 2026-01-02", "a CPU", found),
    )
    assert [dots.whose for dots in measured([shipped, own])] == ["ours: a CPU, fp32", "yours: a CPU, 2026-01-02, fp32"]


def test_a_name_keeps_the_grid_off(layers):
    """Its halo lies on the roof and below the dots, so that no dot near by loses an edge."""
    layers = [layers[0], layers[2]]
    spec = on_one_roof(
        layers, "A title", "A conclusion.", names={"fast": "quick", "theirs: slow": ("slower", "above")}
    ).spec()
    marks = [layer["mark"] for layer in spec["layer"]]
    assert [mark["type"] for mark in marks] == ["line", "text", "text", "point", "text", "text"]
    assert [mark.get("strokeWidth") == theme.HALO for mark in marks] == [False, True, True, False, False, False]
