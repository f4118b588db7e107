"""What a step that takes so many seconds means: FLOP/s, MFU, HFU, tokens/s."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from flopkit import devices, units
from flopkit.conventions import Convention
from flopkit.integrations.watched_steps import WatchedStep
from flopkit.utilization.gauges import Gauge, of_flops

__all__ = ["StepRates", "in_words"]


class StepRates:
    """The rates of a step whose FLOPs are known.

    Parameters
    ----------
    steps : list[WatchedStep]
        Those that were counted.
    agreed : WatchedStep
        The one of them whose FLOPs count.
    asked : dict[str, Any]
        What the command line was told: ``convention``, ``device``, ``peak``, ``dtype``.
    device_type : str
        Where the steps run, as torch calls it.
    """

    def __init__(self, steps: list[WatchedStep], agreed: WatchedStep, asked: dict[str, Any], device_type: str) -> None:
        self._steps, self._agreed, self._asked, self._device_type = steps, agreed, asked, device_type
        self.facts = agreed.facts()
        self.gauges: list[Gauge] = []
        self.peak_device: Any = None
        self.no_share = ""  # why there is no MFU
        self.tokens, self.samples = self._same("tokens"), self._same("samples")
        if uncounted := agreed.report.uncounted:
            names = ", ".join(f"{row['operator']} ({units.count(row['calls'], 'calls')})" for row in uncounted[:5])
            self.no_share = (
                f"not counted: {names}{' …' * (len(uncounted) > 5)}, so no MFU: flopkit.formula registers a formula"
            )
            return
        try:
            self._find_peak()
        except (ValueError, TypeError, RuntimeError, LookupError) as error:
            self.no_share = f"no MFU: {' '.join(str(error).split())}"

    def _same(self, items: str) -> int | None:
        """What all counted steps of these FLOPs had; None where it is not known, or they differ."""
        flops = self._agreed.report.model_flops
        found = {getattr(each, items) for each in self._steps if each.report.model_flops == flops}
        return found.pop() if len(found) == 1 else None

    def _find_peak(self) -> None:
        """The peak that the products of a step meet."""
        asked = self._asked
        step = self._agreed.report.under(asked["convention"])
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
        work = _AsTf32(step) if _tf32(self._device_type, device, step) else step
        self.gauges = [
            of_flops("MFU", "model_flops", work, device, asked["dtype"], 1),
            of_flops("HFU", "hardware_flops", work, device, asked["dtype"], 1),
        ]

    def of(self, seconds: float) -> tuple[dict[str, Any], list[str]]:
        """What a step of so many seconds means, what is not known left out; and why a share is impossible, where it is.

        Parameters
        ----------
        seconds : float
            Of a step.
        """
        found: dict[str, Any] = {"seconds": seconds}
        impossible: list[str] = []
        if not self._agreed.report.uncounted:
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

    Parameters
    ----------
    rates : dict[str, Any]
        What `StepRates.of` gave.

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


class _AsTf32:
    """A report whose products in fp32 run as tf32."""

    def __init__(self, report: Any) -> None:
        self._report = report
        self.convention: Convention = report.convention
        self.uncounted = report.uncounted

    def under(self, convention: Any) -> _AsTf32:
        return _AsTf32(self._report.under(convention))

    def flops_by_dtype(self, model: bool = False) -> dict[str, Any]:
        found = dict(self._report.flops_by_dtype(model))
        if "fp32" in found:
            found["tf32"] = found.pop("fp32") + found.get("tf32", 0)
        return found


def _tf32(kind: str, device: Any, step: Any) -> bool:
    """Whether the program lets products in fp32 run as tf32, on a device that has them."""
    if kind != "cuda" or "tf32" not in getattr(device, "dtypes", ()):
        return False
    backends = sys.modules["torch"].backends
    if backends.cuda.matmul.allow_tf32:
        return True
    return bool(backends.cudnn.allow_tf32) and any("conv" in row["operator"] for row in step.by_op())
