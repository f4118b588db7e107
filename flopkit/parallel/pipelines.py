"""Pipelines: how long stages wait for each other, and how many micro-batches each of them holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias

from flopkit import units
from flopkit.arithmetic import Number, maximum, minimum, reading, reduced, where
from flopkit.sizes import Factor, Size, choice, factor, size
from flopkit.tables import Table

__all__ = ["SCHEDULES", "Pipeline", "Work", "in_stages", "of_each_stage", "pipeline"]

Schedule: TypeAlias = Literal["gpipe", "1f1b", "interleaved", "interleaved-zero-bubble", "dualpipe"]

SCHEDULES: dict[str, str] = {
    "gpipe": "all forward passes, then all backward passes",
    "1f1b": "one forward, one backward: as soon as a stage can go back, it does",
    "interleaved": "each rank has several virtual stages, which do not follow each other (Narayanan 2021)",
    "interleaved-zero-bubble": "the same; gradients of weights wait until there is nothing else to do (Qi 2023)",
    "dualpipe": "micro-batches enter at both ends; each rank holds two stages (DeepSeek-V3)",
}
"""The orders in which a rank works off its micro-batches."""

_SEVERAL = ("interleaved", "interleaved-zero-bubble")


class Work(NamedTuple):
    """A piece of work in a timeline: on which rank, of which micro-batch and stage, ``"forward"`` or ``"backward"``, from when to when."""

    rank: int
    micro_batch: int
    stage: int
    kind: str
    start: Any
    end: Any


@dataclass(frozen=True, repr=False)
class Pipeline:
    """A step of training through a pipeline of equal stages.

    ``ideal`` is the time in which every rank works, ``bubble`` the time in which the last one to finish does not; both have the unit of
    ``forward`` and ``backward``, the times of one micro-batch on all virtual stages of a rank.
    """

    stages: Number
    micro_batches: Number
    virtual: Number
    schedule: str
    forward: Number
    backward: Number
    bubble: Number

    @property
    def ideal(self) -> Number:
        """``m·(F + B)``."""
        return self.micro_batches * (self.forward + self.backward)

    @property
    def total(self) -> Number:
        """Of the whole step: ``ideal + bubble``."""
        return self.ideal + self.bubble

    @property
    def share(self) -> Number:
        """The bubble's share of the whole step: (p−1)/(v·m + p−1) with ``"1f1b"`` or ``"interleaved"``."""
        return _over(self.bubble, self.total)

    @property
    def share_of_ideal(self) -> Number:
        """The bubble by the time of the work: (p−1)/(v·m), as papers print it."""
        return _over(self.bubble, self.ideal)

    def in_flight(self, rank: int = 0) -> Number:
        """The most micro-batches whose activations *rank* holds at once, in those of all its stages.

        >>> four = pipeline(stages=4, micro_batches=16)
        >>> [four.in_flight(rank) for rank in range(4)]
        [4, 3, 2, 1]
        """
        p, m, v = self._whole("in_flight")
        if not 0 <= rank < p:
            raise ValueError(f"rank={rank}: the pipeline has ranks 0 to {p - 1}")
        if self.schedule == "gpipe":
            return m
        if self.schedule in ("1f1b", "interleaved"):
            return reduced(Fraction(in_stages(p, m, v, rank), v))
        if self.schedule == "dualpipe":
            return p + 1
        return min(p, m)

    @property
    def sends(self) -> Number:
        """Messages of a rank in the middle: to the next stage and back, of each micro-batch and stage."""
        return 2 * self.micro_batches * self.virtual

    def timeline(self) -> list[Work]:
        """What each rank does when, by working the schedule off: nothing is sent before it is made, and a message takes no time.

        Raises
        ------
        ValueError
            For a schedule whose order is not written out here (``"interleaved-zero-bubble"``, ``"dualpipe"``).

        Examples
        --------
        >>> two = pipeline(stages=2, micro_batches=2, forward=1, backward=2)
        >>> max(work.end for work in two.timeline()) == two.total == 9
        True
        """
        p, m, v = self._whole("timeline")
        if self.schedule not in _ORDERS:
            raise ValueError(
                f"schedule={self.schedule!r}: its order is not written out here; there is one for {', '.join(_ORDERS)}"
            )
        orders = [list(_ORDERS[self.schedule](p, m, v, rank)) for rank in range(p)]
        length = {
            kind: reduced(Fraction(time) / v) for kind, time in (("forward", self.forward), ("backward", self.backward))
        }
        return _worked_off(orders, p, v, length)

    def table(self) -> Table:
        """One row: schedule, ranks, micro-batches, virtual stages, bubble and its two shares, micro-batches in flight on the first rank."""
        row = {
            "schedule": self.schedule, "ranks": self.stages, "micro-batches": self.micro_batches, "virtual stages": self.virtual,
            "bubble by the work": self.share_of_ideal, "bubble in the step": self.share, "in flight on the first": self.in_flight(),
        }  # fmt: skip
        return Table(
            [row], formats=dict.fromkeys(("bubble by the work", "bubble in the step"), lambda v: units.percent(v))
        )

    def _whole(self, name: str) -> tuple[int, int, int]:
        numbers = (self.stages, self.micro_batches, self.virtual)
        if not all(isinstance(each, int) for each in numbers):
            raise TypeError(f"{name} works off one schedule: give ints for stages, micro_batches and virtual")
        return numbers

    def __repr__(self) -> str:
        if reading(self.share) != "plain":
            return f"{self.schedule}, {self.stages} ranks, {self.micro_batches} micro-batches"
        bubble = f"{100 * float(self.share):.3g} % of the step is bubble"
        more = f", {self.virtual} virtual stages each" if self.virtual != 1 else ""
        return f"{self.schedule}, {self.stages} ranks{more}, {self.micro_batches} micro-batches: {bubble}"


def in_stages(p: Number, m: Number, v: Number, rank: Number) -> Number:
    """The most activations of a stage that a rank holds at once with 1F1B, interleaved where a rank has several virtual stages."""
    return where(v > 1, minimum(2 * (p - rank - 1) + (v - 1) * p + 1, m * v), minimum(p - rank, m))


def of_each_stage(p: int, m: int, v: int, rank: int) -> tuple[tuple[int, ...], ...]:
    """Of each of a rank's virtual stages the activations that are there when it holds most, interleaved; all that there are in turn.

    At other times it holds some of these. What it holds comes again after p·v forward passes.

    >>> of_each_stage(2, 4, 2, rank=0)
    ((3, 2), (4, 1))
    """
    most, held = in_stages(p, m, v, rank), [0] * v
    found: dict[tuple[int, ...], None] = {}
    for kind, _, stage in islice(_interleaved(p, m, v, rank), most + 2 * p * v):
        held[stage] += 1 if kind == "forward" else -1
        if sum(held) == most:
            found[tuple(held)] = None
    return tuple(found)


def pipeline(
    *, stages: Size, micro_batches: Size, virtual: Size = 1, schedule: str = "1f1b", forward: Factor = 1, backward: Factor = 2, weights: Factor | None = None,
) -> Pipeline:  # fmt: skip
    """A pipeline of *stages* ranks, and the time that its ranks wait.

    With p ranks, v stages on each, and F, B, W for the times of a forward pass, a backward pass and in it the gradients of weights, of one
    micro-batch on all virtual stages of a rank, the bubble is

    - GPipe and 1F1B: ``(p−1)·(F+B)``. 1F1B does not shrink it; it holds fewer micro-batches.
    - interleaved: ``(p−1)·(F+B)/v``.
    - interleaved zero-bubble: ``(p−1)·(F + max(B−2·W, 0))/v``.
    - DualPipe: ``(p/2−1)·(F+2·B−3·W)``, where F = B−W = W.

    Parameters
    ----------
    stages : Size
        Ranks of the pipeline, p.
    micro_batches : Size
        Those of a step on each pipeline, m.
    virtual : Size, optional
        Virtual stages of a rank, v; more than one with an interleaved schedule.
    schedule : str, optional
        ``"gpipe"``, ``"1f1b"``, ``"interleaved"``, ``"interleaved-zero-bubble"`` or ``"dualpipe"``.
    forward, backward : Factor, optional
        The times F and B, in any unit.
    weights : Factor, optional
        The part W of *backward* that makes gradients of weights. None: half of it.

    Returns
    -------
    Pipeline

    Raises
    ------
    ValueError
        For an unknown schedule; several virtual stages where the schedule has one; micro-batches that p does not divide, with an interleaved
        schedule; other times than those for which DualPipe's formula holds.

    Notes
    -----
    Stages are equal, and messages take no time. The slowest stage sets the pace of unequal ones.

    References
    ----------
    Narayanan et al. 2021, section 2.2; Qi et al. 2023; DeepSeek-V3, arXiv:2412.19437, table 2.

    Examples
    --------
    >>> pipeline(stages=16, micro_batches=16)
    1f1b, 16 ranks, 16 micro-batches: 48.4 % of the step is bubble
    >>> pipeline(stages=16, micro_batches=16, virtual=8, schedule="interleaved")
    interleaved, 16 ranks, 8 virtual stages each, 16 micro-batches: 10.5 % of the step is bubble
    """
    choice("schedule", schedule, tuple(SCHEDULES))
    p, m, v = size("stages", stages), size("micro_batches", micro_batches), size("virtual", virtual)
    F, B = factor("forward", forward), factor("backward", backward)
    W = B / 2 if weights is None else factor("weights", weights)
    plain = reading(p, m, v, F, B, W) == "plain"
    if plain:
        _check(p, m, v, F, B, W, schedule)
    bubbles = {
        "gpipe": (p - 1) * (F + B),
        "1f1b": (p - 1) * (F + B),
        "interleaved": (p - 1) * (F + B) / v,
        "interleaved-zero-bubble": (p - 1) * (F + maximum(B - 2 * W, 0)) / v,
        "dualpipe": (p / 2 - 1) * (F + 2 * B - 3 * W),
    }
    return Pipeline(p, m, v, schedule, F, B, bubbles[schedule])


def _check(p: int, m: int, v: int, F: Any, B: Any, W: Any, schedule: str) -> None:
    if v > 1 and schedule not in _SEVERAL:
        raise ValueError(
            f"virtual={v}: {schedule} has one stage on each rank; choose schedule='interleaved', or virtual=1"
        )
    if schedule in _SEVERAL and m % p:
        raise ValueError(
            f"micro_batches={m}: an interleaved schedule needs a multiple of its {p} ranks, such as {-(-m // p) * p}"
        )
    if W > B:
        raise ValueError(f"weights={W}: the gradients of weights are a part of backward={B}")
    if schedule == "dualpipe" and (p % 2 or not F == B - W == W):
        raise ValueError(
            f"schedule='dualpipe' with stages={p}, forward={F}, backward={B}, weights={W}: its formula holds for an even number of ranks and backward = 2·forward"
        )


def _over(a: Any, b: Any) -> Any:
    return Fraction(a) / Fraction(b) if isinstance(a, (int, Fraction)) and isinstance(b, (int, Fraction)) else a / b


# -- orders: pieces of work of a rank, (kind, micro-batch, which of its stages) ------------------------------------


def _gpipe(p: int, m: int, v: int, rank: int) -> Iterator[tuple[str, int, int]]:
    yield from (("forward", i, 0) for i in range(m))
    yield from (("backward", i, 0) for i in range(m))


def _interleaved(p: int, m: int, v: int, rank: int) -> Iterator[tuple[str, int, int]]:
    """Narayanan et al. 2021: p micro-batches go through a stage before the rank's next stage takes them."""
    if v == 1:
        yield from _one_forward_one_backward(p, m, v, rank)
        return
    ahead = min(2 * (p - rank - 1) + (v - 1) * p, m * v)
    back = 0
    for i in range(m * v):
        yield "forward", i // (p * v) * p + i % p, i // p % v
        if i >= ahead:
            yield "backward", back // (p * v) * p + back % p, v - 1 - back // p % v
            back += 1
    for i in range(back, m * v):
        yield "backward", i // (p * v) * p + i % p, v - 1 - i // p % v


def _one_forward_one_backward(p: int, m: int, v: int, rank: int) -> Iterator[tuple[str, int, int]]:
    ahead = min(p - rank - 1, m)
    for i in range(m):
        yield "forward", i, 0
        if i >= ahead:
            yield "backward", i - ahead, 0
    yield from (("backward", i, 0) for i in range(m - ahead, m))


_ORDERS = {"gpipe": _gpipe, "1f1b": _one_forward_one_backward, "interleaved": _interleaved}


def _worked_off(orders: list[list[tuple[str, int, int]]], p: int, v: int, length: dict[str, Any]) -> list[Work]:
    last = p * v - 1
    done: dict[tuple[str, int, int], Any] = {}
    clock: list[Any] = [0] * p
    at = [0] * p
    found: list[Work] = []
    while any(at[rank] < len(order) for rank, order in enumerate(orders)):
        moved = False
        for rank, order in enumerate(orders):
            while at[rank] < len(order):
                kind, micro_batch, chunk = order[at[rank]]
                stage = chunk * p + rank
                if kind == "forward":
                    needs = [("forward", micro_batch, stage - 1)] if stage else []
                else:
                    needs = [("forward", micro_batch, stage)]
                    needs += [("backward", micro_batch, stage + 1)] if stage < last else []
                if any(each not in done for each in needs):
                    break
                start = max([clock[rank], *(done[each] for each in needs)])
                clock[rank] = done[kind, micro_batch, stage] = start + length[kind]
                found.append(Work(rank, micro_batch, stage, kind, start, clock[rank]))
                at[rank] += 1
                moved = True
        if not moved:
            raise AssertionError("the orders wait for each other")
    return found
