"""Lines of logs: how fast a run is and the MFU that its framework prints, as arguments of `doctor`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from flopkit.diagnosis.log_formats import (
    FORMATS,
    GENERATES,
    GENERATION,
    ITEMS,
    NO_STEP,
    OF_WHOM,
    SERVING,
    Format,
    Rate,
    Said,
)
from flopkit.diagnosis.log_numbers import LINES, Found, Unclear, one, stands
from flopkit.sizes import short

__all__ = ["LogLine", "read_log"]


@dataclass(frozen=True)
class LogLine:
    """What a line of a log says.

    Attributes
    ----------
    framework : str
        Whose line it is.
    arguments : dict[str, Any]
        What it says of the run, as `doctor` takes it: a rate, and *reported* where the line prints a utilisation or TFLOP/s.
        Numbers are text, which keeps their digits.
    convention : str
        The convention by which today's code of the framework counts FLOPs, by its name in ``flopkit.conventions``; empty where the line
        has none.
    """

    framework: str
    arguments: dict[str, Any] = field(default_factory=dict)
    convention: str = ""


_KNOWN = ", ".join(each.framework for each in FORMATS if each.known_by)
_ANYBODY = {each.framework for each in FORMATS if not each.known_by}
_NO_TRAINING = (
    "the doctor reads training; flopkit.serving.decode and prefill bound tokens/s, and Model.kv_bytes is the cache"
)


def read_log(line: str) -> LogLine:
    """What a line of a training log says, as it stands.

    Known are the lines of the frameworks that the error for an unknown line names (Megatron-LM's also those of its forks and of Megatron-Bridge,
    fairseq's of metaseq, transformers' Trainer's of axolotl and LLaMA-Factory), progress bars (``it/s``, ``s/it``), and text whose units say
    whose the rate is (``3.4k tokens/s/GPU``, ``408 TFLOP/s/GPU``). Of two rates in such text the one is taken that is not said to be something
    else: a peak, a target, an earlier one (``up from``), that of a validation.

    Parameters
    ----------
    line : str
        The line, colours of a terminal included or not. Of several lines the last that says most is taken; frameworks that print one
        number a line are read over all of them.

    Returns
    -------
    LogLine
        Its ``arguments`` go to `doctor`, beside model, seq, device and count. Where a line has the time of a step and not its batch,
        *global_batch* goes beside them, too.

    Raises
    ------
    ValueError
        For a line of none of these, for one without a rate, for two different rates or MFUs in one line, for a rate that may be of all
        devices or of one (a bare ``tps``) or of tokens or sequences (Lightning's items), for a line of a server, of reinforcement learning with
        its generation, of validation or of data that are loaded, for a range, a fraction, a decimal comma, and thousands parted by a blank.
    TypeError
        For what is no text.

    Examples
    --------
    >>> said = read_log("step: 10  loss:  7.1  grad_norm:  1.9  memory: 54.61GiB(57.45%)  tps: 6,667  tflops: 386.08  mfu: 39.02%")
    >>> said.framework, said.arguments
    ('torchtitan', {'tokens_per_s_per_device': '6,667', 'reported': '39.02 %'})
    >>> from flopkit import doctor
    >>> found = doctor(**said.arguments, model="llama-3.1-8b", seq=8192, device="h100-sxm", count=8)
    >>> round(found.mfu, 3), found.explanations[0].name
    (0.347, 'causal ×2: hidden pairs counted')

    nanoGPT does not print how many sequences a step has:

    >>> read_log("iter 2980: loss 3.8993, time 1099.18ms, mfu 15.34%").arguments
    {'step_seconds': '1099.18 ms', 'reported': '15.3 %'}
    """
    if not isinstance(line, str):
        raise TypeError(f"line={short(line)}: must be text, a line of a log")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line)
    plain = re.sub(
        "(?<=\\d)[\u00a0\u2009\u202f'’](?=\\d{3}(?!\\d))", "", plain
    )  # hard and thin spaces, and apostrophes, part thousands
    lines, other = plain.splitlines(), []
    for place, text in reversed(list(enumerate(lines))):
        told = next((what for what, words in NO_STEP.items() if re.search(words, text)), None)
        if told is not None:
            other.append(told)
            del lines[place]
    pieces = [*reversed(lines), LINES.join(lines)] if len(lines) > 1 else lines
    found, unclear = list[LogLine](), list[Unclear]()
    for piece in pieces:
        try:
            read = _read(piece)
        except Unclear as error:
            unclear.append(error)
        else:
            found += [] if read is None else [read]
    with_rate = [each for each in found if each.arguments.keys() - {"reported"}]
    if with_rate and not (GENERATES in other and all(each.framework in _ANYBODY for each in with_rate)):
        return max(with_rate, key=_says)
    if unclear and not with_rate:
        raise unclear[0]
    if found and not with_rate:
        raise ValueError(
            f"line: {found[0].framework}'s MFU is of the actor's update, and its throughput of the whole step: give tokens_per_s= "
            f"(perf/total_num_tokens by timing_s/update_actor) and reported='{found[0].arguments['reported']}'"
        )
    for server, words in SERVING:
        if re.search(words, plain):
            raise ValueError(f"line: {server} serves, and {_NO_TRAINING}")
    if other:
        raise ValueError(f"line={short(line)}: is {other[0]}; give a line of a training step")
    if re.search(GENERATION, plain):
        raise ValueError(f"line: its tokens are generated, and {_NO_TRAINING}")
    for items in stands(ITEMS, plain)[-1:]:
        raise ValueError(
            f"line: {items.text} items/s are what the loop gave Lightning as lengths, in litgpt tokens: give tokens_per_s_per_device='{items.text}' "
            f"where they are tokens, '{items.text} samples/s' where they are sequences"
        )
    for words, unit in OF_WHOM:
        for each in stands(words, plain)[-1:]:
            given = each.text if unit == "tokens/s" else f"{each.text} {unit}"
            raise ValueError(
                f"line: {each.text} {unit}, and not whether of all devices or of one; give tokens_per_s='{given}' or "
                f"tokens_per_s_per_device='{given}'"
            )
    raise ValueError(
        f"line={short(line)}: no rate of a log that is known here ({_KNOWN}); "
        "give tokens_per_s_per_device=, or step_seconds= with global_batch="
    )


def _says(each: LogLine) -> tuple[bool, int]:
    """How much a line says: first whether it is enough for a rate."""
    given = each.arguments.keys()
    return "step_seconds" not in given or "global_batch" in given, len(given)


def _read(line: str) -> LogLine | None:
    served = re.search(r"\bMFU: ([\d.]+) TF/s/GPU", line)
    if served and float(served[1]):  # vLLM with --enable-mfu-metrics
        return LogLine("vLLM", {"tflops_per_device": served[1]})
    serves = any(re.search(words, line) for words in (GENERATION, *dict(SERVING).values()))
    for each in FORMATS:
        found = None if serves and not each.known_by else of_format(each, line)
        if found is not None:
            return found
    return None


def of_format(each: Format, line: str) -> LogLine | None:
    """What a line says if it is this framework's."""
    if not re.search(each.known_by, line):
        return None
    arguments: dict[str, Any] = {}
    anybody = not each.known_by
    batch = one(stands(each.batch, line)) if each.batch else None
    rates: list[tuple[Rate, str]] = []
    others: list[Found] = []
    for rate, patterns in _kinds(each.rates, anybody):
        found = [number for pattern in patterns for number in stands(pattern, line, anybody)]
        number = one(found, not anybody)
        others += found
        if number is None:
            continue
        rates.append((rate, number))
        if batch or rate.argument.startswith("tokens"):
            break
    if rates:  # the first that is enough: the time of a step is not, without its batch
        rate, number = rates[-1] if batch or rates[-1][0].argument.startswith("tokens") else rates[0]
        arguments[rate.argument] = f"{number}{rate.unit}"
    elif others:
        raise Unclear(f"line: {others[-1].text} {others[-1].other}; give a rate by itself")
    if batch is not None and "step_seconds" in arguments:
        arguments["global_batch"] = int(batch.replace(",", ""))
    said = _said(each.said, line, anybody)
    if said and not ("tflops_per_device" in arguments and said.endswith("TFLOP/s")):
        arguments["reported"] = said
    if not arguments or (each.rates and arguments.keys() <= {"reported"}):
        return None
    return LogLine(each.framework, arguments, each.convention if said else "")


def _kinds(rates: tuple[Rate, ...], anybody: bool) -> list[tuple[Rate, list[str]]]:
    """Rates with their patterns: in anybody's words all patterns of one unit are of one rate, of a framework each is of its own."""
    found: dict[Any, tuple[Rate, list[str]]] = {}
    for each in rates:
        found.setdefault(each[::2] if anybody else each, (each, []))[1].append(each.pattern)
    return list(found.values())


def _said(ways: tuple[Said, ...], line: str, anybody: bool) -> str:
    """A utilisation as `doctor` takes it, of the first of these *ways* that has one; in anybody's words all in per cent must agree."""
    texts: list[Found] = []
    for each in ways:
        if texts and (not anybody or each.unit == "TFLOP/s"):
            break
        found = stands(each.pattern, line, anybody)
        if anybody:
            texts += [number._replace(text=text) for number in found if (text := _utilisation(each, number.text))]
        elif (number := one(found, True)) is not None and (text := _utilisation(each, number)):
            return text
    if not texts:
        return ""
    unit = texts[0].text.partition(" ")[2]
    number = one(each._replace(text=each.text.partition(" ")[0]) for each in texts if each.text.endswith(unit))
    return "" if number is None else f"{number} {unit}"


def _utilisation(each: Said, printed: str) -> str:
    """A number with its unit; empty for 0, which says that there is none yet, and for what may be a share or per cent."""
    number = printed.replace(",", "")
    value = float(number.rstrip("kKMGT"))
    if not value:
        return ""
    if each.unit == "share or %":
        return _percent(number) if value < 1 else f"{number} %" if value >= 10 else ""
    if each.unit == "mean %":
        digits = 1 if value >= 1 else 1 - math.floor(math.log10(value))
        return f"{value:.{digits}f} %"
    return _percent(number) if each.unit == "share" else f"{number} {each.unit}"


def _percent(share: str) -> str:
    return f"{Decimal(share).scaleb(2):f} %"
