"""What explains a prediction that missed: each miss on each machine and no other,
and the words rest on what the recordings show."""

import pytest

import flopkit as fk
from flopkit.book.explanations import H200, MACHINES
from flopkit.book.explanations.h200 import not_measured
from flopkit.experiments import NAMES, experiment
from flopkit.experiments.expectations import launch


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.device)
def test_each_experiment_of_which_a_part_missed_is_explained_and_no_other(machine):
    assert [name for name in NAMES if any(part.missed for part in machine.findings(name))] == list(machine.reasons)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.device)
def test_what_a_machine_has_not_measured_is_said(machine):
    """Either no prediction is about such a machine, or the experiment came after the recording."""
    asked = [name for name in NAMES if machine.asked(name)]
    assert [name for name in asked if not machine.records(name)] == list(machine.missing)
    assert not any(machine.records(name) for name in NAMES if name not in asked)
    for name in asked:
        came_later = "younger than the recording" in machine.missing.get(name, "")
        assert came_later or (name in machine.missing) == (machine.scale not in experiment(name).expectations)


def test_of_the_thirteen_networks_eight_cases_are_missing():
    compiled = [each for each in H200.records("cnns") if each["params"]["compiled"]]
    assert {each["params"]["network"] for each in compiled} == {"resnet18", "resnet50"}
    assert "8 of the 54 cases" in not_measured(H200)


def test_the_reasons_rest_on_what_the_recording_shows():
    """What stands in words in the reasons and on the page, beside the numbers that are
    computed."""
    of = {name: H200.cases(name) for name in NAMES if name not in H200.missing}
    batches = (1, 16, 64, 128, 192, 256, 384, 512)
    waiting = [n for n in batches if launch(of["dense_batch"](tokens=n, dtype="bf16")) is not None]
    assert waiting[-1] == 256, "in bf16 the device waits for launches up to 256 tokens"
    [dense, *_] = H200.findings("convolutions")
    assert [each.low > dense.expected.limits[1] for each in dense.values] == [False, False, False, True], "in fp32 only"
    assert launch(of["gpt_step"](batch=16, dtype="bf16", compiled=False)) is None
    few, more = (of["experts"](tokens=n, load="balanced")["seconds"]["mean"] for n in (64, 1024))
    assert few / more == pytest.approx(1, abs=0.15), "about as long"
    forms = {form: of["fusion"](program="norm", form=form)["counted"]["bytes"] for form in ("layer_norm", "compiled")}
    assert forms["layer_norm"] == pytest.approx(forms["compiled"], rel=0.01)
    graph, eager = (of["cnn_operators"].seconds(network="mobilenet_v2", dtype="fp32", layout="NCHW", mode=m) for m in ("graph", "eager"))  # fmt: skip
    assert 0.97 < graph.mean / eager.mean < 1, "next to nothing"
    [saved] = [part.values for part in H200.findings("cnn_operators") if part.expected.says.startswith("in fp32 a CUDA")]  # fmt: skip
    assert [each.high < 0.9 for each in saved] == [False] * 4 + [True, False], "only EfficientNet-B0 with channels last"
    steps = [of["decode"](batch=n, context=1024, mode="eager")["seconds"]["mean"] for n in (1, 4, 16, 64)]
    assert steps != sorted(steps) and steps != sorted(steps, reverse=True), "in no order"
    cache = fk.models.load("llama-3-8b").kv_bytes(context=1024) * 8 / 32
    assert cache < 0.01 * of["decode"](batch=1, context=1024, mode="graph")["counted"]["bytes"], (
        "nearly all are weights"
    )
    most = {}
    for machine in MACHINES:
        for each in machine.recording.results:
            share = max(each["rates"]["of_ceiling_flops"] or 0, each["rates"]["of_ceiling_bytes"] or 0)
            kind = each["params"].get("data") if machine is H200 else None
            most[kind == "zeros"] = max(share, most.get(kind == "zeros", 0))
    assert most == {False: pytest.approx(1.10, abs=0.01), True: pytest.approx(7 / 6, abs=0.01)}
    zeros, normal = (of["matmul_sizes"](n=8192, data=d, dtype="bf16")["monitor"]["sm_mhz"]["median"] for d in ("zeros", "normal"))  # fmt: skip
    assert zeros > 1.2 * normal, "a higher clock"


def test_the_math_kernel_converts_its_inputs_to_fp32():
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from flopkit.experiments.attention_kernels import sdpa

    class Products(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.formats = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.bmm.default:
                self.formats += [each.dtype for each in args]
            return func(*args, **(kwargs or {}))

    inputs = [torch.randn(1, 2, 16, 8, dtype=torch.bfloat16) for _ in range(3)]
    with Products() as seen:
        sdpa("math", False)(*inputs)
    assert seen.formats == [torch.float32] * 4
