"""What flopkit/data/devices.toml must look like: TOML itself knows nothing of fields that are missing, unknown or without effect."""

import tomllib
from pathlib import Path

import flopkit
from flopkit import device_spellings, names

TEXT = Path(flopkit.__file__).parent.joinpath("data/devices.toml").read_text("utf8")
REQUIRED = ("title", "vendor", "year", "family", "product", "sources", "bandwidth_GBps", "peak_TFLOPs")
SOURCED = {
    "memory_MiB": "memory_source",
    "usable_MiB": "usable_source",
    "link_GBps": "link_source",
    "ceilings_TFLOPs": "ceilings_source",
    "also_TFLOPs": "also_source",
    "base_clock_MHz": "base_clock_source",
}
DERIVED = (
    "flops_per_clock",
    "own_clock_MHz",
    "highest_clock_MHz",
    "base_clock_MHz",
)  # these say nothing without a derivation
SINGLE = tuple(field for pair in SOURCED.items() for field in pair if field not in DERIVED)
FIELDS = (
    *REQUIRED,
    "half",
    "halves",
    "watts",
    "aliases",
    "printed",
    "notes",
    "memory_GB",
    *SINGLE,
    "sparse",
    "derivation",
    *DERIVED,
)
PARTS = ("unit", "units", "clock_MHz")


def check_entry(name, entry, sources):
    """Fields that are missing, unknown, or without effect."""
    needed = [*REQUIRED]
    if "derivation" in entry:
        needed.append("flops_per_clock")
    elif any(field in entry for field in DERIVED):
        needed.append("derivation")
    product = entry.get("derivation", dict.fromkeys(PARTS))
    for where, found, known, required in (("", entry, FIELDS, needed), ("derivation: ", product, PARTS, PARTS)):
        for field in found:
            if field not in known:
                raise ValueError(f"devices.toml, [{name}]: {where}{field} is not a field; {names.hint(field, known)}")
        for field in required:
            if field not in found:
                raise ValueError(f"devices.toml, [{name}]: {where}the field {field} is missing")
    for field, key in SOURCED.items():
        if (field in entry) != (key in entry):
            raise ValueError(f"devices.toml, [{name}]: {field} and {key} stand together")
    for source in (*entry["sources"], *(entry[key] for key in SOURCED.values() if key in entry)):
        if source not in sources:
            hint = names.hint(source, sources)
            raise ValueError(f"devices.toml, [{name}]: sources: {source} is not in [sources]; {hint}")


def check_aliases(aliases):
    """One that another device has too, as a name or an alias."""
    owners = {device_spellings.key(name): name for name in aliases}
    for name, spellings in aliases.items():
        for spelled in spellings:
            owner = owners.setdefault(device_spellings.key(spelled), name)
            if owner != name:
                raise ValueError(f"devices.toml, [{name}]: aliases: {spelled!r} already stands for {owner}")


def check(text):
    """All of the file."""
    data = tomllib.loads(text)
    sources = data.pop("sources")
    for name, entry in data.items():
        check_entry(name, entry, sources)
    check_aliases({name: entry.get("aliases", ()) for name, entry in data.items()})


check(TEXT)  # when the tests are collected: what asks for a device of a faulty file would only say KeyError
