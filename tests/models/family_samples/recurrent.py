"""Models whose layers have a state."""

from family_samples.sizes import BATCH, DECODER, EXPERTS, SEQ

DELTA = DECODER | {
    "head_dim": 16, "num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4,
}  # fmt: skip
MIXTURE = EXPERTS | {"num_experts": 6, "shared_expert_intermediate_size": 40}

SMALL = {
    "qwen3_next": DELTA | MIXTURE,
    "qwen3_5_moe_text": {key: value for key, value in (DELTA | MIXTURE).items() if key != "intermediate_size"},
    "qwen3_5_text": DELTA,
    "mamba2": {
        "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_heads": 4, "head_dim": 16, "state_size": 24, "n_groups": 2, "expand": 2,
        "conv_kernel": 4, "chunk_size": 8, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    },
}  # fmt: skip

HARMLESS = {
    "qwen3_next": {"all layers are mixtures": "intermediate_size"},
    "mamba2": {"heads and head_dim say it": "expand", "a number format": "residual_in_fp32", "bounds of a step": "time_step_rank time_step_limit"},
}  # fmt: skip


def _convolutions(ours):
    """They run on past the last token."""
    mixer, layers = ours.blocks[0][0].mixer, ours.blocks[0][1]
    return BATCH * layers * 2 * mixer.conv * (mixer.conv - 1) * mixer._channels


def _mamba2(ours):
    """B and C are repeated for each head, and one product passes on the states of the chunks."""
    mixer, layers = ours.blocks[0][0].mixer, ours.blocks[0][1]
    more = 2 * SEQ * mixer.chunk * mixer.state * (mixer.heads - mixer.groups)
    more += 2 * (SEQ // mixer.chunk + 1) ** 2 * mixer.heads * mixer.head_dim * mixer.state
    return _convolutions(ours) + BATCH * layers * more


# FLOPs that transformers' fallback does beside the algorithm, in products.
BEYOND = {"qwen3_next": _convolutions, "qwen3_5_moe_text": _convolutions, "qwen3_5_text": _convolutions, "mamba2": _mamba2}
