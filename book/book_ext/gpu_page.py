"""The parts of the page "What a GPU said": what the counters of an H200 executed beside
what was counted. Markdown tables."""

import flopkit as fk
from book_ext.markdown_table import table
from flopkit.measuring.hardware.cases import CASES
from flopkit.measuring.hardware.tiles import tiles, whole
from flopkit.recordings import hardware_counts
from flopkit.units import si

PROGRAMS = {
    "mm_bf16": "Product, bf16, 4,096³", "mm_bf16_ragged": "the same with 4,097 rows", "mm_fp16": "Product, fp16", "mm_tf32": "Product, tf32",
    "mm_fp32": "Product, fp32", "mm_fp64": "Product, fp64, 2,048³", "mm_fp8": "Product, fp8", "add_fp32": "Sum of two arrays",
    "mul_fp32": "Product of two arrays", "conv3x3_fp32": "3×3 convolution, fp32", "conv3x3_bf16": "3×3 convolution, bf16",
    "depthwise_fb": "Depthwise convolution, forward and backward", "flash": "FlashAttention", "flash_causal": "FlashAttention, causal",
    "flash_fb": "FlashAttention, forward and backward", "mlp_fb": "MLP, forward and backward", "mlp_fb_checkpoint": "the same, checkpointed",
    "first_layer_fb": "First layer, forward and backward",
}  # fmt: skip
WHY = {
    "mm_bf16": "All sizes are multiples of the tiles.", "mm_bf16_ragged": "Tiles of 192 × 176, in pairs.", "mm_fp32": "The same units scale the result.",
    "mm_fp64": "The same units scale the result.", "add_fp32": "The kernel computes *x* + 1 · *y* in one FMA.",
    "conv3x3_fp32": "No Winograd here: every tap is multiplied.", "depthwise_fb": "Taps on padding are skipped.", "flash_causal": "Blocks of 128 queries by 64 keys are whole.",
    "flash_fb": "3.5 times the forward pass: the scores are computed again, and counted.", "mlp_fb": "Tiles of 192 × 192 and 320 × 128.",
    "mlp_fb_checkpoint": "Tiles, as above. What is recomputed is counted.", "first_layer_fb": "Tiles, as above.",
}  # fmt: skip


def expected(case):
    if case.accepted is None:
        return "not said"
    return " to ".join(f"{x:g}" for x in dict.fromkeys(case.accepted))


def cases():
    """A row for each program: what we had expected, what the counters said, and why."""
    found = hardware_counts().cases
    rows = [["Program", "expected", "executed / counted", "memory / counted", "Why"]]
    for name, title in PROGRAMS.items():
        each = found[name]
        ratio = f"{each['ratio']:.5g}"
        tiled = each.get("whole_tiles") == each["executed"][CASES[name].dtype] > each["counted"]["flops"]
        row = (
            title,
            expected(CASES[name]),
            f"**{ratio}**" if tiled else ratio,
            f"{each['bytes_ratio']:.2f}",
            WHY.get(name, ""),
        )
        rows.append(list(row))
    head, line, *body = table(rows).splitlines()
    return "\n".join([head, line[: line.rindex("--:")] + ":-- |", *body])  # the last column holds words


def sums():
    """1 × 1 convolutions of MobileNetV2: the channels in, and what their kernels
    execute."""
    rows = [["1 × 1 convolution", "map", "executed / counted", "by the kernel's name"]]
    for line in hardware_counts().steps["mobilenet_v2"]:
        if line["watched"] and line["counted"]["flops"] and tiles(line["kernels"][0]):
            (n, inner, *side), (columns, *_) = line["shapes"]
            named = whole(line["kernels"][0], n * side[0] * side[1], columns, inner)
            counted = line["counted"]["flops"]
            rows.append(
                [f"{inner} → {columns} channels", f"{side[0]} × {side[1]}", f"{line['executed']['bf16'] / counted:.4f}", f"{named / counted:.4f}"]
            )  # fmt: skip
    return table(rows)


def norms():
    """Batch norms of MobileNetV2 by the size of their map: what the memory moved over
    one read and one write."""
    rows, seen = [["Map", "bytes of the map", "memory / counted"]], set()
    for line in hardware_counts().steps["mobilenet_v2"]:
        if line["watched"] and line["operator"] == "native_batch_norm":
            n, channels, height, width = line["shapes"][0]
            held = 2 * n * channels * height * width
            if held not in seen:
                seen.add(held)
                rows.append([f"{n} × {channels} × {height} × {width}", si(held, "B"), f"{line['memory'] / line['counted']['bytes']:.2f}"])  # fmt: skip
    head, *body = rows
    return table([head, *sorted(body, key=lambda row: float(row[2]))])


def recorded():
    """What was recorded, in a sentence."""
    [one] = [each for each in fk.recordings.recordings("ours") if each.provenance["type"] == "cuda"]
    about, unsteady = one.provenance, sum(not each["steady"] for each in one.results)
    launched = sum(any("launching a call" in note for note in each["notes"]) for each in one.results)
    return (
        f"{len(one.results)} measurements of {len({each['experiment'] for each in one.results})} experiments, on {about['when'][:10]}: driver {about['driver']}, "
        f"PyTorch {about['torch'].partition('+')[0]}, CUDA {about['cuda']}. None was *wrong* or *impossible*. In {unsteady} the times had not become steady before the "
        f"measurement began, and in {launched} launching set the pace; both are noted with the case."
    )
