"""Encoders of text with learned positions."""

import torch

SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 66,
}  # fmt: skip

SMALL = {
    "bert": SIZES,
    "roberta": SIZES,
    "xlm-roberta": SIZES,
    "camembert": SIZES,
    "xlm-roberta-xl": SIZES,
    "roberta-prelayernorm": SIZES,
    "distilbert": {"vocab_size": 96, "dim": 32, "hidden_dim": 80, "n_layers": 3, "n_heads": 4, "max_position_embeddings": 66},
    "mpnet": SIZES | {"relative_attention_num_buckets": 8},
    "electra": SIZES | {"embedding_size": 16},
    "data2vec-text": SIZES,
    "megatron-bert": SIZES,
    "ernie": SIZES | {"use_task_id": True},
    "rembert": SIZES | {"input_embedding_size": 16, "output_embedding_size": 40},
    "deberta": SIZES | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 2, "max_relative_positions": 24},
    "deberta-v2": SIZES | {
        "relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 12, "norm_rel_ebd": "layer_norm", "share_att_key": True,
        "position_biased_input": False,
    },
    "albert": SIZES | {"embedding_size": 16, "num_hidden_groups": 2},
}  # fmt: skip

CLASSES = dict.fromkeys(SMALL, "AutoModelForMaskedLM")

HARMLESS = {
    "distilbert": {"the table of positions is there either way": "sinusoidal_pos_embds", "how it was trained": "qa_dropout seq_classif_dropout"},
    "electra": {"how it was trained": "summary_last_dropout"},
    "rembert": {"its words are never tied": "tie_word_embeddings"},
    "deberta deberta-v2": {"two ways to write a head of as many numbers": "legacy"},
    "deberta-v2": {"where a bucket ends": "max_relative_positions"},
    "albert": {"how it was trained": "classifier_dropout_prob"},
}  # fmt: skip


def _embedded(ids):
    """Without tokens, among which transformers would look for padding: on meta there are none."""
    return {"inputs_embeds": torch.zeros(*ids.shape, SIZES["hidden_size"], dtype=torch.bfloat16, device=ids.device)}


def _masked(ids, width=SIZES["hidden_size"]):
    """The same, and a whole mask: of a mask for each token, transformers asks whether all are seen."""
    (batch, seq), like = ids.shape, {"dtype": torch.bfloat16, "device": ids.device}
    return {
        "inputs_embeds": torch.zeros(batch, seq, width, **like),
        "attention_mask": torch.zeros(batch, 1, seq, seq, **like),
    }


INPUTS = {
    "megatron-bert": _masked, "rembert": lambda ids: _masked(ids, 16), "deberta": _embedded, "deberta-v2": _embedded,
}  # fmt: skip

CAST = {"deberta": "transformers makes the biases of its queries in fp32, whatever it is asked for"}

NOT_BY_LAYER = {"albert": "its layers are one module, which runs several times"}
