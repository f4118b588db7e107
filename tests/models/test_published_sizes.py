"""Parameters of published checkpoints, from the sizes of their configurations: each number, and where the sizes stand, with its source.

Numbers that are "quoted on GitHub" stand in several public repositories, which count the checkpoint or read the Hub's own count of it
(``safetensors`` metadata); they were found by the number itself.
"""

import pytest

import flopkit as fk

QUOTED = "quoted on GitHub: "
EXAONE = {
    "model_type": "exaone", "vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 14336, "num_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "activation_function": "silu", "tie_word_embeddings": False,
}  # fmt: skip
PUBLISHED = {
    "zai-org/glm-4-9b-chat-hf": ({
        "model_type": "glm", "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "attention_bias": True, "partial_rotary_factor": 0.5,
        "tie_word_embeddings": False,
    }, 9_399_951_360, 0, QUOTED + "chatllm.cpp prints it of GLM-4; sizes: sgl-project/ome@17b77ed, pkg/hfutil/modelconfig/testdata/glm4_9b.json"),
    "allenai/OLMo-1B-hf": ({
        "model_type": "olmo", "vocab_size": 50304, "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 16,
        "intermediate_size": 8192, "tie_word_embeddings": True,
    }, 1_176_764_416, 0, QUOTED + "parameters of OLMo-1B at revision 81b71ef; sizes: LitGPT, litgpt/config.py, entry OLMo-1B-hf"),
    "allenai/OLMoE-1B-7B-0924": ({"model_type": "olmoe", "intermediate_size": 1024},
        6_919_161_856, 0, QUOTED + "the Hub's metadata, 3,219 tensors; sizes: transformers 5.23.0, OlmoeConfig, with experts of 1,024, which alone give it"),
    "HuggingFaceTB/SmolLM3-3B": ({"model_type": "smollm3"},
        3_075_098_624, 0, QUOTED + "total_parameters of its safetensors index; sizes: transformers 5.23.0, SmolLM3Config"),
    "ByteDance-Seed/Seed-OSS-36B-Instruct": ({
        "model_type": "seed_oss", "vocab_size": 155136, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64,
        "num_attention_heads": 80, "num_key_value_heads": 8, "head_dim": 128, "attention_bias": True,
    }, 36_151_104_512, 0, QUOTED + "a table of its config.json (all but the biases) and of the parameters in its index, fetched 2026-05-13"),
    "baidu/ERNIE-4.5-0.3B-PT": ({"model_type": "ernie4_5"},
        360_748_032, 0, QUOTED + "of 18 layers of width 1,024; sizes: transformers 5.23.0, Ernie4_5Config"),
    "LGAI-EXAONE/EXAONE-3.5-7.8B-Instruct": (EXAONE,
        7.8e9, 5e7, "its maker, in the name of the checkpoint; sizes: sgl-project/ome@17b77ed, pkg/hfutil/modelconfig/testdata/exaone_7.8b.json"),
    "swiss-ai/Apertus-8B-2509": ({
        "model_type": "apertus", "intermediate_size": 21504, "num_key_value_heads": 8, "qk_norm": True,
    }, 8_053_338_176, 0, QUOTED + "the loaded 8B; sizes: transformers 5.23.0, ApertusConfig, but for the MLP and the heads of keys and values, which give it"),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_of_published_checkpoints(name):
    config, params, half, source = PUBLISHED[name]
    assert abs(fk.from_hf(config).params - params) <= half, source


def test_nothing_is_taken_for_what_a_file_with_code_of_its_own_leaves_out():
    with pytest.raises(ValueError, match="the configuration of model_type='exaone' lacks 'vocab_size'"):
        fk.from_hf({key: value for key, value in EXAONE.items() if key != "vocab_size"})


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
