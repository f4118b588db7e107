"""A run under the doctor's eyes: its MFU, what may have been done otherwise, and which numbers that makes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from flopkit import units
from flopkit.devices import Device
from flopkit.diagnosis.chance import Window, bar_of, fits
from flopkit.diagnosis.figures import Reported, reported_share
from flopkit.diagnosis.findings import HIGH, LOW, Credibility, Diagnosis, Explanation
from flopkit.diagnosis.mistakes import (
    COMMON,
    Differs,
    Mistake,
    in_jobs,
    in_peaks,
    in_units,
    together,
    ways_out,
    ways_up,
)
from flopkit.diagnosis.numerators import in_work
from flopkit.diagnosis.rates import Rate, rate_of, sizes_of
from flopkit.models.catalogue import load, model_names, the_model
from flopkit.models.files.hugging_face import from_hf
from flopkit.models.model import Model
from flopkit.names import plain
from flopkit.sizes import short
from flopkit.utilization.products import by_product
from flopkit.utilization.shares import hfu, mfu

__all__ = ["OfFlops", "OfModel"]

_PEAK = 5e-4  # people write 989 TFLOP/s for 989.4: a peak has three digits
_TWIN = 0.01  # the least prior of a mistake that is named because it has the ratio of one that explains
_SAME = 1e-3  # two mistakes of one ratio, which one number cannot tell apart
_MOST = 6
_NONE = 3.0  # that nobody did anything otherwise is likelier than any mistake


class OfFlops:
    """A run of which FLOP/s are known."""

    convention = "FLOPs as given"

    def __init__(self, card: Device, dtype: Any, count: int, rate: Rate) -> None:
        self.card, self.dtype, self.count, self.rate = card, dtype, count, rate
        if isinstance(dtype, Mapping):
            raise TypeError(
                f"dtype={short(dict(dtype))}: TFLOP/s do not say how many FLOPs have which format; give a rate in tokens"
            )
        self.peak, limit = card.peak(dtype), card.limit(dtype)
        self.over = (rate.flops or 0) / limit
        self.mfu: float = self._share()
        self.hfu: float | None = None
        self.base = float(self.mfu)  # what mistakes are measured against
        self.words = f"{rate.words}, on {count:,} × {card.title}, {dtype}"

    def _share(self) -> float:
        flops = self.rate.flops or 0.0
        return flops / self.peak if self.over > 1 else mfu(flops, seconds=1, device=self.card, dtype=self.dtype)

    def mistakes(self) -> list[list[Mistake]]:
        work = [
            Mistake("recompute counted as ×4/3 (HFU)", 4 / 3, "the log's FLOPs are those of the model, and a fourth pass was added", 0.05, executed=True),
            Mistake("model FLOPs of a log that counts recompute as ×4/3", 3 / 4, "the log's FLOPs are executed ones", 0.05),
            Mistake("frozen weights: two thirds of a full step", 2 / 3, "frozen weights have no gradient", 0.05),
            Mistake("hidden pairs of attention counted, by itself", 2.0, "where attention alone is measured: the mask hides half of its pairs", 0.02),
        ]  # fmt: skip
        return [work, in_peaks(self.card, self.dtype), in_units(), in_jobs(self.count, {}, tokens=False)]

    def windows(self, mistakes: list[Mistake], step: float) -> Iterator[Window]:
        """The numbers that mistakes make, by the digits of the rate, and where a number in between was rounded."""
        exact, loose = self.rate.errors
        loosely = f"{self.rate.loosely}, zeros at the end being no digits"
        readings = [(1.0, exact, "")] if loose <= exact * 1.001 else [(0.7, exact, ""), (0.3, loose, loosely)]
        for which, each in enumerate(mistakes):
            made = self.base * each.ratio
            for weight, error, note in readings:
                yield Window(which, each.prior * weight, made, made * (error + _PEAK), note)
            if each.prior >= 5e-3:
                for common, rounded, note in self._rounded(each, made):
                    if abs(rounded / made - 1) > _PEAK and abs(rounded - made) > step / 4:
                        yield Window(which, min(each.prior, 1.0) * common, rounded, rounded * _PEAK, note)

    def _rounded(self, each: Mistake, made: float) -> Iterator[tuple[float, float, str]]:
        """What comes of a number in between that was rounded: how common that is, the MFU, and which number."""
        peak = each.peak or self.peak
        for digits, common in ((3, 0.2), (2, 0.01)):
            rate = _round(made * peak, digits)
            yield common, rate / peak, f"by way of {_shown(rate, 'FLOP/s')}, rounded"
            other = _round(peak, digits)
            if abs(other / peak - 1) < 3e-3:
                yield common, made * peak / other, f"over {_shown(other, 'FLOP/s')}, rounded"

    def diagnosis(self, reported: Any) -> Diagnosis:
        said = None if reported is None else reported_share(reported, self.peak)
        groups = self.mistakes()
        if said is not None and said.executed and self.hfu is not None:
            self.base = float(self.hfu)
            groups[0] = self._executed(groups[0])
        if said is not None and said.of_rate:
            groups[1] = []  # FLOP/s are divided by no peak
        none = Mistake("no mistake", 1.0, "counted as here, over the dense peak", _NONE, 0, differs=Differs.NOTHING)
        single = [each for group in groups for each in group if each.deeds == 1]
        found: list[Explanation] = []
        near: list[Explanation] = []
        if said is not None:
            found, near = self._explained([none, *together(*groups)], said)
        as_here = said is None or bool(found and found[0].differs is Differs.NOTHING)
        if self.over > 1 and as_here:
            ways = ways_out(self.over, self.card, self._format(), self.count, self.rate)
            found = [self._explanation(each) for each in ways][:_MOST]
        elif self.mfu < LOW and as_here:
            up = ways_up(self.over, self.count, self.rate)
            found = [self._explanation(each) for each in up if self.mfu * each.ratio >= LOW]
        target = said.share if said else float(self.mfu)
        explained = {(each.name, each.ratio): each for each in found}
        alone = (explained.get((each.name, float(each.ratio))) or self._explanation(each) for each in single)
        considered = sorted(alone, key=lambda each: abs(math.log(each.mfu / target)))
        verdict = (
            Credibility.IMPOSSIBLE if self.over > 1 else Credibility.HIGH if self.mfu > HIGH
            else Credibility.LOW if self.mfu < LOW else Credibility.POSSIBLE
        )  # fmt: skip
        shown = str(reported).strip() if said and said.of_rate else ""
        if said and said.executed and "hfu" not in shown.lower():
            shown = f"HFU {100 * said.share:.4g} %"
        return Diagnosis(
            mfu=self.mfu, hfu=self.hfu, verdict=verdict, explanations=tuple(found), considered=tuple(considered),
            reported=said.share if said else None, run=self.words, near=tuple(near), bar=bar_of(said.step) if said else math.nan,
            convention=self.convention, _shown=shown,
        )  # fmt: skip

    def _format(self) -> Any:
        return self.dtype

    def _executed(self, work: list[Mistake]) -> list[Mistake]:
        return work

    def _explanation(self, each: Mistake, chance: float = math.nan, note: str = "") -> Explanation:
        made, why = self.base * float(each.ratio), f"{each.why}; {note}" if note else each.why
        return Explanation(each.name, float(each.ratio), made, why, chance, each.differs, each.other, note)

    def _explained(self, mistakes: list[Mistake], said: Reported) -> tuple[list[Explanation], list[Explanation]]:
        windows = list(self.windows(mistakes, said.step))
        if said.share > 1:
            mistakes, windows = self._cumulative(mistakes, windows, said)
        best: dict[int, tuple[float, str]] = {}
        for window, chance in fits(windows, said.share, said.step):
            best.setdefault(window.which, (chance, window.note))
        bar = bar_of(said.step)
        named = [which for which, (chance, _) in best.items() if chance <= bar]
        for which in best:  # what one number cannot tell from what explains it
            each = mistakes[which]
            if (
                which not in named
                and each.prior >= _TWIN
                and any(abs(each.ratio / mistakes[other].ratio - 1) < _SAME for other in named)
            ):
                chance = next(best[other][0] for other in named if abs(each.ratio / mistakes[other].ratio - 1) < _SAME)
                best[which] = (chance, best[which][1])
                named.append(which)
        found = [self._explanation(mistakes[which], *best[which]) for which in named][:_MOST]
        rest = [which for which in best if which not in named]
        near = [self._explanation(mistakes[which], *best[which]) for which in rest][:3]
        if not found:
            close = [
                each
                for which, each in enumerate(mistakes)
                if which not in best and each.prior >= 0.02 and abs(math.log(self.base * each.ratio / said.share)) < 0.1
            ]
            close.sort(key=lambda each: abs(math.log(self.base * each.ratio / said.share)))
            near += [self._explanation(each) for each in close[:4]]
        return found, near

    def _cumulative(
        self, mistakes: list[Mistake], windows: list[Window], said: Reported
    ) -> tuple[list[Mistake], list[Window]]:
        """Tokens of all steps by the time of one: so many times the MFU as there were steps, which nobody told."""
        steps = round(said.share / float(self.mfu))
        if steps < 2:
            return mistakes, windows
        why = f"tokens counted since the start of the run and the time of its last step: here {steps:,} steps"
        mistakes = [*mistakes, Mistake("cumulative tokens over one step", float(steps), why, 0.05)]
        exact = self.rate.errors[0]
        which = len(mistakes) - 1
        power = 10.0 ** math.floor(math.log10(said.share))
        last = min(math.ceil(10 * power / self.mfu), 10_000)
        for many in range(max(2, math.floor(power / self.mfu)), last):
            made = float(self.mfu) * many
            # of all numbers of steps one is asked about; the others make the numbers that would have been explained, too
            windows.append(Window(which if many == steps else -1, 0.05 / last, made, made * (exact + _PEAK)))
        return mistakes, [
            each for each in windows if each.which >= 0 or abs(each.middle - said.share) > said.step / 2 + each.reach
        ]


class OfModel(OfFlops):
    """A run of a model, of which tokens a second are known."""

    convention = "EXACT"

    def __init__(
        self, model: Any, context: int | None, lengths: Any, recompute: str, trained: Any, card: Device, dtype: Any, count: int,
        degrees: Mapping[str, int], given: Mapping[str, Any],
    ) -> None:  # fmt: skip
        if model is None:
            raise TypeError(
                "model= is missing: a name such as 'llama-3-8b', or a config.json; only tflops_per_device= goes without"
            )
        self.asked, self.one, self.trained = model, the_model(model), "all" if trained is None else trained
        self.sizes, text = sizes_of(context, lengths)
        self.context = context if lengths is not None else None
        self.recompute, self.degrees, self.card, self.dtype, self.count = recompute, degrees, card, dtype, count
        step = self.one.train_step(**self.sizes, recompute=recompute, trained=self.trained)
        self.step = step
        a_sequence = context or (step.tokens / self.sizes["lengths"].count if lengths is not None else None)
        self.rate = rate_of(given, count, a_sequence)
        if self.rate.tokens is None:
            self.convention = "FLOPs as given"
        formats = _by_format(step, dtype)
        total = sum(formats.values())
        self.formats = tuple(formats)
        self.peak = (
            total / sum(flops / card.peak(each) for each, flops in formats.items())
            if len(formats) > 1
            else card.peak(self.formats[0])
        )
        limit = total / sum(flops / card.limit(each) for each, flops in formats.items())
        speed: Any = self.rate.flops if self.rate.tokens is None else total / step.tokens * self.rate.tokens / count
        self.over = float(speed / limit)
        self.mfu, self.hfu = self._of_step(float(speed))
        self.base = float(self.mfu)
        trains = "" if self.trained == "all" else f", trained: {short(self.trained)}"
        self.words = f"{self.one}, {text}{trains}, {self.rate.words} on {count:,} × {card.title}, {_named(dtype)}"

    def _of_step(self, speed: float) -> tuple[float, float]:
        step: Any = self.step
        share = speed / self.peak
        if self.over > 1 or self.rate.tokens is None or len(self.formats) > 1:
            share = float(share)
            more = step.hardware_flops / step.model_flops
            if len(self.formats) > 1:
                executed = _by_format(step, self.dtype, "hardware_flops")
                more = (
                    sum(flops / self.card.peak(each) for each, flops in executed.items()) * self.peak / step.model_flops
                )
            return share, float(share * more)
        took = {
            "seconds": step.tokens / self.rate.tokens,
            "device": self.card,
            "dtype": self.formats[0],
            "count": self.count,
        }
        busy = step.hardware_flops / step.tokens * self.rate.tokens / self.count
        return mfu(step, **took), float(busy / self.peak) if busy > self.card.limit(self.formats[0]) else hfu(
            step, **took
        )

    def _format(self) -> Any:
        return self.formats[0]

    def mistakes(self) -> list[list[Mistake]]:
        if self.rate.tokens is None:
            groups = super().mistakes()
            more = float(self.step.hardware_flops / self.step.model_flops)
            groups[0] = groups[0][:3] + (
                [Mistake("executed FLOPs (HFU)", more, self._again(), COMMON, executed=True)] if more > 1.0001 else []
            )
        else:
            groups = [self._work(), [], in_units(), []]
        several = len(self.formats) > 1
        groups[1] = in_peaks(self.card, self.formats if several else self.formats[0], self.peak if several else None)
        groups[3] = in_jobs(self.count, self.degrees, tokens=self.rate.tokens is not None)
        return groups

    def _again(self) -> str:
        """What is executed beyond the FLOPs of the model."""
        policy = self.step.checkpointed.flops > 0
        return (
            "recompute is counted" if policy else "flash attention's backward computes the scores again, which counts"
        )

    def _executed(self, work: list[Mistake]) -> list[Mistake]:
        """What an HFU may be instead, by its ratio to ours: what counts recompute otherwise, or none of it."""
        more = self.base / float(self.mfu)
        name = "an MFU called HFU" if self.step.checkpointed.flops > 0 else "flash attention's recompute left out"
        plain = [Mistake(name, 1 / more, "what is computed again is left out", COMMON)] if more > 1.0001 else []
        again = (each._replace(ratio=each.ratio / more) for each in work if each.executed)
        return [*plain, *(each for each in again if abs(each.ratio - 1) > 1e-4)]

    def _work(self) -> list[Mistake]:
        shards = {"tensor parallelism": self.degrees["tensor"]} if "tensor" in self.degrees else {}
        data = self.degrees.get("data", self.count)
        if data > 1 and data not in shards.values():
            shards["FSDP"] = data
        variants = {}
        if self.one.mtp is None and self.trained == "all" and self.one.encoder is None:
            other = _with_mtp(self.asked, self.one)
            if other is not None:
                variants["the multi-token-prediction layer counted"] = other
        how: dict[str, Any] = {"recompute": self.recompute, "context": self.context, "trained": self.trained}
        if "seq" in self.sizes:
            found = _work_of(self.one, self.sizes["seq"], tuple(shards.items()), tuple(variants.items()), **how)
            return list(found)
        return in_work(self.one, self.sizes, shards=shards, variants=variants, **how)

    def _rounded(self, each: Mistake, made: float) -> Iterator[tuple[float, float, str]]:
        yield from super()._rounded(each, made)
        if self.rate.tokens is not None and each.deeds <= 2:
            a_token = self.step.flops_per_token * made / float(self.mfu) * (each.peak or self.peak) / self.peak
            for digits, common in ((3, 0.1), (2, 0.01), (1, 0.005)):
                rounded = _round(a_token, digits)
                yield common, made * rounded / a_token, f"by way of a token's {_shown(rounded, 'FLOPs')}, rounded"


_shown = lru_cache(maxsize=4096)(units.si)  # the same run asked about another number has the same windows


@lru_cache(maxsize=16)
def _work_of(model: Model, seq: int, shards: Any, variants: Any, **how: Any) -> tuple[Mistake, ...]:
    return tuple(in_work(model, {"seq": seq}, shards=dict(shards), variants=dict(variants), **how))


def _with_mtp(asked: Any, model: Model) -> Model | None:
    """The same model with its layer for multi-token prediction, where it has one."""
    try:
        if isinstance(asked, Model):
            return load(asked.name, mtp=True) if load(asked.name) == asked else None
        if isinstance(asked, str) and plain(asked) in map(plain, model_names()):
            return load(asked, mtp=True)
        return from_hf(asked, mtp=True)
    except (ValueError, TypeError, OSError):
        return None


def _round(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _by_format(step: Any, dtype: Any, which: str = "model_flops") -> dict[str, Any]:
    return by_product(step, which, dtype) if isinstance(dtype, Mapping) else {dtype: getattr(step, which)}


def _named(dtype: Any) -> str:
    return ", ".join(f"{name} in {each}" for name, each in dtype.items()) if isinstance(dtype, Mapping) else str(dtype)
