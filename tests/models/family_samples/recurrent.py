"""Models whose layers have a state."""

from family_samples.sizes import BATCH, DECODER, EXPERTS, SEQ

from flopkit.models import StateSpace

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


def convolutions(ours, seq=SEQ, batch=BATCH):
    """They run on past the last token."""
    mixers = [(mixer, layers) for block, layers in ours.blocks if hasattr(mixer := block.mixer, "conv")]
    return sum(batch * layers * 2 * mixer.conv * (mixer.conv - 1) * mixer._channels for mixer, layers in mixers)


def chunks(ours, seq=SEQ, batch=BATCH):
    """B and C are repeated for each head, and one product passes on the states of the chunks; besides the convolutions."""
    found = convolutions(ours, seq, batch)
    for block, layers in ours.blocks:
        if isinstance(mixer := block.mixer, StateSpace):
            count = -(-seq // mixer.chunk)
            more = 2 * count * mixer.chunk**2 * mixer.state * (mixer.heads - mixer.groups)
            found += batch * layers * (more + 2 * (count + 1) ** 2 * mixer.heads * mixer.head_dim * mixer.state)
    return found


# FLOPs that transformers' fallback does beside the algorithm, in products.
BEYOND = {
    "qwen3_next": convolutions, "qwen3_5_moe_text": convolutions, "qwen3_5_text": convolutions, "mamba2": chunks,
}  # fmt: skip
