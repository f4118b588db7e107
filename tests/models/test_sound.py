"""Encoders of sound: published sizes, and the length of a wave."""

import pytest
import torch

import flopkit as fk
from flopkit.models import Waves

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "do_stable_layer_norm": True,
         "feat_extract_norm": "layer", "conv_bias": True}  # fmt: skip
PUBLISHED = [
    ("wav2vec2", "Wav2Vec2ForPreTraining", {}),
    ("wav2vec2", "Wav2Vec2ForCTC", {"vocab_size": 32}),
    ("wav2vec2", "Wav2Vec2ForPreTraining", LARGE | {"codevector_dim": 768, "proj_codevector_dim": 768}),
    ("wav2vec2", "Wav2Vec2ForCTC", LARGE | {"adapter_attn_dim": 16, "hidden_size": 1280, "num_hidden_layers": 48, "intermediate_size": 5120, "vocab_size": 154}),
    ("wav2vec2", "Wav2Vec2ForSequenceClassification", {"use_weighted_layer_sum": True, "id2label": {i: str(i) for i in range(12)}}),
    ("hubert", "HubertForCTC", LARGE),
    ("hubert", "HubertModel", {}),
    ("hubert", "HubertForSequenceClassification", {"num_labels": 7, "mask_time_prob": 0.0}),
    ("wavlm", "WavLMModel", {}),
    ("wavlm", "WavLMModel", LARGE | {"conv_bias": False}),
]  # fmt: skip


@pytest.mark.parametrize("kind, name, sizes", PUBLISHED)
def test_published_sizes(kind, name, sizes):
    """On the defaults, which are those of the base models, and on the large ones; half a second of sound."""
    config = transformers.AutoConfig.for_model(kind, **sizes)
    with torch.device("meta" if "PreTraining" not in name else "cpu"):
        model = getattr(transformers, name)(config).eval()
    ours = fk.from_hf({"model_type": kind, "architectures": [name], **sizes})
    assert ours.params == sum(p.numel() for p in model.parameters())
    if model.device.type == "meta":
        report = fk.count(lambda: model(torch.zeros(1, ours.waves.samples(24), device="meta")))
        assert ours.forward(seq=24).under("TORCH").flops == report.flops


def test_the_shortest_wave():
    waves = fk.from_hf({"model_type": "wav2vec2"}).waves
    config = transformers.Wav2Vec2Config()
    with torch.device("meta"):
        model = transformers.Wav2Vec2Model(config)
    lengths = model._get_feat_extract_output_lengths
    for tokens in (1, 2, 49, 100):
        assert int(lengths(torch.tensor(waves.samples(tokens)))) == tokens
        assert int(lengths(torch.tensor(waves.samples(tokens) - 1))) == tokens - 1


@pytest.mark.parametrize(
    "changed, said",
    [({"add_adapter": True}, "add_adapter"), ({"conv_stride": [5, 2]}, "each convolution needs all three"), ({"feat_extract_norm": "batch"}, "'group' and 'layer'"),
     ({"architectures": ["Wav2Vec2ForXVector"]}, "not described here"), ({"mask_time_prob": "0.05"}, "must be a number")],
)  # fmt: skip
def test_what_is_not_described(changed, said):
    with pytest.raises((ValueError, TypeError), match=said):
        fk.from_hf({"model_type": "wav2vec2"} | changed)


def test_memory_and_lengths_are_refused():
    model = fk.from_hf({"model_type": "hubert"})
    with pytest.raises(ValueError, match="convolutions over sound"):
        model.train_memory(seq=49)
    with pytest.raises(ValueError, match="waves of one length"):
        model.forward(lengths=[20, 29])
    with pytest.raises(ValueError, match="kernels"):
        Waves(widths=(4,), kernels=(), strides=(2,), positions=4, groups=2)
