"""Names as people write them: case, space, ``_``, ``-`` and ``.`` do not matter, and an unknown one is told its neighbours."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["find", "hint", "plain"]

_NONE: Mapping[str, str] = MappingProxyType({})


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
) -> str:
    """The one of the *known* names that *name* is a spelling of.

    Parameters
    ----------
    name : what somebody wrote.
    known : the names.
    what : what a name names, for the error: ``"a known number format"``.
    argument : what the caller's argument is called.
    aliases : other names, and which of the known ones each stands for.
    key : names with the same key are the same name.

    Raises ``ValueError`` for a name that is not known, with near ones, and ``TypeError`` for what is no text.

    >>> find("ResNet 50", ["resnet18", "resnet50"], "a known network")
    'resnet50'
    """
    if not isinstance(name, str):
        raise TypeError(f"{argument}={name!r} is not {what}: must be a name, such as {next(iter(known))!r}")
    if name in known:
        return name
    index = _index(known, aliases, key)
    if key(name) not in index:
        raise ValueError(f"{argument}={name!r} is not {what}; {_hint(key(name), index)}")
    return index[key(name)]


def hint(name: Any, known: Iterable[Any], aliases: Mapping[str, str] = _NONE) -> str:
    """What to say of a *name* that is not known: near ones, or all.

    >>> hint("resnet", ["resnet18", "resnet50", "vgg16"]), hint("bert", ["vgg16", "vgg19"])
    ('did you mean resnet18 or resnet50?', 'known: vgg16, vgg19')
    """
    return _hint(plain(str(name)), _index(map(str, known), aliases, plain))


def _index(known: Iterable[str], aliases: Mapping[str, str], key: Callable[[str], str]) -> dict[str, str]:
    spellings = {each: each for each in known} | dict(aliases)
    return {key(spelled): each for spelled, each in spellings.items()}


def _hint(wanted: str, index: Mapping[str, str]) -> str:
    from difflib import get_close_matches  # loaded when something is wrong, and not with every import

    near = [each for spelled, each in index.items() if wanted and spelled.startswith(wanted)]
    near = near or [index[match] for match in get_close_matches(wanted, index, n=4)]
    start, word, end = ("did you mean ", " or ", "?") if near else ("known: ", ", ", "")
    return start + word.join(dict.fromkeys(near or index.values())) + end
