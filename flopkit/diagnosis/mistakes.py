"""The usual mistakes in an MFU: what each does otherwise, and the ratio that it makes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product
from typing import Any, NamedTuple

from flopkit.conventions import LLM_FOUNDRY, PALM, SIX_N, SIX_N_ACTIVE, Convention
from flopkit.derivations import number_format
from flopkit.devices import Device, device as known_device, device_names
from flopkit.models.model import Model
from flopkit.training.steps import POLICIES, Step

__all__ = ["Mistake", "in_jobs", "in_peaks", "in_units", "in_work", "pairs", "ways_out"]


class Mistake(NamedTuple):
    """What is done otherwise, what that multiplies an MFU by, and how it happens."""

    name: str
    ratio: float
    why: str


_HALF = {"scores": 0.5, "hidden": 0.5}


def _work(name: str, **shares: float) -> Convention:
    """EXACT but for these shares, without a flash kernel's recompute, which no author counts."""
    return Convention(name, "flopkit.diagnosis: EXACT, changed in one place", recompute=0, **shares)  # type: ignore[arg-type]


# What the numerator may count otherwise. Of two that come to the same for a model, the first is named.
_WORK = {
    _work("hidden", hidden=1): ("causal ×2: hidden pairs counted", "every position of the score matrix counts, also those that the mask hides"),
    SIX_N_ACTIVE: ("6N", "six FLOPs a parameter and token, attention's scores left out, the embedding in N"),
    _work("no scores", scores=0): ("scores left out", "products with weights only: 6N without the embedding"),
    _work("embedding", embedding=1, tied=1): ("embedding in N", "the input embedding counts as a product, and it is a look-up"),
    PALM: ("6N + 12LHQT", "the formula of PaLM, nanoGPT and early torchtitan: hidden pairs and the embedding counted"),
    _work("all experts", idle=1): ("total for active experts", "all experts count, and a token goes through a few"),
    SIX_N: ("6N, total for active experts", "6N with all experts in N"),
    LLM_FOUNDRY: ("6N + 12LHQT, total for active experts", "PaLM's formula with all experts in N"),
    _work("half", **_HALF): ("half of the scores, whatever the mask", "half of the score matrix counts, in layers with a window, too"),
    _work("full, no router", hidden=1, router=0): ("causal ×2: hidden pairs counted, router left out", "as Megatron-LM counted in 2021"),
    _work("half, no router", router=0, **_HALF): ("half of the scores, router left out", "as Megatron-LM and DeepSeek count"),
    _work("no head", head=0): ("head left out", "layers only, without the product with the vocabulary"),
}  # fmt: skip


_NAMED = re.compile(r"(?:^|-)a?(\d+(?:\.\d+)?)b\b", re.IGNORECASE)  # llama-3-8b, qwen3-30b-a3b; of mixtral-8x7b nothing
_AGAIN = "work that the backward pass computes again counts: executed FLOPs make HFU, and MFU leaves them out"
_CORE = "; here attention's scores and values, as in Megatron-LM"
_END = "; here every layer's forward pass to its end, as in Megatron and today's torchtitan"
_STOP = "; here as PyTorch's own checkpoint, which leaves out the last product of an MLP"
_FLASH = "flash attention's recompute counted (HFU)", "its backward computes the scores again"
_FOURTH = "a fourth pass of the whole model, embedding and head too: 8 FLOPs a parameter for 6"


def in_work(
    model: Model, sizes: Mapping[str, Any], recompute: str, context: int | None = None
) -> tuple[list[Mistake], list[Mistake]]:
    """What the numerator may be instead: with one thing done otherwise, and with two.

    *sizes*: ``seq`` or ``lengths``. *context*: tokens of the sequences that documents of these lengths are packed into.
    """
    steps = {policy: model.train_step(**sizes, recompute=policy) for policy in POLICIES}
    steps["early"] = model.train_step(**sizes, recompute="full", early_stop=True)
    tokens: Any = steps["none"].tokens
    spares = steps["early"].checkpointed.flops < steps["full"].checkpointed.flops
    exact = _work("exact")
    base = steps["none"].under(exact).model_flops
    one: list[Mistake] = []
    two: list[Mistake] = []
    for convention, (name, why) in {exact: ("", ""), **_WORK}.items():
        ratio = steps["none"].under(convention).model_flops / base
        if name and any(abs(ratio / known - 1) < 1e-4 for known in (1, *(other.ratio for other in one))):
            continue  # no difference in this model, or the same as one above
        if name:
            one.append(Mistake(name, ratio, why))
        again = []
        if recompute != "selective":
            again.append(("full recompute counted (HFU)", "full", convention, _AGAIN + _END))
            if spares:
                again.append(("full recompute counted, early stop (HFU)", "early", convention, _AGAIN + _STOP))
        if recompute != "full":
            again.append(("selective recompute counted (HFU)", "selective", convention, _AGAIN + _CORE))
        if recompute != "selective":
            again.append(("recompute counted as ×4/3 (HFU)", "full", replace(convention, outside_again=True), _FOURTH))
        for counted, policy, under, reason in again:
            more = steps[policy].under(under).hardware_flops / base
            if name:
                two.append(Mistake(f"{name}, and {counted}", more, f"{why}; {reason}"))
            else:
                one.append(Mistake(counted, more, reason))
                flash = steps[policy].under(replace(under, recompute=1)).hardware_flops / base
                two.append(Mistake(f"{counted}, and {_FLASH[0]}", flash, f"{reason}; {_FLASH[1]}"))
    for billions in _NAMED.findall(model.name):
        ratio = 6e9 * float(billions) * tokens / base
        if all(abs(ratio / known.ratio - 1) > 1e-3 for known in one):
            one.append(
                Mistake(f"6N with the name's {billions}B for N", ratio, "the number in a model's name is rounded")
            )
    flash = steps["none"].hardware_flops / base
    if all(abs(flash / known.ratio - 1) > 1e-4 for known in one):
        one.append(Mistake(_FLASH[0], flash, _FLASH[1]))
    if context is not None:
        packed = _at_context(
            model.train_step(seq=context), exact, base / tokens, context, [1, *(each.ratio for each in one)]
        )
        one, two = one + packed[:1], two + packed[1:]
    return one, two


def _at_context(step: Step, exact: Convention, base: float, context: int, known: list[float]) -> list[Mistake]:
    """The context length taken for that of each document: by itself, and with another count of the work."""
    what, why = f"the context's {context:,} tokens for each document's", "a token sees its own document alone"
    found: list[Mistake] = []
    for convention, (name, more) in {exact: ("", ""), **_WORK}.items():
        ratio = step.under(convention).flops_per_token / base
        if all(abs(ratio / other - 1) > 1e-4 for other in (*known, *(each.ratio for each in found))):
            found.append(Mistake(f"{name}, with {what}" if name else what, ratio, f"{more}; {why}" if more else why))
    return found


def in_units() -> list[Mistake]:
    """A numerator in another unit than the peak's."""
    return [Mistake("MACs for FLOPs", 0.5, "a multiply-add counts as one, and the peak counts it as two")]


_DEFAULTS = ("a100-sxm-80gb", "h100-sxm")  # in nanoGPT and torchtitan's fallback; in nanochat


def in_peaks(card: Device, dtype: Any) -> list[Mistake]:
    """What may be divided by instead: the sparse peak, another number format's, another device's."""
    here, peak = number_format(dtype), card.peak(dtype)
    found: list[Mistake] = []
    if here in card.sparse:
        why = "data sheets print twice the dense peak, for matrices with 2:4 structured zeros"
        found += [Mistake("sparse peak", 0.5, why), Mistake("dense peak halved", 2.0, "it was taken for a sparse one")]
    for other in ("fp8", "bf16", "tf32", "fp32"):
        if other in card.dtypes and card.peak(other) != peak:
            why = f"the run's products are in {here}"
            found.append(Mistake(f"{other} peak for {here}", peak / card.peak(other), why))
    peaks = [peak]
    for name in (*_DEFAULTS, *(name for name in device_names() if _family(name) == _family(card.name))):
        other_card = known_device(name)
        if here in other_card.dtypes and all(abs(other_card.peak(here) / known - 1) > 1e-3 for known in peaks):
            peaks.append(other_card.peak(here))
            why = "some programs divide by it whatever runs" if name in _DEFAULTS else "a near name, another peak"
            found.append(Mistake(f"wrong SKU: peak of {name}", peak / peaks[-1], why))
    return found


def _family(name: str) -> str:
    """The letters before the first digit: H100, H200 and H800 are near, and TPUs are.

    >>> _family("h100-sxm"), _family("tpu-v4")
    ('h', 'tpu')
    """
    return re.split(r"[\d-]", name.lower(), maxsplit=1)[0]


def in_jobs(count: int) -> list[Mistake]:
    """Tokens a second of one device and the peak of all, or the reverse; of a usual node where *count* is 1."""
    many, what = (count, f"all {count:,}") if count > 1 else (8, "a node of eight")
    return [
        Mistake("per-job tokens/s over one GPU's peak", float(many), f"tokens/s of {what}, the peak of one"),
        Mistake("per-GPU tokens/s over the job's peak", 1 / many, f"tokens/s of one, the peak of {what}"),
    ]


def pairs(groups: Iterable[list[Mistake]], both: list[Mistake]) -> Iterator[Mistake]:
    """Two mistakes at once, of different *groups*; *both*: two in the numerator, which do not simply multiply.

    Outside of the numerator those of a third or more: two small ones can be found for any number, and explain none.
    """
    yield from both
    work, *others = groups
    large = [[each for each in group if not 3 / 4 < each.ratio < 4 / 3] for group in others]
    for one, other in combinations([work, *large], 2):
        for first, second in product(one, other):
            yield Mistake(f"{first.name}, and {second.name}", first.ratio * second.ratio, f"{first.why}; {second.why}")


def ways_out(over: float, card: Device, dtype: Any, count: int) -> Iterator[Mistake]:
    """What would make a run possible that is *over* times the limit."""
    need = math.ceil(count * over)
    why = "tokens/s may be those of a larger job than count says"
    yield Mistake(f"per-GPU against per-job: {need:,} devices or more", count / need, why)
    for name, ratio, _ in in_peaks(card, dtype):
        if ratio * over <= 1 and " peak for " in name:
            yield Mistake(name.replace(" peak for ", " products and not "), ratio, "a faster number format ran")
        elif ratio * over <= 1 and name.startswith("wrong SKU"):
            yield Mistake(name.replace("peak of", "it ran on"), ratio, "a faster device ran")
    if over <= 3:
        yield Mistake("forward passes only", 1 / 3, "inference or evaluation: a training step is three forward passes")
