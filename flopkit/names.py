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

    Raises
    ------
    ValueError
        For a name that is not known, with near ones.
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
    meant = dict(spellings).get(key(name))
    if meant is None:
        raise ValueError(f"{argument}={name!r} is not {what}; {_hint(key(name), spellings)}")
    return meant


def hint(name: Any, known: Iterable[Any], aliases: Mapping[str, str] = _NONE) -> str:
    """What to say of a *name* that is not known: near ones, or all.

    >>> hint("resnet", ["resnet18", "resnet50", "vgg16"]), hint("bert", ["vgg16", "vgg19"])
    ('did you mean resnet18 or resnet50?', 'known: vgg16, vgg19')
    """
    return _hint(plain(str(name)), _spellings(map(str, known), aliases, plain))


def _spellings(known: Iterable[str], aliases: Mapping[str, str], key: Callable[[str], str]) -> list[tuple[str, str]]:
    return [(key(spelled), name) for spelled, name in (*((name, name) for name in known), *aliases.items())]


def _hint(wanted: str, spellings: list[tuple[str, str]]) -> str:
    from difflib import get_close_matches  # loaded when something is wrong, and not with every import

    near = [name for spelled, name in spellings if spelled == wanted]
    near = near or [name for spelled, name in spellings if wanted and spelled.startswith(wanted)]
    close = get_close_matches(wanted, [spelled for spelled, _ in spellings], n=4)
    near = near or [name for match in close for spelled, name in spellings if spelled == match]
    start, word, end = ("did you mean ", " or ", "?") if near else ("known: ", ", ", "")
    return start + word.join(dict.fromkeys(near or [name for _, name in spellings])) + end
