"""The figure of recompute policies against the whole models that it is made of, against torch, and by hand."""

import random
import re
from functools import partial
from pathlib import Path

import pytest

import flopkit as fk
from flopkit.book import gallery
from flopkit.book.gallery import recompute_policies
from flopkit.book.gallery.checkpoints import CHUNK, GPUS, LOSSES, MODELS, POLICIES, STATES
from flopkit.training.memory import state_bytes

FIGURE = recompute_policies()
CHAPTERS = Path(__file__).parents[3] / "book"
RECOMPUTE = {
    "none": "none",
    "attention core": "selective",
    "segments of 2 layers": fk.models.Segments(layers=2),
    "segments of 4 layers": fk.models.Segments(layers=4),
    "every layer": "full",
}


@pytest.mark.parametrize("shown", MODELS)
@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_a_policy_is_the_memory_and_the_step_of_the_model(shown, kernel):
    rng = random.Random(shown + kernel)
    model = fk.load(MODELS[shown])
    for policy in RECOMPUTE:
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
        rows = {(row["recompute"], row["of_loss"]): row for row in FIGURE.rows(**settings)}
        at_once, chunked = (rows[policy, loss] for loss in LOSSES)
        assert at_once["total"] == activations + memory.states / 4
        assert at_once["over"] == executed / step.model_flops

        in_chunks = FIGURE.at(**settings, loss=f"chunks of {CHUNK:,} tokens")
        chunk = 3 * logits * min(1, CHUNK / (sizes["seq"] * sizes["batch"]))
        assert in_chunks["activations"] == memory.layers + max(memory.ends - logits + chunk, memory.again)
        assert in_chunks["hardware"] == executed
        assert chunked["total"] == in_chunks["total"] and chunked["added"] == in_chunks["added"] == at_once["added"]


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
    for name, gpu in GPUS.items():
        size = gpu["memory"]
        assert FIGURE.at(**small, device=name)["fits"] == ("yes" if total <= size else "no")
        printed = float(name.partition("(")[2].removesuffix(" GB)"))
        assert 0.985 < size / (printed * 2**30) <= 1, name  # cards are named in GiB, of which the driver keeps a little
    assert GPUS["A100 (40 GB)"]["memory"] == 40 * 2**30 and round(GPUS["H100 (80 GB)"]["memory"] / 2**20) == 81_090


def test_policies_of_single_operators_by_hand():
    """Llama-3-8B, bytes per token and feature: 41 of a layer, 23 without outputs of norms and MLP, 16 with every second matmul repeated."""
    stream, layers, mib = 8192 * 4096, 32, 2**20
    gate = 14336 / 4096
    kept = {
        "none": 2 * (1 + 1 + 1.5 + 1 + 1 + 1 + 4 * gate),
        "norms and activation": 2 * (1 + 1.5 + 1 + 1 + 2 * gate),
        "these + every 2nd matmul": 2 * (1 + 1.5 + 1 + 1 + gate),
    }
    assert [round(each, 6) for each in kept.values()] == [41, 23, 16]
    for policy, each in kept.items():
        found = FIGURE.at(policy=policy)["kept"]
        assert 0 <= found - each * stream * layers < 50 * mib  # statistics of norms and log-sums of scores
    half = FIGURE.at(policy="every 2nd layer")
    none, every = FIGURE.at(policy="none"), FIGURE.at(policy="every layer")
    for what in ("kept", "added", "hardware"):
        assert half[what] == pytest.approx((none[what] + every[what]) / 2)
    # time: two norms of 4 bytes and, per hidden feature, SiLU of 4 and a product of 6; then matmuls of 4,096 x 4,096 and 4,096 x 14,336
    step = fk.load("llama-3-8b").train_step(seq=8192).model_flops / 989.4e12
    cheap = layers * stream * (2 * 4 + 10 * gate) / 3.35e12
    assert FIGURE.at(policy="norms and activation")["added"] == pytest.approx(cheap / step, rel=1e-3)
    matmuls = layers * 2 * stream * (4096 + 14336) / 989.4e12
    assert FIGURE.at(policy="these + every 2nd matmul")["added"] == pytest.approx((cheap + matmuls) / step, rel=1e-3)
    # a whole layer: rotary (queries and keys, 4 bytes) and one sum (6 bytes) run again as well, down does not
    vector = cheap + layers * stream * (4 * 1.25 + 6) / 3.35e12
    again = FIGURE.at(policy="every layer")["hardware"] - FIGURE.at(policy="none")["hardware"]
    assert FIGURE.at(policy="every layer")["added"] == pytest.approx((again / 989.4e12 + vector) / step, rel=2e-3)


def test_a_stored_core_costs_its_bytes():
    """A math kernel moves 8 bytes per head and pair, 4 by the softmax and 4 by its products, which are memory-bound here."""
    found = FIGURE.at(policy="attention core", kernel="math")
    by_hand = 32 * 32 * 8192**2 * 8 / 3.35e12
    assert found["seconds"] == pytest.approx(by_hand, rel=1e-9)


def test_every_second_matmul_of_a_gpt_as_torch_runs_it():
    """A layer of a small GPT under torch's selective checkpoint, which saves the matmuls of qkv and up: only output runs again."""
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    d, tokens = 32, 24
    qkv, out, up, down = (torch.nn.Linear(*sizes, bias=False) for sizes in ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d)))
    norms = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)

    def layer(x):
        q, k, v = qkv(norms[0](x)).chunk(3, -1)
        x = x + out(q * k * v)  # in place of attention, which the policy saves
        return x + down(torch.nn.functional.gelu(up(norms[1](x))))

    def policy(context, op, *args, **kwargs):
        wide = op is torch.ops.aten.mm.default and args[1].shape[1] > d
        return CheckpointPolicy.MUST_SAVE if wide else CheckpointPolicy.PREFER_RECOMPUTE

    x = torch.ones(tokens, d, requires_grad=True)
    with fk.counting() as report:
        context = partial(create_selective_checkpoint_contexts, policy)
        checkpoint(layer, x, use_reentrant=False, context_fn=context).sum().backward()
    model = FIGURE.controls["model"].fields["GPT-3 175B"]
    assert report.hardware_flops - report.model_flops == 2 * tokens * d * d
    assert model["second_again"] == 2 * 12288 * 12288


def test_the_frontier_and_what_lies_behind_it():
    """Llama-3-8B with FlashAttention: chunks of the loss are on the frontier, and only four policies; single layers and segments are not."""

    def frontier(**settings):
        rows = FIGURE.rows(**settings)
        beaten = [
            any(
                b["total"] <= a["total"]
                and b["added"] <= a["added"]
                and (b["total"], b["added"]) != (a["total"], a["added"])
                for b in rows
            )
            for a in rows
        ]
        return [(row["recompute"], row["of_loss"]) for row, worse in zip(rows, beaten, strict=True) if not worse]

    chunks = list(LOSSES)[1]
    best = ["none", "norms and activation", "these + every 2nd matmul", "every layer"]
    assert frontier() == [(policy, chunks) for policy in best]
    assert ("attention core", chunks) in frontier(kernel="math")
    assert set(best) < set(POLICIES)


def test_what_is_cheap_and_what_the_loss_takes_are_written_once():
    """The figure, the drawing beside it and the chapter's check had a copy each."""
    book = Path(gallery.__file__).parents[1]
    texts = {path.name: path.read_text("utf8") for path in book.rglob("*.py")}
    texts |= {path.name: path.read_text("utf8") for path in CHAPTERS.glob("*.ipynb")}
    listed = r'"attention, input\\?",\s*\\?"mlp, input'
    assert [name for name, text in texts.items() if re.search(listed, text)] == ["recipes.py"]
    assert [
        name for name, text in texts.items() if re.search(r"\b3 \* (model\.|\(?4 \* model\.)?(logits|vocab)", text)
    ] == ["recipes.py"]
