"""EmbeddingGemma: a Gemma 3 whose tokens see each other in both directions."""

import pytest
import torch
from family_samples import merged

import flopkit as fk

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')
SMALL = merged("SMALL")["gemma3_text"] | {"use_bidirectional_attention": True, "num_hidden_layers": 7}


@pytest.mark.parametrize("window", [8, 9, 13])
def test_a_token_sees_half_a_window_on_either_side(window):
    config = transformers.Gemma3TextConfig(**SMALL | {"sliding_window": window}, attn_implementation="eager")
    model = transformers.Gemma3TextModel(config).eval()
    ids = torch.zeros(1, 40, dtype=torch.long) + 3
    with torch.no_grad():
        found = model(input_ids=ids, output_attentions=True).attentions
    seen = sum(int((each > 0).sum()) for each in found)
    saved = config.to_dict() | {"architectures": ["Gemma3TextModel"]}
    for file in (
        saved,
        {"model_type": "gemma3_text", **SMALL, "sliding_window": window, "architectures": ["Gemma3TextModel"]},
    ):
        ours = fk.from_hf(file)
        cores = [row["FLOPs"] for row in ours.table(seq=40) if row["part"].strip() == "attention"]
        assert sum(cores) == seen * 2 * 2 * config.head_dim
        assert ours.params == sum(p.numel() for p in model.parameters())
        report = fk.count(model, ids)
        assert ours.forward(seq=40).under("TORCH").flops == report.flops


def test_the_published_model():
    """google/embeddinggemma-300m: 308 M parameters with its two dense layers, which are files of their own."""
    sizes = {"vocab_size": 262144, "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 24, "num_attention_heads": 3, "num_key_value_heads": 1,
             "head_dim": 256, "sliding_window": 512, "_sliding_window_pattern": 6, "use_bidirectional_attention": True}  # fmt: skip
    model = fk.from_hf({"model_type": "gemma3_text", "architectures": ["Gemma3TextModel"], **sizes})
    assert model.params == 302_863_104
    assert not model.causal
    assert not model.writes
