"""The roofline of a dense layer, against numbers worked out by hand and by trying."""

import math

import pytest

from flopkit.book.gallery import dense_roofline

FIGURE = dense_roofline()
H100 = "H100 SXM5 80 GB, bf16"


def test_one_token_by_hand():
    found = FIGURE.at(tokens=1, d_in=4096, d_out=16384, device=H100)
    assert found["flops"] == 134_217_728
    assert found["bytes"] == 134_258_688  # 8,192 of input, 134,217,728 of weight, 32,768 of output
    assert found["bound"] == "memory"
    assert found["seconds"] == pytest.approx(134_258_688 / 3.35e12)
    assert found["busy"] == pytest.approx(0.003385, rel=1e-3)


@pytest.mark.parametrize("preset", FIGURE.presets)
@pytest.mark.parametrize("device", FIGURE.controls["device"].options)
def test_tokens_at_the_ridge_by_trying(preset, device):
    """The figure solves for the tokens; here they are tried one after the other, by the formula of intensity alone."""
    sizes = {**FIGURE.presets[preset], "device": device}
    at = FIGURE.at(**sizes)
    width = 1 if device.endswith("fp8") else 2
    a, b = at_sizes(sizes)

    def intensity(tokens):
        return 2 * tokens * a * b / (width * (tokens * a + a * b + tokens * b))

    if at["tokens_at_ridge"] == "never":
        assert intensity(10**12) < at["ridge"]
    else:
        tokens = round(at["tokens_at_ridge"])
        assert intensity(tokens) >= at["ridge"] > intensity(tokens - 1)


def at_sizes(sizes):
    return sizes.get("d_in", 4096), sizes.get("d_out", 16384)


def test_the_trail_climbs_and_then_is_flat():
    rates = [row["attainable"] for row in FIGURE.rows(device=H100)]
    assert rates == sorted(rates) and rates[-1] == rates[-2] == 989.4e12
    assert math.isclose(rates[1] / rates[0], 2, rel_tol=1e-3)
