"""A layout whose degrees a reader moves, and the ranks of its pipeline, as the functions of `flopkit.parallel` read them.

Ranks of a pipeline are of four sorts, in this order: the first, those with a layer more, those without, the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flopkit.arithmetic import maximum, where
from flopkit.charts.readings import pick
from flopkit.parallel import plans
from flopkit.parallel.ranks import Rank

__all__ = ["PARTS", "POLICIES", "SORTS", "Asked", "Degrees", "by_policy", "opening_of", "ranks_of"]

POLICIES = ("none", "selective", "full")
PARTS = ("arithmetic", "recompute", "tensor", "pipeline", "bubble", "data")
ONCE = ("bubble", "data")  # of a step, the other parts of each micro-batch
SORTS = ("first", "more", "less", "last")


class Degrees(NamedTuple):
    """A layout as the functions of `flopkit.parallel` read it."""

    tensor: Any
    pipeline: Any
    data: Any
    zero: Any
    virtual: Any
    micro_batch: Any
    recompute: str = "none"
    context: Any = 1
    expert: Any = 1
    sequence: bool = True
    order: str = "1f1b"
    regather: str = "all"


class Asked(NamedTuple):
    """What `a_step` is asked beside numbers and degrees.

    *link* and *network* of a device, *peak* and *room* are those of a cluster; *state*: bytes of a parameter's weight, gradient and optimiser; *gathered*:
    bytes of whole layers with ZeRO-3; *hides*: 1 for what runs beside arithmetic, by axis; *parts*: the parts of a step that there can be; *kinds*: the
    layers of each kind of a rank, from its sort (or ``"opening"``, see `opening_of`) and all its layers; *fused*: above 0 without outputs of norms and activations, None: with them; *sends*: whether bytes
    and seconds of each axis are asked for, too.
    """

    link: Any
    network: Any
    peak: Any
    room: Any
    batch: Any
    recompute: Any
    hides: Mapping[str, Any]
    state: tuple[Any, Any, Any]
    gathered: Any
    fused: Any = None
    parts: tuple[str, ...] = PARTS
    sends: bool = False
    kinds: Callable[[str, Any], tuple[Any, ...]] = lambda sort, layers: (layers,)

    @property
    def of_micro_batch(self) -> tuple[str, ...]:
        """The parts of each micro-batch."""
        return tuple(name for name in self.parts if name not in ONCE)

    @property
    def axes(self) -> tuple[str, ...]:
        """Those along which ranks exchange something in each micro-batch."""
        return tuple(name for name in self.parts if name in plans.AXES)


def ranks_of(s: Any, layers: Any, degrees: Degrees, asked: Asked) -> dict[str, tuple[Rank, Any]]:
    """Of each sort a rank, and how many there are; set the layers of each as ``layers_first`` and so on.

    Layers are divided as in `flopkit.parallel.ranks.stages`: into equal parts; with the first and the last part one fewer; or into parts that differ by
    one, of which the first and the last have the fewer where that is possible.
    """
    pipeline, virtual = degrees.pipeline, degrees.virtual
    stages, between = pipeline * virtual, maximum(pipeline - 2, 0)
    rest = layers % pipeline
    base = (layers - rest) / pipeline
    s.each_layers = where(layers % stages == 0, 0, where((layers + 2) % stages == 0, 1, 2))  # which of the three
    whole, wide, fits_between = layers / pipeline, (layers + 2) / pipeline, rest < pipeline - 1
    ends = where(s.each_layers == 0, whole, wide - 1)
    s.layers_first = where(s.each_layers < 2, ends, where(fits_between, base, base + 1))
    s.layers_more = where(s.each_layers == 0, whole, where(s.each_layers == 1, wide, base + 1))
    s.layers_less = 1 * base
    s.layers_last = where(s.each_layers < 2, ends, base)
    s.count_more = where(s.each_layers < 2, between, where(fits_between, rest, between))
    s.count_less = where(s.each_layers < 2, 0, where(fits_between, between - rest, 0))
    s.alone = where(pipeline > 1, 0, 1)
    counts = {"first": 1, "more": s.count_more, "less": s.count_less, "last": 1 - s.alone}
    ends_of: dict[str, Any] = {"first": (1, s.alone), "more": (0, 0), "less": (0, 0), "last": (0, 1)}
    kinds = {sort: asked.kinds(sort, getattr(s, f"layers_{sort}")) for sort in SORTS}
    return {sort: (Rank(kinds[sort], *ends_of[sort]), counts[sort]) for sort in SORTS}


def opening_of(s: Any, degrees: Degrees, asked: Asked) -> Rank:
    """The first virtual stage of the first rank, or all of it where it has one; `ranks_of` comes before it. Set its layers, ``layers_opening``."""
    # where the ends have one layer fewer, the first of equal stages has
    share = where(s.each_layers == 1, (s.layers_first + 1) / degrees.virtual - 1, s.layers_first / degrees.virtual)
    s.layers_opening = 1 * share
    ends: Any = (1, 0)
    return Rank(asked.kinds("opening", s.layers_opening), *ends)


def by_policy(recompute: Any, degrees: Degrees, ask: Any) -> Any:
    """What *ask* says of a layout with the chosen recompute policy."""
    return pick(recompute, {policy: ask(degrees._replace(recompute=policy)) for policy in POLICIES})
