"""The figure of recompute policies against the whole models that it is made of."""

import random

import pytest

import flopkit as fk
from flopkit.charts.gallery.checkpoints import MEMORIES, MODELS, POLICIES, STATES
from flopkit.training.memory import state_bytes

FIGURE = fk.charts.recompute_policies()
RECOMPUTE = {
    "none": "none",
    "selective": "selective",
    "sequential, k = 8": 8,
    "sequential, k = 4": 4,
    "sequential, k = 2": 2,
    "every layer": "full",
}


@pytest.mark.parametrize("shown", MODELS)
@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_a_policy_is_the_memory_and_the_step_of_the_model(shown, kernel):
    rng = random.Random(shown + kernel)
    model = fk.load(MODELS[shown])
    for policy in POLICIES:
        sizes = {"seq": rng.randint(512, model.positions or 9000), "batch": rng.randint(1, 5)}
        settings = {
            "model": shown,
            "policy": policy,
            "length": sizes["seq"],
            "batch": sizes["batch"],
            "kernel": kernel,
            "gpus": 4,
        }
        found = FIGURE.at(**settings)
        memory = model.train_memory(**sizes, recompute=RECOMPUTE[policy], kernel=kernel)
        step = model.train_step(**sizes, recompute=RECOMPUTE[policy], early_stop=True)
        assert found["activations"] == memory.activations
        assert found["states"] == memory.states / 4
        assert found["model_flops"] == step.model_flops
        flash = step.scores_again.flops if kernel == "flash" else 0
        assert found["hardware"] == step.model_flops + step.checkpointed.flops + flash
        rows = {row["policy"]: row for row in FIGURE.rows(**settings)}
        assert rows[policy]["total"] == memory.activations + memory.states / 4


def test_bytes_of_a_parameter_and_what_fits():
    for name, each in STATES.items():
        assert name.startswith(f"{each} bytes")
    assert sum(state_bytes("mixed", "adam")) == 16
    small = {"model": "Qwen2.5-0.5B", "length": 512, "gpus": 1}
    total = FIGURE.at(**small)["total"]
    for name, size in MEMORIES.items():
        assert FIGURE.at(**small, memory=name)["fits"] == ("yes" if total <= size else "no")
        assert name == f"{size / 1e9:.0f} GB"
