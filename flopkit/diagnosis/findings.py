"""What the doctor found: an MFU, a verdict, and what explains another MFU that somebody reported."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from flopkit import units
from flopkit.diagnosis.mistakes import Differs
from flopkit.names import Word
from flopkit.parallel.gaps import Gap
from flopkit.tables import Table

__all__ = ["HIGH", "LOW", "Credibility", "Diagnosis", "Explanation"]

HIGH = 0.7
"""No published training of a language model in flopkit's data comes to this MFU under EXACT."""

LOW = 0.01
"""No published training of a language model in flopkit's data is below this MFU: rather a unit is wrong."""


class Credibility(Word):
    """Whether a reported rate can be believed."""

    LOW = "low"
    POSSIBLE = "possible"
    HIGH = "high"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True)
class Explanation:
    """What somebody may have done otherwise, and the MFU that it makes.

    Attributes
    ----------
    name : str
        The mistake, or several of them, in a few words.
    ratio : float
        What it multiplies the MFU by.
    mfu : float
        The MFU that would be reported.
    why : str
        How it happens, and the *reading*.
    chance : float
        The chance that it fits by accident: the share of all MFUs, printed with as many
        digits, that this mistake or a more plausible one explains. NaN where nothing is
        reported or where it does not fit.
    differs : str
        What is done otherwise: ``"nothing"``, ``"work"``, ``"unit"``, ``"peak"``, ``"format"``, ``"device"``, ``"job"`` or ``"several"``.
    other : str
        Of a format or a device: which one's peak is taken.
    reading : str
        What is assumed of the digits, so that it fits: that zeros at the end of a rate are none, or that a number in between was rounded.
    """

    name: str
    ratio: float
    mfu: float
    why: str
    chance: float = math.nan
    differs: Differs = Differs.WORK
    other: str = ""
    reading: str = ""

    def __str__(self) -> str:
        by = "" if math.isnan(self.chance) else f"; by accident {100 * self.chance:.2g} %"
        return f"{self.name} (×{self.ratio:.3g}, gives {_percent(self.mfu)}{by}): {self.why}"


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What `doctor` found. It shows itself as a table in a notebook, and as text in a terminal.

    Attributes
    ----------
    mfu : float
        Under EXACT, over the dense peak: a `Utilization` where the run is possible, else a plain float. Where the rate is
        given in TFLOP/s, as its log counts FLOPs.
    hfu : float | None
        The same of what is executed. None without a model: TFLOP/s do not say whether they are the model's or the executed ones.
    verdict : Credibility
        ``"low"`` (below 0.01), ``"possible"``, ``"high"`` (above 0.7) or ``"impossible"`` (above `Device.limit`). It is about the given rate.
    explanations : tuple[Explanation, ...]
        What explains the reported MFU or HFU, likeliest first, each with the ``chance`` that it fits by accident; for an impossible
        run and for a low one, where none is reported or the same, what would make it possible or usual.
    near : tuple[Explanation, ...]
        What explains nothing but comes near: what fits, no better than chance would (``chance`` is above the bar), and then
        what just misses the reported MFU (``chance`` is NaN).
    considered : tuple[Explanation, ...]
        All single mistakes that apply, nearest to the reported MFU first: what colleagues may print for the same run.
    reported : float | None
        The reported MFU or HFU as a share.
    run : str
        What was asked.
    bar : float
        The chance of an accident up to which something is an explanation: 0.15 for a reported number of two digits, 0.05 for one
        of more.
    convention : str
        How the FLOPs of *mfu* are counted.
    gap : Gap | None
        Where the step goes, item by item; None without a layout and a batch.
    """

    mfu: float
    hfu: float | None
    verdict: Credibility
    explanations: tuple[Explanation, ...]
    considered: tuple[Explanation, ...]
    reported: float | None
    run: str
    near: tuple[Explanation, ...] = ()
    bar: float = math.nan
    convention: str = "EXACT"
    gap: Gap | None = None
    _shown: str = field(default="", compare=False)

    def table(self) -> Table:
        """One row for each thing that may be done otherwise: its ratio, the MFU it gives, and the chance that it explains the
        reported one by accident."""
        rows = []
        for each in dict.fromkeys((*self.explanations, *self.considered)):
            row = {"what differs": each.name, "ratio": each.ratio, "MFU": each.mfu}
            by_accident = "" if math.isnan(each.chance) else f"{100 * each.chance:.2g} %"
            rows.append({**row, "explains": "yes" if each in self.explanations else "", "by accident": by_accident})
        formats = {"ratio": lambda value: f"×{value:.3g}", "MFU": _percent}
        return Table(rows, caption=self.summary, formats=formats)

    @property
    def summary(self) -> str:
        """The result in a few sentences."""
        hfu = "" if self.hfu is None else f", HFU {_percent(self.hfu)}"
        text = f"{self.run}: MFU {_percent(self.mfu)}{hfu} [{self.convention}], {self.verdict}."
        if self.verdict == Credibility.LOW:
            text += f" Trainings are rarely below {_percent(LOW)}: check the units, or what the devices wait for."
        if self.reported is None:
            return text
        said = f"Reported {self._shown or _percent(self.reported)}"
        if self.explanations and math.isnan(self.explanations[0].chance):
            ways = " or ".join(each.name for each in self.explanations)
            would = "usual" if self.verdict == Credibility.LOW else "possible"
            return f"{text} {said}, as here. It would be {would} with {ways}."
        if self.explanations:
            return f"{text} {said}, explained by {' or '.join(map(_named, self.explanations))}."
        by_chance = [each for each in self.near if not math.isnan(each.chance)]
        if by_chance:
            what = f"{units.count(len(by_chance), 'of them')} fit" if len(by_chance) > 1 else "one fits"
            return f"{text} {said}, explained by no usual mistake, nor two of them, better than by chance ({what})."
        return f"{text} {said}, explained by no usual mistake, nor two of them."

    def __repr__(self) -> str:
        lines = [self.summary, *(f"- {each}" for each in self.explanations)]
        if self.near:
            lines.append("Near, and no explanation:")
            for each in self.near:
                by = f"misses by {100 * abs(each.mfu / (self.reported or each.mfu) - 1):.2g} %"
                by = by if math.isnan(each.chance) else f"fits, no better than chance ({100 * each.chance:.2g} %)"
                lines.append(f"- {each.name} (×{each.ratio:.3g}, gives {_percent(each.mfu)}): {by}")
        if self.gap is not None:
            lines += ["Where the step goes:", str(self.gap.table())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        gap = "" if self.gap is None else self.gap._repr_html_()
        return self.table()._repr_html_() + gap


def _named(each: Explanation) -> str:
    return f"{each.name} ({each.reading})" if each.reading else each.name


def _percent(share: float) -> str:
    """Four digits, for papers print as many."""
    return f"{100 * share:.4g} %"
