"""Triton kernels that are launched directly: never a silent zero, whether or not Triton is installed here."""

import importlib
import os
import subprocess
import sys
import textwrap

import pytest
import torch

import flopkit as fk
from flopkit.counter import registry
from flopkit.counter.watch import launches

STAND_IN = '''
class KernelInterface:
    def warmup(self, *args, grid, **kwargs):
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)


class JITFunction(KernelInterface):
    def __init__(self, fn):
        self.fn, self.launches = fn, 0

    @property
    def __name__(self):
        return self.fn.__name__

    def run(self, *args, grid, warmup, num_warps=4, **kwargs):
        if not warmup:
            self.launches += 1
            self.fn(*args, **kwargs)


class Interpreted:
    """As Triton's interpreter was up to 3.6: each kernel has a `run` of its own."""

    def __init__(self, fn):
        self.fn = fn
        self.run = lambda *args, grid, warmup=False, **kwargs: fn(*args, **kwargs)

    def __getitem__(self, grid):
        return self.fn


class Autotuner(KernelInterface):
    """Tries each configuration, then launches the best."""

    def __init__(self, fn, configs):
        self.fn, self.configs = fn, configs

    def run(self, *args, **kwargs):
        for config in self.configs:
            self.fn.run(*args, **kwargs, **config)
        return self.fn.run(*args, **kwargs, **self.configs[0])
'''


@pytest.fixture
def standin(tmp_path, monkeypatch):
    """The name of a module with the classes of triton.runtime.jit; it is not imported yet."""
    name = "standin_for_triton"
    (tmp_path / f"{name}.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(launches, "MODULES", {name: ("JITFunction", "Interpreted", "Autotuner", "Missing")})
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def triton(standin):
    return importlib.import_module(standin)


def double(x, out, n, BLOCK=1):
    out.copy_(2 * x)  # a kernel's own work is not the program's: it must not be counted beside the launch


def test_a_kernel_without_a_formula_is_listed_with_its_bytes(triton):
    kernel = triton.JITFunction(double)
    x, out = torch.ones(3, 5), torch.zeros(3, 5)
    with fk.counting() as report:
        kernel[(1,)](x, out, 15, BLOCK=16)
        kernel[(1,)](x, out, 15, BLOCK=16)
    assert report.uncounted == [{"operator": "triton.double", "calls": 2, "bytes": 2 * 2 * 60}]
    assert report.flops == report.vector_flops == 0 and report.coverage == 0
    assert out.tolist() == [[2.0] * 5] * 3 and kernel.launches == 2  # it ran
    with pytest.raises(fk.UncountedError, match=r"triton\.double"), fk.counting(strict=True):
        kernel[(1,)](x, out, 15)


def test_a_tensor_that_is_passed_twice_is_moved_once(triton):
    kernel = triton.JITFunction(lambda x, y, n: None)
    x = torch.ones(3, 5)
    with fk.counting() as report:
        kernel[(1,)](x, x, 15)
    assert report.bytes == 60


def test_a_formula_takes_the_kernels_arguments(triton):
    kernel = triton.JITFunction(double)
    seen = []

    @fk.formula(kernel, bytes=lambda x, out, n: 2 * x.numel() * n)
    def _(x, out, n):  # block sizes and warps are left out
        seen.append((tuple(x.shape), n))
        return fk.matmul(m=3, k=n, n=5)

    x, out = torch.ones(3, 5), torch.zeros(3, 5)
    try:
        with fk.counting(strict=True) as report:
            kernel[(1,)](x, out, n=7, BLOCK=16, num_warps=8)
    finally:
        registry.forget(kernel)
    assert report.forward.flops == 2 * 3 * 7 * 5 and report.bytes == 2 * 15 * 7
    assert seen == [((3, 5), 7)]
    assert report.by_op().rows[0]["operator"] == "triton.double"


def test_a_formula_in_flops_takes_the_bytes_of_the_tensors(triton):
    kernel = triton.JITFunction(double)
    fk.formula(kernel)(lambda x, out, n, **meta: 2 * n * meta["BLOCK"])
    x, out = torch.ones(3, 5), torch.zeros(3, 5)
    try:
        with fk.counting() as report:
            kernel[(1,)](x, out, 15, BLOCK=16)
    finally:
        registry.forget(kernel)
    assert (report.flops, report.bytes) == (2 * 15 * 16, 120)


def test_an_interpreted_kernel_is_one_launch_by_itself_and_in_an_autotuner(triton):
    kernel = triton.Interpreted(double)
    plain = triton.Interpreted.__getitem__
    x, out = torch.ones(3, 5), torch.zeros(3, 5)
    with fk.counting() as report:
        kernel[(1,)](x, out, 15)
        triton.Autotuner(kernel, [{}, {}])[(1,)](x, out, 15)
    assert report.uncounted == [{"operator": "triton.double", "calls": 2, "bytes": 240}]
    assert triton.Interpreted.__getitem__ is plain
    fk.formula(kernel)(lambda x, out, n: 2 * n)
    try:
        with fk.counting(strict=True) as report:
            kernel[(1,)](x, out, n=15)
    finally:
        registry.forget(kernel)
    assert report.flops == 30


@pytest.mark.parametrize("outer", [True, False])
def test_an_autotuner_is_one_launch_and_its_formula_may_be_on_either(triton, outer):
    inner = triton.JITFunction(double)
    kernel = triton.Autotuner(inner, [{"BLOCK": 16}, {"BLOCK": 32}])
    x, out = torch.ones(3, 5), torch.zeros(3, 5)
    with fk.counting() as report:
        kernel[(1,)](x, out, 15)
    assert report.uncounted == [{"operator": "triton.double", "calls": 1, "bytes": 120}] and inner.launches == 3
    registered = kernel if outer else inner
    fk.formula(registered)(lambda x, out, n: 30)
    try:
        with fk.counting(strict=True) as report:
            kernel[(1,)](x, out, 15)
    finally:
        registry.forget(registered)
    assert report.flops == 30


def test_warming_up_is_no_launch(triton):
    kernel = triton.JITFunction(double)
    x = torch.ones(3)
    with fk.counting() as report:
        kernel.warmup(x, x, 3, grid=(1,))
    assert report.uncounted == [] and report.bytes == 0


def test_triton_that_is_imported_while_counting_is_noted(standin):
    with fk.counting() as report:
        module = importlib.import_module(standin)
        module.JITFunction(double)[(1,)](torch.ones(3, 5), torch.zeros(3, 5), 15)
    assert launches.LATE in report.notes


def test_nothing_remains_after_an_exception(triton):
    before = vars(triton.JITFunction)["run"]

    def fails(x):
        raise ZeroDivisionError

    x = torch.ones(3)
    with pytest.raises(ZeroDivisionError), fk.counting() as report:
        triton.JITFunction(fails)[(1,)](x)
    assert vars(triton.JITFunction)["run"] is before
    assert report.bytes == 0
    with fk.counting() as report:
        torch.ones(3) + 1
    assert report.vector_flops == 3


def test_a_kernel_in_a_module_and_in_a_custom_operator(triton):
    """In the module that launches it; and an operator that only launches it is not listed beside it."""
    kernel = triton.JITFunction(double)

    @torch.library.custom_op("flopkit_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[(1,)](x, out, x.numel())
        return out

    class Net(torch.nn.Module):
        def forward(self, x):
            return doubled(x)

    report = fk.count(Net(), torch.ones(3, 5))
    assert report.uncounted == [{"operator": "triton.double", "calls": 1, "bytes": 120}]
    assert [row["bytes"] for row in report.by_module()] == [120]


REAL = """
    import torch, triton, triton.language as tl, flopkit as fk

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + place, tl.load(x + place, place < n) + tl.load(y + place, place < n), place < n)

    @torch.library.triton_op("flopkit_tests::added", mutates_args=())
    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(add)[(1,)](x, y, out, x.numel(), BLOCK=16)
        return out

    x, y, out = torch.ones(10), torch.ones(10), torch.zeros(10)
    report = fk.count(lambda: add[(1,)](x, y, out, 10, BLOCK=16))
    assert out.tolist() == [2.0] * 10
    assert report.uncounted == [{"operator": "triton.add", "calls": 1, "bytes": 120}], report.uncounted
    assert report.flops == report.vector_flops == 0
    report = fk.count(added, x, y)
    assert report.uncounted == [{"operator": "triton.add", "calls": 1, "bytes": 120}], report.uncounted
    fk.formula(add)(lambda x, y, out, n: fk.residual(elements=n))
    report = fk.count(added, x, y, strict=True)
    assert (report.vector_flops, report.bytes, report.uncounted) == (10, 120, [])
    print("counted")
"""


@pytest.mark.slow
def test_a_real_kernel():
    """Triton's own interpreter runs it on the CPU; it is switched on before Triton is imported, so in a process of its own."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed (it comes with torch for CUDA): the stand-in alone was tested")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(REAL)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.stdout.strip() == "counted", done.stderr
