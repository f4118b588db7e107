"""The roof on paper, the roof that is reached, and the bend between its parts, against arithmetic by hand."""

import pytest

import flopkit as fk
from flopkit.book.gallery import reached_roof
from flopkit.book.gallery.roofs import PAIRS

FIGURE = reached_roof()
H100 = "H100 SXM5 80 GB, bf16"


@pytest.mark.parametrize("of_peak", [0.5, 1.0])
@pytest.mark.parametrize("of_bandwidth", [0.4, 1.0])
@pytest.mark.parametrize("overlap", [0.0, 0.25, 1.0])
@pytest.mark.parametrize(("launch", "features"), [(0.0, 8192), (1e-5, 8192), (2e-5, 2048)])
def test_a_layer_by_hand(of_peak, of_bandwidth, overlap, launch, features):
    """256 tokens in bf16. Where kernels queue, a launch hides behind the work before it: 10 µs behind 40, but 20 µs not behind 2 to 13."""
    shares = {"of_peak": of_peak, "of_bandwidth": of_bandwidth, "overlap": overlap}
    found = FIGURE.at(device=H100, features=features, launch=launch, **shares)
    flops, moved = 2 * 256 * features**2, 2 * (2 * 256 * features + features**2)
    assert (found["flops"], found["bytes"]) == (flops, moved)
    compute, memory = flops / 989.4e12, moved / 3.35e12
    longer, shorter = sorted((compute / of_peak, memory / of_bandwidth), reverse=True)
    waits = launch == 2e-5
    assert found["seconds"] == pytest.approx(2e-5 if waits else longer + (1 - overlap) * shorter)
    assert found["least"] == pytest.approx(max(compute, memory))
    by = "compute" if compute / of_peak > memory / of_bandwidth else "memory"
    assert found["bound"] == ("launch" if waits else by)
    assert found["used"] == pytest.approx(flops / found["seconds"] / 989.4e12)
    assert found["ridge"] == pytest.approx(989.4 * of_peak / 3.35 / of_bandwidth)


@pytest.mark.parametrize(
    ("device", "known"), list(zip(FIGURE.controls["device"].options, [name for name, _ in PAIRS], strict=True))
)
def test_on_paper_it_is_the_roofline(device, known):
    found = FIGURE.at(device=device, tokens=512, of_peak=1.0, of_bandwidth=1.0, overlap=1.0, launch=0.0)
    dtype = device.rpartition(" ")[2]
    cost = fk.dense(tokens=512, d_in=8192, d_out=8192, dtype=dtype)
    assert found["seconds"] == found["least"] == pytest.approx(fk.roofline(cost, known, dtype).seconds)
    assert found["slower"] == 1 and found["ridge"] == pytest.approx(found["printed_ridge"])


def test_the_curves_by_hand():
    """Without any overlap, time at the ridge is twice the longer part, so the curve is at half of the roof there, and never lower."""
    rows = FIGURE.rows(device=H100, of_peak=0.5, of_bandwidth=0.5, overlap=0.0)
    for row in rows:
        assert row["paper"] == pytest.approx(min(989.4e12, 3.35e12 * row["per_byte"]))
        assert row["roof"] == pytest.approx(row["paper"] / 2)
        assert row["bent"] == pytest.approx(1 / (2 / 989.4e12 + 2 / (3.35e12 * row["per_byte"])))
        assert 0.5 * (1 - 1e-12) <= row["bent"] / row["roof"] < 1
    full = FIGURE.rows(device=H100, of_peak=0.5, of_bandwidth=0.5, overlap=1.0)
    assert all(row["bent"] == pytest.approx(row["roof"]) for row in full)


@pytest.mark.parametrize("device", FIGURE.controls["device"].options)
@pytest.mark.parametrize("of_peak", [0.4, 0.8, 1.0])
def test_both_roofs_have_their_corner(device, of_peak):
    """A line through sampled points cuts a corner off unless one of the points is the corner."""
    at = {"device": device, "of_peak": of_peak, "of_bandwidth": 0.85}
    rows, found = FIGURE.rows(**at), FIGURE.at(**at)
    corner = {row["per_byte"]: row for row in rows}
    assert corner[found["printed_ridge"]]["paper"] == pytest.approx(found["printed_peak"])
    assert corner[found["ridge"]]["roof"] == pytest.approx(found["reached_peak"])
    assert found["ridge"] == pytest.approx(found["printed_ridge"] * of_peak / 0.85)


def test_no_layer_is_faster_than_its_launch():
    """128 wide, one token on a T4: its bytes take a tenth of a microsecond, the start five."""
    found = FIGURE.at(device="T4 16 GB, fp16", tokens=1, features=128, launch=5e-6)
    assert found["least"] == pytest.approx(2 * (2 * 128 + 128**2) / 320e9) and found["least"] < 1.1e-7
    assert found["seconds"] == 5e-6 and found["bound"] == "launch"
    small = FIGURE.presets["Small: the launch sets the time"]
    assert FIGURE.at(**small)["bound"] == "launch" and FIGURE.at(**{**small, "features": 8192})["bound"] == "memory"


def test_the_launch_moves_the_dot_of_a_small_layer_and_no_curve():
    small = FIGURE.presets["Small: the launch sets the time"]
    still, started = (small | {"launch": launch} for launch in (0.0, 1e-5))
    assert [row["bent"] for row in FIGURE.rows(**still)] == [row["bent"] for row in FIGURE.rows(**started)]
    assert FIGURE.at(**started)["rate"] < FIGURE.at(**still)["rate"]
    assert FIGURE.at(launch=1e-5)["rate"] == FIGURE.at(launch=0.0)["rate"]  # 256 tokens through 8,192 take longer


def test_our_layer_takes_its_measured_time_if_a_quarter_of_its_reading_is_not_hidden():
    """256 tokens through 8,192 → 8,192 in tf32: 2·256·8192² FLOPs at 494.5 TFLOP/s, 4·(8192² + 2·256·8192) bytes at 4.8 TB/s; 109.4 µs on our H200."""
    ours = FIGURE.presets["Our layer, full overlap"]
    compute, memory = 2 * 256 * 8192**2 / 494.5e12 / 0.75, 4 * (8192**2 + 2 * 256 * 8192) / 4.8e12 / 0.9
    assert FIGURE.at(**ours)["seconds"] == pytest.approx(compute)
    partly = FIGURE.at(**ours | {"overlap": 0.75})["seconds"]
    assert partly == pytest.approx(compute + memory / 4) == pytest.approx(109.4e-6, rel=5e-3)
    recorded = fk.recordings.records("dense_batch", owner="ours", device="h200")
    [case] = [case for case in recorded if (case["dtype"], case["params"]["tokens"]) == ("tf32", 256)]
    assert case["seconds"]["low"] < partly < case["seconds"]["high"]


def test_a_preset_sets_every_control():
    """Or its name stays in the drop-down when the width or the device is another."""
    for name, settings in FIGURE.presets.items():
        assert settings.keys() == FIGURE.controls.keys(), name
    narrow = FIGURE.at(**FIGURE.presets["Narrow: never compute-bound"])
    assert narrow["bound"] == "memory" and narrow["intensity"] < 128


@pytest.mark.parametrize("device", FIGURE.controls["device"].options)
def test_the_dot_and_the_ridge_are_in_the_picture_which_is_enlarged_near_the_ridge(device):
    for tokens in (1, 16, 256, 4096, 65536):
        for features, launch in ((512, 2e-5), (8192, 0.0), (32768, 5e-6)):
            found = FIGURE.at(
                device=device,
                tokens=tokens,
                features=features,
                launch=launch,
                overlap=0.0,
                of_peak=0.4,
                of_bandwidth=0.4,
            )
            assert found["left"] <= found["intensity"] <= found["right"], (tokens, features)
            assert found["drawn"] == max(found["rate"], found["down"])  # a launch may put it at the foot of the axis
            assert found["down"] < found["rate"] < found["up"] or not found["near"]
            assert found["drawn"] < found["up"] and found["printed_peak"] < found["up"]
            assert found["left"] < found["printed_ridge"] < found["right"]
    near, far = FIGURE.at(device=device), FIGURE.at(device=device, tokens=1)
    assert near["up"] / near["down"] < 110 < 10_000 < far["up"] / far["down"]
    assert far["down"] <= min(FIGURE.rows(device=device, of_bandwidth=0.4, overlap=0.0)[2]["bent"] for _ in "1")


def test_the_gap_reaches_from_the_dot_to_the_roof_on_paper():
    found = FIGURE.at(device=H100, overlap=0.0)
    assert found["above"] == pytest.approx(min(989.4e12, 3.35e12 * found["intensity"]), rel=1e-4)
    assert found["rate"] < found["middle"] < found["above"]
