"""Checkpointing: what is executed again, by the closed forms and by hand, and that the loss and the gradients stay."""

import pytest
import torch

from flopkit.experiments import Bench, checkpointing
from flopkit.experiments.decoder import DecoderSizes, decoder, next_token_loss

TOY = DecoderSizes(layers=2, d_model=32, heads=4, kv_heads=4, d_ff=64, vocab=128)
TOKENS = 2 * 16


@pytest.fixture(scope="module")
def records(toy):
    return {each["params"]["recompute"]: each for each in toy("checkpointing")[1]}


def test_model_flops_by_hand(records):
    """Three passes over the weights of two layers and the head, and over scores and values of the visible pairs."""
    weights = 2 * (4 * 32 * 32 + 3 * 32 * 64) + 32 * 128
    pairs = 2 * 16 * 17 // 2  # two sequences of 16 tokens, each of which sees itself and those before it
    model = 3 * 2 * (TOKENS * weights + 2 * 2 * 32 * pairs)
    assert {each["extra"]["model_flops"] for each in records.values()} == {model}


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_executed_flops_by_the_closed_form(records, recompute):
    step = TOY.model().train_step(seq=16, batch=2, recompute=recompute, early_stop=True)
    assert records[recompute]["counted"]["flops"] == step.hardware_flops
    assert records[recompute]["verdict"] == "ok" and records[recompute]["error"] < 1e-5


def test_recomputing_repeats_the_blocks_but_for_their_last_product(records):
    again = records["full"]["counted"]["flops"] - records["none"]["counted"]["flops"]
    pairs = 2 * 16 * 17 // 2
    assert again == 2 * 2 * (TOKENS * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 32 * pairs)


def test_the_prediction_names_the_factor_of_its_sizes(monkeypatch):
    for scale in ("cpu", "gpu"):
        sizes, batch, seq = checkpointing.sizes_of(Bench("cpu", scale))
        step = sizes.model().train_step(seq=seq, batch=batch, recompute="full", early_stop=True)
        assert 1.2 < step.hardware_flops / step.model_flops < 4 / 3


def test_gradients_stay():
    torch.manual_seed(0)
    net = decoder(TOY, "cpu", torch.float64)
    tokens = torch.randint(128, (2, 17))
    kept, again = (
        torch.autograd.grad(next_token_loss(net, tokens, checkpointed), list(net.parameters()))
        for checkpointed in (False, True)
    )
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))
