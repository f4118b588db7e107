"""Encoders of text: the classes that few other families have, the ends of their tables, and windows on both sides."""

import pytest
import torch
from family_samples import encoders, rotary_encoders
from family_samples.sizes import BATCH, SEQ

import flopkit as fk

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SMALL = encoders.SMALL | rotary_encoders.SMALL
OTHER = {
    "choice": "AutoModelForMultipleChoice", "pretraining": "AutoModelForPreTraining", "next": "AutoModelForNextSentencePrediction",
    "text": "AutoModelForCausalLM",
}  # fmt: skip


def built(kind, auto, device="meta", **sizes):
    config = transformers.AutoConfig.for_model(kind, **SMALL[kind] | sizes)
    with torch.device(device):
        model = getattr(transformers, auto).from_config(config, dtype=torch.bfloat16)
    return config.to_dict() | {"architectures": [type(model).__name__]}, model.eval()


def has(kind, auto):
    return type(transformers.AutoConfig.for_model(kind)) in getattr(transformers, auto)._model_mapping


@pytest.mark.parametrize("task, kind", [(task, kind) for task in OTHER for kind in SMALL if has(kind, OTHER[task])])
def test_classes_that_few_families_have(task, kind):
    device = "cpu" if (kind, task) == ("modernbert", "choice") else "meta"  # it takes its first token by an index
    config, model = built(kind, OTHER[task], device, num_labels=2)
    shape = (1, BATCH, SEQ) if task == "choice" else (BATCH, SEQ)
    report = fk.count(lambda: model(input_ids=torch.zeros(shape, dtype=torch.long, device=device)))
    ours = fk.from_hf(config)
    assert ours.params == sum(p.numel() for p in model.parameters())
    assert ours.forward(seq=SEQ, batch=BATCH).under("TORCH").flops == report.flops


LARGE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}


@pytest.mark.parametrize(
    "kind, rows, tokens", [("bert", 512, 512), ("roberta", 514, 512), ("xlm-roberta", 8194, 8192), ("mpnet", 514, 512)]
)
def test_a_table_of_positions_ends(kind, rows, tokens):
    """RoBERTa's 514 rows are for 512 tokens, as its tokenizer's model_max_length says."""
    model = fk.from_hf(LARGE | {"model_type": kind, "max_position_embeddings": rows})
    assert model.forward(seq=tokens).flops > 0
    with pytest.raises(ValueError, match=f"has learned positions for {tokens} tokens, and {tokens + 1} are asked for"):
        model.forward(seq=tokens + 1)


def test_windows_on_both_sides_are_those_of_the_mask():
    """The pairs of each layer are the true places of the mask that transformers makes for it."""
    masking = transformers.masking_utils
    config = transformers.AutoConfig.for_model("modernbert", **SMALL["modernbert"], attn_implementation="eager")
    ours = fk.from_hf(config.to_dict())
    given = {"config": config, "inputs_embeds": torch.zeros(1, SEQ, 32), "attention_mask": None}
    masks = {
        "full_attention": torch.zeros(1, 1, SEQ, SEQ),
        "sliding_attention": masking.create_bidirectional_sliding_window_mask(**given),
    }
    per_pair = BATCH * 4 * 2 * 2 * 8
    for place, kind in enumerate(ours.order):
        seen = int((masks[config.layer_types[place]] == 0).sum())
        layer = ours.layer(kind, seq=SEQ, batch=BATCH)
        core = next(part for part in layer.parts if part.name == "attention")
        assert core.flops == per_pair * seen
        assert core.under("TORCH").flops == per_pair * SEQ * SEQ
    assert set(config.layer_types) == set(masks)


def test_files_of_other_code():
    """Sizes as published: safetensors of nomic-ai/nomic-embed-text-v1.5 have 136,731,648 numbers, its config.json these keys;
    those of Alibaba-NLP/gte-base-en-v1.5 have 136.8 million."""
    nomic = {
        "model_type": "nomic_bert", "architectures": ["NomicBertModel"], "activation_function": "swiglu", "n_embd": 768, "n_head": 12,
        "n_inner": 3072, "n_layer": 12, "n_positions": 8192, "pad_vocab_size_multiple": 64, "parallel_block": False, "prenorm": False,
        "qkv_proj_bias": False, "rotary_emb_fraction": 1.0, "type_vocab_size": 2, "use_rms_norm": False, "vocab_size": 30528,
        "mlp_fc1_bias": False, "mlp_fc2_bias": False, "causal": False,
    }  # fmt: skip
    assert fk.from_hf(nomic).params == 136_731_648
    for change in (
        {"activation_function": "gelu"},
        {"prenorm": True},
        {"rotary_emb_fraction": 0.0},
        {"num_experts": 8},
    ):
        with pytest.raises(ValueError, match=next(iter(change))):
            fk.from_hf(nomic | change)
    with pytest.raises(ValueError, match="vocab_size=30500 is no multiple of pad_vocab_size_multiple=64"):
        fk.from_hf(nomic | {"vocab_size": 30500})
    for key in ("n_inner", "n_layer", "type_vocab_size", "causal"):
        with pytest.raises(ValueError, match=key):
            fk.from_hf({name: value for name, value in nomic.items() if name != key})
    gte = LARGE | {
        "model_type": "new", "architectures": ["NewModel"], "hidden_act": "gelu", "vocab_size": 30528, "max_position_embeddings": 8192,
        "position_embedding_type": "rope", "type_vocab_size": 0, "pack_qkv": True, "layer_norm_type": "layer_norm",
    }  # fmt: skip
    model = transformers.AutoConfig.for_model("gte", **LARGE | {"vocab_size": 30528, "type_vocab_size": 0})
    with torch.device("meta"):
        theirs = transformers.AutoModel.from_config(model)
    assert round(fk.from_hf(gte).params / 1e6, 1) == 136.8
    assert fk.from_hf(gte).params == sum(p.numel() for p in theirs.parameters())
    for change in ({"position_embedding_type": "absolute"}, {"layer_norm_type": "rms_norm"}, {"type_vocab_size": None}):
        with pytest.raises(ValueError, match=next(iter(change))):
            fk.from_hf(gte | change)


def test_layers_with_the_same_parameters():
    """ALBERT base: 11.2 million numbers with its head (Lan et al. 2020, table 1, says 12M), and the products of 12 layers."""
    config = LARGE | {
        "model_type": "albert",
        "embedding_size": 128,
        "vocab_size": 30000,
        "type_vocab_size": 2,
        "max_position_embeddings": 512,
    }
    whole, half = (fk.from_hf(config | {"num_hidden_layers": layers, "num_hidden_groups": 1}) for layers in (12, 6))
    assert whole.params == half.params == 11_221_680
    layers = whole.forward(seq=128).flops - half.forward(seq=128).flops
    assert layers == 6 * 128 * (8 * 768**2 + 4 * 768 * 3072 + 4 * 128 * 768)
    rows = whole.table(seq=128)
    assert (
        rows[-1]["params"]
        == whole.params
        == sum(row["params"] for row in rows if row["level"] == 0 and row["part"] != "total")
    )
    inside = sum(row["params"] for row in rows if row["level"] == 1)
    assert inside == next(row["params"] for row in rows if row["part"] == "layers") < whole.params
    assert whole.trained_params("head") < whole.params
    for trained in (2, fk.LoRA(rank=8)):
        with pytest.raises(
            ValueError, match="its layers have the same parameters, so only trained='all' and 'head' are known"
        ):
            whole.train_step(seq=128, trained=trained)


def test_a_second_bias_of_the_words():
    """Where BERT's words are not tied, transformers keeps two biases for them."""
    config = SMALL["bert"] | {"model_type": "bert", "tie_word_embeddings": False}
    with pytest.raises(ValueError, match="tie_word_embeddings=False: transformers keeps a second bias for the words"):
        fk.from_hf(config)
    assert fk.from_hf(config | {"architectures": ["BertModel"]}).params > 0
