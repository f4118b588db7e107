"""Traces and counts, joined: whose each microsecond is, on traces written by hand."""

import gzip
import json
import pickle

import pytest
import torch
from kineto import Kineto

import flopkit as fk
from flopkit.profiling import Profile, in_order
from flopkit.profiling.matching import align


def program():
    x, w = torch.ones(4, 8), torch.ones(8, 16)
    return in_order(lambda: torch.relu(x @ w).softmax(-1))


def micros(found, table=None):
    return {row["operator"]: round(1e6 * row["seconds"], 6) for row in (found.by_op() if table is None else table)}


def test_a_cpu_row_has_the_own_time_of_what_the_counter_saw_and_of_what_is_around_it(tmp_path):
    trace = Kineto(card="").step(0, 0, 100)
    trace.op("aten::matmul", 10, 40).op("aten::mm", 15, 38).op("aten::resolve_conj", 20, 22)
    trace.op("aten::relu", 40, 50).op("aten::clamp_min", 41, 49)
    trace.op("aten::softmax", 60, 80).op("aten::_softmax", 62, 79)
    trace.op("mine::other", 90, 95)
    found = Profile.from_trace(trace.write(tmp_path), program())
    assert micros(found) == {"mm": 30, "relu": 10, "_softmax": 20, "(not joined)": 5, "(Python)": 35}
    assert [row["name"] for row in found.not_joined()] == ["mine::other"]
    assert {row["operator"]: row["launches"] for row in found.by_op() if row["phase"]} == {
        "mm": 1,
        "relu": 1,
        "_softmax": 1,
    }
    assert found.coverage == pytest.approx(60 / 65)


def test_operators_of_two_threads_share_the_time_in_which_both_run(tmp_path):
    trace = Kineto(card="").step(0, 0, 40).op("aten::mm", 0, 20).op("aten::relu", 10, 40, tid=2)
    found = Profile.from_trace(trace.write(tmp_path), program())
    assert micros(found) == {"mm": 10 + 5, "relu": 5 + 20, "(not joined)": 0}
    assert any("operators of several threads ran at once" in note for note in found.notes)
    in_turns = Kineto(card="").step(0, 0, 40).op("aten::mm", 0, 20).op("aten::relu", 20, 40, tid=2)
    assert not Profile.from_trace(in_turns.write(tmp_path), program()).notes


def test_a_name_inside_of_another_operator_is_not_the_counters_call(tmp_path):
    """The multiplication inside of the softmax is the softmax's."""
    x = torch.ones(4, 8)
    report = in_order(lambda: x.softmax(-1).mul(2.0))
    trace = Kineto(card="").step(0, 0, 30).op("aten::_softmax", 0, 10).op("aten::mul", 2, 9).op("aten::mul", 10, 13)
    found = Profile.from_trace(trace.write(tmp_path), report)
    assert micros(found) == {"_softmax": 10, "mul": 3, "(Python)": 17}


def test_kernels_that_overlap_share_and_what_is_left_is_idle(tmp_path):
    trace = Kineto().step(0, 0, 60)
    trace.launched("aten::mm", 0, 5, 25).launched("aten::relu", 5, 25, 30).launched(
        "aten::_softmax", 10, 27, 40, stream=20
    )
    found = Profile.from_trace(trace.write(tmp_path), program())
    shown = micros(found)
    assert (shown["mm"], shown["relu"], shown["_softmax"]) == (20, 2 + 3 / 2, 3 / 2 + 10)
    assert 1e6 * found.idle == pytest.approx(5 + 20)
    assert sum(row["seconds"] for row in found.rows) == pytest.approx(found.seconds) == pytest.approx(60e-6)
    assert sum(row["flops"] for row in found.rows) == found.report.flops == 2 * 4 * 8 * 16


def test_a_graphs_kernels_are_a_row_of_their_own_and_so_is_the_work_that_nobody_saw(tmp_path):
    trace = Kineto().step(0, 0, 50).launched("aten::relu", 0, 5, 10)
    trace.runtime("cudaGraphLaunch", 12, 14, 99).kernel("gemm", 15, 35, 99).kernel("epilogue", 35, 40, 99)
    found = Profile.from_trace(trace.write(tmp_path), program())
    rows = {row["operator"]: row for row in found.by_op()}
    assert rows["(not joined)"]["seconds"] == pytest.approx(25e-6)
    assert rows["(not joined)"]["flops"] == found.report.flops, "the product ran in the graph"
    assert {row["name"]: row["number"] for row in found.not_joined()} == {"gemm": 1, "epilogue": 1}


def test_communication_has_only_the_time_in_which_nothing_else_runs(tmp_path):
    x, w = torch.ones(4, 8), torch.ones(8, 16)

    def step():
        torch.distributed.all_reduce(x)
        return x @ w

    with fk.simulate_ranks(8):
        report = in_order(step)
    name = next(entry.func._schema.name for entry, *_ in report.order if "allreduce" in entry.op)
    trace = Kineto().step(0, 0, 40)
    trace.launched(name, 0, 5, 25, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)", stream=30).launched(
        "aten::mm", 6, 10, 20
    )
    found = Profile.from_trace(trace.write(tmp_path), report)
    (row,) = found.communication()
    assert [round(1e6 * row[name]) for name in ("seconds", "exposed", "hidden")] == [20, 10, 10]
    assert micros(found)["mm"] == 10
    assert next(row for row in found.rows if row["communication"])["bound"] == "communication"
    assert sum(row["seconds"] for row in found.rows) == pytest.approx(40e-6)


def two_sums():
    """Two all-reduces and a product, and what the trace calls the first."""
    x, w = torch.ones(4, 8), torch.ones(8, 16)

    def step():
        torch.distributed.all_reduce(x)
        torch.distributed.all_reduce(w)
        return x @ w

    with fk.simulate_ranks(2):
        report = in_order(step)
    return report, next(entry.func._schema.name for entry, *_ in report.order if "allreduce" in entry.op)


def test_gloo_communicates_on_threads_of_its_own(tmp_path):
    """Two sums run at once from 6 to 10, the product from 10 to 20, and the second sum alone until 30."""
    report, name = two_sums()
    trace = Kineto(card="").step(0, 0, 40).op(name, 0, 2).op(name, 2, 4).op("aten::mm", 10, 20)
    trace.add("user_annotation", "gloo:all_reduce", 1, 10, tid=8).add(
        "user_annotation", "gloo:all_reduce", 6, 30, tid=9
    )
    found = Profile.from_trace(trace.write(tmp_path), report)
    (row,) = found.communication()
    assert [round(1e6 * row[name], 6) for name in ("seconds", "exposed", "hidden")] == [30, 20, 10]
    assert micros(found) == {row["operator"]: 20, "mm": 10, "(Python)": 10}
    assert "communication 30 µs, of which 10 µs hidden" in found.summary()
    told = json.loads(found.to_chrome_trace(tmp_path / "told.json").read_text())["traceEvents"]
    assert [each["args"]["flopkit"]["operator"] for each in told if each["name"] == "gloo:all_reduce"] == [
        row["operator"]
    ] * 2
    assert next(row for row in found.rows if row["communication"])["bound"] == "communication"


def test_what_a_collective_calls_on_its_thread_is_its_own(tmp_path):
    """Its copies are not the program's, which has one, too, and hide nothing of it."""
    x = torch.ones(4, 8)

    def step():
        torch.distributed.all_reduce(x)
        x.clone().copy_(x)

    with fk.simulate_ranks(2):
        report = in_order(step)
    trace = Kineto(card="").step(0, 0, 40).op("c10d::allreduce_", 0, 2)
    trace.add("user_annotation", "gloo:all_reduce", 4, 20, tid=8).op("aten::clone", 5, 8, tid=8)
    trace.op("aten::copy_", 10, 12, tid=8).op("aten::clone", 25, 28).op("aten::copy_", 30, 40)
    found = Profile.from_trace(trace.write(tmp_path), report)
    assert micros(found) == {"c10d.allreduce_": 18, "clone": 3, "copy_": 10, "(Python)": 9}
    assert [row["hidden"] for row in found.communication()] == [0]


@pytest.mark.parametrize("ran", [[(1, 9)], [(1, 9), (1.5, 3)], [(1, 9), (5, 9), (9, 12)]])
def test_a_collective_of_gloo_that_nobody_asked_for_is_not_joined(tmp_path, ran):
    """Of two sums, asked for at 0 and at 2, one has no event, or one begins too early, or there is a third."""
    report, name = two_sums()
    trace = Kineto(card="").step(0, 0, 40).op(name, 0, 1).op(name, 2, 3).op("aten::mm", 20, 30)
    for tid, (start, end) in enumerate(ran, 8):
        trace.add("user_annotation", "gloo:all_reduce", start, end, tid=tid)
    found = Profile.from_trace(trace.write(tmp_path), report)
    last = max(end for _, end in ran)
    assert {row["name"]: row["number"] for row in found.not_joined()} == {"gloo:all_reduce": len(ran)}
    assert round(1e6 * sum(row["exposed"] for row in found.communication()), 6) == last
    assert sum(row["hidden"] for row in found.communication()) == 0


def test_why_the_device_waited(tmp_path):
    """The launch came late; the host had waited for a number; the batch was not there; the profile's own wait."""
    report = in_order(lambda: [torch.ones(4, 4) @ torch.ones(4, 4) for _ in range(5)])
    trace = Kineto().step(0, 0, 200)
    trace.launched("aten::mm", 5, 10, 20).launched("aten::mm", 35, 40, 50)
    trace.op("aten::item", 42, 56).op("aten::_local_scalar_dense", 43, 55).runtime("cudaStreamSynchronize", 44, 54, 500)
    trace.launched("aten::mm", 64, 70, 80)
    trace.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 78, 105)
    trace.launched("aten::mm", 106, 110, 120).launched("aten::mm", 110, 130, 140)
    trace.runtime("cudaDeviceSynchronize", 142, 199, 501)
    found = Profile.from_trace(trace.write(tmp_path), report)
    reasons = {row["reason"]: round(1e6 * row["seconds"]) for row in found.gaps()}
    assert reasons == {
        "start of step": 10, "host-bound": 20, "synchronised": 20, "data loader": 30, "waiting": 10, "end of step": 60
    }  # fmt: skip
    assert (
        next(row for row in found.gaps() if row["reason"] == "synchronised")["during"]
        == "cudaStreamSynchronize in aten::item"
    )
    assert micros(found)["(host-bound)"] == 20


def test_kernels_belong_to_the_step_that_launched_them_where_nothing_waits(tmp_path):
    """The second step's mm is launched in it and ends after it: the last step then ends with its last kernel."""
    report = in_order(lambda: torch.ones(4, 4) @ torch.ones(4, 4))
    trace = Kineto().step(0, 0, 10).step(1, 10, 20)
    trace.launched("aten::mm", 1, 5, 10).launched("aten::mm", 11, 15, 40)
    found = Profile.from_trace(trace.write(tmp_path), report)
    assert micros(found)["mm"] == (5 + 25) / 2
    assert 1e6 * found.seconds == pytest.approx((10 + 30) / 2)
    assert {row["reason"] for row in found.gaps()} == {"host-bound"}


def test_a_launch_bound_row_waited_longer_than_it_ran(tmp_path):
    report = in_order(lambda: torch.relu(torch.ones(4, 4) @ torch.ones(4, 4)))
    trace = Kineto().step(0, 0, 60).launched("aten::mm", 0, 5, 25).launched("aten::relu", 40, 45, 55)
    rows = {row["operator"]: row for row in Profile.from_trace(trace.write(tmp_path), report).rows}
    assert (rows["relu"]["bound"], rows["mm"]["bound"]) == ("launch", "memory")


def test_shares_of_the_roof_by_hand(tmp_path):
    """64 products of 2 FLOPs each at 1 GFLOP/s take 128 ns by arithmetic, and their bytes at 1 GB/s longer."""
    report = in_order(lambda: torch.ones(4, 4) @ torch.ones(4, 4))
    trace = Kineto(card="").step(0, 0, 2).op("aten::mm", 0, 1)
    slow = fk.Device("slow", peak={"fp32": 1e9}, bandwidth=1e12)
    by_arithmetic = next(row for row in Profile.from_trace(trace.write(tmp_path), report, slow).rows if row["flops"])
    assert by_arithmetic["of_roof"] == pytest.approx(0.128)
    narrow = fk.Device("narrow", peak={"fp32": 1e12}, bandwidth=1e9)
    by_memory = next(row for row in Profile.from_trace(trace.write(tmp_path), report).on(narrow).rows if row["flops"])
    assert by_memory["of_roof"] == pytest.approx(3 * 64 * 1e-3)
    assert by_memory["flops_per_s"] == pytest.approx(128e6)


def test_sequences_meet_again_where_they_parted():
    assert align("abcde", "abcde") == [(i, i) for i in range(5)]
    assert align("abXcde", "abcde") == [(0, 0), (1, 1), (3, 2), (4, 3), (5, 4)]
    assert align("abcde", "aYYbcde") == [(0, 0), (1, 3), (2, 4), (3, 5), (4, 6)]
    assert align("xabc", "y") == []


def test_the_trace_again_with_our_columns(tmp_path):
    trace = Kineto().step(0, 0, 60).launched("aten::mm", 0, 5, 25)
    found = Profile.from_trace(trace.write(tmp_path), program())
    written = json.loads(gzip.decompress(found.to_chrome_trace(tmp_path / "again.json.gz").read_bytes()))
    by_name = {each["name"]: each["args"].get("flopkit") for each in written["traceEvents"]}
    assert by_name["kernel of aten::mm"]["operator"] == by_name["aten::mm"]["operator"] == "mm"
    assert by_name["kernel of aten::mm"]["flops"] == 2 * 4 * 8 * 16
    assert by_name["ProfilerStep#0"] is None
    again = Profile.from_trace(tmp_path / "again.json.gz", program())
    assert micros(again) == micros(found)


def entry(**numbers):
    fields = "".join(f', "{name}": {value}' for name, value in numbers.items())
    return f'{{"traceEvents": [{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 1{fields}}}]}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no whole trace"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "na', "no whole trace"),
        ("[]", "without a list of traceEvents"),
        ('{"traceEvents": []}', "a trace without operators"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm"}]}', "an event without a name, a start"),
        (entry(ts=1), "an event without a name, a start or a duration"),
        (entry(ts="NaN", dur=2), "an event without a name, a start or a duration"),
        (entry(ts=1, dur="Infinity"), "aten::mm of inf µs"),
        (entry(ts=1, dur=-2), "aten::mm of -2 µs"),
        (entry(ts=1, dur=0), "a step takes no time"),
        ("[" * 100_000, "no whole trace"),
    ],
)
def test_no_trace_is_refused_with_the_way_out(tmp_path, text, message):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as refused:
        Profile.from_trace(path, program())
    assert str(refused.value).startswith(f"path={str(path)!r}") and "export_chrome_trace" in str(refused.value)


def test_steps_of_several_ranks_in_one_file_are_refused(tmp_path):
    """Their rows would sum to less than their steps."""
    trace = Kineto(card="").step(0, 0, 20).step(1, 10, 30).op("aten::mm", 5, 12).op("aten::mm", 15, 25)
    with pytest.raises(ValueError, match="its steps overlap, as those of several ranks in one file do"):
        Profile.from_trace(trace.write(tmp_path), program())


def test_what_is_not_joined_is_counted_by_events_of_a_step(tmp_path):
    """In two steps an operator with another one inside of it: two pieces each time."""
    trace = Kineto(card="")
    for number in range(2):
        start = 100 * number
        trace.step(number, start, start + 50).op("mine::outer", start, start + 20).op(
            "mine::inner", start + 5, start + 9
        )
    found = Profile.from_trace(trace.write(tmp_path), program())
    shown = {row["name"]: (row["number"], round(1e6 * row["seconds"])) for row in found.not_joined()}
    assert shown == {"mine::outer": (1, 16), "mine::inner": (1, 4)}


def test_a_count_that_the_trace_does_not_show_is_told(tmp_path):
    found = Profile.from_trace(Kineto(card="").step(0, 0, 20).op("aten::relu", 0, 9).write(tmp_path), program())
    assert any("1.024 kFLOPs of the count have no seconds" in note for note in found.notes)


def test_a_packed_trace_that_was_cut_off(tmp_path):
    whole = Kineto().step(0, 0, 9).launched("aten::mm", 0, 5, 8).write(tmp_path)
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(whole.read_bytes())[:-20])
    with pytest.raises(ValueError, match="no whole trace"):
        Profile.from_trace(cut, program())


def test_a_report_without_its_order_is_refused(tmp_path):
    path = Kineto().step(0, 0, 9).launched("aten::mm", 0, 5, 8).write(tmp_path)
    with pytest.raises(
        ValueError, match=r"no order of calls to join by; count with flopkit.profiling.in_order\(step\)"
    ):
        Profile.from_trace(path, fk.count(torch.nn.ReLU(), torch.ones(3)))
    with pytest.raises(ValueError, match="no order of calls"):  # operators do not go to another process
        Profile.from_trace(path, pickle.loads(pickle.dumps(program())))


def before_and_after(folder, ends, operator="mm"):
    x = torch.ones(4, 4)
    report = in_order(lambda: getattr(torch, operator)(x, x))
    trace = Kineto(card="")
    for number, end in enumerate(ends):
        trace.step(number, 1000 * number, 1000 * number + 100).op(
            f"aten::{operator}", 1000 * number, 1000 * number + end
        )
    return Profile.from_trace(trace.write(folder), report)


def test_what_came_of_a_change_has_an_interval(tmp_path):
    """Means of 30 and 20 µs with a spread of 0.3. Three rows share 0.5 %: P(|t| > 24.463) is 0.5/3 % for 2 degrees of freedom,
    for which P(|t| < x) = x/√(2 + x²). So each interval is 0.3 · 24.463/√3 = 4.237 µs, and both together 5.992.
    """
    before = before_and_after(tmp_path, [29.7, 30, 30.3])
    table = before.compare(before_and_after(tmp_path, [19.7, 20, 20.3]))
    rows = {row["operator"]: row for row in table}
    assert 1e6 * rows["mm"]["saved"] == pytest.approx(10)
    assert 1e6 * rows["mm"]["low"] == pytest.approx(10 - 5.992, abs=2e-3)
    assert (rows["mm"]["verdict"], rows["(Python)"]["verdict"]) == ("faster, measured apart", "slower, measured apart")
    assert rows["(the step)"]["saved"] == 0
    assert "(without the profiler)" not in rows and "measured apart (before: only its trace is here)" in table.caption
    again = {row["operator"]: row["verdict"] for row in before.compare(before_and_after(tmp_path, [28, 30, 33]))}
    assert (again["mm"], again["(the step)"]) == ("cannot be told", "no difference seen")


def test_an_operator_that_took_another_ones_place_is_neither_faster_nor_slower(tmp_path):
    before = before_and_after(tmp_path, [29.7, 30, 30.3])
    table = before.compare(before_and_after(tmp_path, [9.7, 10, 10.3], "mul"))
    rows = {row["operator"]: row for row in table}
    assert (rows["mm"]["verdict"], rows["mul"]["verdict"]) == ("only before", "only after")
    assert 1e6 * rows["mul"]["saved"] == pytest.approx(-10)


def test_what_cannot_be_compared(tmp_path):
    cpu = before_and_after(tmp_path, [10, 11])
    with pytest.raises(TypeError, match="after=3: must be a Profile"):
        cpu.compare(3)
    gpu = Profile.from_trace(Kineto().step(0, 0, 9).launched("aten::mm", 0, 5, 8).write(tmp_path), program())
    with pytest.raises(ValueError, match="before on a CPU: pass two profiles of one device"):
        cpu.compare(gpu)
    with pytest.raises(ValueError, match="a profile of 1 step has no interval"):
        gpu.compare(gpu)


def test_what_calls_several_operators_belongs_to_the_longest(tmp_path):
    """The linear layer's own 3 µs are the product's; the view keeps its 2."""
    report = in_order(torch.nn.Linear(4, 4), torch.ones(2, 4))
    trace = Kineto(card="").step(0, 0, 10).op("aten::linear", 0, 10).op("aten::t", 1, 3).op("aten::addmm", 4, 9)
    assert micros(Profile.from_trace(trace.write(tmp_path), report)) == {"t": 2, "addmm": 8}


class Counted(list):
    """A list that counts how often it is gone through."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()


def test_a_trace_is_not_read_again_for_each_gap(tmp_path):
    """A step of a thousand calls has as many gaps: going through all events for each took minutes."""
    trace = Kineto(card="").step(0, 0, 1000)
    for at in range(200):
        trace.op("aten::relu", 5 * at, 5 * at + 2)
    read = fk.profiling.events.read_trace(trace.write(tmp_path))
    read.events = Counted(read.events)
    x = torch.ones(4)
    joined = fk.profiling.joining.join(read, in_order(lambda: [torch.relu(x) for _ in range(200)]))
    assert len(joined.gaps) == 200 and read.events.times < 20
