"""Llama 3.2 Vision: what a pass of text alone runs, and what stands beside it."""

import pytest
import torch

import flopkit as fk

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')
SMALL = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2,
         "pad_token_id": 0, "cross_attention_layers": [1, 3, 9]}  # fmt: skip


def test_the_head_and_the_layers_that_run():
    with torch.device("meta"):
        model = transformers.MllamaForCausalLM(
            transformers.models.mllama.configuration_mllama.MllamaTextConfig(**SMALL)
        ).eval()
        report = fk.count(lambda: model(torch.zeros(2, 16, dtype=torch.long)))
    ours = fk.from_hf(
        {
            "model_type": "mllama",
            "architectures": ["MllamaForConditionalGeneration"],
            "text_config": SMALL,
            "vision_config": {},
        }
    )
    assert ours.params == sum(p.numel() for p in model.parameters())
    assert ours.forward(seq=16, batch=2).under("TORCH").flops == report.flops
    assert any("2 of 5 layers" in note for note in ours.notes)


def test_the_published_11b():
    """meta-llama/Llama-3.2-11B-Vision: eight layers of cross-attention beside the 32 of Llama 3.1 8B, and 8 rows more in the table."""
    text = fk.from_hf({"model_type": "mllama_text_model"})
    assert text.params - text.unused == fk.load("llama-3-8b").params
    assert text.forward(seq=128).flops == fk.load("llama-3-8b").forward(seq=128).flops


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"cross_attention_layers": ["3"]}, "no place of a layer"),
    ],
)
def test_what_is_not_described(changed, said):
    with pytest.raises(ValueError, match=said):
        fk.from_hf({"model_type": "mllama_text_model", **SMALL} | changed)
