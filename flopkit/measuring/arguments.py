"""The tensors that a measured function takes and gives: copied to rotate through, and read for the bytes that must move."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["allocated", "cache_bytes", "copies", "place", "rotating", "storages", "tensors", "used"]

MOST = 16  # copies of the arguments
ROOM = 2**30  # bytes that the copies may take
USUAL = 2**25  # bytes of a last-level cache where nothing says how large it is


def tensors(*trees: Any) -> list[Any]:
    """The tensors in lists, tuples and dicts, however deep."""
    import torch
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(trees) if isinstance(leaf, torch.Tensor)]


def place(found: Iterable[Any]) -> Any:
    """Where a call with these tensors runs: on a CUDA device, if one of them lies there, else on the CPU.

    Raises
    ------
    ValueError
        For tensors on several CUDA devices, and on other kinds of devices, which no timer here waits for.
    """
    import torch

    others = {each.device for each in found} - {torch.device("cpu")}
    if len(others) > 1 or any(each.type != "cuda" for each in others):
        raise ValueError(
            f"tensors on {', '.join(sorted(map(str, others)))}: only calls on the CPU or one CUDA device are timed"
        )
    return others.pop() if others else torch.device("cpu")


def allocated() -> dict[int, int]:
    """How often torch has allocated memory on each CUDA device: a number that never falls."""
    import torch

    cuda: Any = torch.cuda
    if not cuda.is_initialized():
        return {}
    return {each: cuda.memory_stats(each).get("allocation.all.allocated", 0) for each in range(cuda.device_count())}


def used(before: Mapping[int, int]) -> Any | None:
    """The one CUDA device on which torch has allocated since `allocated` gave *before*: there ran a call that neither takes nor gives a tensor.

    None where there was none, or several.
    """
    import torch

    grown = [each for each, count in allocated().items() if count > before.get(each, 0)]
    return torch.device("cuda", grown[0]) if len(grown) == 1 else None


def storages(found: Iterable[Any]) -> int:
    """Bytes of the memory behind tensors, each once; a tensor that was expanded counts what it has, a sparse one nothing."""
    import torch

    once: dict[int, int] = {}
    for each in found:
        if each.layout is not torch.strided:
            continue
        held = each.untyped_storage()
        once[held.data_ptr()] = max(once.get(held.data_ptr(), 0), min(held.nbytes(), each.nbytes))
    return sum(once.values())


def cache_bytes(device: Any) -> int:
    """Bytes of the last cache before the memory."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    for level in (3, 2):
        try:
            text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{level}/size").read_text("ascii").strip()
            return int(text[:-1]) * {"K": 2**10, "M": 2**20}[text[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return USUAL


def copies(arguments: tuple[Any, ...], device: Any) -> list[tuple[Any, ...]]:
    """*arguments* and copies of them: so many that twice the cache lies between two uses of one, if there is room for it."""
    from torch.utils import _pytree

    held = storages(tensors(arguments))
    if not held:
        return [arguments]
    wanted = 1 + -(-2 * cache_bytes(device) // held)
    count = max(1, min(wanted, MOST, ROOM // held))

    def copied(leaf: Any) -> Any:
        if not hasattr(leaf, "untyped_storage"):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return [arguments, *(_pytree.tree_map(copied, arguments) for _ in range(count - 1))]


def rotating(fn: Callable[..., Any], sets: list[tuple[Any, ...]]) -> Callable[[], object]:
    """A call of *fn* with the next of the *sets* of arguments, (args, kwargs) each, round and round."""
    turns = itertools.cycle(sets)

    def run() -> object:
        args, kwargs = next(turns)
        return fn(*args, **kwargs)

    return run
