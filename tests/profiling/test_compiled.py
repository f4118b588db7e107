"""Compiled functions: their graphs and kernels have rows of their own, on traces by hand and on a CPU."""

import os
import shutil
import sys

import pytest
import torch
from kineto import Kineto

import flopkit as fk
from flopkit.profiling import Profile, in_order

GRAPH = "## Call CompiledFxGraph fvmlcb ##"
X, W = torch.ones(4, 8), torch.ones(8, 16)
MACS = 4 * 8 * 16


def micros(found):
    return {row["operator"]: round(1e6 * row["seconds"], 6) for row in found.rows}


def named(found):
    return {row["operator"]: row for row in found.rows}


def compiled(trace, start, end, category="cpu_op"):
    """A compiled graph from *start* + 10 to *end* − 10, in its region."""
    trace.op("Torch-Compiled Region: 0/0", start, end)
    return trace.add(category, GRAPH, start + 10, end - 10)


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])  # torch writes either
def test_what_the_compiler_generated_is_named_by_the_operators_that_left_no_event(tmp_path, category):
    report = in_order(lambda: torch.relu(X @ W + 1).sum())
    trace = compiled(Kineto(card="").step(0, 0, 100), 0, 60, category).op("aten::mm", 20, 40).op("aten::sum", 70, 80)
    found = Profile.from_trace(trace.write(tmp_path), report)
    assert micros(found) == {"compiled: add + relu": 20, "mm": 20, "(torch.compile)": 20, "sum": 10, "(Python)": 30}
    row = named(found)["compiled: add + relu"]
    assert (row["phase"], row["launches"], row["flops"], row["bytes"], row["bound"]) == ("forward", 1, 0, None, "")
    assert named(found)["mm"]["flops"] == 2 * MACS and found.coverage == 1
    assert next(row for row in found.by_phase() if row["phase"] == "forward")["bytes"] is None
    assert next(row for row in found.by_op() if row["operator"] == "mm")["bytes"] == 4 * (32 + 128 + 64)
    assert "fuse" not in {row["advice"] for row in found.advice()}


def test_its_flops_are_those_of_the_graph(tmp_path):
    report = in_order(lambda: torch.relu(X @ W))
    trace = compiled(Kineto(card="").step(0, 0, 60), 0, 60)
    slow = fk.Device("slow", peak={"fp32": 1e9}, bandwidth=1e3)  # by their bytes they would take seconds
    row = named(Profile.from_trace(trace.write(tmp_path), report, slow))["compiled: mm + relu"]
    assert row["flops"] == 2 * MACS and row["flops_per_s"] == pytest.approx(2 * MACS / 40e-6)
    assert row["of_roof"] == pytest.approx(2 * MACS / 1e9 / 40e-6) and row["bytes_per_s"] is None


def test_kernels_with_events_have_rows_and_the_flops_where_there_is_one(tmp_path):
    """As ``torch._inductor.config.cpp.enable_kernel_profile`` has them."""
    report = in_order(lambda: torch.relu(X @ W))
    trace = compiled(Kineto(card="").step(0, 0, 60), 0, 60).op("graph_0_cpp_fused_mm_relu_0", 20, 30)
    one = Profile.from_trace(trace.write(tmp_path), report)
    assert micros(one) == {"compiled: cpp_fused_mm_relu_0": 10, "(torch.compile)": 50}
    assert named(one)["compiled: cpp_fused_mm_relu_0"]["flops"] == 2 * MACS
    two = Profile.from_trace(trace.op("graph_0_cpp_fused_relu_1", 30, 35).write(tmp_path), report)
    assert micros(two)["compiled: cpp_fused_relu_1"] == 5
    assert [(row["operator"], row["flops"]) for row in two.rows if row["flops"]] == [("(not joined)", 2 * MACS)]
    assert not two.notes, "which of the two kernels has them is not known, but the profiler saw both"


def test_a_kernel_on_a_gpu_is_a_row_by_its_name(tmp_path):
    report = in_order(lambda: torch.relu(X @ W + 1))
    trace = compiled(Kineto().step(0, 0, 100), 0, 60).launched("aten::mm", 15, 20, 50)
    trace.op("triton_poi_fused_add_relu_0", 25, 30).runtime("cuLaunchKernel", 26, 28, 77)
    found = Profile.from_trace(trace.kernel("triton_poi_fused_add_relu_0", 50, 58, 77).write(tmp_path), report)
    assert micros(found)["compiled: triton_poi_fused_add_relu_0"] == 8 and micros(found)["mm"] == 30
    assert sum(row["seconds"] for row in found.rows) == pytest.approx(100e-6)


def test_graphs_between_which_nothing_is_known_share_a_row(tmp_path):
    report = in_order(lambda: (X @ W).relu().abs() @ W.T)
    trace = Kineto(card="").step(0, 0, 100)
    compiled(trace, 0, 40).op("aten::mm", 12, 20)
    compiled(trace, 50, 90).op("aten::mm", 70, 75)
    row = named(Profile.from_trace(trace.write(tmp_path), report))["compiled: relu + abs"]
    assert row["launches"] == 2 and 1e6 * row["seconds"] == pytest.approx(40 - 8 - 5)


def test_products_in_another_order_are_known_by_their_sizes(tmp_path):
    """Without sizes the first would be the first."""

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.narrow, self.wide = torch.nn.Linear(8, 16), torch.nn.Linear(8, 64)

        def forward(self, x):
            return self.narrow(x), self.wide(x)

    report = in_order(Two(), X)
    trace = compiled(Kineto(card="").step(0, 0, 90), 0, 90)
    for start, end, width in ((10, 50, 64), (50, 60, 16)):
        sizes = [[width], [4, 8], [8, width], [], [], [4, width]]
        trace.add("cpu_op", "aten::addmm", start, end, **{"Input Dims": sizes})
    found = Profile.from_trace(trace.write(tmp_path), report)
    assert {row["module"]: round(1e6 * row["seconds"]) for row in found.rows if row["flops"]} == {
        "wide": 40,
        "narrow": 10,
    }


def test_attention_in_a_graph_is_that_of_the_program(tmp_path):
    q = torch.ones(1, 2, 16, 8)
    report = in_order(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q))
    trace = compiled(Kineto(card="").step(0, 0, 60), 0, 60)
    trace.op("aten::_scaled_dot_product_flash_attention_for_cpu", 20, 40).op("aten::transpose", 25, 30)
    found = Profile.from_trace(trace.write(tmp_path), report)
    assert micros(found)["scaled_dot_product_attention"] == 20
    assert named(found)["scaled_dot_product_attention"]["flops"] == report.flops > 0


@pytest.mark.parametrize("name", [GRAPH, "CompiledFunctionBackward"])
def test_gradients_that_compiled_code_adds_up_at_its_end(tmp_path, name):
    """The first addition of the program is another one, which the compiler fused."""
    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.zeros(4)
    report = in_order(lambda: (torch.add(weight, 1.0) * 2.0).sum().backward())
    trace = Kineto(card="").step(0, 0, 90).op(name, 0, 50)
    trace.op("torch::autograd::AccumulateGrad", 70, 80).op("aten::add_", 72, 80)
    found = Profile.from_trace(trace.write(tmp_path), report)
    added = next(row for row in found.rows if row["operator"] in ("add", "add_") and row["phase"])
    assert (added["module"], added["phase"], round(1e6 * added["seconds"])) == ("(no module)", "backward", 10)


COMPILERS = [os.environ.get("CXX"), *(["cl"] if sys.platform == "win32" else ["g++", "clang++"])]


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, filter(None, COMPILERS))), reason="torch.compile needs a C++ compiler")
def test_a_compiled_training_step():
    """Every product has its FLOPs, in its module: the compiler's order of the backward pass is another."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = torch.nn.LayerNorm(16), torch.nn.Linear(16, 48), torch.nn.Linear(48, 16)

        def forward(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    model, x = torch.compile(torch.nn.Sequential(Block(), Block())), torch.randn(8, 16)

    def step():
        model(x).square().sum().backward()

    step()
    found = fk.profile(step, time_budget=0.1)
    assert sum(row["seconds"] for row in found.rows) == pytest.approx(found.seconds)
    assert sum(row["flops"] for row in found.rows) == found.report.flops
    assert found.coverage == 1
    phases = {row["phase"]: row["operator"] for row in found.by_op() if row["operator"].startswith("compiled: ")}
    assert set(phases) == {"forward", "backward"}
    assert "native_layer_norm" in phases["forward"] and "gelu_backward" in phases["backward"]
    ours = {(row["module"], row["phase"]): row["flops"] for row in found.rows if row["operator"] in ("mm", "addmm")}
    each = 2 * 8 * 16 * 48
    names = [f"_orig_mod.{block}.{layer}" for block in (0, 1) for layer in ("up", "down")]
    assert ours == {**{(name, "forward"): each for name in names}, **{(name, "backward"): 2 * each for name in names}}
    assert named(found)["add_"]["launches"] == len(list(model.parameters()))
