"""A whole training step: what it counts, that its optimiser works and leaves the weights, and that it is compiled where it is asked for."""

import pytest
import torch

from flopkit.experiments import Bench, gpt_step
from flopkit.experiments.decoder import DecoderSizes

TOY = DecoderSizes(layers=2, d_model=32, heads=4, kv_heads=4, d_ff=64, vocab=128)


@pytest.fixture(scope="module")
def records(toy):
    return {each["params"]["batch"]: each for each in toy("gpt_step")[1]}


def test_counts(records):
    weights = 2 * (4 * 32 * 32 + 3 * 32 * 64) + 32 * 128
    for batch, each in records.items():
        pairs = batch * 16 * 17 // 2
        step = TOY.model().train_step(seq=16, batch=batch)
        assert each["extra"]["model_flops"] == 6 * (16 * batch * weights + 4 * 32 * pairs)
        assert each["counted"]["flops"] == step.hardware_flops  # and the scores that a fused kernel computes again
        assert each["extra"]["six_n_flops"] == 6 * TOY.model().params * 16 * batch
        assert each["verdict"] == "ok" and each["error"] < 1e-5
    assert list(records) == [1, 2]


def test_the_optimiser_moves_the_same_bytes_whatever_the_batch(records):
    one, two = (records[batch]["counted"]["bytes"] for batch in (1, 2))
    assert two < 2 * one and 2 * one - two > 28 * TOY.model().params


def test_every_weight_of_the_model_is_in_the_program():
    from flopkit.experiments.decoder import decoder

    assert sum(each.numel() for each in decoder(TOY, "cpu", torch.float32).parameters()) == TOY.model().params


def test_a_rate_of_zero_works_and_changes_nothing(monkeypatch):
    made = []

    class Watched(torch.optim.AdamW):
        def __init__(self, parameters, **how):
            super().__init__(parameters, **how)
            self.start = [each.detach().clone() for each in self.param_groups[0]["params"]]
            made.append(self)

    monkeypatch.setattr(torch.optim, "AdamW", Watched)
    gpt_step._case(Bench("cpu", "toy"), 1, "fp32")
    [optimizer] = made
    weights = optimizer.param_groups[0]["params"]
    assert all(torch.equal(a, b) for a, b in zip(optimizer.start, weights, strict=True))
    assert all(optimizer.state[each]["step"] > 3 and optimizer.state[each]["exp_avg_sq"].sum() > 0 for each in weights)


def test_compiled_on_a_gpu(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda net: compiled.append(net) or net)
    assert gpt_step._case(Bench("cpu", "toy"), 1, "fp32", compiled=True)["verdict"] == "ok" and len(compiled) == 1
    monkeypatch.setattr(Bench, "case", lambda self, experiment, params, *rest, **how: params)
    cases = list(gpt_step.run(Bench("cpu", "gpu")))
    assert [(each["batch"], each["compiled"]) for each in cases] == [(1, False), (4, False), (16, False), (16, True)]
