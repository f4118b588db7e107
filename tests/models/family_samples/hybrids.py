"""Models whose layers differ in kind."""

from family_samples.recurrent import chunks, convolutions
from family_samples.sizes import DECODER, EXPERTS

BAMBA = {
    "mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 24, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 8,
}  # fmt: skip

SMALL = {
    "nemotron_h": {key: value for key, value in (DECODER | EXPERTS).items() if key != "num_hidden_layers"} | {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "linear_attention", "mlp", "moe"], "head_dim": 16,
        "mamba_num_heads": 4, "mamba_head_dim": 12, "ssm_state_size": 24, "n_groups": 2, "conv_kernel": 4, "chunk_size": 8,
        "n_routed_experts": 6, "moe_shared_expert_intermediate_size": 40, "moe_latent_size": 16, "mtp_layers_block_type": ["full_attention", "moe"],
    },
    "granitemoehybrid": DECODER | BAMBA | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "shared_intermediate_size": 40, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    },
    "bamba": DECODER | BAMBA | {"attn_layer_indices": [1]},
    "falcon_h1": DECODER | BAMBA | {"mamba_d_ssm": 48},
    "jamba": DECODER | {
        "num_hidden_layers": 5, "num_experts": 6, "num_experts_per_tok": 2, "attn_layer_period": 3, "attn_layer_offset": 1, "mamba_d_state": 6,
        "mamba_d_conv": 4, "mamba_expand": 3,
    },
    "zamba2": DECODER | {
        "num_hidden_layers": 6, "layers_block_type": ["linear_attention", "hybrid", "hybrid", "linear_attention", "hybrid", "linear_attention"],
        "mamba_d_state": 24, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 2, "n_mamba_heads": 4, "chunk_size": 8, "num_mem_blocks": 2,
        "use_shared_attention_adapter": True, "adapter_rank": 8, "num_key_value_heads": 4, "use_mem_rope": True,
    },
}  # fmt: skip

HARMLESS = {
    "zamba2": {
        "unused by transformers": "use_conv_bias kv_channels num_query_groups", "which program runs": "use_mamba_kernels use_mem_eff_path num_logits_to_keep",
        "angles": "use_long_context",
    },
    "bamba falcon_h1": {"which program runs": "num_logits_to_keep"},
    "bamba": {"attn_layer_indices says it": "layers_block_type"},
    "falcon_h1": {"all layers are alike": "layers_block_type", "before or behind a norm": "mamba_norm_before_gate", "mamba_d_ssm says it": "mamba_expand"},
    "jamba": {"which program runs": "use_mamba_kernels use_mambapy use_associative_scan", "the periods say it": "layers_block_type"},
    "nemotron_h": {
        "heads and head_dim say it": "expand", "a number format": "residual_in_fp32 mamba_ssm_cache_dtype", "unused by transformers": "mamba_proj_bias",
        "which program runs": "use_mamba_kernels moe_shared_expert_overlap num_logits_to_keep",
        "of the layer that mtp=True adds": "num_nextn_predict_layers mtp_layers_block_type",
    },
}  # fmt: skip

BEYOND = {
    "nemotron_h": chunks, "granitemoehybrid": chunks, "bamba": chunks, "falcon_h1": chunks, "jamba": convolutions,
    "zamba2": chunks,
}  # fmt: skip
