"""Names as people write them, and suggestions for one that is not known.

Case, space, ``_``, ``-`` and ``.`` do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from itertools import chain, takewhile
from pkgutil import get_data
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["Word", "elsewhere", "find", "hint", "plain"]

MOST = 8  # names in a suggestion
_NONE: Mapping[str, str] = MappingProxyType({})


class Word(StrEnum):
    """One of a few words: compared with a string, and shown as one.

    >>> class Answer(Word):
    ...     YES = "yes"
    >>> Answer.YES == "yes", Answer("yes")
    (True, 'yes')
    """

    __repr__ = str.__repr__


def plain(name: str) -> str:
    """*name* without what people leave out or add.

    >>> plain("Llama-3.1_70B"), plain("llama 31 70b")
    ('llama3170b', 'llama3170b')
    """
    return re.sub(r"[\s_.-]", "", name).lower()


def find(
    name: Any,
    known: Collection[str],
    what: str,
    *,
    argument: str = "name",
    aliases: Mapping[str, str] = _NONE,
    key: Callable[[str], str] = plain,
    listed: str = "",
) -> str:
    """The one of the *known* names that *name* is a spelling of.

    Parameters
    ----------
    name : Any
        What somebody wrote.
    known : Collection[str]
        The names.
    what : str
        What a name names, for the error: ``"a known number format"``.
    argument : str, optional
        What the caller's argument is called.
    aliases : Mapping[str, str], optional
        Other names, and which of the known ones each stands for.
    key : Callable[[str], str], optional
        Names with the same key are the same name.
    listed : str, optional
        What lists all of them, for the error.

    Raises
    ------
    ValueError
        For a name that is not known, with near ones, or with what to call where such
        names are known (`elsewhere`).
    TypeError
        For what is no text.

    Examples
    --------
    >>> find("ResNet 50", ["resnet18", "resnet50"], "a known network")
    'resnet50'
    """
    if not isinstance(name, str):
        raise TypeError(f"{argument}={name!r} is not {what}: must be a name, such as {next(iter(known))!r}")
    if name in known:
        return name
    spellings = _spellings(known, aliases, key)
    meant = {each.key: each.name for each in spellings}.get(key(name))
    if meant is None:
        raise ValueError(f"{argument}={name!r} is not {what}; {_hint(key(name), spellings, elsewhere(name), listed)}")
    return meant


def hint(name: Any, known: Iterable[Any], aliases: Mapping[str, str] = _NONE, listed: str = "") -> str:
    """What to say of a *name* that is not known: near ones, the nearest first, or all.

    At most eight of them. Those that begin with *name* come before those of its family
    (llama-4, llama-3-8b), and these before those that only have letters in common.

    >>> hint("resnet", ["resnet18", "resnet50", "vgg16"]), hint("bert", ["vgg16", "vgg19"])
    ('did you mean resnet18 or resnet50?', 'known: vgg16, vgg19')
    """
    return _hint(plain(str(name)), _spellings(map(str, known), aliases, plain), listed=listed)


def elsewhere(name: str) -> str:
    """What to call for a *name* that other libraries or other rooms know, else nothing.

    ``data/elsewhere.toml`` says it.

    >>> elsewhere("BMM"), elsewhere("zzz")
    ('fk.matmul(m=, k=, n=, batch=)', '')
    """
    import tomllib

    answers = tomllib.loads((get_data("flopkit", "data/elsewhere.toml") or b"").decode())
    rows = [(plain(other), answer) for answer, others in answers.items() for other in others]
    exact = (answer for other, answer in rows if other == plain(name))
    begun = (answer for other, answer in rows if other.endswith("*") and plain(name).startswith(other[:-1]))
    return next(chain(exact, begun), "")


class _Spelling(NamedTuple):
    key: str
    family: str  # the letters that it begins with, such as llama of llama-3-8b
    name: str


def _spellings(known: Iterable[str], aliases: Mapping[str, str], key: Callable[[str], str]) -> list[_Spelling]:
    spelled = ((name, name) for name in known)
    return [_Spelling(key(one), _letters(one), name) for one, name in (*spelled, *aliases.items())]


def _letters(text: str) -> str:
    return re.split("[^a-z]", text.lower(), maxsplit=1)[0]


def _hint(wanted: str, spellings: list[_Spelling], other: str = "", listed: str = "") -> str:
    from difflib import SequenceMatcher  # loaded when something is wrong, and not with every import

    def alike(each: _Spelling) -> tuple[float, int]:
        """The share of letters in common, and how many equal ones they begin with."""
        begin = takewhile(lambda pair: pair[0] == pair[1], zip(wanted, each.key, strict=False))
        return SequenceMatcher(None, wanted, each.key).ratio(), len(list(begin))

    def related(each: _Spelling) -> bool:
        """Of one family, as llama-4 and llama-3-8b, h900 and h100-sxm."""
        letters = _letters(wanted)
        numbered = letters == _letters(each.key) and wanted[len(letters) :][:1].isdigit()
        return numbered or (len(each.family) > 2 and wanted.startswith(each.family))

    def names(found: Iterable[_Spelling]) -> list[str]:
        return list(dict.fromkeys(each.name for each in sorted(found, key=alike, reverse=True)))

    exact = [each for each in spellings if each.key == wanted]
    begun = [each for each in spellings if wanted and each.key.startswith(wanted)]
    near = _some(names(exact or begun or filter(related, spellings)))
    if other and not near:
        return f"here it is {other}"
    long = (
        len(wanted) / 4,
        len(wanted) * 4,
    )  # beyond that the share cannot be 0.6, and what somebody gave may be a whole file
    near = near or names(each for each in spellings if long[0] < len(each.key) < long[1] and alike(each)[0] >= 0.6)[:4]
    if near:
        return f"did you mean {' or '.join(filter(None, (', '.join(near[:-1]), near[-1])))}?"
    lists = f"; {listed} lists them" if listed else ""
    return f"known: {', '.join(_some(list(dict.fromkeys(each.name for each in spellings))))}{lists}"


def _some(names: list[str]) -> list[str]:
    return names if len(names) <= MOST else [*names[:MOST], f"{len(names) - MOST} more"]
