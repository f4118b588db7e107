"""One denominator and the numerators in use: what a utilisation is a fraction of."""

from __future__ import annotations

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.devices import device as find
from flopkit.models.catalogue import load
from flopkit.sizes import number
from flopkit.units import si

__all__ = ["numerators"]


def numerators(
    model: str = "llama-3-8b", seq: int = 8192, rate: int = 6375, device: str = "h100-sxm", dtype: str = "bf16"
) -> Drawing:
    """A utilisation as a fraction: six numerators that are in use, to scale, over one denominator.

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

    Raises
    ------
    ValueError or TypeError
        For a name that is not known, a number format that the device has no peak for, and a size that is not a whole number of at least 1.

    Examples
    --------
    >>> numerators("llama-3-8b", seq=8192, rate=6375).title
    'One throughput, one peak, six numerators: 31 to 41.8 %'
    """
    seq, rate, card = number("seq", seq), number("rate", rate), find(device)
    none = load(model).train_step(seq=seq)
    full = load(model).train_step(
        seq=seq, recompute="full", early_stop=True
    )  # as torch's checkpoint does with use_reentrant=False
    bars = [
        ("6N", "parameters times six", none.under("SIX_N").flops_per_token, BLUE),
        ("model FLOPs, EXACT", "visible pairs", none.flops_per_token, GREEN),
        ("what TORCH counts", "all pairs", none.under("TORCH").flops_per_token, BLUE),
        ("6N + 12LHQT", "PaLM's formula", none.under("PALM").flops_per_token, BLUE),
        ("executed, if no recompute", "HFU", none.hardware_flops / none.tokens, ORANGE),
        ("executed, if full recompute", "HFU, early stop", full.hardware_flops / full.tokens, ORANGE),
    ]
    peak = card.peak(dtype)
    widest = max(flops for _, _, flops, _ in bars)
    canvas, y = Canvas(344), 12.0
    for name, what, flops, colour in bars:
        canvas.text(6, y, name, anchor="start", bold=True)
        canvas.text(354, y, what, anchor="end", colour=MUTED)
        canvas.box(6, y + 9, 196 * flops / widest, 16, name=name, colour=colour, fill=0.4)
        share = f"{100 * flops * rate / peak:.1f} %"
        canvas.text(354, y + 17, f"{si(flops, 'FLOPs')}: {share}", anchor="end", name="share")
        y += 43
    canvas.line(6, y - 4, 354, y - 4, width=2.4, name="fraction")
    canvas.text(180, y + 14, f"one device: {si(peak, 'FLOP/s')}", bold=True)
    canvas.text(180, y + 33, f"times 1/{rate:,} s, the time of a token", colour=MUTED)
    canvas.height = y + 48
    shares = sorted(100 * flops * rate / peak for _, _, flops, _ in bars)
    return Drawing(
        "numerators",
        f"One throughput, one peak, six numerators: {shares[0]:.3g} to {shares[-1]:.3g} %",
        f"Six bars of FLOPs a token for {model_title(model)} at {seq:,} tokens, over the peak of one {card.title}. At {rate:,} tokens/s they make "
        + ", ".join(f"{name} {100 * flops * rate / peak:.1f} %" for name, _, flops, _ in bars)
        + ".",
        [canvas],
    )
