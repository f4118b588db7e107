"""The numerators and the denominators in use: what a utilisation is a fraction of."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import AMBER, BLUE, GREEN, MUTED, ORANGE, PURPLE
from flopkit.devices import device as find
from flopkit.models.catalogue import load
from flopkit.sizes import number
from flopkit.training.steps import Step
from flopkit.units import si

__all__ = ["denominators", "numerators"]

COLOURS = {
    "weights": BLUE,
    "visible pairs": GREEN,
    "hidden pairs": MUTED,
    "embedding": PURPLE,
    "scores again": AMBER,
    "recompute": ORANGE,
}


def numerators(
    model: str = "llama-3-8b",
    seq: int = 8192,
    rate: int = 6375,
    device: str = "h100-sxm",
    dtype: str = "bf16",
    recomputed: int = 0,
) -> Drawing:
    """A utilisation as a fraction: four model FLOPs that are in use and what a run executed, to scale, each a sum of the same pieces, over one denominator.

    Parameters
    ----------
    model : str, optional
        A name that `load` knows.
    seq : int, optional
        Tokens of a sequence.
    rate : int, optional
        Training throughput of one device, tokens/s.
    device, dtype : str, optional
        What the peak is of.
    recomputed : int, optional
        FLOPs that the run repeats for each token, beside the scores that flash attention computes twice.

    Raises
    ------
    ValueError or TypeError
        For a name that is not known, a mixture of experts, a number format that the device has no peak for, and a size that is not a whole number of at least 1.

    Examples
    --------
    >>> numerators("llama-3-8b", seq=8192, rate=6375).title
    'One throughput, one peak, five numerators: 31 to 39.3 %'
    """
    seq, rate, card = number("seq", seq), number("rate", rate), find(device)
    again = number("recomputed", recomputed, minimum=0)
    pieces = _pieces(load(model).train_step(seq=seq), model) | {"recompute": again}
    bars = [
        ("6N", "six FLOPs per parameter", ("weights", "embedding")),
        ("EXACT", "visible pairs", ("weights", "visible pairs")),
        ("TORCH", "all pairs", ("weights", "visible pairs", "hidden pairs")),
        ("PaLM", "6N + 12LHQT, all pairs", ("weights", "embedding", "visible pairs", "hidden pairs")),
        ("HFU", "what the run executed", ("weights", "visible pairs", "scores again", "recompute")),
    ]
    totals = {name: sum(pieces[part] for part in parts) for name, _, parts in bars}
    peak = card.peak(dtype)
    canvas, y = Canvas(344), 12.0
    whole, room = (
        348 * rate / peak,
        196 / max(totals.values()),
    )  # pixels a FLOP: the line below is the peak, or what fits
    scale = min(whole, room)
    for name, what, parts in bars:
        canvas.text(6, y, name, anchor="start", bold=True)
        canvas.text(354, y, what, anchor="end", colour=MUTED)
        x = 6.0
        for part in (part for part in parts if pieces[part]):
            canvas.box(x, y + 9, scale * pieces[part], 16, name=part, colour=COLOURS[part], fill=0.55, edge=0, round=0)
            x += scale * pieces[part]
        canvas.box(6, y + 9, scale * totals[name], 16, name=name, fill=0, edge=0.8)
        share = f"{100 * totals[name] * rate / peak:.1f} %"
        canvas.text(354, y + 17, f"{si(totals[name], 'FLOPs')}: {share}", anchor="end", name="share")
        y += 43
    canvas.line(6, y - 4, 354, y - 4, width=2.4, name="fraction")
    canvas.text(
        180, y + 14, f"one device: {si(peak, 'FLOP/s')}{'' if scale == whole else ' (not to scale)'}", bold=True
    )
    canvas.text(180, y + 33, f"times 1/{rate:,} s, the time of a token", colour=MUTED)
    for i, part in enumerate(part for part in COLOURS if pieces[part]):
        at, down = (6, 128, 246)[i % 3], y + 58 + 20 * (i // 3)
        canvas.box(at, down - 6, 12, 12, colour=COLOURS[part], fill=0.55, edge=0)
        canvas.text(at + 18, down, part, anchor="start")
    canvas.height = y + 92
    shares = sorted(100 * flops * rate / peak for flops in totals.values())
    return Drawing(
        "numerators",
        f"One throughput, one peak, five numerators: {shares[0]:.3g} to {shares[-1]:.3g} %",
        f"Five bars of FLOPs per token for {model_title(model)} at {seq:,} tokens, over the peak of one {card.title}. At {rate:,} tokens/s they make "
        + ", ".join(
            f"{name} {100 * totals[name] * rate / peak:.1f} %, of {' and '.join(parts)}" for name, _, parts in bars
        )
        + ".",
        [canvas],
    )


def denominators(
    model: str = "llama-3-8b",
    seq: int = 8192,
    rate: int = 6375,
    device: str = "h100-sxm",
    others: Sequence[str] = ("h100-nvl", "h100-pcie", "a100-sxm-80gb"),
    dtype: str = "bf16",
) -> Drawing:
    """One numerator over the peaks that people divide it by: a bar for each peak, a line for the rate of the run.

    Parameters
    ----------
    model : str, optional
        A name that `load` knows.
    seq : int, optional
        Tokens of a sequence.
    rate : int, optional
        Training throughput of one device, tokens/s.
    device : str, optional
        The device that ran; its data sheet prints a sparse peak, too.
    others : Sequence[str], optional
        Up to four devices whose peak one might take instead.
    dtype : str, optional
        Number format of the peaks.

    Raises
    ------
    ValueError or TypeError
        For a name that is not known, more than four others, a number format that a device has no peak for, and a size that is not a whole number of at least 1.

    Examples
    --------
    >>> denominators("llama-3-8b", seq=8192, rate=6375).title
    'One run, five denominators: from 16.6 to 105 %'
    """
    seq, rate, card = number("seq", seq), number("rate", rate), find(device)
    if len(others) > 4:
        raise ValueError(f"denominators(others={others!r}): give at most four devices, so that their bars have room")
    run = rate * float(load(model).train_step(seq=seq).flops_per_token)
    rows = [(f"{_short(card.title)}, dense", card.peak(dtype), "the data sheet's peak")]
    for other in map(find, others):
        same = _short(other.title).partition(" ")[0] == _short(card.title).partition(" ")[0]
        rows.append((f"{_short(other.title)}, dense", other.peak(dtype), "another board" if same else "another GPU"))
    rows.append((f"{_short(card.title)}, sparse", card.sparse_peak(dtype), "two of four are zeros"))
    scale = 196 / max(run, *(peak for _, peak, _ in rows))
    canvas, y = Canvas(0), 36.0
    canvas.text(6, 10, f"the run: {si(run, 'FLOP/s')} of each device", anchor="start", bold=True, colour=ORANGE)
    for name, peak, what in rows:
        canvas.text(6, y, name, anchor="start", bold=True)
        canvas.text(354, y, what, anchor="end", colour=MUTED)
        canvas.box(6, y + 9, scale * peak, 16, name=name, colour=BLUE, fill=0.3, edge=0.8, round=0)
        canvas.box(6, y + 13, scale * run, 8, name="run", colour=ORANGE, fill=0.8, edge=0, round=0)
        canvas.text(354, y + 17, f"{si(peak, 'FLOP/s')}: {100 * run / peak:.1f} %", anchor="end", name="share")
        y += 43
    canvas.height = y - 12
    shares = sorted(100 * run / peak for _, peak, _ in rows)
    return Drawing(
        "denominators",
        f"One run, {'no one two three four five six'.split()[len(rows)]} denominators: from {shares[0]:.3g} to {shares[-1]:.3g} %",
        f"Bars of FLOP/s. {model_title(model)} at {seq:,} tokens and {rate:,} tokens/s does {si(run, 'FLOP/s')} of model FLOPs (EXACT) on each {card.title}. Its utilisation in {dtype} over "
        + ", over ".join(f"{name} ({si(peak, 'FLOP/s')}) is {100 * run / peak:.1f} %" for name, peak, _ in rows)
        + ".",
        [canvas],
    )


def _short(title: str) -> str:
    """A device's title that fits a phone: without its maker and its memory."""
    return re.sub(r"^(NVIDIA|AMD Instinct) | \d+ GB.*", "", title)


def _pieces(none: Step, model: str) -> dict[str, float]:
    """FLOPs per token that the numerators are sums of. Conventions differ by pieces, so a piece is a difference of two."""

    def per_token(convention: str) -> float:
        return float(none.under(convention).flops_per_token)

    exact, hidden = float(none.flops_per_token), per_token("TORCH") - float(none.flops_per_token)
    visible = per_token("PALM") - per_token("SIX_N") - hidden
    unused = per_token("SIX_N") - (exact - visible)
    if visible < 0 or unused > 0.5 * (exact - visible):
        raise ValueError(f"numerators(model={model!r}): give a dense model with full attention, such as 'llama-3-8b'")
    executed = none.hardware_flops / none.tokens
    return {
        "weights": exact - visible,
        "visible pairs": visible,
        "hidden pairs": hidden,
        "embedding": unused,
        "scores again": executed - exact,
    }
