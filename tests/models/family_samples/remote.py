"""Decoders whose code lies beside their weights: sizes, which transformers cannot build."""

from family_samples.sizes import DECODER

PARALLEL = {
    "padded_vocab_size": 96, "hidden_size": 32, "ffn_hidden_size": 80, "num_layers": 3, "num_attention_heads": 4, "kv_channels": 8,
    "multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True,
}  # fmt: skip
SMALL = {
    "baichuan": {key: value for key, value in DECODER.items() if key != "num_key_value_heads"},
    "internlm2": DECODER | {"bias": True},
    "minicpm": DECODER,
    "qwen": DECODER | {"kv_channels": 8, "no_bias": True},
    "chatglm": PARALLEL,
}
