"""Convolutions: a window over a padded image, which channels meet, and the way back up."""

from __future__ import annotations

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE, PURPLE
from flopkit.layers.convolutions import conv2d
from flopkit.layers.transposed_convolutions import conv_transpose2d
from flopkit.units import count, si

__all__ = ["transposed", "window", "wiring"]


def window(size: int = 5, kernel: int = 3, stride: int = 2, padding: int = 1) -> Drawing:
    """A square kernel over a square image with a border of zeros: its first position, its second, and the outputs they make.

    Parameters
    ----------
    size : int, optional
        Rows and columns of the image, 3 to 8.
    kernel, stride, padding : int, optional
        As in torch: 1 to 5, 1 to 4, 0 to 3.

    Raises
    ------
    ValueError
        For sizes that cannot be drawn: the padded image has at most 10 rows, and the kernel finds at least two positions in it.

    Examples
    --------
    >>> window(size=5, kernel=3, stride=2, padding=1).title
    'The kernel does 9 multiply-adds at each of 9 positions, those with padded zeros included'
    """
    limits = {"size": (size, 3, 8), "kernel": (kernel, 1, 5), "stride": (stride, 1, 4), "padding": (padding, 0, 3)}
    for name, (given, least, most) in limits.items():
        whole("window", name, given, least, most)
    padded = size + 2 * padding
    side = (padded - kernel) // stride + 1
    if padded > 10 or side < 2:
        raise ValueError(
            f"window: a padded image of {padded} rows with {side} positions per side cannot be drawn; at most 10, and at least 2"
        )
    cost = conv2d(batch=1, c_in=1, c_out=1, h_out=side, w_out=side, kernel=kernel, stride=stride)
    cell = min(26, 200 / padded)
    small = min(cell, 100 / side)
    left, top, right = 6.0, 44.0, 250.0
    canvas = Canvas(top + padded * cell + 86)
    canvas.text(left, 10, f"{size} × {size} image" + f", padding {padding}" * bool(padding), anchor="start", bold=True)
    canvas.text(right, 10, f"{side} × {side} output", anchor="start", bold=True)
    image = canvas.grid(left, top, padded, padded, cell, name="padded image")
    if padding:
        for row in range(padded):
            for column in range(padded):
                if not (padding <= row < padding + size and padding <= column < padding + size):
                    middle = left + (column + 0.5) * cell, top + (row + 0.5) * cell
                    canvas.text(*middle, "0", colour=MUTED, name="zero")
        canvas.box(
            left + padding * cell,
            top + padding * cell,
            size * cell,
            size * cell,
            name="image",
            fill=0.16,
            edge=2,
            round=0,
        )
    reach = kernel * cell
    canvas.box(left, top, reach, reach, name="window", colour=BLUE, fill=0.35, edge=2.6)
    canvas.box(
        left + stride * cell,
        top + 1.5,
        reach,
        reach - 3,
        name="next window",
        colour=ORANGE,
        fill=0,
        edge=2.6,
        dash=True,
    )
    canvas.arrow(left, top - 9, left + stride * cell, top - 9, colour=ORANGE, name="stride", width=1.6)
    canvas.text(left + stride * cell + 6, top - 10, f"stride {stride}", colour=ORANGE, anchor="start")
    canvas.box(right, top, small, small, name="output", colour=BLUE, fill=0.6, edge=0, round=0)
    canvas.box(right + small, top, small, small, name="next output", colour=ORANGE, fill=0.35, edge=0, round=0)
    canvas.grid(right, top, side, side, small, name="outputs")
    zeros = kernel**2 - max(0, kernel - padding) ** 2
    y = image.box[3] + 20
    said = [
        f"{side} per side: ({size} + 2·{padding} − {kernel}) / {stride} + 1"
        + ", rounded down" * bool((padded - kernel) % stride),
        f"each output: {kernel}·{kernel} = {count(cost.macs // side**2)} multiply-adds per input channel",
        f"all {side**2}: {count(cost.macs)} multiply-adds = {si(cost.flops, 'FLOPs')}",
    ]
    if zeros:
        said.append(f"the blue window covers {zeros} zeros, which count, too")
    for i, line in enumerate(said):
        canvas.text(6, y + 18 * i, line, anchor="start", name="said")
    return Drawing(
        "window",
        f"The kernel does {count(cost.macs // side**2)} multiply-adds at each of {side**2} positions"
        + ", those with padded zeros included" * bool(padding),
        f"A {kernel} by {kernel} window moves in steps of {stride} over a {size} by {size} image"
        + (f" with {padding} rows of zeros around it" if padding > 1 else " with a border of zeros" if padding else "")
        + f" and makes {side} by {side} outputs. Each takes {cost.macs // side**2} multiply-adds per input channel; "
        f"at the corner {zeros} of them are with zeros.",
        [canvas],
    )


def wiring(channels: int = 4, groups: int = 2) -> Drawing:
    """Which input channel goes to which output channel: full, grouped and depthwise, side by side.

    Parameters
    ----------
    channels : int, optional
        Channels in and out, 4 to 8.
    groups : int, optional
        Groups of the one in the middle; it divides the channels.

    Raises
    ------
    ValueError
        For channels that cannot be drawn or groups that do not divide them.

    Examples
    --------
    >>> wiring(channels=4, groups=2).title
    'With groups, outputs read fewer inputs: 16, 8 or 4 multiply-adds per position, 1 × 1 kernel'
    """
    whole("wiring", "channels", channels, 4, 8)
    whole("wiring", "groups", groups, 2, channels - 1)
    if channels % groups:
        raise ValueError(f"wiring(channels={channels}, groups={groups}): groups must divide the channels")
    step, ball, top = 26, 16, 52
    canvas = Canvas(top + channels * step + 48)
    colours, kinds, found = (
        (BLUE, ORANGE, GREEN, PURPLE),
        ((1, "full"), (groups, f"{groups} groups"), (channels, "depthwise")),
        [],
    )
    for i, (parts, name) in enumerate(kinds):
        cost = conv2d(batch=1, c_in=channels, c_out=channels, h_out=1, w_out=1, kernel=1, groups=parts)
        found.append(cost.macs)
        left, right, width = 8 + 122 * i, 8 + 122 * i + 84, channels // parts
        canvas.text((left + right + ball) / 2, 10, name, bold=True, size=13)
        canvas.text(left + ball / 2, 34, "in", colour=MUTED)
        canvas.text(right + ball / 2, 34, "out", colour=MUTED)
        for source in range(channels):
            group = source // width
            colour = colours[group % len(colours)]
            for target in range(group * width, (group + 1) * width):
                canvas.line(
                    left + ball, top + source * step + ball / 2, right, top + target * step + ball / 2, colour=colour, name=name
                )  # fmt: skip
            for x in (left, right):
                canvas.box(x, top + source * step, ball, ball, colour=colour, fill=0.6, edge=0, round=8, name="channel")
        middle, y = (left + right + ball) / 2, top + channels * step + 12
        canvas.lines(middle, y, count(cost.macs), "multiply-adds")
    return Drawing(
        "wiring",
        f"With groups, outputs read fewer inputs: {found[0]}, {found[1]} or {found[2]} multiply-adds per position, 1 × 1 kernel",
        f"{channels} input and {channels} output channels. Full: every input goes to every output, {found[0]} connections. In {groups} groups an input goes to the "
        f"{channels // groups} outputs of its own group, {found[1]} connections. Depthwise: each input goes to one output, {found[2]} connections.",
        [canvas],
    )


def transposed(size: int = 3, kernel: int = 3, stride: int = 2) -> Drawing:
    """A transposed convolution: one input scatters over as many outputs as the kernel has taps, and neighbours overlap.

    Parameters
    ----------
    size : int, optional
        Rows and columns of the input, 2 to 4.
    kernel, stride : int, optional
        1 to 4 each, without padding.

    Raises
    ------
    ValueError
        For sizes that cannot be drawn.

    Examples
    --------
    >>> transposed(size=3, kernel=3, stride=2).title
    'Each of 9 inputs scatters over 9 outputs: 81 multiply-adds, counted at the input'
    """
    for name, given, least in (("size", size, 2), ("kernel", kernel, 1), ("stride", stride, 1)):
        whole("transposed", name, given, least, 4)
    cost = conv_transpose2d(batch=1, c_in=1, c_out=1, h_in=size, w_in=size, kernel=kernel, stride=stride)
    side = (size - 1) * stride + kernel
    cell = min(26, 200 / side)
    left, right, top = 6.0, 146.0, 28.0
    canvas = Canvas(top + max(side, size) * cell + 70)
    canvas.text(left, 10, f"{size} × {size} input", anchor="start", bold=True)
    canvas.text(right, 10, f"{side} × {side} output", anchor="start", bold=True)
    reach = kernel * cell
    canvas.box(left, top, cell, cell, name="input", colour=BLUE, fill=0.6, edge=0, round=0)
    canvas.box(left + cell, top, cell, cell, name="next input", colour=ORANGE, fill=0.45, edge=0, round=0)
    canvas.box(right, top, reach, reach, name="scattered", colour=BLUE, fill=0.35, edge=0, round=0)
    canvas.box(
        right + stride * cell, top, reach, reach, name="next scattered", colour=ORANGE, fill=0.3, edge=0, round=0
    )
    canvas.grid(left, top, size, size, cell, name="inputs")
    canvas.grid(right, top, side, side, cell, name="outputs")
    canvas.box(right, top, reach, reach, colour=BLUE, fill=0, edge=2.6, round=0)
    canvas.box(right + stride * cell, top + 1.5, reach, reach - 3, colour=ORANGE, fill=0, edge=2.6, dash=True, round=0)
    shared = max(0, kernel - stride) * kernel
    said = [
        f"each input: {kernel}·{kernel} = {count(cost.macs // size**2)} multiply-adds, into as many outputs",
        f"all {size**2}: {count(cost.macs)} multiply-adds = {si(cost.flops, 'FLOPs')}",
        f"where these two overlap ({shared} outputs), they add up" if shared else "no two overlap: kernel ≤ stride",
    ]
    for i, line in enumerate(said):
        canvas.text(6, top + max(side, size) * cell + 22 + 18 * i, line, anchor="start", name="said")
    return Drawing(
        "transposed",
        f"Each of {size**2} inputs scatters over {kernel**2} outputs: {count(cost.macs)} multiply-adds, counted at the input",
        f"One element of a {size} by {size} input is multiplied by each of the {kernel**2} weights and scattered over a {kernel} by {kernel} block of the {side} by {side} output. "
        f"The block of its neighbour lies {stride} further. Together the inputs take {count(cost.macs)} multiply-adds.",
        [canvas],
    )
