"""What the counters of an H200 said, as it ships: each executed FLOP of a product is explained by the tiles of its kernel."""

import math

import pytest

from flopkit.measuring.hardware.cases import CASES
from flopkit.measuring.hardware.tiles import tiles, whole
from flopkit.recordings import hardware_counts

FOUND = hardware_counts()
TENSOR = {"bf16", "fp16", "fp8", "tf32", "fp64"}


def test_every_case_ran_and_was_judged():
    assert list(FOUND.cases) == list(CASES)
    assert {name: each["verdict"] for name, each in FOUND.cases.items() if each["verdict"] != "agrees"} == {
        "conv3x3_fp32": "reported"
    }
    assert FOUND.provenance["torch"] == "2.11.0+cu130" and "H200" in FOUND.device and "virtual machine" in FOUND.whose


def executed(name, dtype):
    return sum(kernel["executed"].get(dtype, 0) for kernel in FOUND.cases[name]["kernels"])


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_add_up(name):
    case = FOUND.cases[name]
    assert {dtype: executed(name, dtype) for dtype in case["executed"]} == case["executed"]


# Read off the names by hand: 192 goes 85.3 times into 16,384 and 42.7 times into 8,192, whose tiles come in pairs, hence 86 and 44.
UP = 86 * 192 * 44 * 192 * 2 * 4096
WEIGHT = 52 * 320 * 4096 * 2 * 8192  # 320 goes 51.2 times into 16,384
DOWN = 2 * 8192 * 4096 * 16384


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("mm_bf16", 2 * 4096**3), ("mm_bf16_ragged", 2 * 4096 * (22 * 192) * (24 * 176)), ("first_layer_fb", UP + WEIGHT),
        ("mlp_fb", 2 * UP + 2 * DOWN + 2 * WEIGHT), ("mlp_fb_checkpoint", 3 * UP + 2 * DOWN + 2 * WEIGHT),
    ],
)  # fmt: skip
def test_products_execute_whole_tiles_to_the_last_flop(name, flops):
    """(The weight's gradient of the second layer has 4,096 columns, 12.8 tiles of 320 and so 13: as many more as 52 for 51.2.)"""
    assert 52 / 51.2 == 13 / 12.8
    assert executed(name, "bf16") == FOUND.cases[name]["whole_tiles"] == flops


def test_a_causal_mask_leaves_whole_blocks():
    """FlashAttention-2's blocks of 128 queries by 64 keys: of a row of blocks those up to its end."""
    pairs = sum(128 * 128 * (row + 1) for row in range(4096 // 128))
    assert executed("flash_causal", "bf16") == 2 * 16 * 4 * 128 * pairs
    assert executed("flash", "bf16") == 2 * 16 * 4 * 128 * 4096**2
    assert executed("flash_fb", "bf16") * 2 == executed("flash", "bf16") * 7


def test_a_depthwise_convolution_skips_its_padding():
    """Of 3 taps at each of 56 places along a side two lie on padding; three kernels, and the sums of the weight's gradient."""
    taps = 64 * 512 * (3 * 56 - 2) ** 2
    one = [kernel["executed"]["fp32"] for kernel in FOUND.cases["depthwise_fb"]["kernels"]]
    assert one[0] == one[2] == 2 * taps and 0 < one[1] - 2 * taps < 0.01 * one[1]


def test_the_sum_of_two_arrays_is_one_multiply_add_each():
    assert executed("add_fp32", "fp32") == 2 * 2**27 and executed("mul_fp32", "fp32") == 2**27


def products():
    """(step, line) of each product whose one kernel tells its tiles."""
    for step, lines in FOUND.steps.items():
        for line in lines:
            if line["watched"] and line["counted"]["flops"] and len(line["kernels"]) == 1 and tiles(line["kernels"][0]):
                yield step, line


def sizes(line):
    """Rows, columns and inner size of a product, or of a 1 × 1 convolution."""
    if line["operator"] == "convolution":
        (n, inner, *side), (columns, *_) = line["shapes"]
        return n * math.prod(side), columns, inner
    (rows, inner), (_, columns) = line["shapes"]
    return rows, columns, inner


def test_the_products_of_whole_steps_execute_their_tiles():
    """All products of a GPT block, forward and backward, and the first 1 × 1 convolutions of MobileNetV2, most of which fill their sums up to 64."""
    found = list(products())
    assert [step for step, _ in found].count("gpt_block") == 15 and [s for s, _ in found].count("mobilenet_v2") == 5
    for _, line in found:
        assert line["executed"]["bf16"] == whole(line["kernels"][0], *sizes(line)), line
    worst = max(line["executed"]["bf16"] / line["counted"]["flops"] for _, line in found)
    assert 4 < worst < 4.01  # 16 channels go into sums of 64


def test_attention_of_the_step_computes_blocks_of_128():
    """cuDNN's kernels, which this torch chose: two products of the visible blocks forward, five backward."""
    there, back = (
        line["executed"]["bf16"] for line in FOUND.steps["gpt_block"] if "cudnn_attention" in line["operator"]
    )
    blocks = sum(128 * 128 * (row + 1) for row in range(2048 // 128))
    assert there == 4 * 16 * 2 * 2 * 128 * blocks and back * 2 == there * 5


def test_a_step_counts_what_it_runs():
    """Of the GPT block all operators that move bytes were watched, of MobileNetV2 the first."""
    block, mobile = FOUND.steps["gpt_block"], FOUND.steps["mobilenet_v2"]
    assert all(line["watched"] for line in block) and 20 < sum(line["watched"] for line in mobile) < len(mobile)
    counted, ran = (
        sum(line["calls"] * value(line) for line in block)
        for value in (
            lambda line: line["counted"]["flops"],
            lambda line: sum(line["executed"].get(f, 0) for f in TENSOR),
        )
    )
    assert counted == 5948647145472 and 1.01 < ran / counted < 1.02


@pytest.mark.parametrize(
    "name", ["sm80_xmma_gemm_f32f32", "void at::native::add", "nvjet", "nvjet_sm90_tst_192_64x3_1x2_h"]
)
def test_a_name_that_tells_no_tiles(name):
    assert tiles(name) is None and whole(name, 1, 1, 1) is None
