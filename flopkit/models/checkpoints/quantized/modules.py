"""Which parts of a model the lists of a ``quantization_config`` name: by whole names,
regular expressions or wildcards of the modules of its checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

from flopkit.models.formats import role_of
from flopkit.models.stacks import passes
from flopkit.models.stacks.matrices import EXPERT_MODULES, MODULES, OF_FAMILIES, Matrix
from flopkit.models.stacks.parts import Run
from flopkit.models.stacks.stack import Stack

__all__ = [
    "HEAD",
    "ByLayer",
    "Matching",
    "Matrices",
    "Names",
    "by_checkpoint",
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
    "transformer.blocks",
    "backbone.layers",
    "gpt_neox.layers",
    "layers",
)


class Names:
    """The names of a matrix's modules, in one layer after another; *family*: the ``model_type`` of the decoder."""

    def __init__(self, matrix: Matrix, family: str = "") -> None:
        self.matrix = matrix
        self.inside = OF_FAMILIES.get(family, {}).get(matrix, MODULES.get(matrix, ()))

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
        if self.matrix != "experts":
            return False
        for matrices in EXPERT_MODULES:
            found = [
                any(matches(entry, f"{name}.0.{matrix}") for entry in entries for name in self.of(layer))
                for matrix in matrices
            ]
            if all(found):
                return True
            if any(found):
                raise ValueError("some matrices of its experts have another format than the rest")
        return False


class Matrices(NamedTuple):
    """The matrices of one part of the layers of a *kind*, a place in ``Model.blocks``."""

    kind: int
    role: str
    names: Names


def dense_parts(model: Stack, family: str = "") -> list[Matrices]:
    """The matrices inside the layers; *family*: the ``model_type`` of the decoder.

    Latent attention has besides those of training the two of decoding, in which the
    matrix behind the latent is taken apart.
    """
    found: dict[tuple[int, Matrix], Matrices] = {}
    run = Run(1, 1, 1, causal=model.causal, encoded=model.encoded(1))
    decode = replace(run, decode=True)
    made = passes.Made()
    for kind, (block, _) in enumerate(model.blocks):
        parts = passes.layer(model, block, run, made)
        if block.mixer is not None:
            parts += [each._replace(branch="attention") for each in made.of(block.mixer, decode, model.d_model)]
        for each in parts:
            if each.matrix and (each.shape or each.matrices):
                found.setdefault((kind, each.matrix), Matrices(kind, role_of(each), Names(each.matrix, family)))
    return list(found.values())


_LAYER = re.compile(r"(?:layers|blocks|h)\\?\.(\d+)(?=\\?\.|$)")


_TELLS_DIGITS = re.compile(r"\d|\\N|\(\?P=")
"""What an entry needs to tell one digit from another: a digit, a character by its name, what a group has matched."""


class ByLayer:
    """Entries, and which of them can be for one layer: those that name no layer, and its own.

    >>> entries = ByLayer(["re:.*self_attn.*", "model.layers.3.mlp"])
    >>> entries.of(3), entries.of(4)
    (['re:.*self_attn.*', 'model.layers.3.mlp'], ['re:.*self_attn.*'])
    >>> entries.key(3), entries.key(4) == entries.key(5), entries.key(5) == entries.key(10)
    (3, True, False)
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self.general: list[str] = []
        self.own: dict[int, list[str]] = {}
        for entry in entries:
            found = _LAYER.search(entry)
            (self.own.setdefault(int(found[1]), []) if found else self.general).append(entry)
        self._alike = not any(map(_TELLS_DIGITS.search, self.general))

    def of(self, layer: int) -> list[str]:
        """The entries that can be for one layer."""
        return [*self.general, *self.own.get(layer, [])]

    def key(self, layer: int) -> Any:
        """Equal for layers of which these entries say the same: without entries of their own, by how many digits they have."""
        return f"{len(str(layer))} digits" if self._alike and layer not in self.own else layer


_ELSEWHERE = re.compile(
    r"norm|embed|visual|vision|image|audio|projector|merger|mm_|rotary|conv|mtp|eh_proj|head|bias|sinks|A_log|dt_|score|indexers_proj"
)
"""What is never packed, is no part of a text model, or is not counted here."""


def unknown_entries(entries: Iterable[str], parts: Iterable[Matrices], layers: int, matches: Matching) -> list[str]:
    """Entries that are for none of the *parts* of a model of *layers*, those set aside that are for what is never packed."""
    every = [each.names for each in parts]

    def known(entry: str) -> bool:
        own, begins = _LAYER.search(entry), re.search(r"layers\.(\d+)", entry)
        if _ELSEWHERE.search(entry) or (
            begins and int(begins[1]) >= layers
        ):  # layers of multi-token prediction come last
            return True
        alone = ByLayer([entry])
        places = [int(own[1])] if own else {alone.key(layer): layer for layer in range(layers)}.values()
        return any(names.named_by([entry], layer, matches) for layer in places for names in every)

    return [entry for entry in entries if not known(entry)]
