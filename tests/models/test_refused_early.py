"""What cannot be built is refused where it is read, with the key that the file has; what transformers ignores is no number here."""

import json

import pytest

import flopkit as fk

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MOE = SMALL | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GPTJ = {"model_type": "gptj", "vocab_size": 96, "n_embd": 128, "n_layer": 2, "n_head": 2, "n_positions": 64}
STATES = {
    "model_type": "mamba2",
    "vocab_size": 96,
    "hidden_size": 32,
    "num_heads": 8,
    "head_dim": 8,
    "state_size": 16,
    "num_hidden_layers": 2,
}
LATE = {
    "gptj": (GPTJ | {"rotary_dim": 63}, "rotary_dim=63: features are turned in pairs"),
    "minimax_m2": (SMALL | {"model_type": "minimax_m2", "rotary_dim": 65}, "rotary_dim=65: features are turned in pairs"),
    "minimax_m3": (SMALL | {"model_type": "minimax_m3_vl_text", "rotary_dim": 65}, "rotary_dim=65: features are turned in pairs"),
    "ministral": (SMALL | {"model_type": "ministral", "head_dim": 7}, "model_type='ministral': these sizes cannot be built: head_dim=7"),
    "qwen3_5": (SMALL | {"model_type": "qwen3_5_text", "head_dim": 4}, "model_type='qwen3_5_text': these sizes cannot be built: head_dim=1"),
    "mamba2": (STATES | {"n_groups": 3}, "model_type='mamba2': these sizes cannot be built: groups=3 does not divide"),
    "olmo_hybrid": (
        SMALL | {"model_type": "olmo_hybrid", "linear_num_key_heads": 3, "linear_num_value_heads": 4},
        "model_type='olmo_hybrid': these sizes cannot be built: k_heads=3 does not divide",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LATE)
def test_sizes_that_no_layer_can_have_are_refused_at_reading(kind, tmp_path):
    config, why = LATE[kind]
    with pytest.raises(ValueError) as told:
        fk.from_hf(config)
    assert why in str(told.value)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError) as told:
        fk.from_hf(path)
    assert str(told.value).startswith(f"{path}: ") and why in str(told.value)


def test_an_even_number_of_turned_features_is_read():
    assert fk.from_hf(GPTJ | {"rotary_dim": 62}).params == fk.from_hf(GPTJ | {"rotary_dim": None}).params


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "mpt", "d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 96, "expansion_ratio": 8}, "expansion_ratio=8"),
        (MOE | {"model_type": "phimoe", "num_local_experts": 4, "num_experts_per_tok": 4}, "num_experts_per_tok=4"),
        (MOE | {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 0}, "shared_expert_intermediate_size=0"),
    ],
)  # fmt: skip
def test_what_transformers_builds_otherwise_is_refused(config, why):
    """It has 4 · d_model in an mpt, a router for two in a phimoe, and in a qwen2_moe the gate of a shared expert without width."""
    with pytest.raises(ValueError, match=why):
        fk.from_hf(config)
