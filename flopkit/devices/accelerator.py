"""An accelerator: its peaks by number format, its bandwidth and its memory, and who says
so."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from flopkit import units
from flopkit.derivations import Derivation, Limit, number_format
from flopkit.sizes import positive
from flopkit.tables import Table

__all__ = ["Device"]


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
        Bytes of it, as the driver reports them.
    source : str, optional
        Where the numbers come from, and when they were read.
    title : str, optional
        The name in full. Empty: *name*.
    vendor : str, optional
        Who makes it.
    notes : str, optional
        Remarks on these numbers.
    link_bandwidth : float, optional
        What all its links to others of its node carry in one direction, bytes/s. Makers
        print both directions together, twice this.
    derivation : Derivation, optional
        The factors of the peak, if they are known.
    sparse : Iterable[Any], optional
        Formats for which the maker also prints twice the dense peak.
    usable : float, optional
        Bytes of *memory* that a program can allocate.
    ceilings : Mapping[Any, float], optional
        The best matrix product that somebody measured, FLOP/s by number format.
    year : int, optional
        In which it was first sold.
    watts : float, optional
        The highest power that the maker allows it.
    sources : Mapping[str, str], optional
        Of single fields: where memory, usable, link_bandwidth and ceilings come from.

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
    usable: float | None
    link_bandwidth: float | None
    year: int | None
    watts: float | None
    source: str
    sources: Mapping[str, str]
    notes: str
    derivation: Derivation | None
    sparse: frozenset[str]
    ceilings: Mapping[str, float]
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
        usable: float | None = None,
        ceilings: Mapping[Any, float] = MappingProxyType({}),
        year: int | None = None,
        watts: float | None = None,
        sources: Mapping[str, str] = MappingProxyType({}),
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
        best = {
            number_format(dtype): _given(f"ceilings[{dtype!r}]", rate, "FLOP/s") for dtype, rate in ceilings.items()
        }
        if len(peaks) < len(peak):
            raise ValueError(f"peak={dict(peak)!r}: two of these names are the same number format; give each one peak")
        for what, formats in (("sparse", twice), ("ceilings", best.keys())):
            if not formats <= peaks.keys():
                has = sorted(formats & peaks.keys())
                raise ValueError(f"{what}={sorted(formats)}: of these, {name} has a dense peak for {has} only")
        if usable is not None and memory is not None and usable > memory:
            raise ValueError(f"usable={usable!r}: more than the memory, {memory!r} bytes")
        self.__dict__.update(
            name=name,
            title=title or name,
            vendor=vendor,
            bandwidth=float(positive("bandwidth", bandwidth, "bytes/s")),
            memory=_given("memory", memory, "bytes"),
            usable=_given("usable", usable, "bytes"),
            link_bandwidth=_given("link_bandwidth", link_bandwidth, "bytes/s"),
            year=year,
            watts=_given("watts", watts, "watts"),
            source=source,
            sources=MappingProxyType(dict(sources)),
            notes=notes,
            derivation=derivation,
            sparse=twice,
            ceilings=MappingProxyType(best),
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
        plain: dict[str, Any] = {
            name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in self.__dict__.items()
        }
        return partial(Device, peak=plain.pop("_peaks"), **plain), ()

    # -- the numbers ------------------------------------------------------------------------------------------

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The number formats whose peak is known."""
        return tuple(self._peaks)

    @property
    def available(self) -> float | None:
        """Bytes that a program can allocate: *usable* where that is known, else *memory*. What is said to fit fits in these."""
        return self.memory if self.usable is None else self.usable

    def peak(self, dtype: Any) -> float:
        """Dense peak in FLOP/s, as the maker prints it.

        Raises
        ------
        ValueError
            For a format this device has no peak for, with those it has.

        Examples
        --------
        >>> from flopkit.devices import device
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
        >>> from flopkit.devices import device
        >>> device("h100-sxm").sparse_peak("fp8")
        3957800000000000.0
        """
        key = self._known(dtype)
        if key not in self.sparse:
            have = f"it does for {', '.join(k for k in self.dtypes if k in self.sparse)}" if self.sparse else "for none"
            raise ValueError(f"dtype={dtype!r}: {self.name} prints no sparse peak for {key}; {have}")
        return 2 * self._peaks[key]

    def ceiling(self, dtype: Any) -> float:
        """The best matrix product that somebody measured, in FLOP/s: what a program can hope for. ``sources["ceilings"]`` says who.

        Raises
        ------
        ValueError
            If none was published.

        Examples
        --------
        >>> from flopkit.devices import device
        >>> round(device("h100-sxm").ceiling("bf16") / device("h100-sxm").peak("bf16"), 3)
        0.803
        """
        key = self._known(dtype)
        if key not in self.ceilings:
            have = f"one is known for {', '.join(self.ceilings)}" if self.ceilings else "none is known"
            raise ValueError(f"dtype={dtype!r}: nobody published a ceiling of {self.name} for {key}; {have}")
        return self.ceilings[key]

    def ridge(self, dtype: Any) -> float:
        """The arithmetic intensity, in FLOPs per byte, above which arithmetic is the limit and not memory.

        >>> from flopkit.devices import device
        >>> round(device("h200").ridge("bf16"))
        206
        """
        return self.peak(dtype) / self.bandwidth

    def limit(self, dtype: Any) -> Limit:
        """The rate in FLOP/s above which a measurement must be wrong, with the ``rule`` that gives it.

        Units x FLOP/clock x the highest clock the part reaches, where that is known: no correct measurement is above it. Otherwise 1.1 x
        `peak`, which is a margin and no law: a card may clock higher. Never below `peak`.

        >>> from flopkit.devices import device
        >>> h200 = device("h200").limit("bf16")
        >>> h200 == 132 * 4096 * 1980e6, h200.rule
        (True, '132 SM × 4,096 FLOP/clock × 1,980 MHz = 1.071 PFLOP/s')
        >>> from flopkit.devices import device
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
        Columns: *format*, *dense peak* in FLOP/s, *ridge* in FLOPs a byte, *limit* in FLOP/s (see `limit`), *measured*, where known: the best that
        somebody published (see `Device.ceiling`), *made of*: units × FLOPs a clock × clock, where they are known.
        """
        made_of = self.derivation
        rows = [
            {
                "format": key,
                "dense peak": self.peak(key),
                "ridge": self.ridge(key),
                "limit": float(self.limit(key)),
                **({"measured": self.ceilings.get(key, "")} if self.ceilings else {}),
                "made of": made_of.text(key) if made_of and key in made_of.flops_per_clock else "",
            }
            for key in self.dtypes
        ]
        formats = {
            "dense peak": lambda v: units.si(v, "FLOP/s"),
            "ridge": lambda v: units.count(v, "FLOP/B"),
            "limit": lambda v: units.si(v, "FLOP/s"),
            "measured": lambda v: units.si(v, "FLOP/s") if v else "",
        }
        return Table(rows, caption=str(self), formats=formats)

    def __str__(self) -> str:
        size = f", {units.si(self.memory, 'B')}" if self.memory else ""
        return f"{self.title}: {units.si(self.bandwidth, 'B/s')}{size}"

    def __repr__(self) -> str:
        peaks = ", ".join(f"{key} {units.si(rate, 'FLOP/s')}" for key, rate in self._peaks.items())
        return f"{self} ({peaks}; dense) [{self.name}]"

    def _repr_html_(self) -> str:
        single = " ".join(f"{field.replace('_', ' ').capitalize()}: {where}." for field, where in self.sources.items())
        about = " ".join(part for part in (f"Source: {self.source}.", single, self.notes) if part)
        return f"{self.table()._repr_html_()}<p>{html.escape(about)}</p>"


def _given(name: str, value: Any, unit: str) -> float | None:
    return None if value is None else float(positive(name, value, unit))
