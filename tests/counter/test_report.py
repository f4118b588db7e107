"""A report's numbers add up, whichever way they are looked at, and it shows itself in a terminal and in a notebook."""

from __future__ import annotations

import builtins
import copy
import pickle
import sys
from html.parser import HTMLParser

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import flopkit as fk
from flopkit.conventions import EXACT, TORCH

PHASES = ("forward", "backward", "recompute", "optimizer")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = (t.view(2, 8, 2, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 8, 16))


def training():
    model = nn.Sequential(Block(), nn.ReLU(), Block())
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.ones(2, 8, 16, requires_grad=True)

    def step():
        checkpoint(model[0], model(x), use_reentrant=False).pow(2).sum().backward()
        optimizer.step()

    return step


@pytest.fixture(scope="module")
def report():
    return fk.count(training())


PROJECTIONS = 2 * 2 * 8 * 16 * (48 + 16)
SCORES = 2 * 2 * 2 * 2 * 8 * 8 * 8  # two products for two sequences of two heads of 8 × 8 positions of width 8


@pytest.mark.parametrize("convention", [TORCH, EXACT, fk.conventions.FVCORE])
def test_every_view_has_the_same_sum(report, convention):
    seen = report.under(convention)
    assert seen.convention == convention
    whole = {phase: getattr(seen, phase) for phase in PHASES}
    assert all(isinstance(cost, fk.Cost) and cost.convention == convention for cost in whole.values())
    assert sum(cost.flops for cost in whole.values()) == seen.flops == seen.hardware_flops
    assert sum(cost.vector_flops for cost in whole.values()) == seen.vector_flops
    assert sum(cost.bytes for cost in whole.values()) == seen.bytes
    by_op = seen.by_op()
    for phase, cost in whole.items():
        rows = [row for row in by_op if row["phase"] == phase]
        assert sum(row["flops"] for row in rows) == cost.flops
        assert sum(row["vector_flops"] for row in rows) == cost.vector_flops
    assert sum(row["bytes"] for row in by_op) == seen.bytes
    assert sum(row["share"] for row in by_op) == pytest.approx(1)
    tops = [row for row in seen.by_module() if row["module"] in ("", "Block", "Block (2)", "(no module)", "Sequential")]
    for name, number in (("flops", seen.flops), ("vector_flops", seen.vector_flops), ("bytes", seen.bytes)):
        assert sum(row[name] for row in tops) == number, name
    assert sum(row["model_flops"] for row in tops) == seen.model_flops
    for phase in PHASES:
        assert sum(row[phase] for row in tops) == whole[phase].flops


def test_each_parent_is_its_own_and_its_childrens(report):
    rows = {row["module"]: row for row in report.by_module()}
    for name in ("0", "2"):
        children = [row for other, row in rows.items() if other.startswith(f"{name}.") and other.count(".") == 1]
        assert children
        own_bytes = rows[name]["bytes"] - sum(row["bytes"] for row in children)
        assert own_bytes > 0  # attention's own
        forward = rows[name]["forward"] - sum(row["forward"] for row in children)
        assert forward == SCORES * (2 if name == "0" else 1)


def test_the_numbers_themselves(report):
    forward = 3 * (PROJECTIONS + SCORES)
    assert report.forward.flops == forward
    assert report.model_flops == 3 * forward
    exact = report.under(EXACT)
    visible = SCORES * 36 // 64  # the triangle of 8
    assert exact.forward.flops <= forward
    assert exact.model_flops == 3 * 3 * (PROJECTIONS + visible)


def test_numbers_are_plain(report):
    for name in ("flops", "hardware_flops", "model_flops", "vector_flops", "bytes", "macs"):
        assert type(getattr(report, name)) is int, name
    assert 2 * report.macs == report.flops
    assert type(report.intensity) is float and report.intensity == report.flops / report.bytes
    assert type(report.coverage) is float and report.coverage == 1.0
    for row in (*report.by_op(), *report.by_module()):
        assert type(row["flops"]) is int and type(row["bytes"]) is int
        assert 0 <= row["share"] <= 1


def test_rows_by_operator_say_what_happened(report):
    rows = report.by_op()
    assert [row["flops"] for row in rows] == sorted((row["flops"] for row in rows), reverse=True)
    assert len({(row["operator"], row["phase"], row["kernel"]) for row in rows}) == len(rows)
    found = {(row["operator"], row["phase"]): row for row in rows}
    assert found["addmm", "forward"]["calls"] == 6
    assert found["scaled_dot_product_attention", "forward"]["kernel"]
    assert found["addmm", "forward"]["intensity"] == pytest.approx(
        found["addmm", "forward"]["flops"] / found["addmm", "forward"]["bytes"]
    )
    assert {row["status"] for row in rows} <= {"counted", "element-wise", "free"}


def test_it_shows_itself(report):
    text, page = repr(report), report._repr_html_()
    assert "[TORCH]" in text and "[EXACT]" in text  # causal attention: both numbers, never mixed
    assert "every operator is accounted for" in text
    for word in ("of the model", "executed", "forward", "backward", "recompute", "optimizer", "element-wise"):
        assert word in text, word
    assert "<table" in page and "addmm" in page
    assert "[EXACT]" in repr(report.under(EXACT)) and "[TORCH]" in repr(report.under(EXACT))
    plain = fk.count(lambda: torch.ones(2, 3) @ torch.ones(3, 2))
    assert "[EXACT]" not in repr(plain)  # there both are the same
    for table in (report.by_op(), report.by_module()):
        assert "convention TORCH" in str(table) and "<table" in table._repr_html_()


def test_an_empty_report_shows_itself():
    empty = fk.count(lambda: None)
    assert repr(empty) and empty._repr_html_()
    assert empty.by_op().rows == empty.by_module().rows == empty.uncounted == empty.notes == []
    with fk.counting() as nothing:
        pass
    assert repr(nothing)


class Balanced(HTMLParser):
    VOID = {"br", "hr", "img", "input", "meta", "link", "col"}

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], set(), ""

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_text_and_html_show_both_conventions():
    q = torch.ones(1, 4, 6, 8)
    report = fk.count(F.scaled_dot_product_attention, q, q, q, is_causal=True)
    page = Balanced()
    page.feed(report._repr_html_())
    page.close()
    assert page.open == [] and "table" in page.seen
    for text in (repr(report), str(report), page.text, repr(report.under(EXACT))):
        assert "TORCH" in text and "EXACT" in text
        assert "4.608" in text and "2.688" in text  # kFLOPs, of 36 and of 21 positions
        assert "scaled_dot_product_attention" in text


def test_names_of_layers_are_escaped_in_html():
    class Odd(nn.Module):
        def forward(self, x):
            return x @ x.t()

    Odd.__name__ = Odd.__qualname__ = "<script>"
    report = fk.count(nn.Sequential(Odd()), torch.ones(4, 8))
    assert "<script>" not in report._repr_html_() and "<script>" not in report.by_module()._repr_html_()


def test_names_are_escaped_in_html():
    @torch.library.custom_op("report_tests::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)

    class Odd(nn.Module):
        def forward(self, x):
            return opaque(x)

    Odd.__name__ = "<b>"
    report = fk.count(Odd(), torch.ones(3))
    assert "<b>" not in report.by_module()._repr_html_() and "<b>" not in report._repr_html_()


def test_a_report_stays_as_it_was():
    step = training()
    report = fk.count(step)
    before = report.flops, report.by_op().rows
    step()
    fk.count(step)
    assert (report.flops, report.by_op().rows) == before
    rows = report.by_op().rows
    rows[0]["flops"] = 0
    assert report.by_op().rows == before[1]


def test_costs_of_a_report_can_be_calculated_with(report):
    both = report.forward + report.backward
    assert both.flops == report.forward.flops + report.backward.flops
    assert (report.forward * 3).flops == 3 * report.forward.flops
    with pytest.raises(ValueError, match="a cost under TORCH and one under EXACT"):
        report.forward + report.under(EXACT).forward


def test_counting_needs_torch_and_says_so(monkeypatch):
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "torch":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="not installed: pip install torch$"):
        fk.count(lambda: None)


def test_a_long_count_shows_a_bar(monkeypatch, capsys):
    from flopkit.counter import running

    clock = iter(range(0, 10**6, 3))
    monkeypatch.setattr(running.time, "monotonic", lambda: next(clock))
    fk.count(lambda: [torch.ones(1) + 1 for _ in range(300)])
    assert capsys.readouterr().err == ""  # a file, a pipe
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fk.count(lambda: [torch.ones(1) + 1 for _ in range(300)])
    assert "counting" in capsys.readouterr().err
    monkeypatch.setattr(running.time, "monotonic", lambda: 0)
    fk.count(lambda: [torch.ones(1) + 1 for _ in range(300)])
    assert capsys.readouterr().err == ""


def test_a_report_can_be_pickled_and_then_has_the_same_numbers():
    x = torch.ones(2, 8, 16, requires_grad=True)
    with fk.counting() as report:
        y = checkpoint(
            lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True).exp() * 2, x, use_reentrant=False
        )
        y.sum().backward()
    report.add_note("kept")
    for convention in (TORCH, EXACT):
        before = report.under(convention)
        after = pickle.loads(pickle.dumps(before))
        assert repr(after) == repr(before) and after.notes == before.notes
        assert (after.model_flops, after.recompute, after.bytes) == (before.model_flops, before.recompute, before.bytes)
        assert after.by_module().rows == before.by_module().rows
        assert after.as_seen_by("torch") == before.as_seen_by("torch")
        slow = fk.Device("slow", peak={"fp32": 1e12}, bandwidth=1e9)
        assert after.roofline(slow, "fp32").seconds == before.roofline(slow, "fp32").seconds
    assert int(copy.copy(report).as_seen_by("torch")) == int(report.as_seen_by("torch"))


def test_attention_that_is_written_out_is_noted_where_its_mask_would_matter():
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.soft = nn.Softmax(-1)

        def forward(self, x):
            scores = x @ x.transpose(1, 2) + torch.full((8, 8), -torch.inf).triu(1)
            return self.soft(scores) @ x if self.training else scores.softmax(-1) @ x

    x = torch.ones(2, 8, 16)
    for model in (Written().eval(), Written().train()):
        report = fk.count(model, x)
        assert report.notes == [] and report.flops == 2 * (2 * 2 * 8 * 8 * 16)
        (note,) = report.under(EXACT).notes
        assert "hand-written" in note and note.endswith("(1 call)") and note in repr(report.under(EXACT))
    # Neither a router's softmax beside its product nor attention that is called by its name.
    assert fk.count(lambda: F.linear(x, torch.ones(4, 16)).softmax(-1)).under(EXACT).notes == []
    assert fk.count(lambda: F.scaled_dot_product_attention(x, x, x)).under(EXACT).notes == []


def test_a_layer_that_returns_its_weights_is_attention_that_is_written_out():
    x, w, out = torch.ones(8, 2, 16), torch.ones(48, 16), torch.ones(16, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(8)

    def layer():
        F.multi_head_attention_forward(
            x, x, x, 16, 2, w, None, None, None, False, 0.0, out, None, attn_mask=mask, is_causal=True
        )

    def written_out():
        (x @ x.transpose(1, 2)).softmax(-1) @ x

    def beside():
        layer()
        x @ x.transpose(1, 2)

    def both():
        layer()
        written_out()
        written_out()

    for run, calls in ((layer, "(1 call)"), (beside, "(1 call)"), (both, "(3 calls)")):
        (note,) = fk.count(run).under(EXACT).notes
        assert "hand-written" in note and note.endswith(calls)


def test_an_error_of_a_strict_count_can_be_pickled():
    with pytest.raises(fk.UncountedError) as caught:
        fk.count(torch.linalg.matrix_exp, torch.ones(2, 2, device="meta"), strict=True)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.report.uncounted == caught.value.report.uncounted


def test_rows_come_in_the_order_that_is_asked_for():
    report = fk.count(torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU()), torch.ones(2, 4))
    names = [row["operator"] for row in report.by_op()]
    assert names[0] == "addmm" and sorted(names) == [row["operator"] for row in report.by_op(sort="operator")]
    sizes = [row["bytes"] for row in report.by_op(sort="bytes")]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 0
    with pytest.raises(ValueError, match="sort='size': must be one of 'flops'"):
        report.by_op(sort="size")


@pytest.mark.parametrize("depth", [-1, "all", 1.5, True])
def test_no_depth(depth):
    report = fk.count(torch.nn.Linear(4, 8), torch.ones(2, 4))
    with pytest.raises(ValueError, match="depth=.*: must be 0"):
        report.by_module(depth=depth)


def test_a_program_in_the_wrong_place_is_refused_at_once():
    layer, x = torch.nn.Linear(4, 8), torch.ones(2, 4)
    with pytest.raises(
        TypeError, match=r"counting\(Linear\(.*a Tensor of shape \(2, 4\)\): the program goes into the block"
    ):
        fk.counting(layer, x)
    with pytest.raises(TypeError, match=r"fn=a Tensor of shape \(2, 8\) cannot be called: pass a model or a function"):
        fk.count(layer(x))


def test_a_value_of_a_tensor_on_meta_is_torch_s_error_with_a_way_out():
    x = torch.ones(2, device="meta")
    with pytest.raises(RuntimeError, match="meta tensors") as caught:
        fk.count(lambda: x.sum().item())
    assert "When meta refuses" in caught.value.__notes__[0] and len(caught.value.__notes__) == 1
    with pytest.raises(RuntimeError, match="mine") as caught:
        fk.count(lambda: (_ for _ in ()).throw(RuntimeError("mine")))
    assert not hasattr(caught.value, "__notes__")
