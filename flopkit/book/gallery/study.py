"""Figure of the chapter on the inverted bottleneck: the highest utilisation that memory allows each of the thirteen networks."""

from __future__ import annotations

from functools import cache
from typing import Any

from flopkit.book.gallery.cnns import NETWORKS
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import device_choice, source_note
from flopkit.charts.packages import need
from flopkit.charts.panel import Control, along, choice, column, readout, slider
from flopkit.charts.readings import pick
from flopkit.cost import Cost
from flopkit.devices import device
from flopkit.models.vision import cnn, cnn_backward, cnn_kinds
from flopkit.rooflines import roofline

__all__ = ["step_on_device", "utilisation_ceilings"]

DEVICES = (
    ("p100-pcie", "fp32"), ("v100-sxm", "fp32"), ("v100-sxm", "fp16"), ("t4", "fp16"), ("rtx-3090", "fp16"),
    ("a100-sxm-80gb", "bf16"), ("h100-sxm", "bf16"),
)  # fmt: skip
UNITS = {"FLOPs": {"each": 1}, "multiply-adds, as the study": {"each": 0.5}}
GROUPS = {
    "products": ("convolution", "pointwise", "dense"), "depthwise": ("depthwise",), "plain": ("norm", "activation"), "rest": ("other",),
}  # fmt: skip
"""What the sliders tell apart: layers on the peak of the device, those on its lanes, those without products that can be fused, the others."""
BATCH = 64


@cache
def step(title: str, dtype: str) -> dict[str, tuple[tuple[Cost, float], ...]]:
    """The operators of a training step, by group, and how many times as long second reads make each.

    A batch norm has to read its maps twice: forward one map, backward two.
    """
    name = NETWORKS[title]
    kinds = cnn_kinds(name)
    both: list[tuple[Cost, float]] = []
    for work, maps in (
        (cnn(name, batch=BATCH, dtype=dtype), 1),
        (cnn_backward(name, batch=BATCH, dtype=dtype), 2),
    ):
        norm = (2 * maps + 1) / (maps + 1)
        both += [(part, norm if kinds[part.name] == "norm" else 1.0) for part in work.parts]
    return {
        group: tuple((part, longer) for part, longer in both if kinds[part.name] in some)
        for group, some in GROUPS.items()
    }


@cache
def flops_of_image(title: str) -> Any:
    """FLOPs of a training step, an image."""
    return sum(part.flops for part in (*cnn(NETWORKS[title]).parts, *cnn_backward(NETWORKS[title]).parts))


@cache
def least_seconds(title: str, key: str, dtype: str, group: str) -> float:
    """The least time of the operators of a group on a device, an image."""
    rate = "fp32" if group == "depthwise" else dtype
    each = (longer * roofline(part, device(key), rate).seconds for part, longer in step(title, dtype)[group])
    return float(sum(each) / BATCH)


def _devices() -> Control:
    """The drop-down of devices; behind each option also the times of every network there."""
    plain = device_choice(pairs=DEVICES)
    options = {}
    for (option, fields), (key, dtype) in zip(plain.fields.items(), DEVICES, strict=True):
        times = {
            f"{name}_{group}": least_seconds(title, key, dtype, group)
            for title, name in NETWORKS.items()
            for group in GROUPS
            if step(title, dtype)[group]
        }
        options[option] = {"peak": fields["peak"], "bits": fields["bits"], **times}
    return choice("device", plain.label, options)


def step_on_device(s: Any, *, network: Any, plain: Any, depthwise: Any, device: Any, counts: Any) -> None:
    """A training step of each network on a device, an image: the least time of every operator, added up."""
    left = {"products": 1, "rest": 1, "plain": plain, "depthwise": depthwise}
    for title, name in NETWORKS.items():
        there = {group: getattr(device, f"{name}_{group}") for group in GROUPS if step(title, "fp32")[group]}
        setattr(s, f"{name}_seconds", sum(seconds * left[group] for group, seconds in there.items()))
        setattr(s, f"{name}_ceiling", flops_of_image(title) * counts.each / getattr(s, f"{name}_seconds") / device.peak)

    def moved(*groups: str) -> Any:
        """Bytes of an image in these groups."""
        each = {t: sum(part.bytes for group in groups for part, _ in step(t, "int8")[group]) / BATCH for t in NETWORKS}
        return pick(network, each) * device.bits / 8

    s.flops = pick(
        network,
        {
            title: sum(part.flops for group in GROUPS for part, _ in step(title, "int8")[group]) // BATCH
            for title in NETWORKS
        },
    )
    s.bytes = moved(*GROUPS)
    s.plain_share, s.depthwise_share = moved("plain") / s.bytes, moved("depthwise") / s.bytes
    s.intensity = s.flops / s.bytes
    for what in ("seconds", "ceiling"):
        setattr(s, what, pick(network, {title: getattr(s, f"{name}_{what}") for title, name in NETWORKS.items()}))


def one_network(r: Any, *, title: Any, **_: Any) -> None:
    """A row: the ceiling of a network, and the time of an image at which it is reached."""
    for what in ("ceiling", "seconds"):
        setattr(r, f"its_{what}", pick(title, {t: getattr(r, f"{name}_{what}") for t, name in NETWORKS.items()}))


def utilisation_ceilings() -> Figure:
    """Thirteen networks in training: the highest utilisation that the bytes of their operators allow on a device."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        bold, ink = (
            {"condition": {"test": "datum.value == network", "value": chosen}, "value": other}
            for chosen, other in (("bold", "normal"), (theme.ORANGE, theme.MUTED))
        )
        y = alt.Y("title:N", title=None, sort=list(NETWORKS), axis=alt.Axis(labelFontWeight=bold, labelColor=ink))
        axis = alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1], domain=False)
        x = alt.X(
            "its_ceiling:Q", title="utilisation, at most", axis=axis, scale=alt.Scale(domain=[0, 1.15], nice=False)
        )
        colour = alt.condition("datum.title == network", alt.value(theme.ORANGE), alt.value(theme.BLUE))
        tips = [
            alt.Tooltip("title:N", title="network"), alt.Tooltip("its_ceiling:Q", title="utilisation, at most", format=".1%"),
            alt.Tooltip("its_seconds:Q", title="seconds an image, at least", format=".3~s"),
        ]  # fmt: skip
        bars = s.rows.mark_bar(size=13).encode(y=y, x=x, color=colour, tooltip=tips)
        share = alt.Text("its_ceiling:Q", format=".0%")
        return alt.layer(bars, *theme.words(s.rows, {"align": "left", "dx": 5}, y=y, x=x, text=share))

    return Figure(
        name="utilisation-ceilings",
        title="How busy can memory let a training step be?",
        alt="Bars of thirteen networks: the highest utilisation of a training step on {device}, counted in {counts}, "
        "with {plain} of the time of batch norms and activations and {depthwise} of that of depthwise convolutions. {network} reaches at most {ceiling}; it moves {bytes} and takes at least {seconds} an image.",
        model=step_on_device,
        controls=[
            choice("network", "Network", list(NETWORKS), value="MobileNetV2"),
            slider("plain", "Time of norms, activations", [i / 10 for i in range(11)], value=1.0, unit="%"),
            slider("depthwise", "Time of depthwise", [i / 10 for i in range(11)], value=1.0, unit="%"),
            _devices(),
            choice("counts", "Utilisation counts", UNITS),
        ],
        readouts=[
            readout("ceiling", "Utilisation, at most", "%"),
            readout("seconds", "An image, at least", "s"),
            readout("intensity", "FLOPs per byte", "FLOP/B"),
            readout("plain_share", "Bytes: norms, activations", "%"),
            readout("depthwise_share", "Bytes: depthwise", "%"),
            readout("bytes", "Bytes, an image", "B"),
        ],
        rows=along("title", list(NETWORKS), one_network),
        chart=chart,
        table=[column("title", "Network"), column("its_ceiling", "Utilisation, at most", "%"), column("its_seconds", "Time, at least", "s")],
        caption="A training step on 64 images of 224 × 224, without the optimiser. Every operator runs by itself and finds nothing in a cache, so the time is a bound and not a measurement; "
        "in it a batch norm reads its maps twice, as it must in training, and depthwise convolutions run at the fp32 peak. The sliders shorten times and leave FLOPs and bytes as they are. "
        + source_note(DEVICES),
        height=380,
    )  # fmt: skip
