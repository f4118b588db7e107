"""The page of predictions: each part can hold and can fail, and the page says of each which of the two it did, on each machine."""

import copy
import itertools
import math
import re
import sys
from pathlib import Path

import pytest

import flopkit as fk
from flopkit.experiments import NAMES

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))
import foretold

sys.path.pop(0)


RUNS = [(machine, name) for machine, parts in foretold.PARTS.items() for name in parts]


FACTORS = (0.05, 0.4, 0.5, 0.7, 0.9, 1.2, 1.3, 1.5, 2, 20)


def changes(case):
    """The case with other times, other counts, or another value of what it adds: one number changed, or all of a kind."""
    for where, factor in itertools.product(("seconds", "counted", "extra"), FACTORS):
        keys = [
            key
            for key, value in case[where].items()
            if isinstance(value, int | float) and key != "model_flops"  # what another count stands beside
        ]
        for some in [keys, *([key] for key in keys if where == "extra" and len(keys) > 1)]:
            yield changed(case, where, {key: case[where][key] * factor for key in some})


def changed(case, where, values):
    other = copy.copy(case)
    other[where] = {**case[where], **values}
    return other


def never_flipped(name, machine):
    """The parts whose word stays the same, whatever other times or counts one case, or all that share a parameter, would have had."""
    cases = foretold.ours(name, machine)
    parts = foretold.parts_of(name, machine)
    facts = [{"dtype": each["dtype"], **each["params"]} for each in cases]
    shared = {(key, str(value)) for each in facts for key, value in each.items()}
    groups = [{i for i, each in enumerate(facts) if str(each.get(key)) == value} for key, value in sorted(shared)]
    groups += [{place} for place in range(len(cases))]
    left = set(range(len(parts)))
    for group in groups:
        for others in zip(*(changes(cases[place]) for place in group), strict=False):
            if not left:
                return []
            new = list(cases)
            for place, other in zip(group, others, strict=True):
                new[place] = other
            words = [part.word for part in foretold.parts_of(name, machine, new)]
            left = {number for number in left if words[number] == parts[number].word}
    return [parts[number].says for number in left]


@pytest.mark.parametrize(("machine", "name"), RUNS)
def test_each_part_can_hold_and_can_fail(machine, name):
    assert foretold.parts_of(name, machine) and not never_flipped(name, machine)


@pytest.mark.parametrize(("machine", "name"), RUNS)
def test_a_part_names_the_cases_on_whose_times_it_rests(machine, name):
    cases = foretold.ours(name, machine)
    before = foretold.parts_of(name, machine)
    rests = [{(each["case"], each["dtype"]) for each in part.cases} for part in before]
    moves = [set() for _ in before]
    for place, case in enumerate(cases):
        others = list(cases)
        others[place] = changed(case, "seconds", {key: case["seconds"][key] / 1000 for key in ("mean", "low", "high")})
        for found, old, new in zip(moves, before, foretold.parts_of(name, machine, others), strict=True):
            if new.values != old.values:
                found.add((case["case"], case["dtype"]))
    assert moves == rests


def test_what_is_not_measured_is_the_cpu_or_two_gpus():
    without = {
        (name, machine) for machine in foretold.MACHINES for name in NAMES if name not in foretold.PARTS[machine]
    }
    assert without == set(foretold.MISSING)
    assert not any(foretold.ours(name, machine) for name, machine in without)
    assert all(foretold.ours(name, machine) for machine, name in RUNS)
    compiled = [each for each in foretold.ours("cnns", "h200") if each["params"]["compiled"]]
    assert {each["params"]["network"] for each in compiled} == {"resnet18", "resnet50"}
    assert "8 of the 54 cases" in foretold.not_measured()


def test_the_page_has_every_experiment_and_every_part():
    page = foretold.results()
    as_written = re.sub(r" \[meant: .*?\]", "", page)
    for name in NAMES:
        asked = fk.experiments.experiment(name)
        assert f"### {asked.title}" in page and asked.prediction in as_written
    found = {
        machine: [part for name in NAMES for part in foretold.parts_of(name, machine)] for machine in foretold.MACHINES
    }
    for word in foretold.WORDS:
        rows = [line for line in page.splitlines() if f"| {word} |" in line or f"| {word} (" in line]
        assert len(rows) == sum(part.word == word for parts in found.values() for part in parts)
        assert sum("(unsteady) |" in row or "launch-bound" in row for row in rows) == sum(
            bool(part.weak) for parts in found.values() for part in parts if part.word == word
        )
    tested = next(line for line in foretold.tally().splitlines() if "Parts tested" in line)
    assert tested.split("|")[2:-1] == [f" {len(parts)} " for parts in found.values()]
    for machine, parts in found.items():
        assert sum(len(foretold.parts_of(name, machine)) for name in foretold.PARTS[machine]) == len(parts)


@pytest.mark.parametrize("machine", foretold.MACHINES)
def test_each_experiment_that_failed_is_explained_and_no_other(machine):
    failed = {name for name in NAMES for part in foretold.parts_of(name, machine) if part.word == foretold.WORDS[2]}
    assert failed == set(foretold.why()[machine])


# what the prediction says, how the part begins, and its limits
SAID = [
    ("attention_kernels", "flash is 2 to 4 times faster than math at 4096 tokens", "flash is 2 to 4 times as fast", 2, 4),
    ("attention_kernels", "reaches a third to two thirds of the dense peak", "it reaches a third to two thirds", 1 / 3, 2 / 3),
    ("backward_ratio", "takes 2 to 4 times as long", "depthwise convolution 2 to 4", 2, 4),
    ("backward_ratio", "A fused attention kernel takes 2 to 3.5 times", "fused attention 2 to 3.5", 2, 3.5),
    ("checkpointing", "between 1.2 and 1.33 times the model FLOPs", "executed FLOPs are 1.2 to 1.33", 1.2, 1.33),
    ("checkpointing", "1.2 to 1.35: HFU stays within 5 %", "time grows by 1.2 to 1.35", 1.2, 1.35),
    ("cnn_operators", "on a GPU, 30 to 45 %", "they take 30 to 45 %", 0.3, 0.45),
    ("cnn_operators", "depthwise convolutions take 20 to 40 %", "depthwise convolutions take 20 to 40 %", 0.2, 0.4),
    ("cnn_operators", "convolutions take more than 60 %", "of ResNet-50, in the same format", 0.6, 1),
    ("cnn_operators", "a CUDA graph saves less than a tenth", "in fp32 a CUDA graph saves less", 0.9, math.inf),
    ("cnn_operators", "saves a third of MobileNetV2's time or more", "in bf16 with channels last it saves", 0, 2 / 3),
    ("cnns", "agree within 4 %", "three times the forward pass", 0.96, 1.04),
    ("cnns", "a tenth or less of the FLOP/s of VGG-16", "MobileNetV2 and EfficientNet-B0 make a tenth", 0, 0.1),
    ("convolutions", "below a tenth of the dense one's FLOP/s", "the depthwise one makes less than a tenth", 0, 0.1),
    ("convolutions", "by more than 3 times", "it is at most 3 times as fast", 0, 3),
    ("experts", "at most 1.5 times as long as the dense layer", "with many tokens at most 1.5", 0, 1.5),
    ("fusion", "by 2.5 to 3 and by 4 to 6", "the chain gains 2.5 to 3", 2.5, 3),
    ("fusion", "by 2.5 to 3 and by 4 to 6", "the norm gains 4 to 6", 4, 6),
    ("fusion", "within a fifth of the compiled one", "torch's own layer norm", 0.8, 1.2),
    ("gpt_step", "is between 25 and 45 %", "the MFU of the eager step", 0.25, 0.45),
    ("gpt_step", "brings 1.2 to 1.6 times the speed", "compiling it brings 1.2 to 1.6", 1.2, 1.6),
    ("matmul_tiles", "FLOP/s fall by about 10 %", "at 4,288 rows they fall", 0.88, 0.92),
]  # fmt: skip


@pytest.mark.parametrize(("name", "predicted", "begins", "least", "most"), SAID)
def test_a_part_says_what_was_predicted_of_a_gpu(name, predicted, begins, least, most):
    assert predicted in fk.experiments.experiment(name).prediction
    [part] = [part for part in foretold.parts_of(name, "h200") if part.says.startswith(begins)]
    assert (part.least, part.most) == pytest.approx((least, most))


def test_some_well_known_numbers_of_the_gpu():
    """By hand, from the file: flash against math at 4,096 tokens, and the first case behind a full wave."""
    times = {(each["experiment"], each["case"]): each["seconds"] for each in foretold.recording_of("h200").results}
    attention = {kernel: next(s for (name, case), s in times.items() if name == "attention_kernels" and f"kernel={kernel}, causal=False, tokens=4096" in case) for kernel in ("math", "flash")}  # fmt: skip
    [gain] = foretold.parts_of("attention_kernels", "h200")[1].values
    assert gain.mean == attention["math"]["mean"] / attention["flash"]["mean"]
    assert gain.high == attention["math"]["high"] / attention["flash"]["low"]
    rows = {n: times["matmul_tiles", f"rows={n}, columns=8192, inner=8192"] for n in (4224, 4288)}
    [fall] = foretold.parts_of("matmul_tiles", "h200")[1].values
    assert fall.mean == pytest.approx(4288 / 4224 * rows[4224]["mean"] / rows[4288]["mean"])


def test_what_makes_a_case_less_sure():
    slow = {"notes": ["launching a call takes the host 0.0346 s: the device waits for that"], "steady": True}
    shaky = {"notes": [], "steady": False}
    assert [foretold.weak(each) for each in ([], [slow], [shaky], [shaky, slow])] == [
        "", "launch-bound", "unsteady", "launch-bound, unsteady",
    ]  # fmt: skip
    assert foretold.launch(slow) == 0.0346
    whole = foretold.recording_of("h200").results
    assert all(foretold.launch(each) > 0 for each in whole if foretold.waited(each))


def test_the_reasons_rest_on_what_the_recording_shows():
    """What stands in words in the reasons and on the page, beside the numbers that are computed."""
    of = {name: foretold.Cases(foretold.ours(name, "h200")) for name in foretold.PARTS["h200"]}
    waiting = [
        n for n in (1, 16, 64, 128, 192, 256, 384, 512) if foretold.waited(of["dense_batch"](tokens=n, dtype="bf16"))
    ]
    assert waiting[-1] == 256, "in bf16 the device waits for launches up to 256 tokens"
    [dense, *_] = foretold.parts_of("convolutions", "h200")
    assert [each.low > dense.most for each in dense.values] == [False, False, False, True], "in fp32 only"
    assert not foretold.waited(of["gpt_step"](batch=16, dtype="bf16", compiled=False))
    few, more = (of["experts"](tokens=n, load="balanced")["seconds"]["mean"] for n in (64, 1024))
    assert few / more == pytest.approx(1, abs=0.15), "about as long"
    forms = {form: of["fusion"](program="norm", form=form)["counted"]["bytes"] for form in ("layer_norm", "compiled")}
    assert forms["layer_norm"] == pytest.approx(forms["compiled"], rel=0.01)
    graph, eager = (of["cnn_operators"].seconds(network="mobilenet_v2", dtype="fp32", layout="NCHW", mode=m) for m in ("graph", "eager"))  # fmt: skip
    assert 0.97 < graph.mean / eager.mean < 1, "next to nothing"
    [saved] = [part.values for part in foretold.parts_of("cnn_operators", "h200") if part.says.startswith("in fp32 a CUDA")]  # fmt: skip
    assert [each.high < 0.9 for each in saved] == [False] * 4 + [True, False], "only EfficientNet-B0 with channels last"
    steps = [of["decode"](batch=n, context=1024, mode="eager")["seconds"]["mean"] for n in (1, 4, 16, 64)]
    assert steps != sorted(steps) and steps != sorted(steps, reverse=True), "in no order"
    cache = fk.models.load("llama-3-8b").kv_bytes(context=1024) * 8 / 32
    assert cache < 0.01 * of["decode"](batch=1, context=1024, mode="graph")["counted"]["bytes"], (
        "nearly all are weights"
    )
    most = {}
    for machine in foretold.MACHINES:
        for each in foretold.recording_of(machine).results:
            share = max(each["rates"]["of_ceiling_flops"] or 0, each["rates"]["of_ceiling_bytes"] or 0)
            kind = each["params"].get("data") if machine == "h200" else None
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


@pytest.mark.parametrize(
    ("low", "high", "word"), [(1, 2, 0), (0.5, 1.5, 1), (1.5, 2.5, 1), (0, 9, 1), (2.1, 3, 2), (0, 0.9, 2)]
)
def test_an_interval_decides(low, high, word):
    part = foretold.Part("says", "of", (foretold.exactly(1.5), foretold.Span((low + high) / 2, low, high)), 1, 2)
    assert part.word == foretold.WORDS[word]


def test_a_quotient_is_as_unsure_as_its_parts():
    assert foretold.Span(4, 2, 6) / foretold.Span(2, 1, 4) == foretold.Span(2, 0.5, 6)


def test_what_a_prediction_means_is_said_beside_it():
    """The depthwise convolution has a factor of the channels fewer FLOPs, of each machine's."""
    words, meant = foretold.MEANT["convolutions"]
    assert list(foretold.MEANT) == ["convolutions"] and foretold.experiment("convolutions").prediction.count(words) == 1
    assert f"{words} [meant: {meant}], but" in foretold.results()
    for machine, share in (("h200", "1/256 of the FLOPs"), ("xeon", "1/128 on the CPU")):
        of = foretold.Cases(foretold.ours("convolutions", machine))
        few, many = (of(kind=kind, layout="NHWC")["counted"]["flops"] for kind in ("depthwise", "dense"))
        assert meant.find(f"1/{many // few} ") == meant.index(share) and many % few == 0
