"""Decoders that transformers does not have: parameters as their authors published them, products as those of a Llama of the same sizes."""

import pytest

import flopkit as fk

BAICHUAN = {
    "model_type": "baichuan", "architectures": ["BaiChuanForCausalLM"], "vocab_size": 64000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
BAICHUAN_13B = {
    "model_type": "baichuan", "architectures": ["BaichuanForCausalLM"], "vocab_size": 64000, "hidden_size": 5120, "intermediate_size": 13696,
    "num_hidden_layers": 40, "num_attention_heads": 40, "model_max_length": 4096, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
MINICPM = {
    "model_type": "minicpm", "architectures": ["MiniCPMForCausalLM"], "vocab_size": 122753, "hidden_size": 2304, "intermediate_size": 5760,
    "num_hidden_layers": 40, "num_attention_heads": 36, "num_key_value_heads": 36, "hidden_act": "silu", "scale_emb": 12,
    "dim_model_base": 256, "scale_depth": 1.4,
}  # fmt: skip
MINICPM_1B = MINICPM | {
    "vocab_size": 73440, "hidden_size": 1536, "intermediate_size": 3840, "num_hidden_layers": 52, "num_attention_heads": 24,
    "num_key_value_heads": 8,
}  # fmt: skip
INTERNLM2 = {
    "model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"], "vocab_size": 92544, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "bias": False, "hidden_act": "silu",
    "tie_word_embeddings": False,
}  # fmt: skip
QWEN = {
    "model_type": "qwen", "architectures": ["QWenLMHeadModel"], "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
    "num_hidden_layers": 32, "num_attention_heads": 32, "kv_channels": 128, "no_bias": True, "tie_word_embeddings": False,
}  # fmt: skip
CHATGLM = {
    "model_type": "chatglm", "architectures": ["ChatGLMModel"], "padded_vocab_size": 65024, "hidden_size": 4096, "ffn_hidden_size": 13696,
    "num_layers": 28, "num_attention_heads": 32, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
    "add_qkv_bias": True, "add_bias_linear": False, "rmsnorm": True, "post_layer_norm": True,
    "apply_residual_connection_post_layernorm": False, "tie_word_embeddings": False,
}  # fmt: skip

# Baichuan: the tables of github.com/baichuan-inc/Baichuan-7B and Baichuan-13B. MiniCPM: Hu et al. 2024 (arXiv 2404.06395), table 2, without the
# embedding, which is tied. InternLM2: the elements of its safetensors. Qwen, ChatGLM: ``model.num_parameters()`` of their own code, as users print it.
PUBLISHED = {
    "Baichuan-7B": (BAICHUAN, 7_000_559_616),
    "Baichuan-13B": (BAICHUAN_13B, 13_264_901_120),
    "MiniCPM-2.4B": (MINICPM, 2_442_057_984 + 122_753 * 2304),
    "MiniCPM-1.2B": (MINICPM_1B, 1_247_442_432 + 73_440 * 1536),
    "InternLM2-7B": (INTERNLM2, 7_737_708_544),
    "Qwen-7B": (QWEN, 7_721_324_544),
    "ChatGLM2-6B": (CHATGLM, 6_243_584_000),
    "GLM-4-9B": (CHATGLM | {"padded_vocab_size": 151552, "num_layers": 40}, 9_399_951_360),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name):
    config, params = PUBLISHED[name]
    assert fk.from_hf(config).params == params


@pytest.mark.parametrize("name", PUBLISHED)
def test_products_are_those_of_a_llama_of_these_sizes(name):
    config, _ = PUBLISHED[name]
    d_ff = config.get("intermediate_size", config.get("ffn_hidden_size")) // (
        2 if config["model_type"] == "qwen" else 1
    )
    kv_heads = config.get("num_key_value_heads", config.get("multi_query_group_num", config["num_attention_heads"]))
    llama = fk.from_hf({
        "model_type": "llama", "vocab_size": config.get("vocab_size", config.get("padded_vocab_size")), "hidden_size": config["hidden_size"],
        "intermediate_size": d_ff, "num_hidden_layers": config.get("num_hidden_layers", config.get("num_layers")),
        "num_attention_heads": config["num_attention_heads"], "num_key_value_heads": kv_heads,
    })  # fmt: skip
    ours = fk.from_hf(config)
    assert ours.forward(seq=512).flops == llama.forward(seq=512).flops
    assert ours.kv_bytes(context=512) == llama.kv_bytes(context=512)


def test_what_is_turned():
    """All of a head, half of it, nothing."""
    turned = {
        name: fk.from_hf(PUBLISHED[name][0]).blocks[0][0].mixer.rotary
        for name in ("Baichuan-7B", "ChatGLM2-6B", "Baichuan-13B")
    }
    assert turned == {"Baichuan-7B": 128, "ChatGLM2-6B": 64, "Baichuan-13B": 0}


def test_biases():
    """InternLM2's on all four projections, one matrix of three."""
    more = fk.from_hf(INTERNLM2 | {"bias": True}).params - fk.from_hf(INTERNLM2).params
    assert more == 32 * (4096 + 2 * 1024 + 4096)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (QWEN | {"visual": {"layers": 48}}, "visual="),
        (QWEN | {"no_bias": False}, "no_bias=False"),
        (QWEN | {"intermediate_size": 22017}, "22017"),
        (MINICPM | {"mup_denominator": 32}, "tie_word_embeddings"),
        (MINICPM | {"num_experts": 8}, "num_experts=8"),
        (MINICPM | {"sparse_config": {"kernel_size": 32}}, "sparse_config="),
        (CHATGLM | {"add_bias_linear": True}, "add_bias_linear=True"),
        (
            {key: value for key, value in CHATGLM.items() if key != "ffn_hidden_size"} | {"inner_hidden_size": 16384},
            "ffn_hidden_size",
        ),
        (INTERNLM2 | {"architectures": ["InternLM2ForRewardModel"]}, "InternLM2ForRewardModel"),
        ({key: value for key, value in INTERNLM2.items() if key != "vocab_size"}, "vocab_size"),
    ],
)
def test_refused(config, why):
    with pytest.raises(ValueError, match=why):
        fk.from_hf(config)
