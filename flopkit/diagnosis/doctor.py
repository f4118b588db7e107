"""The doctor: tokens a second become MFU and HFU, and a reported MFU that differs gets the usual mistakes that would explain it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from flopkit import units
from flopkit.devices import device as known_device
from flopkit.diagnosis.mistakes import Mistake, in_jobs, in_peaks, in_units, in_work, pairs, ways_out
from flopkit.models.catalogue import the_model
from flopkit.names import Word
from flopkit.sizes import choice, lengths_of, number, positive, short
from flopkit.sizes.values import LARGEST
from flopkit.tables import Table
from flopkit.training.steps import POLICIES
from flopkit.utilization.shares import hfu, mfu

__all__ = ["HIGH", "Credibility", "Diagnosis", "Explanation", "doctor"]

HIGH = 0.7
"""No published training of a language model in flopkit's data comes to this MFU under EXACT."""

_PEAK = 5e-4  # people write 989 TFLOP/s for 989.4: a peak has three digits


class Credibility(Word):
    """Whether a reported rate can be believed."""

    POSSIBLE = "possible"
    HIGH = "high"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True)
class Explanation:
    """What somebody may have done otherwise, and the MFU that it makes.

    Attributes
    ----------
    name : str
        The usual mistake, or two of them, in a few words.
    ratio : float
        What it multiplies the MFU by.
    mfu : float
        The MFU that would be reported.
    why : str
        What is done otherwise.
    """

    name: str
    ratio: float
    mfu: float
    why: str

    def __str__(self) -> str:
        return f"{self.name} (×{self.ratio:.3g}, gives {_percent(self.mfu)}): {self.why}"


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What `doctor` found. It shows itself as a table in a notebook, and as text in a terminal.

    Attributes
    ----------
    mfu, hfu : float
        Under EXACT, over the dense peak: a `Utilization` where the run is possible, else a plain float.
    verdict : Credibility
        ``"possible"``, ``"high"`` (above 0.7) or ``"impossible"`` (above `Device.limit`). It is about the tokens a second.
    explanations : tuple[Explanation, ...]
        What explains the reported MFU, nearest first; for an impossible run without a reported MFU, what would make it possible.
    considered : tuple[Explanation, ...]
        All single mistakes that apply, nearest to the reported MFU first: what colleagues may print for the same run.
    reported : float | None
        The reported MFU as a share.
    run : str
        What was asked.
    """

    mfu: float
    hfu: float
    verdict: Credibility
    explanations: tuple[Explanation, ...]
    considered: tuple[Explanation, ...]
    reported: float | None
    run: str

    def table(self) -> Table:
        """One row for each thing that may be done otherwise: its ratio, the MFU it gives, and whether that explains the reported one."""
        rows = [
            {"what differs": each.name, "ratio": each.ratio, "MFU": each.mfu, "explains": "yes" if each in self.explanations else ""}
            for each in dict.fromkeys((*self.explanations, *self.considered))
        ]  # fmt: skip
        formats = {"ratio": lambda value: f"×{value:.3g}", "MFU": _percent}
        return Table(rows, caption=self.summary, formats=formats)

    @property
    def summary(self) -> str:
        """The result in a few sentences."""
        text = f"{self.run}: MFU {_percent(self.mfu)}, HFU {_percent(self.hfu)} [EXACT], {self.verdict}."
        if self.reported is None:
            return text
        found = " or ".join(each.name for each in self.explanations) or "no usual mistake, nor two of them"
        return f"{text} Reported {_percent(self.reported)}, explained by {found}."

    def __repr__(self) -> str:
        return "\n- ".join([self.summary, *map(str, self.explanations)])

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def doctor(
    *, tokens_per_s: float, model: Any, seq: int | None = None, device: Any, dtype: Any = "bf16", count: int = 1, recompute: str = "none",
    reported: float | str | None = None, lengths: Any = None,
) -> Diagnosis:  # fmt: skip
    """MFU and HFU of a training run, whether it is possible, and what would explain the MFU that somebody reported.

        MFU = model FLOPs a token · tokens/s / (count · peak)

    Parameters
    ----------
    tokens_per_s : float
        Training throughput of **all** *count* devices together. A log that prints tokens/s for each GPU is to be multiplied.
    model : Any
        A name that `load` knows, a `Model`, or a Hugging Face config: the path of a ``config.json``, or a dict.
    seq : int, optional
        Tokens of a sequence. With *lengths* it may be left out; given, it is the context length that documents were packed into, which
        others may have taken for theirs.
    device : Any
        A name or a `Device`.
    dtype : Any, optional
        The number format of the products, which chooses the peak.
    count : int, optional
        Devices of the job.
    recompute : str, optional
        ``"none"``, ``"selective"`` or ``"full"``, for HFU. Full is to the end of every layer; PyTorch's own checkpoint stops early, which is
        among the explanations.
    reported : float or str, optional
        The MFU that somebody reported: a share below 1 (``0.41``), per cent from 10 on (``41``), or text such as ``"5.6 %"``, which may be any.
        Its digits say how far off an explanation may be (0.4 is taken for 0.40), and a peak may have been rounded to three digits.
    lengths : Any, optional
        The tokens of each document, as in `Model.train_step`, where sequences are packed of documents that do not see each other: all of
        the run's, or a sample. FLOPs a token are those of all these documents by their tokens.

    Raises
    ------
    ValueError
        For a number from 1 to 10, which may be a share or per cent; for a name that is not known, a number format that the device
        has no peak for, and values that are not positive and finite.

    Notes
    -----
    Two mistakes together are tried only where none alone explains. Mistakes that make the same ratio (a sparse peak, MACs for FLOPs)
    cannot be told apart by one number. Not considered: a wrong length but for the context's with *lengths*, padding that counts as tokens, a frozen part of the model.

    Examples
    --------
    >>> found = doctor(tokens_per_s=8 * 6667, model="llama-3.1-8b", seq=8192, device="h100-sxm", count=8, reported=0.39)
    >>> round(found.mfu, 3), found.verdict, found.explanations[0].name
    (0.347, 'possible', 'causal ×2: hidden pairs counted')

    Packed documents, and an MFU that takes the context length for theirs:

    >>> run = dict(tokens_per_s=8 * 6667, model="llama-3.1-8b", device="h100-sxm", count=8)
    >>> found = doctor(**run, seq=8192, lengths=[512] * 12 + [2048], reported="34.7 %")
    >>> round(found.mfu, 3), found.explanations[0].name
    (0.308, "the context's 8,192 tokens for each document's")
    """
    rate = float(positive("tokens_per_s", tokens_per_s, "tokens/s", most=float(LARGEST)))
    count, context = number("count", count), None if seq is None else number("seq", seq)
    choice("recompute", recompute, tuple(POLICIES))
    model, card = the_model(model), known_device(device)
    said, tolerance = (None, 0.0) if reported is None else _share(reported)
    sizes, text = _sizes(context, lengths)
    step, peak, limit = model.train_step(**sizes, recompute=recompute), card.peak(dtype), card.limit(dtype)
    tokens = step.tokens
    took = {"seconds": tokens / rate, "device": card, "dtype": dtype, "count": count}

    def of_peak(gauge: Any, flops: Any) -> float:
        each = flops / tokens * rate / count
        return float(each / peak) if each > limit else gauge(step, **took)

    share, busy = of_peak(mfu, step.model_flops), of_peak(hfu, step.hardware_flops)
    over = share * peak / limit
    work, both = in_work(model, sizes, recompute, context if lengths is not None else None)
    groups = (work, in_peaks(card, dtype), in_units(), in_jobs(count))

    def explained(mistakes: Iterable[Mistake]) -> list[Explanation]:
        return [Explanation(name, float(ratio), float(share * ratio), why) for name, ratio, why in mistakes]

    def near(each: Explanation) -> float:
        return abs(math.log(each.mfu / (said or float(share))))

    none = Mistake("no mistake", 1.0, "counted as here, under EXACT and over the dense peak")
    single = explained([none, *(each for group in groups for each in group)])
    found: list[Explanation] = []
    if said is not None:
        found = [each for each in single if abs(each.mfu - said) <= tolerance]
        found = found or [each for each in explained(pairs(groups, both)) if abs(each.mfu - said) <= tolerance]
    elif over > 1:
        found = explained(ways_out(over, card, dtype, count))
    verdict = Credibility.IMPOSSIBLE if over > 1 else Credibility.HIGH if share > HIGH else Credibility.POSSIBLE
    return Diagnosis(
        mfu=share, hfu=busy, verdict=verdict,
        explanations=tuple(sorted(found, key=near)[:6]), considered=tuple(sorted(single[1:], key=near)), reported=said,
        run=f"{model}, {text}, {rate:,.6g} tokens/s on {count:,} × {card.title}, {dtype}",
    )  # fmt: skip


def _sizes(seq: int | None, lengths: Any) -> tuple[dict[str, Any], str]:
    """What a step of the run takes, and in words."""
    if lengths is None:
        if seq is None:
            raise TypeError("seq= is missing, the tokens of a sequence, or lengths=, those of each document")
        return {"seq": seq}, f"{seq:,} tokens"
    documents = lengths_of(lengths)
    if seq is not None and documents.longest > seq:
        raise ValueError(
            f"lengths={short(lengths)}: a document of {documents.longest:,} tokens does not fit into seq={seq}; "
            "seq= is the context length that documents were packed into, or leave it out"
        )
    words = (
        f"{units.count(documents.count, 'documents')} of {documents.tokens / documents.count:,.6g} tokens on average"
    )
    return {"lengths": documents}, words if seq is None else f"{words} in contexts of {seq:,}"


def _share(reported: Any) -> tuple[float, float]:
    """A reported MFU as a share, and how far from it a number may lie that is printed like this."""
    given = reported if isinstance(reported, str) else positive("reported", reported, most=float(LARGEST))
    text = str(given).strip() if isinstance(given, (str, int)) else repr(float(given))
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e-?\d+)?)\s*(%?)", text)
    if not match or not 0 < float(match[1]) <= LARGEST:
        raise ValueError(f"reported={short(reported)}: must be a share such as 0.41, or per cent such as '41 %'")
    value = Decimal(match[1])
    if not match[2] and 1 <= value < 10:
        raise ValueError(
            f"reported={reported!r} may be a share ({100 * value:f} %) or per cent: write '{match[1]} %' or '{100 * value:f} %'"
        )
    per_cent = bool(match[2]) or value >= 10
    scale = 0.01 if per_cent else 1.0
    digit = float(Decimal(1).scaleb(int(value.as_tuple().exponent)))
    if not per_cent:
        digit = min(digit, 0.01)  # 0.4 is also how people write 0.40
    share = float(value) * scale
    return share, digit / 2 * scale + _PEAK * share


def _percent(share: float) -> str:
    """Four digits, for papers print as many."""
    return f"{100 * share:.4g} %"
