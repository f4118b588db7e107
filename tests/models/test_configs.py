"""The configurations of published models: found by name, and near names where there is none."""

import pytest

from flopkit.models.configs import config_names, config_source, hf_config


@pytest.mark.parametrize("spelled", ["Llama 3 70B", "llama_3.70b", "LLAMA-3-70B"])
def test_names_are_read_generously(spelled):
    assert hf_config(spelled) == hf_config("llama-3-70b")
    assert config_source(spelled) == config_source("llama-3-70b")


def test_a_configuration_is_the_reader_s_own():
    hf_config("mixtral-8x7b")["num_local_experts"] = 1
    assert hf_config("mixtral-8x7b")["num_local_experts"] == 8  # Jiang et al. 2024, table 1


def test_a_name_that_is_not_known_has_near_ones():
    with pytest.raises(
        ValueError, match=r"name='llama-2-70b' is not a model .*; did you mean llama-3-70b or llama-3-8b\?$"
    ):
        hf_config("llama-2-70b")
    with pytest.raises(ValueError, match=r"name='deepseek' is not a model .*; did you mean deepseek-v3\?$"):
        config_source("deepseek")
    with pytest.raises(ValueError, match=f"name='gpt-4' is not a model .*; known: {', '.join(config_names())}$"):
        hf_config("gpt-4")
    with pytest.raises(TypeError, match="name=70 is not a model .*: must be a name, such as 'deepseek-v3'"):
        hf_config(70)
