"""Models whose layers have a state."""

from family_samples.sizes import BATCH, DECODER, EXPERTS, SEQ
from flopkit.models import StateSpace

DELTA = DECODER | {
    "head_dim": 16, "num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4,
}  # fmt: skip
MIXTURE = EXPERTS | {"num_experts": 6, "shared_expert_intermediate_size": 40}
MAMBA = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "state_size": 6, "conv_kernel": 4, "expand": 3, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip

SMALL = {
    "qwen3_next": DELTA | MIXTURE,
    "qwen3_5_moe_text": {key: value for key, value in (DELTA | MIXTURE).items() if key != "intermediate_size"},
    "qwen3_5_text": DELTA,
    "mamba2": {
        "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_heads": 4, "head_dim": 16, "state_size": 24, "n_groups": 2, "expand": 2,
        "conv_kernel": 4, "chunk_size": 8, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    },
    "olmo_hybrid": DECODER | {
        key: DELTA[key] for key in DELTA if key.startswith("linear_")} | {"num_hidden_layers": 4},
    "mamba": MAMBA,
    "falcon_mamba": MAMBA | {"time_step_rank": 5},
    "lfm2": DECODER | {"layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 8},
    "lfm2_moe": DECODER | EXPERTS | {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1, "num_experts": 6},
}  # fmt: skip

HARMLESS = {
    "mamba falcon_mamba": {
        "a number format": "residual_in_fp32", "where its weights begin": "time_step_init_scheme", "intermediate_size says it": "expand",
        "which program runs": "use_mambapy use_associative_scan",
    },
    "olmo_hybrid": {"a factor of the step": "linear_allow_neg_eigval"},
    "lfm2": {"layer_types says it": "full_attn_idxs"},
    "lfm2_moe": {"a buffer that is not trained": "use_expert_bias"},
    "qwen3_next": {"all layers are mixtures": "intermediate_size"},
    "mamba2": {"heads and head_dim say it": "expand", "a number format": "residual_in_fp32", "bounds of a step": "time_step_rank time_step_limit"},
}  # fmt: skip


def mixers(ours):
    """Each mixer with the number of layers that have it, those of one layer apart."""
    for block, layers in ours.blocks:
        inside = getattr(block.mixer, "mamba", block.mixer)
        for each in getattr(inside, "branches", (inside,)):
            yield each, layers


def convolutions(ours, seq=SEQ, batch=BATCH):
    """the convolutions run on past the last token."""
    found = [
        (each, layers, getattr(each, "channels", None) or each._channels)
        for each, layers in mixers(ours)
        if hasattr(each, "conv")
    ]
    return sum(batch * layers * 2 * each.conv * (each.conv - 1) * channels for each, layers, channels in found)


def chunks(ours, seq=SEQ, batch=BATCH):
    """the convolutions run on past the last token, B and C are repeated for each head, and one product hands on the states of the chunks."""
    found = convolutions(ours, seq, batch)
    for mixer, layers in mixers(ours):
        if isinstance(mixer, StateSpace):
            count = -(-seq // mixer.chunk)
            more = 2 * count * mixer.chunk**2 * mixer.state * (mixer.heads - mixer.groups)
            found += batch * layers * (more + 2 * (count + 1) ** 2 * mixer.heads * mixer.head_dim * mixer.state)
    return found


# FLOPs that transformers' fallback does beside the algorithm, in products.
BEYOND = {
    "qwen3_next": convolutions, "qwen3_5_moe_text": convolutions, "qwen3_5_text": convolutions, "mamba2": chunks,
    "olmo_hybrid": convolutions,
    "mamba": convolutions, "falcon_mamba": convolutions, "lfm2": convolutions, "lfm2_moe": convolutions,
}  # fmt: skip
