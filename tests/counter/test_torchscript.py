"""TorchScript: a script is counted as it runs; what it fuses is listed, and stays as it is."""

import warnings
from typing import NamedTuple, Optional

import pytest
import torch
from torch import nn

import flopkit as fk

# TorchScript is on its way out of torch, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

N = 32
WAVES = """
def waves(x, y):
    return ((x @ y).tanh() * y + x).tanh() * y
"""


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(N, N, bias=False)
        self.calls = 0

    def forward(self, x, y):
        self.calls += 1
        return (self.linear(x).tanh() * y + x).tanh() * y

    @torch.jit.export
    def other(self, x, y):
        return self.forward(x, y)

    @torch.jit.export
    def options(
        self,
        x,
        weights: list[torch.Tensor],
        scale: float = 2.0,
        y: Optional[torch.Tensor] = None,  # noqa: UP045
        times: int = 1,
    ):
        for _ in range(times):
            x = x @ weights[0] * scale
        return Pair(x, x if y is None else x @ y)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(N, N, bias=False)

    def forward(self, x, y):
        return (self.linear(x).tanh() * y + x).tanh() * y


@pytest.fixture
def fuser():
    """What TorchScript does on a GPU without being asked: from the third call on, element-wise operators are one kernel of its own."""
    c = torch._C
    before = c._jit_can_fuse_on_cpu(), c._jit_texpr_fuser_enabled(), c._jit_get_te_must_use_llvm_cpu()
    c._jit_override_can_fuse_on_cpu(True)
    c._jit_set_texpr_fuser_enabled(True)
    c._jit_set_te_must_use_llvm_cpu(False)
    yield
    c._jit_override_can_fuse_on_cpu(before[0])
    c._jit_set_texpr_fuser_enabled(before[1])
    c._jit_set_te_must_use_llvm_cpu(before[2])


def made(kind):
    """A script of each kind: what to call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "function":
            return torch.jit.CompilationUnit(WAVES).waves
        if kind == "trace of a function":
            return torch.jit.trace(lambda x, y: ((x @ y).tanh() * y + x).tanh() * y, tensors())
        module = torch.jit.trace(Plain(), tensors()) if kind == "trace" else torch.jit.script(Net())
        return module.other if kind == "another method" else module


def tensors(grad=False):
    return [torch.randn(N, N, requires_grad=grad) for _ in range(2)]


def is_fused(script, x, y):
    """Whether TorchScript runs kernels of its own when nobody counts."""
    script(x, y)
    graph = torch._C._last_executed_optimized_graph()
    return bool(graph.findAllNodes("prim::TensorExprGroup") or graph.findAllNodes("prim::DifferentiableGraph"))


KINDS = pytest.mark.parametrize("kind", ["function", "trace of a function", "module", "trace", "another method"])


@KINDS
@pytest.mark.parametrize("grad", [False, True])
def test_what_is_not_fused_counts_as_it_was_written(kind, grad):
    script, (x, y) = made(kind), tensors(grad)

    def step():
        out = script(x, y)
        if grad:
            out.sum().backward()

    for _ in range(4):
        report = fk.count(step, strict=True)
        assert report.forward.flops == 2 * N**3
        assert report.backward.flops == grad * 4 * N**3  # the product's other factor needs a gradient in each of them
        assert report.forward.vector_flops == 5 * N * N + grad * N * N  # and the sum
        assert (report.uncounted, report.notes) == ([], [])


@KINDS
@pytest.mark.parametrize("grad", [False, True])
def test_what_is_fused_is_never_a_silent_zero_and_stays_fused(kind, grad, fuser):
    script, (x, y) = made(kind), tensors(grad)
    for _ in range(4):
        script(x, y)
    assert is_fused(script, x, y)
    for _ in range(3):
        report = fk.count(script, x, y)
        assert report.flops == 2 * N**3
        assert (
            report.vector_flops == 5 * N * N
            or "fused" in str(report.notes)
            or "TensorExprGroup" in str(report.uncounted)
        )
        assert is_fused(script, x, y)


def test_what_was_never_called_is_as_new_afterwards(fuser):
    fresh, counted, (x, y) = made("function"), made("function"), tensors(True)
    seen = [[is_fused(fresh, x, y) for _ in range(4)]]
    for _ in range(2):
        fk.count(counted, x, y)
    seen.append([is_fused(counted, x, y) for _ in range(4)][:2])
    assert seen[0][2:] == seen[1]


def test_after_an_exception():
    script = torch.jit.CompilationUnit("def fails(x):\n    assert x.sum() > 0, 'too small'\n    return x @ x\n").fails
    told = []
    for count in (False, True):
        with pytest.raises(torch.jit.Error) as error:
            fk.count(script, -torch.ones(4, 4)) if count else script(-torch.ones(4, 4))
        told.append(str(error.value))
    assert told[0] == told[1]
    assert fk.count(script, torch.ones(4, 4)).flops == 2 * 4**3


def test_arguments_however_they_are_given():
    module, (x, w) = torch.jit.script(Net()), tensors()
    product = 2 * N**3
    for args, kwargs, products in [
        ((x, [w]), {}, 1),
        ((x, [w], 3.0), {}, 1),
        ((x, [w], 3), {"times": 2}, 2),
        ((x,), {"weights": [w], "y": w}, 2),
        ((), {"y": w, "x": x, "scale": 0.5, "weights": [w, w], "times": 3}, 4),
    ]:
        plain = module.options(*args, **kwargs)
        with fk.counting(strict=True) as report:
            out = module.options(*args, **kwargs)
        assert report.flops == products * product
        assert type(out).__name__ == type(plain).__name__ == "Pair"
        assert all(torch.equal(a, b) for a, b in zip(out, plain, strict=True))


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1,), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1, 2), {"z": 3})]
)
def test_wrong_arguments_are_told_as_ever(args, kwargs):
    script = made("function")
    told = []
    for run in (lambda: script(*args, **kwargs), lambda: fk.count(script, *args, **kwargs)):
        with pytest.raises((TypeError, RuntimeError)) as error:
            run()
        told.append((error.type, str(error.value)))
    assert told[0] == told[1]


def only_by_name(x: torch.Tensor, *, y: torch.Tensor):
    return x @ y


def test_arguments_that_have_to_be_named():
    script, (x, y) = torch.jit.script(only_by_name), tensors()
    assert fk.count(script, x, y=y).flops == 2 * N**3
    told = []
    for run in (lambda: script(x, y), lambda: fk.count(script, x, y)):
        with pytest.raises(RuntimeError, match="positional argument") as error:
            run()
        told.append(str(error.value))
    assert told[0] == told[1]


def test_arguments_of_any_name():
    unit, (x, y) = (
        torch.jit.CompilationUnit("def f(script, args, kwargs):\n    return script @ args @ kwargs\n"),
        tensors(),
    )
    with fk.counting() as report:
        unit.f(kwargs=x, script=x, args=y)
    assert report.flops == 2 * 2 * N**3


def test_what_stands_for_a_tensor_in_a_trace_of_fx_is_asked():
    layer = torch.jit.script(nn.Linear(N, N))

    class Calls(nn.Module):
        def forward(self, x):
            return layer.forward(x) + 1

    plain = torch.fx.symbolic_trace(Calls())
    with fk.counting():
        counted = torch.fx.symbolic_trace(Calls())
    assert str(counted.graph) == str(plain.graph)


def test_arguments_of_another_type():
    script, (x, _) = made("function"), tensors()
    for run in (script, lambda *args: fk.count(script, *args)):
        with pytest.raises(RuntimeError, match="for argument 'y' but instead found type 'str'"):
            run(x, "two")


def test_state_and_chance_are_those_of_the_script():
    module, (x, y) = torch.jit.script(Net()), tensors()
    for n in range(1, 4):
        fk.count(module, x, y)
        assert module.calls == n
    with torch.no_grad():
        module.linear.weight.zero_()
    with fk.counting():
        torch.testing.assert_close(module(x, y), x.tanh() * y)  # its executor may fuse the two, which rounds once less
    drop = torch.jit.script(nn.Sequential(nn.Dropout(0.5), nn.Linear(N, N)))
    torch.manual_seed(0)
    plain = drop(x)
    torch.manual_seed(0)
    with fk.counting() as report:
        assert torch.equal(drop(x), plain)
    assert report.flops == 2 * N**3
    drop.eval()
    with fk.counting():
        assert torch.equal(drop(x), drop[1](x))


def test_what_is_forked_counts():
    source = """
def times(x, y):
    return x @ y

def both(x, y):
    task = torch.jit.fork(times, x, y)
    return x @ y @ y + torch.jit.wait(task)
"""
    unit = torch.jit.CompilationUnit(source)
    for _ in range(4):
        assert fk.count(unit.both, *tensors(), strict=True).flops == 3 * 2 * N**3


def test_autocast_inside_and_outside():
    script, (x, y) = made("function"), tensors()

    class Cast(nn.Module):
        def forward(self, x, y):
            with torch.autocast("cpu", torch.bfloat16):
                z = x @ y
            return z

    inside = torch.jit.script(Cast())
    with fk.counting() as report:
        assert inside(x, y).dtype is torch.bfloat16
    assert report.flops == 2 * N**3
    with torch.autocast("cpu", torch.bfloat16):
        plain = script(x, y)
        with fk.counting():
            counted = script(x, y)
    assert (counted.dtype, (counted - plain).abs().max() < 0.1) == (plain.dtype, True)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_what_was_traced_and_never_run(grad, train):
    """Torch compares the numbers in it as it makes it better, and hands them to a mode as numbers, which its own operators refuse."""
    layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True).train(train)
    x = torch.randn(2, 4, 8)
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(layer, (x, x), check_trace=False)
        first, then = fk.count(traced, x, x), fk.count(traced, x, x)
        torch.testing.assert_close(traced(x, x), layer(x, x))
    # Two attentions: four projections each, scores and their use; then up and down.
    attention = 4 * 2 * (2 * 4) * 8 * 8 + 2 * 2 * 2 * 4 * 4 * 8
    assert first.model_flops == then.model_flops == 2 * attention + 2 * 2 * (2 * 4) * 8 * 16
    assert first.uncounted == []
