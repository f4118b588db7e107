"""Gemma 3n: its streams, its low-rank branch, and the layers that share keys and values."""

import pytest

import flopkit as fk
from flopkit.models import AlternatingUpdates, Block, LowRank
from flopkit.models.stacks.parts import Run

TEXT = {"model_type": "gemma3n_text"}  # transformers' defaults are those of google/gemma-3n-E4B


def test_the_text_part_of_a_gemma_3n():
    """The whole file has towers for pictures and sound, which are left out."""
    whole = {"model_type": "gemma3n", "architectures": ["Gemma3nForConditionalGeneration"], "text_config": TEXT, "vision_config": {"model_type": "gemma3n_vision"},
             "audio_config": {"model_type": "gemma3n_audio"}}  # fmt: skip
    model = fk.from_hf(whole)
    assert model.params == fk.from_hf(TEXT).params
    assert any("vision_config, audio_config is not counted" in note for note in model.notes)


def test_streams_by_hand():
    """4 streams of 2048 features: per token of a layer, two routers, the coefficients, and the prediction of each of all."""
    streams, run = AlternatingUpdates(count=4), Run(1, 1, 1)
    before, after = streams.before("attention", run, 2048), streams.after("mlp", run, 2048)
    flops = sum(each.cost.flops for each in (*before, *after))
    assert flops == 2 * (2 * 2048 * 4) + 2 * (4 * 16 + 4 * 4) + 2 * 16 * 2048
    assert sum(each.cost.params for each in (*before, *after)) == 4 * 2048 + 2 * 2048 + 64 + 16
    assert streams.before("mlp", run, 2048) == []


def test_layers_that_share_keep_nothing_in_the_cache():
    model = fk.from_hf(TEXT)
    # 20 layers of 35 have keys and values of their own: 4 whole ones, and 16 with a window of 512
    assert model.kv_bytes(context=32768) == 2 * 2 * 2 * 256 * (4 * 32768 + 16 * 512)


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"num_kv_shared_layers": 31}, "each kind among these needs an earlier layer"),
        ({"intermediate_size": [16384]}, "must be a list of 35"),
        ({"activation_sparsity_pattern": 0.95}, "must be a list of 35"),
        ({"altup_num_inputs": 1}, "count=1"),
        ({"altup_active_idx": 4}, "there are 4 streams"),
    ],
)
def test_what_does_not_go_together(changed, said):
    with pytest.raises(ValueError, match=said):
        fk.from_hf(TEXT | changed)


def test_memory_is_refused_and_a_branch_beside_needs_both_norms():
    with pytest.raises(ValueError, match="several copies"):
        fk.from_hf(TEXT).train_memory(seq=128)
    with pytest.raises(ValueError, match="is for norms='both'"):
        Block(mixer=None, beside=LowRank(rank=4))
