"""Asking the installed tools: what they say, what they leave behind, and what is asked of one that is not there."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopkit as fk
from flopkit.peers import asking, installed, why
from flopkit.peers.asking import ask, sure
from flopkit.peers.recorded import releases, versions
from flopkit.peers.tools import TOOLS

DENSE = nn.Linear(16, 32, bias=False), torch.ones(1, 16)
MACS = 16 * 32


@pytest.mark.parametrize("tool", TOOLS)
def test_all_agree_about_a_dense_layer_once_read_as_what_they_count(tool):
    answer = ask(tool, *DENSE)
    if answer.version is None:
        pytest.skip(answer.said)
    assert answer.flops == 2 * MACS and answer.value == int(answer) == 2 * MACS // (2 // answer.fma)
    assert answer.said == "" and f"{answer.value:,} {answer.unit}" in repr(answer) and answer.version in repr(answer)
    assert ("multiply-adds" in repr(answer)) == (answer.fma == 1)


@pytest.mark.parametrize("tool", TOOLS)
def test_several_inputs(tool):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)

        def forward(self, x, y):
            return self.one(x) + self.other(y)

    answer = ask(tool, Two(), torch.ones(1, 16), torch.ones(1, 16))
    if answer.version is None:
        pytest.skip(answer.said)
    added = {"torch.profiler": 32}.get(tool, 0)  # one for each number of the sum
    if sure(tool):
        assert answer.flops == 4 * MACS + added


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)

    def forward(self, x=None, scale=1.0, y=None, **rest):
        return torch.cat([self.one(x), self.other(y)])


@pytest.mark.parametrize("tool", TOOLS)
def test_inputs_by_name(tool):
    x, y = torch.ones(1, 16), torch.ones(1, 16)
    answer = ask(tool, Named(), x, y=y)
    if answer.version is None:
        pytest.skip(answer.said)
    if sure(tool) and answer.value is not None:  # fvcore and torchinfo take tensors only
        assert answer.flops == 4 * MACS
    assert answer.value is not None or tool in ("fvcore", "torchinfo"), answer


def test_all_of_them_are_given_inputs_by_name():
    model, x = Named(), torch.ones(1, 16)
    for table in (fk.peers.ask_all(model, x=x, y=x, tools=["torch"]), fk.peers.ask_all(model, x, tools="torch", y=x)):
        assert (table[0]["printed"], table[0]["share"]) == (4 * MACS, 1.0)


def test_what_goes_by_name_only_is_refused_by_a_tool_that_takes_none():
    class Only(nn.Linear):
        def forward(self, x, *, twice):
            return super().forward(x + twice)

    layer, x = Only(16, 32, bias=False), torch.ones(1, 16)
    assert ask("torch", layer, x, twice=x).value == 2 * MACS
    answer = ask("thop", layer, x, twice=x)
    if answer.version is not None:
        assert "takes inputs by position, and twice can be given by name only" in answer.said


def test_the_two_backends_of_ptflops():
    """Products written with @: its functions have none, its operators have."""
    if not sure("ptflops"):
        pytest.skip("ptflops")

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(16, 32))

        def forward(self, x):
            return x @ self.w

    found = {tool: ask(tool, Product(), torch.ones(1, 16)) for tool in ("ptflops", "ptflops-aten")}
    assert {tool: (answer.value, answer.backend) for tool, answer in found.items()} == {
        "ptflops": (0, "pytorch"),
        "ptflops-aten": (MACS, "aten"),
    }


def test_nothing_is_left_behind(capfd):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).train()
    before = copy.deepcopy(model.state_dict())
    for tool in TOOLS.values():
        installed.load(tool.package)
    lies = {owner: dict(vars(owner)) for owner in (torch, F, torch.Tensor)}
    for tool in TOOLS:
        ask(tool, model, torch.ones(1, 2))
        ask(tool, Fails(), torch.ones(1, 2))
    fk.peers.ask_all(model, torch.ones(1, 2))
    for owner, before_it in lies.items():
        assert {name for name, value in vars(owner).items() if before_it.get(name) is not value} == set()
    assert model.training and model.state_dict().keys() == before.keys()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert capfd.readouterr() == ("", "")


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.Linear(2, 2)

    def forward(self, x):
        raise RuntimeError("no such thing\nas this")


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_that_fails_says_how(tool):
    answer = ask(tool, Fails(), torch.ones(1, 2))
    if answer.version is None:
        pytest.skip(answer.said)
    silent = tool.startswith("ptflops")  # which keeps its errors to itself
    assert answer.value is None and answer.flops is None
    assert (answer.said == asking.NO_NUMBER) if silent else "no such thing" in answer.said
    with pytest.raises(ValueError, match=f"{tool} has no number"):
        int(answer)


def test_an_unknown_tool_is_told_near_names():
    for call in (
        lambda: fk.ask("fvcor", *DENSE),
        lambda: fk.peers.ask_all(*DENSE, tools=["torch", "fvcor"]),
        lambda: sure("fvcor"),
    ):
        with pytest.raises(ValueError, match=r"tool='fvcor' is not a known tool; did you mean fvcore\?$"):
            call()


def test_two_threads_that_ask_leave_nothing_behind():
    """The first leaves while the second asks: neither may take the other's replacements for what was there before."""
    first_runs, second_runs, first_is_done = threading.Event(), threading.Event(), threading.Event()

    def first(x):
        first_runs.set()
        second_runs.wait(0.5)  # it may not, while this one is asked
        return x @ x

    def second(x):
        second_runs.set()
        first_is_done.wait(5)
        return x @ x

    def ask_first():
        answers.append(fk.ask("torch", first, torch.ones(4, 4)).value)
        first_is_done.set()

    def ask_second():
        first_runs.wait(5)
        [row] = fk.peers.ask_all(second, torch.ones(4, 4), tools="torch")
        answers.append(row["printed"])

    def found():
        return sys.stdout, sys.stderr, [(os.fstat(n).st_dev, os.fstat(n).st_ino) for n in (1, 2)], dict(vars(F))

    answers = []
    with contextlib.redirect_stdout(sys.stdout), contextlib.redirect_stderr(sys.stderr), warnings.catch_warnings():
        before = found(), list(warnings.filters)
        threads = [threading.Thread(target=target) for target in (ask_first, ask_second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert (found(), list(warnings.filters)) == before
    assert answers == [2 * 4 * 4 * 4] * 2


def test_an_error_that_is_its_own_cause_ends():
    def circle(x):
        one, other = ValueError("one"), TypeError("other")
        other.__cause__ = one
        raise one from other

    def itself(x):
        error = ValueError("no such thing")
        raise error from error

    def chain(x):
        try:
            raise KeyError("what it was")
        except KeyError as error:
            raise ValueError("what is told") from error

    assert ask("torch", itself, torch.ones(1)).said == "ValueError: no such thing"
    assert ask("torch", circle, torch.ones(1)).said in ("ValueError: one", "TypeError: other")
    assert ask("torch", chain, torch.ones(1)).said == "KeyError: 'what it was'"


def test_inputs_and_random_state_stay():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4), nn.Dropout())
    x, state = -torch.ones(1, 4), torch.get_rng_state()
    for tool in TOOLS:
        ask(tool, model, x)
        assert x.eq(-1).all() and torch.get_rng_state().equal(state), tool
    fk.peers.ask_all(model, x, tools=["torch"])
    assert x.eq(-1).all() and torch.get_rng_state().equal(state)
    fk.peers.ask_all(lambda x: F.dropout(x.mul_(2)), x, tools=())
    assert x.eq(-1).all() and torch.get_rng_state().equal(state)


def test_a_tensor_that_model_and_input_share_stays_shared():
    class Shares(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = nn.Parameter(torch.ones(2, 2))

        def forward(self, x):
            assert x is self.own
            return x @ x

    model = Shares()
    answer = ask("torch", model, model.own)
    assert answer.value == 2 * 2 * 2 * 2, answer


def test_an_input_with_a_history_is_taken():
    x = torch.ones(1, 16, requires_grad=True) * 2
    assert ask("torch", DENSE[0], x).value == 2 * MACS
    assert fk.peers.ask_all(DENSE[0], x, tools="torch")[0]["share"] == 1


def test_what_cannot_be_copied_is_told_a_way_out():
    class Computed(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = nn.Parameter(torch.ones(4, 4))
            self.scaled = self.plain * 2

        def forward(self, x):
            return x @ self.scaled

    model, x = Computed(), torch.ones(1, 4)
    answer = ask("torch", model, x)
    says = "Computed and its inputs cannot be copied (RuntimeError: Only Tensors created explicitly"
    assert answer.value is None and answer.said.startswith(says)
    with pytest.raises(ValueError, match=r"^Computed and its inputs cannot be copied .*lambda: model\(\*inputs\)$"):
        fk.peers.ask_all(model, x)
    assert fk.peers.ask_all(lambda: model(x), tools="torch")[0]["share"] == 1  # the way out


def test_what_is_printed_beneath_python_is_silenced_and_what_was_printed_before_is_not(capfd, monkeypatch):
    out = open(1, "w", closefd=False)  # as in a program: buffered, and a logger may hold it
    monkeypatch.setattr(sys, "stdout", out)

    def loud(x):
        print("by Python")
        out.write("by Python, to where it was")
        os.write(1, b"beneath it")
        os.write(2, b"beneath it")
        return x @ x

    print("before", end="")
    assert ask("torch", loud, torch.ones(2, 2)).value == 16
    print(", after", end="")
    out.close()
    assert capfd.readouterr() == ("before, after", "")


@pytest.mark.parametrize("tool", TOOLS)
def test_mode_and_gradients_are_as_the_docstring_says(tool):
    runs = []  # of all copies

    class Watches(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            runs.append((torch.is_grad_enabled(), self.training))
            return self.layer(x)

    if not sure(tool):
        pytest.skip(tool)
    for train in (True, False):
        for grad in (True, False):
            runs.clear()
            with torch.set_grad_enabled(grad):
                ask(tool, Watches().train(train), torch.ones(1, 2))
            without = tool in ("thop", "ultralytics-thop", "torchinfo")
            as_it_is = tool in ("torch", "torch.profiler", "fvcore")
            assert set(runs) == {(grad and not without, train and as_it_is)}


def test_a_tool_is_named_generously():
    assert ask("Torch Profiler", *DENSE).tool == "torch.profiler"
    assert sure("Torch") == sure("torch")
    assert [row["tool"] for row in fk.peers.ask_all(*DENSE, tools="Torch")] == ["torch"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fk.ask(["torch"], *DENSE), "tool must be a name, such as 'torch', and not of type list"),
        (lambda: fk.ask(*DENSE), "tool must be a name, such as 'torch', and not of type Linear"),
        (
            lambda: fk.peers.ask_all(*DENSE, tools=[DENSE[0]]),
            "tool must be a name, such as 'torch', and not of type Linear",
        ),
        (
            lambda: fk.peers.ask_all(*DENSE, tools=3),
            "tools must be names, such as ['torch', 'fvcore'], and not of type int",
        ),
    ],
)
def test_what_is_no_name_is_told_so(call, says):
    with pytest.raises(TypeError) as error:
        call()
    assert str(error.value) == says


@pytest.fixture
def missing(monkeypatch):
    monkeypatch.setattr(asking, "load", lambda name: None)
    monkeypatch.setattr(asking, "version", lambda name: None)


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("thop", "pip install thop"),
        ("ptflops-aten", "pip install ptflops"),
        ("ultralytics-thop", f'--target "{installed.APART}"'),
    ],
)
def test_a_tool_that_is_missing_is_no_zero(missing, capsys, tool, command):
    answer = ask(tool, *DENSE)
    assert answer.value is None and answer.flops is None and answer.version is None
    assert answer.said.startswith("missing: ") and command in answer.said and command in repr(answer)
    assert not sure(tool)
    assert f"not checked here: {tool}" in capsys.readouterr().out
    [row] = fk.peers.ask_all(*DENSE, tools=[tool])
    assert (row["printed"], row["share"], row["why"]) == (None, None, answer.said)


def test_one_that_is_installed_and_cannot_be_imported_is_missing(monkeypatch, capsys):
    """As thop is where distutils is gone."""
    monkeypatch.setattr(asking, "load", lambda name: None)
    monkeypatch.setattr(asking, "version", lambda name: versions()["thop"])
    assert ask("thop", *DENSE).said.startswith("missing")
    assert not sure("thop")
    assert "missing" in capsys.readouterr().out


def test_all_of_them_as_a_table():
    q = torch.ones(1, 2, 8, 4)
    table = fk.peers.ask_all(lambda q: (q @ q.mT, torch.mv(q[0, 0], q[0, 0, 0])), q, tools=("torch", "torch.profiler"))
    assert table.columns == ["tool", "version", "unit", "backend", "printed", "flops", "share", "why"]
    unseen, product = 2 * 8 * 4, 2 * 2 * 8 * 8 * 4
    assert table.caption.startswith("1.088 kFLOPs ran forward")
    for row in table:
        assert row["printed"] == row["flops"] == product and row["share"] == product / (unseen + product)
        if sure(row["tool"]):
            assert row["why"] == "mv: 0 (64 FLOPs)"
    assert "94.1 %" in str(table) and "94.1&nbsp;%" in table._repr_html_()


def test_a_reason_is_given_only_where_it_is_known():
    report = fk.count(*DENSE)
    given = {"tool": "torch", "version": "2.13.0", "backend": "", "unit": "FLOPs", "fma": 2}

    def reason(value, **changed):
        return why.reason(asking.Answer(**{**given, "value": value, **changed}), report)

    assert reason(2 * MACS) == "" and reason(2 * MACS, version="1.0") == ""
    assert reason(MACS) == reason(3 * MACS) == "not known"
    assert reason(MACS, version="1.0") == "not known of this version"
    assert reason(10, tool="thop", fma=1, version=versions()["thop"]).startswith("sees layers")


# -- what is said to be counted as zero -------------------------------------------------------------------------------


class Alone(nn.Module):
    """A program of one operator, with a parameter for the tools that want one."""

    def __init__(self, run, *own):
        super().__init__()
        self.run, self.own, self.one = run, nn.ModuleList(own), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.run(x, *self.own)


def _grouped(x):
    ends = torch.tensor([8, 16], dtype=torch.int32)
    return torch._grouped_mm(x.bfloat16().repeat(4, 4), torch.ones(2, 32, 16, dtype=torch.bfloat16), offs=ends)


def _heads(x, layer):
    return layer(x, x, x, need_weights=False)[0]


X, Q = torch.ones(4, 8), torch.ones(1, 2, 8, 4)
BYTES = torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 24, dtype=torch.int8)
ALONE = {
    "scaled_dot_product_attention, flash (CPU)": (lambda: Alone(lambda x: F.scaled_dot_product_attention(x, x, x)), Q),
    "_native_multi_head_attention": (lambda: Alone(_heads, nn.MultiheadAttention(8, 2, batch_first=True)).eval(), X[None]),
    "_transformer_encoder_layer_fwd": (
        lambda: Alone(lambda x, layer: layer(x), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)).eval(), X[None],
    ),
    "mkldnn_rnn_layer": (lambda: Alone(lambda x, layer: layer(x)[0], nn.LSTM(8, 4)), X[None]),
    "_grouped_mm": (lambda: Alone(_grouped), X),
    "_int_mm": (lambda: Alone(lambda x: torch._int_mm(*BYTES)), X),
    "_trilinear": (lambda: Alone(lambda x, layer: layer(x, x), nn.Bilinear(8, 8, 4)), X),
    "_euclidean_dist": (lambda: Alone(lambda x: torch.cdist(x, x)), torch.ones(30, 8)),
    "bmm": (lambda: Alone(lambda x: torch.bmm(x, x.transpose(1, 2))), Q[0]),
    "baddbmm": (lambda: Alone(lambda x: torch.baddbmm(torch.ones(2, 8, 8), x, x.transpose(1, 2))), Q[0]),
    "mv": (lambda: Alone(lambda x: torch.mv(x, x[0])), X),
    "dot": (lambda: Alone(lambda x: torch.dot(x[0], x[0])), X),
    "_fft_r2c": (lambda: Alone(torch.fft.fft), X),
    "_linalg_solve_ex": (lambda: Alone(lambda x: torch.linalg.solve(torch.eye(4), x)), X),
    "_sparse_addmm": (lambda: Alone(lambda x: torch.sparse.mm(torch.eye(4).to_sparse(), x)), X),
}  # fmt: skip
FUSED = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")  # without gradients only


@pytest.mark.parametrize(("tool", "op"), [(tool, op) for tool, it in why.blind_spots().items() for op in it.zero])
@pytest.mark.filterwarnings("ignore")
def test_what_is_said_to_be_zero_is_zero(tool, op):
    if installed.version(TOOLS[tool].package) not in why.blind_spots()[tool].zero[op]:
        pytest.skip(f"{tool}, {op}")
    make, x = ALONE[op if op in ALONE else f"{op}, flash (CPU)"]
    with torch.no_grad() if op in FUSED else contextlib.nullcontext():
        report = fk.count(make(), x)
        rows = {
            f"{row['operator']}, {row['kernel']}" if row["kernel"] else row["operator"]
            for row in report.by_op()
            if row["flops"]
        }
        if not any(row.startswith(op) for row in rows):
            pytest.skip(f"torch runs it as {', '.join(rows)} on this machine")
        answer = ask(tool, make(), x)
        assert answer.value is not None and answer.value < 0.02 * report.flops, answer  # a scale or a sum may be in it
        assert why.reason(answer, report).startswith(f"{op.partition(',')[0]}: 0 (")


@pytest.mark.filterwarnings("ignore")
def test_ptflops_counts_attention_in_one_layer_and_nowhere_else():
    """So it is not among what ptflops counts as zero however it is called: that would name it of a layer that it counts."""
    if not sure("ptflops"):
        pytest.skip("ptflops")
    op = "scaled_dot_product_attention, flash (CPU)"
    assert {op, op.partition(",")[0]}.isdisjoint(why.blind_spots()["ptflops"].zero)
    make, q = ALONE[op]
    assert ask("ptflops", make(), q).value == 0
    written, layered = (
        fk.peers.ask_all(program, x, tools="ptflops")[0]
        for program, x in ((make(), q), (Alone(_heads, nn.MultiheadAttention(8, 2, batch_first=True)).eval(), X[None]))
    )
    assert "no attention outside nn.MultiheadAttention" in written["why"]
    assert layered["share"] > 1 and layered["why"].startswith("adds element-wise work")


def test_the_table_speaks_of_the_tools_that_there_are():
    assert set(why.blind_spots()) == set(TOOLS)
    assert {tool: it.releases for tool, it in why.blind_spots().items()} == {
        **releases(), "ptflops-aten": releases()["ptflops"],
    }  # fmt: skip


@pytest.mark.skipif(
    installed.load("thop") is None or installed.load("ultralytics-thop") is None, reason="one thop is missing"
)
def test_both_thops_side_by_side():
    one, other = installed.load("thop"), installed.load("ultralytics-thop")
    assert one is not other and sys.modules["thop"] is one
    assert str(installed.APART) in other.__file__
