"""The figure of the clinic: rows by hand and by counting programs, what a cure may gain, and the names of the advice."""

import ast
import inspect
import math
import random

import pytest

import flopkit as fk
from flopkit.book.gallery import cures
from flopkit.book.gallery.clinic import CURES, ROWS
from flopkit.book.gallery.patients import ADAM_KERNELS, ADAM_LOOP, GELU, GELU_KERNELS, LLAMA_KERNELS, PATIENTS
from flopkit.profiling import advising

FIGURE = cures()
DECODE, GPT, RESNET, CHAIN = PATIENTS
H100, BANDWIDTH = 989.4e12, 3.35e12
TOUCHED = {  # the rows that a cure may make shorter; the wait for launches depends on all that run on the device
    "fuse": ("pointwise", "host"), "launches": ("host",), "flash": ("attention", "host"),
    "half": ("products", "attention", "pointwise"), "ahead": ("loader",), "grow": (*ROWS,), "one": ("optimizer", "host"),
}  # fmt: skip


def in_ms(**settings):
    """Milliseconds of each row as it is, and with the cures ticked."""
    rows = {row["row"]: row for row in FIGURE.rows(**settings)}
    return {name: (rows[title]["ms_before"], rows[title]["ms_after"]) for name, title in ROWS.items()}


def test_the_device_is_the_one_of_these_numbers():
    card = fk.device("h100-sxm")
    assert (card.peak("bf16"), card.peak("fp32"), card.bandwidth) == (H100, 67e12, BANDWIDTH)


def test_a_decode_step_waits_for_its_launches():
    """16 layers of 7 products, 1 attention and 30 small kernels, a norm of 8 and a head; 1,235,814,400 parameters, 33 norms of 2,048 among them."""
    launches, moved = 16 * (7 + 1 + 30) + 8 + 1, 2 * (1_235_814_400 - 33 * 2048)
    before, after = in_ms(patient=DECODE, launches=True)["products"]
    assert before == after == pytest.approx(1e3 * moved / BANDWIDTH, rel=2e-3)  # activations are few
    eager, graph = FIGURE.at(patient=DECODE), FIGURE.at(patient=DECODE, launches=True)
    assert eager["before"] == pytest.approx(launches * 5e-6) and graph["after_launching"] == 5e-6
    cache = 16 * 2 * 8 * 64 * 1024 * 2
    assert graph["after"] == pytest.approx((moved + cache) / BANDWIDTH, rel=5e-3)
    assert in_ms(patient=DECODE, launches=True)["host"][1] == 0
    assert FIGURE.at(patient=DECODE, launches=True)["best"] == "grow"
    # Fused, a layer has 4 small kernels in place of 30, and the host launches faster than a device at 70 % of its roof runs.
    fused = FIGURE.at(patient=DECODE, reach=0.7, fuse=True)
    assert fused["after_launching"] == pytest.approx((16 * 12 + 2) * 5e-6) and fused["after_host"] == 0


def test_a_training_step_of_gpt_2_by_hand():
    """124,439,808 parameters, of which 1,024 × 768 are positions and the norms and biases no products."""
    tokens, d, layers, vocab = 16 * 1024, 768, 12, 50257
    weights = layers * 12 * d**2 + vocab * d
    products, in_half = (in_ms(patient=GPT, half=half)["products"][1] for half in (False, True))
    assert products == pytest.approx(1e3 * 6 * weights * tokens / 67e12, rel=1e-12)
    assert in_half == pytest.approx(1e3 * 6 * weights * tokens / H100, rel=1e-12)
    pairs = 16 * 12 * layers * 1024**2  # of all heads, layers and sequences, hidden ones included
    by_hand, fused = in_ms(patient=GPT, flash=True)["attention"]
    # Six products of 2·64 FLOPs each pair; the softmax moves 2 scores forward and 3 back.
    assert by_hand == pytest.approx(1e3 * pairs * (6 * 2 * 64 / 67e12 + 5 * 4 / BANDWIDTH), rel=1e-12)
    # Seven products (scores once more), of visible pairs.
    assert fused == pytest.approx(1e3 * pairs * 1025 / 2048 * 7 * 2 * 64 / 67e12, rel=1e-12)
    assert in_ms(patient=GPT, one=True)["optimizer"] == pytest.approx(
        [1e3 * 124_439_808 * n / BANDWIDTH for n in (80, 28)]
    )
    assert in_ms(patient=GPT, reach=0.5)["products"][0] == pytest.approx(2 * products, rel=1e-12)
    needed = 6 * weights * tokens + 3 * 4 * 64 * pairs * 1025 / 2048
    step = FIGURE.at(patient=GPT)
    assert step["mfu_before"] == pytest.approx(needed / step["before"] / H100, rel=1e-12)


def test_small_operators_by_hand():
    """GPT-2: elements that each operator reads and writes, forward and backward; ResNet-50: the maps of its 53 norms."""
    d, logits = 16 * 1024 * 768, 16 * 1024 * 50257
    plain = 12 * (2 * (2 + 3 + 3 + 3) + 4 * 46) * d + 5 * d + (1 + 1 + 1 + 3) * logits
    fused = 12 * (2 * (4 + 4) + 4 * 5) * d + 5 * d + 3 * logits
    found = in_ms(patient=GPT, fuse=True)["pointwise"]
    assert found == pytest.approx([1e3 * 4 * n / BANDWIDTH for n in (plain, fused)], rel=1e-3)
    stages = [(64, 56, 3, 56), (128, 28, 4, 56), (256, 14, 6, 28), (512, 7, 3, 14)]  # the first 3 × 3 takes the stride
    norms, activations, sums = 64 * 112**2, 64 * 112**2, 0
    for width, side, blocks, before in stages:
        inner = width * before**2 + (2 * blocks - 1) * width * side**2
        outer = 4 * width * side**2
        norms, activations, sums = (
            norms + inner + (blocks + 1) * outer,
            activations + inner + blocks * outer,
            sums + blocks * outer,
        )
    pools = 64 * 112**2 + 64 * 56**2 + 2048 * 50
    numbers = 5 * (norms + activations) + 2 * (3 * sums + pools), 5 * norms + 2 * (sums + pools)
    found = in_ms(patient=RESNET, fuse=True)["pointwise"]
    assert found == pytest.approx([1e3 * 64 * 2 * n / BANDWIDTH for n in numbers], rel=1e-3)


def test_a_larger_batch_shares_what_a_step_does_once():
    found = FIGURE.at(patient=GPT, grow=True)
    assert found["after_optimizer"] == pytest.approx(found["before_optimizer"] / 8)
    assert found["after_launching"] == pytest.approx(found["before_launching"] / 8)
    assert found["after_products"] == found["before_products"], "compute-bound"
    weights = FIGURE.at(patient=DECODE, grow=True)
    assert weights["after_products"] == pytest.approx(weights["before_products"] / 8, rel=1e-2)


def test_images_are_waited_for_one_after_the_other():
    before, after = in_ms(patient=RESNET, load=2, ahead=True)["loader"]
    assert (before, after) == (128, 0)
    waiting = FIGURE.at(patient=RESNET, load=2)
    assert waiting["best"] == "ahead" and waiting["gain"] == pytest.approx(0.128 / waiting["before"])
    images = 64 * (3 * 4_089_184_256 - 7**2 * 3 * 64 * 112**2) * 2  # the first layer has no gradient of its input
    assert waiting["mfu"] == pytest.approx(images / waiting["after"] / H100, rel=1e-12)


def test_a_chain_moves_its_tensor_eighteen_times_or_twice():
    chain = in_ms(patient=CHAIN, fuse=True)["pointwise"]
    assert chain == pytest.approx([1e3 * 2**26 * 4 * n / BANDWIDTH for n in (18, 2)])
    assert FIGURE.at(patient=CHAIN)["mfu"] == 0 and FIGURE.at(patient=CHAIN)["best"] == "fuse"


def test_the_best_cure_is_told_only_after_one_that_helps_is_ticked():
    start, one = FIGURE.at(), FIGURE.at(fuse=True)
    assert (FIGURE.controls["patient"].value, start["best"], start["told"]) == (GPT, "half", "hidden")
    assert FIGURE.at(ahead=True)["told"] == "hidden", "GPT-2 loads nothing"
    assert one["told"] == one["best"] == "half" and FIGURE.at(half=True)["told"] == "fuse"


def counted(step, *inputs):
    """Bytes and calls that do something, forward and backward."""
    report = fk.count(step, *inputs)
    rows = [row for row in report.by_op().rows if row["bytes"]]
    return {phase: (sum(row["bytes"] for row in rows if row["phase"] == phase), sum(row["calls"] for row in rows if row["phase"] == phase))
            for phase in ("forward", "backward", "optimizer")}  # fmt: skip


def test_gelu_and_adam_are_what_programs_of_single_operators_move():
    torch = pytest.importorskip("torch")
    x, ones = torch.randn(64, 256, requires_grad=True), torch.ones(64, 256)

    def gelu():
        torch.autograd.grad(
            0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))), x, ones
        )

    found, size = counted(gelu), 4 * x.numel()
    assert found["forward"] == (GELU[0] * size, GELU_KERNELS[0]) and found["backward"] == (
        GELU[1] * size,
        GELU_KERNELS[1],
    )
    weight = torch.nn.Parameter(torch.randn(64, 256))
    weight.grad = torch.ones_like(weight)
    adam = torch.optim.AdamW([weight], foreach=False)
    adam.step()
    moved, calls = counted(adam.step)["optimizer"]
    assert (
        moved == pytest.approx(ADAM_LOOP * size, rel=1e-4) and calls == ADAM_KERNELS + 1
    )  # one of them counts the steps, on the host


def test_kernels_of_a_llama_in_single_operators():
    torch = pytest.importorskip("torch")
    x, gain = torch.randn(8, 64).bfloat16(), torch.ones(64).bfloat16()

    def norm():
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return wide.to(x.dtype) * gain

    def turn():
        one, two = x.chunk(2, dim=-1)
        return x * gain + torch.cat((-two, one), dim=-1) * gain

    def gated():
        return torch.nn.functional.silu(x) * x

    assert counted(norm)["forward"][1] == LLAMA_KERNELS["norm"]
    assert (
        2 * counted(turn)["forward"][1] == LLAMA_KERNELS["rotary"]
        and counted(gated)["forward"][1] == LLAMA_KERNELS["swiglu"]
    )


@pytest.mark.parametrize("patient", PATIENTS)
def test_a_cure_gains_no_more_than_its_rows_take(patient):
    rng = random.Random(patient)
    for _ in range(8):
        state = {name: rng.choice(control.options) for name, control in FIGURE.controls.items()} | {"patient": patient}
        now = FIGURE.at(**state)
        shares = {}
        for cure, rows in TOUCHED.items():
            cured = FIGURE.at(**state | {cure: True})
            shares[cure] = 1 - cured["after"] / now["after"]
            assert -1e-12 <= shares[cure] * now["after"] <= 1.000001 * sum(now[f"after_{row}"] for row in rows) + 1e-12
            assert cured["after"] >= 0.999999 * now["least"]
        most = max(shares.values())
        assert now["gain"] == pytest.approx(most if most > 0.0005 else 0, abs=1e-9)
        assert now["best"] == "none" if not now["gain"] else shares[now["best"]] == pytest.approx(most)
        assert now["mfu"] <= state["reach"] * 1.000001
        assert now["least"] <= now["after"] * 1.000001 <= now["before"] * 1.000002


def test_the_cures_are_called_as_the_advice_is():
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(advising))) if isinstance(node, ast.Call)]
    kinds = {
        call.args[0].value
        for call in calls
        if getattr(call.func, "id", "") == "Advice" and isinstance(call.args[0], ast.Constant)
    }
    assert set(CURES.values()) < kinds
