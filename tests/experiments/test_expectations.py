"""What recordings show of each part of a prediction: it can hold and can fail, and it
names the cases on whose times it rests."""

import copy
import itertools
import math

import pytest

from flopkit.book.explanations import MACHINES
from flopkit.experiments import NAMES, experiment
from flopkit.experiments.expectations import Cases, Confirmation, Expectation, Finding, launch, weak
from flopkit.experiments.pairs import Span
from flopkit.recordings import Case

MACHINE = {machine.device: machine for machine in MACHINES}
RUNS = [
    (device, name)
    for device, machine in MACHINE.items()
    for name in NAMES
    if machine.scale in experiment(name).expectations and name not in machine.missing and machine.asked(name)
]

FACTORS = (0.05, 0.4, 0.5, 0.7, 0.9, 1.2, 1.3, 1.5, 2, 20)


def changes(case):
    """The case with other times, other counts, or another value of what it adds: one
    number changed, or all of a kind."""
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


def steady(case):
    other = copy.copy(case)
    other["steady"], other["notes"] = True, []
    return other


def never_flipped(name, device):
    """The parts whose word stays the same, whatever other times or counts one case, or
    all that share a parameter, would have had, were all of them steady."""
    scale = MACHINE[device].scale
    cases = [steady(each) for each in MACHINE[device].records(name)]
    parts = experiment(name).findings(scale, cases)
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
            words = [part.confirmation for part in experiment(name).findings(scale, new)]
            left = {number for number in left if words[number] == parts[number].confirmation}
    return [parts[number].expected.says for number in left]


@pytest.mark.parametrize(("device", "name"), RUNS)
def test_each_part_can_hold_and_can_fail(device, name):
    assert MACHINE[device].findings(name) and not never_flipped(name, device)


@pytest.mark.parametrize(("device", "name"), RUNS)
def test_a_part_names_the_cases_on_whose_times_it_rests(device, name):
    scale = MACHINE[device].scale
    cases = MACHINE[device].records(name)
    before = experiment(name).findings(scale, cases)
    rests = [{(each["case"], each["dtype"]) for each in part.cases} for part in before]
    moves = [set() for _ in before]
    for place, case in enumerate(cases):
        others = list(cases)
        others[place] = changed(case, "seconds", {key: case["seconds"][key] / 1000 for key in ("mean", "low", "high")})
        for found, old, new in zip(moves, before, experiment(name).findings(scale, others), strict=True):
            if new.values != old.values:
                found.add((case["case"], case["dtype"]))
    assert moves == rests


def test_an_experiment_expects_something_of_a_gpu_or_of_a_cpu():
    for name in NAMES:
        asked = experiment(name)
        assert asked.expectations and set(asked.expectations) <= {each.scale for each in MACHINES}
        for parts in asked.expectations.values():
            assert len({each.says for each in parts}) == len(parts) > 0
            assert all(each.limits[0] < each.limits[1] for each in parts)
        assert asked.findings("toy", []) == []


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
    assert predicted in experiment(name).prediction
    [part] = [part for part in experiment(name).expectations["gpu"] if part.says.startswith(begins)]
    assert part.limits == pytest.approx((least, most))


def test_some_well_known_numbers_of_the_gpu():
    """By hand, from the file: flash against math at 4,096 tokens, and the first case
    behind a full wave."""
    gpu = MACHINE["h200"]
    times = {(each["experiment"], each["case"]): each["seconds"] for each in gpu.recording.results}
    attention = {kernel: next(s for (name, case), s in times.items() if name == "attention_kernels" and f"kernel={kernel}, causal=False, tokens=4096" in case) for kernel in ("math", "flash")}  # fmt: skip
    [gain] = gpu.findings("attention_kernels")[1].values
    assert gain.mean == attention["math"]["mean"] / attention["flash"]["mean"]
    assert gain.high == attention["math"]["high"] / attention["flash"]["low"]
    rows = {n: times["matmul_tiles", f"rows={n}, columns=8192, inner=8192"] for n in (4224, 4288)}
    [fall] = gpu.findings("matmul_tiles")[1].values
    assert fall.mean == pytest.approx(4288 / 4224 * rows[4224]["mean"] / rows[4288]["mean"])


def test_what_makes_a_case_less_sure():
    slow = {"notes": ["launching a call takes the host 0.0346 s: the device waits for that"], "steady": True}
    shaky = {"notes": [], "steady": False}
    assert [weak(each) for each in ([], [slow], [shaky], [shaky, slow])] == [
        "", "launch-bound", "unsteady", "launch-bound, unsteady",
    ]  # fmt: skip
    assert launch(slow) == 0.0346
    assert launch(shaky) is None
    waits = [launch(each) for each in MACHINE["h200"].recording.results if each["notes"]]
    assert all(each is None or each > 0 for each in waits) and any(waits)


@pytest.mark.parametrize(
    ("low", "high", "place"), [(1, 2, 0), (0.5, 1.5, 1), (1.5, 2.5, 1), (0, 9, 1), (2.1, 3, 2), (0, 0.9, 2)]
)
def test_an_interval_decides(low, high, place):
    expected = Expectation("says", (1, 2), "of", lambda of: [])
    assert (
        Finding(expected, "of", (Span.exactly(1.5), Span((low + high) / 2, low, high)), ()).confirmation
        == tuple(Confirmation)[place]
    )


@pytest.mark.parametrize(("device", "name"), RUNS)
def test_a_value_keeps_the_cases_on_whose_times_it_rests(device, name):
    """Another time of a case changes the values that name it. A value that is the best
    of several may change with the others', too."""
    scale = MACHINE[device].scale
    cases = MACHINE[device].records(name)
    before = experiment(name).findings(scale, cases)
    for place, case in enumerate(cases):
        others = list(cases)
        others[place] = changed(case, "seconds", {key: case["seconds"][key] * 1.001 for key in ("mean", "low", "high")})
        for old, new in zip(before, experiment(name).findings(scale, others), strict=True):
            names = [case in each.cases for each in old.values]
            assert names == [was != now for was, now in zip(old.values, new.values, strict=True)], (
                old.seen,
                case["case"],
            )


STEADY = {"notes": [], "steady": True}


@pytest.mark.parametrize(
    ("values", "place", "doubt"),
    [
        ([(9, STEADY)], 2, ""), ([(0.1, STEADY)], 2, ""), ([(1.5, {"notes": [], "steady": False})], 0, ""),
        ([(9, {"notes": [], "steady": False})], 1, "missed, but unsteady"),
        ([(0.1, {**STEADY, "notes": ["launching a call takes the host 1 s: the device waits"]})], 1, "missed, but launch-bound"),
        ([(9, {"notes": [], "steady": False}), (9, STEADY)], 2, ""),
        ([(9, {"notes": [], "steady": False}), (1.5, STEADY)], 1, "missed, but unsteady"),
    ],
)  # fmt: skip
def test_what_missed_on_an_unsteady_or_launch_bound_case_has_not_failed(values, place, doubt):
    """However far it misses, and whatever the steady values of the part say."""
    spans = tuple(Span(mean, mean, mean, (case,)) for mean, case in values)
    found = Finding(Expectation("says", (1, 2), "of", lambda of: []), "of", spans, tuple(case for _, case in values))
    assert (found.confirmation, found.doubt) == (tuple(Confirmation)[place], doubt)


def test_an_interval_across_a_limit_leaves_the_part_open():
    found = Finding(
        Expectation("says", (1, 2), "of", lambda of: []), "of", (Span(1.5, 0.5, 1.6, (STEADY,)),), (STEADY,)
    )
    assert (found.confirmation, found.missed, found.doubt) == ("not clear", (), "an interval crosses a limit")


def test_what_is_computed_from_spans_keeps_their_cases():
    one, other = {"steady": True}, {"steady": False}
    a, b = Span(4, 2, 6, (one,)), Span(2, 1, 4, (other,))
    assert (a / b).cases == (one, other) and (1 / b).cases == (other,)
    assert (a + 1).cases == (a * 2).cases == (a / 2).cases == (one,)


@pytest.mark.parametrize(
    ("span", "unit", "shown"),
    [
        (Span(123.4, 123.4, 123.4), "×", "123×"), (Span(14.68, 14.5, 15), "×", "14.7× (14.5 to 15.0)"),
        (Span(0.0567, 0.0567, 0.0567), "×", "0.057×"), (Span(0.0123, 0.01, 0.02), " %", "1.2 % (1.0 to 2.0)"),
        (Span(0.35, 0.35, 0.35), " %", "35 %"), (Span(252.6, 250, 255.2), " tokens", "253 tokens (250 to 255)"),
    ],
)  # fmt: skip
def test_a_value_shows_its_interval_where_that_is_wider_than_its_digits(span, unit, shown):
    assert Finding(Expectation("says", (1, 2), "", lambda of: [], unit), "of", (span,), ()).seen == f"of: {shown}"


def test_a_quotient_is_as_unsure_as_its_parts():
    assert Span(4, 2, 6) / Span(2, 1, 4) == Span(2, 0.5, 6)
    assert 8 / Span(2, 1, 4) == Span(4, 2, 8) and Span(4, 2, 6) / 2 == Span(2, 1, 3)


def test_a_case_that_is_not_there_or_not_alone_is_an_error():
    of = Cases(MACHINE["xeon"].records("matmul_sizes"))
    with pytest.raises(ValueError, match=r"{'n': 65}: 0 of the 6 cases"):
        of(n=65)
    with pytest.raises(ValueError, match=r"{'n': 1024}: 2 of the 6 cases; name the parameters of one"):
        of.seconds(n=1024)


def test_a_share_of_what_was_measured_needs_ceilings():
    bare = Case(MACHINE["xeon"].records("matmul_sizes")[0], "yours", "yours", "a CPU")
    with pytest.raises(ValueError, match=r"n=64.*has no ceilings"):
        Cases([bare]).speed(n=64)


def test_what_nothing_speaks_for_does_not_hold():
    with pytest.raises(ValueError, match="'as long' is judged by no value"):
        Expectation("as long", (0, 1), "time", lambda of: []).judged([])
