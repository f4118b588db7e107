"""Layers that are called without the function mode: what is kept of their calls is the same as where it looks on."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopkit as fk
from flopkit.counter.beyond import plain

CASES = [
    (nn.Linear(4, 6), (3, 4)),
    (nn.Linear(4, 6, bias=False), (2, 5, 4)),
    (nn.Linear(4, 6), (4,)),
    (nn.Conv1d(4, 6, 3), (2, 4, 9)),
    (nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 0), dilation=(1, 2), groups=2, bias=False), (2, 4, 9, 9)),
    (nn.Conv2d(4, 4, 3, padding="same", groups=4), (2, 4, 9, 9)),
    (nn.Conv2d(4, 6, 3), (4, 9, 9)),
    (nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    (nn.BatchNorm1d(4), (5, 4)),
    (nn.BatchNorm2d(4, affine=False, eps=0.1), (2, 4, 3, 3)),
    (nn.BatchNorm2d(4, momentum=None), (2, 4, 3, 3)),
    (nn.BatchNorm3d(4), (2, 4, 2, 2, 2)),
    (nn.LayerNorm(4), (2, 3, 4)),
    (nn.LayerNorm((3, 4), bias=False), (2, 3, 4)),
    (nn.LayerNorm(4, elementwise_affine=False), (2, 4)),
    (nn.ReLU(), (3, 4)),
    (nn.ReLU(inplace=True), (3, 4)),
    (nn.SiLU(), ()),
    (nn.GELU(approximate="tanh"), (3, 4)),
]


class Watched(nn.Module):
    """A model with one list of layers."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


@pytest.fixture
def quick(monkeypatch):
    """How many calls went the short way."""
    calls = []
    run = plain.run

    def spied(*args):
        out = run(*args)
        calls.append(out is not NotImplemented)
        return out

    monkeypatch.setattr(plain, "run", spied)
    return calls


def kept(report):
    """What is known of calls of layers and functions, each type as it is."""
    ledger = report._source.ledger()
    layers = Counter()
    for (layer, *call), times in ledger.layers.items():
        own = (
            layer.path,
            layer.kind,
            layer.around,
            layer.times,
            layer.leaf,
            layer.learns,
            layer.settings,
            layer.parameters,
        )
        layers[repr((own, call))] += times
    functions = Counter()
    for (name, within, *call), times in ledger.functions.items():
        functions[repr((name, within.classes, within.ways, call))] += times
    return layers, functions, ledger.roots


def looked_on(model):
    """The same model, whose layers have a hook that does nothing: so the function mode looks on."""
    model = copy.deepcopy(model)
    for module in model.modules():
        module.register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("layer, shape", CASES, ids=[f"{layer} {shape}" for layer, shape in CASES])
def test_what_is_kept_is_the_same(layer, shape, grad, quick):
    model = Watched(layer).eval()
    x = torch.ones(shape)
    with torch.set_grad_enabled(grad):
        short = fk.count(model, x.clone())
        assert quick == [True]
        long = fk.count(looked_on(model), x.clone())
        assert quick == [True]
    assert kept(short) == kept(long)
    assert (
        short.by_op().rows == long.by_op().rows
        and short._source.ledger().merged_away == long._source.ledger().merged_away
    )


def test_every_class_is_among_the_cases():
    assert {type(layer) for layer, _ in CASES} == set(plain.kinds())


def test_meta_and_many_calls(quick):
    with torch.device("meta"):
        model = Watched(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        x = torch.ones(2, 8)
    both = [fk.count(lambda m: [m(x) for _ in range(3)], each) for each in (model, looked_on(model))]
    assert quick == [True] * 9 and kept(both[0]) == kept(both[1])


def test_training(quick):
    """Forward, checkpointed again, and backward: only the first is a call of a layer."""
    from torch.utils.checkpoint import checkpoint

    model = Watched(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    both = []
    for each in (model, looked_on(model)):
        both.append(
            fk.count(
                lambda m=each: (
                    checkpoint(m, torch.ones(2, 4, 5, 5, requires_grad=True), use_reentrant=False).sum().backward()
                )
            )
        )
    assert quick == [True] * 2  # batch norm's statistics are not those of a setting
    assert kept(both[0]) == kept(both[1])
    assert both[0].by_module().rows == both[1].by_module().rows


class Doubled(nn.Linear):
    pass


def own_forward():
    layer = nn.Linear(4, 4)
    layer.forward = lambda x: F.linear(F.relu(x), layer.weight)
    return layer


def replica(layer):
    """As `nn.DataParallel` makes it."""
    found = layer._replicate_for_data_parallel()
    found._parameters = {}
    found.weight, found.bias = layer.weight.view_as(layer.weight), layer.bias.view_as(layer.bias)
    return found


def with_a_child(layer):
    layer.child = nn.Linear(4, 4)
    return layer


def padded():
    return nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular")


@pytest.mark.parametrize(
    "layer, x",
    [
        (Doubled(4, 4), torch.ones(2, 4)),
        (own_forward(), torch.ones(2, 4)),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), torch.ones(2, 4)),
        (replica(nn.Linear(4, 4)), torch.ones(2, 4)),
        (replica(nn.Conv1d(4, 4, 1)), torch.ones(2, 4, 5)),
        (replica(nn.BatchNorm1d(4).eval()), torch.ones(2, 4)),
        (replica(nn.LayerNorm(4)), torch.ones(2, 4)),
        (with_a_child(nn.ReLU()), torch.ones(2, 4)),
        (padded(), torch.ones(2, 4, 5)),
        (nn.BatchNorm1d(4), torch.ones(2, 4)),
        (nn.BatchNorm1d(4, track_running_stats=False).eval(), torch.ones(2, 4)),
        (nn.Conv1d(4, 4, 1, dtype=torch.complex64), torch.ones(2, 4, 5, dtype=torch.complex64)),
        (nn.Linear(4, 4), (torch.ones(2, 4), torch.ones(3, 4))),
        (nn.Linear(4, 4), nn.Parameter(torch.ones(2, 4))),
        (nn.Dropout(), torch.ones(2, 4)),
    ],
    ids=[
        "derived",
        "own forward",
        "parametrised",
        "replica",
        "replica 2",
        "replica 3",
        "replica 4",
        "parent",
        "padded",
        "training",
        "without statistics",
        "complex",
        "nested",
        "parameter",
        "other",
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_goes_the_long_way(layer, x, quick):
    if isinstance(x, tuple):
        x = torch.nested.nested_tensor(list(x))
    model = Watched(layer)
    model.train(layer.training)
    report = fk.count(model, x)
    assert True not in quick
    assert sum(kept(report)[1].values()) or isinstance(layer, nn.Dropout)


class Mode(torch.overrides.TorchFunctionMode):
    """A mode of the user's own, and what it has seen."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_users_own_sees_all_that_it_is_entered_for(quick):
    model, x = Watched(nn.Linear(4, 4)), torch.ones(2, 4)
    with Mode() as mode:
        fk.count(model, x)
    assert F.linear in mode.seen and not quick


@pytest.mark.parametrize("when", ["forward_pre", "forward"])
def test_hooks_for_all_modules_look_on(when, quick):
    """A hook may call functions that a tool would see: here for the layer, the list and the model."""
    register = getattr(torch.nn.modules.module, f"register_module_{when}_hook")
    handle = register(lambda module, args, *out: F.relu((*args, *out)[-1]))
    try:
        report = fk.count(Watched(nn.Linear(4, 4)), torch.ones(2, 4))
    finally:
        handle.remove()
    assert not quick
    assert sum(times for call, times in kept(report)[1].items() if "'relu'" in call) == 3


def test_a_mode_of_the_users_sees_what_a_branch_calls():
    """While a branch is followed, ours has stepped aside, and the one mode there is is another's."""
    model, x = Watched(nn.Linear(4, 4)), torch.ones(2, 4)
    with torch.no_grad(), Mode() as mode:
        report = fk.count(lambda: torch.cond(torch.tensor(True), model, lambda x: x, (x,)))
    assert F.linear in mode.seen and report.flops == 2 * 2 * 4 * 4


def test_a_function_that_somebody_put_in_torchs_place_is_called(quick, monkeypatch):
    model, x = Watched(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)
    linear = F.linear
    monkeypatch.setattr(F, "linear", lambda *args: linear(*args))
    fk.count(model, x)
    assert quick == [True]  # ReLU
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: F.silu(x))
    report = fk.count(model, x)
    assert quick == [True] and any("'silu'" in call for call in kept(report)[1])


def test_modes_are_as_they_were_after_an_exception(quick):
    before = torch.overrides._get_current_function_mode_stack()
    with fk.counting(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Watched(nn.Linear(4, 4))(torch.ones(2, 5))
    with fk.counting() as report:
        inside = torch.overrides._get_current_function_mode_stack()
        with pytest.raises(RuntimeError):
            Watched(nn.Linear(4, 4))(torch.ones(2, 5))
        assert torch.overrides._get_current_function_mode_stack() == inside
        Watched(nn.Linear(4, 4))(torch.ones(2, 4))
    assert torch.overrides._get_current_function_mode_stack() == before
    assert quick == [True] and report.flops == 2 * 2 * 4 * 4
