"""What an accelerator can do at most: arithmetic by number format, memory bandwidth, and who says so."""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cache, partial
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from flopkit import machine, names, units
from flopkit.derivations import Derivation, Limit, number_format
from flopkit.sizes import positive
from flopkit.tables import Table

__all__ = ["Derivation", "Device", "Limit", "device", "device_names", "fastest_mode", "measured_device"]


class Device:
    """An accelerator: peaks, bandwidth and memory, each with its source. It does not change.

    Parameters
    ----------
    name : str
        What a printout calls it.
    peak : Mapping[Any, float]
        Dense peak in FLOP/s by number format, a multiply-add as two FLOPs.
    bandwidth : float
        Main memory, bytes/s.
    memory : float, optional
        Bytes of it.
    source : str, optional
        Where the numbers come from, and when they were read.
    title : str, optional
        The name in full. Empty: *name*.
    vendor : str, optional
        Who makes it.
    notes : str, optional
        Remarks on these numbers.
    link_bandwidth : float, optional
        The fastest link to other devices, bytes/s, both directions together.
    derivation : Derivation, optional
        The factors of the peak, if they are known.
    sparse : Iterable[Any], optional
        Formats for which the maker also prints twice the dense peak.

    Notes
    -----
    A device does not say what a program reaches. `peak` is the number that the maker prints; utilisation is a share of it.

    Examples
    --------
    >>> mine = Device(
    ...     "my card",
    ...     peak={"bf16": 100e12},
    ...     bandwidth=1e12,
    ...     memory=16e9,
    ... )
    >>> mine.peak("bf16"), mine.ridge("bf16")
    (100000000000000.0, 100.0)
    """

    name: str
    title: str
    vendor: str
    bandwidth: float
    memory: float | None
    link_bandwidth: float | None
    source: str
    notes: str
    derivation: Derivation | None
    sparse: frozenset[str]
    _peaks: Mapping[str, float]

    def __init__(
        self,
        name: str,
        *,
        peak: Mapping[Any, float],
        bandwidth: float,
        memory: float | None = None,
        source: str = "given by the caller",
        title: str = "",
        vendor: str = "",
        notes: str = "",
        link_bandwidth: float | None = None,
        derivation: Derivation | None = None,
        sparse: Iterable[Any] = (),
    ) -> None:
        if not isinstance(peak, Mapping) or not peak:
            raise TypeError(f"peak={peak!r}: give FLOP/s by number format, e.g. peak={{'bf16': 989.4e12}}")
        if not isinstance(name, str) or not name:
            raise TypeError(f"name={name!r}: must be text, such as 'my card'")
        if isinstance(sparse, str):
            raise TypeError(f"sparse={sparse!r}: give number formats in a list, e.g. sparse=[{sparse!r}]")
        if derivation is not None and not isinstance(derivation, Derivation):
            raise TypeError(f"derivation={derivation!r}: must be a flopkit.devices.Derivation")
        peaks = {
            number_format(dtype): float(positive(f"peak[{dtype!r}]", rate, "FLOP/s")) for dtype, rate in peak.items()
        }
        twice = frozenset(number_format(dtype) for dtype in sparse)
        if len(peaks) < len(peak):
            raise ValueError(f"peak={dict(peak)!r}: two of these names are the same number format; give each one peak")
        if not twice <= peaks.keys():
            raise ValueError(
                f"sparse={sorted(twice)}: of these, {name} has a dense peak for {sorted(twice & peaks.keys())} only"
            )
        self.__dict__.update(
            name=name,
            title=title or name,
            vendor=vendor,
            bandwidth=float(positive("bandwidth", bandwidth, "bytes/s")),
            memory=None if memory is None else float(positive("memory", memory, "bytes")),
            link_bandwidth=None
            if link_bandwidth is None
            else float(positive("link_bandwidth", link_bandwidth, "bytes/s")),
            source=source,
            notes=notes,
            derivation=derivation,
            sparse=twice,
            _peaks=MappingProxyType(peaks),
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a device does not change: make another with flopkit.Device(...) to set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a device does not change: {name} stays")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self.name, self.bandwidth))

    def __reduce__(self) -> Any:
        state = {name: value for name, value in self.__dict__.items() if name != "_peaks"}
        return partial(Device, **state, peak=dict(self._peaks)), ()

    # -- the numbers ------------------------------------------------------------------------------------------

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The number formats whose peak is known."""
        return tuple(self._peaks)

    def peak(self, dtype: Any) -> float:
        """Dense peak in FLOP/s, as the maker prints it.

        Raises
        ------
        ValueError
            For a format this device has no peak for, with those it has.

        Examples
        --------
        >>> device("h100-sxm").peak("bf16")
        989400000000000.0
        """
        return self._peaks[self._known(dtype)]

    def sparse_peak(self, dtype: Any) -> float:
        """The maker's peak for matrices with 2:4 structured zeros: twice the dense peak, though half of the work is skipped.

        Raises
        ------
        ValueError
            If the maker prints none.

        Examples
        --------
        >>> device("h100-sxm").sparse_peak("fp8")
        3957800000000000.0
        """
        key = self._known(dtype)
        if key not in self.sparse:
            have = f"it does for {', '.join(k for k in self.dtypes if k in self.sparse)}" if self.sparse else "for none"
            raise ValueError(f"dtype={dtype!r}: {self.name} prints no sparse peak for {key}; {have}")
        return 2 * self._peaks[key]

    def ridge(self, dtype: Any) -> float:
        """The arithmetic intensity, in FLOPs per byte, above which arithmetic is the limit and not memory.

        >>> round(device("h200").ridge("bf16"))
        206
        """
        return self.peak(dtype) / self.bandwidth

    def limit(self, dtype: Any) -> Limit:
        """The rate in FLOP/s above which a measurement must be wrong, with the ``rule`` that gives it.

        Units x FLOP/clock x the highest clock the part reaches, where that is known: no correct measurement is above it. Otherwise 1.1 x
        `peak`, which is a margin and no law: a card may clock higher. Never below `peak`.

        >>> h200 = device("h200").limit("bf16")
        >>> h200 == 132 * 4096 * 1980e6, h200.rule
        (True, '132 SM × 4,096 FLOP/clock × 1,980 MHz = 1.071 PFLOP/s')
        >>> device("rtx-4090").limit("bf16").rule
        '1.1 × peak: the highest clock is not known'
        """
        key = self._known(dtype)
        return Limit.of(key, self._peaks[key], self.derivation)

    def _known(self, dtype: Any) -> str:
        key = number_format(dtype)
        if key not in self._peaks:
            raise ValueError(f"dtype={dtype!r}: {self.name} has no peak for {key}; it has {', '.join(self.dtypes)}")
        return key

    # -- showing itself ---------------------------------------------------------------------------------------

    def table(self) -> Table:
        """One row for each number format.

        Notes
        -----
        Columns: *format*, *dense peak* in FLOP/s, *ridge* in FLOPs a byte, *limit* in FLOP/s (see `limit`), and *made of*: units ×
        FLOPs a clock × clock, where they are known.
        """
        made_of = self.derivation
        rows = [
            {
                "format": key,
                "dense peak": self.peak(key),
                "ridge": self.ridge(key),
                "limit": float(self.limit(key)),
                "made of": made_of.text(key) if made_of and key in made_of.flops_per_clock else "",
            }
            for key in self.dtypes
        ]
        formats = {
            "dense peak": lambda v: units.si(v, "FLOP/s"),
            "ridge": lambda v: units.count(v, "FLOP/B"),
            "limit": lambda v: units.si(v, "FLOP/s"),
        }
        return Table(rows, caption=str(self), formats=formats)

    def __str__(self) -> str:
        size = f", {units.si(self.memory, 'B')}" if self.memory else ""
        return f"{self.title}: {units.si(self.bandwidth, 'B/s')}{size}"

    def __repr__(self) -> str:
        peaks = ", ".join(f"{key} {units.si(rate, 'FLOP/s')}" for key, rate in self._peaks.items())
        return f"{self} ({peaks}; dense) [{self.name}]"

    def _repr_html_(self) -> str:
        about = " ".join(part for part in (f"Source: {self.source}.", self.notes) if part)
        return f"{self.table()._repr_html_()}<p>{html.escape(about)}</p>"


def device(name: str | Device | None = None) -> Device:
    """The accelerator called *name*; without one, the CUDA device that torch uses now.

    Names ignore case, space, ``_``, ``-`` and ``.``; CUDA's own names are known too.

    Parameters
    ----------
    name : str or Device, optional
        One of `device_names`, or a `Device`, which is returned as it is. ``"here"``: this machine, its peaks and its bandwidth being the
        ceilings that `flopkit.ceilings` measured and kept, of the CUDA device where there is one, else of the CPU.

    Raises
    ------
    ValueError
        For a name that is not in the data, with near ones. `Device` makes one that is not in the data.
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
    known, listed = _catalogue(), "flopkit.device_names()"
    return known[names.find(name, known, "a device in the data", aliases=_aliases(), key=_key, listed=listed)]


def device_names() -> list[str]:
    """The names in the data, in the order of the data.

    >>> device_names()[:3]
    ['p100-sxm', 'p100-pcie', 'v100-sxm']
    """
    return list(_catalogue())


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
    name = torch.cuda.get_device_name()
    try:
        return device(name)
    except ValueError as error:
        raise ValueError(
            f"{error}. To use this card, say what it can do: flopkit.Device({name!r}, "
            "peak={'bf16': <dense FLOP/s>}, bandwidth=<bytes/s>, memory=<bytes>)"
        ) from None


# -- names ------------------------------------------------------------------------------------------------------


def _key(name: str) -> str:
    """A name without what names leave out: case, spaces, punctuation, maker and brand."""
    return re.sub(r"^(nvidia|amd|google|intel|habana)?(tesla|geforce|instinct|cloud)?(?=.)", "", names.plain(name))


# -- the data ---------------------------------------------------------------------------------------------------


@cache
def _data() -> Mapping[str, Any]:
    text = files("flopkit").joinpath("data/devices.toml").read_text(encoding="utf-8")
    return tomllib.loads(text, parse_float=Decimal)  # Decimal: 989.4 x 10^12 is then a whole number


@cache
def _catalogue() -> Mapping[str, Device]:
    sources = _data()["sources"]
    entries = {name: entry for name, entry in _data().items() if name != "sources"}
    return MappingProxyType({name: _read(name, entry, sources) for name, entry in entries.items()})


def _read(name: str, entry: Mapping[str, Any], sources: Mapping[str, Any]) -> Device:
    cited = entry["sources"] + ["aws-ec2-clocks"] * ("highest_clock_MHz" in entry)
    return Device(
        name,
        title=entry["title"],
        vendor=entry["vendor"],
        peak={key: float(rate * 10**12) for key, rate in entry["peak_TFLOPs"].items()},
        bandwidth=float(entry["bandwidth_GBps"] * 10**9),
        memory=float(entry["memory_GB"] * 10**9),
        link_bandwidth=float(entry["link_GBps"] * 10**9) if "link_GBps" in entry else None,
        source="; ".join(f"{sources[key]['title']} (read {sources[key]['read']})" for key in cited),
        notes=entry.get("notes", ""),
        derivation=_derivation(entry),
        sparse=entry.get("sparse", ()),
    )


def _derivation(entry: Mapping[str, Any]) -> Derivation | None:
    if "derivation" not in entry:
        return None
    highest = entry.get("highest_clock_MHz")
    return Derivation(
        unit=entry["derivation"]["unit"],
        units=entry["derivation"]["units"],
        clock=entry["derivation"]["clock_MHz"] * 1e6,
        flops_per_clock=entry["flops_per_clock"],
        own_clock={key: mhz * 1e6 for key, mhz in entry.get("own_clock_MHz", {}).items()},
        highest_clock=None if highest is None else highest * 1e6,
    )


@cache
def _aliases() -> Mapping[str, str]:
    return {spelled: name for name in _catalogue() for spelled in _data()[name].get("aliases", ())}
