"""The file of devices: what stands in it. What people and drivers call them is in device_spellings."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple

from flopkit.derivations import Derivation

__all__ = ["Kin", "aliases", "entries", "kin", "printed", "read"]

_SOURCED = {
    "memory": "memory_source",
    "usable": "usable_source",
    "link_bandwidth": "link_source",
    "ceilings": "ceilings_source",
}


@cache
def _data() -> Mapping[str, Any]:
    text = files("flopkit").joinpath("data/devices.toml").read_text(encoding="utf-8")
    return tomllib.loads(text, parse_float=Decimal)  # Decimal: 989.4 x 10^12 is then a whole number


@cache
def entries() -> Mapping[str, Mapping[str, Any]]:
    """The arguments of `flopkit.Device`, by name, in the order of the data."""
    sources = _data()["sources"]
    rows = {name: entry for name, entry in _data().items() if name != "sources"}
    return MappingProxyType({name: read(entry, sources) for name, entry in rows.items()})


@cache
def aliases() -> Mapping[str, str]:
    """Other names, and the device that each stands for."""
    return {spelled: name for name in entries() for spelled in _data()[name].get("aliases", ())}


@cache
def printed() -> Mapping[str, str]:
    """What drivers and frameworks print of a device whose letters are also another's name."""
    return {spelled: name for name in entries() for spelled in _data()[name].get("printed", ())}


def read(entry: Mapping[str, Any], sources: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `flopkit.Device` that an entry of the file says.

    Memory is what the driver reports, and what the maker prints (in decimal GB) where no driver's report is known.
    """

    def cited(key: str) -> str:
        return f"{sources[key]['title']} (read {sources[key]['read']})"

    used = [*entry["sources"], *["aws-ec2-clocks"] * ("highest_clock_MHz" in entry)]
    memory = None
    if "memory_MiB" in entry:
        memory = float(entry["memory_MiB"] * 2**20)
    elif "memory_GB" in entry:
        memory = float(entry["memory_GB"] * 10**9)
    by_field = {field: cited(entry[key]) for field, key in _SOURCED.items() if key in entry}
    if memory is not None:
        by_field.setdefault("memory", "as the maker prints it, read as decimal GB")
    return {
        "title": entry["title"],
        "vendor": entry["vendor"],
        "year": entry["year"],
        "watts": entry.get("watts"),
        "peak": {key: float(rate * 10**12) for key, rate in entry["peak_TFLOPs"].items()},
        "bandwidth": float(entry["bandwidth_GBps"] * 10**9),
        "memory": memory,
        "usable": float(entry["usable_MiB"] * 2**20) if "usable_MiB" in entry else None,
        "link_bandwidth": float(entry["link_GBps"] * 10**9) if "link_GBps" in entry else None,
        "ceilings": {key: float(rate * 10**12) for key, rate in entry.get("ceilings_TFLOPs", {}).items()},
        "source": "; ".join(map(cited, used)),
        "sources": by_field,
        "notes": entry.get("notes", ""),
        "derivation": _derivation(entry),
        "sparse": entry.get("sparse", ()),
    }


def _derivation(entry: Mapping[str, Any]) -> Derivation | None:
    if "derivation" not in entry:
        return None
    highest, base = entry.get("highest_clock_MHz"), entry.get("base_clock_MHz")
    return Derivation(
        unit=entry["derivation"]["unit"],
        units=entry["derivation"]["units"],
        clock=entry["derivation"]["clock_MHz"] * 1e6,
        flops_per_clock=entry["flops_per_clock"],
        own_clock={key: mhz * 1e6 for key, mhz in entry.get("own_clock_MHz", {}).items()},
        highest_clock=None if highest is None else highest * 1e6,
        base_clock=None if base is None else base * 1e6,
    )


class Kin(NamedTuple):
    """What a device is taken for: those of its *family*, whose names begin alike, and above all those of its *product*.

    *half*: what this half of a chip is called, ``"core"``, ``"die"`` or ``"stack"``; *halves*: what the halves of this chip are called.
    *also*: other dense peaks in FLOP/s, by format, that somebody divides by, and who.
    """

    family: str = ""
    product: str = ""
    half: str = ""
    halves: str = ""
    also: Mapping[str, tuple[float, str]] = MappingProxyType({})


@cache
def kin(name: str) -> Kin:
    """What the device called *name* in the data is taken for; of one that is not there nothing is known.

    >>> kin("h100-sxm")[:2], kin("gb200").also["bf16"]
    (('h', 'h100'), (2450000000000000.0, 'NVIDIA, dgxc-benchmarking, nemotron/README.md'))
    >>> kin("tpu-v3-core").half, kin("tpu-v3").halves
    ('core', 'core')
    """
    entry = _data()[name] if name in entries() else {}
    also = {
        key: (float(rate * 10**12), _data()["sources"][entry["also_source"]]["title"])
        for key, rate in entry.get("also_TFLOPs", {}).items()
    }
    words = {field: entry[field] for field in ("family", "product", "half", "halves") if field in entry}
    return Kin(**words, also=MappingProxyType(also))
