"""Our H200: what probably explains each prediction that missed on it, with the numbers
of its recording."""

from __future__ import annotations

from flopkit.book.explanations.machine import Machine
from flopkit.experiments.cnn_operators import OPERATOR_KINDS
from flopkit.experiments.cnns import SHOWN, SMALL
from flopkit.experiments.expectations import launch
from flopkit.models.vision import cnn, cnn_names

__all__ = ["H200", "held_by_chance", "not_measured", "undecided"]

H200 = Machine(
    device="h200",
    scale="gpu",
    name="one H200",
    heading="One H200: kernels below the bandwidth, and a host too slow to launch",
    lead="Two causes recur: some kernels stay far below the memory's bandwidth, and the host of this virtual machine is slow to launch. "
    "Where the recording does not show the cause, we name what would.",
    digits=3,
    missing={
        "all_reduce": "It needs at least two GPUs, and we had one.",
        "strategies": "It is younger than the recording, and its ranks are processes on a CPU.",
        "wire": "It is younger than the recording, and its ranks are processes on a CPU.",
    },
)


def not_measured(of: Machine) -> str:
    """What the recording lacks."""
    formats, methods = 3, 3  # bf16, TF32, fp32; one image, an epoch, compiled
    made, whole = len(of.records("cnns")), len(cnn_names()) * formats + len(SHOWN) * methods
    return (
        f"On our H200, {whole - made} of the {whole} cases of the thirteen networks are missing, so no part tests what compiling "
        "MobileNetV2 gains."
    )


@H200.explains
def matmul_sizes(of: Machine) -> str:
    def longer(dtype: str) -> float:
        return of.seconds("matmul_sizes", n=512, dtype=dtype) / of.seconds("matmul_sizes", n=256, dtype=dtype)

    return (
        "The prediction assumes that a small product's time is mostly the cost of a call. But we time products this short inside a CUDA "
        "graph, which leaves out the launches. What remains is the kernel, and it takes longer for the larger product: "
        f"{longer('bf16'):.1f}× as long for 512 × 512 as for 256 × 256 in bf16, and {longer('fp32'):.1f}× in fp32."
    )


@H200.explains
def dense_batch(of: Machine) -> str:
    one, many = ({"tokens": n, "dtype": "tf32"} for n in (1, 64))
    bend = 2048 * of.seconds("dense_batch", **many) / of.seconds("dense_batch", tokens=2048, dtype="tf32")
    return (
        f"A single token is slow. In TF32 it takes {of.time('dense_batch', **one)}, longer than 64 tokens, and it reaches "
        f"{of.reached('dense_batch', **one)} of the bandwidth, where 64 tokens reach {of.reached('dense_batch', **many)}. A flat line "
        f"through 64 tokens, the shortest time, gives a bend at {bend:.0f} tokens ([chapter 12](12_roofline.ipynb)): inside the limits that we set. They are "
        "generous: they allow no shift at all, too. In bf16 the device waits for launches up to 256 tokens, so "
        "its flat part shows the host rather than the memory."
    )


@H200.explains
def convolutions(of: Machine) -> str:
    plain = {"dtype": "fp32", "layout": "NCHW"}
    return (
        f"It failed in fp32 only: the dense layer reaches {of.flops('convolutions', kind='dense', **plain)} there, the pointwise one "
        f"{of.flops('convolutions', kind='pointwise', **plain)}, and a product of 8,192 × 8,192 "
        f"{of.flops('matmul_sizes', n=8192, dtype='fp32')}. The recording does not show which algorithm cuDNN took; a profile of the dense "
        "layer would."
    )


@H200.explains
def attention_kernels(of: Machine) -> str:
    math = {"kernel": "math", "tokens": 4096, "causal": False}
    products = of.cases("attention_kernels")(**math)["counted"]["flops"] / of.peak("tf32")
    return (
        "The math kernel is slower than we assumed. It converts bf16 inputs to fp32, as a trace of its operators on a CPU shows, and we had "
        f"allowed TF32: at the rate of our TF32 products, its own take {of.si(products, 's')} of its {of.time('attention_kernels', **math)}. "
        "Most of the rest is bytes: its operators move 36 bytes for each score, where we had counted 8 ([chapter 15](15_fusion.ipynb))."
    )


@H200.explains
def experts(of: Machine) -> str:
    few, many = ({"tokens": n, "load": "balanced"} for n in (64, 16384))
    dense = {"tokens": 16384, "load": "dense"}
    cases = of.cases("experts")
    work, moved = cases(**many)["counted"], cases(**dense)["counted"]["bytes"]
    least = work["flops"] / of.peak("bf16") + work["bytes"] / of.bandwidth
    weights = 2 * cases(**few)["extra"]["weights"]
    return (
        f"With 16,384 tokens the experts make {of.flops('experts', **many)}, the dense layer {of.flops('experts', **dense)}. By the count of "
        f"their operators, the experts move {of.si(work['bytes'], 'B')}, the dense layer {of.si(moved, 'B')}. But at the rates that we "
        "measured, the experts' products and bytes together would take only "
        f"{100 * least / of.seconds('experts', **many):.0f} % of {of.time('experts', **many)}. A profile would tell what takes the rest. "
        f"With 64 tokens the prediction held, but not for its reason: reading all weights takes {of.si(weights / of.bandwidth, 's')}, and the "
        f"layer {of.time('experts', **few)}, about as long as with 1,024 tokens. Launching hundreds of small kernels probably takes that time."
    )


@H200.explains
def gpt_step(of: Machine) -> str:
    largest = {"batch": 16, "dtype": "bf16"}
    saved = of.seconds("gpt_step", **largest, compiled=False) - of.seconds("gpt_step", **largest, compiled=True)
    return (
        f"Compiling saves {of.si(saved, 's')} of {of.time('gpt_step', **largest, compiled=False)}. At 16 sequences the eager step does not "
        "wait for launches, so there are none to save. Why fusing saves no more than that, we don't know: a profile of both steps would tell."
    )


@H200.explains
def cnns(of: Machine) -> str:
    last = {"network": SMALL[0], "layout": "NHWC"}
    first = {"network": SMALL[0], "layout": "NCHW"}
    step = {"network": "resnet18", "dtype": "fp32", "compiled": False}
    epoch, batch = (of.cases("cnns")(**step, method=method) for method in ("epoch", "batch"))
    copied = epoch["seconds"]["mean"] * batch["extra"]["images"] / epoch["extra"]["images"] - batch["seconds"]["mean"]
    images = 64 * 3 * 224 * 224 * 4
    # the optimiser reads weight, gradient and momentum, and writes weight and momentum, in fp32
    optimiser = 5 * 4 * cnn("resnet18", batch=64, height=224, width=224).params / of.bandwidth
    return (
        "MobileNetV2 misses its bound for more than one reason. In bf16 the step waits for launches: as a CUDA graph it takes "
        f"{of.time('cnn_operators', **last, dtype='bf16', mode='graph')} instead of "
        f"{of.time('cnn_operators', **last, dtype='bf16', mode='eager')}. But even the graph reaches only "
        f"{of.reached('cnn_operators', **last, dtype='bf16', mode='graph')} of the bandwidth, so its kernels are slow, too. In fp32 a graph "
        "saves next to nothing, and the order of the channels matters: with channels last, the graph takes "
        f"{of.time('cnn_operators', **last, dtype='fp32', mode='graph')}, with channels first "
        f"{of.time('cnn_operators', **first, dtype='fp32', mode='graph')}. The epoch adds {of.si(copied, 's')} per batch to ResNet-18. "
        f"Probably this is the copy of the images, {of.si(images, 'B')} per batch from the host's pageable memory, because the bytes of the "
        f"optimiser would take only {of.si(optimiser, 's')}."
    )


@H200.explains
def cnn_operators(of: Machine) -> str:
    cases, two = of.cases("cnn_operators"), ("norms", "depthwise")

    def kernels(network: str, layout: str, *kinds: str) -> float:
        found = cases(network=network, layout=layout, dtype="bf16", mode="eager")["extra"]
        return sum(float(found[kind]) for kind in kinds)

    share = kernels(SMALL[0], "NCHW", *two) / kernels(SMALL[0], "NCHW", *OPERATOR_KINDS)
    faster = kernels(SMALL[0], "NCHW", *two) / kernels(SMALL[0], "NHWC", *two)
    norms = kernels("resnet50", "NCHW", "norms") / kernels("resnet50", "NCHW", *OPERATOR_KINDS)
    efficient = {"network": SMALL[1], "layout": "NHWC", "dtype": "fp32"}
    host = launch(cases(**efficient, mode="eager"))
    assert host is not None, "the device waits for its host"
    return (
        "A graph saves more than a tenth only of EfficientNet-B0 with channels last: launching its step took the host "
        f"{of.si(host, 's')}, while the graph takes {of.time('cnn_operators', **efficient, mode='graph')}. Channels last helps MobileNetV2 "
        "more than ResNet-50, because batch norms and depthwise convolutions gain most from it. In bf16 they take "
        f"{100 * share:.0f} % of MobileNetV2's kernel time with channels first, and together become {faster:.1f}× as fast. ResNet-50 has no "
        f"depthwise convolutions, and its batch norms take {100 * norms:.0f} %."
    )


@H200.explains
def fusion(of: Machine) -> str:
    def moved(program: str, form: str) -> str:
        return of.moved("fusion", program=program, form=form)

    return (
        f"We assumed that separate operators reach the memory's bandwidth, and they reach half of it: {moved('norm', 'eager')} of "
        f"{of.si(of.bandwidth, 'B/s')}. So fusing saves bytes and moves the remaining ones faster, at {moved('chain', 'compiled')} in the "
        f"chain and {moved('norm', 'compiled')} in the norm. Torch's own layer norm moves the same bytes as the compiled one at only "
        f"{moved('norm', 'layer_norm')}. Which limit holds these kernels back, the recording does not show; hardware counters would."
    )


@H200.explains
def decode(of: Machine) -> str:
    def late(batch: int) -> str:
        short, long = (of.seconds("decode", batch=batch, context=n, mode="graph") for n in (1024, 8192))
        return of.si(long - short, "s")

    eager = [of.seconds("decode", batch=n, context=1024, mode="eager") for n in (1, 4, 16, 64)]
    return (
        f"Even as a CUDA graph, a step for one sequence stays at {of.reached('decode', batch=1, context=1024, mode='graph')} of the bandwidth "
        "at the short context, where nearly all bytes are weights; a profile would tell which kernels are slow. The long context adds "
        f"{late(1)} for one sequence and {late(4)} for four, which read four times the cache. So with few sequences attention does not reach "
        "the bandwidth, probably because there are too few heads to occupy the card. The eager steps of 1 to 64 sequences take "
        f"{of.si(min(eager), 's')} to {of.si(max(eager), 's')} in no order, because the device waits for a host whose speed varies. So how "
        "much a graph gains depends on the host at that moment."
    )


def held_by_chance(of: Machine) -> str:
    """That the depthwise convolution's part held, but not for the reason that its prediction gives."""
    layer = {"layer": "depthwise convolution"}
    there, both = (of.cases("backward_ratio")(**layer, passes=passes) for passes in ("forward", "forward and backward"))
    moved = (both["counted"]["bytes"] - there["counted"]["bytes"]) / there["counted"]["bytes"]
    reached = there["counted"]["bytes"] / there["seconds"]["mean"] / of.bandwidth
    return (
        f"The depthwise convolution's part held, but not for its reason. Its backward pass moves {moved:.2f}× the bytes of the forward pass, not twice "
        f"as many, and bytes do not decide: the forward pass reaches only {100 * reached:.0f} % of the bandwidth. So its kernels do ([chapter 8](08_backward.ipynb))."
    )


def undecided(of: Machine) -> str:
    """What the recording leaves open about waves of tiles."""
    cases = of.cases("matmul_tiles")
    fall = cases.rate(rows=4288) / cases.rate(rows=4224)
    clocks = [cases(rows=rows)["monitor"]["sm_mhz"] for rows in (4224, 4288)]
    low, high = min(each["low"] for each in clocks), max(each["high"] for each in clocks)
    return (
        f"All three parts stay open. FLOP/s fall by {100 * (1 - fall.mean):.0f} % behind the full wave, and we "
        f"predicted about 10 %, but the interval reaches from {100 * (1 - fall.high):.0f} % to {100 * (1 - fall.low):.0f} %. The power limit "
        f"moves the clock between {low:,.0f} and {high:,.0f} MHz in these cases, so the times scatter. With the clock locked at a rate that "
        "the power limit allows, the steps should show."
    )
