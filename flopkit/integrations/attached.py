"""A training program that knows nothing of flopkit: its optimiser steps seen, two or more counted, all timed. See ``python -m flopkit run``."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from flopkit import units
from flopkit.integrations.chosen_loop import ChosenLoop, no_optimizer
from flopkit.integrations.ranks_of_a_run import RankOfRun, at_the_end_of_a_child
from flopkit.integrations.step_clock import StepClock
from flopkit.integrations.step_rates import StepRates, in_words
from flopkit.integrations.watched_steps import WatchedStep, cannot_begin, differences, has_compiled, shown_cycle

__all__ = ["Attachment"]

_AT_MOST = 9  # steps that are counted, where the first two do not do the same


class Attachment:
    """Sees the optimiser steps of this process, counts the first of them and times all that follow.

    A step is what runs from the end of one step of an optimiser to the end of its next: the micro-batches that it gathers, and the steps of
    other optimisers. Where there are several, it is the one that steps least often.

    Notes
    -----
    Two counted steps that do the same stand for all. Where they differ, up to nine are counted, and a cycle that shows three times in them
    stands for all; else the FLOPs of a step are not known. From then on nothing of the counter is left: a step costs two calls of a hook.
    """

    def __init__(self, asked: dict[str, Any], folder: str, forget: Callable[[], None] | None = None) -> None:
        self.asked = asked
        self._inside = threading.local()
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._loop = ChosenLoop(warm_up=asked["steps"] - 1)
        # The leader, where its steps are timed and never inside of others'.
        self.quick: Callable[[], Any] = no_optimizer
        self._is_compiling = sys.modules["torch"].compiler.is_compiling
        self._nested = self._ended = self._impossible = False
        self.notes: list[str] = []
        self.device_type = "cpu"
        self.optimizer: str | None = None
        self._begin_anew()
        self.process = RankOfRun(folder, asked["json"])
        at_the_end_of_a_child(self.end)
        if hasattr(os, "register_at_fork"):
            me, pid = weakref.ref(self), os.getpid()
            os.register_at_fork(after_in_child=lambda: _forked(me(), pid, forget))

    def _begin_anew(self) -> None:
        """Nothing is known of the loop."""
        self.phase = "warming up"
        self.step = 0  # of the optimiser whose steps these are
        self.watched: list[WatchedStep] = []
        self.cycle: list[WatchedStep] = []  # the counted steps that all others repeat
        self.step_rates: StepRates | None = None
        self.why_not = ""  # there are no FLOPs
        self._first_counted = 0
        self.clock = StepClock(self.asked["every"])

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
            clock = self.clock
            if clock.no_waiting:
                clock.mark, clock.marked_step = now, self.step
            if now < clock.due and self.step != clock.next_wait:
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
            self.phase, self.quick = "off", no_optimizer
            self.why_not = self.why_not or f"{type(error).__name__}: {error}"
            self.process.say(f"nothing more is counted: {self.why_not}")

    def _stack(self) -> list[Any]:
        stack: list[Any] = self._inside.__dict__.setdefault("stack", [])
        return stack

    def _stepped(self, optimizer: Any, now: float) -> None:
        leader = self._loop.leader()
        if optimizer is leader:
            self.step += self.quick is no_optimizer  # else it was counted before
            if self.phase == "timing":
                self._tick(now)
            else:
                self._counted()
        elif leader is None or not self._loop.holds(optimizer):  # another loop, or one that no counted step held
            if self.phase != "warming up":
                self._leave_the_loop()
            if self._loop.warm(optimizer):
                self._chosen(optimizer)

    # Which step it is, and what it does.

    def _chosen(self, optimizer: Any) -> None:
        """Its steps are those of the loop."""
        self.step = self._loop.steps_of(optimizer)
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
        """A counted step is over: is it known now what a step does?"""
        step = self.watched[-1]
        if threading.get_ident() != step.thread:  # the counter is on that thread
            return
        step.stop()
        self.cycle = shown_cycle(self.watched)
        if not self.cycle and len(self.watched) < _AT_MOST:
            self._begin()
            return
        told = differences(self.watched, self.first_counted) if len(self.watched) > 2 else ""
        if not self.cycle:
            self.why_not = f"not counted: {told}"
        elif told:
            mean = f"the last {len(self.cycle)} of them repeat, and their mean stands"
            same = mean if len(self.cycle) > 1 else "the last one stands"
            self.notes.append(f"the counted steps are not all the same, {same} for all others: {told}")
        self._decided()

    @property
    def first_counted(self) -> int:
        """The number of the first counted step."""
        return self.step - len(self.watched) + 1 if self.phase == "counting" else self._first_counted

    def _decided(self) -> None:
        """What a step does is known, or that it will not be: from here on only the clock runs."""
        self._first_counted = self.first_counted
        self.process.look()
        if self.cycle:
            self.step_rates = StepRates(self.watched, self.cycle, self.asked, self.device_type)
            self.notes += self.step_rates.notes
        self.phase = "timing"
        self.process.leave({} if self.step_rates is None else self.step_rates.facts)
        self.process.tell("counted", self._about_counting(), self._said_of_counting())
        self.clock.start(self.step, self.device_type)
        self.quick = no_optimizer if self._nested else self._loop.leader

    def _leave_the_loop(self) -> None:
        """The optimiser is gone, or another one steps that was not there when it was chosen."""
        steps = f"the first {units.count(self.step, 'steps')} of {self.optimizer or 'an optimiser'}"
        why = f"{steps}, which is gone," if self._loop.leader() is None else f"another optimiser began to step: {steps}"
        self.notes.append(f"{why} are not in these numbers")
        for each in self.watched:
            each.stop()
        self._loop.leave()
        self.quick = no_optimizer
        self._begin_anew()

    # What the time means, and what is said.

    def _tick(self, now: float) -> None:
        """A step after the counted ones is over."""
        if (line := self.clock.tick(self.step, now)) is not None:
            rates = self.rates(line["seconds"])
            about = {"step": self.step, "steps": line["steps"], **rates}
            self.process.tell("steps", about, f"step {self.step:,}: {in_words(rates)}")

    def rates(self, seconds: float) -> dict[str, Any]:
        """What a step of so many seconds means; what is not known is left out, and what is impossible is said once."""
        if self.step_rates is None:
            return {"seconds": seconds}
        found, impossible = self.step_rates.of(seconds)
        if impossible and not self._impossible:
            self._impossible = True
            self.notes.append(impossible[0])
            self.process.say(impossible[0])
        return found

    @property
    def no_share(self) -> str:
        """Why there is no MFU; empty where there is one, or no FLOPs."""
        return "" if self.step_rates is None else self.step_rates.no_share

    @property
    def steps_seen(self) -> int:
        """Steps of the loop, or of the busiest optimiser before it was known."""
        return self.step or self._loop.most

    @property
    def models(self) -> list[dict[str, Any]]:
        """The models that a step called; none where its FLOPs are not known."""
        return self.cycle[-1].models if self.cycle else []

    def _about_counting(self) -> dict[str, Any]:
        found: dict[str, Any] = {"step": self.step, "counted": len(self.watched)}
        if self.step_rates is None:
            return {**found, "why_not": self.why_not}
        about = self.step_rates
        found |= about.facts | {"tokens": about.tokens, "samples": about.samples, "models": self.models}
        return {**found, "no_mfu": about.no_share} if about.no_share else found

    def _said_of_counting(self) -> str:
        if self.step_rates is None:
            return self.why_not
        facts, steps = self.step_rates.facts, [self._first_counted + place for place in range(len(self.watched))]
        what = ", ".join(each["class"].rpartition(".")[2] for each in self.models if each["trained"]) or "no module"
        said = (
            f"steps {' and '.join(map(str, steps)) if len(steps) == 2 else ', '.join(map(str, steps))} counted ({what}): "
            f"{units.si(facts['model_flops'], 'FLOPs')} of the model, {units.si(facts['hardware_flops'], 'FLOPs')} executed a step"
            f"{self._standing()} [{facts['convention']}]"
        )
        if self.process.world > 1:
            said += f", rank {self.process.rank}'s of {self.process.world}"
        if self.no_share:
            return f"{said}; {self.no_share}"
        return f"{said}; MFU and HFU are shares of {self.step_rates.gauges[0].of()}"

    def _standing(self) -> str:
        """Which of the counted steps stand for all others, where they are not all the same."""
        if len(self.watched) < 3:
            return ""
        return f", the mean of the last {len(self.cycle)}" if len(self.cycle) > 1 else ", those of the last one"

    # The end.

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
        if self.process.rank:
            return
        if self.cycle and not self.asked["uncompiled"] and has_compiled():
            self.notes.append("compiled functions ran after the counted steps: they are taken to do the same")
        from flopkit.integrations import passports

        passport = passports.of(self)
        said = passports.line(self, passport)
        self.process.tell("end", passport, said)
        if self.asked["json"] is not None:
            self.process.say(said)
        if self.asked["passport"] is not None:
            passports.write(self.process.own(str(self.asked["passport"])), passport)

    def _ended_early(self) -> None:
        if self.phase == "counting" and len(self.watched) > 1:  # the last of them is not over
            self.watched = self.watched[:-1]
            if len(self.watched) == 1:
                self.cycle = [*self.watched]
                self.notes.append("a single step was counted: there was no other to compare it with")
            else:
                self.why_not = f"not counted: {differences(self.watched, self.first_counted)}"
            self._decided()
            return
        self.phase, made, wanted = "off", self.steps_seen, self.asked["steps"]
        few = f"the program made {units.count(made, 'optimiser steps')}, and the first that is counted is step {wanted}"
        self.why_not = f"not counted: {few}" + ("; --steps 2 counts the second" if made >= 2 else "")
        self.process.leave({})

    def off(self) -> None:
        """In a process that was forked off: nothing is counted there."""
        self.phase, self.quick, self._ended = "off", no_optimizer, True
        for each in self.watched:
            each.stop()


def _is_in(frame: Any, inner: Any) -> bool:
    """Whether *inner* was called from *frame*."""
    while inner is not None and inner is not frame:
        inner = inner.f_back
    return inner is not None


def _forked(attachment: Attachment | None, pid: int, forget: Callable[[], None] | None) -> None:
    if attachment is not None and os.getpid() != pid:
        attachment.off()
        if forget is not None:
            forget()
