"""Which convention explains a printed number of FLOPs."""

from __future__ import annotations

from typing import Any

from flopkit import conventions, units
from flopkit.sizes import positive
from flopkit.tables import Table

__all__ = ["presets", "translate"]


def presets() -> dict[str, conventions.Convention]:
    """The conventions that have a name, in ``fk.conventions``.

    >>> "PALM" in presets()
    True
    """
    return dict(conventions.PRESETS)


def translate(printed: float, work: Any, *, within: float = 0.005) -> Table:
    """Under which conventions a printed number is true: every named convention's number for *work* beside it, the nearest first.

    Parameters
    ----------
    printed : float
        FLOPs as a paper, a log or a colleague gives them: of the same step, forward pass or token as *work*.
    work : Any
        What they were said of: a `flopkit.training.Step` or the `flopkit.Cost` of a whole model. A step of a convolutional network leaves out
        the conventions that count parameters by the token, and so does a model whose parts see different numbers of tokens (CLIP, Whisper, Swin).
    within : float, optional
        How far a number may be off and still agree, as a share of the printed one: 0.005 for three printed digits.

    Returns
    -------
    Table
        Columns: *convention*, *counted as* (the forward pass, model FLOPs, hardware FLOPs, each for all tokens or for one), *FLOPs*,
        *by the printed* (their ratio), *agrees*.

    Raises
    ------
    ValueError
        For a number that is not positive.
    TypeError
        For work that is neither a step nor a cost.

    Examples
    --------
    >>> import flopkit as fk
    >>> table = translate(250e9, fk.load("deepseek-v3").train_step(seq=4096))
    >>> [(row["convention"], row["counted as"]) for row in table if row["agrees"]][:2]
    [('MEGATRON', 'model FLOPs a token'), ('DEEPSEEK', 'model FLOPs a token')]
    """
    positive("printed", printed, "FLOPs")
    if not hasattr(work, "under"):
        raise TypeError(f"work={work!r:.60}: must be a Step or a Cost, e.g. fk.load('llama-3-8b').train_step(seq=8192)")
    rows = []
    no_tokens = getattr(work, "tokens", 0) is None
    for name, convention in presets().items():
        if no_tokens and convention.of_models:
            continue
        try:
            counted_so = work.under(convention)
        except ValueError:
            if not convention.balance:
                raise
            continue
        for counted, flops in _readings(counted_so):
            ratio = float(flops / printed)
            row = {"convention": name, "counted as": counted, "FLOPs": flops, "by the printed": ratio}
            rows.append(row | {"agrees": abs(ratio - 1) <= within})
    rows.sort(key=lambda row: abs(row["by the printed"] - 1))
    caption = f"{units.format_value(printed, 'FLOPs')} said of {work.name}"
    return Table(rows, caption=caption, formats={"FLOPs": lambda value: units.format_value(value, "FLOPs")})


def _readings(work: Any) -> list[tuple[str, Any]]:
    """The numbers that somebody may have printed for *work*, each once."""
    if not hasattr(work, "model_flops"):
        return [("all tokens", work.flops)]
    whole = [("forward", work.forward.flops), ("model FLOPs", work.model_flops)]
    if work.hardware_flops != work.model_flops:
        whole.append(("hardware FLOPs", work.hardware_flops))
    item, items = work.item
    return [*whole, *((f"{name} {item}", flops / items) for name, flops in whole)]
