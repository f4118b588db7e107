"""The batch sweep: FLOPs grow with the batch, bytes hardly, and the ridge is read off where two lines cross."""

import pytest

import flopkit as fk
from flopkit.experiments import dense_batch


def test_counts_are_those_of_the_closed_form(toy):
    records = toy("dense_batch")[1]
    assert [each["params"]["tokens"] for each in records] == [1, 4]
    for each in records:
        layer = fk.dense(tokens=each["params"]["tokens"], d_in=32, d_out=32, dtype="fp32")
        assert (each["counted"]["flops"], each["counted"]["bytes"]) == (layer.flops, layer.bytes)


def record(tokens, seconds, verdict="ok"):
    return {"params": {"tokens": tokens}, "seconds": {"mean": seconds}, "verdict": verdict}


def test_the_ridge_of_a_device_that_follows_its_roofline():
    """time = max(bytes / bandwidth, FLOPs / peak) on an H200: the lines cross at the device's ridge point, but for the activations' bytes."""
    card, width = fk.device("h200"), 8192
    records = []
    for tokens in (1, 64, 256, 4096):
        layer = fk.dense(tokens=tokens, d_in=width, d_out=width, dtype="bf16")
        records.append(record(tokens, max(layer.bytes / card.bandwidth, layer.flops / card.peak("bf16"))))
    assert dense_batch.ridge(records) == pytest.approx(card.peak("bf16") / card.bandwidth, rel=1e-3)


def test_what_was_refused_is_no_part_of_the_ridge():
    records = [record(1, 1e-3), record(100, 2e-3), record(1000, 1e-9, "impossible")]
    assert dense_batch.ridge(records) == 50
    with pytest.raises(ValueError, match="two batches"):
        dense_batch.ridge(records[1:])
