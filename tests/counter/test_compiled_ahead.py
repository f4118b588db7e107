"""Functions that were compiled ahead of time, CUDA graphs that are replayed, and higher-order operators whose kernels refuse to run under a dispatch mode."""

import pytest
import torch
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.strict_mode import strict_mode

import flopkit as fk

x, w = torch.randn(4, 8), torch.randn(8, 8)
PRODUCT = 2 * 4 * 8 * 8


def ahead(backend):
    compiled = torch.compile(lambda a: torch.relu(a @ w) @ w, fullgraph=True, backend=backend)
    if not hasattr(compiled, "aot_compile"):
        pytest.skip("this torch compiles nothing ahead of time")
    return compiled.aot_compile(((x,), {}))


def test_compiled_ahead_of_time_runs():
    fn, counted = ahead("aot_eager"), []
    report = fk.count(lambda: counted.append(fn(x)), strict=True)
    assert report.flops == 2 * PRODUCT
    assert report.vector_flops == 4 * 8
    assert torch.equal(counted[0], fn(x))


def test_it_checks_its_guards_as_ever():
    fn = ahead("eager")
    with pytest.raises(RuntimeError, match="GuardManager check failed"):
        fn(x[:2])
    with pytest.raises(RuntimeError, match="GuardManager check failed"):
        fk.count(fn, x[:2])


def test_what_inductor_made_is_listed():
    fn = ahead("eager")
    fn._artifacts.backend_name = "inductor"  # which would compile C++
    report = fk.count(fn, x)
    assert report.flops == 2 * PRODUCT
    assert report.uncounted == [{"operator": "inductor.AOTCompiledFunction", "calls": 1, "bytes": 2 * 4 * 8 * 4}]
    with pytest.raises(fk.UncountedError):
        fk.count(fn, x, strict=True)


def test_a_cuda_graph_that_is_replayed_is_listed(monkeypatch):
    graph, ran = torch.cuda.CUDAGraph, []
    monkeypatch.setattr(graph, "replay", ran.append)  # no GPU is needed
    replayed = vars(graph)["replay"]
    report = fk.count(lambda: [graph.replay("graph") for _ in range(3)])
    assert ran == ["graph"] * 3 and vars(graph)["replay"] is replayed
    assert report.uncounted == [{"operator": "cuda.CUDAGraph", "calls": 3, "bytes": 0}]
    assert report.coverage == 0
    assert "NOT COUNTED: cuda.CUDAGraph (3 calls)" in repr(report)
    assert report.notes == [
        "a CUDA graph was replayed: neither what it ran nor the bytes that it moved are seen (3 calls)"
    ]
    with pytest.raises(fk.UncountedError, match="CUDAGraph"):
        fk.count(lambda: graph.replay("graph"), strict=True)


FUNCTIONS = {
    "foreach_map": lambda: foreach_map(torch.mm, [x], [w])[0],
    "strict_mode": lambda: strict_mode(lambda a: a @ w, (x,)),
    "foreach_map, compiled": torch.compile(lambda: foreach_map(torch.mm, [x], [w])[0], backend="eager", fullgraph=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_higher_order_operators_that_refuse_modes(name):
    counted = []
    report = fk.count(lambda: counted.append(FUNCTIONS[name]()), strict=True)
    assert report.flops == PRODUCT
    assert torch.equal(counted[0], x @ w)
