"""Gemma 3n."""

from family_samples.sizes import DECODER

SMALL = {
    "gemma3n_text": DECODER | {
        "num_hidden_layers": 12, "head_dim": 16, "sliding_window": 8, "num_kv_shared_layers": 4, "laurel_rank": 6, "altup_num_inputs": 3,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 90, "intermediate_size": [80] * 6 + [96] * 6,
    },
}  # fmt: skip

NOT_BY_LAYER = {"gemma3n_text": "transformers predicts and corrects the streams in no module of their own"}

HARMLESS = {
    "gemma3n_text": {
        "which stream is read": "altup_active_idx",
        "vector work that is not counted": "final_logit_softcapping altup_coef_clip",
    },
}
