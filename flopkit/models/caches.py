"""What lies in the cache of a sequence, by role, and in which format each of it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from flopkit import dtypes
from flopkit.arithmetic import minimum, same, total
from flopkit.layers.attentions import visible_rows
from flopkit.models.storage import nbytes, stored
from flopkit.names import hint, plain

__all__ = [
    "CACHES",
    "CacheFormat",
    "Rows",
    "cache_format",
    "cached_bytes",
    "merged",
    "moved_rows",
    "of_states",
    "seen_rows",
]

CACHES = {
    "keys": "keys of attention",
    "values": "values of attention",
    "latent": "latents of latent attention",
    "rope": "its keys with a position",
    "index": "keys of an indexer",
    "states": "states of recurrent layers, and the last inputs of their convolutions",
    "rest": "what has no format of its own, but for states: compressed rows",
}
"""What a format of the cache can be given for. One name for the whole cache, and ``"rest"``, leave states in bf16, as engines do
(vLLM's ``--kv-cache-dtype``, llama.cpp's ``--cache-type-k``): these are of another format only where ``"states"`` says so."""

CacheFormat: TypeAlias = dtypes.DType | Mapping[str, Any]
"""The format of a cache: one name for all but states, a name by role such as
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


def moved_rows(q: Any, kv: Any, mask: Any, limit: Any) -> Any:
    """Rows of a layer's cache that a pass of *q* causal queries over *kv* tokens moves: it reads those before its own that one of them
    sees, and writes its own, of which the cache keeps at most *limit*.

    A cache of windows or chunks holds more than one token reads: at the beginning of a chunk it sees itself alone.

    >>> from flopkit.layers.attentions import chunks, window
    >>> moved_rows(8, 4096, window(128), 128), moved_rows(1, 8193, chunks(8192), 8192), moved_rows(4096, 4096, window(128), 128)
    (135, 1, 128)
    """
    return visible_rows(q, kv, mask) - q + seen_rows(q, limit)


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
    >>> cached_bytes({"keys": 3, "states": 5}, "fp8"), cached_bytes({"keys": 3, "states": 5}, {"rest": "fp8", "states": "fp32"})
    (13, 23)
    """
    if "states" in numbers:
        others = {role: each for role, each in numbers.items() if role != "states"}
        states = nbytes(times * numbers["states"], of_states(kind))
        return total([cached_bytes(others, kind, times), states]) if others else states
    if not isinstance(kind, Mapping):
        return nbytes(times * total(numbers.values()), kind)
    kind = {role: each for role, each in kind.items() if role != "states"}
    first, *others = kind.values()
    if all(same(first, each) for each in others):
        return nbytes(times * total(numbers.values()), first)
    return total(nbytes(times * each, kind.get(role, kind["rest"])) for role, each in numbers.items())


def of_states(kind: Any) -> Any:
    """The format of states in a cache of this *kind*.

    >>> of_states("fp8"), of_states(cache_format({"rest": "fp8"})), of_states(cache_format({"states": "fp32"}))
    ('bf16', 'bf16', 'fp32')
    """
    return kind.get("states", _PLAIN) if isinstance(kind, Mapping) else _PLAIN
