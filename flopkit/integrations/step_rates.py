"""What a step that takes so many seconds means: FLOP/s, MFU, HFU, tokens/s."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from flopkit import devices, units
from flopkit.conventions import Convention
from flopkit.counter.modes import flops_by_mode
from flopkit.counter.report import Report
from flopkit.integrations.watched_steps import WatchedStep
from flopkit.utilization.gauges import Gauge, lacks, of_flops

__all__ = ["StepRates", "in_words"]


class StepRates:
    """The rates of a step whose FLOPs are known: those of the steps of a cycle, on average."""

    def __init__(
        self, steps: list[WatchedStep], cycle: list[WatchedStep], asked: dict[str, Any], device_type: str
    ) -> None:
        self._steps, self._cycle, self._asked, self._device_type = steps, cycle, asked, device_type
        self.facts = _mean_facts([each.facts() for each in cycle])
        self.gauges: list[Gauge] = []
        self.peak_device: Any = None
        self.no_share = ""  # why there is no MFU
        self.tokens, self.samples = self._same("tokens"), self._same("samples")
        twice = sorted({item for each in cycle for item in each.twice_fed})
        self.notes = [f"no {item}/s: the model ran several times on one and the same batch" for item in twice]
        if uncounted := self.facts["uncounted"]:
            self.no_share = lacks(uncounted, "MFU")
            return
        try:
            self._find_peak()
        except (ValueError, TypeError, RuntimeError, LookupError) as error:
            self.no_share = f"no MFU: {' '.join(str(error).split())}"

    def _same(self, items: str) -> Any:
        """What the steps of the cycle had on average; None where it is not known, or steps of the same FLOPs had not equally many."""
        found: list[int] = []
        for step in self._cycle:
            flops = step.report.model_flops
            equal = {getattr(each, items) for each in self._steps if each.report.model_flops == flops}
            if len(equal) > 1 or None in equal:
                return None
            found += equal
        return _mean(found)

    def _find_peak(self) -> None:
        """The peak that the products of a step meet."""
        asked = self._asked
        if asked["peak"] is not None:
            given = SimpleNamespace(peak=asked["peak"], title="the peak that --peak gives", source="given as --peak")
            self.peak_device = given
        elif asked["device"] is not None:
            self.peak_device = devices.device(asked["device"])
        elif self._device_type == "cuda":
            self.peak_device = devices.device()
        else:
            kind = self._device_type.upper()
            self.no_share = f"no peak is known of this {kind}, so no MFU: give --peak or --device"
            return
        device = self.peak_device
        steps = [each.report.under(asked["convention"]) for each in self._cycle]
        works = [_ByMode(step, device) for step in steps] if self._device_type == "cuda" else steps
        self.gauges = [
            _mean_gauge([of_flops(name, which, work, device, asked["dtype"], 1) for work in works])
            for name, which in (("MFU", "model_flops"), ("HFU", "hardware_flops"))
        ]

    def of(self, seconds: float) -> tuple[dict[str, Any], list[str]]:
        """What a step of so many seconds means, what is not known left out; and why a share is impossible, where it is."""
        found: dict[str, Any] = {"seconds": seconds}
        impossible: list[str] = []
        if not self.facts["uncounted"]:
            found["model_flops_per_s"] = self.facts["model_flops"] / seconds
            found["hardware_flops_per_s"] = self.facts["hardware_flops"] / seconds
        for gauge in self.gauges:
            try:
                found[gauge.name.lower()] = float(gauge.share(seconds))
            except ValueError as error:
                impossible.append(str(error).partition(" Usual causes")[0])
        if self.tokens is not None:
            found["tokens_per_s"] = self.tokens / seconds
        elif self.samples is not None:
            found["samples_per_s"] = self.samples / seconds
        return found, impossible


def in_words(rates: dict[str, Any]) -> str:
    """Rates as they stand in a line.

    Examples
    --------
    >>> in_words({"seconds": 0.5, "mfu": 0.25, "tokens_per_s": 8192.0})
    '500 ms a step, MFU 25 %, 8,192 tokens/s'
    """
    parts = [f"{units.seconds(rates['seconds'])} a step"]
    if "model_flops_per_s" in rates:
        parts.append(units.si(rates["model_flops_per_s"], "FLOP/s"))
    parts += [f"{name.upper()} {units.percent(rates[name])}" for name in ("mfu", "hfu") if name in rates]
    items = [(item, rates[f"{item}_per_s"]) for item in ("tokens", "samples") if f"{item}_per_s" in rates]
    parts += [f"{_short(rate)} {item}/s" for item, rate in items]
    return ", ".join(parts)


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.4g}"


def _mean(values: list[int]) -> Any:
    """The mean, a whole number where it is one."""
    return sum(values) / len(values) if sum(values) % len(values) else sum(values) // len(values)


def _mean_facts(facts: list[dict[str, Any]]) -> dict[str, Any]:
    """What steps do on average, and what was not counted in any of them."""
    found = dict(facts[-1])
    for name in found:
        if name.endswith("_flops"):
            found[name] = _mean([each[name] for each in facts])
    found["uncounted"] = list({row["operator"]: row for each in facts for row in each["uncounted"]}.values())
    found["notes"] = list(dict.fromkeys(note for each in facts for note in each["notes"]))
    return found


def _mean_gauge(gauges: list[Gauge]) -> Gauge:
    """The gauge of steps that alternate: on average they do so many FLOPs, and take so long at least."""
    if len(gauges) == 1:
        return gauges[0]

    def mean(name: str) -> Any:
        values = [getattr(each, name) for each in gauges]
        return None if None in values else sum(values) / len(values)

    amount, at_peak = mean("amount"), mean("at_peak")
    formats = tuple(dict.fromkeys(format for each in gauges for format in each.formats))
    others = {name: sum(each.others[name] for each in gauges) / len(gauges) for name in gauges[-1].others}
    return dataclasses.replace(
        gauges[-1], amount=amount, at_peak=at_peak, at_limit=mean("at_limit"), formats=formats, others=others,
        peak=amount / at_peak if len(formats) > 1 else gauges[-1].peak,
    )  # fmt: skip


class _ByMode:
    """A report as a GPU runs it: of its products in fp32, those as tf32 that torch may round, if the device has it."""

    def __init__(self, report: Report, device: Any) -> None:
        self._report, self._device = report, device
        self.convention: Convention = report.convention
        self.uncounted = report.uncounted

    def under(self, convention: Any) -> _ByMode:
        return _ByMode(self._report.under(convention), self._device)

    def flops_by_dtype(self, model: bool = False) -> dict[str, Any]:
        found = flops_by_mode(self._report, model)
        if "tf32" in found and "tf32" not in getattr(self._device, "dtypes", ()):
            found["fp32"] = found.pop("tf32") + found.get("fp32", 0)
        return found
