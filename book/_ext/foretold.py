"""The page of predictions: what each experiment foretold, and what the recording that comes with flopkit shows. Markdown tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from conventional import table

import flopkit as fk
from flopkit import units
from flopkit.experiments import NAMES, experiment
from flopkit.experiments.pairs import Span

WORDS = ("held", "not clear", "**failed**")


def exactly(number):
    return Span(number, number, number)


@dataclass(frozen=True)
class Part:
    """A part of a prediction that a CPU can try: what it says, of what, the values, and between which two numbers they should lie."""

    says: str
    of: str
    values: tuple[Span, ...]
    least: float
    most: float
    unit: str = "×"

    @property
    def seen(self):
        by, digits = (100, 0) if self.unit == " %" else (1, 2)

        def shown(value):
            text = f"{by * value.mean:.{digits}f}{self.unit}"
            sure = value.low == value.high
            return text if sure else f"{text} ({by * value.low:.{digits}f} to {by * value.high:.{digits}f})"

        return f"{self.of}: {', '.join(map(shown, self.values))}"

    @property
    def word(self):
        """Failed if a whole interval lies outside, held if all of them lie inside, and else not clear."""
        if any(each.high < self.least or each.low > self.most for each in self.values):
            return WORDS[2]
        return WORDS[0] if all(self.least <= each.low and each.high <= self.most for each in self.values) else WORDS[1]


class Cases:
    """The records of one experiment, found by their parameters."""

    def __init__(self, records):
        self.records = list(records)

    def __call__(self, **params):
        [found] = [each for each in self.records if params.items() <= each["params"].items()]
        return found

    def seconds(self, **params):
        return Span.seconds(self(**params))

    def rate(self, **params):
        return exactly(self(**params)["counted"]["flops"]) / self.seconds(**params)

    def bandwidth(self, **params):
        """Of a case, as a share of the most that was measured of the device."""
        case = self(**params)
        roof = max(each["bytes_per_s"] for each in case.ceilings["traffic"].values())
        return exactly(case["counted"]["bytes"] / roof) / self.seconds(**params)


@cache
def ours(name):
    return fk.recordings.records(name, owner="ours", device="xeon")


def parts_of(name, cases=None):
    """The parts of the experiment's prediction, over our recording or over other *cases*."""
    return list(PARTS[name](Cases(ours(name) if cases is None else cases)))


def matmul_sizes(of):
    def growth(a, b):
        return of.rate(n=b, data="normal") / of.rate(n=a, data="normal")

    zeros = of.seconds(n=1024, data="zeros") / of.seconds(n=1024, data="normal")
    yield Part("FLOP/s of small products grow with the cube of n: 8× from 64 to 128, within a quarter", "FLOP/s", (growth(64, 128),), 6, 10)  # fmt: skip
    yield Part("large ones reach a level: from 512 to 1,024 within a tenth", "FLOP/s", (growth(512, 1024),), 0.9, 1.1)
    yield Part("zeros are not faster than normal numbers, within a tenth", "time", (zeros,), 0.9, 1.1)


def matmul_tiles(of):
    more = tuple(of.seconds(rows=n + 1) / of.seconds(rows=n) for n in (240, 256))
    yield Part("one row more than a multiple of 16 costs less than 5 %", "time of 241 and 257 rows, over 240 and 256", more, 0, 1.05)  # fmt: skip


def dense_batch(of):
    few, many = (of.seconds(tokens=b) / of.seconds(tokens=a) for a, b in ((1, 4), (128, 256)))
    yield Part("well below the ridge a larger batch costs no time: less than a quarter", "time of 4 tokens over one", (few,), 0, 1.25)  # fmt: skip
    yield Part("far beyond it time grows with the batch: 2×, within a quarter", "time of 256 tokens over 128", (many,), 1.5, 2.5)  # fmt: skip
    least = exactly(1) / of.bandwidth(tokens=8)
    yield Part("in between, time is above both lines by up to twofold", "time of 8 tokens over that of moving its bytes", (least,), 1, 2)  # fmt: skip
    bend = of.seconds(tokens=1) / of.seconds(tokens=256) * 256
    yield Part("the bend lies between 10 and 60 tokens", "where the lines through one token and 256 meet", (bend,), 10, 60, "")  # fmt: skip


def convolutions(of):
    orders = ("NCHW", "NHWC")
    kinds = ("grouped", "depthwise", "pointwise")
    shares = tuple(of.rate(kind=k, layout=on) / of.rate(kind="dense", layout=on) for on in orders for k in kinds)
    yield Part("the dense one makes the most FLOP/s", "the others over it, channels first, then last", shares, 0, 1)
    yield Part("the depthwise one makes less than a tenth of them", "channels first and last", shares[1::3], 0, 0.1)
    faster = tuple(of.seconds(kind="pointwise", layout=on) / of.seconds(kind="depthwise", layout=on) for on in orders)
    yield Part("it is at most 3 times as fast as the pointwise one", "channels first and last", faster, 0, 3)
    turned = tuple(of.seconds(kind=k, layout="NCHW") / of.seconds(kind=k, layout="NHWC") for k in ("dense", *kinds))
    yield Part("the order of the channels changes little: less than a quarter", "time with channels first over last", turned, 0.8, 1.25)  # fmt: skip


def backward_ratio(of):
    def over(layer, expected=1):
        both = of.seconds(layer=layer, passes="forward and backward") / of.seconds(layer=layer, passes="forward")
        return (both + -1) * (1 / expected)

    dense = (over("linear", 2), over("linear, first layer", 1), over("convolution", 2))
    yield Part("linear 2, first layer 1, convolution 2, within a fifth", "what was measured over this", dense, 0.8, 1.2)
    yield Part("depthwise convolution 2 to 4", "backward over forward", (over("depthwise convolution"),), 2, 4)
    yield Part("fused attention 2 to 3.5", "backward over forward", (over("attention, flash"),), 2, 3.5)


def attention_kernels(of):
    def took(kernel, tokens, causal=False):
        return of.seconds(kernel=kernel, tokens=tokens, causal=causal)

    lengths = (512, 1024, 2048)
    grows = tuple(took("math", 2 * n) / took("math", n) for n in lengths[:2])
    yield Part("math grows with the square: 4× for twice the tokens, within a quarter", "time of 1,024 and 2,048 tokens, over half of them", grows, 3, 5)  # fmt: skip
    gain = tuple(took("math", n) / took("flash", n) for n in lengths)
    yield Part("flash is 1.5 to 3 times as fast as math", "512, 1,024 and 2,048 tokens", gain, 1.5, 3)
    half = took("flash", 2048, True) / took("flash", 2048)
    yield Part("a causal mask halves the time of flash at long sequences, within a fifth", "2,048 tokens", (half,), 0.4, 0.6)  # fmt: skip
    same = tuple(took("math", n, True) / took("math", n) for n in lengths)
    yield Part("math takes no less time with a mask, within a tenth", "512, 1,024 and 2,048 tokens", same, 0.9, 10)


def checkpointing(of):
    again = of(recompute="full")
    work = exactly(again["counted"]["flops"] / again["extra"]["model_flops"])
    slower = of.seconds(recompute="full") / of.seconds(recompute="none")
    hfu = of.rate(recompute="full") / of.rate(recompute="none")
    yield Part(
        "executed FLOPs are 1.2 to 1.33 times the model FLOPs", "counted, over the model FLOPs", (work,), 1.2, 1.33
    )
    yield Part("time grows by 1.2 to 1.35", "time", (slower,), 1.2, 1.35)
    yield Part("HFU stays within 5 %", "HFU with recompute over without", (hfu,), 0.95, 1.05)
    yield Part(
        "MFU falls by a fifth to a quarter", "MFU with recompute over without", (exactly(1) / slower,), 0.75, 0.8
    )


def experts(of):
    def over(tokens, load, other):
        return of.seconds(tokens=tokens, load=load) / of.seconds(tokens=tokens, load=other)

    yield Part("with many tokens at most 1.5 times as long as the dense layer", "1,024 tokens", (over(1024, "balanced", "dense"),), 0, 1.5)  # fmt: skip
    yield Part("skew changes the time by less than a tenth", "1,024 tokens", (over(1024, "skewed", "balanced"),), 0.9, 1.1)  # fmt: skip
    yield Part("with few tokens many times as long, at least 4", "16 tokens", (over(16, "balanced", "dense"),), 4, 1e9)


def gpt_step(of):
    better = tuple(of.rate(batch=4 * n) / of.rate(batch=n) for n in (1, 4))
    one = of(batch=1)["extra"]
    yield Part("a larger batch makes better use of the device", "FLOP/s of 4 sequences over 1, and of 16 over 4", better, 1, 1e9)  # fmt: skip
    yield Part("6N a token is within a quarter of the exact count", "6N over it", (exactly(one["six_n_flops"] / one["model_flops"]),), 0.75, 1.25)  # fmt: skip


def cnns(of):
    def image(network, method):
        return of.seconds(network=network, method=method) * (1 / of(network=network, method=method)["extra"]["images"])

    batches = [each for each in of.records if each["params"]["method"] == "batch"]
    theory = tuple(exactly(each["extra"]["theory_flops"] / each["counted"]["flops"]) for each in batches)
    farthest = max(theory, key=lambda each: abs(each.mean - 1))
    yield Part("three times the forward pass is the counted step, within 4 %", f"the farthest of {len(theory)} networks", (farthest,), 0.96, 1.04)  # fmt: skip
    small = ("mobilenet_v2", "efficientnet_b0")
    share = tuple(of.rate(network=name, method="batch") / of.rate(network="vgg16", method="batch") for name in small)
    yield Part("MobileNetV2 and EfficientNet-B0 make a tenth of VGG-16's FLOP/s or less", "these two", share, 0, 0.1)
    reached = tuple(of.bandwidth(network=name, method="batch") for name in small)
    yield Part("they reach more than half of what their bytes allow", "of the bandwidth", reached, 0.5, 9, " %")
    pair = ("resnet18", "mobilenet_v2")
    gain = tuple(image(name, "one") / image(name, "batch") for name in pair)
    yield Part("a batch is hardly more efficient than one image: less than a quarter", "time of one image, ResNet-18 and MobileNetV2", gain, 0, 1.25)  # fmt: skip
    epoch = tuple(image(name, "epoch") / image(name, "batch") for name in pair)
    yield Part("an epoch adds less than a tenth", "time of an image in an epoch over one in a batch, the same two", epoch, 0, 1.1)  # fmt: skip


def fusion(of):
    gain = {p: of.seconds(program=p, form="eager") / of.seconds(program=p, form="compiled") for p in ("chain", "norm")}
    yield Part("the chain gains 1.5 to 3", "time apart over time in one kernel", (gain["chain"],), 1.5, 3)
    yield Part("the norm gains 3 to 6", "time apart over time in one kernel", (gain["norm"],), 3, 6)


def decode(of):
    yield Part("at batch 1 a step takes as long as reading the weights: at least three quarters of the bandwidth", "contexts of 256 and 2,048", tuple(of.bandwidth(batch=1, context=n) for n in (256, 2048)), 0.75, 1.1, " %")  # fmt: skip
    grows = of.seconds(batch=16, context=256) / of.seconds(batch=1, context=256)
    yield Part("time hardly grows while the caches weigh less than the weights: less than 1.5×", "16 sequences over one, context of 256", (grows,), 0, 1.5)  # fmt: skip
    long = [each["params"]["batch"] for each in of.records if each["params"]["context"] == 2048]
    peak = of(batch=1, context=256).ceilings["matmul"]["fp32"]["flops_per_s"]
    busy = tuple(of.rate(batch=n, context=2048) * (1 / peak) for n in (min(long), max(long)))
    yield Part("at the long context no batch that we ran is compute-bound: less than half of the peak", f"{min(long)} and {max(long)} sequences", busy, 0, 0.5, " %")  # fmt: skip


def all_reduce(of):
    def took(numbers):
        return of.seconds(what="all_reduce", numbers=numbers)

    after, hiding = (of.seconds(what="step", mode=mode) for mode in ("after", "overlapped"))
    yield Part("a small one takes the same time whatever its size: less than 1.5×", "65,536 numbers over 4,096", (took(65536) / took(4096),), 0, 1.5)  # fmt: skip
    yield Part("a large one grows with its size: 8×, within a quarter", "8,388,608 numbers over 1,048,576", (took(8388608) / took(1048576),), 6, 10)  # fmt: skip
    yield Part("with gloo, overlap hides little: a step takes at least 90 % of one that reduces at its end", "overlapped over after", (hiding / after,), 0.9, 1.1)  # fmt: skip


PARTS = {
    each.__name__: each
    for each in (
        matmul_sizes, matmul_tiles, dense_batch, convolutions, backward_ratio, attention_kernels, checkpointing, experts, gpt_step, cnns,
        fusion, decode, all_reduce,
    )
}  # fmt: skip


def tally():
    """How many parts held, in a sentence."""
    found = [part.word for name in NAMES for part in parts_of(name)]
    held, unclear, failed = (found.count(word) for word in WORDS)
    [recording] = [one for one in fk.recordings.recordings("ours") if one.provenance["type"] == "cpu"]
    when, machine = str(recording.provenance["when"])[:10], recording.attribution["machine"]
    where = f"We recorded the experiments on {when} on {machine}, in fp32."
    shaky = sum(not each["steady"] for each in recording.results)
    where += f" In {shaky} of its {len(recording.results)} cases the times had not become steady before the measurement began."
    return f"{where} **We tested {len(found)} parts of the predictions on it: {held} held, {failed} failed, and for {unclear} the intervals are too wide to decide.**"


def why():
    """What probably explains a prediction that failed, by the experiment; numbers from the recording."""
    of = {name: Cases(ours(name)) for name in NAMES}
    here = of["decode"](batch=1, context=256).ceilings
    peak, read = here["matmul"]["fp32"]["flops_per_s"], max(each["bytes_per_s"] for each in here["traffic"].values())
    fused = of["fusion"](program="chain", form="compiled")["rates"]["bytes_per_s"]
    apart = of["fusion"](program="chain", form="eager")["rates"]["bytes_per_s"]
    eight = of["dense_batch"](tokens=8)["rates"]["bytes_per_s"]
    one_two = [of["dense_batch"].bandwidth(tokens=n).mean for n in (1, 2)]
    small = of["matmul_sizes"](n=64)["seconds"]["mean"]
    depthwise = {k: of["backward_ratio"](layer="depthwise convolution", passes=k)["rates"]["bytes_per_s"] for k in ("forward", "forward and backward")}  # fmt: skip
    each, one = (of["experts"](tokens=1024, load=load)["rates"]["flops_per_s"] for load in ("balanced", "dense"))
    vgg = of["cnns"](network="vgg16", method="batch")["rates"]["flops_per_s"] / peak
    return {
        "matmul_sizes": f"The prediction assumes that a small product's time is mostly the cost of a call. But a call costs {units.seconds(here['launch_s'])} here, and a product of 64 × 64 took {units.seconds(small)}, so most of it is probably spent inside the matrix library.",
        "dense_batch": f"With 8 tokens the layer moves its bytes at {units.si(eight, 'B/s')}, while the memory can do {units.si(read, 'B/s')}. So neither memory nor arithmetic limits it. With one and two tokens it reaches {100 * one_two[0]:.0f} % and {100 * one_two[1]:.0f} % of the bandwidth, so torch probably takes another kernel from four tokens on, one that is slow with 8.",
        "convolutions": f"Our arithmetic was wrong for this device. At 2.25 FLOPs per byte, the depthwise convolution can reach up to {100 * 2.25 * read / peak:.0f} % of the peak, because the ridge point lies at only {peak / read:.1f} FLOPs per byte; a tenth would be the most only on a device whose ridge point is 22.5 or higher. The depthwise and the pointwise convolution are faster with channels last. With channels first, oneDNN, torch's library on CPUs, reorders the depthwise layer's map before and after it, as its log shows.",
        "attention_kernels": "At 2,048 tokens the scores of the math kernel take 134 MB, and each step of it makes a new tensor of that size. So moving the scores is probably not all that slows it: the system hands out new memory page by page, which takes time, too. The mask saves less than half of flash's time. One reason is that blocks on the diagonal are computed whole and then masked; it probably explains only a part.",
        "experts": f"The experts reach {units.si(each, 'FLOP/s')}, and the dense layer {units.si(one, 'FLOP/s')}. Each expert has an eighth of the rows, so its products are smaller. And gathering rows and adding them up takes time in which nothing is multiplied. We did not measure these two effects apart.",
        "cnns": f"The images have only 64 × 64 pixels, in batches of four. So VGG-16, the network to compare with, reaches only {100 * vgg:.0f} % of the peak, and the two small ones are limited neither by memory nor by arithmetic. Their depthwise convolutions are probably a reason: alone, such a layer moves {units.si(depthwise['forward'], 'B/s')} forward and {units.si(depthwise['forward and backward'], 'B/s')} in both passes. In an epoch the optimiser reads and writes all parameters after four images, which costs ResNet-18 more than MobileNetV2, which has less than a third of its parameters.",
        "fusion": f"Two things shrink the gain of the chain. Its operators probably find some of their tensors of 17 MB in the cache: they move {units.si(apart, 'B/s')}, more than the memory's {units.si(read, 'B/s')}. And the fused kernel moves only {units.si(fused, 'B/s')}, so the arithmetic of GELU probably takes most of its time.",
        "decode": "For one sequence the products of a matrix with a vector read the weights somewhat below the bandwidth. At the short context the step slows down from four sequences on, like the dense layer above. At the long one it slows down already with two, which we cannot explain.",
        "all_reduce": "With gloo a process also waits for the other one's data. While it waits, its core is probably free for the backward pass.",
    }


def failed():
    """The experiments with a part that failed, each with its reason."""
    return "\n".join(f"- **{experiment(name).title}.** {text}" for name, text in why().items())


def results():
    """An experiment after the other: its prediction, each part of it that a CPU can try, and all cases folded away."""
    lines = []
    for name in NAMES:
        asked = experiment(name)
        rows = [["Predicted for a CPU", "Our recording (interval)", ""]]
        rows += [[part.says, part.seen, part.word] for part in parts_of(name)]
        lines += [f"### {asked.title}", "", f"`{name}`. {asked.prediction}", "", table(rows, left=3), ""]
        shown = [["case", "time", "95 % interval", "FLOP/s", "bytes/s"]]
        for case in ours(name):
            seconds, rates = case["seconds"], case["rates"]
            interval = f"{units.seconds(seconds['low'])} to {units.seconds(seconds['high'])}"
            flops, moved = units.si(rates["flops_per_s"], "FLOP/s"), units.si(rates["bytes_per_s"], "B/s")
            shown.append([case["case"], units.seconds(seconds["mean"]), interval, flops, moved])
        lines += ["<details><summary>All cases</summary>", "", table(shown), "", "</details>", ""]
    return "\n".join(lines)
