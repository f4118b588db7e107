"""Accelerators by name: those of the data, the one that torch uses now, and this machine
by its ceilings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from flopkit import device_data, device_spellings, machine, names
from flopkit.devices.accelerator import Device

__all__ = ["device", "device_names", "fastest_mode", "measured_device", "memory_of"]


def device(name: str | Device | None = None) -> Device:
    """The accelerator called *name*; without one, the CUDA device that torch uses now.

    Names ignore case, space, ``_``, ``-`` and ``.``; what drivers, torch and JAX print is known too. A die or a core that a framework
    sees as a device has a name of its own: torch's ``"AMD Instinct MI250X"`` is ``mi250x-gcd``, half of the module ``mi250x``.

    Parameters
    ----------
    name : str or Device, optional
        One of `device_names`, or a `Device`, which is returned as it is. ``"here"``: this machine, its peaks and its bandwidth being the
        ceilings that `flopkit.ceilings` measured and kept, of the CUDA device where there is one, else of the CPU.

    Raises
    ------
    ValueError
        For a name that is not in the data, with near ones of the same class, and with the `Device` to fill in; without a name, for a card
        of which torch says another size of memory.
    RuntimeError
        Where there is no CUDA device; for ``"here"``, where no ceilings are kept.
    TypeError
        For what is neither a name nor a `Device`.

    Examples
    --------
    >>> device("NVIDIA A100-SXM4-80GB").name
    'a100-sxm-80gb'
    >>> device("h100_sxm").name
    'h100-sxm'
    """
    if name is None:
        return _current()
    if isinstance(name, Device):
        return name
    if isinstance(name, str) and names.plain(name) == "here":
        return _here()
    return _catalogue()[device_spellings.find(name)]


def device_names() -> list[str]:
    """The names of all accelerators in the data, makers and generations together, as `device` takes them.

    >>> device_names()[:3]
    ['p100-sxm', 'p100-pcie', 'p40']
    >>> [name for name in device_names() if name.startswith("h200")]
    ['h200', 'h200-nvl']
    """
    return list(_catalogue())


def memory_of(card: Device) -> float:
    """``card.available``, or an error where it is not known."""
    if card.available is None:
        raise ValueError(f"{card.name}: its memory is not known; make a device with flopkit.Device(..., memory=...)")
    return card.available


def fastest_mode(device: Any, dtype: str) -> str:
    """The fastest way in which *device* multiplies numbers of a format: by its matrix units, where they take it as it is.

    >>> fastest_mode(device("a100-sxm-80gb"), "fp64"), fastest_mode(device("a100-sxm-80gb"), "fp32")
    ('fp64_tensor', 'fp32')
    """
    had = [mode for mode in (dtype, f"{dtype}_tensor", f"{dtype}_matrix") if mode in getattr(device, "dtypes", ())]
    return max(had, key=device.peak, default=dtype)


def measured_device(kept: Mapping[str, Any]) -> Device:
    """The device ``"here"``: the best that was measured, as `flopkit.machine` keeps it. Refused results are left out; a disturbed one, which
    can only be too low, is not.

    Raises
    ------
    ValueError
        If every matrix product, or all traffic, was measured with the verdict ``"wrong"`` or ``"impossible"``.
    """
    holds = ("ok", "disturbed")
    peaks = {dtype: found["flops_per_s"] for dtype, found in kept["matmul"].items() if found["verdict"] in holds}
    rates = [found["bytes_per_s"] for found in kept["traffic"].values() if found["verdict"] in holds]
    if not peaks or not rates:
        raise ValueError(f"no valid ceiling was measured for {kept['title']}: run flopkit.ceilings() again")
    threads = f", with {kept['threads']} threads" if kept["threads"] else ""
    return Device(
        "here",
        title=f"{kept['title']} (measured)",
        peak=peaks,
        bandwidth=max(rates),
        memory=kept["memory"],
        source=f"flopkit.ceilings(), measured on this machine on {kept['when'][:10]}{threads}",
        notes="Ceilings, not a datasheet: the best matrix product and the best traffic that were measured.",
    )


def _here() -> Device:
    kept = machine.read_ceilings()
    if kept is None:
        raise RuntimeError(
            f"no ceilings are kept of this machine's {machine.title()}: flopkit.ceilings() measures them in a minute, "
            "and flopkit.device('here') finds them from then on"
        )
    return measured_device(kept)


def _current() -> Device:
    try:
        import torch
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "flopkit.device() without a name asks torch for the current CUDA device: install torch, "
            "or name a device, e.g. flopkit.device('h100-sxm')"
        ) from None
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device is available to torch: name one instead, e.g. flopkit.device('h100-sxm')")
    card = device(torch.cuda.get_device_name())
    try:
        has = float(torch.cuda.get_device_properties().total_memory)
    except (RuntimeError, AssertionError, TypeError):  # torch does not say
        return card
    if card.memory is not None and not 0.8 < has / card.memory < 1.2:
        raise ValueError(
            f"torch calls the card {torch.cuda.get_device_name()!r} and says that it has {has / 2**30:.1f} GiB; {card.name} has "
            f"{card.memory / 2**30:.1f}: it is another part of this name, or a slice of the card, whose peak is a share. "
            f"flopkit.device({card.name!r}) takes it for the whole card; else flopkit.Device(..., peak=, bandwidth=, memory={has:.0f})"
        )
    return card


@cache
def _catalogue() -> Mapping[str, Device]:
    return MappingProxyType({name: Device(name, **entry) for name, entry in device_data.entries().items()})
