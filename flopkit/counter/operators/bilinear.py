"""Products of three: what `torch.nn.Bilinear` runs."""

from __future__ import annotations

from math import prod
from typing import Any

from flopkit.counter.calls import Call
from flopkit.counter.registry import explains
from flopkit.counter.work import Work, counted
from flopkit.macs import of_numbers

__all__: list[str] = []


@explains("aten::_trilinear")
def trilinear(call: Call) -> Work:
    """A product of three tensors, summed over some dimensions: a multiply-add for each point of the space they span.

    ``y[n, o] = Σ_ij x1[n, i]·w[o, i, j]·x2[n, j]`` is 2·N·out·in1·in2 FLOPs, and each of its three gradients is as many, since all
    span the same space. torch takes it in two steps, of which one spans that space; what the other does (the dot product with
    x2) is element-wise work here, two FLOPs where it sums and one where it only multiplies.
    """
    sides = [_sizes(call[f"i{n}"], call[f"expand{n}"]) for n in (1, 2, 3)]
    # equivalent: 0 -> 1 (all sides have as many dimensions)
    every = range(len(sides[0]))
    summed = set(call["sumdim"])
    space = {d: max(side[d] for side in sides) if all(side[d] for side in sides) else 0 for d in every}
    first = [d for d in every if not (_missing(call, 1, d) and _missing(call, 2, d))]
    early = {d for d in summed if _missing(call, 3, d)}
    second = [d for d in every if (d in first and d not in early) or not _missing(call, 3, d)]
    steps = [
        (prod(space[d] for d in first), bool(early)),
        (prod(space[d] for d in second), bool(summed - early)),
    ]
    whole = prod(space.values())
    rest = [points * (2 if sums else 1) for points, sums in steps]
    # The step that spans the whole space is the contraction; which one that is depends on who is differentiated.
    main = next((i for i in (1, 0) if steps[i][0] == whole and steps[i][1]), None)
    vector = sum(work for i, work in enumerate(rest) if i != main)
    return counted(of_numbers(whole, call["i1"].dtype.is_complex), call.bytes(), vector=vector)


def _sizes(tensor: Any, expanded: Any) -> list[int]:
    """The sizes of *tensor* with the dimensions put in that it lacks."""
    sizes = list(map(int, tensor.shape))
    for d in sorted(expanded):
        sizes.insert(d, 1)
    return sizes


def _missing(call: Call, side: int, d: int) -> bool:
    return d in call[f"expand{side}"]
