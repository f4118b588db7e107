"""Models of transformers made small: the configuration that each kind has by default, with fewer layers, less width, few words."""

from __future__ import annotations

import torch

LAYERS = """
    num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers depth
    n_encoder_layers n_decoder_layers num_blocks
""".split()
SIZES = {
    2: (*LAYERS, "num_key_value_heads", "num_kv_heads", "n_kv_heads", "num_experts_per_tok", "top_k", "moe_topk"),
    4: """
        num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads attention_heads
        num_experts n_routed_experts num_local_experts
    """.split(),
    8: "head_dim d_kv attention_head_size qk_head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim".split(),
    16: "moe_intermediate_size shared_expert_intermediate_size expert_dim q_lora_rank kv_lora_rank".split(),
    32: """
        hidden_size d_model n_embd embed_dim dim word_embed_proj_dim embedding_size encoder_hidden_size decoder_hidden_size
        projection_dim
    """.split(),
    64: """
        intermediate_size ffn_dim d_ff d_inner n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size mlp_dim intermediate_dim
        expert_ffn_hidden_size feed_forward_size image_size
    """.split(),
    1: ("n_group", "topk_group", "first_k_dense_replace"),
    99: ("vocab_size",),
}
MOST = {name: most for most, names in SIZES.items() for name in names}
TOKENS = {"pad": 0, "bos": 1, "eos": 2}
CHOSEN = ("out_features", "out_indices", "stage_names")  # names of layers, which are not there any more


def small(config):
    """A dictionary like a configuration's, made small; one entry for each of two layers, of two kinds where there are two."""
    layers = next((config[name] for name in LAYERS if isinstance(config.get(name), int)), None)
    found = {}
    for name, value in config.items():
        if name in CHOSEN:
            continue
        if isinstance(value, dict) and name.endswith("_config"):
            value = small(value)
        elif name in MOST and type(value) is int:
            value = min(value, MOST[name])
        elif name.endswith("_token_id") and isinstance(value, int) and value >= MOST["vocab_size"]:
            value = TOKENS.get(name.split("_")[0], 3)
        elif isinstance(value, list) and layers and layers > 2 and len(value) == layers:
            value = [value[0], next((other for other in value if other != value[0]), value[1])]
        found[name] = value
    return found


def made(kind):
    """A small model of a kind, such as "llama", and inputs for it."""
    import transformers
    from transformers.models.auto import modeling_auto

    config_class = transformers.CONFIG_MAPPING[kind]
    fields = small(config_class().to_dict())
    config = config_class(**{k: v for k, v in fields.items() if k not in ("model_type", "transformers_version")})
    name = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind) or modeling_auto.MODEL_MAPPING_NAMES[kind]
    torch.manual_seed(0)
    model = getattr(transformers, name if isinstance(name, str) else name[0])(config)
    return model, inputs(model, config)


def inputs(model, config):
    kind = model.main_input_name
    if kind == "input_ids":
        words = torch.randint(3, min(getattr(config.get_text_config(), "vocab_size", 99), 99), (2, 16))
        return {kind: words} | ({"decoder_input_ids": words[:, :12]} if config.is_encoder_decoder else {})
    if kind == "pixel_values":
        size = (
            getattr(config, "image_size", None)
            or getattr(getattr(config, "vision_config", None), "image_size", None)
            or 64
        )
        height, width = size if isinstance(size, (tuple, list)) else (size, size)
        return {kind: torch.randn(2, getattr(config, "num_channels", 3), height, width)}
    if kind == "input_values":
        return {kind: torch.randn(2, 4000)}
    return {kind: torch.randn(2, getattr(config, "num_mel_bins", 80), 3000)}
