"""A pass of prefill or decode: its cost, and the pieces that run one after another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from flopkit.arithmetic import is_zero, reading, total
from flopkit.cost import Cost
from flopkit.models.caches import cached_bytes, merged
from flopkit.models.checkpoints.weights import formats_of, read_bytes
from flopkit.models.formats import Formats, piece_bytes
from flopkit.models.stacks import passes
from flopkit.models.stacks.parts import Part, Run
from flopkit.models.stacks.stack import Stack
from flopkit.sizes import Count, Size, choice, offence, short, size

__all__ = ["EXPERTS", "Piece", "ServingPass", "decoded", "prefilled"]

EXPERTS = {
    "most": "as many different ones as so many tokens can choose",
    "expected": "as many as they choose on average, where each token chooses by chance",
}
"""How many experts of a mixture a pass reads."""

Group: TypeAlias = Literal["dense", "experts", "cache"]


class Piece(NamedTuple):
    """A part of a pass, of all layers that have it: its FLOPs and its bytes.

    *group*: ``"dense"``, weights that all tokens share; ``"experts"``, those that some
    choose; ``"cache"``, what reads or writes the cache of each sequence, and the core of
    an encoder's attention, which has no cache.
    """

    name: str
    group: Group
    flops: Any
    bytes: Any


@dataclass(frozen=True)
class ServingPass:
    """A pass through a model that keeps a cache."""

    name: str
    run: Run
    parts: tuple[Part, ...]
    read: tuple[Any, ...]  # bytes of the weights of each part
    formats: Formats
    cache: Any

    @property
    def cost(self) -> Cost:
        """FLOPs under EXACT; bytes of weights and cache."""
        found = [
            replace(each.cost, bytes=read + cached_bytes(_moved(each), self.cache), parts=())
            for each, read in zip(self.parts, self.read, strict=True)
        ]
        return Cost.total(self.name, found)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The parts in the order in which they run, equal layers together; what does no
        product and reads neither weights nor cache is left out."""
        found: list[Piece] = []
        kind = 0
        for each, read in zip(self.parts, self.read, strict=True):
            if not each.inside:
                found.append(self._piece(each, 1, read))
                continue
            pieces = (self._piece(*piece) for piece in piece_bytes(each, self.formats, kind))
            before = f"{each.tower}, " if each.tower else ""
            found += [piece._replace(name=f"{before}{piece.name}") for piece in pieces]
            kind += each.place == "layers"
        return tuple(each for each in found if not (is_zero(each.flops) and is_zero(each.bytes)))

    def _piece(self, each: Part, times: Any, read: Any) -> Piece:
        read = 0 if is_zero(each.weights) else read  # of nothing, in whatever format
        moved = 0 if is_zero(each.cache) else cached_bytes(_moved(each), self.cache)
        mixes = each.core is not None or not is_zero(each.cache)
        group: Group = "experts" if each.role == "experts" else "cache" if mixes else "dense"
        return Piece(each.cost.name, group, times * 2 * each.cost.macs, times * (read + moved))

    def grouped(self) -> dict[str, Piece]:
        """The pieces of a group as one."""
        found: dict[str, list[Piece]] = {}
        for each in self.pieces:
            found.setdefault(each.group, []).append(each)
        return {
            group: Piece(
                group, these[0].group, total(each.flops for each in these), total(each.bytes for each in these)
            )
            for group, these in found.items()
        }


def prefilled(
    model: Any, *, prompt: Size, batch: Size, weights: Any, kv_cache: Any, prefix: Count, experts: str, source: Any = None
) -> ServingPass:  # fmt: skip
    """`Model.prefill` with its pieces."""
    model.of_text("prefill")
    prompt, prefix = size("prompt", prompt), size("prefix", prefix, minimum=0)
    batch, prefixed = size("batch", batch), not is_zero(prefix)
    if (
        prefixed
        and model.encoder is not None
        and (reading(prefix) in ("sympy", "altair") or offence(lambda one: one == 0, prefix))
    ):
        raise ValueError(
            f"prefix={short(prefix)}: whether the encoder of {model.name} runs depends on it; give a number, 0 where nothing lies in the cache"
        )
    new, encoded = model.begun(prompt, source, prefix)
    run = Run(batch, new, new + prefix, prefixed=prefixed, encoded=encoded)
    return _served(model, "prefill", run, batch, weights, kv_cache, experts)


def decoded(
    model: Any, *, context: Size, batch: Size, weights: Any, kv_cache: Any, new: Size, experts: str, source: Any = None
) -> ServingPass:  # fmt: skip
    """`Model.decode` with its pieces."""
    model.of_text("decode")
    tokens, whole = size("new", new), size("context", context)
    if offence(lambda part, all: part > all, tokens, whole):
        raise ValueError(f"new={new}: these tokens are part of the context={context}, which cannot be shorter")
    run = Run(size("batch", batch), tokens, whole, decode=True, encoded=model.encoded(whole, source))
    return _served(model, "decode", run, run.tokens, weights, kv_cache, experts)


def _served(model: Any, name: str, run: Run, head_tokens: Any, weights: Any, cache: Any, experts: str) -> ServingPass:
    choice("experts", experts, tuple(EXPERTS))
    stack: Stack = replace(model, mtp=None)
    run = replace(run, expected=experts == "expected")
    formats = formats_of(model, weights)
    found = passes.through(stack, run, head_tokens)
    read = tuple(read_bytes(model, formats, found))
    return ServingPass(f"{model.name}, {name}", run, tuple(found), read, formats, model.cache_format(cache))


def _moved(each: Part) -> dict[str, Any]:
    """Numbers of the cache that a part moves, by role."""
    if not each.inside:
        return dict(each.cached or (("rest", each.cache),))
    inside = merged(_moved(part) for part in each.inside if not is_zero(part.cache))
    return {role: each.times * numbers for role, numbers in inside.items()}
