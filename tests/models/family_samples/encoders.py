"""Encoders of text."""

SMALL = {
    "bert": {
        "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "max_position_embeddings": 64,
    },
}  # fmt: skip

CLASSES = {"bert": "AutoModelForMaskedLM"}

HARMLESS = {"bert": {"of decoders": "add_cross_attention"}}
