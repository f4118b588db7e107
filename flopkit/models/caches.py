"""What lies in the cache of a sequence, by role, and in which format each of it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from flopkit import dtypes
from flopkit.arithmetic import minimum, same, total
from flopkit.models.storage import nbytes, stored
from flopkit.names import hint, plain

__all__ = ["CACHES", "CacheFormat", "Rows", "cache_format", "cached_bytes", "merged", "seen_rows"]

CACHES = {
    "keys": "keys of attention",
    "values": "values of attention",
    "latent": "latents of latent attention",
    "rope": "its keys with a position",
    "index": "keys of an indexer",
    "rest": "what has no format of its own: states, compressed rows",
}
"""What a format of the cache can be given for."""

CacheFormat: TypeAlias = dtypes.DType | Mapping[str, Any]
"""The format of a cache: one name for all, a name by role such as
``{"keys": "q8_0", "values": "q4_0"}``, or ``"fp8_ds_mla"``."""

Rows: TypeAlias = Callable[[Any, Any], Any]
"""How many tokens of a context lie in the cache of a layer that sees at most so many; None: all."""

_NAMED = {"fp8_ds_mla": {"latent": "fp8_tile", "rope": "bf16", "index": "fp8_tile"}}
_PLAIN = "bf16"


def seen_rows(context: Any, limit: Any) -> Any:
    """As many tokens as are still seen.

    >>> seen_rows(8192, 128), seen_rows(8192, None)
    (128, 8192)
    """
    return context if limit is None else minimum(context, limit)


def merged(caches: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The numbers of several caches together, by role."""
    found: dict[str, list[Any]] = {}
    for cache in caches:
        for role, numbers in cache.items():
            found.setdefault(role, []).append(numbers)
    return {role: total(numbers) for role, numbers in found.items()}


def cache_format(kv_cache: Any, argument: str = "kv_cache") -> Any:
    """What *kv_cache* names: a plain format, a `Storage`, or a dictionary of them by role.

    ``"fp8_ds_mla"`` is what vLLM and SGLang call the cache of DeepSeek-V3.2 in fp8: a
    latent in tiles of 128 with an fp32 scale each, a rope key in bf16, and an indexer's
    key in such a tile.

    Raises
    ------
    ValueError
        For a role or a format that is not known.

    Examples
    --------
    >>> cache_format("bfloat16")
    'bf16'
    >>> cache_format({"keys": "q8_0"})["rest"]
    'bf16'
    """
    if isinstance(kv_cache, str):
        kv_cache = next((each for name, each in _NAMED.items() if plain(name) == plain(kv_cache)), kv_cache)
    if not isinstance(kv_cache, Mapping):
        return stored(kv_cache, argument, _NAMED)
    for role in kv_cache:
        if role not in CACHES:
            raise ValueError(f"{argument}={{{role!r}: …}}: no role of a cache; {hint(str(role), CACHES)}")
    found = {role: stored(each, f"{argument}[{role!r}]") for role, each in kv_cache.items()}
    return {"rest": _PLAIN} | found


def cached_bytes(numbers: Mapping[str, Any], kind: Any, times: Any = 1) -> Any:
    """Bytes of *times* as many numbers as *numbers* has of each role.

    >>> cached_bytes({"latent": 512, "rope": 64}, cache_format("fp8_ds_mla")), cached_bytes({"keys": 3}, "int4")
    (656, 2)
    """
    if not isinstance(kind, Mapping):
        return nbytes(times * total(numbers.values()), kind)
    first, *others = kind.values()
    if all(same(first, each) for each in others):
        return nbytes(times * total(numbers.values()), first)
    return total(nbytes(times * each, kind.get(role, kind["rest"])) for role, each in numbers.items())
