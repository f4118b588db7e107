"""Encoder-decoders."""

SMALL = {
    "t5": {"vocab_size": 96, "d_model": 32, "d_kv": 16, "d_ff": 80, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4},
}  # fmt: skip

CLASSES = {"t5": "AutoModelForSeq2SeqLM"}

HARMLESS = {
    "t5": {"feed_forward_proj says it": "dense_act_fn is_gated_act", "where a bucket ends": "relative_attention_max_distance", "of the stacks": "is_decoder"},
}  # fmt: skip

INPUTS = {"t5": lambda ids: {"input_ids": ids, "decoder_input_ids": ids}}
