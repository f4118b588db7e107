"""Encoders of text with turned positions."""

from family_samples.encoders import SIZES

SMALL = {
    "modernbert": SIZES | {"num_hidden_layers": 5, "local_attention": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                           "cls_token_id": 1, "sep_token_id": 2},
    "nomic_bert": SIZES | {"hidden_size": 48},
    "gte": SIZES | {"type_vocab_size": 0},
    "eurobert": SIZES | {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": 3},
    "jina_embeddings_v3": SIZES,
    "esm": SIZES | {"vocab_size": 33, "position_embedding_type": "rotary", "token_dropout": True, "pad_token_id": 1, "mask_token_id": 32},
}  # fmt: skip

CLASSES = dict.fromkeys(SMALL, "AutoModelForMaskedLM")

HARMLESS = {
    "modernbert": {
        "which words are special": "cls_token_id sep_token_id", "how it was trained": "initializer_cutoff_factor embedding_dropout mlp_dropout",
        "how a kernel runs": "deterministic_flash_attn", "which tokens a loss is for": "sparse_prediction sparse_pred_ignore_index",
        "the mean over the tokens has no products": "classifier_pooling",
    },
    "esm": {
        "of a model that folds, which is refused": "esmfold_config vocab_list",
        "a factor of the embedding": "token_dropout mask_token_id",
    },
    "eurobert": {"which words are special": "mask_token_id", "its class for sequences is not described": "classifier_pooling"},
}  # fmt: skip
