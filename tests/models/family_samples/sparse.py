"""Decoders whose attention chooses its tokens."""

from family_samples.sizes import LATENT

DSA = LATENT | {"index_topk": 8, "index_head_dim": 8, "index_n_heads": 2, "num_hidden_layers": 5}
SMALL = {
    "deepseek_v32": DSA,
    "glm_moe_dsa": DSA | {"indexer_types": ["full", "shared", "full", "shared", "shared"]},
}

HARMLESS = {
    "deepseek_v32 glm_moe_dsa": {
        "latent attention has heads of its own": "num_key_value_heads head_dim qk_head_dim",
        "mlp_layer_types says it": "first_k_dense_replace",
        "all layers are of one kind": "layer_types",
    },
}
