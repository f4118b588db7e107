"""What the peak of a chip is made of."""

from __future__ import annotations

from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.derivations import number_format
from flopkit.devices import device as find
from flopkit.units import count, si

__all__ = ["peak"]

_PARTS = {"SM": ("tensor core", "tensor cores"), "CU": ("matrix core", "matrix cores")}


def peak(device: Any = "h100-sxm", dtype: str = "bf16", cores: int | None = 4) -> Drawing:
    """The way from one multiply-add to the peak of a chip: tensor core, SM, chip, clock.

    Parameters
    ----------
    device : Any, optional
        A name or a `Device` with a derivation.
    dtype : str, optional
        The number format.
    cores : int, optional
        Tensor cores of an SM, which the maker's document says: 4 in an A100 or H100, 8 in a T4. None: that step is left out.

    Raises
    ------
    ValueError
        For a device whose peak has no derivation for this format, or cores that do not share its multiply-adds evenly.

    Examples
    --------
    >>> peak("h100-sxm").title
    '132 SMs × 4 tensor cores × 512 multiply-adds × 2 × 1,830 MHz = 989.4 TFLOP/s'
    """
    gpu = device if hasattr(device, "derivation") else find(device)
    made_of, key = gpu.derivation, number_format(dtype)
    if made_of is None or key not in made_of.flops_per_clock:
        raise ValueError(f"peak({gpu.name!r}, {dtype!r}): what this peak is made of is not known")
    unit, units, rate = made_of.unit, made_of.units, made_of.flops_per_clock[key]
    if rate % (2 * (cores or 1)):
        raise ValueError(f"peak(cores={cores}): {rate} FLOPs a clock cannot be shared evenly by {cores} cores")
    own = rate // 2 // (cores or 1)
    reached = made_of.peak(key)
    clock = f"{reached / units / rate / 1e6:,.0f} MHz"
    across = 12 if units > 40 else 8 if units > 8 else 4
    rows = -(-units // across)
    cell = min(132 / across, 150 / rows)
    canvas = Canvas(302 if cores else 264)
    top, left = 24.0, 6.0
    canvas.text(left, 10, f"chip: {units} {unit}s", anchor="start", bold=True)
    full, rest = divmod(units, across)
    canvas.grid(left, top, full, across, cell, name="units")
    if rest:
        canvas.grid(left, top + full * cell, 1, rest, cell, name="rest of the units")
    canvas.box(
        left + (across - 1) * cell, top + cell, cell, cell, name="one unit", colour=ORANGE, fill=0.6, edge=1.5, round=0
    )
    x, y, side = 196.0, 24.0, 138.0
    for down, up in ((cell, 0), (2 * cell, side)):
        canvas.line(left + across * cell, top + down, x, y + up, colour=ORANGE, dash=True, name="zoom")
    canvas.box(x, y, side, side, name="unit", colour=ORANGE, fill=0.08)
    canvas.text(x, 10, f"one {unit}", anchor="start", bold=True)
    one, many = _PARTS.get(unit, ("core", "cores"))
    if cores:
        columns = 2 if cores > 1 else 1
        lines = -(-cores // columns)
        w, h = (side - 8) / columns, (side - 8) / lines
        for i in range(cores):
            where = x + 8 + i % columns * w, y + 8 + i // columns * h
            canvas.box(*where, w - 8, h - 8, count(own), name="core", colour=BLUE, fill=0.25, bold=True)
    else:
        canvas.lines(x + side / 2, y + side / 2 - 8, f"{count(own)}", "multiply-adds", name="core")
    y = 188.0
    steps = [(one, f"{count(own)} multiply-adds × 2", f"{count(2 * own)} FLOPs/clock")] if cores else []
    steps += [
        (
            f"one {unit}",
            f"× {cores} {many}" if cores else f"{count(own)} × 2",
            f"{count(rate)} FLOPs/clock",
        )
    ]
    steps += [
        ("chip", f"× {units} {unit}s", f"{count(rate * units)} FLOPs/clock"),
        ("peak", f"× {clock}", si(reached, "FLOP/s")),
    ]
    for i, (what, by, gives) in enumerate(steps):
        last = i == len(steps) - 1
        canvas.line(6, y - 15, 354, y - 15, colour=MUTED, width=0.6)
        canvas.text(6, y, what, anchor="start", bold=last)
        canvas.text(102, y, by, anchor="start", colour=GREEN)
        canvas.text(354, y, gives, anchor="end", bold=last, name="gives")
        y += 30
    inner = f" × {cores} {many}" if cores else ""
    return Drawing(
        "peak",
        f"{units} {unit}s{inner} × {count(own)} multiply-adds × 2 × {clock} = {si(reached, 'FLOP/s')}",
        f"The {gpu.title} has {units} {unit}s. In {dtype} one of them does {count(rate)} FLOPs a clock, a multiply-add being two"
        + (f": {cores} {many} with {count(own)} multiply-adds each" if cores else "")
        + f". At {clock} that makes {si(reached, 'FLOP/s')}.",
        [canvas],
    )
