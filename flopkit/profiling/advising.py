"""What could be changed in a step, and the most that it can gain: Amdahl's law over the rows of a profile, never a promise.

A rule looks at the rows, at the calls in their order or at what the device waited for, and names the rows that its change would touch.
These can save what lies above their roof, and where no roof is known all that they take, with the time that the host took before each. Of
launches, checkpoints, an optimiser's small updates and attention in pieces the bound is all that their rows take: what a fused kernel in
their place needs is not subtracted.
Rules for CUDA alone (precision, layout, sizes, synchronisation) have been tested on traces.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from flopkit import devices, units
from flopkit.counter.work import COUNTED, ELEMENTWISE, FREE
from flopkit.dtypes import format_of
from flopkit.profiling.joining import LOADING
from flopkit.profiling.matching import ATTENTION, PRODUCTS, Key, calls_of, shapes
from flopkit.profiling.rows import AT_ROOF, beats, key_of
from flopkit.rooflines import bound_by
from flopkit.tables import Table

__all__ = ["Advice", "advice"]

LEAST = 0.01  # of the step: what can gain less is not said
LAUNCHING = 0.1  # of the step: launches that take less are no matter
LONG = 1e-3  # s without an operator, in most steps: more than the way to the next
LAUNCHES = 20  # of an optimiser's step: more than fused updates make
CACHE = 2**26  # bytes of a call that a device's last cache may serve, so that its memory is no roof
WEIGHTED = ("mm", "addmm", "linear")  # products of which one factor is weights
GATHERED = ("select_backward", "slice_backward", "index_put", "index_backward")  # of a result of which a part was used


class Advice(NamedTuple):
    """One thing to change, and the most that it can save of a step, in seconds. Its rows are those of the profile that say so."""

    kind: str
    seconds: float
    change: str
    why: str
    rows: Iterable[Key]


def advice(profile: Any) -> Table:
    """`flopkit.profiling.Profile.advice`: what each rule finds, the largest bound first, then the rows that are at their roof."""
    seen, from_memory = _Seen(profile), _Seen(profile, cached=False)
    found = [(each, other.seconds) for rule in RULES for each, other in zip(rule(seen), rule(from_memory), strict=True)
             if each.seconds >= LEAST * profile.seconds]  # fmt: skip
    found.sort(key=lambda pair: -pair[0].seconds)
    touched = {key for each, _ in found for key in each.rows}
    for key, row in seen.rows.items():
        if key not in touched and (row["of_roof"] or 0.0) >= AT_ROOF and not beats(row) and row["share"] >= LEAST:
            why, left = f"at {units.percent(row['of_roof'])} of the roof", max(0.0, row["seconds"] - row["least"])
            found.append((Advice("nothing to gain here", left, "", why, [key]), left))
    rows = []
    for (kind, seconds, change, why, keys), less in found:
        ranked = sorted({key for key in keys if key in seen.rows}, key=lambda key: -seen.rows[key]["seconds"])
        named = [", ".join(filter(None, key)) for key in ranked[:3]] + [f"{len(ranked) - 3} more"] * (len(ranked) > 3)
        most, least = (units.percent(each / profile.seconds) for each in (seconds, less))
        served = f"a cache serves the bytes; else {least}" * (most != least)
        rows.append({"advice": kind, "at most": seconds / profile.seconds, "if": served, "change": change, "why": why,
                     "rows": "; ".join(named), "seconds": seconds, "keys": ranked})  # fmt: skip
    shown = ["advice", "at most", *["if"] * any(row["if"] for row in rows), "change", "why", "rows"]
    return Table(rows, caption="the most that each change can save of the step, by itself",
                 formats={"at most": lambda share: f"at most {units.percent(share)}"}, columns=shown)  # fmt: skip


class _Seen:
    """A profile as the rules ask it."""

    def __init__(self, profile: Any, cached: bool = True) -> None:
        self.cached = cached  # whether a cache serves what fits it
        self.profile, self.joined, self.steps = profile, profile.joined, len(profile.joined.steps)
        self.rows = {key_of(row): row for row in profile.rows}
        self.calls = calls_of(profile.report)
        self.device = devices.device(profile.device) if isinstance(profile.device, str) else profile.device
        late = [gap for gap in self.joined.gaps if gap.reason in ("Python", "host-bound")]
        long = Counter((gap.key, gap.after) for gap in late if gap.seconds >= LONG)
        often = {place for place, times in long.items() if 2 * times > self.steps}
        self.elsewhere = [gap for gap in late if gap.seconds >= LONG and (gap.key, gap.after) in often]
        apart = set(map(id, self.elsewhere))
        self.late = [gap for gap in late if id(gap) not in apart]  # on the way to the next operator, or out of the step

    def of_phase(self, phase: str) -> list[Key]:
        return [key for key in self.rows if key[2] == phase]

    def floor(self, key: Key) -> float:
        """The least seconds of a row's work: by arithmetic alone where a cache may serve its bytes, none where it beats its roof."""
        row = self.rows[key]
        name = "at_peak" if self.fits(row["bytes"], row["launches"]) else "least"
        return 0.0 if beats(row) else float(row[name] or 0.0)

    def fits(self, moved: Any, calls: float = 1) -> bool:
        return self.cached and (moved or 0) <= CACHE * max(1, calls)

    def gain(self, keys: Iterable[Key], least: float | None = None, host: bool = True) -> float:
        """Seconds that these rows take beyond *least*, None: their roof, where it is known; and the *host* before them and after all."""
        chosen = {key for key in keys if key in self.rows}
        floor = sum(map(self.floor, chosen)) if least is None else least
        waits = sum(gap.seconds for gap in self.late if gap.key is None or gap.key in chosen)
        took = sum(self.rows[key]["seconds"] for key in chosen) + host * waits / self.steps
        return float(min(max(0.0, took - floor), self.profile.seconds))


# -- rules: each looks for one fault ---------------------------------------------------------------------------------


def _fuse(seen: _Seen) -> Iterator[Advice]:
    """Element-wise operators on as many numbers, one after the other: fused, they read and write once."""
    import torch

    chains: list[list[Any]] = []
    last: Any = None
    for call in seen.calls:
        entry, row = call.entry, seen.rows.get(call.key)
        if entry is None or (entry.work.status == FREE and not entry.work.bytes):  # a view between them
            continue
        pointwise = entry.work.status == ELEMENTWISE and torch.Tag.pointwise in getattr(entry.func, "tags", ())
        found = shapes(entry) if pointwise and row and row["bound"] != "launch" and call.key[2] != "optimizer" else []
        size = (max(map(math.prod, found)), call.key[2]) if found else None
        if size is not None:
            chains += [[]] * (size != last)
            chains[-1].append(call)
        last = size
    if chains := [chain for chain in chains if len(chain) > 1]:
        moved = [[call.entry.work.bytes for call in chain] for chain in chains]
        keys = {call.key for chain in chains for call in chain}
        # One kernel reads what the first reads and writes what the last writes: no less than the lightest of them moves. Where formats
        # change on the way, it may be less.
        one = [min(each) if len(_formats(chain)) == 1 else 0 for each, chain in zip(moved, chains, strict=True)]
        must = sum(each for each in one if not seen.fits(each))
        has_roof = seen.device is not None and not any(beats(seen.rows[key]) for key in keys)
        why = f"{units.count(sum(map(len, chains)), 'operators')} in {units.count(len(chains), 'chains')}"
        saved = units.si(sum(map(sum, moved)) - sum(one), "B")
        yield Advice("fuse", seen.gain(keys, must / seen.device.bandwidth if has_roof else 0.0),
                     "make one kernel of these element-wise operators, by torch.compile or by hand",
                     f"{why}: fused, they move up to {saved} less", keys)  # fmt: skip


def _formats(chain: list[Any]) -> set[Any]:
    """The formats of all that a chain of operators reads."""
    import torch

    def walk(part: Any) -> set[Any]:
        if isinstance(part, torch.dtype):
            return {part}
        return set().union(*map(walk, part)) if isinstance(part, tuple) else set()

    return set().union(*(walk(call.entry.key) for call in chain))


def _batch(seen: _Seen) -> Iterator[Advice]:
    """Products below the ridge: they wait for weights, which more rows would share."""
    keys = [key for key, row in seen.rows.items() if row["bound"] == "memory" and row["flops"] and key[0] in WEIGHTED]
    if keys:
        flops, moved = (sum(seen.rows[key][name] for key in keys) for name in ("flops", "bytes"))
        least = sum(seen.rows[key]["at_peak"] for key in keys if not beats(seen.rows[key]))
        yield Advice("larger batch", seen.gain(keys, least), "give the products more rows at once; the gain is for each sample",
                     f"{flops / moved:.3g} FLOPs a byte are below the ridge of {seen.profile.device_name}: memory sets the time", keys)  # fmt: skip


def _precision(seen: _Seen) -> Iterator[Advice]:
    """Products in fp32, real ones, bound by arithmetic, on a device that is faster in another format."""
    device, has = seen.device, getattr(seen.device, "dtypes", ())
    if "fp32" not in has or seen.profile.dtype is not None:
        return
    faster = {name: device.peak(name) / device.peak("fp32") for name in ("tf32", "bf16", "fp16") if name in has}
    best = max(faster, key=lambda name: faster[name], default="")
    least, keys = 0.0, []
    for key, row in seen.rows.items():
        formats = {entry.work.dtype for entry in seen.joined.rows[key].entries if entry.work.status == COUNTED}
        if row["bound"] in ("compute", "both") and formats == {"float32"} and not key[0].startswith("_fft"):
            keys.append(key)
            moved = 0 if seen.fits(row["bytes"], row["launches"]) else row["bytes"] / 2
            bound = bound_by(row["flops"], moved, device.peak(best or "fp32"), device.bandwidth)
            least += float(bound.seconds) / max(1.0, row["of_roof"])
    if keys and best and faster[best] > 1:
        ways = ['torch.set_float32_matmul_precision("high"), which takes tf32'] * (faster.get("tf32", 0) > 1)
        yield Advice("lower precision", seen.gain(keys, least, host=False), " or ".join([*ways, "torch.autocast with bfloat16"]),
                     f"products in fp32: {best} has {faster[best]:.3g} times the peak", keys)  # fmt: skip


def _layout(seen: _Seen) -> Iterator[Advice]:
    """Kernels that turn images around for a convolution."""
    turns = ("nchwtonhwc", "nhwctonchw")
    turning = [s for name, s in seen.joined.kernels.items() if any(each in name.lower() for each in turns)]
    if turning:
        yield Advice("channels last", sum(turning), "model.to(memory_format=torch.channels_last), and the images, too",
                     "kernels turn tensors from one layout to the other", [key for key in seen.rows if "convolution" in key[0]])  # fmt: skip


def _eights(seen: _Seen) -> Iterator[Advice]:
    """Products in half precision on a GPU, of sizes that its tiles do not divide."""
    odd: dict[Key, int] = {}
    for call in seen.calls if seen.joined.on_gpu else ():
        if call.entry and call.key[0] in (*PRODUCTS, "linear") and format_of(call.entry.work.dtype) in ("fp16", "bf16"):
            sizes = [n for shape in shapes(call.entry) if len(shape) > 1 for n in shape[-2:] if n % 8 and n > 8]
            odd.update({call.key: min(sizes)} if sizes else {})
    if odd:
        size = next(iter(odd.values()))
        yield Advice("multiples of eight", seen.gain(odd, host=False), f"pad sizes to multiples of eight, such as {size:,} to {-(-size // 8) * 8:,}",
                     "products in half precision whose sizes no tile divides", odd)  # fmt: skip


def _optimizer(seen: _Seen) -> Iterator[Advice]:
    """An optimiser that updates parameter by parameter, or goes through all parameters several times."""
    keys = seen.of_phase("optimizer")
    working = [key for key in keys if any(entry.calculates for entry in seen.joined.rows[key].entries)]
    calls = {many: sum(seen.rows[key]["launches"] for key in working if key[0].startswith("_foreach") == many)
             for many in (False, True)}  # fmt: skip
    ways, why = ["fused", "foreach"], f"{calls[False]:,.0f} launches a step update parameter by parameter"
    if calls[False] < LAUNCHES:
        ways, why = ["fused"], f"{calls[True]:,.0f} operators go through all parameters: fused, one does"
    change = _switches(seen, ways)
    if max(calls[False] - LAUNCHES + 2, calls[True]) > 1 and not any(key[0].startswith("_fused") for key in keys):
        yield Advice("fused optimiser", seen.gain(keys, 0.0), change, why, keys)


def _switches(seen: _Seen, ways: Iterable[str]) -> str:
    """Those of *ways* that the step's optimisers have, by the names that torch's annotations have of them; else what any has."""
    import torch

    marks = (each.name for each in seen.profile.trace.events if each.kind == "annotation")
    whose = {mark.removeprefix("Optimizer.step#").split(".")[0] for mark in marks if mark.startswith("Optimizer.step#")}
    has = [inspect.signature(one).parameters if (one := getattr(torch.optim, name, None)) else () for name in whose]
    have = [f"{way}=True" for way in ways if has and all(way in each for each in has)]
    return (
        f"{', or '.join(have)}{',' * (len(have) > 1)} for the optimiser"
        if have
        else "torch.compile of the optimiser's step"
    )


def _launches(seen: _Seen) -> Iterator[Advice]:
    """A host that does not keep up, in what is not the optimiser's, which has a rule of its own."""
    keys = [key for key, row in seen.rows.items() if row["bound"] == "launch" and key[2] not in ("", "optimizer")]
    ways, gain = "torch.compile, or fewer and larger operators", seen.gain(keys, 0.0)
    calls = units.count(round(sum(seen.rows[key]["launches"] for key in keys)), "calls")
    why = f"{calls} a step with little to do but to find the way to the kernel"
    if seen.joined.on_gpu:
        late = [gap for gap in seen.late if gap.reason == "host-bound" and gap.key and gap.key[2] != "optimizer"]
        ways, gain = 'a CUDA graph, or torch.compile(mode="reduce-overhead")', sum(gap.seconds for gap in late) / seen.steps  # fmt: skip
        why = f"waits of the device for the next launch, in a step: {len(late) / seen.steps:,.3g}"
        keys = [gap.key for gap in late if gap.key]
    if keys and gain >= LAUNCHING * seen.profile.seconds:
        yield Advice("fewer launches", gain, ways, why, keys)


def _elsewhere(seen: _Seen) -> Iterator[Advice]:
    """A host that does something else than torch's work, and lets it wait."""
    if seen.elsewhere:
        longest = max(seen.elsewhere, key=lambda gap: gap.seconds)
        yield Advice("work outside of torch", sum(gap.seconds for gap in seen.elsewhere) / seen.steps,
                     "take Python, NumPy, files and waiting out of the step, or to another process",
                     f"no operator runs for up to {units.seconds(longest.seconds)}, before {longest.after}",
                     [(f"({longest.reason})", "", "")])  # fmt: skip


def _checkpoints(seen: _Seen) -> Iterator[Advice]:
    """Forward work that is done again; what checkpoints keep and hand over is detached."""
    if keys := seen.of_phase("recompute"):
        keys += [key for key in seen.of_phase("backward") if key[0] == "detach"]
        yield Advice("checkpoint less", seen.gain(keys, 0.0), "checkpoint fewer layers, or what is cheap to compute, if the memory allows it",
                     "the forward pass of what is checkpointed runs again in the backward pass", keys)  # fmt: skip


def _causal(seen: _Seen) -> Iterator[Advice]:
    """A causal mask that is handed over as a tensor."""
    keys = [key for key in seen.rows if key[0] == ATTENTION]
    if keys and (number := seen.profile.causal_masks):
        least = sum(map(seen.floor, keys)) / 2  # of the pairs, more than half are visible
        yield Advice("is_causal", seen.gain(keys, least), "is_causal=True in place of attn_mask",
                     f"{units.count(number, 'calls')} of attention take a tensor that says no more: hidden pairs are computed", keys)  # fmt: skip


def _math(seen: _Seen) -> Iterator[Advice]:
    """Attention that writes its scores to memory: by the kernel math, or by hand, product, softmax, product."""
    keys = {key for key, row in seen.joined.rows.items() if key[0] == ATTENTION
            and any(entry.work.kernel.startswith("math") for entry in row.entries)}  # fmt: skip
    by_hand: set[str] = set()
    begun: list[Key] = []  # since the last product with weights
    for key in (call.key for call in seen.calls if call.entry is not None and call.key[2] == "forward"):
        begun.append(key)
        if key[0] in ("bmm", "baddbmm"):
            names = [name for name, module, _ in begun if module == key[1]]
            scores = next(i for i, name in enumerate(names) if name in ("bmm", "baddbmm"))
            if "_softmax" in names[scores:]:
                keys |= set(begun)
                by_hand.add(key[1])
                begun = []
        elif key[0] in WEIGHTED:
            begun = []
    keys |= {key for key in seen.rows if key[1] in by_hand and key[2] == "backward" and key[0] not in ("mm", "addmm")}
    if keys:
        yield Advice("fused attention", seen.gain(keys, 0.0), "torch.nn.functional.scaled_dot_product_attention, with a mask for its fused kernels",
                     "attention runs as products and a softmax: its scores go through memory", keys)  # fmt: skip


def _synchronises(seen: _Seen) -> Iterator[Advice]:
    """A host that waits for the device, which then waits for the host."""
    if waits := [gap for gap in seen.joined.gaps if gap.reason == "synchronised"]:
        during = Counter(gap.during for gap in waits).most_common(1)[0][0]
        yield Advice("synchronising calls", sum(gap.seconds for gap in waits) / seen.steps, "take .item(), .cpu() and print out of the loop, or call them every so many steps",
                     f"{len(waits) / seen.steps:,.3g} times a step, such as {during}: the device then has nothing to do",
                     [gap.key for gap in waits if gap.key])  # fmt: skip


def _loader(seen: _Seen) -> Iterator[Advice]:
    """A data loader that the step waits for: on a GPU while nothing runs, on a CPU as long as it takes."""
    keys = [key for key in seen.rows if LOADING[0] in key]
    rows = sum(seen.rows[key]["seconds"] for key in keys)
    took = rows if seen.joined.on_gpu else max(rows, seen.joined.loading)
    if took:
        yield Advice("data loader", took, "load ahead, by num_workers, prefetch_factor and pin_memory, or decode once and keep it",
                     "the step waits for its batch", keys)  # fmt: skip


def _head(seen: _Seen) -> Iterator[Advice]:
    """A last product over all positions, of whose result only a few rows are used."""
    working = [call for call in seen.calls if call.entry and call.entry.work.status != FREE and shapes(call.entry)]
    heads: defaultdict[Key, list[tuple[int, int]]] = defaultdict(list)  # positions, and those used, of each call
    for product, user in pairwise(working):
        if product.key[0] not in ("mm", "addmm") or product.key[2] != "forward" or product.key not in seen.rows:
            continue
        (rows, d), (_, wide) = shapes(product.entry)[-2:]  # type: ignore[arg-type]
        used = [shape for shape in shapes(user.entry) if shape[-1:] == (wide,)]  # type: ignore[arg-type]
        kept = max((math.prod(shape[:-1]) for shape in used), default=rows)
        if user.entry.work.status != COUNTED and wide > d and 2 * kept <= rows:  # type: ignore[union-attr]
            heads[product.key].append((rows, kept))
    for head, calls in heads.items():
        rows, kept = map(sum, zip(*calls, strict=True))
        touched = [key for key in seen.rows if (key[1] == head[1] and key[0] in (*PRODUCTS, "sum", "t", "view"))
                   or (key[2] == "backward" and key[0].startswith(GATHERED))]  # fmt: skip
        yield Advice("head on all tokens", seen.gain(touched, seen.floor(head) * kept / rows), "select the positions first, then call the head on them alone",
                     f"a product for {rows:,} positions, of which {kept:,} are used", touched)  # fmt: skip


RULES: tuple[Callable[[_Seen], Iterator[Advice]], ...] = (
    _fuse, _batch, _precision, _layout, _eights, _optimizer, _launches, _elsewhere, _checkpoints, _causal, _math, _synchronises, _loader, _head,
)  # fmt: skip
