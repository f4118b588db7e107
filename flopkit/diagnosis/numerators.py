"""What the numerator of an MFU may count otherwise: conventions, parts of the model, recompute, and these at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from flopkit.conventions import EXACT, LLM_FOUNDRY, PALM, SIX_N, SIX_N_ACTIVE, Convention
from flopkit.diagnosis.hybrids import hybrid_flops_per_token
from flopkit.diagnosis.mistakes import COMMON, POSSIBLE, RARE, Mistake
from flopkit.models.model import Model
from flopkit.training.steps import Step

__all__ = ["in_work"]

_HALF = {"scores": 0.5, "hidden": 0.5}


def _work(name: str, **shares: float) -> Convention:
    """EXACT but for these shares, without a flash kernel's recompute, which no author counts."""
    return Convention(name, "flopkit.diagnosis: EXACT, changed in one place", recompute=0, **shares)  # type: ignore[arg-type]


_EXACT = _work("exact")
_LESS = "attention's scores left out, the embedding in N"

# What the numerator may count otherwise. Of two that come to the same for a model, the first is named.
_WORK: Mapping[Convention, tuple[str, str, float]] = {
    _work("hidden", hidden=1): ("causal ×2: hidden pairs counted", "every position of the score matrix counts, also those that the mask hides", 0.3),
    SIX_N_ACTIVE: ("6N", f"six FLOPs a parameter and token, {_LESS}", 0.3),
    _work("no scores", scores=0): ("scores left out", "products with weights only: 6N without the embedding", POSSIBLE),
    _work("embedding", embedding=1, tied=1): ("embedding in N", "the input embedding counts as a product, and it is a look-up", POSSIBLE),
    PALM: ("6N + 12LHQT", "the formula of PaLM, nanoGPT and early torchtitan: hidden pairs and the embedding counted", 0.4),
    replace(PALM, name="6N + 6LHQT", scores=0.5, hidden=0.5): ("6N + 6LHQT", "half of the score matrix, and the embedding counted, as in llm.c and verl", 0.1),
    _work("all experts", idle=1): ("total for active experts", "all experts count, and a token goes through a few", 0.1),
    SIX_N: ("6N, total for active experts", "6N with all experts in N", 0.2),
    LLM_FOUNDRY: ("6N + 12LHQT, total for active experts", "PaLM's formula with all experts in N", 0.1),
    _work("half", **_HALF): ("half of the scores, whatever the mask", "half of the score matrix counts, in layers with a window, too", COMMON),
    _work("full, no router", hidden=1, router=0): ("causal ×2: hidden pairs counted, router left out", "as Megatron-LM counted in 2021", 0.15),
    _work("half, no router", router=0, **_HALF): ("half of the scores, router left out", "as Megatron-LM and DeepSeek count", 0.3),
    _work("no router", router=0): ("router left out", "as Megatron-Bridge counts since it knows windows", 0.1),
    _work("hidden, all experts", hidden=1, idle=1): ("causal ×2: hidden pairs counted, total for active experts", "as MaxText counted before pull request 678", POSSIBLE),
    _work("no head", head=0): ("head left out", "layers only, without the product with the vocabulary", RARE),
}  # fmt: skip

_NAMED = re.compile(r"(?:^|-)a?(\d+(?:\.\d+)?)b\b", re.IGNORECASE)  # llama-3-8b, qwen3-30b-a3b; of mixtral-8x7b nothing
_AGAIN = "work that the backward pass computes again counts: executed FLOPs make HFU, and MFU leaves them out"
_CORE = "; here attention's scores and values, as in Megatron-LM"
_END = "; here every layer's forward pass to its end, as in Megatron and today's torchtitan"
_STOP = "; here as PyTorch's own checkpoint, which leaves out the last product of an MLP"
_FLASH = "flash attention's recompute counted (HFU)", "its backward computes the scores again"
_FOURTH = "a fourth pass of the whole model, embedding and head too: 8 FLOPs a parameter for 6"
_OF_LENGTH = ("scores", "hidden", "pairs", "recompute")  # kinds of work that no parameter makes
_ALONE = "2N, or what a profiler of the forward pass counts, by the time of a step of three"
_LEAST = 1e-3
_TOO = 2.0  # Megatron's formula of 2021 counts hidden pairs and a fourth pass: who counts the one counts the other more often


@dataclass(frozen=True)
class _Kinds:
    """Multiply-adds by kind of a step's passes, of which any convention makes FLOPs."""

    passes: Mapping[str, Any]
    again: Mapping[str, Mapping[str, Any]]  # by policy
    flash: Mapping[str, Any]
    outside: Mapping[str, Any]
    tokens: Any

    @classmethod
    def of(cls, model: Model, sizes: Mapping[str, Any], trained: Any, policies: Iterable[str] = ()) -> _Kinds:
        step = model.train_step(**sizes, trained=trained)
        again = {}
        for policy in policies:
            how = {"recompute": "full", "early_stop": True} if policy == "early" else {"recompute": policy}
            again[policy] = model.train_step(**sizes, trained=trained, **how).checkpointed.macs_by_kind
        return cls(_passes(step), again, step.scores_again.macs_by_kind, step.outside.macs_by_kind, step.tokens)

    def model(self, under: Convention) -> Any:
        """Model FLOPs."""
        return under.flops(self.passes)

    def hardware(self, under: Convention, policy: str) -> Any:
        """FLOPs that are executed with a recompute policy, as *under* counts them."""
        flops = under.flops(self.passes) + under.flops(self.again.get(policy, {}))
        if under.recompute:
            flops += under.flops(self.flash)
        if under.outside_again and policy == "full":
            flops += under.flops(self.outside)
        return flops


def _passes(step: Step) -> dict[str, Any]:
    found: Counter[str] = Counter()
    for cost in (step.forward, step.backward):
        for kind, macs in cost.macs_by_kind.items():
            found[kind] = found[kind] + macs
    return dict(found)


def in_work(
    model: Model, sizes: Mapping[str, Any], *, recompute: str = "none", context: int | None = None, trained: Any = "all",
    count: int = 1, shards: Mapping[str, int] | None = None, variants: Mapping[str, Model] | None = None,
) -> list[Mistake]:  # fmt: skip
    """What the numerator may be instead, likeliest first where two come to the same.

    *sizes*: ``seq`` or ``lengths``. *context*: tokens of the sequences that documents of these lengths are packed into. *shards*: by whom
    the parameters are divided, and by how many. *variants*: other models that may have been meant, by name.
    """
    kinds = _Kinds.of(model, sizes, trained, ("selective", "full", "early"))
    base, tokens = kinds.model(_EXACT), kinds.tokens
    counted = _known(model)
    found: list[tuple[str, Mistake]] = [("", each) for each in _of(kinds, base, recompute, counted)]
    found += [("", each) for each in _rules(model, kinds, base, sizes, trained, recompute)]
    for name, why, prior, other in _others(model, sizes, trained, context, variants or {}):
        scale = tokens / other.tokens  # of a packed context
        if abs(other.model(_EXACT) * scale / base - 1) < 1e-4:
            continue  # it makes no difference here
        for convention, (also, more, common) in {_EXACT: ("", "", 1.0), **counted}.items():
            if prior * common >= _LEAST:
                found.append(
                    (name, _joined(also, more, other.model(convention) * scale / base, name, why, prior * common))
                )
    found += _as_gpt(model, sizes, base)
    found += _as_hybrid(model, sizes, base / tokens, 2 if variants else 0)
    for divided, degree in (shards or {}).items():
        for convention, also, common in ((_EXACT, "", 0.5), (PALM, _WORK[PALM][0], 1.0), (SIX_N_ACTIVE, "6N", 1.0)):
            if convention is not _EXACT and convention not in counted:
                continue
            by_parameters = {kind: macs for kind, macs in kinds.passes.items() if kind not in _OF_LENGTH}
            flops = convention.flops(kinds.passes) - convention.flops(by_parameters) * (degree - 1) / degree
            name, why = (
                f"parameters of one shard of {degree:,} for all",
                f"p.numel() of parameters that {divided} has sharded counts those of one device",
            )
            found.append((name, _joined(also, "", flops / base, name, why, 0.06 * common)))
    kept: list[tuple[str, Mistake]] = []
    for what, each in sorted(found, key=lambda one: one[1].deeds > 1):
        known = [other.ratio for that, other in kept if that == what and (what or other.deeds == each.deeds)]
        if all(abs(each.ratio / other - 1) > 1e-4 for other in (1.0, *known)):
            kept.append((what, each))
    return [each for _, each in kept]


def _joined(also: str, more: str, ratio: Any, name: str, why: str, prior: float) -> Mistake:
    if not also:
        return Mistake(name, float(ratio), why, prior)
    return Mistake(f"{also}, with {name}", float(ratio), f"{more}; {why}" if more else why, prior, 2)


def _known(model: Model) -> Mapping[Convention, tuple[str, str, float]]:
    """`_WORK`, without 6N for a model whose parts see different numbers of tokens."""
    return {each: said for each, said in _WORK.items() if model.one_length or not each.balance}


def _of(
    kinds: _Kinds, base: Any, recompute: str, known: Mapping[Convention, tuple[str, str, float]]
) -> Iterator[Mistake]:
    """Conventions, and recompute that is counted."""
    for convention, (name, why, prior) in {_EXACT: ("", "", 1.0), **known}.items():
        if name:
            yield Mistake(name, float(kinds.model(convention) / base), why, prior)
    spares = any(kinds.again["early"].get(kind, 0) != macs for kind, macs in kinds.again["full"].items())
    for convention, (name, why, prior) in {_EXACT: ("", "", 1.0), **known}.items():
        if name and abs(kinds.model(convention) / base - 1) < 1e-6:
            continue  # of a dense model, all experts
        for what, policy, under, reason, common in _again(convention, recompute, spares):
            ratio = float(kinds.hardware(under, policy) / base)
            if not name:
                yield Mistake(what, ratio, reason, common, executed=True)
                flash = float(kinds.hardware(replace(under, recompute=1), policy) / base)
                both = f"{what}, and {_FLASH[0]}"
                yield Mistake(both, flash, f"{reason}; {_FLASH[1]}", max(common * 0.5, 0.03), 2, executed=True)
            elif prior * common >= _LEAST:
                often = common * (_TOO if convention.hidden == 1 and policy == "full" else 1)
                yield Mistake(f"{name}, and {what}", ratio, f"{why}; {reason}", prior * often, 2, executed=True)
    yield Mistake(_FLASH[0], float(kinds.hardware(EXACT, "none") / base), _FLASH[1], RARE, executed=True)


def _again(convention: Convention, recompute: str, spares: bool) -> Iterator[tuple[str, str, Convention, str, float]]:
    """Recompute that may be counted: its name, the policy, the convention, why, and how common that is."""
    told = recompute == "full"
    if recompute != "selective":
        yield "full recompute counted (HFU)", "full", convention, _AGAIN + _END, 0.3 if told else POSSIBLE
        if spares:
            yield (
                "full recompute counted, early stop (HFU)",
                "early",
                convention,
                _AGAIN + _STOP,
                0.2 if told else POSSIBLE,
            )
        yield (
            "recompute counted as ×4/3 (HFU)",
            "full",
            replace(convention, outside_again=True),
            _FOURTH,
            0.2 if told else POSSIBLE,
        )
    if recompute != "full":
        yield (
            "selective recompute counted (HFU)",
            "selective",
            convention,
            _AGAIN + _CORE,
            0.3 if recompute == "selective" else RARE,
        )


def _rules(
    model: Model, kinds: _Kinds, base: Any, sizes: Mapping[str, Any], trained: Any, recompute: str
) -> Iterator[Mistake]:
    """Numerators that no part of the model makes: a name's N, and rules about frozen weights."""
    named = {float(billions): f"the name's {billions}B" for billions in _NAMED.findall(model.name)}
    known = _known(model)
    for convention in (SIX_N_ACTIVE, _work("no scores", scores=0)):
        if convention not in known:
            continue
        rounded = float(f"{kinds.model(convention) / (6e9 * kinds.tokens):.1e}")
        named.setdefault(rounded, f"a rounded {rounded:g}B")
    why = "the number of parameters in a model's name, or on its card, is rounded"
    for billions, words in named.items():
        ratio = float(6e9 * billions * kinds.tokens / base)
        often = 0.1 if words.startswith("the") else POSSIBLE
        yield Mistake(f"6N with {words} for N", ratio, why, often)
        if trained == "all":
            name = f"6N with {words} for N, with the forward pass alone"
            yield Mistake(name, ratio / 3, f"{_ALONE}; {why}", RARE * often, 2)
            if recompute != "selective":  # BigScience: model_size_in_B * 4 * 2 * …
                name = f"6N with {words} for N, and recompute counted as ×4/3 (HFU)"
                often *= 0.2 if recompute == "full" else POSSIBLE
                yield Mistake(name, ratio * 4 / 3, f"{_FOURTH}; {why}", often, 2, executed=True)
    if trained == "all":
        why = "as for LoRA: frozen weights have no gradient, so a step is two forward passes and not three; trained= says what is trained"
        yield Mistake("frozen weights: two thirds of a full step", 2 / 3, why, POSSIBLE)
        for convention in (PALM, SIX_N_ACTIVE, _work("hidden", hidden=1)):
            if convention not in known:
                continue
            name, more, prior = known[convention]
            yield _joined(name, more, kinds.model(convention) * 2 / 3 / base, "frozen weights: two thirds of a full step", why, POSSIBLE * prior)  # fmt: skip
        why = _ALONE
        for convention in (_EXACT, PALM, SIX_N_ACTIVE, _work("hidden", hidden=1)):
            if convention is not _EXACT and convention not in known:
                continue
            name, more, prior = known.get(convention, ("", "", 1.0))
            yield _joined(name, more, kinds.model(convention) / 3 / base, "the forward pass alone", why, RARE * prior)
    if trained == "all" and (wide := _windows_at_width(model, kinds, sizes)) is not None:
        why = "a query counts all positions of a layer without a window and W of one with it, as torchtitan does since pull request 4300"
        yield Mistake("hidden pairs counted, windows at their width", float(wide / base), why, 0.1)


def _windows_at_width(model: Model, kinds: _Kinds, sizes: Mapping[str, Any]) -> Any:
    """FLOPs where queries count length or window, whichever is less; None where there is no window, or not one alone."""
    found: set[int] = set()

    def window(part: Any) -> Any:
        if is_dataclass(part) and (width := getattr(part, "window", None)) is not None:
            found.add(width)
        return _unwindowed(part)

    other = replace(model, blocks=tuple((_changed(block, window), layers) for block, layers in model.blocks))
    length = sizes.get("seq", 0)
    if len(found) != 1 or min(found) >= length:
        return None
    (width,) = found
    full = _Kinds.of(other, sizes, "all")
    visible = width * length - width * (width - 1) // 2
    a_pair = (full.model(_EXACT) - kinds.model(_EXACT)) / (length * (length + 1) // 2 - visible)
    return full.model(_work("hidden", hidden=1)) - a_pair * length * (length - width)


def _others(
    model: Model, sizes: Mapping[str, Any], trained: Any, context: int | None, variants: Mapping[str, Model]
) -> Iterator[tuple[str, str, float, _Kinds]]:
    """Models and lengths that may have been taken for these: a name, why, a prior, and their work."""
    if trained != "all":
        kinds = _Kinds.of(model, sizes, "all")
        yield (
            "every weight taken as trained",
            "frozen weights have no gradient, which saves a third of the step",
            0.3,
            kinds,
        )
        flops = {kind: macs * 2 / 3 for kind, macs in kinds.passes.items()}
        why = "6 becomes 4 for all work; the backward pass of attention's scores stays whole"
        yield "two thirds of a full step", why, 0.3, replace(kinds, passes=flops)
    if context is not None:
        what, why = f"the context's {context:,} tokens for each document's", "a token sees its own document alone"
        yield what, why, 0.3, _Kinds.of(model, {"seq": context}, trained)
    other = replace(model, blocks=tuple((_changed(block, _two), layers) for block, layers in model.blocks))
    if other != model and trained == "all":
        why = "a gated MLP has three: gate, up and down"
        yield "two matrices for three in the MLP", why, 0.08, _Kinds.of(other, sizes, trained)
    other = replace(model, blocks=tuple((_changed(block, _unwindowed), layers) for block, layers in model.blocks))
    if other != model:
        why = "layers with a window count as if each token saw all before it"
        yield "windows taken as full", why, 0.25, _Kinds.of(other, sizes, trained)
    for name, one in variants.items():
        why = "it joins two inputs by a matrix, has a layer of its own and uses the head once more"
        yield name, why, 0.1, _Kinds.of(one, sizes, "all")


def _as_gpt(model: Model, sizes: Mapping[str, Any], base: Any) -> Iterator[tuple[str, Mistake]]:
    """Megatron's formula of 2021, with GPT's layers for the model's own: all pairs, without recompute and with it."""

    def change(part: Any) -> Any:
        if hasattr(part, "kv_heads"):
            return replace(part, kv_heads=part.heads)
        return replace(part, gated=False, d_ff=4 * model.d_model) if hasattr(part, "d_ff") else part

    mixers = [block.mixer for block, _ in model.blocks]
    plain = all(getattr(each, "heads", 0) * getattr(each, "head_dim", 0) == model.d_model for each in mixers)
    if model.params != model.active_params or not plain or model.encoder is not None:
        return
    other = replace(model, blocks=tuple((_changed(block, change), layers) for block, layers in model.blocks))
    if other == model:
        return
    kinds, hidden = _Kinds.of(other, sizes, "all", ("full",)), next(iter(_WORK))
    name, why = (
        "layers of 12·width² parameters",
        "GPT's: attention without grouped keys, an MLP four times as wide and not gated",
    )
    also, more, _ = _WORK[hidden]
    yield name, _joined(also, more, kinds.model(hidden) / base, name, why, 0.04)
    full = _joined(also, more, kinds.hardware(hidden, "full") / base, name, why, 0.02)
    yield (
        name,
        full._replace(
            name=f"{full.name}, and full recompute counted (HFU)", why=f"{full.why}; {_AGAIN}", executed=True
        ),
    )


def _as_hybrid(model: Model, sizes: Mapping[str, Any], a_token: Any, depths: int) -> Iterator[tuple[str, Mistake]]:
    """Megatron's formula of hybrids, over EXACT's FLOPs *a_token*, with up to so many *depths* of multi-token prediction."""
    for depth in range(1 + depths):
        theirs = hybrid_flops_per_token(model, sizes, depth)
        if theirs is None:
            return
        name, why = (
            "Megatron's hybrid layers",
            "a Mamba layer counts as twice as wide as the model, half of the scores, and no router",
        )
        if depth:
            name, why = (
                f"{name}, with {depth} of multi-token prediction",
                f"{why}; each has attention, experts and the head once more",
            )
        yield name, Mistake(name, float(theirs / a_token), why, 0.05 if depth else 0.15)


def _changed(value: Any, change: Any) -> Any:
    """A layer with each of its parts changed."""
    if isinstance(value, tuple):
        return tuple(_changed(each, change) for each in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    inner = {each.name: _changed(getattr(value, each.name), change) for each in fields(value) if each.init}
    inner = {name: one for name, one in inner.items() if one is not getattr(value, name)}
    return change(replace(value, **inner) if inner else value)


def _two(part: Any) -> Any:
    return replace(part, gated=False) if getattr(part, "gated", False) is True and hasattr(part, "d_ff") else part


def _unwindowed(part: Any) -> Any:
    has = is_dataclass(part) and not isinstance(part, type)
    return replace(part, window=None) if has and getattr(part, "window", None) is not None else part
