"""perf and GPM as oracles, on stand-ins: their arithmetic, and what they say where they cannot count."""

import sys
from types import SimpleNamespace

import pytest
import torch

import flopkit as fk
from flopkit.cli import main
from flopkit.measuring.hardware import checking, gpm, processor

INTEL = "vendor_id\t: GenuineIntel\nflags\t\t: fpu sse avx2 fma"
EVENTS = processor.events(INTEL + " avx512f avx512dq")

# What a run of so many products costs: starting up, and 2·1024³ in instructions of 512 bits, an FMA counted twice.
PERF = """#!{python}
import pathlib, sys
calls = int(sys.argv[-1])
events = sys.argv[sys.argv.index("-e") + 1].split(",")
seen = dict.fromkeys(events, 1000)
seen[events[-1]] += calls * 2 * 1024**3 // {lanes} * {percent} // 100
lines = [f"{{count}},,{{name}},1204000,100.00,," for name, count in seen.items()]
{does}
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_text("# started on Sun\\n\\n" + "\\n".join(lines) + "\\n")
"""


@pytest.fixture
def perf(monkeypatch, tmp_path):
    def does(what="", lanes=16, percent=100):
        (tmp_path / "perf").write_text(PERF.format(python=sys.executable, lanes=lanes, percent=percent, does=what))
        (tmp_path / "perf").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    monkeypatch.setattr(processor, "events", lambda cpuinfo: EVENTS)
    return does


def test_events():
    assert EVENTS == {
        "fp_arith_inst_retired.scalar_single:u": 1, "fp_arith_inst_retired.128b_packed_single:u": 4,
        "fp_arith_inst_retired.256b_packed_single:u": 8, "fp_arith_inst_retired.512b_packed_single:u": 16,
    }  # fmt: skip
    assert list(processor.events(INTEL).values()) == [1, 4, 8]
    assert processor.events("vendor_id : AuthenticAMD") == {"fp_ret_sse_avx_ops.all:u": 1}
    with pytest.raises(OSError, match="no event is known here"):
        processor.events("CPU implementer : 0x41")


def test_what_perf_saw_is_normalised():
    lines = [f"{count},,{name},1,100.00,," for name, count in zip(EVENTS, (3, 5, 7, 11), strict=True)]
    assert processor.flops_seen("# started\n\n" + "\n".join(lines), EVENTS) == 3 + 4 * 5 + 8 * 7 + 16 * 11
    hybrid = [line.replace("fp_arith", "cpu_core/fp_arith").replace(":u", "/u") for line in lines]
    atoms = [
        f"<not supported>,,{name.replace('fp_', 'cpu_atom/fp_').replace(':u', '/u')},0,100.00,," for name in EVENTS
    ]
    assert processor.flops_seen("\n".join(hybrid + atoms), EVENTS) == 3 + 4 * 5 + 8 * 7 + 16 * 11


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda lines: lines[:3], "no line of fp_arith_inst_retired.512b"),
        (lambda lines: [*lines[:3], lines[3][:20]], "no line of fp_arith_inst_retired.512b"),
        (lambda lines: [], "no line of"),
        (lambda lines: [*lines[:3], lines[3].replace("9,", "<not supported>,", 1)], "<not supported> of fp_arith_inst_retired.512b"),
        (lambda lines: [*lines[:3], lines[3].replace("9,", "<not counted>,", 1)], "<not counted> of"),
        (lambda lines: [*lines[:3], lines[3].replace("100.00", "74.9")], "counted only 74.9 % of the time"),
    ],
)  # fmt: skip
def test_what_perf_did_not_count_is_no_zero(spoil, says):
    with pytest.raises(OSError, match=says):
        processor.flops_seen("\n".join(spoil([f"9,,{name},1,100.00,," for name in EVENTS])), EVENTS)


def test_a_product_by_perf(perf, capsys):
    """The difference of two runs leaves out what starting takes."""
    perf()
    (found,) = checking.against_hardware("cpu")
    (row,) = found["results"]
    assert (row["ratio"], row["verdict"], row["executed"]) == (1, "agrees", {"fp32": 2 * 1024**3})
    assert main(["counters", "--device", "cpu"]) == 0 and "2.147 GFLOPs" in capsys.readouterr().out


@pytest.mark.parametrize("percent", [50, 99, 103])
def test_a_count_that_differs(perf, capsys, percent):
    """As where an FMA were counted once."""
    perf(percent=percent)
    assert main(["counters", "--device", "cpu"]) == 1 and "differs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ('sys.exit("event syntax error: ...\\n \\\\___ parser error")', "perf offers no event fp_arith_inst_retired.scalar_single"),
        ('sys.exit("Access to performance monitoring and observability operations is limited.")', "kernel.perf_event_paranoid=2"),
        ('sys.exit("perf_event_open: Operation not permitted")', "kernel.perf_event_paranoid=2"),
        ('sys.exit("ModuleNotFoundError: No module named torch")', "perf stat failed: ModuleNotFoundError"),
        ('lines = [line.replace("1000,", "<not supported>,") for line in lines]', "counters are hidden"),
    ],
)  # fmt: skip
def test_where_perf_cannot_count_it_says_why(perf, capsys, does, says):
    perf(does)
    assert main(["counters", "--device", "cpu"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and says in shown.err and shown.err.count("\n") == 1


def test_without_perf(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["counters", "--device", "cpu"]) == 2 and "perf is not on the PATH" in capsys.readouterr().err


# -- GPM ---------------------------------------------------------------------------------------------------------------------


def test_shares_of_the_time(nvml):
    ran = []
    found = gpm.busy(lambda: ran.append(all(sample.taken for sample in nvml.samples)), "cuda")
    assert found == {"tensor": 0.8, "memory": 0.25} and ran == [False]  # the second sample comes after it
    assert nvml.open == 0 and not nvml.samples
    nvml.returns = 3
    assert gpm.busy(lambda: None, "cuda") == {"tensor": None, "memory": None}


def test_where_nvml_cannot_be_read_gpm_says_why(unreadable):
    nvml, says = unreadable
    with pytest.raises(OSError, match=f"GPM was not read: .*{says}"):
        gpm.busy(lambda: None, "cuda")
    assert nvml.open == 0


@pytest.mark.parametrize(("able", "says"), [(0, "Hopper"), (1, "nvmlGpmSampleAlloc")])
def test_where_a_card_has_no_gpm_it_says_so(nvml, monkeypatch, able, says):
    nvml.able = able
    monkeypatch.delattr(type(nvml), "nvmlGpmSampleAlloc")
    with pytest.raises(OSError, match=f"GPM was not read: .*{says}"):
        gpm.busy(lambda: None, "cuda")
    assert nvml.open == 0


class Watch:
    """A monitor that saw a clock, or none."""

    mhz, note = 1500, ""

    def __init__(self, where):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def summary(self, after):
        return {"sm_mhz": {"median": self.mhz}} if self.mhz else None


@pytest.fixture
def h100(nvml, monkeypatch):
    """The products run on the CPU, on a clock that ticks a tenth of a second at each look."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    ticks = iter(range(10**6))
    monkeypatch.setattr(gpm, "time", SimpleNamespace(perf_counter=lambda: next(ticks) / 10))
    monkeypatch.setattr(gpm, "Monitor", Watch)
    card = fk.device("h100-sxm")
    monkeypatch.setattr(gpm.devices, "device", lambda: card)
    return nvml


def test_busy_tensor_cores_at_a_clock_are_flops(h100):
    """132 SMs, 4,096 FLOPs a clock, 80 % of two seconds; the products that were run are counted."""
    (row,) = gpm.check("cpu", 32)["results"]
    assert row["executed"]["bf16"] == pytest.approx(0.8 * 132 * 4096 * 1500e6 * 2.0)
    assert row["counted"]["flops"] == 2 * 32**3 * 20 * 20  # twenty products at each of twenty looks
    assert row["ratio"] == row["executed"]["bf16"] / row["counted"]["flops"] and row["verdict"] == "differs"
    assert "80.0% of the time at 1500 MHz" in row["note"]


def test_gpm_agrees(h100):
    h100.percent[5] = 100 * 2 * 32**3 * 400 / (132 * 4096 * 1500e6 * 2.0)
    found = gpm.check("cpu", 32)
    assert found["results"][0]["verdict"] == "agrees" and checking.agreed([found])


def test_without_a_share_or_a_clock_gpm_counts_nothing(h100, monkeypatch):
    h100.returns = 3
    (row,) = (found := gpm.check("cpu", 32))["results"]
    assert row["verdict"] == "not counted" and "executed" not in row and not checking.agreed([found])
    h100.returns = 0
    monkeypatch.setattr(Watch, "mhz", None)
    monkeypatch.setattr(Watch, "note", "clock was not watched")
    (row,) = gpm.check("cpu", 32)["results"]
    assert row["verdict"] == "not counted" and row["note"].endswith("clock was not watched")
    assert "not counted" in str(checking.shown([gpm.check("cpu", 32)]))
