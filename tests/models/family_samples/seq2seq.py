"""Encoder-decoders."""

import torch

from family_samples.sizes import BATCH

SMALL = {
    "t5": {"vocab_size": 96, "d_model": 32, "d_kv": 16, "d_ff": 80, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4},
}  # fmt: skip

SMALL["mt5"] = SMALL["umt5"] = SMALL["t5"]
BART = {
    "vocab_size": 96, "d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 80, "decoder_ffn_dim": 96,
    "encoder_attention_heads": 4, "decoder_attention_heads": 2, "max_position_embeddings": 64, "pad_token_id": 1, "eos_token_id": 2,
    "bos_token_id": 0, "decoder_start_token_id": 2, "forced_eos_token_id": 2,
}  # fmt: skip
SMALL |= dict.fromkeys(
    ("bart", "mbart", "m2m_100", "marian", "pegasus", "blenderbot", "blenderbot-small", "plbart"), BART
)
SMALL["whisper"] = {key: value for key, value in BART.items() if key != "max_position_embeddings"} | {
    "max_source_positions": 32, "max_target_positions": 64, "num_mel_bins": 8,
}  # fmt: skip

CLASSES = dict.fromkeys(SMALL, "AutoModelForSeq2SeqLM") | {"whisper": "AutoModelForSpeechSeq2Seq"}

DEVICES = dict.fromkeys(("pegasus", "blenderbot", "blenderbot-small", "plbart"), "cpu")  # they ask for values of tokens

_T5 = {
    "feed_forward_proj says it": "dense_act_fn is_gated_act",
    "where a bucket ends": "relative_attention_max_distance",
    "of the stacks": "is_decoder",
}
_BART = {"factors": "scale_embedding", "said twice": "encoder_layers", "of the stacks": "is_decoder"}
HARMLESS = {
    **dict.fromkeys(("t5", "mt5", "umt5"), _T5),
    **dict.fromkeys(("bart", "mbart", "marian", "pegasus", "blenderbot-small", "plbart"), _BART),
    "blenderbot": _BART | {"of writing": "encoder_no_repeat_ngram_size"},
    "m2m_100": _BART | {"positions have no table": "max_position_embeddings"},
    "whisper": _BART | {"of other heads": "classifier_proj_size", "of timing": "median_filter_width",
        "of training": "apply_spec_augment mask_time_length mask_time_min_masks mask_feature_length mask_feature_min_masks",
        "words that are left out": "begin_suppress_tokens suppress_tokens"},
}  # fmt: skip


def _two(ids):
    return {"input_ids": ids, "decoder_input_ids": ids}


INPUTS = dict.fromkeys(SMALL, _two) | {
    "whisper": lambda ids: {"input_features": torch.zeros(BATCH, 8, 64, dtype=torch.bfloat16), "decoder_input_ids": ids}
}

# transformers looks for the last word among the tokens, which on meta are none: parameters alone are compared
NOT_ON_META = {"bart": "sequence", "mbart": "sequence"}

# its mask for torch's kernel is looked at while it is made, and on meta there is nothing to look at
EAGER = dict.fromkeys(("bart", "mbart", "m2m_100", "marian"), "the products are the same")
