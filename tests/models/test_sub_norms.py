"""BitNet's norms inside its branches, and LongCat-Flash's experts that do nothing."""

import pytest
from test_memory import HEADS, LLAMA, LOSS_SCALE, SEQ, TOKENS, WIDTH, built, kept, ours

import flopkit as fk

LAYERS = 4
LONGCAT = {"model_type": "longcat_flash"}  # transformers' defaults are those of meituan-longcat/LongCat-Flash-Chat


@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_what_sub_norms_keep(kernel):
    """Its norms are written out, and keep a normalised tensor more than one operator does; the angles are tables."""
    sizes = LLAMA | {
        "model_type": "bitnet",
        "num_key_value_heads": HEADS,
        "hidden_act": "relu2",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    memory = ours(sizes, kernel=kernel)
    norms = LAYERS * (3 * WIDTH + LLAMA["intermediate_size"]) + WIDTH
    angles = 2 * SEQ * WIDTH // HEADS
    assert kept(*built(sizes, kernel)) == memory.layers + memory.ends + LOSS_SCALE + angles * 4 + norms * TOKENS * 4


def test_longcat_flash_computes_eight_of_twelve():
    """560 B parameters of which 27 B work for a token on average: Meituan 2025, LongCat-Flash technical report, abstract."""
    model = fk.from_hf(LONGCAT)
    assert (model.params - model.unused) // 10**9 == 560
    assert model.active_params // 10**9 == 27
    assert model.blocks[0][0].mlp.branches[1].top_k == 8
    assert any("8 are computed on average" in note for note in model.notes)
    with pytest.raises(ValueError, match="no whole number"):
        fk.from_hf(LONGCAT | {"moe_topk": 10})
    older = fk.from_hf(LONGCAT | {"num_hidden_layers": 56, "num_experts_per_tok": 12})
    assert older.params == model.params
