"""How fast a run is, from what logs print: one of five, as tokens a second of the whole job or as TFLOP/s of a device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flopkit import units
from flopkit.diagnosis.figures import FLOP_RATES, HOURS, THOUSANDS, Figure, figure, in_short
from flopkit.names import hint, plain
from flopkit.sizes import lengths_of, number, short

__all__ = ["Rate", "degrees_of", "rate_of", "sizes_of"]

# Units as `in_short` has them.
_TOKENS = dict.fromkeys(("tok/s", "tokens/s", "tps", "t/s", "wps", "toks/s", "token/s", "tokens"), 1.0)
_ONES = ("gpu", "device", "chip", "card", "npu")
_OF_ONE = {
    text: 1.0
    for one in _ONES
    for unit in ("tok", "toks", "token", "tokens", "tps", "wps", "t/s")
    for text in ((f"{unit}/{one}",) if unit in ("tps", "wps", "t/s") else (f"{unit}/s/{one}", f"{unit}/{one}/s"))
}
_SAMPLES = dict.fromkeys(("sample/s", "samples/s", "sequences/s", "sequence/s", "seq/s", "seqs/s"), 1.0)
_FLOPS = {word: scale / 1e12 for word, scale in FLOP_RATES.items()}
_TIMES = {
    "s": 1.0,
    "ms": 1e-3,
    "min": 60.0,
    "h": 3600.0,
    "m": 60.0,
    "minutes": 60.0,
    "hours": 3600.0,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
} | {
    f"{unit}/{step}": scale
    for unit, scale in {"s": 1.0, "ms": 1e-3}.items()
    for step in ("it", "iter", "iteration", "step", "batch")
}
_STEPS = dict.fromkeys(
    ("it/s", "iter/s", "iteration/s", "iterations/s", "steps/s", "step/s", "batch/s", "batches/s", "ba/s"), 1.0
)
_HOURS = {"h": 1.0, "hours": 1.0, "gpu hours": 1.0, "device hours": 1.0, "gpu-hours": 1.0, "device-hours": 1.0}
_WAYS = "tokens_per_s= (of the job), tokens_per_s_per_device=, tflops_per_device=, step_seconds= with global_batch=, or tokens= with device_hours="


@dataclass(frozen=True)
class Rate:
    """How fast a run is.

    Attributes
    ----------
    tokens : float or None
        Tokens a second of the whole job. None: the log has FLOP/s, which do not say.
    flops : float or None
        FLOP/s of one device, as the log counts them.
    errors : tuple[float, float]
        How far off it may be as a share, by the digits of what was given: with the
        zeros at the end of whole numbers as digits, and without them.
    words : str
        What was given.
    loosely : str
        How its numbers read where zeros at their end are no digits; empty where they have none.
    of_one : bool
        It was given as that of one device, which the number of devices does not change.
    unit : str
        What was given, in words.
    given : str
        The argument of `doctor` that gave it.
    """

    tokens: float | None
    flops: float | None
    errors: tuple[float, float]
    words: str
    loosely: str = ""
    of_one: bool = False
    unit: str = "tokens/s"
    given: str = "tokens_per_s"


def rate_of(given: Mapping[str, Any], count: int, a_sequence: float | None) -> Rate:
    """The rate that exactly one of the five ways gives; *a_sequence*: tokens of a sequence, where they are known."""
    there = {name: value for name, value in given.items() if value is not None}
    for one, other in (("step_seconds", "global_batch"), ("tokens", "device_hours")):
        for name, missing in ((one, other), (other, one)):
            if name in there and missing not in there:
                raise TypeError(f"{name}= goes with {missing}=, which is missing")
    rates = [name for name in there if name not in ("global_batch", "device_hours")]
    if len(rates) != 1:
        said = f"{' and '.join(f'{name}=' for name in rates)} are {len(rates)} rates" if rates else "no rate is given"
        raise TypeError(f"{said}: give exactly one of {_WAYS}")
    (which,) = rates
    value = there[which]
    if which == "tflops_per_device":
        found = figure(which, value, "TFLOP/s", _FLOPS, THOUSANDS)
        if found.value > 1e7:
            raise ValueError(
                f"tflops_per_device={short(value)}: is in 10¹² FLOP/s; {short(value)} FLOP/s are {found.value / 1e12:g}"
            )
        words = f"{found.value:,.6g} TFLOP/s a device, as its log counts them"
        return Rate(
            None, found.value * 1e12, found.errors, words, found.loosely, of_one=True, unit="TFLOP/s", given=which
        )
    if which.startswith("tokens_per_s"):
        return _of_tokens(which, value, count, a_sequence)
    if which == "step_seconds":
        per = _has(value, _STEPS)
        took = figure(which, value, *(("steps/s", _STEPS) if per else ("seconds", _TIMES)), THOUSANDS)
        loosely = took.loosely
        took = Figure(1 / took.value, took.half / took.value**2, took.loose / took.value**2) if per else took
        batch = number("global_batch", there["global_batch"])
        if a_sequence is None:
            raise TypeError(
                "seq= is missing, the tokens of a sequence, of which global_batch= says how many a step has"
            )
        words = f"{batch:,} sequences in {took.value:,.6g} s"
        return Rate(batch * a_sequence / took.value, None, took.errors, words, loosely, given=which)
    tokens = figure(which, value, "tokens", {"tokens": 1.0})
    hours = figure("device_hours", there["device_hours"], "hours", _HOURS, HOURS)
    errors = (tokens.errors[0] + hours.errors[0], tokens.errors[1] + hours.errors[1])
    words = f"{tokens.value:,.6g} tokens in {hours.value:,.6g} device hours"
    loosely = " and ".join(filter(None, (tokens.loosely, hours.loosely)))
    rate = tokens.value / (hours.value * 3600) * count
    return Rate(rate, None, errors, words, loosely, of_one=True, unit="hours", given=which)


def _of_tokens(which: str, value: Any, count: int, a_sequence: float | None) -> Rate:
    """Tokens a second, or sequences a second, of the job or of one device."""
    one = which.endswith("device")
    if not one and _has(value, _OF_ONE):
        raise ValueError(
            f"tokens_per_s={short(value)}: is of all devices; of one device, give tokens_per_s_per_device="
        )
    many, a_device = (count, " a device" if count > 1 else "") if one else (1, "")
    if not _has(value, _SAMPLES):
        found = figure(which, value, "tokens/s", _TOKENS | _OF_ONE)
        words = f"{found.value:,.6g} tokens/s{a_device}"
        return Rate(found.value * many, None, found.errors, words, found.loosely, one, given=which)
    if a_sequence is None:
        raise TypeError(f"seq= is missing, the tokens of a sequence, of which {which}={short(value)} says how many")
    found = figure(which, value, "samples/s", _SAMPLES, HOURS)
    words = f"{found.value:,.6g} sequences/s{a_device}"
    return Rate(found.value * many * a_sequence, None, found.errors, words, found.loosely, one, "sequences/s", which)


def _has(value: Any, units: Mapping[str, float]) -> bool:
    """Whether text ends with one of these units."""
    text = in_short(value) if isinstance(value, str) else ""
    return any(re.search(rf"(?<![a-z]){re.escape(unit)}$", text) for unit in units)


# -- degrees of parallelism -----------------------------------------------------------------------------------

_DEGREES = {
    "tensor": ("tp", "tensor", "tensorparallel", "tensormodelparallelsize", "tensormodelparallel"),
    "context": ("cp", "context", "contextparallel", "contextparallelsize", "ulysses"),
    "pipeline": ("pp", "pipeline", "pipelineparallel", "pipelinemodelparallelsize"),
    "data": ("dp", "data", "fsdp", "dataparallel", "dpshard", "dpreplicate"),
    "expert": ("ep", "expert", "expertparallel", "expertmodelparallelsize"),
}


def degrees_of(parallel: Any, count: int) -> dict[str, int]:
    """Degrees above 1 by what they divide, checked against the devices.

    >>> degrees_of({"tp": 4, "cp": 2}, 16)
    {'tensor': 4, 'context': 2}
    """
    if parallel is None:
        return {}
    if not isinstance(parallel, Mapping):
        known = {name: getattr(parallel, name) for name in _DEGREES if hasattr(parallel, name)}
        if not known:
            raise TypeError(f"parallel={short(parallel)}: give degrees by name, such as parallel={{'tp': 4, 'cp': 2}}")
        parallel = known
    found: dict[str, int] = {}
    for name, degree in parallel.items():
        word = next((word for word, names in _DEGREES.items() if isinstance(name, str) and plain(name) in names), None)
        if word is None:
            raise ValueError(
                f"parallel: {name!r} is no degree known here; {hint(str(name), [each[0] for each in _DEGREES.values()])}"
            )
        found[word] = found.get(word, 1) * number(f"parallel[{name!r}]", degree)
    job = 1
    for word in ("tensor", "context", "pipeline", "data"):
        job *= found.get(word, 1)
    for what, degree in (("their product", job), ("the expert degree", found.get("expert", 1))):
        if count % degree:
            raise ValueError(
                f"parallel={short(dict(parallel))}: {what}, {degree:,}, does not divide count={count:,}; count= is all devices of the job, "
                f"a multiple of {degree:,}"
            )
    return {word: degree for word, degree in found.items() if degree > 1}


# -- the lengths ----------------------------------------------------------------------------------------------


def sizes_of(seq: int | None, lengths: Any) -> tuple[dict[str, Any], str]:
    """What a step of the run takes, and in words."""
    if lengths is None:
        if seq is None:
            raise TypeError("seq= is missing, the tokens of a sequence, or lengths=, those of each document")
        return {"seq": seq}, f"{seq:,} tokens"
    try:
        documents = lengths_of(lengths)
    except ValueError as error:
        if "at least 1" not in str(error):
            raise
        raise ValueError(
            f"{error}; give the tokens of each document, and leave out padding and marks such as -1"
        ) from None
    if seq is not None and documents.longest > seq:
        raise ValueError(
            f"lengths={short(lengths)}: a document of {documents.longest:,} tokens does not fit into seq={seq}; "
            "seq= is the context length that documents were packed into, or leave it out"
        )
    words = (
        f"{units.count(documents.count, 'documents')} of {documents.tokens / documents.count:,.6g} tokens on average"
    )
    return {"lengths": documents}, words if seq is None else f"{words} in contexts of {seq:,}"
