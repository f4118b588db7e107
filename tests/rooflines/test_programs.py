"""The least time of a program on a device: sums by hand."""

import pickle

import pytest
import torch
import torch.nn.functional as F

import flopkit as fk
from flopkit.rooflines import Calls, ProgramBound, program_bound

# 1,000 FLOP/s and 10 bytes/s: 100 FLOPs a byte is where they meet.
SMALL = fk.Device("small", peak={"fp32": 1e3, "bf16": 1.25e3}, bandwidth=10.0)


def numbers(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


def counted(fn, *args):
    with torch.no_grad():
        return fk.count(fn, *args)


def test_each_call_is_bound_by_itself():
    """A large product by arithmetic, a small one by memory: the sum is not the roofline of the sums."""
    report = counted(lambda: (numbers(1000, 1000) @ numbers(1000, 1000), numbers(10, 10) @ numbers(10, 10)))
    slow_at_arithmetic, slow_at_memory = 2 * 1000**3 / 1e3, 3 * 4 * 100 / 10
    timing = report.roofline(SMALL, "fp32")
    assert timing.seconds == pytest.approx(slow_at_arithmetic + slow_at_memory, rel=1e-12)
    assert timing.seconds > max(report.flops / 1e3, report.bytes / 10)
    assert timing.compute_seconds == pytest.approx(slow_at_arithmetic) and timing.memory_seconds == pytest.approx(
        slow_at_memory
    )
    (row,) = timing.rows
    assert (row["operator"], row["calls"], row["flops"], row["bytes"], row["bound"]) == (
        "mm",
        2,
        2 * 1000**3 + 2000,
        12_001_200,
        "both",
    )
    assert report.roofline(SMALL, "bf16").compute_seconds == pytest.approx(slow_at_arithmetic / 1.25)


def test_one_call_is_flopkits_roofline():
    report = counted(torch.matmul, numbers(64, 32), numbers(32, 16))
    cost = fk.matmul(m=64, k=32, n=16, dtype="fp32")
    for device, dtype in (("h100-sxm", "tf32"), ("a100-sxm-80gb", "bf16"), (SMALL, "fp32")):
        timing, bound = report.roofline(device, dtype), fk.roofline(cost, device, dtype)
        assert timing.seconds == pytest.approx(bound.seconds, rel=1e-12)
        assert timing.rows[0]["bound"] == bound.bound
        assert (timing.peaks, timing.bandwidth) == ({dtype: bound.peak}, bound.bandwidth)


def test_rows_by_operator_and_phase_the_slowest_first():
    layer = torch.nn.Linear(8, 16, bias=False, device="meta")
    x = numbers(4, 8).requires_grad_()
    with fk.counting() as report:
        layer(x).relu().sum().backward()
    timing = report.roofline(SMALL, "fp32")
    seconds = [row["seconds"] for row in timing.rows]
    assert seconds == sorted(seconds, reverse=True)
    assert sum(row["share"] for row in timing.rows) == pytest.approx(1)
    assert timing.seconds == pytest.approx(sum(seconds)) == pytest.approx(sum(timing.by_phase.values()))
    # Product, relu, sum, and the gradient of the sum, a 1, which is made before the backward pass begins: all of them slower at memory.
    forward = 4 * (32 + 128 + 64) + 4 * (64 + 64) + 4 * (64 + 1) + 4
    assert timing.by_phase["forward"] == pytest.approx(forward / 10)
    assert timing.by_phase["recompute"] == timing.by_phase["optimizer"] == 0
    assert {(row["operator"], row["phase"]) for row in timing.rows} >= {
        ("mm", "forward"),
        ("mm", "backward"),
        ("relu", "forward"),
    }


def test_element_wise_operators_move_their_tensors_one_after_the_other():
    x = numbers(1000)
    report = counted(lambda: F.silu(x + 1) * 2)
    assert report.roofline(SMALL, "fp32").seconds == pytest.approx(6 * 4000 / 10)


def test_a_fused_backward_that_computes_again_is_one_call():
    """Flash attention's backward executes five products, of which one is done once more; it moves its tensors once."""
    q = numbers(1, 2, 64, 16).requires_grad_()
    with fk.counting(attention="flash") as report:
        F.scaled_dot_product_attention(q, q, q).sum().backward()
    timing = report.roofline(fk.Device("d", peak={"fp32": 1.0}, bandwidth=1e9), "fp32")
    rows = {row["phase"]: row for row in timing.rows if row["operator"] == "scaled_dot_product_attention"}
    product = 2 * 2 * 64 * 64 * 16
    assert {phase: row["flops"] for phase, row in rows.items()} == {"forward": 2 * product, "backward": 5 * product}
    assert rows["backward"]["seconds"] == 5 * product and timing.by_phase["recompute"] == 0


def test_a_convention_that_counts_macs_takes_no_less_time():
    report = counted(torch.matmul, numbers(100, 100), numbers(100, 100))
    device = fk.Device("d", peak={"fp32": 1.0}, bandwidth=1e9)
    macs = report.under(fk.conventions.FVCORE).roofline(device, "fp32")
    assert macs.seconds == report.roofline(device, "fp32").seconds == 2 * 100**3
    assert macs.rows[0]["flops"] == 100**3 and macs.utilisation == pytest.approx(1)


def test_each_operator_meets_the_peak_of_its_own_format():
    """Half of the products in float32, half in bfloat16, eight times as fast: 8 + 1 parts of time."""
    device = fk.Device("d", peak={"fp32": 1.0, "bf16": 8.0, "fp64": 0.5}, bandwidth=1e9)
    x, y, z = numbers(100, 100), numbers(100, 100, dtype=torch.bfloat16), numbers(100, 100, dtype=torch.complex128)
    flops = 2 * 100**3
    mixed = counted(lambda: (x @ x, y @ y)).roofline(device)
    assert mixed.seconds == flops + flops / 8 and mixed.peaks == {"fp32": 1.0, "bf16": 8.0}
    assert mixed.rows[0]["dtype"] == "fp32 and bf16" and mixed.utilisation == 1
    assert counted(lambda: (x @ x, y @ y)).roofline(device, "bf16").seconds == 2 * flops / 8
    assert counted(lambda: z @ z).roofline(device).seconds == 4 * flops / 0.5  # a complex number is two of fp64
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = fk.count(torch.nn.Linear(8, 8, bias=False), torch.ones(2, 8))
    assert cast.roofline(device).peaks == {"bf16": 8.0}  # the format that the product ran in


@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_attention_meets_the_peak_of_its_own_format(kernel):
    q = numbers(1, 2, 64, 16, dtype=torch.bfloat16).requires_grad_()
    with fk.counting(attention=kernel) as report:
        F.scaled_dot_product_attention(q, q, q).sum().backward()
    timing = report.roofline(fk.Device("d", peak={"fp32": 1.0, "bf16": 8.0}, bandwidth=1e12))
    assert timing.peaks == {"bf16": 8.0} and timing.utilisation == pytest.approx(1, abs=1e-6)


def test_a_format_that_the_device_has_no_peak_for_names_the_operator():
    y = numbers(4, 4, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="mm runs in bf16: .*pass dtype= to take one format for every operator"):
        counted(lambda: y @ y).roofline("t4")


def test_a_format_with_a_mode_and_the_fastest_way_to_multiply_it():
    """H100's matrix units take float64 as it is, twice as fast as its lanes; float32 they round first."""

    def square(dtype):
        x = numbers(512, 512, dtype=dtype)
        return counted(torch.mm, x, x)

    flops = 2 * 512**3
    exact = square(torch.float64)
    assert exact.roofline("h100-sxm").peaks == {"fp64_tensor": fk.device("h100-sxm").peak("fp64_tensor")}
    assert exact.roofline("h100-sxm", "fp64").compute_seconds == flops / fk.device("h100-sxm").peak("fp64")
    assert set(square(torch.float32).roofline("h100-sxm").peaks) == {"fp32"}


def test_wide_integers_have_no_peak_and_stop_no_report():
    x = numbers(4, 4, dtype=torch.int64)
    timing = counted(torch.mm, x, x).roofline("h100-sxm")
    assert timing.notes == ["1 calls in int64, for which the device has no peak, are in it with their bytes alone"]
    assert timing.seconds == 2 * 16 * 8 / fk.device("h100-sxm").bandwidth


def test_a_device_of_ones_own_is_asked_for_the_formats_that_ran_alone():
    class Mine:
        bandwidth = 1e12

        def peak(self, dtype):
            return {"fp32": 1e13}[dtype]

    assert counted(torch.mm, numbers(8, 8), numbers(8, 8)).roofline(Mine()).peaks == {"fp32": 1e13}


def test_a_report_that_was_pickled_knows_its_formats():
    y = numbers(64, 64, dtype=torch.bfloat16)
    report = counted(lambda: y @ y)
    assert pickle.loads(pickle.dumps(report)).roofline("h100-sxm").seconds == report.roofline("h100-sxm").seconds


def test_under_exact_hidden_pairs_that_were_skipped_take_no_time():
    q = numbers(1, 1, 64, 16)
    with fk.counting(attention="flash") as report:
        F.scaled_dot_product_attention(q, q, q, is_causal=True)
    device = fk.Device("d", peak={"fp32": 1.0}, bandwidth=1e9)
    assert report.roofline(device, "fp32").seconds == 4 * 64 * 64 * 16
    assert report.under(fk.conventions.EXACT).roofline(device, "fp32").seconds == 4 * (64 * 65 // 2) * 16


def test_an_operator_that_nobody_knows_is_there_with_its_bytes():
    @torch.library.custom_op("flopkit_tests::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)

    timing = fk.count(opaque, torch.ones(10)).roofline(SMALL, "fp32")
    assert timing.seconds == pytest.approx(80 / 10)
    assert timing.notes == ["1 calls of operators that nobody knows are in it with their bytes alone"]
    assert "nobody knows" in repr(timing)


def test_calls_that_no_counter_saw():
    """A program may as well be written down: two operators on a wide format each, one that nobody knows, one in bf16."""
    program = [
        Calls("mm", "forward", 2, "int64", flops=100, bytes=10, is_known=True),
        Calls("bmm", "forward", 1, "int16", flops=100, bytes=20, is_known=True),
        Calls("mylib.op", "update", 3, "", flops=0, bytes=30, is_known=False),
        Calls("mm", "update", 4, "bf16", flops=1250, bytes=1, is_known=True),
    ]
    timing = program_bound(program, SMALL, None, phases=("forward", "update"), convention=fk.conventions.TORCH)
    assert timing.by_phase == {"forward": 2 * 1 + 2, "update": 3 * 3 + 4 * 1}
    assert [row["operator"] for row in timing.rows] == ["mylib.op", "mm", "mm", "bmm"]
    assert [note.split(",")[0] for note in timing.notes] == [
        "3 calls of operators that nobody knows are in it with their bytes alone",
        "2 calls in int64",
        "1 calls in int16",
    ]


def test_nothing_takes_no_time():
    timing = counted(lambda: None).roofline("h100-sxm", "bf16")
    assert (timing.seconds, timing.rows, timing.utilisation) == (0, [], 0)
    assert isinstance(timing, ProgramBound) and "at least 0 s" in repr(timing)


def test_the_ceiling_of_utilisation():
    a, b = numbers(1000, 1000), numbers(1000, 1000)
    timing = counted(lambda: (a @ b) + 1).roofline(fk.Device("d", peak={"fp32": 2e9}, bandwidth=8e6), "fp32")
    assert timing.seconds == pytest.approx(1.5 + 1)  # the product by memory (12 MB), the sum (8 MB)
    assert timing.utilisation == pytest.approx(2e9 / 2.5 / 2e9)


def test_text_and_html():
    layer = torch.nn.Linear(8, 16, device="meta")
    timing = counted(layer, numbers(4, 8)).roofline("h100-sxm", "bf16")
    text, page = repr(timing), timing._repr_html_()
    for part in ("h100-sxm", "bf16", "TORCH", "addmm", "memory"):
        assert part in text and part in page
    assert page.count("<table") == 1 and "989.4 TFLOP/s" in text
    assert len(timing.table()) == len(timing.rows) and str(timing.table()).startswith("least time on h100-sxm, bf16")


@pytest.mark.parametrize(
    "device, dtype, error, words",
    [("h900", "bf16", ValueError, r"is not a device in the data.*fk\.Device\('h900'"), ("h100-sxm", "int3", ValueError, "number format"), ("t4", "fp8", ValueError, "it has"),
     (3, "bf16", TypeError, "device=3")],
)  # fmt: skip
def test_bad_input(device, dtype, error, words):
    with pytest.raises(error, match=words):
        counted(lambda: None).roofline(device, dtype)
