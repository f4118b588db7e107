"""Which operators take a step's time: what counts as which kind, and that the profiler's rows are all there."""

import pytest
import torch

from flopkit.experiments import Bench, cnn_operators
from flopkit.experiments.cnn_operators import OPERATOR_KINDS, STEPS, by_kind, kind_of


@pytest.fixture(scope="module")
def records(toy):
    return toy("cnn_operators")[1]


def test_each_case_names_where_its_time_goes(records):
    assert [each["params"]["layout"] for each in records] == ["NCHW", "NHWC"]
    for each in records:
        assert each["verdict"] == "ok"
        kinds = {kind: each["extra"][kind] for kind in OPERATOR_KINDS}
        assert all(kinds[kind] > 0 for kind in ("norms", "depthwise", "pointwise", "convolutions", "activations"))
        assert 0.2 * each["seconds"]["fastest"] < sum(kinds.values()) < 5 * each["seconds"]["mean"]
        assert 0 < each["extra"]["depthwise, backward"] < kinds["depthwise"]


def test_the_work_is_that_of_the_network(records):
    """Three times the forward pass, less the first layer's gradient of the images, as the closed forms have it."""
    from flopkit.models.vision import cnn, cnn_backward

    size = {"batch": 2, "height": 64, "width": 64}
    expected = cnn("mobilenet_v2", **size).flops + cnn_backward("mobilenet_v2", **size).flops
    assert {each["counted"]["flops"] for each in records} == {expected}


@pytest.mark.parametrize(
    ("name", "shapes", "kind"),
    [
        ("aten::cudnn_convolution", [[8, 4, 9, 9], [16, 4, 3, 3], []], "convolutions"),
        ("aten::cudnn_convolution", [[8, 4, 9, 9], [16, 4, 1, 1], []], "pointwise"),
        ("aten::_conv_depthwise2d", [[8, 4, 9, 9], [4, 1, 3, 3], []], "depthwise"),
        ("aten::convolution_backward", [[8, 16, 9, 9], [8, 4, 9, 9], [16, 4, 1, 1], []], "pointwise"),
        ("aten::convolution_backward", [[8, 4, 9, 9], [8, 4, 9, 9], [4, 1, 3, 3], []], "depthwise"),
        ("aten::cudnn_batch_norm_backward", [[8, 4, 9, 9]], "norms"),
        ("aten::silu_backward", [[8, 4]], "activations"), ("aten::copy_", [[8]], "copies"), ("aten::mm", [[8, 8]], "others"),
    ],
)  # fmt: skip
def test_kinds(name, shapes, kind):
    assert kind_of(name, shapes) == kind


def test_seconds_are_those_of_one_step():
    rows = [
        ("aten::native_batch_norm", [[1]], 3e6, 2 * STEPS), ("aten::relu", [[1]], 0.0, 5 * STEPS),
        ("aten::_conv_depthwise2d", [[8, 4, 9, 9], [4, 1, 3, 3]], 6e6, STEPS),
    ]  # fmt: skip
    found = by_kind(rows)
    assert found["norms"] == 3 / STEPS and found["depthwise"] == 6 / STEPS and found["depthwise, backward"] == 0
    assert found["operators"] == 3  # what takes no time launched nothing


def test_a_case_that_is_known_is_not_profiled_again(records, monkeypatch):
    monkeypatch.setattr(cnn_operators, "profiled", lambda *args: pytest.fail("profiled again"))
    known = {Bench.key("cnn_operators", each["params"], each["dtype"]): each for each in records}
    assert list(cnn_operators.run(Bench("cpu", "toy", known=known))) == records


def test_a_graph_takes_the_work_of_the_eager_step(monkeypatch):
    """On a stand-in that says it is a card: the same step again, in a graph, and the FLOPs of the first."""
    asked = []
    monkeypatch.setattr(
        cnn_operators, "_case", lambda *args: asked.append(args[1:]) or {"counted": {"flops": len(asked), "bytes": 1}}
    )
    bench = Bench("cpu", "toy")
    bench.device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda where: (9, 0))
    list(cnn_operators.run(bench))
    modes = [(each[1], each[3]) for each in asked]
    assert modes == [(dtype, mode) for dtype in ("fp32", "bf16") for _ in "ab" for mode in ("eager", "graph")]
    assert [each[4]["flops"] for each in asked if each[3] == "graph"] == [1, 3, 5, 7]
