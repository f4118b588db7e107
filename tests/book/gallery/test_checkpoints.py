"""The figure of recompute policies against the whole models that it is made of."""

import random

import pytest

import flopkit as fk
from flopkit.book.gallery import recompute_policies
from flopkit.book.gallery.checkpoints import CHUNK, LOSSES, MEMORIES, MODELS, POLICIES, STATES
from flopkit.training.memory import state_bytes

FIGURE = recompute_policies()
RECOMPUTE = {
    "none": "none",
    "attention core": "selective",
    "segments of 2 layers": fk.models.Segments(layers=2),
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
        memory = model.train_memory(**sizes, recompute=RECOMPUTE[policy], kernel=kernel)
        step = model.train_step(**sizes, recompute=RECOMPUTE[policy], early_stop=True)
        logits = 4 * sizes["seq"] * sizes["batch"] * model.vocab  # in fp32
        activations = memory.layers + max(memory.ends + 2 * logits, memory.again)
        assert memory.activations <= activations <= memory.activations + 2 * logits
        found = FIGURE.at(**settings)
        assert found["activations"] == activations
        assert found["states"] == memory.states / 4
        assert found["model_flops"] == step.model_flops
        flash = step.scores_again.flops if kernel == "flash" else 0
        executed = step.model_flops + step.checkpointed.flops + flash
        assert found["hardware"] == executed
        rows = {row["policy"]: row for row in FIGURE.rows(**settings)}
        assert rows[policy]["total"] == activations + memory.states / 4

        in_chunks = FIGURE.at(**settings, loss=f"chunks of {CHUNK:,} tokens")
        chunk = 3 * logits * min(1, CHUNK / (sizes["seq"] * sizes["batch"]))
        assert in_chunks["activations"] == memory.layers + max(memory.ends - logits + chunk, memory.again)
        assert in_chunks["hardware"] == executed


def test_what_fits_beside_the_loss():
    """Eight H100s that share Llama-3-8B: four sequences of 8,192 tokens fit with every layer checkpointed, eight do not."""
    states, layers, ends, gradients = 16 * 8_030_261_248 / 8, 32 * 8192 * 4096 * 2, 4_336_947_200, 8 * 8192 * 128256
    for batch, fits in ((4, "yes"), (8, "no")):
        found = FIGURE.at(batch=batch, policy="every layer")
        assert found["total"] == pytest.approx(states + batch * (layers + ends + gradients), rel=1e-4)
        assert found["fits"] == fits
    assert FIGURE.at(batch=16, policy="every layer", loss=list(LOSSES)[1])["fits"] == "yes"


def test_bytes_of_a_parameter_and_what_fits():
    for name, each in STATES.items():
        assert name.startswith(f"{each} bytes")
    assert sum(state_bytes("mixed", "adam")) == 16
    small = {"model": "Qwen2.5-0.5B", "length": 512, "gpus": 1}
    total = FIGURE.at(**small)["total"]
    for name, size in MEMORIES.items():
        assert FIGURE.at(**small, memory=name)["fits"] == ("yes" if total <= size else "no")
        printed = float(name.partition("(")[2].removesuffix(" GB)"))
        assert 0.985 < size / (printed * 2**30) <= 1, name  # cards are named in GiB, of which the driver keeps a little
    assert MEMORIES["A100 (40 GB)"] == 40 * 2**30 and round(MEMORIES["H100 (80 GB)"] / 2**20) == 81_090
