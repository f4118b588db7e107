"""Parameters that the Hub gives for published checkpoints (``safetensors`` metadata), from the numbers of their ``config.json``.

Buffers stand in some checkpoints beside the parameters, such as the biases by which experts are chosen: they are said apart.
"""

import pytest

import flopkit as fk

GLM = {
    "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 128, "attention_bias": True, "partial_rotary_factor": 0.5, "tie_word_embeddings": False,
}  # fmt: skip
COHERE = {
    "vocab_size": 256000,
    "num_hidden_layers": 64,
    "hidden_size": 12288,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
}
OLMO = {"vocab_size": 50304, "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 16}
EXAONE = {
    "model_type": "exaone",
    "vocab_size": 102400,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "activation_function": "silu",
}
PUBLISHED = {
    "zai-org/GLM-4-9B-0414": (GLM | {"model_type": "glm4"}, 9_400_279_040),
    "zai-org/glm-4-9b-chat-hf": (GLM | {"model_type": "glm"}, 9_399_951_360),
    "CohereLabs/c4ai-command-r-plus": (COHERE | {"model_type": "cohere", "intermediate_size": 33792, "use_qk_norm": True}, 103_810_674_688),
    "CohereLabs/c4ai-command-a-03-2025": (COHERE | {"model_type": "cohere2", "intermediate_size": 36864}, 111_057_580_032),
    "ibm-granite/granite-3.1-8b-instruct": ({
        "model_type": "granite", "vocab_size": 49155, "hidden_size": 4096, "intermediate_size": 12800, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True,
    }, 8_170_848_256),
    "allenai/OLMo-1B-hf": (OLMO | {"model_type": "olmo", "intermediate_size": 8192, "tie_word_embeddings": True}, 1_176_764_416),
    "allenai/OLMoE-1B-7B-0924": (OLMO | {"model_type": "olmoe", "intermediate_size": 1024, "num_experts": 64}, 6_919_161_856),
    "HuggingFaceTB/SmolLM3-3B": ({"model_type": "smollm3"}, 3_075_098_624),
    "ByteDance-Seed/Seed-OSS-36B-Instruct": ({
        "model_type": "seed_oss", "vocab_size": 155136, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64,
        "num_attention_heads": 80, "num_key_value_heads": 8, "head_dim": 128, "attention_bias": True,
    }, 36_151_104_512),
    "baidu/ERNIE-4.5-0.3B-PT": ({"model_type": "ernie4_5"}, 360_748_032),
    "baidu/ERNIE-4.5-21B-A3B-PT": ({"model_type": "ernie4_5_moe"}, 21_825_437_888),
    "tencent/Hunyuan-A13B-Instruct": ({
        "model_type": "hunyuan_v1_moe", "vocab_size": 128167, "hidden_size": 4096, "intermediate_size": 3072, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "num_experts": 64, "moe_topk": [8] * 32,
        "num_shared_expert": [1] * 32, "moe_intermediate_size": [3072] * 32, "tie_word_embeddings": True, "use_qk_norm": True,
    }, 80_393_183_232),
    "rednote-hilab/dots.llm1.inst": ({
        "model_type": "dots1", "vocab_size": 152064, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32,
        "n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "sliding_window": None,
    }, 142_774_381_696 - 61 * 128),
    "LGAI-EXAONE/EXAONE-3.5-7.8B-Instruct": (EXAONE | {
        "hidden_size": 4096, "intermediate_size": 14336, "num_layers": 32, "tie_word_embeddings": False,
    }, 7_818_448_896),
    "LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct": (EXAONE | {
        "hidden_size": 2560, "intermediate_size": 7168, "num_layers": 30, "tie_word_embeddings": True,
    }, 2_405_327_360),
    "swiss-ai/Apertus-8B-2509": ({
        "model_type": "apertus", "intermediate_size": 21504, "num_key_value_heads": 8, "qk_norm": True,
    }, 8_053_338_176),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_of_published_checkpoints(name):
    config, params = PUBLISHED[name]
    assert fk.from_hf(config).params == params


def test_nothing_is_taken_for_what_a_file_with_code_of_its_own_leaves_out():
    config, _ = PUBLISHED["LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct"]
    with pytest.raises(ValueError, match="the configuration of model_type='exaone' lacks 'vocab_size'"):
        fk.from_hf({key: value for key, value in config.items() if key != "vocab_size"})


@pytest.mark.parametrize("sizes", [{"model_type": "mistral"}, {"model_type": "gemma2"}, {"model_type": "llama4_text"}])
def test_a_window_is_not_silently_whole_where_attention_is_not_causal(sizes):
    small = {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
    }
    with pytest.raises(
        ValueError,
        match="is_causal=False beside a (window|chunk) of .* tokens: what such layers see is not described here",
    ):
        fk.from_hf({**sizes, **small, "is_causal": False})
    assert not fk.from_hf({"model_type": "qwen2", **small, "is_causal": False}).causal


def test_the_layer_for_more_tokens_is_like_the_last_one():
    """The kinds of layers stand in the order in which they come, and the last layer need not be of the last kind."""
    small = {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "num_nextn_predict_layers": 1,
    }
    config = {"model_type": "ernie4_5_moe", **small, "moe_layer_start_index": 1, "moe_layer_end_index": 2}
    model = fk.from_hf(config, mtp=True)
    assert model.mtp == model.blocks[0][0] and model.order == (0, 1, 1, 0)
