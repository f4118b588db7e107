"""Where a step loses its time, and what could be done about it: a bar of rows, a step on its way, cures beside their bounds, and a chart from
symptom to cure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import NamedTuple

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.charts.theme import AMBER, BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SKY
from flopkit.devices.catalogue import device
from flopkit.recordings import records
from flopkit.units import percent, seconds, times

__all__ = ["saved_by_cures", "step_followed", "step_rows", "symptoms"]

WIDE = 356
PATIENT = "GPT-2, training in fp32, batch 16"
STEP = "Modelled, not measured: GPT-2 in fp32 on an H100"
LETTER = 12.0
"""Pixels that a row needs for its letter."""
COLOURS = [ORANGE, AMBER, BLUE, GREEN, PURPLE, SKY]  # as in the figure of the clinic


def _gpt() -> dict[str, tuple[float, float]]:
    """Rows of the clinic's training step of GPT-2, before and after its attention is fused."""
    from flopkit.book.gallery.clinic import ROWS, cures

    found = cures().at(patient=PATIENT, flash=True)
    rows = {title: (found[f"before_{name}"], found[f"after_{name}"]) for name, title in ROWS.items()}
    return {title: pair for title, pair in rows.items() if any(pair)}


def step_rows(rows: Mapping[str, tuple[float, float]] | None = None, cure: str = "fused attention") -> Drawing:
    """A step as a bar of rows, before and after one cure, with what must stay of the rows that it touches.

    Parameters
    ----------
    rows : Mapping[str, tuple[float, float]], optional
        Names of up to six rows, the seconds of each, and the least that the cure could leave of them. None: a training step of GPT-2 on an
        H100 in fp32, as the figure of the clinic counts it.
    cure : str, optional
        What is changed.

    Raises
    ------
    ValueError
        For more rows, seconds below 0 or that a cure would add to, and a cure that touches no row.

    Examples
    --------
    >>> step_rows({"matmuls": (0.06, 0.06), "attention": (0.04, 0.01)}).title
    'Fused attention can save at most 30 % of this step, which is 1.43× as fast'
    """
    of = STEP if rows is None else ""
    rows = _gpt() if rows is None else rows
    if not 1 <= len(rows) <= len(COLOURS):
        raise ValueError(f"step_rows(rows of {len(rows)}): give one to {len(COLOURS)} rows, for each has a colour; add up the others")  # fmt: skip
    for name, (before, after) in rows.items():
        if not 0 <= after <= before:
            raise ValueError(f"step_rows({name!r}: {before!r}, {after!r}): a row takes at least 0 s, and no longer after the cure")  # fmt: skip
    touched = [name for name, (before, after) in rows.items() if after < before]
    if not touched:
        raise ValueError(f"step_rows(cure={cure!r}): no row takes less after it, so there is nothing to draw")
    colours = dict(zip(rows, COLOURS, strict=False))
    rows = {name: rows[name] for name in [*(name for name in rows if name not in touched), *touched]}
    whole, left = (sum(pair[i] for pair in rows.values()) for i in (0, 1))
    top = 20.0 if of else 0.0
    canvas = Canvas(top + 132 + 19 * (len(rows) + 2))
    if of:
        canvas.text(2, 10, of, anchor="start", name="of")
    canvas.text(2, top + 10, f"Before: {seconds(whole)}", anchor="start", bold=True, name="before")
    canvas.text(2, top + 66, f"After: at least {seconds(left)}", anchor="start", bold=True, name="after")
    letters = dict(zip(rows, "ABCDEF", strict=False))
    for i, (y, bar) in enumerate(((top + 22, "before"), (top + 78, "after"))):
        x = 2.0
        for name in rows:
            wide = WIDE * rows[name][i] / whole
            stays = bar == "after" and name in touched
            canvas.box(x, y, wide, 26, name=f"{bar}: {name}", colour=colours[name], fill=0.55, edge=0, round=0)
            if wide > LETTER:
                canvas.text(x + wide / 2, y + 13, letters[name], bold=True, name="letter")
            if stays and wide:
                canvas.box(x, y - 3, wide, 32, name="stays", colour=INK, fill=0, edge=1.8, round=0)
            x += wide
        if bar == "after":
            canvas.box(x, y, WIDE + 2 - x, 26, name="saved", colour=MUTED, fill=0, dash=True, round=0)
    y = top + 128
    for name, (before, after) in rows.items():
        said = seconds(before) + f" → {seconds(after)}" * (name in touched)
        canvas.box(2, y - 7.5, 15, 15, letters[name], name="key", colour=colours[name], fill=0.55, edge=0, bold=True)
        canvas.text(23, y, name, anchor="start")
        canvas.text(WIDE + 2, y, said, anchor="end", name=f"seconds of {name}")
        y += 19
    stay, saved = sum(rows[name][1] for name in touched), whole - left
    for look, words, amount in (({"colour": INK, "edge": 1.8}, "must stay: the floor after the cure", stay), ({"dash": True}, "can be saved, at most", saved)):  # fmt: skip
        canvas.box(3, y - 6, 12, 12, name="key", fill=0, round=0, **look)
        canvas.text(23, y, words, anchor="start", bold=True)
        canvas.text(WIDE + 2, y, seconds(amount), anchor="end", bold=True, name=words)
        y += 19
    faster = f"{times(whole / left)} as fast" if left else "over at once"
    listed = ", ".join(f"{name} {seconds(pair[0])}" for name, pair in rows.items())
    return Drawing(
        "step-rows",
        f"{cure[:1].upper()}{cure[1:]} can save at most {percent(saved / whole)} of this step, which is {faster}",
        f"{of}{'. ' if of else ''}Two bars. A step of {seconds(whole)} is made of {listed}. After the cure, {cure}, {' and '.join(touched)} must still take {seconds(stay)}; the step then takes "
        f"at least {seconds(left)}, so that {seconds(saved)}, {percent(saved / whole)}, are the most that can be saved.",
        [canvas],
    )


MOST_STAGES = 6


def _stages() -> dict[str, tuple[float, float]]:
    """A GPT's training step as we measured it on an H200, and what its matmuls need at the peak of each format."""
    steps = {
        (case["dtype"], case["params"]["compiled"]): case
        for case in records("gpt_step", owner="ours", device="h200")
        if case["params"]["batch"] == 16
    }
    forms = {"fp32": ("fp32", False), "TF32": ("tf32", False), "bf16": ("bf16", False), "bf16, compiled": ("bf16", True)}  # fmt: skip
    peak = device("h200-sxm").peak
    return {form: (steps[key]["seconds"]["mean"], steps[key]["counted"]["flops"] / peak(key[0])) for form, key in forms.items()}  # fmt: skip


def step_followed(stages: Mapping[str, tuple[float, float]] | None = None) -> Drawing:
    """One step after each of its cures, on one scale: what its matmuls need at their peak, and what lies above that.

    Parameters
    ----------
    stages : Mapping[str, tuple[float, float]], optional
        Short names of up to six stages of a step, the seconds of each, and the floor of its matmuls. None: a GPT's training step as we measured it
        on an H200 in three formats, and compiled.

    Raises
    ------
    ValueError
        For no stage or more of them, and for a floor that is not above 0 or exceeds the step.

    Examples
    --------
    >>> step_followed({"fp32": (0.3, 0.2), "bf16": (0.04, 0.01)}).title
    'The step falls from 300 ms to 40 ms, the floor of its matmuls from 200 ms to 10 ms'
    """
    stages = _stages() if stages is None else stages
    if not 1 <= len(stages) <= MOST_STAGES:
        raise ValueError(f"step_followed(stages of {len(stages)}): draw one to {MOST_STAGES} of them")
    for name, (took, floor) in stages.items():
        if not 0 < floor <= took:
            raise ValueError(f"step_followed({name!r}: {took!r}, {floor!r}): give the seconds of the step, and a floor above 0 s and up to them")  # fmt: skip
    scale = WIDE / max(took for took, _ in stages.values())
    canvas = Canvas(50.0 * len(stages) + 46)
    said = []
    for i, (name, (took, floor)) in enumerate(stages.items()):
        y = 50.0 * i
        canvas.text(2, y + 8, f"{name}: {seconds(took)}", anchor="start", bold=True, name="stage")
        canvas.text(WIDE + 2, y + 8, f"floor {seconds(floor)}, {percent(floor / took)}", anchor="end", name="said")
        canvas.box(2, y + 20, floor * scale, 20, name="stays", colour=BLUE, fill=0.55, edge=0, round=0)
        canvas.box(2, y + 18, floor * scale, 24, name="frame", colour=INK, fill=0, edge=1.8, round=0)
        canvas.box(2 + floor * scale, y + 20, (took - floor) * scale, 20, name="above", fill=0, dash=True, round=0)
        said.append(f"{name}: {seconds(took)}, of which the floor is {seconds(floor)}, {percent(floor / took)}")
    y = 50.0 * len(stages) + 4
    canvas.box(3, y, 12, 12, name="key", colour=BLUE, fill=0.55, edge=0, round=0)
    canvas.text(23, y + 6, "the matmuls' floor, which only another format lowers", anchor="start")
    canvas.box(3, y + 20, 12, 12, name="key", fill=0, dash=True, round=0)
    canvas.text(23, y + 26, "above it: what other cures can save, at most", anchor="start")
    (long, most), *_ = both = [*stages.values(), *stages.values()]
    short, least = both[-1]
    return Drawing(
        "step-followed",
        f"The step falls from {seconds(long)} to {seconds(short)}, the floor of its matmuls from {seconds(most)} to {seconds(least)}",
        f"Bars on one scale, one for each stage of a step. A framed part is the floor of its matmuls, a dashed part lies above it. {'; '.join(said)}.",
        [canvas],
    )


MOST_CURES = 8


def _ours() -> dict[str, tuple[float, float]]:
    """A chain of operators in one kernel, and attention told that its mask is causal, as we measured them on an H200."""
    h200 = device("h200-sxm")
    chain = {case["params"]["form"]: case for case in records("fusion", owner="ours", device="h200") if case["params"]["program"] == "chain"}  # fmt: skip
    bound = chain["compiled"]["counted"]["bytes"] / h200.bandwidth
    eager, one = (chain[form]["seconds"]["mean"] for form in ("eager", "compiled"))
    took = {
        case["params"]["causal"]: case
        for case in records("attention_kernels", owner="ours", device="h200")
        if (case["params"]["tokens"], case["params"]["kernel"]) == (4096, "flash")
    }
    full, causal = (took[masked]["seconds"]["mean"] for masked in (False, True))
    visible = took[True]["counted"]["flops"] / h200.peak("bf16")
    return {"a chain in one kernel": (eager / bound, eager / one), "is_causal": (full / visible, full / causal)}


def _whole(share: float) -> str:
    """Published times have two or three digits, so a share of them has two."""
    return f"{100 * share:.0f} %"


def saved_by_cures(cures: Mapping[str, tuple[float, float]] | None = None) -> Drawing:
    """Steps before a cure as bars of one length: what must stay, what could go, and where the step ended.

    Parameters
    ----------
    cures : Mapping[str, tuple[float, float]], optional
        Names of up to eight cures, the greatest speedup that the bound of the touched rows allows, and the speedup that was measured. None: two of
        our own measurements on an H200.

    Raises
    ------
    ValueError
        For no cure or more of them, and for a speedup below 1 or above what is allowed.

    Examples
    --------
    >>> saved_by_cures({"one kernel": (4.0, 2.0), "no waiting": (2.0, 1.6)}).title
    'The cures saved 67 % to 75 % of what their bounds allow'
    """
    cures = _ours() if cures is None else cures
    if not 1 <= len(cures) <= MOST_CURES:
        raise ValueError(f"saved_by_cures(cures of {len(cures)}): draw one to {MOST_CURES} of them")
    for name, (most, got) in cures.items():
        if not 1 <= got <= most or most == 1:
            raise ValueError(f"saved_by_cures({name!r}: {most!r}, {got!r}): give the speedup allowed, above 1, and the one measured, from 1 to that")  # fmt: skip
    canvas = Canvas(50 * len(cures) + 66)
    shares, said = [], []
    for i, (name, (most, got)) in enumerate(cures.items()):
        y = 50.0 * i
        allowed, saved = 1 - 1 / most, 1 - 1 / got
        shares.append(saved / allowed)
        stays = WIDE / most
        canvas.text(2, y + 8, name, anchor="start", bold=True)
        canvas.box(2, y + 20, stays, 20, name="stays", colour=BLUE, fill=0.55, edge=0, round=0)
        canvas.box(2 + stays, y + 20, WIDE - stays, 20, name="can go", fill=0, dash=True, round=0)
        canvas.line(2 + WIDE / got, y + 17, 2 + WIDE / got, y + 43, colour=ORANGE, width=3, name="ended")
        canvas.text(WIDE + 2, y + 8, f"allowed {_whole(allowed)}, saved {_whole(saved)}", anchor="end", name="said")
        said.append(f"{name}: {_whole(allowed)} allowed, {_whole(saved)} saved")
    y = 50.0 * len(cures) + 8
    for x, wide, words, look in (
        (2.0, 12.0, "must stay", {"colour": BLUE, "fill": 0.55}),
        (92.0, 12.0, "can go", {"fill": 0.0, "dash": True}),
        (166.0, 3.0, "where the step ended", {"colour": ORANGE, "fill": 1.0}),
    ):
        canvas.box(x, y, wide, 12, name="key", edge=1.2 if "dash" in look else 0, round=0, **look)
        canvas.text(x + wide + 6, y + 6, words, anchor="start", colour=MUTED)
    canvas.text(2, y + 32, "Each bar is the time before the cure.", anchor="start", colour=MUTED)
    low, high = _whole(min(shares)), _whole(max(shares))
    return Drawing(
        "saved-by-cures",
        f"The cures saved {low} to {high} of what their bounds allow" if low != high else f"The cure saved {low} of what its bound allows",
        f"Bars of one length, each a step before its cure. A part of the bar must stay, the part behind it can go, and a mark stands where the step ended. {'; '.join(said)}.",
        [canvas],
    )  # fmt: skip


# -- from symptom to cure -----------------------------------------------------------------------------------------


class Symptom(NamedTuple):
    """What a profile shows and what cures it; *advice*: what `flopkit.Profile.advice` calls that, "" where no rule of it does."""

    seen: str
    cure: str
    advice: str = ""


def _named(seen: str, advice: str) -> Symptom:
    """A symptom whose cure is called as the advice is."""
    return Symptom(seen, advice, advice)


SHEETS: dict[str, dict[tuple[str, str], list[Symptom]]] = {
    "1. Does the step often wait?": {
        ("Yes: it waits for", PURPLE): [
            _named("many small launches", "fewer launches"),
            _named("an update, parameter by parameter", "fused optimiser"),
            Symptom(".item(), .cpu() or print", "read the device less often", "synchronising calls"),
            Symptom("its next batch", "load ahead", "data loader"),
            Symptom("Python, files or sleep", "move it out", "work outside of torch"),
            Symptom("other devices", "overlap or split differently"),
        ],
    },
    "2. No: is all of its work needed?": {
        ("No: leave it out", GREEN): [
            _named("a repeated forward pass", "checkpoint less"),
            _named("pairs that a mask hides", "is_causal"),
            Symptom("logits that nobody reads", "head on the last token only", "head on all tokens"),
            Symptom("weights pruned to zero", "smaller shapes"),
        ],
    },
    "3. Yes: which limit are its rows near?": {
        ("memory: move fewer bytes", BLUE): [
            _named("an element-wise chain", "fuse"),
            _named("attention's scores in memory", "fused attention"),
            _named("matmuls with few rows", "larger batch"),
        ],
        ("compute: raise the peak", ORANGE): [
            _named("matmuls in fp32", "lower precision"),
        ],
        ("neither: let the kernel reach one", AMBER): [
            _named("kernels that turn layouts", "channels last"),
            _named("sizes that no tile divides", "multiples of eight"),
            Symptom("a last wave of few tiles", "full waves"),
        ],
        ("none of these", MUTED): [
            Symptom("other rows at a limit", "nothing to gain", "nothing to gain here"),
        ],
    },
}  # fmt: skip


def symptoms() -> Drawing:
    """From what a profile shows to the cure, in three questions: waiting or busy, needed or not, near memory's limit, compute's or neither.

    Examples
    --------
    >>> len(symptoms().marks("cure"))
    15
    """
    canvases = [_sheet(question, groups) for question, groups in SHEETS.items()]
    said = " ".join(
        f"{question} "
        + " ".join(
            f"{group}: " + "; ".join(f"{seen}: {cure}" for seen, cure, _ in rows) + "."
            for (group, _), rows in groups.items()
        )
        for question, groups in SHEETS.items()
    )
    return Drawing(
        "symptoms",
        "Ask what the step waits for, then what it need not do, then which limit it is near",
        f"Three questions, each with symptoms and their cures. {said}",
        canvases,
    )


def _sheet(question: str, groups: Mapping[tuple[str, str], list[Symptom]]) -> Canvas:
    """One question, below it the symptoms and an arrow from each to its cure."""
    height, gap, top = 38.0, 6.0, 40.0
    canvas = Canvas(top + sum(24 + (height + gap) * len(rows) for rows in groups.values()))
    canvas.box(0.6, 2, 358.8, 28, question, name="question", colour=INK, fill=0.06, bold=True, size=13)
    y = top
    for (group, colour), rows in groups.items():
        canvas.text(2, y + 8, group, anchor="start", colour=colour, bold=True, name="group")
        y += 22
        for seen, cure, advice in rows:
            lines = textwrap.wrap(seen, 26)
            first = y + height / 2 - (len(lines) - 1) * 7.4
            for i, line in enumerate(lines):
                canvas.text(2, first + 14.8 * i, line, anchor="start", name="symptom")
            canvas.arrow(198, y + height / 2, 216, y + height / 2, colour=colour)
            canvas.box(218, y, 141, height, *textwrap.wrap(cure, 17), name="cure" if advice else "other", colour=colour, dash=not advice, size=12)  # fmt: skip
            y += height + gap
        y += 2
    return canvas
