"""Nsight Compute as an oracle, without a GPU: what is run, what its table holds, and that nothing missing becomes a zero.

The small tables here are written by the test in the form of ``ncu --csv --page raw``; a stand-in for ``ncu`` prints them.
"""

import json
import os
import sys
from types import SimpleNamespace

import pytest
import torch
from ncu_table import BF16, READ, SPIN, N, op, table

from flopkit.cli import main
from flopkit.measuring.hardware import cases, checking, ncu
from flopkit.measuring.hardware.cases import CASES, counted, prepared


def kept(folder, kernels, results, capability=(9, 0), **more):
    about = {"device": "NVIDIA Test", "capability": capability, "torch": "2", "results": results}
    folder.mkdir(exist_ok=True)
    (folder / "cases.json").write_text(json.dumps(about))
    (folder / "raw.csv").write_text(table(kernels, capability, **more))
    return folder


PRODUCT = {"case": "mm_bf16", "counted": {"flops": 2 * N**3, "bytes": 3 * 2 * N**2}}
SUM = {"case": "add_fp32", "counted": {"flops": 2**27, "bytes": 3 * 4 * 2**27}}


def one(tmp_path, *kernels, said=PRODUCT, **more):
    (row,) = ncu.compared(kept(tmp_path / "a", [(SPIN, {}), *kernels, (SPIN, {})], [said], **more))["results"]
    return row


# -- the cases ---------------------------------------------------------------------------------------------------------------

MLP = 3 * 2 * 2 * 8192 * 4096 * 16384
FLASH = 4 * 2 * 16 * 4096**2 * 128
EXPECTED = {
    "mm_bf16": 2 * N**3, "mm_bf16_ragged": 2 * (N + 1) * N**2, "mm_fp16": 2 * N**3, "mm_tf32": 2 * N**3, "mm_fp32": 2 * N**3,
    "mm_fp64": 2 * 2048**3, "mm_fp8": 2 * N**3, "add_fp32": 2**27, "mul_fp32": 2**27,
    "conv3x3_fp32": 2 * 64 * 128 * 56**2 * 128 * 9, "conv3x3_bf16": 2 * 64 * 128 * 56**2 * 128 * 9,
    "depthwise_fb": 3 * 2 * 64 * 512 * 56**2 * 9, "flash": FLASH, "flash_causal": FLASH // 4096**2 * (4096 * 4097 // 2),
    "flash_fb": FLASH * 7 // 2, "mlp_fb": MLP, "mlp_fb_checkpoint": MLP + MLP // 6, "first_layer_fb": 2 * 2 * 8192 * 4096 * 16384,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_counted_as_its_formula_says(name):
    """At its real size, without values. The checkpoint stops before the last product, whose result nobody asks for."""
    assert counted(CASES[name], prepared(CASES[name], "meta"))["flops"] == EXPECTED[name]


@pytest.mark.parametrize("name", CASES)
def test_a_case_runs(name):
    """On the CPU, with each size clipped at 16."""
    case = CASES[name]
    out = prepared(case, "cpu", 16)()
    assert len(out) == case.with_gradient if case.with_gradient else torch.isfinite(out.float()).all()


def test_a_program_of_cases(tmp_path, monkeypatch):
    """On a stand-in for the device: each case runs once between start and stop, behind the delimiter, and a last delimiter follows."""
    seen, calls = [], []
    cuda = SimpleNamespace(
        get_device_capability=lambda: (8, 0), get_device_name=lambda: "A100", _sleep=lambda cycles: seen.append("sleep"),
        synchronize=lambda: None, empty_cache=lambda: None, CUDAGraph=torch.cuda.CUDAGraph,
        cudart=lambda: SimpleNamespace(cudaProfilerStart=lambda: seen.append("start"), cudaProfilerStop=lambda: seen.append("stop")),
    )  # fmt: skip

    def made(case, where):
        assert where == "cuda" and torch.backends.cuda.matmul.allow_tf32 is (case.dtype == "tf32")
        if case.name == "flash":
            raise RuntimeError("No available kernel.\nAborting execution.")
        run = prepared(case, "cpu", 16)
        return lambda: (calls.append(case.name), seen.append("run") if "start" in seen[-2:-1] else None, run())[-1]

    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(cases, "prepared", made)
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        cases.run_cases(tmp_path)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    about = json.loads((tmp_path / "cases.json").read_text())
    errors = {each["case"]: each["error"] for each in about["results"] if "error" in each}
    assert errors["flash"] == "RuntimeError: No available kernel." and "no units for fp8" in errors["mm_fp8"]
    assert len(errors) == 2 and [each["case"] for each in about["results"]] == list(CASES)
    assert "".join(seen) == "startsleeprunstop" * (len(CASES) - 2) + "startsleepstop"
    assert calls.count("mm_bf16") == 3  # counted, warm, watched


# -- the counters ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "tensor"),
    [
        ((7, 5), {"fp16", "int8"}),
        ((8, 0), {"bf16", "fp16", "tf32", "fp64", "int8"}),
        ((8, 6), {"bf16", "fp16", "tf32", "int8"}),
        ((8, 9), {"bf16", "fp16", "tf32", "fp8", "int8"}),
        ((9, 0), {"bf16", "fp16", "tf32", "fp8", "fp64", "int8"}),
        ((10, 0), {"bf16", "fp16", "tf32", "fp8", "fp4", "fp64", "int8"}),
    ],
)
def test_each_generation_has_counters_for_its_formats(capability, tensor):
    found = ncu.counters(capability)
    assert {dtype for name, (dtype, _) in found.items() if "tensor" in name} == tensor
    assert {weight for name, (_, weight) in found.items() if "tensor" in name} == {1}
    assert (
        found[op("ffma")] == ("fp32", 2)
        and found[op("hfma")] == ("fp16 vector", 4)
        and found[op("dadd")] == ("fp64", 1)
    )


def test_a_generation_without_counters_is_refused():
    with pytest.raises(ValueError, match="before 7.5"):
        ncu.counters((7, 0))


def test_the_command(tmp_path):
    line = ncu.command(tmp_path, (9, 0))
    metrics = line[line.index("--metrics") + 1].split(",")
    assert BF16 in metrics and set(ncu.MEMORY) <= set(metrics) and len(metrics) == len(set(metrics)) == 6 + 9 + 2
    assert line[line.index("--profile-from-start") + 1] == "off" and line[-2:] == [
        "flopkit.measuring.hardware.cases",
        str(tmp_path),
    ]


# -- the table ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [str(2 * N**3), f"{2 * N**3:,}", f"{2 * N**3:,}.00"])
@pytest.mark.parametrize("units", [None, {"dram__bytes_read.sum": "byte", "dram__bytes_write.sum": "byte"}])
def test_an_exact_case(tmp_path, cell, units):
    row = one(tmp_path, ("nvjet_hsh_128x256", {BF16: cell, **READ}), units=units)
    assert (row["ratio"], row["bytes_ratio"], row["verdict"], row["executed"]) == (1, 1, "agrees", {"bf16": 2 * N**3})


def test_one_operation_more_is_no_longer_exact(tmp_path):
    assert one(tmp_path, ("gemm", {BF16: 2 * N**3 + 1, **READ}))["verdict"] == "differs"
    assert one(tmp_path, ("gemm", {BF16: N**3, **READ}))["ratio"] == 0.5


def test_the_kernels_of_a_case_are_summed_and_other_formats_are_shown_beside(tmp_path):
    half = {BF16: N**3, op("ffma"): 10, op("fadd"): 3, op("hmul"): 1}
    row = one(tmp_path, ("gemm", {**half, **READ}), ("splitK", half))
    assert row["verdict"] == "agrees" and row["executed"] == {"bf16": 2 * N**3, "fp32": 46, "fp16 vector": 4}


def test_prefixes_of_units(tmp_path):
    moved = {"dram__bytes_read.sum": "1.073741824", "dram__bytes_write.sum": "536.870912"}
    units = {"dram__bytes_read.sum": "Gbyte", "dram__bytes_write.sum": "Mbyte"}
    row = one(tmp_path, ("vectorized", {op("ffma"): 2**27, **moved}), said=SUM, units=units)
    assert (row["ratio"], row["bytes_ratio"], row["verdict"]) == (2, 1, "agrees")
    units["dram__bytes_read.sum"] = "Mbyte"  # a thousandth of the traffic
    assert one(tmp_path, ("vectorized", {op("ffma"): 2**27, **moved}), said=SUM, units=units)["verdict"] == "differs"


def test_what_describes_the_card_is_no_counter(tmp_path):
    """ncu's raw page has it in columns between those of the counters, some of it in words."""
    about = {"device__attribute_display_name": "NVIDIA H100 80GB HBM3", "launch__block_size": "(256, 1, 1)"}
    assert one(tmp_path, ("gemm", {**about, BF16: 2 * N**3, **READ}))["verdict"] == "agrees"


def test_two_counters_of_a_format_are_added(tmp_path):
    said = {"case": "mm_fp16", "counted": PRODUCT["counted"]}
    parts = {f"sm__ops_path_tensor_src_fp16_dst_{to}.sum": N**3 for to in ("fp16", "fp32")}
    assert one(tmp_path, ("h884gemm", {**parts, **READ}), said=said, capability=(8, 0))["ratio"] == 1


def test_a_case_whose_counters_stood_still_or_are_missing_is_not_a_zero(tmp_path):
    row = one(tmp_path, ("gemm", READ))
    assert row["verdict"] == "not counted" and row["note"] == "no counter of bf16 moved" and "ratio" not in row
    assert one(tmp_path)["note"] == "no counter of bf16 moved"  # no kernel at all
    row = one(tmp_path, ("gemm", {BF16: "n/a", **READ}))
    assert row["verdict"] == "not counted" and BF16 in row["note"]
    row = one(tmp_path, ("gemm", {BF16: 2 * N**3}), leave_out=ncu.MEMORY[:1])
    assert row["verdict"] == "not counted" and "dram__bytes_read" in row["note"]


def test_a_case_that_did_not_run_is_in_the_table(tmp_path):
    folder = kept(tmp_path / "a", [(SPIN, {}), ("gemm", {BF16: 2 * N**3, **READ}), (SPIN, {})],
                  [{"case": "mm_fp8", "error": "NotImplementedError: no units"}, PRODUCT])  # fmt: skip
    found = ncu.compared(folder)
    assert [row["verdict"] for row in found["results"]] == ["not run", "agrees"] and checking.agreed([found])
    assert "NotImplementedError: no units" in str(checking.shown([found]))


@pytest.mark.parametrize("cell", ["137.438.953.472", "13,74", "1,37438", "12 000", "zero", "-1"])
def test_what_is_no_number_is_refused(tmp_path, cell):
    with pytest.raises(ValueError, match="is no number as ncu prints it in English"):
        one(tmp_path, ("gemm", {BF16: cell}))


def test_a_table_that_is_cut_off_anywhere_is_refused(tmp_path):
    """At every character up to the last delimiter: never a smaller number."""
    folder = kept(tmp_path / "a", [(SPIN, {}), ("gemm", {BF16: f"{2 * N**3:,}", **READ}), (SPIN, {})], [PRODUCT])
    whole = (folder / "raw.csv").read_text()
    for end in range(len(whole)):
        (folder / "raw.csv").write_text(whole[:end])
        with pytest.raises(ValueError, match="cut off|not whole|no table|no number"):
            ncu.compared(folder)
    (folder / "raw.csv").write_text(whole)
    (folder / "cases.json").write_text((folder / "cases.json").read_text()[:-9])
    with pytest.raises(ValueError, match="cases.json is not whole"):
        ncu.compared(folder)


@pytest.mark.parametrize(
    "about, says",
    [
        ({}, "lacks 'results'"), ([], "list"), (None, "NoneType"), ({"results": None}, "NoneType"), ({"results": [{}]}, "lacks 'case'"),
        ({"results": [{"case": "of_tomorrow"}]}, "case='of_tomorrow' is not of this flopkit"), ({"results": [3]}, "int"),
        ({"capability": [9, 0], "device": "x", "results": [{"case": "mm_bf16"}]}, "lacks 'counted'"),
        ({"capability": 9, "device": "x", "results": [PRODUCT]}, "int"),
        ({"capability": [9, 0], "results": [PRODUCT]}, "lacks 'device'"),
        ({"capability": [9, 0], "device": "x", "results": [{**PRODUCT, "counted": {"flops": 0, "bytes": 0}}]}, "zero"),
    ],
)  # fmt: skip
def test_files_of_another_form_are_named_in_one_line(tmp_path, capsys, about, says):
    folder = kept(tmp_path / "a", [(SPIN, {}), ("gemm", {BF16: f"{2 * N**3:,}", **READ}), (SPIN, {})], [PRODUCT])
    (folder / "cases.json").write_text(json.dumps(about))
    assert main(["counters", "--read", str(folder)]) == 2
    said = capsys.readouterr().err
    assert (
        said.count("\n") == 1
        and f"{folder} is not whole: " in said
        and says in said
        and "run the counters again" in said
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name, which this system does not have")
@pytest.mark.parametrize("name", ["cases.json", "raw.csv"])
def test_what_is_no_file_is_not_opened(tmp_path, capsys, name):
    folder = kept(tmp_path / "a", [(SPIN, {}), (SPIN, {})], [PRODUCT])
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert main(["counters", "--read", str(folder)]) == 2
    assert "is no file, but a folder, a pipe or a device" in capsys.readouterr().err
    (folder / name).unlink()
    (folder / name).write_bytes(b"\xff\xfe")
    assert main(["counters", "--read", str(folder)]) == 2
    assert name in capsys.readouterr().err


def test_a_cell_that_never_ends_is_no_smaller_number():
    with pytest.raises(ValueError, match="cut off: unexpected end of data"):
        ncu.kernels('"ID","Kernel Name","a__b"\n"0","gemm","12\n')


def test_kernels_behind_the_last_delimiter_and_files_that_do_not_belong_together(tmp_path):
    for kernels in ([(SPIN, {}), ("gemm", {}), (SPIN, {}), ("gemm", {})], [(SPIN, {})] * 3, [("gemm", {})]):
        with pytest.raises(ValueError, match="not whole: of 2 delimiter kernels"):
            ncu.compared(kept(tmp_path / "a", kernels, [PRODUCT]))


# -- the program -------------------------------------------------------------------------------------------------------------

FAKE = """#!{python}
import pathlib, shutil, sys
here = pathlib.Path(__file__).parent
if "--import" in sys.argv:
    print((here / "table.csv").read_text())
else:
    out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
    {does}
"""
WRITES = """out.with_suffix(".ncu-rep").write_text("")
    shutil.copy(here / "cases.json", out.parent)"""
FORBIDS = 'print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"); sys.exit(1)'
FAILS = """print("==PROF== Connected"); print("==ERROR== Failed to find metric sm__ops.sum")
    print("torch.OutOfMemoryError: CUDA out of memory", file=sys.stderr); sys.exit(255)"""
IDLE = 'print("==WARNING== No kernels were profiled.")'


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A stand-in for ncu on the PATH, which does what it is told; and a GPU of which torch tells name and capability."""

    def does(what):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "ncu").write_text(FAKE.format(python=sys.executable, does=what))
        (folder / "ncu").chmod(0o755)
        kept(tmp_path / "b", [(SPIN, {}), ("gemm", {BF16: f"{2 * N**3:,}", **READ}), (SPIN, {})], [PRODUCT], units={})
        (tmp_path / "b" / "raw.csv").rename(folder / "table.csv")
        (tmp_path / "b" / "cases.json").rename(folder / "cases.json")
        monkeypatch.setenv("PATH", str(folder))

    monkeypatch.setattr(checking.machine, "kind", lambda: "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda where: "NVIDIA Test")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(checking.gpm, "check", lambda: (_ for _ in ()).throw(OSError("GPM was not read: too old")))
    return does


def test_from_the_command_line(gpu, tmp_path, capsys):
    """The files are kept, and read again without ncu and without a GPU."""
    gpu(WRITES)
    assert main(["counters", "--device", "cuda", "--out", str(tmp_path / "kept")]) == 0
    text = capsys.readouterr().out
    assert "mm_bf16  agrees   1 " in text and "GPM was not read: too old" in text and "137.4 GFLOPs" in text
    assert main(["counters", "--read", str(tmp_path / "kept"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["results"][0]["ratio"] == 1 and found["device"] == "NVIDIA Test"
    raw = tmp_path / "kept" / "raw.csv"
    raw.write_text(raw.read_text().replace(f"{2 * N**3:,}", "7"))
    assert main(["counters", "--read", str(tmp_path / "kept")]) == 1 and "differs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (FORBIDS, "NVreg_RestrictProfilingToAdminUsers=0"),
        (FAILS, "==ERROR== Failed to find metric sm__ops.sum torch.OutOfMemoryError: CUDA out of memory"),
        (IDLE, "No kernels were profiled"),
        ("pass", "it said nothing"),
        (None, "Nsight Compute's ncu is not on the PATH"),
    ],
)
def test_where_ncu_cannot_count_it_says_why(gpu, tmp_path, capsys, does, says):
    if does is not None:
        gpu(does)
    for _ in range(2):  # nothing is left over that the second run would take for its own
        assert main(["counters", "--device", "cuda", "--out", str(tmp_path / "kept")]) == 2
        shown = capsys.readouterr()
        assert (
            shown.out == ""
            and says in shown.err
            and "GPM was not read: too old" in shown.err
            and shown.err.count("\n") == 1
        )


def test_an_old_report_is_not_taken_for_a_new_one(gpu, tmp_path, capsys):
    gpu(WRITES)
    line = ["counters", "--device", "cuda", "--out", str(tmp_path / "kept")]
    assert main(line) == 0
    (tmp_path / "bin" / "ncu").write_text(FAKE.format(python=sys.executable, does=IDLE))
    assert main(line) == 2 and "No kernels were profiled" in capsys.readouterr().err


def test_gpm_stands_in_where_ncu_is_forbidden_and_the_exit_code_says_so(gpu, monkeypatch, capsys):
    row = {
        "case": "mm_bf16",
        "accepted": (0.9, 1.1),
        "note": "",
        "verdict": "agrees",
        "ratio": 1.0,
        "counted": {"flops": 1},
        "executed": {"bf16": 1},
    }
    monkeypatch.setattr(checking.gpm, "check", lambda: {"oracle": "NVML GPM", "device": "H100", "results": [row]})
    assert main(["counters", "--device", "cuda"]) == 1
    text = capsys.readouterr().out
    assert "ncu is not on the PATH" in text and "NVML GPM  mm_bf16  agrees" in text


def test_an_oracle_that_breaks_leaves_the_other_one_its_say(gpu, monkeypatch, capsys):
    gpu(WRITES)
    monkeypatch.setattr(checking.gpm, "check", lambda: torch.ones(2) @ torch.ones(3))
    assert main(["counters", "--device", "cuda"]) == 0 and "inconsistent tensor size" in capsys.readouterr().out


def test_without_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(checking.machine, "kind", lambda: "cpu")
    assert main(["counters", "--device", "cuda"]) == 2 and "no CUDA device" in capsys.readouterr().err


def test_a_permission_that_is_missing_in_a_kept_file():
    with pytest.raises(PermissionError, match="NVreg_RestrictProfilingToAdminUsers"):
        ncu.kernels("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
