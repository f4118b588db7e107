"""`flopkit.profile` of programs on a CPU whose rows are known."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from kineto import Kineto
from torch.utils.checkpoint import checkpoint

import flopkit as fk
from flopkit.profiling import profile, tracing

NOT_PROGRAM = ("(Python)", "(data loader)", "(not joined)")


@pytest.fixture(scope="module")
def trained():
    """A step of training, profiled."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8), torch.nn.Softmax(-1))
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(16, 32)

    def step():
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    return profile(step, time_budget=0.2), fk.count(step)


def test_rows_are_those_of_the_program(trained):
    found, _ = trained
    working = {(row["operator"], row["module"], row["phase"]): row["launches"] for row in found.table() if row["bytes"]}
    assert working == {
        ("addmm", "0", "forward"): 1, ("relu", "1", "forward"): 1, ("addmm", "2", "forward"): 1, ("_softmax", "3", "forward"): 1,
        ("pow", "(no module)", "forward"): 1, ("sum", "(no module)", "forward"): 1, ("ones_like", "(no module)", "forward"): 1,
        ("pow", "(no module)", "backward"): 1, ("mul", "(no module)", "backward"): 2,
        ("_softmax_backward_data", "3", "backward"): 1, ("mm", "2", "backward"): 2, ("sum", "2", "backward"): 1,
        ("threshold_backward", "1", "backward"): 1, ("mm", "0", "backward"): 1, ("sum", "0", "backward"): 1,
        ("add_", "(no module)", "optimizer"): 4,
    }  # fmt: skip


def test_rows_sum_to_the_step_in_every_table(trained):
    found, counted = trained
    for table in (found.table(), found.by_op(), found.by_module(), found.by_module(0), found.by_phase()):
        assert sum(row["seconds"] for row in table) == pytest.approx(found.seconds)
        assert sum(row["share"] for row in table) == pytest.approx(1)
        assert sum(row["flops"] for row in table) == counted.flops
        assert sum(row["bytes"] for row in table) == counted.bytes


def test_idle_is_what_no_operator_took_of_a_mean_step(trained):
    found, _ = trained
    assert len(found.joined.steps) > 1
    nothing_ran = [row["seconds"] for row in found.rows if row["operator"] in ("(Python)", "(data loader)")]
    assert found.idle == pytest.approx(sum(nothing_ran)) and 0 < found.idle < found.seconds


def test_joined_rows_have_the_flops_of_the_count(trained):
    found, counted = trained
    ours = {(row["operator"], row["phase"]): row["flops"] for row in found.by_op() if row["flops"]}
    assert ours == {(row["operator"], row["phase"]): row["flops"] for row in counted.by_op() if row["flops"]}
    assert {row["phase"] for row in found.by_phase()} - set(NOT_PROGRAM) == {"forward", "backward", "optimizer"}
    assert {row["module"] for row in found.by_module()} - set(NOT_PROGRAM) == {"0", "1", "2", "3", "(no module)"}
    assert found.coverage > 0.5


def test_it_shows_itself(trained):
    found, _ = trained
    assert "a step under the profiler" in repr(found) and "without it (fk.measure)" in repr(found)
    assert "no roof is known" in repr(found)
    assert "<table" in found._repr_html_()
    assert list(found.to_frame()["operator"]) == [row["operator"] for row in found.table()]
    assert found.seconds_ci[0] < found.seconds < found.seconds_ci[1]
    assert found.overhead == pytest.approx(found.seconds / found.plain.seconds - 1)


def test_the_picture_has_a_dot_for_each_operator_with_flops(trained):
    found, _ = trained
    with pytest.raises(ValueError, match=r"no roof is known: pass a device, profile.on\('h100-sxm'\)"):
        found.plot()
    figure = found.on(fk.Device("mine", peak={"fp32": 1e12}, bandwidth=1e11)).plot()
    assert {row["operator"] for row in figure.rows()} == {"addmm, forward", "mm, backward"}
    assert figure.spec()["layer"]


def test_attention_and_its_backward_pass_are_one_row_each():
    q = torch.randn(2, 2, 32, 16, requires_grad=True)
    found = profile(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward(), time_budget=0.1)
    rows = {row["phase"]: row for row in found.by_op() if row["operator"] == "scaled_dot_product_attention"}
    assert set(rows) == {"forward", "backward"}
    assert all(row["seconds"] > 0 and row["launches"] >= 1 for row in rows.values())
    assert sum(row["flops"] for row in rows.values()) == found.report.flops > 0


def test_what_is_recomputed_is_a_phase():
    layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh())
    x = torch.randn(32, 64, requires_grad=True)
    found = profile(lambda: checkpoint(layer, x, use_reentrant=False).sum().backward(), time_budget=0.1)
    phases = {row["phase"]: row for row in found.by_phase()}
    assert phases["recompute"]["flops"] == phases["forward"]["flops"] == 2 * 32 * 64 * 64
    assert phases["recompute"]["seconds"] > 0


X, LARGE = torch.ones(4, 4), torch.ones(512, 512)


def late():
    yield X @ X


async def later():
    return X @ X


def in_threads():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.mm, LARGE, LARGE).result()
    return LARGE.relu()


def raising():
    X @ X
    if torch.autograd.profiler._is_profiler_enabled:
        raise KeyError("in the middle")


def profiled():
    with torch.profiler.profile():
        X @ X


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: profile(3), TypeError, "fn=3: must be a function or a module"),
        (lambda: profile(sorted, [], time_budget=0.01), ValueError, "fn=sorted: no operator of torch ran in it"),
        (lambda: profile(late), TypeError, r"fn=late: a call of it runs nothing yet; pass lambda: list\(late\(…\)\)"),
        (lambda: profile(later), TypeError, r"fn=later: a call of it .* pass lambda: asyncio.run\(later\(…\)\)"),
        (lambda: profile(raising, time_budget=0.01), KeyError, "in the middle"),
        (lambda: profile(print, time_budget=0), ValueError, "time_budget=0"),
        (lambda: profile(print, time_budget="long"), TypeError, "time_budget='long'"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_two_profilers_are_one_too_many():
    """The second would end the first, or the process."""
    with torch.profiler.profile() as outer:
        with pytest.raises(ValueError, match="profiler is running, and only one can: call fk.profile outside"):
            profile(torch.mm, X, X, time_budget=0.01)
        X.sin()
    assert "aten::sin" in {each.key for each in outer.key_averages()}
    with pytest.raises(ValueError, match="fn=profiled: it runs torch's profiler"):
        profile(profiled, time_budget=0.01)


def test_a_profile_after_one_that_ended_in_an_exception():
    with pytest.raises(KeyError):
        profile(raising, time_budget=0.01)
    assert profile(torch.mm, X, X, time_budget=0.01).report.flops == 128


def test_steps_that_differ_are_told(tmp_path):
    """Of two steps one has the product: its row has half of its time and all of its FLOPs."""
    trace = Kineto(card="").step(0, 0, 20).op("aten::mm", 0, 10).op("aten::relu", 10, 15)
    trace.step(1, 20, 30).op("aten::relu", 22, 28)
    report = fk.profiling.in_order(lambda: torch.relu(X @ X))
    (note,) = fk.profiling.Profile.from_trace(trace.write(tmp_path), report).notes
    assert note == "the steps differ: 1 operator of the counted one ran in some of them only; their rates are too high"


@pytest.mark.skipif(tracing._all_threads() is None, reason="this torch's profiler sees one thread")
def test_what_runs_in_threads_is_seen():
    found = profile(in_threads, time_budget=0.1)
    product = next(row for row in found.rows if row["operator"] == "mm")
    assert product["flops"] == found.report.flops == 2 * 512**3 and product["launches"] == 1
    assert product["share"] > 0.2 and not found.notes
    # a busy machine may keep the thread waiting, but what the product takes is never called idle
    waits = sum(row["seconds"] for row in found.advice() if row["advice"] == "work outside of torch")
    assert waits + 0.9 * product["seconds"] < found.seconds


def test_threads_that_the_profiler_does_not_see_are_told(monkeypatch):
    monkeypatch.setattr(tracing, "_all_threads", lambda: None)
    assert any(
        "268.4 MFLOPs of the count have no seconds" in note for note in profile(in_threads, time_budget=0.01).notes
    )

    def nothing_else():
        with ThreadPoolExecutor(1) as pool:
            pool.submit(torch.mm, X, X).result()

    with pytest.raises(
        ValueError, match="fn=nothing_else: the profiler saw none of its operators: they run in threads"
    ):
        profile(nothing_else, time_budget=0.01)


def test_where_a_checkpoint_stops_is_recomputation():
    """The GELU is not computed again: its operator ends with an exception, which takes longer than it would."""
    layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU())
    x = torch.randn(32, 64, requires_grad=True)
    found = profile(lambda: checkpoint(layer, x, use_reentrant=False).sum().backward(), time_budget=0.1)
    (stopped,) = (row for row in found.rows if row["operator"] == "gelu" and row["phase"] == "recompute")
    assert stopped["seconds"] > 0 and stopped["bytes"] == 0
    assert "aten::gelu" not in {row["name"] for row in found.not_joined()}
    (less,) = (row for row in found.advice() if row["advice"] == "checkpoint less")
    assert ("gelu", "(no module)", "recompute") in less["keys"]


def test_a_comparison_has_the_times_without_the_profiler(trained):
    found, _ = trained
    step, plain = found.compare(found, in_turns=False).rows[:2]
    assert (step["operator"], plain["operator"]) == ("(the step)", "(without the profiler)")
    assert plain["before"] == plain["after"] == pytest.approx(found.plain.seconds) and plain["saved"] == 0
    assert plain["high"] > 2**0.5 * (found.plain.seconds_ci[1] - found.plain.seconds), "that of one mean, at 95 %"


def test_no_depth(trained):
    with pytest.raises(ValueError, match=r"depth=-1: must be 0 \(the model alone\)"):
        trained[0].by_module(-1)


def test_a_trace_that_torch_wrote_step_by_step(tmp_path):
    """Three steps by torch's own schedule, of which the last two are kept."""
    layer, x = torch.nn.Linear(64, 64), torch.randn(32, 64)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    path = str(tmp_path / "trace.json")
    with torch.profiler.profile(schedule=schedule, on_trace_ready=lambda prof: prof.export_chrome_trace(path)) as prof:
        for _ in range(3):
            layer(x)
            prof.step()
    found = fk.profiling.Profile.from_trace(path, fk.profiling.in_order(layer, x))
    assert len(found.joined.steps) == 2
    assert {row["operator"]: row["launches"] for row in found.by_op() if row["phase"]} == {"t": 1, "addmm": 1}
    assert sum(row["seconds"] for row in found.rows) == pytest.approx(found.seconds)


def test_the_profiler_says_nothing_of_its_own(capfd):
    profile(torch.nn.Linear(8, 8), torch.ones(2, 8), time_budget=0.02)
    assert "profiler_st" not in capfd.readouterr().err


def test_what_else_is_written_there_comes_through(capfd):
    """Such as why CUPTI could not begin."""
    with tracing._unheard():
        os.write(2, b"USDT: profiler_start\nCUPTI initialization failed\n")
    assert capfd.readouterr().err == "CUPTI initialization failed\n"
