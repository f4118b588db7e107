"""Models whose layers differ in kind."""

from family_samples.recurrent import chunks
from family_samples.sizes import DECODER, EXPERTS

SMALL = {
    "nemotron_h": {key: value for key, value in (DECODER | EXPERTS).items() if key != "num_hidden_layers"} | {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "linear_attention", "mlp", "moe"], "head_dim": 16,
        "mamba_num_heads": 4, "mamba_head_dim": 12, "ssm_state_size": 24, "n_groups": 2, "conv_kernel": 4, "chunk_size": 8,
        "n_routed_experts": 6, "moe_shared_expert_intermediate_size": 40, "moe_latent_size": 16, "mtp_layers_block_type": ["full_attention", "moe"],
    },
}  # fmt: skip

HARMLESS = {
    "nemotron_h": {
        "heads and head_dim say it": "expand", "a number format": "residual_in_fp32 mamba_ssm_cache_dtype", "unused by transformers": "mamba_proj_bias",
        "which program runs": "use_mamba_kernels moe_shared_expert_overlap num_logits_to_keep",
        "of the layer that mtp=True adds": "num_nextn_predict_layers mtp_layers_block_type",
    },
}  # fmt: skip

BEYOND = {"nemotron_h": chunks}
