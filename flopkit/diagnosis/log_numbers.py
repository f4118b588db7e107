"""Numbers in a line of a log: which one is the rate, and when that cannot be told."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from flopkit.diagnosis.figures import figure

__all__ = ["LINES", "Found", "Unclear", "one", "stands"]

LINES = " \x1e"
"""What lines are joined by that are read together; to a pattern it is blank."""

_KEYS = r"(?:steps?|iter(?:ation)?s?|epochs?|batch(?:es)?|loss|ppl|perplexity|lr|learning[ _]rate|grad(?:ient)?s?|g?norm|time|mem(?:ory)?|util(?:i[sz]ation)?|size|scale|eta|mbs|gbs|bs|ranks?|nodes?|workers?|layers?|seq[_ ]?len(?:gth)?|[tpcde]p)"
_TAKEN = re.compile(rf"(?i)(?<![a-z]){_KEYS}['\"]?\s*[:=]?\s*$")  # of a number that is another key's
_BESIDE = r"(?!\W*(?:mem|vram|hbm|alloc|gpu mem|cuda mem))"
_ENDS = r"(?![a-z])(?=[^\d,;|)]*(?:[,;|)]|$))"  # of what is said of the number before it, and not of one behind it
_PEAKS = r"peak|theoretical(?:ly)?|targets?|goal|roofline"
_ELSE = re.compile(
    rf"(?i)(?<![a-z])(?<!% of )(?<!% of the )(?:{_PEAKS}){_BESIDE}(?![a-z])|%\s+of\s+(?:an?\s+|the\s+)?$|(?<![a-z])(?:e?val(?:id|uation|idation)?)\W{{0,2}}$"
)
_ELSE_BEHIND = re.compile(rf"(?i)\W{{0,3}}(?:the )?(?:{_PEAKS}){_BESIDE}{_ENDS}")
_OLDER = re.compile(
    r"(?i)(?<![a-z])(?:baseline|previous(?:ly)?|before|formerly|compared (?:to|with)|vs\.?|versus|instead of|rather than|than|ideal|expected|limit"
    rf"|max(?:imum)?{_BESIDE}|e?val(?:id|uation|idation)?|test(?:ing)?)(?![a-z])|(?<![a-z])from\s+[~≈]?$|\(was\s+$"
)
_OLDER_BEHIND = re.compile(rf"(?i)\W{{0,3}}(?:before|previously|baseline|in validation){_ENDS}")
_RANGE = re.compile(
    r"(?<![\d.,])(\d[\d.,]*[kKMGT]?\s*(?:±|\+/?-|/|->|→|…|\.{2,3}|\bto\b|\bor\b|\bof\b(?: an?\b| the\b)?)\s*)$"
)
_DASH = re.compile(r"(?<![\w.,:/-])(\d[\d.,]*)([kKMGT]?)\s*[-–—~]\s*$")
_MINUS = re.compile(r"(?:^|[\s:=(])[-−]$")
_NUMBER_BEFORE = re.compile(r"(?<![A-Za-z\d.,])(\d[\d.,]*(?:[eE][+-]?\d+)?)\s*[kKMGT%]?\s*$")


class Unclear(ValueError):
    """A line of which it cannot be told which number is meant."""


class Found(NamedTuple):
    """A number that a pattern found: its text, the line that it is in, where text says that it is something else, and whether it may be older
    than another."""

    text: str
    line: int = 0
    other: str = ""
    older: bool = False


def stands(pattern: str, line: str, anybody: bool = False) -> list[Found]:
    """The numbers that a pattern finds, each with what the words around it say. *anybody*: in anybody's words, and not in those of a framework."""
    found = []
    for match in re.finditer(pattern, line):
        number, start, end = _parted(match[1]), match.start(1), match.end(1)
        row = line.count("\x1e", 0, start)
        before = line[line.rfind("\x1e", 0, start) + 1 : start]
        behind = line[end:].split("\x1e")[0]
        if re.fullmatch(r"\d{1,3}", number) and re.match(r" \d{3}(?![\d.,])", behind):
            raise Unclear(
                f"line: '{number}{behind[:4]}' may be {number},{behind[1:4]} or two numbers; write it without the blank"
            )
        if (
            re.fullmatch(r"\d{3}(?:\.\d+)?", number)
            and (many := re.search(r"(?<![\w.,/:-])[1-9]\d{0,2} $", before))
            and not _TAKEN.search(before[: many.start()])
        ):
            raise Unclear(
                f"line: '{many[0]}{number}' may be {many[0].strip()},{number} or two numbers; write it without the blank"
            )
        if anybody and not _of_its_unit(line, match):
            continue
        words = re.split(r"[|;]|(?<![A-Za-z_])\d[\d.,]*", before)[-1]
        rest = line[max(end, match.end()) :].split("\x1e")[0]
        other = ""
        if _ELSE.search(words) or _ELSE_BEHIND.match(rest):
            other = "is said to be a peak, a target or a part of something else"
        elif anybody and _MINUS.search(before):
            other = "is negative"
        elif anybody and (several := _span(before, number)):
            other = f"stands behind {several!r}, and is one of two numbers"
        found.append(Found(number, row, other, bool(_OLDER.search(words) or _OLDER_BEHIND.match(rest))))
    return found


def _of_its_unit(line: str, match: re.Match[str]) -> bool:
    """Whether a number belongs to the unit beside it, and not to the key before it or the unit behind it."""
    before = line[: match.start(1)]
    if match.start(1) == match.start():  # 6,667 tokens/s/GPU: unless it is a step's, and the unit's is behind it
        return not (_TAKEN.search(before) and re.match(r"\s+[~≈]?\d", line[match.end() :]))
    if re.search(r"[:=(]\s*['\"]?$|\b(?:of|is)\s+$", before):
        return True
    left = _NUMBER_BEFORE.search(line[: match.start()])
    if left is None or _TAKEN.search(line[: left.start()]):
        return True
    if re.match(r"\s*(?:%|[A-Za-z])", line[match.end(1) :]):
        return False
    raise Unclear(f"line: its unit stands between two numbers, {left[1]} and {match[1]}; write one of them")


def _span(before: str, number: str) -> str:
    """What stands before a number that is the end of a range, a part of a fraction or the like; behind a step, step 390 - 400, it is none."""
    if match := _RANGE.search(before):
        return match[1].strip()
    match = _DASH.search(before)
    if match is None or _TAKEN.search(before[: match.start()]):
        return ""
    low, high = (figure("number", text.rstrip(".,")).value for text in (match[1] + match[2], number))
    return match[0].strip() if high / 10 <= low < high or not match[0][-1].isspace() else ""


def one(found: Iterable[Found], always: bool = False) -> str | None:
    """The number that is meant: the one of the last line that is not said to be something else. *always*: where all are, too.

    >>> one(stands(r"(\\d+) W", "300 W, up from 280 W"))
    '300'
    """
    all_of = list(found)
    meant = [each for each in all_of if not each.other]
    if not meant and always:
        meant = all_of
    if not meant:
        return None
    meant = [each for each in meant if each.line == max(one.line for one in meant)]
    if any(not each.older for each in meant):
        meant = [each for each in meant if not each.older]
    read = [_within(each.text) for each in meant]
    best = min(range(len(meant)), key=lambda place: read[place][1] / (read[place][0] or 1))
    for each, (value, reach) in zip(meant, read, strict=True):
        if each is not meant[best] and value != read[best][0] and abs(value - read[best][0]) >= reach + read[best][1]:
            raise Unclear(f"line: {meant[best].text} and {each.text} are two numbers for one; give one of them")
    return meant[best].text


def _within(text: str) -> tuple[float, float]:
    """A number, and how far from it what was printed like this may lie: 24k is 23.5k to 24.5k, and 400 no 405."""
    if not float(text.replace(",", "").rstrip("kKMGT")):
        return 0.0, 0.0
    found = figure("number", text)
    return found.value, found.loose if text[-1].isalpha() else found.half


def _parted(text: str) -> str:
    """A number as it is printed, whose commas part thousands."""
    if "," in text and not re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?:[eE][+-]?\d+)?[kKMGT]?", text):
        raise ValueError(f"line: {text} has a comma that parts no thousands; write a decimal point")
    return text
