"""Encoders of text with learned positions."""

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
    "albert": SIZES | {"embedding_size": 16, "num_hidden_groups": 2},
}  # fmt: skip

CLASSES = dict.fromkeys(SMALL, "AutoModelForMaskedLM")

HARMLESS = {
    "distilbert": {"the table of positions is there either way": "sinusoidal_pos_embds", "how it was trained": "qa_dropout seq_classif_dropout"},
    "electra": {"how it was trained": "summary_last_dropout"},
    "albert": {"how it was trained": "classifier_dropout_prob"},
}  # fmt: skip

NOT_BY_LAYER = {"albert": "its layers are one module, which runs several times"}
