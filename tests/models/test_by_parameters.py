"""Conventions that begin with 6N: six FLOPs for each parameter and token, of every family, or a refusal that says why there is no N · tokens."""

import pytest
from test_families import KINDS, described

import flopkit as fk

TWO_LENGTHS = {
    "clip", "siglip", "siglip2", "swin", "convnext", "convnextv2", "whisper", "wav2vec2", "hubert", "unispeech", "unispeech-sat", "wavlm"
}  # fmt: skip
LENGTH = 64


@pytest.mark.parametrize("kind", KINDS)
def test_six_flops_a_parameter_and_token(kind):
    model = fk.from_hf(described(kind))
    length = {} if model.patches is not None and model.patches.tokens is not None else {"seq": LENGTH}
    forward, step = model.forward(batch=2, **length), model.train_step(batch=2, **length)
    if kind in TWO_LENGTHS:
        for name in ("SIX_N", "SIX_N_ACTIVE", "PALM", "NANOGPT", "TORCHTITAN"):
            with pytest.raises(ValueError, match="some of its parts see another number of tokens"):
                step.under(name)
        assert step.under("TORCH").model_flops > 0
        return
    tokens = step.tokens
    for name, n in (("SIX_N", model.params), ("SIX_N_ACTIVE", model.active_params)):
        assert forward.under(name).flops == 2 * n * tokens
        assert step.under(name).model_flops == 6 * n * tokens
        assert model.train_step(batch=2, recompute="full", **length).under(name).model_flops == 6 * n * tokens
    # PaLM's adds scores and values at all positions, 12·layers·heads·head_dim·length: those of attention, and of nothing else
    scores = sum(
        each.macs_by_kind.get(kind, 0) for each in (step.forward, step.backward) for kind in ("scores", "hidden")
    )
    assert step.under("PALM").model_flops == 6 * model.active_params * tokens + 2 * scores


PAPER = {  # layers with scores, heads, and the mean width of scores and values
    "qwen3-next-80b-a3b": (12, 16, 256), "llama-3-8b": (32, 32, 128), "deberta-v3-base": (12, 12, 64), "deepseek-v3.2": (61, 128, 160),
}  # fmt: skip


@pytest.mark.parametrize("name", PAPER)
def test_palm_s_formula(name):
    """Chowdhery et al. 2022, appendix B. Layers with a state, products with positions and an indexer are not in it."""
    model, (layers, heads, width) = fk.load(name), PAPER[name]
    step = model.train_step(seq=512)
    assert step.under("PALM").flops_per_token == 6 * model.active_params + 12 * layers * heads * width * 512
    assert step.under("SIX_N_ACTIVE").flops_per_token == 6 * model.active_params


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v3.2"])
def test_a_head_that_works_twice_counts_once(name):
    model = fk.load(name, mtp=True)
    assert model.mtp is not None
    assert model.train_step(seq=512).under("SIX_N").flops_per_token == 6 * model.params


def test_translate_leaves_out_what_has_no_n():
    rows = fk.published.translate(1e12, fk.load("whisper-tiny").train_step(seq=64))
    assert {"EXACT", "TORCH"} <= {row["convention"] for row in rows} and "PALM" not in {
        row["convention"] for row in rows
    }
