"""Encoders of sound that read the wave itself."""

import torch

from family_samples.sizes import BATCH, SEQ

_W2V = {
    "vocab_size": 30, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "conv_dim": [8, 12, 16], "conv_kernel": [10, 3, 2], "conv_stride": [5, 2, 2], "num_conv_pos_embeddings": 6, "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SMALL = {
    "wav2vec2": _W2V | {"codevector_dim": 24, "proj_codevector_dim": 20, "num_codevectors_per_group": 10},
    "hubert": _W2V | {"do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True, "num_conv_pos_embeddings": 5, "adapter_attn_dim": 6,
        "feat_proj_layer_norm": False},
    "unispeech": _W2V | {"do_stable_layer_norm": True},
    "unispeech-sat": _W2V | {"adapter_attn_dim": 6, "do_stable_layer_norm": True},
    "wavlm": _W2V | {"num_buckets": 12, "use_weighted_layer_sum": True},
}  # fmt: skip

CLASSES = dict.fromkeys(SMALL, "AutoModelForCTC") | {"wav2vec2": "AutoModelForPreTraining"}

DEVICES = {"wav2vec2": "cpu"}  # its codebook is made without a device
NOT_BY_LAYER = dict.fromkeys(SMALL, "convolutions are the first list of modules")

_TRAINING = "apply_spec_augment mask_time_length mask_time_min_masks mask_feature_length mask_feature_min_masks num_negatives ctc_loss_reduction ctc_zero_infinity"
_OTHER = (
    "xvector_output_dim tdnn_dim tdnn_kernel tdnn_dilation num_ctc_classes classifier_proj_size use_weighted_layer_sum"
)
HARMLESS = {
    "wav2vec2 hubert wavlm unispeech unispeech-sat": {
        "of training": _TRAINING,
        "of another class": _OTHER,
        "of an adapter that is not there": "adapter_kernel_size adapter_stride num_adapter_layers output_hidden_size",
        "as many norms, at other places": "do_stable_layer_norm",
        "made of the others": "num_feat_extract_layers",
    },
    "wav2vec2": {"of the head for words": "vocab_size", "of layers with norms first": "adapter_attn_dim"},
    "unispeech unispeech-sat": {
        "of another class": "codevector_dim proj_codevector_dim num_codevectors_per_group num_codevector_groups replace_prob num_clusters",
    },
    "wavlm": {
        "of another class": "codevector_dim proj_codevector_dim num_codevectors_per_group num_codevector_groups",
        "which bucket a distance has": "max_bucket_distance",
    },
}


def _wave(kind):
    def given(ids):
        samples = SEQ
        for kernel, stride in zip(_W2V["conv_kernel"][::-1], _W2V["conv_stride"][::-1], strict=True):
            samples = (samples - 1) * stride + kernel
        return {"input_values": torch.zeros(BATCH, samples, dtype=torch.bfloat16)}

    return given


INPUTS = {kind: _wave(kind) for kind in SMALL}
