"""The figure of the chapter on one FLOP: the same work under every convention, and who prints which number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flopkit.arithmetic import where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, switch
from flopkit.charts.readings import pick
from flopkit.conventions import EXACT, TORCH
from flopkit.cost import Cost
from flopkit.layers.attentions import attention
from flopkit.layers.convolutions import conv2d
from flopkit.layers.pointwise import activation
from flopkit.layers.products import dense
from flopkit.peers.recorded import recorded, versions
from flopkit.units import parse

__all__ = ["Published", "Rule", "Work", "counted", "what_counts"]


@dataclass(frozen=True)
class Work:
    """The work of a layer, in the parts that conventions take or leave.

    `macs` are multiply-adds, `dots` the dot products that they belong to; `hidden` and `hidden_dots` are those of
    attention positions that the mask hides; `bias`, `vector` and `hidden_vector` are additions of a bias, other
    element-wise operations, and those at hidden positions.
    """

    macs: Any
    dots: Any = 0
    hidden: Any = 0
    hidden_dots: Any = 0
    bias: Any = 0
    vector: Any = 0
    hidden_vector: Any = 0


@dataclass(frozen=True)
class Rule:
    """What a tool counts, where its documentation or its source settles that."""

    fma: int
    bias: bool = False
    vector: bool = False
    hidden: bool = True
    twice: bool = False  # element-wise work, once as a layer and once more as the function that the layer calls

    def counts(self, work: Work) -> Any:
        """The number that the tool prints for *work*."""
        once = counted(work, fma=self.fma, bias=self.bias, vector=self.vector, hidden=self.hidden)
        return once + (_elements(work, self.hidden) if self.twice else 0)


@dataclass(frozen=True)
class Published:
    """A rounded number in print, and the rule whose number it rounds.

    Other rules may round to the same digits: 8.2 G are the FLOPs of ResNet-50 with its norms and without. Only the
    rule's own number agrees.
    """

    text: str
    rule: Rule

    def counts(self, work: Work) -> Any:
        """The number that the print rounds.

        Raises
        ------
        ValueError
            Where it does not round to the print.
        """
        exact, (value, _, half) = self.rule.counts(work), parse(self.text)
        if abs(exact - value) > half:
            raise ValueError(f"Published({self.text!r}): the rule gives {exact:,}, which does not round to it")
        return exact


# A dot product of length K: FLOPs to a multiply-add, and how many fewer to the whole of it.
DOTS: dict[str, dict[str, int]] = {
    "K multiply-adds": {"fma": 1, "unpaired": 0},
    "2K FLOPs": {"fma": 2, "unpaired": 0},
    "2K − 1 operations": {"fma": 2, "unpaired": 1},  # the first product has nothing to be added to
}


def counted(work: Any, *, fma: Any, unpaired: Any = 0, bias: Any, vector: Any, hidden: Any) -> Any:
    """The number that these switches give for *work*; *unpaired* additions of each dot product are left out.

    2K pairs every product with an addition, so that 2K *and* a bias is one more than is done.

    >>> neuron = Work(macs=4, dots=1, bias=1, vector=1)
    >>> counted(neuron, fma=1, bias=False, vector=False, hidden=False)
    4
    >>> counted(neuron, fma=2, unpaired=1, bias=True, vector=True, hidden=False)
    9
    """
    macs = work.macs + where(hidden, work.hidden, 0)
    dots = work.dots + where(hidden, work.hidden_dots, 0)
    return fma * macs - unpaired * dots + where(bias, work.bias, 0) + where(vector, _elements(work, hidden), 0)


def _elements(work: Any, hidden: Any) -> Any:
    return work.vector + where(hidden, work.hidden_vector, 0)


FVCORE, PTFLOPS, TORCH_COUNTER = Rule(1), Rule(1, bias=True, vector=True, twice=True), Rule(2)
TENSORFLOW, CALFLOPS = Rule(2, bias=True), Rule(2, bias=True, vector=True)
CALFLOPS_DENSE = Rule(2, vector=True)  # it leaves the bias of F.linear out, and counts that of a convolution
EXACTLY = Rule(2, hidden=False)

NETWORK = "ResNet-50, one image"
RESNET_50_OUTPUTS = 11_114_984  # the numbers that its convolutions and its dense layer give: a dot product each

# From the top of the chart to its foot, with a name for each that fits a phone.
TOOLS = {
    "torchvision": "torchvision's table",
    "fvcore": "fvcore",
    "ptflops": "ptflops",
    "thop": "thop",
    "flash": "FlashAttention",
    "flopkit": "this book",
    "torch": "PyTorch's counter",
    "mlperf": "MLPerf",
    "tensorflow": "TensorFlow",
    "calflops": "calflops",
}


def _split(cost: Cost, bias: Any, dots: Any, hidden_dots: Any = 0) -> Work:
    everything = cost.under(TORCH)
    exact = cost.under(EXACT)
    return Work(
        macs=exact.macs,
        dots=dots,
        hidden=everything.macs - exact.macs,
        hidden_dots=hidden_dots,
        bias=bias,
        vector=exact.vector_flops - bias,
        hidden_vector=everything.vector_flops - exact.vector_flops,
    )


def _layers() -> dict[str, tuple[Work, Mapping[str, Rule | Published | int]]]:
    """Each layer with its work, and what tools make of it: a rule, a rounded number in print, or a number that was run."""
    from flopkit.models.vision import cnn

    ran = recorded()["ResNet-50"].printed  # by the versions of flopkit/data/counters.toml
    network = cnn("resnet50")
    image: dict[str, Any] = {"batch": 1, "c_in": 3, "c_out": 64, "h_out": 224, "w_out": 224, "kernel": 3}
    outputs = 64 * 224 * 224
    first = conv2d(**image, bias=True) + activation("relu", elements=outputs)
    neuron = dense(tokens=1, d_in=4, d_out=1, bias=True) + activation("relu", elements=1)
    tokens, heads, width = 1024, 12, 64
    core = attention(batch=1, q=tokens, kv=tokens, heads=heads, head_dim=width, mask="causal")
    pairs = tokens * (tokens + 1) // 2  # a dot product for each score, and for each number of the result
    return {
        NETWORK: (
            _split(network, 1000, RESNET_50_OUTPUTS),
            {
                "torchvision": Published("4.09 GFLOPs", Rule(1)),  # its documentation, under GFLOPS
                **{tool: ran[tool] for tool in ("fvcore", "ptflops", "thop", "torch", "calflops")},
                "flopkit": EXACTLY,
                "mlperf": Published("8.2 GFLOPs", Rule(2)),  # Reddi et al., table I, in GOPS
            },
        ),
        "VGG-16, first convolution and ReLU": (
            _split(first, outputs, outputs),
            {
                "fvcore": FVCORE,
                "ptflops": PTFLOPS,
                "flopkit": EXACTLY,
                "torch": TORCH_COUNTER,
                "tensorflow": TENSORFLOW,
                "calflops": CALFLOPS,
            },
        ),
        "One neuron, 4 inputs and ReLU": (
            _split(neuron, 1, 1),
            {
                "fvcore": FVCORE,
                "ptflops": PTFLOPS,
                "flopkit": EXACTLY,
                "torch": TORCH_COUNTER,
                "tensorflow": TENSORFLOW,
                "calflops": CALFLOPS_DENSE,
            },
        ),
        "GPT-2, one layer's attention": (
            _split(core, 0, heads * (pairs + tokens * width), heads * (tokens**2 - pairs)),
            {"fvcore": FVCORE, "flash": 4 * tokens**2 * heads * width // 2, "flopkit": EXACTLY, "torch": TORCH_COUNTER},
        ),
    }


def _fields(work: Work, prints: Mapping[str, Rule | Published | int]) -> dict[str, float]:
    """The numbers behind one option: the work, and for each tool the number in print and the one that it stands for."""
    fields: dict[str, float] = {**vars(work), "top": 2.8 * (work.macs + work.hidden)}
    for tool in TOOLS:
        source = prints.get(tool, math.nan)
        means: float = source.counts(work) if isinstance(source, (Rule, Published)) else source
        shown: float = parse(source.text).value if isinstance(source, Published) else means
        fields |= {f"{tool}_means": means, f"{tool}_prints": shown}
    return fields


def work_counted(s: Any, *, layer: Any, dot: Any, bias: Any, vector: Any, hidden: Any) -> None:
    """The number that the switches give, what it is made of, and how many sources besides this book print it."""
    s.count = counted(layer, fma=dot.fma, unpaired=dot.unpaired, bias=bias, vector=vector, hidden=hidden)
    s.macs = layer.macs + where(hidden, layer.hidden, 0)
    s.masked = layer.hidden
    s.biases = layer.bias
    s.elements = _elements(layer, hidden)
    s.top = layer.top
    s.no_bias = where(layer.bias == 0, "This work has no bias.", "")
    s.no_mask = where(layer.hidden == 0, "This work has no mask.", "")
    found: Any = 0
    for tool in TOOLS:
        if tool != "flopkit":
            found = found + where(s.count == getattr(layer, f"{tool}_means"), 1, 0)
    s.agreeing = found


def printed(r: Any, *, tool: Any, layer: Any, **switches: Any) -> None:
    """What one tool prints for the layer, and whether that is the number of the switches."""
    r.name = pick(tool, TOOLS)
    r.prints = pick(tool, {key: getattr(layer, f"{key}_prints") for key in TOOLS})
    r.means = pick(tool, {key: getattr(layer, f"{key}_means") for key in TOOLS})
    r.agrees = where(r.prints == r.prints, where(r.count == r.means, "yes", "no"), "–")  # no number: no answer
    r.more = r.prints / (2 * layer.macs) - 1


def what_counts() -> Figure:
    """One layer, the switches that conventions differ in, and the tools that print the number."""

    def spaced(text: str) -> str:
        return f"replace({text}, /[kMG]/, ' $&')"

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "prints:Q",
            title="printed for the same work",
            scale=alt.Scale(zero=True, nice=False),
            axis=alt.Axis(format="~s", tickCount=5, labelExpr=f"datum.value ? {spaced('datum.label')} : '0'"),
        )
        # The names stand in a column of their own, where the line does not cross them.
        y = alt.Y(
            "name:N",
            title=None,
            sort=list(TOOLS.values()),
            axis=alt.Axis(
                domain=False, ticks=False, grid=False, labelColor=theme.INK, labelFontSize=12.5, labelLimit=0
            ),
        )
        rows = s.rows.transform_filter("isFinite(datum.prints)").transform_calculate(
            value=spaced("format(datum.prints, '.4~s')")
        )
        tip = [alt.Tooltip("name:N", title="tool"), alt.Tooltip("prints:Q", title="prints", format=",")]
        colour = alt.condition("datum.agrees == 'yes'", alt.value(theme.ORANGE), alt.value(theme.BLUE))
        ink = alt.condition("datum.agrees == 'yes'", alt.value(theme.ORANGE), alt.value(theme.INK))
        dots = rows.mark_point(size=120).encode(x=x, y=y, color=colour, tooltip=tip)
        place = {"align": "left", "dx": 11, "fontSize": 12.5}
        words = theme.words(rows, place, x=x, y=y, text="value:N", color=ink)
        line = s.now(prints=s.count, label="counted")
        yours = line.mark_rule(color=theme.ORANGE, strokeWidth=1.5).encode(x=x, tooltip=tip[1:])
        beside = {"color": theme.ORANGE, "align": {"expr": "count > top / 2 ? 'right' : 'left'"}}
        name = theme.words(line, beside, x=x, y=alt.value(-8), text="label:N")
        room = s.now(prints=s.top).mark_point(opacity=0).encode(x=x)
        return alt.layer(room, yours, *name, *words, dots)

    works = _layers()
    return Figure(
        name="what-counts",
        title="One piece of work, many numbers",
        alt="A dot for each source that prints a number for the same work, {layer}, this book among them. The line is what the switches "
        "count: {count}, with a dot product of length K as {dot}, bias {bias}, other element-wise work {vector}, hidden scores {hidden}. "
        "Others who agree: {agreeing}.",
        model=work_counted,
        controls=[
            choice("layer", "Work", {name: _fields(*about) for name, about in works.items()}),
            choice("dot", "A dot product of length K is", DOTS),
            switch("bias", "Count the bias", idle="no_bias"),
            switch("vector", "Count other element-wise work"),
            switch("hidden", "Count scores that the mask hides", value=True, idle="no_mask"),
        ],
        presets={
            "multiply-adds, as MACs": {"dot": "K multiply-adds", "bias": False, "vector": False, "hidden": True},
            "as PyTorch's counter counts (TORCH)": {"dot": "2K FLOPs", "bias": False, "vector": False, "hidden": True},
            "as this book counts (EXACT)": {"dot": "2K FLOPs", "bias": False, "vector": False, "hidden": False},
            "everything, hidden scores included": {
                "dot": "2K − 1 operations",
                "bias": True,
                "vector": True,
                "hidden": True,
            },
        },
        readouts=[
            readout("count", "Counted"),
            readout("agreeing", "Others who agree", "sources"),
            readout("macs", "Multiply-adds", "MACs"),
            readout("masked", "Hidden by the mask", "MACs"),
            readout("biases", "Bias additions", "FLOPs"),
            readout("elements", "Other element-wise", "FLOPs"),
        ],
        rows=along("tool", tuple(TOOLS), printed),
        chart=chart,
        table=[
            column("name", "Source"),
            column("prints", "Prints"),
            column("more", "More than this book's count", "%"),
            column("agrees", "Agrees with yours"),
        ],
        caption="ResNet-50: torchvision and MLPerf as published, rounded (they agree with the exact counts of "
        + f"{works[NETWORK][0].macs:,} and {2 * works[NETWORK][0].macs:,}); "
        + ", ".join(
            f"{TOOLS[tool]} {versions()[tool].split('.post')[0]}"
            for tool in ("fvcore", "ptflops", "thop", "torch", "calflops")
        )
        + " as run on a CPU. The other works follow the rules of these versions and of the documentation of TensorFlow, another framework, with "
        "attention written out as two matmuls. ptflops counts each ReLU twice, so it can match by accident.",
        height=290,
    )
