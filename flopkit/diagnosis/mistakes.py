"""Mistakes in an MFU: what each does otherwise, the ratio that it makes, and how common it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, product
from typing import Any, NamedTuple

from flopkit import device_data
from flopkit.derivations import number_format
from flopkit.devices import Device, device as known_device, device_names
from flopkit.diagnosis.rates import Rate
from flopkit.names import Word

__all__ = [
    "COMMON",
    "POSSIBLE",
    "RARE",
    "Differs",
    "Mistake",
    "distinct",
    "in_jobs",
    "in_peaks",
    "in_units",
    "together",
    "ways_out",
    "ways_up",
]

COMMON, POSSIBLE, RARE = 0.2, 0.04, 0.02
"""Priors: of a hundred reported MFUs that differ from ours, about so many have this mistake."""

_ANOTHER = 0.7  # a second mistake beside a first one
_LEAST = 1e-3  # rarer pairs explain nothing
_SAME = 1e-6  # as floats that were multiplied differ


class Differs(Word):
    """What a mistake does otherwise."""

    NOTHING = "nothing"
    WORK = "work"
    UNIT = "unit"
    PEAK = "peak"
    FORMAT = "format"
    DEVICE = "device"
    JOB = "job"
    SEVERAL = "several"


class Mistake(NamedTuple):
    """What is done otherwise, what that multiplies an MFU by, how it happens, and how often that is the case.

    *deeds*: how many things are done otherwise. *peak*: the peak that is divided by. *differs*: what is done otherwise, and *other*: the
    number format (``Differs.FORMAT``) or the device (``Differs.DEVICE``) whose peak is taken. *executed*: FLOPs that are computed again count,
    which makes an HFU.
    """

    name: str
    ratio: float
    why: str
    prior: float = POSSIBLE
    deeds: int = 1
    peak: float | None = None
    differs: Differs = Differs.WORK
    other: str = ""
    executed: bool = False


def distinct(mistakes: Iterable[Mistake], known: Iterable[float] = (1.0,), near: float = 1e-4) -> list[Mistake]:
    """Those of *mistakes* that make a ratio of their own: of two with one ratio the first stays."""
    ratios, found = list(known), []
    for each in mistakes:
        if all(abs(each.ratio / other - 1) >= near for other in ratios):
            ratios.append(each.ratio)
            found.append(each)
    return found


def in_units() -> list[Mistake]:
    """A numerator in another unit than the peak's."""
    found = [
        Mistake("MACs for FLOPs", 0.5, "a multiply-add counts as one, and the peak counts it as two", COMMON / 2),
        Mistake("a multiply-add counted twice", 2.0, "what counts FLOPs already was taken for multiply-adds", RARE),
    ]
    return [each._replace(differs=Differs.UNIT) for each in found]


# -- the peak -------------------------------------------------------------------------------------------------

_DEFAULTS = {"a100-sxm-80gb": 0.15, "h100-sxm": 0.15}  # in nanoGPT and torchtitan's fallback; in nanochat


def in_peaks(card: Device, dtype: Any, peak: float | None = None) -> list[Mistake]:
    """What may be divided by instead: the sparse peak, another number format's, another device's, another clock's.

    *peak*: where the products have several formats, their FLOPs by their ideal time. Then *dtype* holds these formats.
    """
    if peak is not None:
        why = "some of them are in another format"
        return [
            Mistake(f"{other} peak for all products", peak / card.peak(other), why, COMMON, differs=Differs.FORMAT, other=other)
            for other in dict.fromkeys(dtype)
        ]  # fmt: skip
    here, peak = number_format(dtype), card.peak(dtype)
    found: list[Mistake] = []
    if here in card.sparse:
        why = "data sheets print twice the dense peak, for matrices with 2:4 structured zeros"
        found.append(Mistake("sparse peak", 0.5, why, COMMON))
        found.append(Mistake("dense peak halved", 2.0, "it was taken for a sparse one", POSSIBLE))
    for other in ("fp8", "bf16", "tf32", "fp32", "fp4", "int8"):
        known = (
            (peak, *(peak / each.ratio for each in found)) if other == "int8" else (peak,)
        )  # print, int8 stands beside the like of it
        if other in card.dtypes and card.peak(other) not in known:
            why = f"the run's products are in {here}"
            often = POSSIBLE if other in ("fp8", "bf16", "int8") else RARE
            found.append(Mistake(f"{other} peak for {here}", peak / card.peak(other), why, often, differs=Differs.FORMAT, other=other))  # fmt: skip
    kin = device_data.kin(card.name)
    also, who = kin.also.get(here, (None, ""))
    if also is not None:
        why = f"{who}, has it, and the data sheet another dense peak"
        found.append(Mistake(f"{also / 1e12:,.5g} TFLOP/s for the peak", peak / also, why, COMMON))
    around = float(f"{peak:.0e}")
    if also is None and 3e-3 < abs(around / peak - 1) < 0.02:  # 1,000 TFLOP/s for the 989.4 of an H100
        why = "a round number in the peak's place"
        found.append(Mistake(f"{around / 1e12:,.0f} TFLOP/s for the peak", peak / around, why, RARE))
    if part := kin.half:
        why = f"the rate is that of a {part}, half of the chip"
        found.append(Mistake(f"the chip's peak for a {part}'s", 0.5, why, COMMON))
        found.append(Mistake(f"the chip's rate over a {part}'s peak", 2.0, f"the chip has two {part}s", POSSIBLE))
    elif part := kin.halves:
        why = f"what a framework calls a device is a {part}, half of this chip, and so is its rate"
        found.append(Mistake(f"a {part}'s peak for the chip's", 2.0, why, POSSIBLE))
        found.append(Mistake(f"a {part}'s rate over the chip's peak", 0.5, why, POSSIBLE))
    base = _base_clock(card, here)
    if base is not None:
        why = f"nvidia-smi and data sheets print {base / 1e6:,.0f} MHz, too, and the peak belongs to the boost clock"
        found.append(Mistake("peak at the base clock", peak / card.derivation.peak(here, base), why, POSSIBLE))  # type: ignore[union-attr]
    near = [name for name in device_names() if kin.family and device_data.kin(name).family == kin.family]
    others = []
    for name in dict.fromkeys((*_DEFAULTS, *near)):
        other_card = known_device(name)
        if here in other_card.dtypes:
            why = "some programs divide by it whatever runs" if name in _DEFAULTS else "a near name, another peak"
            often = _DEFAULTS.get(name, POSSIBLE if device_data.kin(name).product == kin.product else RARE)
            others.append(Mistake(f"wrong SKU: peak of {name}", peak / other_card.peak(here), why, often, differs=Differs.DEVICE, other=name))  # fmt: skip
    found = [each if each.other else each._replace(differs=Differs.PEAK) for each in found]
    return [each._replace(peak=peak / each.ratio) for each in (*found, *distinct(others, near=1e-3))]


def _base_clock(card: Device, here: str) -> float | None:
    """The base clock in Hz, where it is known and lies below that of the peak."""
    made_of = card.derivation
    if made_of is None or made_of.base_clock is None or here not in made_of.flops_per_clock:
        return None
    return made_of.base_clock if made_of.base_clock < made_of.own_clock.get(here, made_of.clock) else None


# -- the job --------------------------------------------------------------------------------------------------


def in_jobs(count: int, degrees: Mapping[str, int], tokens: bool = True) -> list[Mistake]:
    """Tokens a second of one device and the peak of all, or the reverse; of a usual node where *count* is 1; *tokens* times or by a
    parallel degree, or by the steps of gradient accumulation, where the rate is one of tokens."""
    many, what, often = (count, f"all {count:,}", COMMON) if count > 1 else (8, "a node of eight", POSSIBLE)
    found = [
        Mistake("per-job tokens/s over one GPU's peak", float(many), f"tokens/s of {what}, the peak of one", often),
        Mistake("per-GPU tokens/s over the job's peak", 1 / many, f"tokens/s of one, the peak of {what}", often),
    ]
    for name, degree in degrees.items():
        why = "devices that share a sequence or a model process the same tokens, not tokens of their own"
        found.append(Mistake(f"tokens by the {name}-parallel degree of {degree}", 1 / degree, why, 0.3))
        found.append(Mistake(f"tokens times the {name}-parallel degree of {degree}", float(degree), why, 0.3))
    for degree in (2, 4, 8, 16, 32) if not degrees else ():
        if count > 1 and degree <= 8 and count % degree == 0:
            what = f"a parallel degree of {degree}"
            why = "parallel= says which degrees there are; as many steps of gradient accumulation, forgotten, come to the same"
        elif not tokens:
            continue
        else:
            what = f"{degree} steps of gradient accumulation"
            why = "a step of the optimizer has the tokens of all its micro-batches, and its time is that of all"
        found.append(Mistake(f"tokens by {what}", 1 / degree, why, RARE))
        found.append(Mistake(f"tokens times {what}", float(degree), why, RARE))
    return distinct(each._replace(differs=Differs.JOB) for each in found)


# -- several at once ------------------------------------------------------------------------------------------


def together(*groups: list[Mistake]) -> Iterator[Mistake]:
    """Each mistake by itself, and two of different *groups*, where that is not too rare.

    Two that come to what one does by itself, or cancel, explain nothing that this one does not.
    """
    for group in groups:
        yield from group
    alone = [1.0, *(each.ratio for group in groups for each in group)]
    for one, other in combinations(groups, 2):
        for first, second in product(one, other):
            prior = first.prior * second.prior * _ANOTHER
            ratio = first.ratio * second.ratio
            if prior >= _LEAST and all(abs(ratio / other - 1) > _SAME for other in alone):
                yield Mistake(
                    f"{first.name}, and {second.name}", ratio, f"{first.why}; {second.why}", prior,
                    first.deeds + second.deeds, second.peak or first.peak, Differs.SEVERAL,
                )  # fmt: skip


def ways_out(over: float, card: Device, dtype: Any, count: int, rate: Rate) -> Iterator[Mistake]:
    """What would make a run possible that is *over* times the limit. Tokens/s of a job may be those of a larger one; a rate of one device
    does not fall with their number, but may be that of all."""
    need = math.ceil(count * over)
    if not rate.of_one:
        why = "tokens/s may be those of a larger job than count says"
        yield Mistake(f"per-GPU against per-job: {need:,} devices or more", count / need, why, differs=Differs.JOB)
    elif over <= count > 1:
        why = "they may be those of the whole job"
        yield Mistake(f"{rate.unit} of all {count:,} devices for one's", 1 / count, why, differs=Differs.JOB)
    elif count == 1:
        why = "they may be those of a whole job, of which count says nothing"
        yield Mistake(f"{rate.unit} of {need:,} devices or more for one's", 1 / need, why, differs=Differs.JOB)
    for each in in_peaks(card, dtype):
        if each.ratio * over > 1:
            continue
        if each.differs is Differs.FORMAT:
            name, why = f"{each.other} products and not {number_format(dtype)}", "a faster number format ran"
            yield each._replace(name=name, why=why)
        elif each.differs is Differs.DEVICE:
            yield each._replace(name=f"wrong SKU: it ran on {each.other}", why="a faster device ran")
    if over <= 3:
        yield Mistake("forward passes only", 1 / 3, "inference or evaluation: a training step is three forward passes")


def ways_up(over: float, count: int, rate: Rate) -> Iterator[Mistake]:
    """What would make a run usual whose rate is far below the limit, *over* of it: a unit, or one device's part taken for the job's."""
    whole = [("one device's {} for those of all", count, f"count is {count:,}")] if count > 1 else []
    lost = [("a lost k", 1000, "a log that prints thousands, read without them")]
    ways = {
        "step_seconds": [("milliseconds for seconds", 1000, "many logs print milliseconds"), *whole],
        "tokens_per_s": [*whole, *lost],
        "tokens_per_s_per_device": lost,
        "tflops_per_device": [("PFLOP/s for TFLOP/s", 1000, "PFLOP/s are thousands of TFLOP/s")],
        "tokens": [("minutes for hours", 60, "device_hours= is in hours"), ("seconds for hours", 3600, "device_hours= is in hours")],
    }[rate.given]  # fmt: skip
    what = "sequences" if rate.given == "step_seconds" else rate.unit
    for name, ratio, why in ways:
        if ratio * over <= 1:
            differs = Differs.JOB if ratio == count else Differs.UNIT
            yield Mistake(name.format(what), float(ratio), why, differs=differs)
