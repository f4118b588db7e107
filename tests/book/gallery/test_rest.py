"""The figure of a layer's shares: against the model's own parts, the tensors that fusing keeps on the chip, and a program that torch runs."""

import pytest

import flopkit as fk
from flopkit.book.gallery import layer_shares
from flopkit.book.gallery.rest import FUSION, KINDS, MODELS, ROW_STEPS, SCORES, STEPS

FIGURE = layer_shares()
SEPARATE, OPERATORS, PAIRS, INSIDE = FUSION
FLASH, MATH = SCORES
OF = {
    "products": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    "attention": ("attention",),
    "norm": ("attention_norm", "mlp_norm"),
    "activation": ("swiglu",),
    "sums": ("attention_sum", "mlp_sum"),
    "rotary": ("rotary",),
}


@pytest.mark.parametrize("tokens", [1, 100, 8192])
@pytest.mark.parametrize("title", MODELS)
def test_each_operator_by_itself_is_the_model_s_own_part(title, tokens):
    parts = {part.name: part for part in fk.load(MODELS[title]).layer(seq=tokens).parts}
    device = fk.device("h100-sxm")
    found = FIGURE.at(network=title, tokens=tokens, fused=OPERATORS)
    assert sorted(parts) == sorted(name for names in OF.values() for name in names), "the figure knows each part"
    for kind, names in OF.items():
        own = [parts[name] for name in names]
        arithmetic = "flops" if kind in ("products", "attention") else "vector_flops"
        assert found[f"{kind}_flops"] == sum(getattr(each, arithmetic) for each in own)
        assert found[f"{kind}_bytes"] == sum(each.bytes for each in own)
        seconds = sum(fk.roofline(each, device).seconds for each in own)
        assert found[f"{kind}_seconds"] == pytest.approx(seconds, rel=1e-12)
    assert found["softmax_flops"] == parts["attention"].vector_flops and found["softmax_bytes"] == 0
    layer = fk.load(MODELS[title]).layer(seq=tokens)
    assert found["flops"] == layer.flops + layer.vector_flops and found["bytes"] == layer.bytes
    assert found["rest_flops"] == pytest.approx(layer.vector_flops / found["flops"], rel=1e-12)


def test_fused_the_tensors_between_do_not_move():
    """Llama-3-8B: 8,192 rows of 4,096 numbers in the residual stream, of 14,336 in the MLP; 40 heads of 128 that are turned; 2 bytes each."""
    stream, hidden, turned = (2 * 8192 * n for n in (4096, 14336, 40 * 128))
    by_level = [FIGURE.at(fused=level)["bytes"] for level in FUSION]
    angles = 2 * 8192 * 128
    assert by_level[1] - by_level[2] == 2 * stream, "each of two norms reads no sum"
    # gate and up are neither written nor read, their product reads its input once, queries and keys are turned on the way
    assert by_level[2] - by_level[3] == 4 * hidden + stream + 2 * turned + angles
    assert by_level[0] > by_level[1] > by_level[2] > by_level[3]


def test_the_scores_of_a_math_kernel():
    scores = 2 * 32 * 8192**2
    flash, math = FIGURE.at(), FIGURE.at(scores=MATH)
    assert math["softmax_bytes"] == 2 * scores and math["attention_bytes"] - flash["attention_bytes"] == 2 * scores
    assert math["softmax_seconds"] == pytest.approx(2 * scores / 3.35e12, rel=1e-12)
    assert math["flops"] == flash["flops"]


def test_the_bars_are_shares():
    for fused in FUSION:
        for row in FIGURE.rows(fused=fused, scores=MATH, tokens=300):
            assert sum(row[kind] for kind in KINDS) == pytest.approx(1, rel=1e-12)


def test_each_share_is_written_in_its_own_segment():
    """The numbers are stacked as the bars are, one for each kind, and a thin segment has none."""
    bars, numbers = FIGURE.spec()["layer"]
    assert numbers["encoding"]["x"]["stack"] == "zero" and numbers["encoding"]["x"]["bandPosition"] == 0.5
    assert (
        numbers["encoding"]["order"] == bars["encoding"]["order"] and numbers["encoding"]["detail"]["field"] == "label"
    )
    drawn = FIGURE.svg(scores=MATH)
    shares = [row[kind] for row in FIGURE.rows(scores=MATH) for kind in KINDS]
    assert sum(drawn.count(f">{100 * share:.0f} %<") > 0 for share in shares if share > 0.08) == 8
    assert "87 %" in drawn and ">3 %<" not in drawn


def test_steps_are_what_a_program_of_single_steps_moves():
    """The operators written in plain torch, counted as they run."""
    torch = pytest.importorskip("torch")
    rows, d, heads = 512, 256, 4

    def norm(x, gain):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return wide.to(x.dtype) * gain

    def turn(x, cos, sin):
        one, two = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-two, one), dim=-1) * sin

    with torch.device("meta"):
        x, gain = torch.empty(rows, d, dtype=torch.bfloat16), torch.empty(d, dtype=torch.bfloat16)
        by_head, angles = (torch.empty(n, rows, 64, dtype=torch.bfloat16) for n in (heads, 1))
    assert fk.count(norm, x, gain).bytes == STEPS["norm"] * rows * d + ROW_STEPS * rows + 2 * d
    turned = fk.count(turn, by_head, angles, angles.clone())
    assert turned.bytes == STEPS["rotary"] * by_head.numel() + 2 * 2 * angles.numel()
    gated = fk.count(lambda gate, up: torch.nn.functional.silu(gate) * up, x, x.clone())
    assert gated.bytes == STEPS["activation"] * x.numel()
    assert fk.count(lambda one, two: one + two, x, x.clone()).bytes == fk.residual(elements=x.numel()).bytes
    at = FIGURE.at(fused=SEPARATE)
    stream = 8192 * 4096
    assert at["norm_bytes"] == 2 * (36 * stream + 24 * 8192 + 2 * 4096)
    assert at["rotary_bytes"] == 20 * 8192 * 40 * 128 + 2 * 2 * 2 * 8192 * 128
