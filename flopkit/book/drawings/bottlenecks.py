"""A bottleneck and an inverted one: how wide their maps are, which operators do FLOPs and which move bytes, and what that makes of two networks."""

from __future__ import annotations

import itertools
from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, MUTED, ORANGE
from flopkit.cost import Cost
from flopkit.devices import device as find
from flopkit.layers.convolutions import conv2d
from flopkit.layers.normalisations import batch_norm
from flopkit.layers.pointwise import activation, residual
from flopkit.models.vision import cnn, cnn_kinds
from flopkit.rooflines import roofline
from flopkit.units import percent, si

__all__ = ["bottlenecks", "inverted_bottleneck", "two_networks"]

Operators = list[tuple[str, bool, Cost]]  # name, whether it has products, cost


def _block(widths: tuple[int, ...], depthwise: bool, side: int, batch: int) -> Operators:
    """1 × 1, 3 × 3, 1 × 1, each with its batch norm, the first two with an activation; then the residual sum, in ResNet an activation. In fp32."""
    image: Any = {"batch": batch, "h_out": side, "w_out": side, "dtype": "fp32"}
    found: Operators = []

    def act(channels: int) -> None:
        kind = "relu6" if depthwise else "relu"
        found.append(("activation", False, activation(kind, elements=batch * channels * side**2, dtype="fp32")))

    for i, (before, after) in enumerate(itertools.pairwise(widths)):
        groups = after if depthwise and i == 1 else 1
        name = "depthwise 3 × 3" if groups > 1 else "3 × 3" if i == 1 else "1 × 1"
        product = conv2d(**image, c_in=before, c_out=after, kernel=3 if i == 1 else 1, groups=groups)
        found.append((f"{name}, {before} → {after}" if groups == 1 else name, True, product))
        found.append(("batch norm", False, batch_norm(batch=batch, channels=after, positions=side**2, dtype="fp32")))
        if i < 2:
            act(after)
    found.append(("residual sum", False, residual(elements=batch * widths[-1] * side**2, dtype="fp32")))
    if not depthwise:
        act(widths[-1])
    return found


def _intensity(block: Operators) -> float:
    return float(sum(cost.flops for _, _, cost in block) / sum(cost.bytes for _, _, cost in block))


def bottlenecks(narrow: int = 64, channels: int = 24, side: int = 56, batch: int = 64) -> Drawing:
    """The maps of a block of ResNet-50 and of one of MobileNetV2, to scale in their channels, and their FLOPs per byte.

    Parameters
    ----------
    narrow : int, optional
        Channels in the middle of the bottleneck; four times as many at its ends.
    channels : int, optional
        Channels at the ends of the inverted bottleneck; six times as many in its middle.
    side, batch : int, optional
        Rows and columns of the maps, and images.

    Examples
    --------
    >>> bottlenecks().title
    'A bottleneck does 11.3 FLOPs per byte, an inverted one 2.16'
    """
    for name, value, most in (
        ("narrow", narrow, 128),
        ("channels", channels, 80),
        ("side", side, 1024),
        ("batch", batch, 2**20),
    ):
        whole("bottlenecks", name, value, 1, most)
    ends = {
        "a bottleneck": (4 * narrow, narrow, narrow, 4 * narrow),
        "an inverted bottleneck": (channels, 6 * channels, 6 * channels, channels),
    }
    blocks = [_block(widths, i == 1, side, batch) for i, widths in enumerate(ends.values())]
    many = max(max(widths) for widths in ends.values())
    canvas = Canvas(336)
    for i, (title, widths) in enumerate(ends.items()):
        middle, colour = (90.0, 262.0)[i], (BLUE, ORANGE)[i]
        canvas.text(middle, 10, title, bold=True)
        canvas.text(middle, 28, ("ResNet-50's", "MobileNetV2's")[i], colour=MUTED)
        products = ("1 × 1", ("3 × 3", "depthwise")[i], "1 × 1")
        behind = ("norm, act.", "norm, act.", ("norm, sum, act.", "norm, sum")[i])
        for place, wide in enumerate(widths):
            y, w = 48 + 70 * place, 150 * wide / many
            canvas.box(middle - w / 2, y, w, 20, name=f"map {place} of {title}", colour=colour, fill=0.4)
            inside = w > 34
            canvas.text(
                middle if inside else middle + w / 2 + 6,
                y + 10,
                f"{wide}",
                anchor="middle" if inside else "start",
                name="channels",
            )
            if place < 3:
                canvas.arrow(middle, y + 22, middle, y + 66)
                after: Any = {"anchor": "start", "colour": MUTED, "name": f"operators {place} of {title}"}
                canvas.lines(middle + 8, y + 36, products[place], behind[place], **after)
        canvas.text(middle, 300, f"{_intensity(blocks[i]):.3g} FLOPs per byte", bold=True, name="intensity")
    canvas.text(180, 326, "channels to scale; every operator by itself, in fp32", colour=MUTED)
    return Drawing(
        "bottlenecks",
        f"A bottleneck does {_intensity(blocks[0]):.3g} FLOPs per byte, an inverted one {_intensity(blocks[1]):.3g}",
        "Two columns of four maps, as wide as their channels are many. "
        + " ".join(f"{title.capitalize()}: {', '.join(map(str, widths))} channels." for title, widths in ends.items())
        + " The bottleneck's middle layer is a full 3 × 3 convolution, the inverted one's a depthwise one. A batch norm follows each layer, an activation "
        "the first two; at the end the input is added, in the bottleneck before another activation. Every operator by itself, in fp32: "
        f"{_intensity(blocks[0]):.3g} and {_intensity(blocks[1]):.3g} FLOPs per byte.",
        [canvas],
    )


def inverted_bottleneck(channels: int = 24, side: int = 56, batch: int = 64) -> Drawing:
    """The operators of a block of MobileNetV2, forward: the FLOPs of each and the bytes that it moves.

    Parameters
    ----------
    channels : int, optional
        Channels at the ends of the block; six times as many in its middle.
    side, batch : int, optional
        Rows and columns of the maps, and images.

    Examples
    --------
    >>> inverted_bottleneck().title
    'Batch norms and activations: hardly any FLOPs, 63.3 % of the bytes'
    """
    for name, value, most in (("channels", channels, 1024), ("side", side, 1024), ("batch", batch, 2**20)):
        whole("inverted_bottleneck", name, value, 1, most)
    block = _block((channels, 6 * channels, 6 * channels, channels), True, side, batch)
    most_flops, most_bytes = max(c.flops for _, _, c in block), max(c.bytes for _, _, c in block)
    flops, moved = (
        sum(amount for amount in of) for of in ([c.flops for _, _, c in block], [c.bytes for _, _, c in block])
    )
    colours = {"convolutions": ORANGE, "batch norms, activations": BLUE, "the residual sum": MUTED}
    canvas = Canvas(48 + 26 * len(block) + 76)
    canvas.text(132, 10, "FLOPs", anchor="start", bold=True)
    canvas.text(228, 10, "bytes", anchor="start", bold=True)
    for i, (name, product, cost) in enumerate(block):
        y = 30 + 26 * i
        canvas.text(124, y + 9, name, anchor="end")
        wide = 84 * cost.flops / most_flops
        if wide:
            canvas.box(132, y, wide, 18, name=f"FLOPs of {i}", colour=ORANGE, fill=0.5, edge=0, round=0)
        else:
            canvas.text(132, y + 9, "few", anchor="start", name=f"FLOPs of {i}", colour=MUTED)
        where = 228, y, 66 * cost.bytes / most_bytes, 18
        colour = ORANGE if product else MUTED if name == "residual sum" else BLUE
        canvas.box(*where, name=f"bytes of {i}", colour=colour, fill=0.5, edge=0, round=0)
        canvas.text(232 + where[2], y + 9, si(cost.bytes, "B"), anchor="start", name="amount")
    plain = sum(cost.bytes for name, _, cost in block if name in ("batch norm", "activation"))
    canvas.text(
        0,
        30 + 26 * len(block) + 14,
        f"together {si(flops, 'FLOPs')}, {si(moved, 'B')}",
        anchor="start",
        bold=True,
        name="together",
    )
    bottom = 30 + 26 * len(block) + 32
    for (x, y), (kind, colour) in zip(((0, bottom), (124, bottom), (0, bottom + 22)), colours.items(), strict=True):
        canvas.box(x, y, 12, 12, name="key", colour=colour, fill=0.5, edge=0)
        canvas.text(x + 18, y + 6, kind, anchor="start", name="key")
    return Drawing(
        "inverted-bottleneck",
        f"Batch norms and activations: hardly any FLOPs, {percent(plain / moved)} of the bytes",
        f"Bars of FLOPs and bytes for the operators of a block with {channels} channels at its ends and {6 * channels} in its middle, {side} × {side} "
        f"maps, {batch} images in fp32: "
        + ", ".join(f"{name} {si(cost.flops, 'FLOPs')} and {si(cost.bytes, 'B')}" for name, _, cost in block)
        + f". Together {si(flops, 'FLOPs')} and {si(moved, 'B')}; batch norms and activations move {percent(plain / moved)} of the bytes.",
        [canvas],
    )


def two_networks(device: str = "h100-sxm", dtype: str = "bf16", batch: int = 64) -> Drawing:
    """ResNet-50 beside MobileNetV2: FLOPs, bytes and least time of a forward pass, every operator by itself.

    Depthwise convolutions run on the lanes in fp32, all other layers at the peak of *dtype*.

    Parameters
    ----------
    device, dtype : str, optional
        A device and a number format that `flopkit.device` knows.
    batch : int, optional
        Images.

    Examples
    --------
    >>> two_networks().title
    'ResNet-50 over MobileNetV2: 13.6× the FLOPs, 2.0× the bytes, 2.1× the least time'
    """
    whole("two_networks", "batch", batch, 1, 2**20)
    images = f"{batch} image{'s' * (batch > 1)}"
    card = find(device)
    networks = {"ResNet-50": "resnet50", "MobileNetV2": "mobilenet_v2"}
    amounts: dict[str, list[tuple[float, str]]] = {"FLOPs": [], "bytes": [], "least time": []}
    for name in networks.values():
        cost, kinds = cnn(name, batch=batch, dtype=dtype), cnn_kinds(name)
        seconds = sum(roofline(p, card, "fp32" if kinds[p.name] == "depthwise" else dtype).seconds for p in cost.parts)
        for what, amount, unit in (
            ("FLOPs", cost.flops, "FLOPs"),
            ("bytes", cost.bytes, "B"),
            ("least time", seconds, "s"),
        ):
            amounts[what].append((float(amount), si(amount, unit)))
    canvas = Canvas(3 * 70 + 36)
    ratios = {}
    for i, (what, pair) in enumerate(amounts.items()):
        top = 70 * i
        ratios[what] = pair[0][0] / pair[1][0]
        canvas.text(0, top + 10, f"{what}: {ratios[what]:.1f}×", anchor="start", bold=True, name="ratio")
        for j, (name, (amount, said)) in enumerate(zip(networks, pair, strict=True)):
            y, wide = top + 22 + 20 * j, 170 * amount / max(pair[0][0], pair[1][0])
            canvas.text(84, y + 8, name, anchor="end")
            canvas.box(92, y, wide, 16, name=f"{what} of {name}", colour=(BLUE, ORANGE)[j], fill=0.5, edge=0, round=0)
            canvas.text(98 + wide, y + 8, said, anchor="start", name="amount")
    canvas.lines(
        0, 220, f"forward pass of {images} in {dtype}, nothing fused;", card.title, anchor="start", colour=MUTED
    )
    ratio = f"{ratios['FLOPs']:.1f}× the FLOPs, {ratios['bytes']:.1f}× the bytes, {ratios['least time']:.1f}× the least time"
    return Drawing(
        "two-networks",
        f"ResNet-50 over MobileNetV2: {ratio}",
        f"Three pairs of bars for a forward pass of {images} in {dtype} on {card.title}, nothing fused. "
        + " ".join(
            f"{what[0].upper()}{what[1:]}: ResNet-50 {first}, MobileNetV2 {second}."
            for what, ((_, first), (_, second)) in amounts.items()
        )
        + f" ResNet-50 has {ratio}.",
        [canvas],
    )
