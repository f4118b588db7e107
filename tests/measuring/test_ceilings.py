"""Ceilings: which shapes are tried and which one wins, what is kept of them, and the device that they make."""

import dataclasses
import json
import math
import os
from types import SimpleNamespace

import pytest
import torch

import flopkit as fk
from flopkit import machine
from flopkit.measuring import ceilings as module, judging, workloads

CPU = torch.device("cpu")
CUDA = SimpleNamespace(type="cuda", __str__=lambda self: "cuda")


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    """A folder of the test's own, and arrays that are quickly made."""
    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(tmp_path / "kept"))
    monkeypatch.setattr(workloads, "ARRAY", {"cpu": (2**16, 2**18), "cuda": (2**16, 2**18)})
    return tmp_path / "kept"


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(workloads, "shapes", lambda where, dtype: [(16, 16, 16), (32, 32, 32), (16, 16, 64)])


def some(**changes):
    held = {"low": 0.9, "high": 1.1, "steady": True, "verdict": "ok"}
    return {
        "title": machine.title("cpu"), "kind": "cpu", "threads": torch.get_num_threads(), "memory": 1e9, "launch_s": 1e-6,
        "matmul": {"fp32": {"flops_per_s": 4e9, "shape": [8, 8, 8], **held}, "bf16": {"flops_per_s": 8e9, "shape": [8, 8, 8], **held}},
        "traffic": {"copy": {"bytes_per_s": 1e9, **held}, "read": {"bytes_per_s": 2e9, **held}},
        "when": "2026-01-02T03:04:05+00:00", "torch": "2", "flopkit": "0", "notes": (), **changes,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- what is measured


def test_from_the_search_to_the_kept_file(small, mine):
    found = fk.ceilings("cpu", dtypes=["fp32", torch.bfloat16], time_budget=0.6)
    assert list(found.matmul) == ["fp32", "bf16"] and list(found.traffic) == ["copy", "triad", "read"]
    assert all(each["verdict"] == "ok" for each in (*found.matmul.values(), *found.traffic.values()))
    assert all(each["low"] <= each["flops_per_s"] <= each["high"] for each in found.matmul.values())
    assert 0 < found.launch_s < 1 and (found.kind, found.threads) == ("cpu", torch.get_num_threads())
    assert machine.read_ceilings("cpu") == json.loads(json.dumps(found.record())) == found.record()
    [path] = [path for path in mine.rglob("*") if path.is_file()]
    assert path.parent == mine / "ceilings"  # not among the recordings, which are read by another form
    device = found.device()
    assert device.peak("bf16") == found.matmul["bf16"]["flops_per_s"]
    assert device.bandwidth == max(each["bytes_per_s"] for each in found.traffic.values())
    assert len(found.table()) == 2 + 3 + 1 and "matmul bf16" in repr(found) and "triad" in found._repr_html_()


def test_it_is_kept_only_if_wanted(small, mine):
    fk.ceilings("cpu", dtypes=["fp32"], time_budget=0.3, keep=False)
    assert not mine.exists()


class Clock:
    """Calls of the shape that was made last take what `rates` says of it."""

    rates = {16**3: 1e9, 32**3: 4e9, 16 * 16 * 64: 2e9}

    def __init__(self):
        self.made, self.timed = [], []

    def product(self, where, dtype, shape):
        self.made.append(shape)
        return workloads.Workload(lambda: None, ())

    def calls(self, count):
        m, n, k = self.made[-1]
        self.timed.append(self.made[-1])
        return [2 * m * n * k / self.rates[m * n * k]] * count


@pytest.fixture
def clock(small, monkeypatch):
    made = Clock()
    monkeypatch.setattr(workloads, "product", made.product)
    monkeypatch.setattr(module, "timer_for", lambda *given: (made, "simulated"))
    return made


def test_the_fastest_shape_is_chosen(clock):
    assert module._fastest(CPU, "fp32", 1.0) == (32, 32, 32) and len(clock.timed) == 3


def test_what_would_not_end_in_time_is_not_tried(clock, monkeypatch):
    monkeypatch.setattr(workloads, "shapes", lambda where, dtype: [(16, 16, 16), (2048, 2048, 2048)])
    assert module._fastest(CPU, "fp32", 1.0) == (16, 16, 16) and clock.timed == [(16, 16, 16)]


def test_the_winner_is_measured_afresh(small, monkeypatch):
    """What the search saw is not what is reported: of many short timings the fastest is too fast."""
    drawn, timed = [], []
    product, measured = workloads.product, module.measure
    monkeypatch.setattr(workloads, "product", lambda *given: drawn.append(product(*given)) or drawn[-1])
    monkeypatch.setattr(module, "measure", lambda fn, *args, **k: timed.append(args) or measured(fn, *args, **k))
    found = fk.ceilings("cpu", dtypes=["fp32"], time_budget=0.3, keep=False)
    assert 2 <= len(drawn) <= 4 and timed[0] == drawn[-1].args
    m, k = timed[0][0].shape
    assert found.matmul["fp32"]["shape"] == [m, timed[0][1].shape[1], k]


@pytest.mark.parametrize("slow", [0, 1])
def test_a_machine_that_is_slow_for_a_while_does_not_lower_a_ceiling(small, monkeypatch, slow):
    """Two windows, all other measurements in between: the slow one is not kept, whichever it is."""
    measured, seen = module.measure, []

    def drifting(fn, *args, **k):
        found, window = measured(fn, *args, **k), len(seen) // 4  # one product and three kinds of traffic
        rounds = tuple(100.0 + window if window == slow else 50.0 for _ in found.round_means)
        seen.append(window)
        return dataclasses.replace(found, seconds=rounds[0], seconds_ci=(rounds[0], rounds[0]), fastest=rounds[0])

    monkeypatch.setattr(module, "measure", drifting)
    monkeypatch.setattr(module, "TWICE", 0.2)
    found = fk.ceilings("cpu", dtypes=["fp32"], time_budget=0.3, keep=False)
    assert len(seen) == 8
    m, n, k = found.matmul["fp32"]["shape"]
    assert found.matmul["fp32"]["flops_per_s"] == 2 * m * n * k / 50
    copied, triad = (found.traffic[name]["bytes_per_s"] for name in ("copy", "triad"))
    assert triad == 1.5 * copied > 0


def test_a_short_budget_is_for_one_window(small, monkeypatch):
    measured, seen = module.measure, []
    monkeypatch.setattr(module, "measure", lambda *args, **k: seen.append(k["time_budget"]) or measured(*args, **k))
    fk.ceilings("cpu", dtypes=["fp32"], time_budget=0.3, keep=False)
    assert seen == [pytest.approx(0.3 / 5)] * 4  # and a search


def test_a_refused_product_does_not_hide_a_right_one():
    kept = {}
    for rate, verdict in ((3.0, "ok"), (9.0, "wrong"), (4.0, "ok"), (2.0, "ok")):
        module._keep(kept, "fp32", {"rate": rate, "verdict": verdict}, "rate")
    assert kept == {"fp32": {"rate": 4.0, "verdict": "ok"}}


def test_a_format_that_torch_does_not_multiply_is_noted(small, monkeypatch):
    def product(where, dtype, shape):
        if dtype == "bf16":
            raise RuntimeError("not implemented for 'BFloat16'\nsecond line")
        return kept(where, dtype, shape)

    kept = workloads.product
    monkeypatch.setattr(workloads, "product", product)
    found = fk.ceilings("cpu", dtypes=["bf16", "fp32"], time_budget=0.4, keep=False)
    assert list(found.matmul) == ["fp32"] and "bf16 was not measured: not implemented for 'BFloat16'" in found.notes


def test_a_wrong_product_is_kept_and_is_no_peak(small, monkeypatch):
    def product(where, dtype, shape):
        load = kept(where, dtype, shape)
        return (
            load
            if dtype == "fp32"
            else workloads.Workload(lambda a, b: (a @ b).zero_(), load.args, torch.mm, load.flops)
        )

    kept = workloads.product
    monkeypatch.setattr(workloads, "product", product)
    found = fk.ceilings("cpu", dtypes=["bf16", "fp32"], time_budget=0.4)
    assert found.matmul["bf16"]["verdict"] == "wrong" and any(
        note.startswith("bf16: the result") for note in found.notes
    )
    assert found.device().dtypes == ("fp32",) and set(machine.read_ceilings("cpu")["matmul"]) == {"bf16", "fp32"}


def test_torch_is_left_with_the_switch_that_it_had():
    for before in (True, False):
        torch.backends.cuda.matmul.allow_tf32 = before
        for allowed in (True, False):
            with workloads.tf32_allowed(allowed):
                assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is allowed
            assert torch.backends.cuda.matmul.allow_tf32 is before
    torch.backends.cuda.matmul.allow_tf32 = False


def precisions():
    """What torch rounds numbers of fp32 to, as it reads by each of its names."""
    backends = torch.backends
    of_cudnn = (backends.cudnn, backends.cudnn.conv, backends.cudnn.rnn)
    switches = (backends, backends.cuda.matmul, *of_cudnn, backends.mkldnn.matmul)
    return [switch.fp32_precision for switch in switches]


@pytest.fixture
def as_torch_begins():
    """Each test sets what it wants; afterwards torch has its defaults again."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.fp32_precision = "none"
    for switch, precision in (
        (torch.backends.cuda.matmul, "none"), (torch.backends.mkldnn.matmul, "none"),
        (torch.backends.cudnn.conv, "tf32"), (torch.backends.cudnn.rnn, "tf32"),
    ):  # fmt: skip
        switch.fp32_precision = precision


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="torch before 2.9")
@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize(
    "prepare",
    [
        lambda backends: None,
        lambda backends: setattr(backends.cudnn.conv, "fp32_precision", "ieee"),
        lambda backends: setattr(backends.cudnn.rnn, "fp32_precision", "ieee"),
        lambda backends: setattr(backends.cuda.matmul, "fp32_precision", "tf32"),
        lambda backends: setattr(backends, "fp32_precision", "tf32"),
        lambda backends: setattr(backends, "fp32_precision", "ieee"),
        lambda backends: torch.set_float32_matmul_precision("medium"),
        lambda backends: setattr(backends.cudnn, "allow_tf32", False),
    ],
)
def test_torch_is_left_with_the_precisions_that_it_had(as_torch_begins, prepare, allowed):
    prepare(torch.backends)
    before = precisions()
    with workloads.tf32_allowed(allowed):
        of_operators = [precisions()[place] for place in (1, 3, 4)]
        assert [each == "tf32" for each in of_operators] == [allowed] * 3
        # some of torch's compilers read the older names, which raise where they and the newer ones disagree
        assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is allowed
    assert precisions() == before


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="torch before 2.9")
def test_the_older_names_read_as_before(as_torch_begins):
    for precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)
        for allowed in (True, False):
            with workloads.tf32_allowed(allowed):
                pass
            assert torch.get_float32_matmul_precision() == precision
            assert torch.backends.cudnn.allow_tf32 is True


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fk.ceilings("cpu", dtypes="fp32"), TypeError, r"give number formats in a list, such as \['fp32'\]"),
        (lambda: fk.ceilings("cpu", dtypes=["tf32"]), ValueError, "that can be measured on cpu are of fp64, fp32, bf16, fp16"),
        (lambda: fk.ceilings("cpu", dtypes=[]), ValueError, r"dtypes=\[\]"),
        (lambda: fk.ceilings("cpu", dtypes=["fp99"]), ValueError, "fp99"),
        (lambda: fk.ceilings("meta"), ValueError, "must be a CPU or a CUDA device"),
        (lambda: fk.ceilings("cpu", time_budget=0), ValueError, "time_budget=0"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --------------------------------------------------------------------------------------------------------------- the workloads


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "fp64", "tf32", "fp8"])
def test_a_product_is_right_and_has_its_flops(dtype):
    """fp8 runs on a CPU, too, if slowly: the call that a GPU gets is the one that is tested."""
    load = workloads.product(CPU, dtype, (16, 32, 48))
    found = fk.measure(load.fn, *load.args, time_budget=0.05, flops=load.flops, check=load.check)
    assert found.verdict == "ok" and found.error is not None and load.flops == 2 * 16 * 32 * 48
    assert fk.count(load.fn, *load.args).flops == load.flops
    assert not any(bool((x.float() == 0).all()) for x in load.args)


def test_traffic_moves_the_bytes_that_it_names():
    """Counted by hand: copy reads one array and writes one, triad reads two and writes one, read reads two."""
    for name, load in workloads.traffic(CPU):
        held = load.args[0].nbytes
        assert held == 2**18 and load.bytes == {"copy": 2, "triad": 3, "read": 2}[name] * held
        assert {x.nbytes for x in load.args} == {held} and len({x.data_ptr() for x in load.args}) == len(load.args)
        found = fk.measure(load.fn, *load.args, time_budget=0.05, bytes=load.bytes, check=load.check)
        assert found.verdict == "ok" and found.error is not None


def test_arrays_are_larger_than_the_cache_and_smaller_than_the_memory(monkeypatch):
    monkeypatch.setattr(workloads, "cache_bytes", lambda where: 2**16)
    assert next(workloads.traffic(CPU))[1].args[0].nbytes == 2**17
    monkeypatch.setattr(machine, "memory", lambda where: 2.0**20)
    assert next(workloads.traffic(CPU))[1].args[0].nbytes == 2**20 // 64


def test_shapes_of_a_gpu(monkeypatch):
    """Some forty, the smallest first; with 132 multiprocessors 11 × 12 tiles of 128 × 256 are one wave."""
    card = SimpleNamespace(multi_processor_count=132, total_memory=80e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda where: card)
    monkeypatch.setattr(machine, "memory", lambda where: card.total_memory)
    found = workloads.shapes(CUDA, "bf16")
    assert 35 <= len(found) <= 45 and (11 * 128, 12 * 256, 4096) in found and (8192, 8192, 8192) in found
    assert [math.prod(s) for s in found] == sorted(math.prod(s) for s in found)
    assert all(side % 16 == 0 for shape in found for side in shape)  # what fp8 needs
    card.total_memory = 4e9
    assert (16384, 16384, 16384) not in workloads.shapes(CUDA, "bf16") and workloads.shapes(CUDA, "bf16")


@pytest.mark.parametrize(
    ("capability", "formats"),
    [
        ((7, 5), {"fp16", "fp32", "fp64"}),
        ((8, 0), {"bf16", "fp16", "tf32", "fp32", "fp64"}),
        ((9, 0), {"bf16", "fp16", "fp8", "tf32", "fp32", "fp64"}),
    ],
)
def test_formats_of_a_gpu(monkeypatch, capability, formats):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda where: capability)
    assert set(workloads.dtypes(CUDA)) == formats


# ----------------------------------------------------------------------------------------------- the file, and the device "here"


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is the CUDA device")
def test_here_is_what_was_kept():
    machine.keep_ceilings(some())
    here = fk.device(" Here")
    assert (here.name, here.peak("bf16"), here.bandwidth, here.ridge("fp32")) == ("here", 8e9, 2e9, 2.0)
    assert "2026-01-02" in here.source and f"{torch.get_num_threads()} threads" in here.source
    assert fk.roofline(fk.dense(tokens=1, d_in=64, d_out=64), device="here", dtype="fp32").seconds > 0
    assert "here" not in fk.device_names()


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is the CUDA device")
def test_without_a_file_here_says_how_to_make_one():
    with pytest.raises(RuntimeError, match=r"flopkit\.ceilings\(\) measures them in a minute"):
        fk.device("here")


def test_of_refused_ceilings_no_device_is_made():
    bad = some()
    bad["matmul"] = {"fp32": bad["matmul"]["fp32"] | {"verdict": "wrong"}}
    with pytest.raises(ValueError, match="no valid ceiling was measured for "):
        fk.measuring.Ceilings(**bad).device()
    bad["matmul"]["fp32"]["verdict"] = "disturbed"  # on a busy machine: too low, and still a ceiling
    assert fk.measuring.Ceilings(**bad).device().peak("fp32") == bad["matmul"]["fp32"]["flops_per_s"]


@pytest.mark.parametrize("spoil", [
    lambda text: text[: len(text) // 2], lambda text: "", lambda text: "[]", lambda text: "{}", lambda text: "\ufffd",
    lambda text: text.replace("flopkit ceilings 1", "flopkit ceilings 9"), lambda text: text.replace("threads", "fibres"),
    lambda text: "[" * 100_000, lambda text: text.replace('"verdict"', '"said"'), lambda text: text.replace('"flops_per_s": ', '"flops_per_s": "x", "y": '),
    lambda text: text.replace('"bytes_per_s": ', '"bytes_per_s": 1e308, "y": '),
])  # fmt: skip
def test_a_spoilt_file_is_named_with_the_way_out(spoil):
    path = machine.keep_ceilings(some())
    path.write_text(spoil(path.read_text("utf-8")), "utf-8")
    with pytest.raises(
        ValueError, match=r"ceilings/.*\.json does not hold ceilings.*flopkit\.ceilings\(\) measures them"
    ):
        machine.read_ceilings("cpu")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name, which this system does not have")
def test_a_pipe_instead_of_the_file_is_named():
    path = machine.keep_ceilings(some())
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"does not hold ceilings.*is no file, but a folder, a pipe or a device"):
        machine.read_ceilings("cpu")


def test_what_breaks_off_while_writing_leaves_the_old_file(monkeypatch):
    path = machine.keep_ceilings(some())
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        machine.keep_ceilings(some(memory=2e9))
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


def test_the_folder_is_the_readers_own(monkeypatch, tmp_path):
    monkeypatch.delenv("FLOPKIT_RECORDINGS")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert machine.folder() == tmp_path / ".flopkit" / "recordings"
    monkeypatch.setenv("FLOPKIT_RECORDINGS", "~/elsewhere")
    assert machine.folder() == tmp_path / "elsewhere"


# ------------------------------------------------------------------------------------------------- measurements beside ceilings


def measured(*args, **kwargs):
    return fk.measure(torch.mm, *args, time_budget=0.1, **kwargs)


@pytest.fixture
def however_low(monkeypatch):
    """A ceiling holds however far it is exceeded."""
    monkeypatch.setattr(judging, "NONE", float("inf"))


@pytest.mark.usefixtures("however_low")
def test_a_measurement_says_its_share_of_the_ceilings():
    a, b = torch.randn(2, 32, 32)
    assert measured(a, b).of_ceiling_flops is measured(a, b).of_ceiling_bytes is None
    machine.keep_ceilings(some())
    found = measured(a, b)
    assert found.of_ceiling_flops == pytest.approx(2 * 32**3 / 4e9 / found.seconds)
    assert found.of_ceiling_bytes == pytest.approx(3 * 4 * 32**2 / 2e9 / found.seconds)
    assert found.record()["rates"]["of_ceiling_flops"] == found.of_ceiling_flops and "%" in str(
        found.table()[7]["value"]
    )
    assert found.mfu is None  # a ceiling is no peak, and no time is impossible by it
    half = measured(a.bfloat16(), b.bfloat16())
    assert half.of_ceiling_flops == pytest.approx(2 * 32**3 / 8e9 / half.seconds)


def test_a_format_without_a_ceiling_has_no_share():
    machine.keep_ceilings(some())
    a = torch.randn(32, 32, dtype=torch.float64)
    found = measured(a, a)
    assert found.of_ceiling_flops is None and found.of_ceiling_bytes is not None


def test_what_multiplies_nothing_has_no_share_of_flops():
    machine.keep_ceilings(some())
    found = fk.measure(torch.neg, torch.ones(1000), time_budget=0.1)
    assert found.of_ceiling_flops is None and found.of_ceiling_bytes > 0


@pytest.mark.parametrize("most", [judging.NONE, float("inf")])
def test_faster_than_the_ceiling_is_noted_and_not_refused(most, monkeypatch):
    """What is exceeded many times over is no ceiling: nothing is said as a share of it."""
    monkeypatch.setattr(judging, "NONE", most)
    slow, a = some(), torch.randn(32, 32)
    slow["matmul"]["fp32"]["flops_per_s"] = measured(a, a).flops_per_s / 600
    machine.keep_ceilings(slow)
    found = measured(a, a)
    assert found.verdict == "ok" and (found.of_ceiling_flops is None) == (most == 2)
    assert any("faster than the ceiling that was measured" in note for note in found.notes)


def test_ceilings_of_other_threads_are_not_compared_with():
    machine.keep_ceilings(some(threads=torch.get_num_threads() + 1))
    a = torch.randn(32, 32)
    found = measured(a, a)
    assert found.of_ceiling_flops is found.of_ceiling_bytes is None
    assert any(
        f"with {torch.get_num_threads() + 1} threads, this with {torch.get_num_threads()}" in note
        for note in found.notes
    )


def test_a_spoilt_file_of_ceilings_hinders_no_measurement():
    machine.keep_ceilings(some()).write_text("{", "utf-8")
    a = torch.randn(32, 32)
    found = measured(a, a)
    assert found.verdict == "ok" and any("does not hold ceilings" in note for note in found.notes)


def test_products_in_tf32_are_compared_with_tf32():
    card = fk.Device("card", peak={"fp32": 1e12, "tf32": 4e12}, bandwidth=1e12)
    assert judging.at_rates(card, {"fp32": 1e12}, card.peak) == 1.0
    assert judging.at_rates(card, {"tf32": 1e12, "fp32": 1e12}, card.peak) == 1.25
    assert judging.known(card, {"tf32": 1e12}) and not judging.known(card, {"fp32": 1e12, "fp64": 1.0})
    without = fk.Device("card", peak={"fp32": 1e12}, bandwidth=1e12)
    assert judging.at_rates(without, {"tf32": 1e12}, without.peak) == 1.0
