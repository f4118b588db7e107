"""Figure of the chapter on convolution: thirteen networks, and which layers do their FLOPs, move their bytes and take their time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

from flopkit.arithmetic import exact_div, where
from flopkit.book.gallery.convolutions import DEVICES
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import device_choice, source_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.models.vision import KINDS, cnn, cnn_kinds
from flopkit.rooflines import bound_by

__all__ = ["NETWORKS", "cnn_anatomy", "networks_on_device"]

NETWORKS = {
    "AlexNet": "alexnet",
    "VGG-11": "vgg11",
    "VGG-13": "vgg13",
    "VGG-16": "vgg16",
    "VGG-19": "vgg19",
    "ResNet-18": "resnet18",
    "ResNet-34": "resnet34",
    "ResNet-50": "resnet50",
    "ResNet-101": "resnet101",
    "ResNet-152": "resnet152",
    "Wide ResNet-50": "wide_resnet50_2",
    "MobileNetV2": "mobilenet_v2",
    "EfficientNet-B0": "efficientnet_b0",
}
LABELS = {
    "convolution": "convolution",
    "pointwise": "1 × 1",
    "depthwise": "depthwise",
    "dense": "dense",
    "norm": "batch norm",
    "activation": "activation",
    "other": "other",
}
COLOURS = [theme.BLUE, theme.PURPLE, theme.ORANGE, theme.INK, theme.AMBER, theme.GREEN, theme.MUTED]
FOLDED = ("norm", "activation")
"""Kinds that an optimised program does not run by themselves: they go into the layer before."""
SHOWN = {"least time": "s", "bytes": "B", "FLOPs": ""}
FUSION = {
    "nothing": {"alone": 1, "sums": 1},
    "batch norms and activations": {"alone": 0, "sums": 1},
    "these and the residual sums": {"alone": 0, "sums": 0},
}
"""What is fused into the convolutions: how often norms and activations run by themselves, and how often residual sums do."""


def amount(number: str) -> str:
    """Vega text of what is shown of a network: "23.8 µs"."""
    return f"replace(format({number}, '.3~s'), /[^0-9.]?$/, ' $&') + ({SHOWN})[show]"


@cache
def layers(title: str, sums: int = 1) -> dict[str, Counter[tuple[int, int, int]]]:
    """How often each kind of layer occurs: FLOPs and numbers read and written for an image, numbers read once a batch.

    A residual sum by itself reads two maps and writes one. Fused (*sums* is 0), the convolution that runs last before it
    adds the other map while it writes its own: one map more to read.
    """
    name = NETWORKS[title]
    kinds = cnn_kinds(name)
    parts: list[list[Any]] = []
    for one, two in zip(cnn(name, dtype="int8").parts, cnn(name, batch=2, dtype="int8").parts, strict=True):
        image = two.bytes - one.bytes
        if one.name.endswith(".add") and not sums:
            last = max(i for i, part in enumerate(parts) if part[1])
            parts[last][2] += exact_div(image, 3)
        else:
            parts.append([kinds[one.name], one.flops, image, one.bytes - image])
    found = {kind: Counter[tuple[int, int, int]]() for kind in KINDS}
    for kind, *sizes in parts:
        found[kind][tuple(sizes)] += 1
    return found


def totals(title: str, kind: str, sums: int = 1) -> tuple[int, int, int]:
    """The three numbers of `layers`, summed over the layers of one kind."""
    several = [[n * number for number in sizes] for sizes, n in layers(title, sums)[kind].items()]
    return tuple(map(sum, zip(*several, strict=True))) if several else (0, 0, 0)  # type: ignore[return-value]


def _sum(title: str, index: int, kinds: Iterable[str], sums: int = 1) -> int:
    return sum(totals(title, kind, sums)[index] for kind in kinds)


def _by_sums(fused: Any, kind: str, titles: Iterable[str], value: Callable[[int], Any]) -> Any:
    """*value* with residual sums by themselves or fused, as is chosen; one value where the kind knows no difference."""
    if all(layers(title, 0)[kind] == layers(title, 1)[kind] for title in titles):
        return value(1)
    return where(fused.sums == 1, value(1), value(0))


def networks_on_device(s: Any, *, network: Any, show: Any, batch: Any, device: Any, fused: Any) -> None:
    """All networks on a device, an image: for every kind of layer the sum of what each layer takes at least.

    Depthwise convolutions seldom run on tensor cores, so theirs is the peak of the ordinary lanes.
    """
    s.alone = fused.alone  # how often norms and activations run by themselves
    s.share = 1 / batch
    s.rate = 8 * device.bandwidth / device.bits  # numbers read and written in a second
    for title, name in NETWORKS.items():
        for kind in KINDS:
            time = _by_sums(fused, kind, [title], partial(_time, s, title, kind, device))
            setattr(s, f"{name}_{kind}", time * s.alone if kind in FOLDED else time)
        setattr(s, f"{name}_seconds", sum(getattr(s, f"{name}_{kind}") for kind in KINDS))
    s.flops = pick(network, {title: _sum(title, 0, KINDS) for title in NETWORKS})
    rest = [kind for kind in KINDS if kind not in FOLDED]
    for index, what in ((1, "numbers"), (2, "weights")):
        unfused, fewer, apart = (
            pick(network, {title: _sum(title, index, kinds, sums) for title in NETWORKS})
            for kinds, sums in ((rest, 1), (rest, 0), (FOLDED, 1))
        )
        setattr(s, what, where(fused.sums == 1, unfused, fewer) + apart * s.alone)
    s.bytes = (s.numbers + s.weights * s.share) * device.bits / 8
    s.seconds = pick(network, {title: getattr(s, f"{name}_seconds") for title, name in NETWORKS.items()})
    s.busy = s.flops / device.peak / s.seconds
    s.resnet50_work = _sum("ResNet-50", 0, KINDS) / s.flops
    s.resnet50_time = s.resnet50_seconds / s.seconds


def _time(s: Any, title: str, kind: str, device: Any, sums: int) -> Any:
    """The least time of the layers of one kind, an image."""
    found = layers(title, sums)[kind]
    if kind in ("norm", "activation", "other"):  # no FLOPs: the layers' bytes add up, and so does their time
        _, image, once = totals(title, kind, sums)
        return (image + once * s.share) / s.rate
    peak = device.lanes if kind == "depthwise" else device.peak
    return sum(
        n * bound_by(flops, image + once * s.share, peak, s.rate).seconds for (flops, image, once), n in found.items()
    )


def one_network(r: Any, *, title: Any, show: Any, device: Any, fused: Any, **_: Any) -> None:
    """A row: what is shown of a network, split by kind of layer."""

    def each(values: dict[str, Any]) -> Any:
        return pick(title, values)

    for kind in KINDS:
        flops, once = ({t: totals(t, kind)[i] for t in NETWORKS} for i in (0, 2))
        images = {sums: each({t: totals(t, kind, sums)[1] for t in NETWORKS}) for sums in (0, 1)}
        image = _by_sums(fused, kind, NETWORKS, images.__getitem__)
        time = each({t: getattr(r, f"{name}_{kind}") for t, name in NETWORKS.items()})
        traffic = (image + each(once) * r.share) * device.bits / 8
        if kind in FOLDED:
            traffic = traffic * r.alone
        setattr(r, f"{kind}_all", where(show == "least time", time, where(show == "bytes", traffic, each(flops))))
    r.whole = sum(getattr(r, f"{kind}_all") for kind in KINDS)
    for kind in KINDS:
        setattr(r, kind, getattr(r, f"{kind}_all") / r.whole)


def cnn_anatomy() -> Figure:
    """Thirteen networks as bars: which kind of layer does the FLOPs, moves the bytes, or takes the least time on a device."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        y = alt.Y(
            "title:N",
            title=None,
            sort=list(NETWORKS),
            axis=alt.Axis(
                labelFontWeight={"condition": {"test": "datum.value == network", "value": "bold"}, "value": "normal"}
            ),
        )
        axis = alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1], domain=False)
        scale = alt.Scale(domain=[0, 1.22], nice=False)
        bars = (
            s.rows.transform_fold(list(KINDS), as_=["kind", "part"])
            .transform_calculate(
                label=f"({LABELS})[datum.kind]",
                place=f"indexof({list(KINDS)}, datum.kind)",
                amount=amount("datum.part * datum.whole"),
            )
            .mark_bar()
            .encode(
                y=y,
                x=alt.X("part:Q", title="share of the total at the right", axis=axis, scale=scale),
                color=alt.Color(
                    "label:N",
                    title=None,
                    scale=alt.Scale(domain=list(LABELS.values()), range=COLOURS),
                    legend=alt.Legend(columns=3, columnPadding=5, symbolSize=70, labelFontSize=11, symbolType="square"),
                ),
                order=alt.Order("place:Q"),
                tooltip=[
                    alt.Tooltip("title:N", title="network"),
                    alt.Tooltip("label:N", title="layers"),
                    alt.Tooltip("part:Q", title="share", format=".1%"),
                    alt.Tooltip("amount:N", title="one image"),
                ],
            )
        )
        rows = s.rows.transform_calculate(text=amount("datum.whole"), end="1")
        end = alt.X("end:Q", scale=scale, axis=axis)
        return alt.layer(bars, *theme.words(rows, {"align": "left", "dx": 5}, y=y, x=end, text="text:N"))

    return Figure(
        name="cnn-anatomy",
        title="Which layers cost FLOPs, and which cost time?",
        alt="Stacked bars of thirteen networks: the {show} of an image, split by kind of layer, in batches of {batch} on {device}. "
        "Fused into the convolutions: {fused}. The data table has every share. {network} has {flops}, moves {bytes} and "
        "takes at least {seconds} per image.",
        model=networks_on_device,
        controls=[
            choice("show", "Show", list(SHOWN)),
            choice("network", "Network", list(NETWORKS), value="MobileNetV2"),
            slider("batch", "Batch", steps(1, 512), value=64, unit="images"),
            device_choice(pairs=DEVICES),
            choice("fused", "Fused into the convolutions", FUSION),
        ],
        readouts=[
            readout("flops", "FLOPs per image", "FLOPs"),
            readout("bytes", "Bytes per image", "B"),
            readout("seconds", "Least time per image", "s"),
            readout("busy", "Of the peak, at most", "%"),
            readout("resnet50_work", "ResNet-50's FLOPs over these", "×"),
            readout("resnet50_time", "ResNet-50's time over this", "×"),
        ],
        rows=along("title", list(NETWORKS), one_network),
        chart=chart,
        table=[column("title", "Network"), *(column(kind, label, "%") for kind, label in LABELS.items())],
        caption="Forward passes at 224 × 224. Every operator runs by itself and finds nothing in a cache. The least time of a network "
        "is the sum over its operators, a bound and not a measurement. If fused, a batch norm goes into the weights before it, an activation "
        "into the GPU kernel before it, and a residual sum only makes that GPU kernel read one more map. Depthwise convolutions "
        "run on the lanes, at the fp32 peak. “Convolution” is any full one with a kernel larger than 1 × 1. “Other” is residual "
        "sums, pooling and squeeze-and-excite's scaling (one factor per channel). " + source_note(DEVICES),
        height=380,
    )
