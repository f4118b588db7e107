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
    return config.to_dict() | {"architectures": [type(model).__name__]}, model.to(torch.bfloat16).eval()


def given(kind):
    with torch.device("meta"):
        ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
        return encoders.INPUTS[kind](ids) if kind in encoders.INPUTS else {"input_ids": ids}


def has(kind, auto):
    return type(transformers.AutoConfig.for_model(kind)) in getattr(transformers, auto)._model_mapping


@pytest.mark.parametrize("task, kind", [(task, kind) for task in OTHER for kind in SMALL if has(kind, OTHER[task])])
def test_classes_that_few_families_have(task, kind):
    device = (
        "cpu" if kind in ("modernbert", "megatron-bert", "rembert") else "meta"
    )  # they ask for values, of a mask or an index
    config, model = built(kind, OTHER[task], device, num_labels=2)
    ours = fk.from_hf(config)
    shape = (1, BATCH, SEQ) if task == "choice" else (BATCH, SEQ)
    embeds = torch.zeros(*shape, ours.embedding_dim or ours.d_model, dtype=torch.bfloat16, device=device)
    report = fk.count(lambda: model(inputs_embeds=embeds))
    assert ours.params == sum(p.numel() for p in model.parameters())
    assert ours.forward(seq=SEQ, batch=BATCH).under("TORCH").flops == report.flops


LARGE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}

VARIANTS = {
    "bert": [{"tie_word_embeddings": False}, {"is_decoder": True}, {"hidden_act": "relu"}],
    "roberta": [{"pad_token_id": 0}, {"type_vocab_size": 1}, {"tie_word_embeddings": False}],
    "mpnet": [{"num_hidden_layers": 1}],
    "electra": [{"embedding_size": 32}, {"tie_word_embeddings": False}],
    "albert": [{"num_hidden_groups": 1}, {"num_hidden_groups": 3}, {"tie_word_embeddings": False}],
    "ernie": [{"use_task_id": False}],
    "rembert": [{"output_embedding_size": 16}],
    "deberta": [
        {"relative_attention": False}, {"pos_att_type": ["c2p"]}, {"pos_att_type": ["p2c"]}, {"max_relative_positions": -1},
        {"tie_word_embeddings": False}, {"position_biased_input": False, "max_relative_positions": 100},
    ],
    "deberta-v2": [
        {"relative_attention": False, "position_biased_input": True}, {"share_att_key": False}, {"position_buckets": -1},
        {"share_att_key": False, "pos_att_type": ["c2p"]}, {"share_att_key": False, "pos_att_type": ["p2c"]}, {"pos_att_type": ["c2p"]},
        {"max_relative_positions": 20, "position_buckets": 0}, {"norm_rel_ebd": "none"}, {"legacy": False, "tie_word_embeddings": False},
        {"pos_att_type": None}, {"conv_kernel_size": 3, "conv_act": "gelu"}, {"conv_kernel_size": 5, "conv_groups": 4},
    ],
    "modernbert": [
        {"attention_bias": True, "mlp_bias": True, "norm_bias": True}, {"classifier_bias": True, "decoder_bias": False},
        {"tie_word_embeddings": False}, {"layer_types": ["sliding_attention"] * 3, "num_hidden_layers": 3},
        {"classifier_activation": "relu", "hidden_activation": "gelu_pytorch_tanh", "local_attention": 128},
    ],
    "nomic_bert": [{"type_vocab_size": 1}, {"head_dim": 8}],
    "gte": [{"type_vocab_size": 1}, {"hidden_act": "silu"}],
    "eurobert": [{"mlp_bias": True, "attention_bias": True}, {"tie_word_embeddings": True}],
    "esm": [{"position_embedding_type": "absolute", "emb_layer_norm_before": True}, {"tie_word_embeddings": False}],
}  # fmt: skip


@pytest.mark.parametrize("kind, changes", [(kind, each) for kind, several in VARIANTS.items() for each in several])
def test_variants(kind, changes):
    config, model = built(kind, "AutoModelForMaskedLM", **changes)
    report = fk.count(lambda: model(**given(kind)))
    ours = fk.from_hf(config)
    assert ours.params == sum(p.numel() for p in model.parameters())
    assert ours.forward(seq=SEQ, batch=BATCH).under("TORCH").flops == report.flops


PUBLISHED = {
    "RobertaForMaskedLM": (124_697_433, {"model_type": "roberta", "vocab_size": 50265, "type_vocab_size": 1, "max_position_embeddings": 514}),
    "XLMRobertaForMaskedLM": (
        278_295_186, {"model_type": "xlm-roberta", "vocab_size": 250002, "type_vocab_size": 1, "max_position_embeddings": 514},
    ),
    "MPNetModel": (109_486_464, {"model_type": "mpnet", "vocab_size": 30527, "max_position_embeddings": 514}),
    "DebertaV2Model": (
        183_831_552,
        {"model_type": "deberta-v2", "vocab_size": 128100, "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm",
         "share_att_key": True, "pos_att_type": "p2c|c2p", "max_relative_positions": -1, "position_biased_input": False},
    ),
    "ElectraModel": (108_891_648, {"model_type": "electra", "embedding_size": 768}),
    "AlbertModel": (11_683_584, {"model_type": "albert", "embedding_size": 128, "vocab_size": 30000}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name):
    """The numbers in the checkpoints of roberta-base, xlm-roberta-base, all-mpnet-base-v2, deberta-v3-base,
    electra-base-discriminator and albert-base-v2."""
    params, config = PUBLISHED[name]
    assert fk.from_hf(LARGE | config | {"architectures": [name]}).params == params


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
    for trained in (fk.models.LastLayers(2), fk.LoRA(rank=8)):
        with pytest.raises(
            ValueError, match="its layers have the same parameters, so only trained='all' and 'head' are known"
        ):
            whole.train_step(seq=128, trained=trained)


@pytest.mark.parametrize(
    "kind, more", [("roberta", {}), ("modernbert", {"local_attention": 8}), ("deberta-v2", {"conv_kernel_size": 3})]
)
def test_documents_of_unequal_lengths(kind, more):
    """Each costs what it costs alone, its label among it; where positions have keys of their own, that is not known."""
    model = fk.from_hf(
        SMALL[kind] | more | {"model_type": kind, "architectures": [TYPES[kind] + "ForSequenceClassification"]}
    )
    lengths = [3, 17, 1, 64]
    if kind == "deberta-v2":
        with pytest.raises(ValueError, match="lengths= beside disentangled attention: documents of unequal lengths"):
            model.forward(lengths=lengths)
        return
    alone = [model.forward(seq=each) for each in lengths]
    packed = model.forward(lengths=lengths)
    assert packed.flops == sum(each.flops for each in alone)
    assert packed.under("TORCH").flops == sum(each.under("TORCH").flops for each in alone)
    assert packed.vector_flops == sum(each.vector_flops for each in alone)


TYPES = {"roberta": "Roberta", "modernbert": "ModernBert", "deberta-v2": "DebertaV2"}
