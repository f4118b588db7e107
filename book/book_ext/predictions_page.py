"""The page of predictions: what each experiment foretold, and what the recordings that come with flopkit show. Markdown tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from conventional import table

import flopkit as fk
from flopkit import units
from flopkit.experiments import NAMES, experiment
from flopkit.experiments.cnn_operators import KINDS
from flopkit.experiments.cnns import SHOWN
from flopkit.experiments.pairs import Span
from flopkit.models.vision import cnn_names

WORDS = ("held", "not clear", "**failed**")
MACHINES = {"h200": "one H200", "xeon": "two cores of a Xeon"}  # as fk.recordings knows them; the first is shown first
WAITS = "launching a call takes the host"  # how the note begins of a case whose device waited for its host
PARTS = {machine: {} for machine in MACHINES}  # functions by the name of their experiment, for each machine


def tried_on(*machines):
    """The function yields the parts of a prediction that these machines can try. Its name is the experiment's."""

    def kept(parts):
        for machine in machines:
            PARTS[machine][parts.__name__.removesuffix("_gpu")] = parts
        return parts

    return kept


def exactly(number):
    return Span(number, number, number)


@dataclass(frozen=True)
class Part:
    """A part of a prediction that a machine can try: what it says, of what, the values, and between which two numbers they should lie.

    *cases* are those whose times the values rest on.
    """

    says: str
    of: str
    values: tuple[Span, ...]
    least: float
    most: float
    unit: str = "×"
    cases: tuple = ()

    @property
    def seen(self):
        by = 100 if self.unit == " %" else 1

        def shown(value):
            size = by * value.mean
            steps = {" %": (10, 0, 0), " tokens": (0, 0, 0)}.get(self.unit, (100, 10, 0.1))
            digits = sum(size < step for step in steps)
            mean, low, high = (f"{by * end:.{digits}f}" for end in (value.mean, value.low, value.high))
            return f"{mean}{self.unit}" if low == high else f"{mean}{self.unit} ({low} to {high})"

        return f"{self.of}: {', '.join(map(shown, self.values))}"

    @property
    def word(self):
        """Failed if a whole interval lies outside, held if all of them lie inside, and else not clear."""
        if any(each.high < self.least or each.low > self.most for each in self.values):
            return WORDS[2]
        return WORDS[0] if all(self.least <= each.low and each.high <= self.most for each in self.values) else WORDS[1]

    @property
    def weak(self):
        return weak(self.cases)


def weak(cases):
    """What makes the times of these cases less sure, in words; empty where nothing does."""
    found = {"launch-bound": any(map(waited, cases)), "unsteady": any(not each["steady"] for each in cases)}
    return ", ".join(word for word, true in found.items() if true)


def waited(case):
    """Whether the device waited for its host to launch."""
    return any(note.startswith(WAITS) for note in case["notes"])


class Cases:
    """The records of one experiment on one machine, found by their parameters and their number format. It keeps those whose times it was asked for."""

    def __init__(self, records):
        self.records, self.timed = list(records), []
        self.dtypes = list(dict.fromkeys(each["dtype"] for each in self.records))

    def __call__(self, **params):
        [found] = [
            each for each in self.records if params.items() <= {**each["params"], "dtype": each["dtype"]}.items()
        ]
        return found

    def seconds(self, **params):
        case = self(**params)
        self.timed.append(case)
        return Span.seconds(case)

    def rate(self, **params):
        return exactly(self(**params)["counted"]["flops"]) / self.seconds(**params)

    def bandwidth(self, **params):
        """Of a case, as a share of the most that was measured of the device."""
        case = self(**params)
        roof = max(each["bytes_per_s"] for each in case.ceilings["traffic"].values())
        return exactly(case["counted"]["bytes"] / roof) / self.seconds(**params)

    def speed(self, **params):
        """FLOP/s of a case, as a share of the most that was measured of the device in this format."""
        return self.rate(**params) * (1 / self(**params).ceilings["matmul"][self(**params)["dtype"]]["flops_per_s"])


@cache
def ours(name, machine):
    return fk.recordings.records(name, owner="ours", device=machine)


def parts_of(name, machine, cases=None):
    """The parts of the experiment's prediction that *machine* can try, over our recording or over other *cases*."""
    if name not in PARTS[machine]:
        return []
    of, found = Cases(ours(name, machine) if cases is None else cases), []
    for part in PARTS[machine][name](of):  # each asks for its times after the one before it was yielded
        found.append(replace(part, cases=tuple(of.timed)))
        of.timed = []
    return found


@tried_on("xeon")
def matmul_sizes(of):
    def growth(a, b):
        return of.rate(n=b, data="normal") / of.rate(n=a, data="normal")

    yield Part("FLOP/s of small products grow with the cube of n: 8× from 64 to 128, within a quarter", "FLOP/s", (growth(64, 128),), 6, 10)  # fmt: skip
    yield Part("large ones reach a level: from 512 to 1,024 within a tenth", "FLOP/s", (growth(512, 1024),), 0.9, 1.1)
    zeros = of.seconds(n=1024, data="zeros") / of.seconds(n=1024, data="normal")
    yield Part("zeros are not faster than normal numbers, within a tenth", "time", (zeros,), 0.9, 1.1)


@tried_on("h200")
def matmul_sizes_gpu(of):
    def growth(a, b):
        return tuple(of.rate(n=b, data="normal", dtype=d) / of.rate(n=a, data="normal", dtype=d) for d in of.dtypes)

    yield Part("FLOP/s of small products grow with the cube of n: 8× from 256 to 512, within a quarter", "FLOP/s, bf16, TF32, fp32", growth(256, 512), 6, 10)  # fmt: skip
    yield Part("large ones reach a level: from 4,096 to 8,192 within a tenth", "FLOP/s, bf16, TF32, fp32", growth(4096, 8192), 0.9, 1.1)  # fmt: skip
    zeros = of.seconds(n=8192, data="zeros") / of.seconds(n=8192, data="normal", dtype="bf16")
    yield Part("with capped power zeros are faster than normal numbers", "time, 8,192 in bf16", (zeros,), 0, 1)


@tried_on("xeon")
def matmul_tiles(of):
    more = tuple(of.seconds(rows=n + 1) / of.seconds(rows=n) for n in (240, 256))
    yield Part("one row more than a multiple of 16 costs less than 5 %", "time of 241 and 257 rows, over 240 and 256", more, 0, 1.05)  # fmt: skip


@tried_on("h200")
def matmul_tiles_gpu(of):
    others = [each["params"]["rows"] for each in of.records if each["params"]["rows"] != 4224]
    best = max((of.rate(rows=rows) / of.rate(rows=4224) for rows in others), key=lambda each: each.mean)
    yield Part("FLOP/s are highest where the last wave is full, at 4,224 rows", f"FLOP/s, the best of {len(others)} others", (best,), 0, 1)  # fmt: skip
    behind = of.rate(rows=4288) / of.rate(rows=4224)
    yield Part("at 4,288 rows they fall by about 10 %: by 8 to 12", "FLOP/s of 4,288 rows over 4,224", (behind,), 0.88, 0.92)  # fmt: skip
    whole = of.seconds(rows=4097) / of.seconds(rows=4224)
    yield Part("4,097 rows take as long as 4,224: within 1.5 %, half of the difference in rows", "time", (whole,), 0.985, 1.015)  # fmt: skip


@tried_on("xeon")
def dense_batch(of):
    few = of.seconds(tokens=4) / of.seconds(tokens=1)
    yield Part("well below the ridge a larger batch costs no time: less than a quarter", "time of 4 tokens over one", (few,), 0, 1.25)  # fmt: skip
    many = of.seconds(tokens=256) / of.seconds(tokens=128)
    yield Part("far beyond it time grows with the batch: 2×, within a quarter", "time of 256 tokens over 128", (many,), 1.5, 2.5)  # fmt: skip
    least = exactly(1) / of.bandwidth(tokens=8)
    yield Part("in between, time is above both lines by up to twofold", "time of 8 tokens over that of moving its bytes", (least,), 1, 2)  # fmt: skip
    bend = of.seconds(tokens=1) / of.seconds(tokens=256) * 256
    yield Part("the bend lies between 10 and 60 tokens", "where the lines through one token and 256 meet", (bend,), 10, 60, " tokens")  # fmt: skip


@tried_on("h200")
def dense_batch_gpu(of):
    for dtype, name in (("bf16", "bf16"), ("tf32", "TF32")):

        def took(tokens, dtype=dtype):
            return of.seconds(tokens=tokens, dtype=dtype)

        few = tuple(took(n) / took(1) for n in (16, 64))
        yield Part(f"{name}: well below the ridge a larger batch costs no time: less than a quarter", "time of 16 and 64 tokens over one", few, 0, 1.25)  # fmt: skip
        yield Part(f"{name}: far beyond it time grows with the batch: 2×, within a quarter", "time of 2,048 tokens over 1,024", (took(2048) / took(1024),), 1.5, 2.5)  # fmt: skip
        bend = took(1) / took(2048) * 2048
        yield Part(f"{name}: the bend lies at about 200 tokens, or 10 to 20 fewer: at 170 to 210", "where the lines through one token and 2,048 meet", (bend,), 170, 210, " tokens")  # fmt: skip
        lines = exactly(1) / of.bandwidth(tokens=192, dtype=dtype), exactly(1) / of.speed(tokens=192, dtype=dtype)
        yield Part(f"{name}: in between, time is above both lines by up to twofold", "time of 192 tokens over that of moving the bytes, and over that of the FLOPs", lines, 1, 2)  # fmt: skip


@tried_on("xeon")
def convolutions(of):
    def shares(*kinds):
        return tuple(of.rate(kind=k, layout=on) / of.rate(kind="dense", layout=on) for on in ("NCHW", "NHWC") for k in kinds)  # fmt: skip

    yield Part("the dense one makes the most FLOP/s", "the others over it, channels first, then last", shares("grouped", "depthwise", "pointwise"), 0, 1)  # fmt: skip
    yield Part("the depthwise one makes less than a tenth of them", "channels first and last", shares("depthwise"), 0, 0.1)  # fmt: skip
    faster = tuple(of.seconds(kind="pointwise", layout=on) / of.seconds(kind="depthwise", layout=on) for on in ("NCHW", "NHWC"))  # fmt: skip
    yield Part("it is at most 3 times as fast as the pointwise one", "channels first and last", faster, 0, 3)
    kinds = ("dense", "grouped", "depthwise", "pointwise")
    turned = tuple(of.seconds(kind=k, layout="NCHW") / of.seconds(kind=k, layout="NHWC") for k in kinds)
    yield Part("the order of the channels changes little: less than a quarter", "time with channels first over last", turned, 0.8, 1.25)  # fmt: skip


@tried_on("h200")
def convolutions_gpu(of):
    runs = [{"dtype": dtype, "layout": on} for dtype, on in (("bf16", "NCHW"), ("bf16", "NHWC"), ("tf32", "NCHW"), ("fp32", "NCHW"))]  # fmt: skip
    where = "bf16 with channels first and last, TF32, fp32"
    best = tuple(max((of.rate(kind=k, **run) for k in ("grouped", "depthwise", "pointwise")), key=lambda each: each.mean) / of.rate(kind="dense", **run) for run in runs)  # fmt: skip
    yield Part("the dense one makes the most FLOP/s", f"the best other one over it, {where}", best, 0, 1)
    shares = tuple(of.rate(kind="depthwise", **run) / of.rate(kind="dense", **run) for run in runs)
    yield Part("the depthwise one makes less than a tenth of them", where, shares, 0, 0.1)
    faster = tuple(of.seconds(kind="pointwise", **run) / of.seconds(kind="depthwise", **run) for run in runs)
    yield Part("it is at most 3 times as fast as the pointwise one", where, faster, 0, 3)
    kinds = ("dense", "grouped", "pointwise")
    turned = tuple(of.seconds(kind=k, **runs[0]) / of.seconds(kind=k, **runs[1]) for k in kinds)
    yield Part("tensor cores are fastest with the channels last", f"bf16, time with channels first over last, {', '.join(kinds)}", turned, 1, math.inf)  # fmt: skip


@tried_on("h200", "xeon")
def backward_ratio(of):
    def over(layer, expected=1):
        both = of.seconds(layer=layer, passes="forward and backward") / of.seconds(layer=layer, passes="forward")
        return (both + -1) * (1 / expected)

    dense = (over("linear", 2), over("linear, first layer", 1), over("convolution", 2))
    yield Part("linear 2, first layer 1, convolution 2, within a fifth", "what was measured over this", dense, 0.8, 1.2)
    yield Part("depthwise convolution 2 to 4", "backward over forward", (over("depthwise convolution"),), 2, 4)
    yield Part("fused attention 2 to 3.5", "backward over forward", (over("attention, flash"),), 2, 3.5)


@tried_on("xeon")
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


@tried_on("h200")
def attention_kernels_gpu(of):
    def took(kernel, tokens, causal=False):
        return of.seconds(kernel=kernel, tokens=tokens, causal=causal)

    grows = took("math", 4096) / took("math", 1024)
    yield Part("math grows with the square: 16× for four times the tokens, within a quarter", "time of 4,096 tokens over 1,024", (grows,), 12, 20)  # fmt: skip
    gain = took("math", 4096) / took("flash", 4096)
    yield Part("flash is 2 to 4 times as fast as math at 4,096 tokens", "time of math over flash", (gain,), 2, 4)
    share = of.rate(kernel="flash", tokens=4096, causal=False) * (1 / fk.device("h200-sxm").peak("bf16"))
    yield Part("it reaches a third to two thirds of the dense peak there", "of the data sheet's", (share,), 1 / 3, 2 / 3, " %")  # fmt: skip
    half = tuple(took("flash", n, True) / took("flash", n) for n in (4096, 16384))
    yield Part("a causal mask halves the time of flash at long sequences, within a fifth", "4,096 and 16,384 tokens", half, 0.4, 0.6)  # fmt: skip
    same = tuple(took("math", n, True) / took("math", n) for n in (1024, 4096))
    yield Part("math takes no less time with a mask, within a tenth", "1,024 and 4,096 tokens", same, 0.9, 10)


@tried_on("h200", "xeon")
def checkpointing(of):
    def ratios(of_one):
        """Of the step that recomputes over the one that does not, by number format."""
        return tuple(of_one("full", dtype) / of_one("none", dtype) for dtype in of.dtypes)

    def seconds(recompute, dtype):
        return of.seconds(recompute=recompute, dtype=dtype)

    def rate(recompute, dtype):
        return of.rate(recompute=recompute, dtype=dtype)

    again = [of(recompute="full", dtype=dtype) for dtype in of.dtypes]
    work = tuple(exactly(each["counted"]["flops"] / each["extra"]["model_flops"]) for each in again)
    on = "" if len(of.dtypes) == 1 else ", bf16 and TF32"
    yield Part("executed FLOPs are 1.2 to 1.33 times the model FLOPs", f"counted, over the model FLOPs{on}", work, 1.2, 1.33)  # fmt: skip
    yield Part("time grows by 1.2 to 1.35", f"time{on}", ratios(seconds), 1.2, 1.35)
    yield Part("HFU stays within 5 %", f"HFU with recompute over without{on}", ratios(rate), 0.95, 1.05)
    mfu = tuple(exactly(1) / each for each in ratios(seconds))
    yield Part("MFU falls by a fifth to a quarter", f"MFU with recompute over without{on}", mfu, 0.75, 0.8)


@tried_on("h200", "xeon")
def experts(of):
    few, *_, many = sorted({each["params"]["tokens"] for each in of.records})

    def over(tokens, load, other):
        return of.seconds(tokens=tokens, load=load) / of.seconds(tokens=tokens, load=other)

    yield Part("with many tokens at most 1.5 times as long as the dense layer", f"{many:,} tokens", (over(many, "balanced", "dense"),), 0, 1.5)  # fmt: skip
    yield Part("skew changes the time by less than a tenth", f"{many:,} tokens", (over(many, "skewed", "balanced"),), 0.9, 1.1)  # fmt: skip
    yield Part("with few tokens many times as long, at least 4", f"{few} tokens", (over(few, "balanced", "dense"),), 4, 1e9)  # fmt: skip


@tried_on("xeon")
def gpt_step(of):
    better = tuple(of.rate(batch=4 * n, dtype=d, compiled=False) / of.rate(batch=n, dtype=d, compiled=False) for d in of.dtypes for n in (1, 4))  # fmt: skip
    on = "" if len(of.dtypes) == 1 else ", bf16, TF32, fp32"
    yield Part("a larger batch makes better use of the device", f"FLOP/s of 4 sequences over 1, and of 16 over 4{on}", better, 1, 1e9)  # fmt: skip
    one = of(batch=1, dtype=of.dtypes[0])["extra"]
    yield Part("6N a token is within a quarter of the exact count", "6N over it", (exactly(one["six_n_flops"] / one["model_flops"]),), 0.75, 1.25)  # fmt: skip


@tried_on("h200")
def gpt_step_gpu(of):
    yield from gpt_step(of)
    eager = {"batch": 16, "dtype": "bf16", "compiled": False}
    useful = exactly(of(**eager)["extra"]["model_flops"] / fk.device("h200-sxm").peak("bf16"))
    yield Part("the MFU of the eager step in half precision is 25 to 45 %, at the largest batch", "16 sequences, of the data sheet's peak", (useful / of.seconds(**eager),), 0.25, 0.45, " %")  # fmt: skip
    gain = of.seconds(**eager) / of.seconds(**{**eager, "compiled": True})
    yield Part("compiling it brings 1.2 to 1.6 times the speed", "16 sequences, bf16", (gain,), 1.2, 1.6)


def _theory(of):
    batches = [of(**{**each["params"], "dtype": each["dtype"]}) for each in of.records if each["params"]["method"] == "batch"]  # fmt: skip
    theory = tuple(exactly(each["extra"]["theory_flops"] / each["counted"]["flops"]) for each in batches)
    farthest = max(theory, key=lambda each: abs(each.mean - 1))
    return Part("three times the forward pass is the counted step, within 4 %", f"the farthest of {len({each['params']['network'] for each in batches})} networks", (farthest,), 0.96, 1.04)  # fmt: skip


SMALL = ("mobilenet_v2", "efficientnet_b0")


@tried_on("xeon")
def cnns(of):
    def image(network, method):
        return of.seconds(network=network, method=method) * (1 / of(network=network, method=method)["extra"]["images"])

    yield _theory(of)
    share = tuple(of.rate(network=name, method="batch") / of.rate(network="vgg16", method="batch") for name in SMALL)
    yield Part("MobileNetV2 and EfficientNet-B0 make a tenth of VGG-16's FLOP/s or less", "these two", share, 0, 0.1)
    reached = tuple(of.bandwidth(network=name, method="batch") for name in SMALL)
    yield Part("they reach more than half of what their bytes allow", "of the bandwidth", reached, 0.5, 9, " %")
    pair = ("resnet18", "mobilenet_v2")
    gain = tuple(image(name, "one") / image(name, "batch") for name in pair)
    yield Part("a batch is hardly more efficient than one image: less than a quarter", "time of one image, ResNet-18 and MobileNetV2", gain, 0, 1.25)  # fmt: skip
    epoch = tuple(image(name, "epoch") / image(name, "batch") for name in pair)
    yield Part("an epoch adds less than a tenth", "time of an image in an epoch over one in a batch, the same two", epoch, 0, 1.1)  # fmt: skip


@tried_on("h200")
def cnns_gpu(of):
    def batch(network, dtype):
        return {"network": network, "dtype": dtype, "method": "batch", "compiled": False}

    def image(network, method):
        case = {**batch(network, "fp32"), "method": method}
        return of.seconds(**case) * (1 / of(**case)["extra"]["images"])

    yield _theory(of)
    formats = ("bf16", "tf32", "fp32")
    both = "MobileNetV2, then EfficientNet-B0, each in bf16, TF32, fp32"
    share = tuple(of.rate(**batch(name, d)) / of.rate(**batch("vgg16", d)) for name in SMALL for d in formats)
    yield Part("MobileNetV2 and EfficientNet-B0 make a tenth of VGG-16's FLOP/s or less", both, share, 0, 0.1)
    reached = tuple(of.bandwidth(**batch(name, d)) for name in SMALL for d in formats)
    yield Part("they reach more than half of what their bytes allow", f"of the bandwidth, {both}", reached, 0.5, 9, " %")  # fmt: skip
    gain = tuple(image(name, "one") / image(name, "batch") for name in ("resnet18", "resnet50", "vgg16"))
    yield Part("a batch is several times as efficient as one image: at least twice", "time of one image, ResNet-18, ResNet-50, VGG-16", gain, 2, math.inf)  # fmt: skip
    epoch = tuple(image(name, "epoch") / image(name, "batch") for name in ("resnet18", "resnet50"))
    yield Part("an epoch adds less than a tenth", "time of an image in an epoch over one in a batch, ResNet-18 and ResNet-50", epoch, 0, 1.1)  # fmt: skip
    vgg, small = (of.seconds(**batch(name, "fp32")) / of.seconds(**batch(name, "bf16")) for name in ("vgg16", "mobilenet_v2"))  # fmt: skip
    yield Part("half precision speeds up VGG by more than MobileNetV2", "the gain of VGG-16 over that of MobileNetV2, fp32 to bf16", (vgg / small,), 1, math.inf)  # fmt: skip


@tried_on("h200")
def cnn_operators_gpu(of):
    def share(network, *kinds):
        found = of(network=network, dtype="fp32", layout="NCHW", mode="eager")["extra"]
        return sum(found[kind] for kind in kinds) / sum(found[kind] for kind in KINDS)

    def took(network, dtype, layout, mode):
        return of.seconds(network=network, dtype=dtype, layout=layout, mode=mode)

    def kept(network, dtype, layout):
        return took(network, dtype, layout, "graph") / took(network, dtype, layout, "eager")

    most = max(share("mobilenet_v2", kind) for kind in KINDS if kind != "norms")
    yield Part("of MobileNetV2 in fp32 with channels first, batch norms take the largest share of the kernels' time", "over that of the next kind", (exactly(share("mobilenet_v2", "norms") / most),), 1, math.inf)  # fmt: skip
    yield Part("they take 30 to 45 % of it", "of the kernels' time", (exactly(share("mobilenet_v2", "norms")),), 0.3, 0.45, " %")  # fmt: skip
    depthwise = share("mobilenet_v2", "depthwise")
    yield Part("depthwise convolutions take 20 to 40 %", "of the kernels' time", (exactly(depthwise),), 0.2, 0.4, " %")
    back = share("mobilenet_v2", "depthwise, backward") / share("mobilenet_v2", "depthwise")
    yield Part("and most of it on the way back", "backward, of the depthwise convolutions' time", (exactly(back),), 0.5, 1, " %")  # fmt: skip
    dense = share("resnet50", "pointwise", "convolutions")
    yield Part("of ResNet-50, in the same format, convolutions take more than 60 %", "of the kernels' time", (exactly(dense),), 0.6, 1, " %")  # fmt: skip
    networks = ("mobilenet_v2", "efficientnet_b0", "resnet50")
    saved = tuple(kept(network, "fp32", on) for on in ("NCHW", "NHWC") for network in networks)
    yield Part("in fp32 a CUDA graph saves less than a tenth", "time with a graph over eager, MobileNetV2, EfficientNet-B0, ResNet-50, channels first, then last", saved, 0.9, math.inf)  # fmt: skip
    yield Part("in bf16 with channels last it saves a third of MobileNetV2's time or more", "time with a graph over eager", (kept("mobilenet_v2", "bf16", "NHWC"),), 0, 2 / 3)  # fmt: skip

    def turned(network, mode):
        return took(network, "bf16", "NCHW", mode) / took(network, "bf16", "NHWC", mode)

    more = tuple(turned("resnet50", mode) / turned("mobilenet_v2", mode) for mode in ("eager", "graph"))
    yield Part("channels last helps ResNet-50 in bf16 more than MobileNetV2", "the gain of ResNet-50 over that of MobileNetV2, eager and as a graph", more, 1, math.inf)  # fmt: skip


@tried_on("xeon")
def fusion(of):
    def gain(program):
        return of.seconds(program=program, form="eager") / of.seconds(program=program, form="compiled")

    yield Part("the chain gains 1.5 to 3", "time apart over time in one kernel", (gain("chain"),), 1.5, 3)
    yield Part("the norm gains 3 to 6", "time apart over time in one kernel", (gain("norm"),), 3, 6)


@tried_on("h200")
def fusion_gpu(of):
    def gain(program, form="eager"):
        return of.seconds(program=program, form=form) / of.seconds(program=program, form="compiled")

    yield Part("the chain gains 2.5 to 3", "time apart over time in one kernel", (gain("chain"),), 2.5, 3)
    yield Part("the norm gains 4 to 6", "time apart over time in one kernel", (gain("norm"),), 4, 6)
    yield Part("torch's own layer norm is within a fifth of the compiled one", "time over that of the compiled one", (gain("norm", "layer_norm"),), 0.8, 1.2)  # fmt: skip


@tried_on("xeon")
def decode(of):
    yield Part("at batch 1 a step takes as long as reading the weights: at least three quarters of the bandwidth", "contexts of 256 and 2,048", tuple(of.bandwidth(batch=1, context=n) for n in (256, 2048)), 0.75, 1.1, " %")  # fmt: skip
    grows = of.seconds(batch=16, context=256) / of.seconds(batch=1, context=256)
    yield Part("time hardly grows while the caches weigh less than the weights: less than 1.5×", "16 sequences over one, context of 256", (grows,), 0, 1.5)  # fmt: skip
    long = [each["params"]["batch"] for each in of.records if each["params"]["context"] == 2048]
    busy = tuple(of.speed(batch=n, context=2048) for n in (min(long), max(long)))
    yield Part("at the long context no batch that we ran is compute-bound: less than half of the peak", f"{min(long)} and {max(long)} sequences", busy, 0, 0.5, " %")  # fmt: skip


@tried_on("h200")
def decode_gpu(of):
    def graph(batch, context):
        return {"batch": batch, "context": context, "mode": "graph"}

    def gain(batch, context):
        return of.seconds(batch=batch, context=context, mode="eager") / of.seconds(**graph(batch, context))

    yield Part("at batch 1 a step takes as long as reading the weights: at least three quarters of the bandwidth", "as a graph, contexts of 1,024 and 8,192", tuple(of.bandwidth(**graph(1, n)) for n in (1024, 8192)), 0.75, 1.1, " %")  # fmt: skip
    mfu = tuple(of.rate(**graph(1, n)) * (1 / fk.device("h200-sxm").peak("bf16")) for n in (1024, 8192))
    yield Part("its MFU is far below 1 %: less than half of that", "of the data sheet's peak, the same two", mfu, 0, 0.005, " %")  # fmt: skip
    grows = tuple(of.seconds(**graph(n, context)) / of.seconds(**graph(1, context)) for n, context in ((64, 1024), (16, 8192)))  # fmt: skip
    yield Part("time hardly grows while the caches weigh less than the weights: less than 1.5×", "64 sequences over one, context of 1,024; 16 over one, context of 8,192", grows, 0, 1.5)  # fmt: skip
    beyond = tuple(of.bandwidth(**graph(n, context)) / of.bandwidth(**graph(n // 4, context)) for n, context in ((256, 1024), (64, 8192)))  # fmt: skip
    yield Part("beyond that the time grows like the bytes, within a quarter", "bytes/s of 256 sequences over 64, context of 1,024; of 64 over 16, context of 8,192", beyond, 0.8, 1.25)  # fmt: skip
    long = [each["params"]["batch"] for each in of.records if each["params"]["context"] == 8192]
    busy = tuple(of.speed(**graph(n, 8192)) for n in (min(long), max(long)))
    yield Part("at the long context no batch that we ran is compute-bound: less than half of the peak", f"{min(long)} and {max(long)} sequences", busy, 0, 0.5, " %")  # fmt: skip
    waits = tuple(gain(1, context) for context in (1024, 8192))
    yield Part("an eager step at a small batch waits for launches: a CUDA graph is at least a tenth faster", "time eager over as a graph, one sequence, contexts of 1,024 and 8,192", waits, 1.1, math.inf)  # fmt: skip
    falls = tuple(gain(n, context) / gain(4 * n, context) for context, batches in ((1024, (1, 4, 16, 64)), (8192, (1, 4, 16))) for n in batches)  # fmt: skip
    yield Part("a graph is the faster the smaller the batch", "its gain over that at four times the batch: 1, 4, 16 and 64 sequences at a context of 1,024; 1, 4 and 16 at 8,192", falls, 1, math.inf)  # fmt: skip


@tried_on("xeon")
def all_reduce(of):
    def took(numbers):
        return of.seconds(what="all_reduce", numbers=numbers)

    yield Part("a small one takes the same time whatever its size: less than 1.5×", "65,536 numbers over 4,096", (took(65536) / took(4096),), 0, 1.5)  # fmt: skip
    yield Part("a large one grows with its size: 8×, within a quarter", "8,388,608 numbers over 1,048,576", (took(8388608) / took(1048576),), 6, 10)  # fmt: skip
    after, hiding = (of.seconds(what="step", mode=mode) for mode in ("after", "overlapped"))
    yield Part("with gloo, overlap hides little: a step takes at least 90 % of one that reduces at its end", "overlapped over after", (hiding / after,), 0.9, 1.1)  # fmt: skip


def recording_of(machine):
    kind = "cuda" if machine == "h200" else "cpu"
    [found] = [one for one in fk.recordings.recordings("ours") if one.provenance["type"] == kind]
    return found


def titled(machine):
    return MACHINES[machine][0].upper() + MACHINES[machine][1:]


def tally():
    """How many parts held on each machine, and how sure its cases are: a table, and a sentence on who measured."""
    found = {machine: [part for name in NAMES for part in parts_of(name, machine)] for machine in MACHINES}
    cases = {machine: recording_of(machine).results for machine in MACHINES}

    def row(title, count):
        return [title, *(str(count(machine)) for machine in MACHINES)]

    def parts(word):
        def count(machine):
            with_word = [part for part in found[machine] if part.word == word]
            weak = sum(bool(part.weak) for part in with_word)
            return f"{len(with_word)}, {weak} of them marked" if weak else len(with_word)

        return count

    rows = [
        ["", *map(titled, MACHINES)],
        row("**Parts tested**", lambda machine: len(found[machine])),
        row("held", parts(WORDS[0])),
        row("**failed**", parts(WORDS[2])),
        row("not clear: the intervals are too wide to decide", parts(WORDS[1])),
        row("**Cases measured**", lambda machine: len(cases[machine])),
        row("unsteady", lambda machine: sum(not each["steady"] for each in cases[machine])),
        row("launch-bound", lambda machine: sum(map(waited, cases[machine]))),
    ]
    when = {machine: str(recording_of(machine).provenance["when"])[:10] for machine in MACHINES}
    whose = {machine: recording_of(machine).attribution["machine"] for machine in MACHINES}
    recorded = f"We recorded the experiments on an NVIDIA H200 ({whose['h200']}) on {when['h200']}, in bf16, TF32 and fp32, and on {whose['xeon']} on {when['xeon']}, in fp32."
    return f"{recorded} {not_measured()}\n\n{table(rows)}"


def why():
    """What probably explains a prediction that failed, by machine and experiment; numbers from the recordings."""
    return {"h200": _why_h200(), "xeon": _why_xeon()}


def _why_h200():
    of = {name: Cases(ours(name, "h200")) for name in PARTS["h200"]}
    roofs = of["decode"].records[0].ceilings
    read, peak = max(each["bytes_per_s"] for each in roofs["traffic"].values()), roofs["matmul"]["bf16"]["flops_per_s"]

    def seconds(name, **params):
        return of[name](**params)["seconds"]["mean"]

    def si(value, unit):
        return units.si(float(f"{value:.3g}"), unit)

    def shown(name, **params):
        return si(seconds(name, **params), "s")

    def flops(name, **params):
        return si(of[name](**params)["rates"]["flops_per_s"], "FLOP/s")

    def moved(name, **params):
        return si(of[name](**params)["rates"]["bytes_per_s"], "B/s")

    def reached(name, **params):
        return f"{100 * of[name].bandwidth(**params).mean:.0f} %"

    longer = {d: seconds("matmul_sizes", n=512, dtype=d) / seconds("matmul_sizes", n=256, dtype=d) for d in ("bf16", "fp32")}  # fmt: skip
    bend = 2048 * seconds("dense_batch", tokens=64, dtype="tf32") / seconds("dense_batch", tokens=2048, dtype="tf32")
    dense = {"dtype": "fp32", "layout": "NCHW"}
    math_one = {"kernel": "math", "tokens": 4096, "causal": False}
    many = of["experts"](tokens=16384, load="balanced")["counted"]
    least = many["flops"] / peak + many["bytes"] / read
    saved = seconds("gpt_step", batch=16, dtype="bf16", compiled=False) - seconds("gpt_step", batch=16, dtype="bf16", compiled=True)  # fmt: skip
    mobile, efficient = ({"network": name, "dtype": "bf16", "layout": "NHWC"} for name in SMALL)
    kernels = {on: of["cnn_operators"](**{**mobile, "layout": on, "mode": "eager"})["extra"] for on in ("NCHW", "NHWC")}
    two = ("norms", "depthwise")
    share = sum(kernels["NCHW"][kind] for kind in two) / sum(kernels["NCHW"][kind] for kind in KINDS)
    faster = sum(kernels["NCHW"][kind] for kind in two) / sum(kernels["NHWC"][kind] for kind in two)
    residual = of["cnn_operators"](network="resnet50", dtype="bf16", layout="NCHW", mode="eager")["extra"]
    norms = residual["norms"] / sum(residual[kind] for kind in KINDS)
    epoch, batch = (of["cnns"](network="resnet18", method=method, dtype="fp32", compiled=False) for method in ("epoch", "batch"))  # fmt: skip
    copied = epoch["seconds"]["mean"] * batch["extra"]["images"] / epoch["extra"]["images"] - batch["seconds"]["mean"]
    images = 64 * 3 * 224 * 224 * 4
    # the optimiser reads weight, gradient and momentum, and writes weight and momentum, in fp32
    optimiser = 5 * 4 * fk.models.cnn("resnet18", batch=64, height=224, width=224).params / read
    late = {n: seconds("decode", batch=n, context=8192, mode="graph") - seconds("decode", batch=n, context=1024, mode="graph") for n in (1, 4)}  # fmt: skip
    eager = [seconds("decode", batch=n, context=1024, mode="eager") for n in (1, 4, 16, 64)]
    host = launch(of["cnn_operators"](**{**efficient, "dtype": "fp32", "mode": "eager"}))
    return {
        "matmul_sizes": f"The prediction assumes that a small product's time is mostly the cost of a call. But we time products this short inside a CUDA graph, which leaves out the launches. What remains is the kernel, and it takes longer for the larger product: {longer['bf16']:.1f}× as long for 512 × 512 as for 256 × 256 in bf16, and {longer['fp32']:.1f}× in fp32.",
        "dense_batch": f"A single token is slow. In TF32 it takes {shown('dense_batch', tokens=1, dtype='tf32')}, longer than 64 tokens, and it reaches {reached('dense_batch', tokens=1, dtype='tf32')} of the bandwidth, where 64 tokens reach {reached('dense_batch', tokens=64, dtype='tf32')}. A flat line through 64 tokens would give a bend at {bend:.0f} tokens, as predicted. In bf16 the device waits for launches up to 256 tokens, so its flat part shows the host rather than the memory.",
        "convolutions": f"It failed in fp32 only: the dense layer reaches {flops('convolutions', kind='dense', **dense)} there, the pointwise one {flops('convolutions', kind='pointwise', **dense)}, and a product of 8,192 × 8,192 {flops('matmul_sizes', n=8192, dtype='fp32')}. The recording does not show which algorithm cuDNN took; a profile of the dense layer would.",
        "attention_kernels": f"The math kernel is slower than we assumed. It converts bf16 inputs to fp32, as a trace of its operators on a CPU shows, so its products miss bf16's matrix units. It makes {flops('attention_kernels', **math_one)}, while fp32 products on this card reached {si(roofs['matmul']['fp32']['flops_per_s'], 'FLOP/s')}. So most of its time is probably arithmetic. That it grows with the square held, but this does not show that its time follows its bytes.",
        "experts": f"With 16,384 tokens the experts make {flops('experts', tokens=16384, load='balanced')}, the dense layer {flops('experts', tokens=16384, load='dense')}. By the count of their operators, the experts move {si(many['bytes'], 'B')}, the dense layer {si(of['experts'](tokens=16384, load='dense')['counted']['bytes'], 'B')}. But at the rates that we measured, the experts' products and bytes together would take only {100 * least / seconds('experts', tokens=16384, load='balanced'):.0f} % of {shown('experts', tokens=16384, load='balanced')}. A profile would tell what takes the rest. With 64 tokens the prediction held, but not for its reason: reading all weights takes {si(2 * of['experts'](tokens=64, load='balanced')['extra']['weights'] / read, 's')}, and the layer {shown('experts', tokens=64, load='balanced')}, about as long as with 1,024 tokens. Launching hundreds of small kernels probably takes that time.",
        "gpt_step": f"Compiling saves {si(saved, 's')} of {shown('gpt_step', batch=16, dtype='bf16', compiled=False)}. At 16 sequences the eager step does not wait for launches, so there are none to save. Why fusing saves no more than that, we don't know: a profile of both steps would tell.",
        "cnns": f"MobileNetV2 misses its bound for more than one reason. In bf16 the step waits for launches: as a CUDA graph it takes {shown('cnn_operators', **mobile, mode='graph')} instead of {shown('cnn_operators', **mobile, mode='eager')}. But even the graph reaches only {reached('cnn_operators', **mobile, mode='graph')} of the bandwidth, so its kernels are slow, too. In fp32 a graph saves next to nothing, and the order of the channels matters: with channels last, the graph takes {shown('cnn_operators', **{**mobile, 'dtype': 'fp32'}, mode='graph')}, with channels first {shown('cnn_operators', network='mobilenet_v2', dtype='fp32', layout='NCHW', mode='graph')}. The epoch adds {si(copied, 's')} per batch to ResNet-18. Probably this is the copy of the images, {si(images, 'B')} per batch from the host's pageable memory, because the bytes of the optimiser would take only {si(optimiser, 's')}.",
        "cnn_operators": f"A graph saves more than a tenth only of EfficientNet-B0 with channels last: launching its step took the host {si(host, 's')}, while the graph takes {shown('cnn_operators', **{**efficient, 'dtype': 'fp32'}, mode='graph')}. Channels last helps MobileNetV2 more than ResNet-50, because batch norms and depthwise convolutions gain most from it. In bf16 they take {100 * share:.0f} % of MobileNetV2's kernel time with channels first, and together become {faster:.1f}× as fast. ResNet-50 has no depthwise convolutions, and its batch norms take {100 * norms:.0f} %.",
        "fusion": f"We assumed that separate operators reach the memory's bandwidth, and they reach half of it: {moved('fusion', program='norm', form='eager')} of {si(read, 'B/s')}. So fusing saves bytes and moves the remaining ones faster, at {moved('fusion', program='chain', form='compiled')} in the chain and {moved('fusion', program='norm', form='compiled')} in the norm. Torch's own layer norm moves the same bytes as the compiled one at only {moved('fusion', program='norm', form='layer_norm')}. Which limit holds these kernels back, the recording does not show; hardware counters would.",
        "decode": f"Even as a CUDA graph, a step for one sequence stays at {reached('decode', batch=1, context=1024, mode='graph')} of the bandwidth at the short context, where nearly all bytes are weights; a profile would tell which kernels are slow. The long context adds {si(late[1], 's')} for one sequence and {si(late[4], 's')} for four, which read four times the cache. So with few sequences attention does not reach the bandwidth, probably because there are too few heads to occupy the card. The eager steps of 1 to 64 sequences take {si(min(eager), 's')} to {si(max(eager), 's')} in no order, because the device waits for a host whose speed varies. So how much a graph gains depends on the host at that moment.",
    }


def launch(case):
    """Seconds that the host took to launch a call, of a case that says so in a note."""
    [note] = [each for each in case["notes"] if each.startswith(WAITS)]
    return float(note.removeprefix(WAITS).split()[0])


def _why_xeon():
    of = {name: Cases(ours(name, "xeon")) for name in PARTS["xeon"]}
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


HEADINGS = {
    "h200": "One H200: kernels below the bandwidth, and a host too slow to launch",
    "xeon": "Two cores of a Xeon: kernels that neither memory nor arithmetic limits",
}

LEADS = {
    "h200": "Two causes recur: some kernels stay far below the memory's bandwidth, and the host of this virtual machine is slow to launch. Where the recording does not show the cause, we name what would.",
    "xeon": "Here we could often say which limit does not hold a kernel back, and only guess what does.",
}


def failed():
    """For each machine the experiments with a part that failed, each with its reason."""
    lines = []
    for machine, reasons in why().items():
        lines += [f"### {HEADINGS[machine]}", "", LEADS[machine], ""]
        lines += [f"- **{experiment(name).title}.** {text}" for name, text in reasons.items()]
        lines += ["", undecided(), ""] if machine == "h200" else [""]
    return "\n".join(lines)


def undecided():
    """What our H200 leaves open about waves of tiles."""
    of = Cases(ours("matmul_tiles", "h200"))
    full, behind = (of(rows=rows) for rows in (4224, 4288))
    fall = of.rate(rows=4288) / of.rate(rows=4224)
    clocks = [each["monitor"]["sm_mhz"] for each in (full, behind)]
    low, high = min(each["low"] for each in clocks), max(each["high"] for each in clocks)
    return f"The three parts on **tiles and waves** stay open. FLOP/s fall by {100 * (1 - fall.mean):.0f} % behind the full wave, and we predicted about 10 %, but the interval reaches from {100 * (1 - fall.high):.0f} % to {100 * (1 - fall.low):.0f} %. The power limit moves the clock between {low:,.0f} and {high:,.0f} MHz in these cases, so the times scatter. With the clock locked at a rate that the power limit allows, the steps should show."


MEANT = {  # words of a prediction, which stays as it was written, and what they mean
    "convolutions": ("as many FLOPs fewer as there are channels", "1/256 of the FLOPs; 1/128 on the CPU"),
}

MISSING = {
    ("cnn_operators", "xeon"): "Its prediction is about GPUs, and we did not run it on the Xeon.",
    ("all_reduce", "h200"): "It needs at least two GPUs, and we had one.",
}


def not_measured():
    """What the recording of our H200 lacks, in a sentence."""
    formats, methods = 3, 3  # bf16, TF32, fp32; one image, an epoch, compiled
    made, whole = len(ours("cnns", "h200")), len(cnn_names()) * formats + len(SHOWN) * methods
    return f"On our H200, {whole - made} of the {whole} cases of the thirteen networks are missing, so no part tests what compiling MobileNetV2 gains."


def results():
    """An experiment after the other: its prediction, what each machine showed of its parts, and all cases folded away."""
    lines = []
    for name in NAMES:
        asked = experiment(name)
        words, meant = MEANT.get(name, ("", ""))
        said = asked.prediction.replace(words, f"{words} [meant: {meant}]") if words else asked.prediction
        lines += [f"### {asked.title}", "", f"`{name}`. {said}", ""]
        for machine in MACHINES:
            if parts := parts_of(name, machine):
                rows = [["Predicted", f"{titled(machine)} (interval)", ""]]
                rows += [[part.says, part.seen, part.word + f" ({part.weak})" * bool(part.weak)] for part in parts]
                lines += [table(rows, left=3), ""]
            else:
                lines += [f"{titled(machine)}: not measured. {MISSING[name, machine]}", ""]
        for machine in MACHINES:
            if cases := ours(name, machine):
                lines += [f"<details><summary>All cases on {MACHINES[machine]}</summary>", "", _cases(cases), "", "</details>", ""]  # fmt: skip
    return "\n".join(lines)


def _cases(cases):
    shown = [["case", "time", "95 % interval", "FLOP/s", "bytes/s", ""]]
    several = len({each["dtype"] for each in cases}) > 1
    for case in cases:
        seconds, rates = case["seconds"], case["rates"]
        interval = f"{units.seconds(seconds['low'])} to {units.seconds(seconds['high'])}"
        flops, moved = units.si(rates["flops_per_s"], "FLOP/s"), units.si(rates["bytes_per_s"], "B/s")
        named = case["case"] + f", {case['dtype']}" * several
        shown.append([named, units.seconds(seconds["mean"]), interval, flops, moved, weak([case])])
    return table(shown)
