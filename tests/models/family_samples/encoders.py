"""Encoders of text."""

_SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 66,
}  # fmt: skip

SMALL = {
    "bert": _SIZES,
    "roberta": _SIZES,
    "xlm-roberta": _SIZES,
    "camembert": _SIZES,
    "xlm-roberta-xl": _SIZES,
    "roberta-prelayernorm": _SIZES,
    "distilbert": {"vocab_size": 96, "dim": 32, "hidden_dim": 80, "n_layers": 3, "n_heads": 4, "max_position_embeddings": 66},
    "electra": _SIZES | {"embedding_size": 16},
}  # fmt: skip

CLASSES = dict.fromkeys(SMALL, "AutoModelForMaskedLM")

HARMLESS = {
    "distilbert": {"the table of positions is there either way": "sinusoidal_pos_embds", "how it was trained": "qa_dropout seq_classif_dropout"},
    "electra": {"how it was trained": "summary_last_dropout"},
}
