"""The thirteen networks: what a step counts by the closed forms, and that each method does what its name says."""

import pytest
import torch

from flopkit.experiments import Bench, cnns
from flopkit.models.vision import cnn, cnn_names


def first_layer(network, **sizes):
    """FLOPs of the first convolution: its input needs no gradient, so the backward pass does it once and not twice."""
    return cnn(network, **sizes).parts[0].flops


@pytest.fixture(scope="module")
def records(toy):
    found = toy("cnns")[1]
    return {(each["params"]["network"], each["params"]["method"]): each for each in found}


def test_networks_and_methods(records):
    assert list(records) == [
        ("resnet18", "batch"), ("mobilenet_v2", "batch"), ("mobilenet_v2", "one"), ("mobilenet_v2", "epoch"),
    ]  # fmt: skip
    assert [each["params"]["batch"] for each in records.values()] == [2, 2, 1, 2]
    assert [each["extra"]["images"] for each in records.values()] == [2, 2, 1, 4]


def test_a_step_counts_three_forward_passes_less_the_gradient_of_the_images(records):
    for (network, _method), each in records.items():
        images = each["extra"]["images"]
        sizes = {"batch": images, "height": 64, "width": 64}
        theory = 3 * cnn(network, **sizes).flops
        assert each["extra"]["theory_flops"] == theory
        assert each["counted"]["flops"] == theory - first_layer(network, **sizes)
        assert each["verdict"] == "ok" and each["error"] < 1e-4


def test_an_epoch_moves_what_the_optimiser_moves(records):
    """Per batch SGD with momentum reads and writes the weights and more; a step without it does not."""
    step, epoch = (records["mobilenet_v2", method]["counted"]["bytes"] for method in ("batch", "epoch"))
    weights = 4 * cnn("mobilenet_v2").params
    assert epoch - 2 * step > 2 * 3 * weights


def asked(monkeypatch, scale, dtypes):
    """The cases that are asked for at *scale* on a device with such formats; nothing runs."""
    monkeypatch.setattr(Bench, "dtypes", dtypes)
    monkeypatch.setattr(Bench, "case", lambda self, experiment, params, make, dtype, **how: (params, dtype, make, how))
    return list(cnns.run(Bench("cpu", scale)))


def test_on_a_gpu(monkeypatch):
    cases = asked(monkeypatch, "gpu", ("bf16", "tf32", "fp32"))
    batch = [(p["network"], dtype) for p, dtype, *_ in cases if p["method"] == "batch" and not p["compiled"]]
    assert batch == [(name, dtype) for name in cnn_names() for dtype in ("bf16", "tf32", "fp32")]
    assert {(p["network"], p["method"]) for p, *_ in cases if p["method"] != "batch"} == {
        (name, method) for name in cnns.SHOWN for method in ("one", "epoch")
    }
    assert {(p["network"], dtype) for p, dtype, *_ in cases if p["compiled"]} == {(name, "bf16") for name in cnns.SHOWN}
    assert {p["pixels"] for p, *_ in cases} == {224} and {p["batch"] for p, *_ in cases} == {1, 64}


def test_all_thirteen_fit_on_a_cpu(monkeypatch):
    cases = asked(monkeypatch, "cpu", ("fp32",))
    assert [p["network"] for p, *_ in cases if p["method"] == "batch"] == cnn_names() and len(cases) == 13 + 4


def test_half_precision_runs_channels_last(monkeypatch):
    cases = asked(monkeypatch, "toy", ("bf16", "fp32"))
    for params, dtype, make, how in cases[2:4]:  # of mobilenet_v2
        step, labels, images = make()
        half = dtype == "bf16"
        assert images[0].dtype == (torch.bfloat16 if half else torch.float32)
        assert images[0].is_contiguous(memory_format=torch.channels_last) == half
        if half:
            with torch.no_grad():
                found, right = step(labels, images), how["check"](labels, images)
            assert found.dtype == torch.bfloat16 and torch.allclose(found.double(), right, rtol=0.02), params


def test_the_compiled_network_runs_where_it_is_asked_for(monkeypatch):
    """With a stand-in for the compiler, which takes minutes on a CPU."""
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda net: compiled.append(net) or net)
    bench = Bench("cpu", "toy")
    record = cnns._case(bench, "mobilenet_v2", "batch", "fp32", compiled=True)
    assert len(compiled) == 1 and record["params"]["compiled"] and record["verdict"] == "ok"


def test_a_step_leaves_the_weights_as_they_are():
    """Or the check of the same network would find other losses."""
    net = cnns.network_of("mobilenet_v2", "cpu")
    before = [each.clone() for each in net.parameters()]
    labels, images = torch.zeros(2, 2, dtype=torch.int64), list(torch.randn(2, 2, 3, 64, 64))
    cnns._steps(net, "cpu", optimizer=torch.optim.SGD(net.parameters(), lr=0.0, momentum=0.9))(labels, images)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert all(each.grad.abs().sum() > 0 for each in net.parameters())


def test_without_torchvision(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ImportError, match="pip install torchvision"):
        cnns.network_of("resnet18", "cpu")
