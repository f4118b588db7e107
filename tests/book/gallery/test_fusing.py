"""The figure of fused kernels: against the model's own parts, the tensors that stay on the chip, and the kernels by name."""

import itertools

import pytest

import flopkit as fk
from flopkit.book.gallery import fused_kernels, layer_shares
from flopkit.book.gallery.fusing import BOTH, MATMUL, OPERATORS, OTHER, SUMS
from flopkit.book.gallery.rest import MODELS

FIGURE = fused_kernels()
ALONE, PAIR, BEFORE = SUMS
S, H, W = (
    2 * 8192 * 4096,
    2 * 8192 * 14336,
    2 * 4096 * 14336,
)  # bytes of Llama-3-8B: stream, hidden features, a matrix of the MLP
PARTS = {
    "residual sum before": ["mlp_sum"],
    "norm": ["attention_norm"],
    "q, k, v": ["q_proj", "k_proj", "v_proj"],
    "rotary": ["rotary"],
    "attention": ["attention"],
    "o": ["o_proj"],
    "residual sum": ["attention_sum"],
    "norm of the MLP": ["mlp_norm"],
    "gate, up": ["gate_proj", "up_proj"],
    "SwiGLU": ["swiglu"],
    "down": ["down_proj"],
}


def moved(**settings):
    return {row["operator"]: row["moved"] for row in FIGURE.rows(**settings)}


@pytest.mark.parametrize("title", MODELS)
@pytest.mark.parametrize("tokens", [1, 8192])
def test_apart_each_bar_is_the_model_s_own_part(title, tokens):
    layer = fk.load(MODELS[title]).layer(seq=tokens)
    parts = {part.name: part.bytes for part in layer.parts}
    assert moved(network=title, tokens=tokens) == {name: sum(parts[each] for each in of) for name, of in PARTS.items()}
    assert FIGURE.at(network=title, tokens=tokens)["bytes"] == layer.bytes
    assert list(PARTS) == list(OPERATORS.values())


def test_each_boundary_by_hand():
    """Llama-3-8B: what stays on the chip is neither written nor read, and a shared input is read once."""
    start = FIGURE.at()["bytes"]
    q, k, angles = S, S // 4, 2 * 8192 * 128
    by_hand = {
        ("sums", PAIR): 2 * S,  # two norms read no sum
        ("sums", BEFORE): 2 * 2 * S,  # the results of o and down are neither written nor read
        ("gated", True): 4 * H + S,
        ("turned", True): 2 * (q + k) + angles,
        ("merged", True): 2 * S,
        ("shared", True): S,
        ("flash", False): -4 * 2 * 32 * 8192**2,  # scores and weights, each written and read
    }
    for (control, value), saved in by_hand.items():
        assert start - FIGURE.at(**{control: value})["bytes"] == saved, control
    both = FIGURE.at(gated=True, shared=True)["bytes"]
    assert both == FIGURE.at(gated=True)["bytes"] and FIGURE.idle(gated=True) == {
        "shared": FIGURE.at(gated=True)["in_one"]
    }
    # boundaries save independently of each other, but for that one
    for some in itertools.combinations([each for each in by_hand if each[0] not in ("flash", "shared")], 3):
        settings = dict(some)
        if len(settings) == 3:
            assert start - FIGURE.at(**settings)["bytes"] == sum(by_hand[each] for each in some)
    bars = moved(gated=True, sums=BEFORE)
    assert (
        bars["gate, up"] == S + 2 * W + H and bars["SwiGLU"] == bars["residual sum"] == bars["residual sum before"] == 0
    )
    assert bars["down"] == H + W + 2 * S and bars["norm"] == 2 * S + 2 * 4096


def test_the_figure_of_shares_knows_the_same_fusions():
    shares = layer_shares()
    for settings, fused in (({}, "one for each operator"), ({"sums": PAIR}, "sums with their norms"),
                            ({"sums": PAIR, "gated": True, "turned": True}, "SwiGLU and rotary, too")):  # fmt: skip
        assert FIGURE.at(**settings)["bytes"] == shares.at(fused=fused)["bytes"]
        assert FIGURE.at(**settings)["others"] == pytest.approx(shares.at(fused=fused)["rest_bytes"], rel=1e-12)


def test_kernels_are_counted_and_coloured():
    """14 with FlashAttention: seven matmuls, attention, two norms, two sums, rotary, SwiGLU. The fewest are seven."""
    assert FIGURE.at()["kernels"] == 7 + 1 + 2 + 2 + 1 + 1
    assert FIGURE.at(flash=False)["kernels"] == 16
    assert FIGURE.at(**FIGURE.presets["Everything"])["kernels"] == len(
        ["norm", "qkv + rotary", "attention", "o + sum", "norm", "gate + up + SwiGLU", "down + sum"]
    )
    for settings in FIGURE.presets.values():
        rows = FIGURE.rows(**settings)
        gone = sum(row["moved"] == 0 for row in rows)
        assert {row["kind"] for row in rows} <= {MATMUL, OTHER, BOTH}
        sums = settings["sums"]
        assert gone == 2 * (sums != ALONE) + settings["turned"] + settings["gated"]
    kinds = {row["operator"]: row["kind"] for row in FIGURE.rows(**FIGURE.presets["Everything"])}
    assert {name for name, kind in kinds.items() if kind == BOTH} == {"q, k, v", "o", "gate, up", "down"}
    assert {name for name, kind in kinds.items() if kind == MATMUL} == {"attention"}
