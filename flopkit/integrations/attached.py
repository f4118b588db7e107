"""A training program that knows nothing of flopkit: its optimiser steps seen, one counted, all timed. See ``python -m flopkit run``."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flopkit import devices, units
from flopkit.conventions import Convention
from flopkit.integrations.watched_steps import WatchedStep, agreed, cannot_begin, differences, has_compiled
from flopkit.utilization.gauges import Gauge, of_flops

__all__ = ["Attachment"]

_AT_MOST = 3  # steps that are counted, where the first two do not do the same
_PATIENCE = 20  # times the steps of warming up: by then each optimiser has made two, or it is none of the loop


class Attachment:
    """Sees the optimiser steps of this process, counts one of them and times all that follow.

    A step is what runs from the end of one step of an optimiser to the end of its next: the micro-batches that it gathers, and the steps of
    other optimisers. Where there are several, it is the one that steps least often.

    Parameters
    ----------
    asked : dict[str, Any]
        What the command line was told.
    folder : str
        Where the processes of one command leave what they counted, for each other.
    forget : Callable[[], None], optional
        What is called in a process that is forked off.

    Notes
    -----
    From the second counted step on, nothing of the counter is left: a step costs two calls of a hook. The device is waited for at steps 1, 2, 4, 8,
    … after the counted ones, and where a line is due.
    """

    def __init__(self, asked: dict[str, Any], folder: str, forget: Callable[[], None] | None = None) -> None:
        self.asked, self._folder = asked, folder
        self._inside = threading.local()
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()
        # Of those among which one is chosen; and those that stepped before it was chosen.
        self._steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._in_the_loop: weakref.WeakSet[Any] = weakref.WeakSet()
        self.most = self._begun_anew = 0
        self._leader: Callable[[], Any] = _nothing
        self.quick: Callable[[], Any] = _nothing  # the same, where its steps are timed and never inside of others'
        self._is_compiling = sys.modules["torch"].compiler.is_compiling
        self._nested = self._no_waiting = False
        self.phase = "warming up"
        self.step = 0  # of the optimiser whose steps these are
        self.watched: list[WatchedStep] = []
        self.agreed: WatchedStep | None = None
        self.why_not = ""  # there are no FLOPs
        self.no_share = ""  # there is no MFU
        self.gauges: list[Gauge] = []
        self.seconds: list[float] = []  # a step, line by line
        self.notes: list[str] = []
        self.device_type = "cpu"
        self._ended, self._impossible = False, False
        # When the timed steps began, the line, and when the device was waited for; the steps at these times.
        self._began = self._since = self._mark = 0.0
        self._base = self._since_step = self._marked = 0
        self._due = math.inf
        self._next_wait = self._first_counted = 0
        self.optimizer: str | None = None
        self.rank, self.world = _rank()
        _at_the_end_of_a_child(self.end)
        if hasattr(os, "register_at_fork"):
            me, pid = weakref.ref(self), os.getpid()
            os.register_at_fork(after_in_child=lambda: _forked(me(), pid, forget))

    # The hooks. They run in each step: they are short.

    def before(self, optimizer: Any, frame: Any) -> None:
        """A step of an optimiser begins; *frame* is torch's wrapper around it."""
        stack = self._stack()
        while stack and not _is_in(stack[-1], frame):  # that step ended by an exception
            stack.pop()
        stack.append(frame)
        if optimizer not in self._hooked:
            self._hooked.add(optimizer)
            optimizer.register_step_post_hook(self.after)

    def after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """It is over."""
        now = time.perf_counter()
        if self._is_compiling():
            return
        if self.quick() is optimizer:
            self.step += 1
            if self._no_waiting:
                self._mark, self._marked = now, self.step
            if now < self._due and self.step != self._next_wait:
                return
        else:
            frame, stack = sys._getframe(1), self._stack()
            if not stack:
                return
            while stack and stack.pop() is not frame:
                pass
            if stack:  # a step inside of another one's is no step
                self._nested = True
                return
        if self.phase == "off":
            return
        try:
            self._stepped(optimizer, now)
        except Exception as error:
            self.phase, self.quick = "off", _nothing
            self.why_not = self.why_not or f"{type(error).__name__}: {error}"
            self.say(f"nothing more is counted: {self.why_not}")

    def _stack(self) -> list[Any]:
        try:
            return self._inside.stack  # type: ignore[no-any-return]
        except AttributeError:
            self._inside.stack = []
            return self._inside.stack  # type: ignore[no-any-return]

    def _stepped(self, optimizer: Any, now: float) -> None:
        leader = self._leader()
        if optimizer is leader:
            self.step += self.quick is _nothing  # else it was counted before
            if self.phase == "timing":
                self._tick(now)
            else:
                self._counted()
        elif leader is None or optimizer not in self._in_the_loop:  # another loop, or one that no counted step held
            if self.phase != "warming up":
                self._anew()
            self._warm(optimizer)

    # Which step it is, and what it does.

    def _warm(self, optimizer: Any) -> None:
        """See steps go by, until it is known which optimiser's are counted."""
        steps = self._steps
        steps[optimizer] = steps.get(optimizer, 0) + 1
        self.most = max(self.most, steps[optimizer])
        wanted = self.asked["steps"] - 1
        patience = _PATIENCE * wanted if self._begun_anew < 2 else math.inf
        if min(steps.values()) < wanted and max(steps.values()) < patience:
            return
        of_the_loop = {each: n for each, n in steps.items() if n >= min(2, wanted)}
        if steps[optimizer] > min(of_the_loop.values()):
            return
        self._leader, self.step = weakref.ref(optimizer), steps[optimizer]
        self._in_the_loop = weakref.WeakSet(of_the_loop)
        parameters = (each for group in optimizer.param_groups for each in group["params"])
        self.device_type = next((each.device.type for each in parameters), "cpu")
        self.optimizer = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
        self._begin()

    def _begin(self) -> None:
        """Count the step that begins now."""
        self.phase = "counting"
        if why := cannot_begin(self.asked["uncompiled"]):
            self.why_not = f"not counted: {why}"
            self._decided()
            return
        self.watched.append(WatchedStep(list(self._hooked), self.asked["convention"]))

    def _counted(self) -> None:
        """A counted step is over: has it done what another one did?"""
        step = self.watched[-1]
        if threading.get_ident() != step.thread:  # the counter is on that thread
            return
        step.stop()
        self.agreed = agreed(self.watched)
        if self.agreed is None and len(self.watched) < _AT_MOST:
            self._begin()
            return
        if self.agreed is None:
            self.why_not = f"not counted: {differences(self.watched, self.first_counted)}"
        elif len(self.watched) > 2:
            self.notes.append(
                f"of three counted steps two are the same: {differences(self.watched, self.first_counted)}"
            )
        self._decided()

    @property
    def first_counted(self) -> int:
        """The number of the first counted step."""
        return self.step - len(self.watched) + 1 if self.phase == "counting" else self._first_counted

    def _decided(self) -> None:
        """What a step does is known, or that it will not be: from here on only the clock runs."""
        self._first_counted = self.first_counted
        self.rank, self.world = _rank()
        if self.agreed is not None:
            if uncounted := self.agreed.report.uncounted:
                names = ", ".join(f"{row['operator']} ({units.count(row['calls'], 'calls')})" for row in uncounted[:5])
                self.no_share = (
                    f"not counted: {names}{' …' * (len(uncounted) > 5)}, so no MFU: flopkit.formula registers a formula"
                )
            else:
                self._find_peak()
        self.phase = "timing"
        self._leave_for_the_others()
        self.tell("counted", self._about_counting(), self._said_of_counting())
        self._wait()
        self._began = self._since = self._mark = time.perf_counter()
        self._base = self._marked = self._since_step = self.step
        self._due = self._began + self.asked["every"]
        self._no_waiting = self.device_type == "cpu"
        self._next_wait = 0 if self._no_waiting else self.step + 1
        self.quick = _nothing if self._nested else self._leader

    def _anew(self) -> None:
        """The optimiser is gone, or another one steps that was not there when it was chosen."""
        self.notes.append(f"{self.step} steps of an earlier {self.optimizer or 'optimiser'} are not in these numbers")
        for each in self.watched:
            each.stop()
        self._steps, self._leader, self.quick, self.step = weakref.WeakKeyDictionary(), _nothing, _nothing, 0
        self._begun_anew += 1
        self.watched, self.agreed, self.why_not, self.no_share, self.gauges, self.seconds = [], None, "", "", [], []
        self._base = self._marked = self._since_step = 0
        self.phase = "warming up"

    def _find_peak(self) -> None:
        """The peak that the products of a step meet."""
        asked, step = self.asked, self._work()
        try:
            if asked["peak"] is not None:
                device: Any = SimpleNamespace(
                    peak=asked["peak"], title="the peak that --peak gives", source="given as --peak"
                )
            elif asked["device"] is not None:
                device = devices.device(asked["device"])
            elif self.device_type == "cuda":
                device = devices.device()
            else:
                self.no_share = (
                    f"no peak is known of this {self.device_type.upper()}, so no MFU: give --peak or --device"
                )
                return
            self.peak_device = device
            work = _AsTf32(step) if _tf32(self.device_type, device, step) else step
            self.gauges = [
                of_flops("MFU", "model_flops", work, device, asked["dtype"], 1),
                of_flops("HFU", "hardware_flops", work, device, asked["dtype"], 1),
            ]
        except (ValueError, TypeError, RuntimeError, LookupError) as error:
            self.no_share = f"no MFU: {' '.join(str(error).split())}"

    def _work(self) -> Any:
        assert self.agreed is not None
        return self.agreed.report.under(self.asked["convention"])

    # The clock.

    def _tick(self, now: float) -> None:
        """A step after the counted ones is over."""
        due = now >= self._due
        if self.step == self._next_wait:
            self._next_wait = self._base + 2 * (self.step - self._base)
        elif not due and not self._no_waiting:
            return
        if not self._no_waiting:
            self._wait()
            now = time.perf_counter()
        self._mark, self._marked = now, self.step
        if due:
            self._line()

    def _line(self) -> None:
        """A line on the steps since the last one."""
        steps = self._marked - self._since_step
        seconds = (self._mark - self._since) / steps
        self.seconds.append(seconds)
        self._since, self._since_step, self._due = self._mark, self._marked, self._mark + self.asked["every"]
        rates = self.rates(seconds)
        self.tell("steps", {"step": self.step, "steps": steps, **rates}, f"step {self.step:,}: {self.shown(rates)}")

    def rates(self, seconds: float) -> dict[str, Any]:
        """What a step of so many seconds means; what is not known is left out."""
        found: dict[str, Any] = {"seconds": seconds}
        if self.agreed is None:
            return found
        if not self.agreed.report.uncounted:
            work = self._facts
            found["model_flops_per_s"] = work["model_flops"] / seconds
            found["hardware_flops_per_s"] = work["hardware_flops"] / seconds
        for gauge in self.gauges:
            try:
                found[gauge.name.lower()] = float(gauge.share(seconds))
            except ValueError as error:
                if not self._impossible:
                    self._impossible = True
                    self.notes.append(str(error).partition(" Usual causes")[0])
                    self.say(self.notes[-1])
        if self.tokens is not None:
            found["tokens_per_s"] = self.tokens / seconds
        elif self.samples is not None:
            found["samples_per_s"] = self.samples / seconds
        return found

    def shown(self, rates: dict[str, Any]) -> str:
        """Rates in words."""
        parts = [f"{units.seconds(rates['seconds'])} a step"]
        if "model_flops_per_s" in rates:
            parts.append(units.si(rates["model_flops_per_s"], "FLOP/s"))
        parts += [f"{name.upper()} {units.percent(rates[name])}" for name in ("mfu", "hfu") if name in rates]
        parts += [
            f"{_short(rates[f'{item}_per_s'])} {item}/s" for item in ("tokens", "samples") if f"{item}_per_s" in rates
        ]
        return ", ".join(parts)

    @property
    def marked(self) -> int:
        """Steps that were timed, up to the last time when the device was waited for."""
        return self._marked - self._base

    @property
    def mean_seconds(self) -> float:
        """Seconds of a step, the mean over them."""
        return (self._mark - self._began) / self.marked

    @property
    def _facts(self) -> dict[str, Any]:
        if self.agreed is None:
            return {}
        if getattr(self, "_kept", (None,))[0] is not self.agreed:
            self._kept = (self.agreed, self.agreed.facts())
        return self._kept[1]

    @property
    def tokens(self) -> int | None:
        """Tokens of a step; None where they are not known, or counted steps had others."""
        return self._same(lambda step: step.tokens)

    @property
    def samples(self) -> int | None:
        """Samples of a step, likewise."""
        return self._same(lambda step: step.samples)

    def _same(self, of: Callable[[WatchedStep], int | None]) -> int | None:
        """What all counted steps of these FLOPs had."""
        if self.agreed is None:
            return None
        flops = self.agreed.report.model_flops
        found = {of(each) for each in self.watched if each.report.model_flops == flops}
        return found.pop() if len(found) == 1 else None

    def _wait(self) -> None:
        """Until the device has done what it was given."""
        torch = sys.modules["torch"]
        part: Any = getattr(torch, self.device_type, None)
        if self.device_type == "cpu" or not hasattr(part, "synchronize"):
            return
        if self.device_type == "cuda" and torch.cuda.is_current_stream_capturing():
            return
        part.synchronize()

    # What is said.

    def _about_counting(self) -> dict[str, Any]:
        found: dict[str, Any] = {"step": self.step, "counted": len(self.watched)}
        if self.agreed is None:
            return {**found, "why_not": self.why_not}
        found |= self._facts | {"tokens": self.tokens, "samples": self.samples, "models": self.agreed.models}
        return {**found, "no_mfu": self.no_share} if self.no_share else found

    def _said_of_counting(self) -> str:
        if self.agreed is None:
            return self.why_not
        facts, steps = self._facts, [self._first_counted + place for place in range(len(self.watched))]
        what = (
            ", ".join(each["class"].rpartition(".")[2] for each in self.agreed.models if each["trained"]) or "no module"
        )
        said = (
            f"steps {' and '.join(map(str, steps)) if len(steps) == 2 else ', '.join(map(str, steps))} counted ({what}): "
            f"{units.si(facts['model_flops'], 'FLOPs')} of the model, {units.si(facts['hardware_flops'], 'FLOPs')} executed a step "
            f"[{facts['convention']}]"
        )
        if self.world > 1:
            said += f", rank {self.rank}'s of {self.world}"
        if self.no_share:
            return f"{said}; {self.no_share}"
        return f"{said}; MFU and HFU are shares of {self.gauges[0].of()}"

    def tell(self, event: str, facts: dict[str, Any], line: str) -> None:
        """A line on the terminal, or in the file of JSON lines."""
        if self.rank:
            return
        if self.asked["json"] is None:
            self.say(line)
            return
        about = {"event": event, "time": time.time(), "pid": os.getpid(), "rank": self.rank, **facts}
        with Path(self.asked["json"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(about, ensure_ascii=False, default=float) + "\n")

    def say(self, text: str) -> None:
        """A line on standard error, of rank 0."""
        if not self.rank and sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # closed by the program, or by who read it
                print(f"flopkit: {text}", file=sys.stderr, flush=True)

    def _leave_for_the_others(self) -> None:
        facts = {"rank": self.rank, **{name: self._facts.get(name) for name in ("model_flops", "hardware_flops")}}
        with contextlib.suppress(OSError):  # the command may have ended before this process
            (Path(self._folder) / f"{os.getpid()}.json").write_text(json.dumps(facts, default=float), "utf-8")

    def of_the_others(self) -> list[dict[str, Any]]:
        """What the processes of this machine have counted, rank by rank."""
        found = [json.loads(path.read_text("utf-8")) for path in Path(self._folder).glob("*.json")]
        return sorted(found, key=lambda each: each["rank"])

    def end(self) -> None:
        """The process ends: the last line, and the passport."""
        if self._ended:
            return
        self._ended = True
        for each in self.watched:
            if each.open and each.pid == os.getpid():
                each.stop()
        if self.phase in ("warming up", "counting"):
            self._ended_early()
        if self.rank:
            return
        if self.agreed is not None and not self.asked["uncompiled"] and has_compiled():
            self.notes.append("compiled functions ran after the counted steps: they are taken to do the same")
        from flopkit.integrations import passports

        passport = passports.of(self)
        said = passports.line(self, passport)
        self.tell("end", passport, said)
        if self.asked["json"] is not None:
            self.say(said)
        if self.asked["passport"] is not None:
            passports.write(self._name_of_passport(), passport)

    def _ended_early(self) -> None:
        made, wanted = max(self.step, self.most), self.asked["steps"]
        if self.phase == "counting" and len(self.watched) > 1:  # one was counted, there was none to compare it with
            self.watched = self.watched[:1]
            self.agreed, self.step = self.watched[0], self.step
            self.notes.append("a single step was counted: there was no other to compare it with")
            self._decided()
            return
        self.phase = "off"
        few = f"the program made {units.count(made, 'optimiser steps')}, and the first that is counted is step {wanted}"
        self.why_not = f"not counted: {few}" + ("; --steps 2 counts the second" if made >= 2 else "")
        self._leave_for_the_others()

    def _name_of_passport(self) -> str:
        name = str(self.asked["passport"])
        try:
            (Path(self._folder) / "passport").open("x").close()
        except FileExistsError:  # of another process of this command
            return f"{name}-{os.getpid()}"
        except OSError:  # the command has ended before this process
            return name
        return name

    def off(self) -> None:
        """In a process that was forked off: nothing is counted there."""
        self.phase, self.quick, self._ended = "off", _nothing, True
        for each in self.watched:
            each.stop()


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


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.4g}"


def _nothing() -> None:
    """No optimiser."""


def _is_in(frame: Any, inner: Any) -> bool:
    """Whether *inner* was called from *frame*."""
    while inner is not None:
        if inner is frame:
            return True
        inner = inner.f_back
    return False


def _rank() -> tuple[int, int]:
    """This process among those of the job."""
    if "RANK" in os.environ and os.environ["RANK"].isdigit():
        return int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", "1"))
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _at_the_end_of_a_child(end: Callable[[], None]) -> None:
    """A process that multiprocessing has started may end without Python's usual end."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, end, exitpriority=0)


def _forked(attachment: Attachment | None, pid: int, forget: Callable[[], None] | None) -> None:
    if attachment is not None and os.getpid() != pid:
        attachment.off()
        if forget is not None:
            forget()
