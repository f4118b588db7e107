"""The configurations of published models: found by name, and near names where there is none."""

import pytest

from flopkit.models.files.config_fields import KEYS
from flopkit.models.files.config_table import reader_table
from flopkit.models.files.configs import config_names, config_source, hf_config


@pytest.mark.parametrize("spelled", ["Llama 3 70B", "llama_3.70b", "LLAMA-3-70B"])
def test_names_are_read_generously(spelled):
    assert hf_config(spelled) == hf_config("llama-3-70b")
    assert config_source(spelled) == config_source("llama-3-70b")


def test_a_configuration_is_the_reader_s_own():
    hf_config("mixtral-8x7b")["num_local_experts"] = 1
    assert hf_config("mixtral-8x7b")["num_local_experts"] == 8  # Jiang et al. 2024, table 1
    hf_config("gpt-oss-20b")["layer_types"].clear()
    assert len(hf_config("gpt-oss-20b")["layer_types"]) == 24


def test_a_name_that_is_not_known_has_near_ones():
    with pytest.raises(ValueError, match=r"name='llama-3-7b' is not a model .*; did you mean .*\bllama-3-70b\b.*\?$"):
        hf_config("llama-3-7b")
    with pytest.raises(
        ValueError,
        match=r"name='deepseek' is not a model .*; did you mean deepseek-r1, deepseek-v2, deepseek-v3, .* or 2 more\?$",
    ):
        config_source("deepseek")
    eight = ", ".join(config_names()[:8])
    with pytest.raises(
        ValueError, match=f"name='xyz' is not a model .*; known: {eight}, {len(config_names()) - 8} more$"
    ):
        hf_config("xyz")
    with pytest.raises(TypeError, match="name=70 is not a model .*: must be a name, such as 'all-minilm-l6-v2'"):
        hf_config(70)


def _numbers(rule):
    """Where a number of the table comes from, without what else the box is told of its words."""
    if "over" in rule:
        return {"over": [_numbers(each) for each in rule["over"]]}
    return {name: rule[name] for name in ("keys", "missing")}


def test_what_a_family_always_has_is_not_worked_out_from_its_width():
    """Gemma 3 leaves out heads of keys and their size; elsewhere they follow from the heads and the width."""
    table = reader_table(
        lambda numbers: {name: getattr(numbers["attention"], name, "none") for name in ("kv_heads", "head_dim")}
    )
    assert table["gemma3_text"]["set"] == {
        "kv_heads": {"keys": ["num_key_value_heads"], "missing": 4},
        "head_dim": {"keys": ["head_dim", "d_kv"], "missing": 256},
    }
    usual = {"heads": 32, "d_model": 4096}
    heads, width = ({"keys": list(KEYS[name]), "missing": usual[name]} for name in usual)
    rules = [heads, {"over": [width, heads]}]
    found = [table["llama"]["set"][name]["else"] for name in ("kv_heads", "head_dim")]
    assert [_numbers(each) for each in found] == rules
