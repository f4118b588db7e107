"""Which parts of a model the lists of a ``quantization_config`` name: by whole names,
regular expressions or wildcards of the modules of its checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TypeAlias

from flopkit.models import passes
from flopkit.models.formats import role_of
from flopkit.models.parts import Part, Run
from flopkit.models.stack import Stack
from flopkit.sizes import number

__all__ = [
    "HEAD",
    "Matching",
    "Names",
    "by_checkpoint",
    "by_layer",
    "by_name",
    "by_wildcard",
    "dense_parts",
    "unknown_entries",
]

Matching: TypeAlias = Callable[[str, str], bool]
"""Whether an entry of a list is for a module of some name."""


def by_checkpoint(entry: str, name: str) -> bool:
    """As transformers' own quantisers read a list (``should_convert_module``): from the
    start up to the end of a component, as a regular expression, or at the end.

    >>> by_checkpoint("model.layers.1", "model.layers.1.mlp.gate"), by_checkpoint("gate", "model.layers.1.mlp.gate")
    (True, True)
    >>> by_checkpoint("model.layers.1", "model.layers.11.mlp.gate")
    False
    """
    try:
        begins = re.match(rf"(?:{entry})(?:(?<=\.)|(?=\.|$))", name) is not None
    except re.error:
        begins = False
    return begins or name.endswith(entry)


def by_name(entry: str, name: str) -> bool:
    """As compressed-tensors reads one: a whole name, or an expression behind ``re:``.

    >>> by_name("re:.*self_attn.*", "model.layers.1.self_attn.q_proj"), by_name("lm_head", "lm_head")
    (True, True)
    """
    if not entry.startswith("re:"):
        return entry == name
    try:
        return re.match(entry[3:], name) is not None
    except re.error:
        return False


def by_wildcard(entry: str, name: str) -> bool:
    """As ModelOpt reads one: a name with wildcards, or the beginning of one.

    >>> by_wildcard("model.layers.0.self_attn*", "model.layers.0.self_attn.q_proj")
    True
    """
    return fnmatchcase(name, entry) or name.startswith(f"{entry}.")


HEAD = ("lm_head", "model.lm_head", "language_model.lm_head")
_BEFORE = (
    "model.layers",
    "model.language_model.layers",
    "language_model.model.layers",
    "model.decoder.layers",
    "transformer.h",
    "backbone.layers",
)

_MODULES: Mapping[str, tuple[str, ...]] = {
    **{f"{each}_proj": (f"self_attn.{each}_proj",) for each in "qkv"},
    "o_proj": ("self_attn.o_proj", "self_attn.out_proj"),
    "q_down": ("self_attn.q_a_proj",), "q_up": ("self_attn.q_b_proj",), "kv_down": ("self_attn.kv_a_proj_with_mqa",),
    **dict.fromkeys(("kv_up", "key_absorb", "value_up"), ("self_attn.kv_b_proj",)),
    "in_proj": ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_qkv", "mixer.in_proj"),
    "gates_proj": ("linear_attn.in_proj_ba", "linear_attn.in_proj_b"), "out_proj": ("linear_attn.out_proj", "mixer.out_proj"),
    "gate_proj": ("mlp.gate_proj",), "up_proj": ("mlp.up_proj", "mlp.fc1"), "down_proj": ("mlp.down_proj", "mlp.fc2"),
    "router": ("mlp.gate", "mlp.router", "block_sparse_moe.gate", "mixer.gate"), "shared_gate": ("mlp.shared_expert_gate",),
    **{f"shared_{each}_proj": tuple(f"{of}.{each}_proj" for of in ("mlp.shared_experts", "mlp.shared_expert", "block_sparse_moe.shared_experts"))
       for each in ("gate", "up", "down")},
    "experts": ("mlp.experts", "block_sparse_moe.experts", "mixer.experts"),
}  # fmt: skip
"""How checkpoints call the modules of a part, inside of their layer."""

_EXPERT = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
"""How they call the matrices of an expert."""


class Names:
    """The names of a part's modules, in one layer after another."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.inside = _MODULES.get(part, ())

    def of(self, layer: int) -> Iterator[str]:
        for before in _BEFORE:
            for inside in self.inside:
                yield f"{before}.{layer}.{inside}"

    def named_by(self, entries: Iterable[str], layer: int, matches: Matching) -> bool:
        """Whether one of the *entries* is for it.

        Raises
        ------
        ValueError
            Where they are for some matrices of the experts and not for others.
        """
        entries = list(entries)
        if any(matches(entry, name) for entry in entries for name in self.of(layer)):
            return True
        if self.part != "experts":
            return False
        for matrices in _EXPERT:
            found = [
                any(matches(entry, f"{name}.0.{matrix}") for entry in entries for name in self.of(layer))
                for matrix in matrices
            ]
            if all(found):
                return True
            if any(found):
                raise ValueError("some matrices of its experts have another format than the rest")
        return False


def dense_parts(model: Stack) -> Iterator[tuple[int, Part, str, Names]]:
    """The matrices inside the layers: the kind of layer, the part, its role and its names.

    Latent attention has besides those of training the two of decoding, in which the
    matrix behind the latent is taken apart.
    """
    for kind, (block, _) in enumerate(model.blocks):
        seen = set()
        for decode in (False, True):
            for each in passes.layer(model, block, Run(1, 1, 1, causal=model.causal, decode=decode, encoded=1)):
                name = each.cost.name
                if name not in seen and (each.shape or each.matrices):
                    seen.add(name)
                    yield kind, each, role_of(each), Names(name)


_LAYER = re.compile(r"(?:layers|h)\\?\.(\d+)(?=\\?\.|$)")


def by_layer(entries: Iterable[str]) -> Callable[[int], list[str]]:
    """The entries that can be for one layer: those that name no layer, and its own."""
    general: list[str] = []
    own: dict[int, list[str]] = {}
    for entry in entries:
        found = _LAYER.search(entry)
        (own.setdefault(int(found[1]), []) if found else general).append(entry)
    return lambda layer: [*general, *own.get(layer, [])]


_ELSEWHERE = re.compile(
    r"norm|embed|visual|vision|image|audio|projector|merger|mm_|rotary|conv|mtp|eh_proj|head|bias|sinks|A_log|dt_|score|indexer"
)
"""What is never packed, is no part of a text model, or is not counted here."""


def unknown_entries(entries: Iterable[str], model: Stack, matches: Matching) -> list[str]:
    """Entries that are for no part of the model, those set aside that are for what is never packed."""
    layers = sum(number("layers", count) for _, count in model.blocks)
    parts = [names for _, _, _, names in dense_parts(model)]

    def known(entry: str) -> bool:
        own = _LAYER.search(entry)
        if _ELSEWHERE.search(entry) or (own and int(own[1]) >= layers):  # layers of multi-token prediction come last
            return True
        places = [int(own[1])] if own else range(layers)
        return any(names.named_by([entry], layer, matches) for layer in places for names in parts)

    return [entry for entry in entries if not known(entry)]
