"""What a training step of an encoder keeps, counted in transformers' own modules tensor by tensor."""

import pytest
import torch
from test_memory import kept

import flopkit as fk

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SEQ, BATCH, LOSS_SCALE = 16, 2, 4  # the mean over the labels keeps how many there are
SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
    "max_position_embeddings": 64, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
DISTILBERT = {"dim": 32, "hidden_dim": 80, "n_layers": 4, "n_heads": 4, "dropout": 0.0, "attention_dropout": 0.0}
ANGLES = 2 * SEQ * 8 * 4  # a table of sines and one of cosines
CASES = {
    "narrow embedding": ("electra", "MaskedLM", {"embedding_size": 16}, 0),
    "shared layers": ("albert", "MaskedLM", {"embedding_size": 16, "hidden_act": "gelu"}, 0),
    "labels behind tanh": ("roberta", "SequenceClassification", {"num_labels": 3}, 0),
    "labels behind ReLU": ("distilbert", "SequenceClassification", DISTILBERT | {"seq_classif_dropout": 0.0, "num_labels": 3}, 0),
    "two heads, two losses": ("bert", "PreTraining", {}, LOSS_SCALE),
    "gated, with turned positions": ("gte", "MaskedLM", {}, ANGLES),
    "biases of scores": ("mpnet", "MaskedLM", {}, 0),
    "no first norm, two tables of angles": (
        "modernbert", "MaskedLM",
        {"local_attention": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}, 2 * ANGLES,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_encoders_keep_what_the_list_says(name):
    kind, task, more, beyond = CASES[name]
    config = transformers.AutoConfig.for_model(kind, **SIZES | more)
    model = getattr(transformers, f"AutoModelFor{task}").from_config(config, attn_implementation="eager").train()
    ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
    labels = {"labels": ids[:, 0] if task == "SequenceClassification" else ids}
    labels |= {"next_sentence_label": ids[:, 0]} if task == "PreTraining" else {}
    ours = fk.from_hf(config.to_dict() | {"architectures": [type(model).__name__]})
    memory = ours.train_memory(seq=SEQ, batch=BATCH, precision="fp32", kernel="math")
    found = kept(model, lambda: model(input_ids=ids, **labels).loss)
    assert found == memory.layers + memory.ends + LOSS_SCALE + beyond
