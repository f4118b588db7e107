"""Decoders with linear attention beside full attention."""

from family_samples.recurrent import convolutions, mixers
from family_samples.sizes import BATCH, DECODER, EXPERTS, LATENT, SEQ
from flopkit.models import GatedDelta

SMALL = {
    "kimi_linear": DECODER | EXPERTS | {key: LATENT[key] for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")} | {
        "q_lora_rank": 20, "num_local_experts": 8, "n_shared_experts": 2, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "mlp_layer_types": ["dense", "sparse", "sparse"], "linear_head_dim": 8, "linear_num_heads": 3, "linear_conv_kernel_dim": 4,
        "num_key_value_heads": 4,
    },
    "minimax": DECODER | {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "block_size": 8},
    "recurrent_gemma": DECODER | {"attention_window_size": 8, "num_hidden_layers": 4, "lru_width": 48, "num_key_value_heads": 1},
}  # fmt: skip

HARMLESS = {
    "recurrent_gemma": {"vector work that is not counted": "logits_soft_cap", "block_types says it": "layers_block_type"},
    "kimi_linear": {
        "latent attention has heads of its own": "num_key_value_heads head_dim qk_head_dim", "which experts are chosen": "num_expert_group moe_renormalize",
        "positions that are turned have no table": "model_max_length",
    },
    "minimax": {"factors of sums": " ".join(f"{what}_{which}_factor" for what in ("full_attn", "linear_attn", "mlp") for which in ("alpha", "beta"))},
}  # fmt: skip


def kimi_delta(ours, seq=SEQ, batch=BATCH):
    """keys meet keys, and queries meet keys, element by element and not by products, 2·chunk·k_dim multiply-adds a token and head less; and a triangular
    matrix is inverted row by row and multiplied by its inverse, where we count a triangular system, half a square."""
    found = convolutions(ours, seq, batch)
    for mixer, layers in mixers(ours):
        if isinstance(mixer, GatedDelta):
            padded = batch * layers * mixer.heads * mixer.chunk * -(-seq // mixer.chunk)
            found += padded * mixer.chunk * (mixer.k_dim + mixer.v_dim - 4 * mixer.k_dim)
    return found


BEYOND = {"kimi_linear": kimi_delta, "recurrent_gemma": convolutions}
