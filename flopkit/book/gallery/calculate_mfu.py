"""What is my MFU, and why is theirs different? FLOPs of a training token as seven conventions count them, at a throughput that is given.

Controls beside those of `any_model`: ``length``, tokens of a sequence (128 to 1,048,576; 8,192); ``device`` (`device_choice`); ``count``, devices
(1 to 16,384; 8); ``rate``, training tokens/s in all (64 to 16,777,216; 51,000 for Llama-3-8B); ``recompute`` (of `POLICIES`).

Results: ``a_token`` and ``executed``, FLOPs of a training token, forward and backward, under EXACT, without and with what is computed again;
``a_second``, FLOP/s of a device; ``mfu`` and ``hfu``, shares; ``possible``: ``"below the peak"``, ``"above the peak"`` or ``"no"``, above what
the device can do; ``no_mfu``, in the last case why there is no MFU, or ""; ``mfu_answer``, a sentence with names of results in braces; ``count_0`` to ``count_6``, FLOPs of a training token under each of `COUNTS`; ``end``, where the axis ends. `one_convention`
makes a bar: ``flops``, ``against`` (by EXACT), ``drawn``, ``share`` (its MFU) and ``no_share``, that there is none, or "".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from flopkit import conventions
from flopkit.arithmetic import maximum, minimum, where
from flopkit.book.gallery.any_model import idle, model_of, refuse, sizes
from flopkit.charts.readings import pick

__all__ = ["COUNTS", "PASSES", "one_convention", "utilisation"]

PASSES = 3  # the products of a training step: one forward pass, and twice as much to go back
COUNTS = {  # a row of the chart each: the convention, and what it is called there
    "EXACT: visible pairs": conventions.EXACT,
    "TORCH: all pairs": conventions.TORCH,
    "MEGATRON: half the pairs": conventions.MEGATRON,
    "PALM: 6N + all pairs": conventions.PALM,
    "6N, active experts": conventions.SIX_N_ACTIVE,
    "6N, all parameters": conventions.SIX_N,
    "KAPLAN: no embeddings": conventions.KAPLAN,
}
BELOW = "Your MFU is {mfu} under EXACT. With recomputed work, your HFU is {hfu}."
ABOVE = BELOW + " No run gets there: the rate is above the peak. Check the tokens/s, the devices and the number format."
TOO_FAST = "This model has no MFU at {rate} tokens/s: {count} × {device} cannot reach that rate. Set the rate of your own run with it."
LONGEST = 2  # of the bars that are drawn whole, in training tokens as EXACT counts them


def utilisation(s: Any, **c: Any) -> None:
    """MFU and HFU of a throughput, whether it is possible, and FLOPs of a token under seven conventions."""
    length, device, count = c["length"], c["device"], c["count"]
    n = sizes(s, c, length)
    refuse(s, c, "length")
    idle(s, c, length)
    _work(s, n, length)
    work = {kind: getattr(s, f"macs_{kind}") for kind in conventions.KINDS}
    for i, convention in enumerate(COUNTS.values()):
        setattr(s, f"count_{i}", PASSES * convention.flops(work) / length)
    s.a_token = 1 * s.count_0
    again = pick(c["recompute"], {"none": 0, "selective": s.selective, "full": s.full})
    s.executed = s.a_token + (again + s.flash) / length
    s.a_second = s.a_token * c["rate"] / count
    s.mfu, s.hfu = s.a_second / device.peak, s.executed * c["rate"] / count / device.peak
    s.possible = where(
        s.a_second > device.limit, "no", where(s.a_second > device.peak, "above the peak", "below the peak")
    )
    s.no_mfu = where(s.a_second > device.limit, "none: impossible rate", "")
    s.mfu_answer = where(s.a_second > device.limit, TOO_FAST, where(s.a_second > device.peak, ABOVE, BELOW))
    # of the axis: a bar that is far longer than the others ends there, with an arrow at its number
    s.end = minimum(reduce(maximum, [getattr(s, f"count_{i}") for i in range(len(COUNTS))]), LONGEST * s.a_token)


def _work(s: Any, n: Mapping[str, Any], length: Any) -> None:
    """Multiply-adds of a forward pass over one sequence by kind, and FLOPs that are computed again."""
    model = model_of(n)
    selective, full = (model.train_step(seq=length, recompute=policy) for policy in ("selective", "full"))
    found = full.forward.macs_by_kind
    for kind in conventions.KINDS:
        more = length * s.more_norms if kind == "vectors" else 0
        setattr(s, f"macs_{kind}", found.get(kind, 0) + more)
    s.selective, s.full, s.flash = selective.checkpointed.flops, full.checkpointed.flops, full.scores_again.flops


def one_convention(r: Any, *, name: Any, rate: Any, count: Any, device: Any, **_: Any) -> None:
    """A bar: the FLOPs of a training token as one convention counts them, and the MFU that it gives."""
    r.flops = pick(name, {label: getattr(r, f"count_{i}") for i, label in enumerate(COUNTS)})
    r.against = r.flops / r.a_token
    r.drawn = minimum(r.flops, r.end)
    r.share = r.flops * rate / count / device.peak
    r.no_share = where(r.a_second > device.limit, "none", "")
