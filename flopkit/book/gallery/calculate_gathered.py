"""What FSDP gathers of `any_model` where several devices share its weights, for `calculate_fit`.

The rule is that of `flopkit.training.gathered`. A model has here its layers without experts before those with them, and at least six in all, of
which three of a sort in a row: fewer layers would gather as much or less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit.arithmetic import is_zero, same, total, where
from flopkit.book.gallery.any_model import MLPS, adapters_of, kinds, model_of
from flopkit.models import Block
from flopkit.models.formats import role_of
from flopkit.models.stacks import passes
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.parts import Run
from flopkit.models.storage import stored
from flopkit.training.sharding import Gathered, gathered

__all__ = ["if_many", "in_layers", "less_in_nf4"]

TOKEN = Run(1, 1, 1)
FIELDS = ("weights", "gradients", "reduced")  # of a group, as `Gathered` has them
ROW = 3  # equal layers in a row say the same as many


def less_in_nf4(n: Mapping[str, Any], branch: Branch) -> Any:
    """Bytes of a layer's matrices in nf4, less those in bf16."""
    nf4 = stored("nf4")
    shapes: list[tuple[Any, Any, Any]] = []
    for each in branch.parts(TOKEN, n["d_model"]):
        if each.role == "experts":
            shapes += [(n["several"], *shape) for shape in each.matrices]
        elif each.shape and role_of(each) != "router":
            shapes.append((1, *each.shape))
    return total(copies * (nf4.nbytes(1, d_in, d_out) - 2 * d_in * d_out) for copies, d_in, d_out in shapes)


def in_layers(s: Any, n: Mapping[str, Any]) -> None:
    """Set of a layer's mixer, and of each sort of its MLP: ``whole_``, its parameters with their norm, ``adapters_``, those of its adapters,
    ``packed_``, bytes in nf4 less those in bf16."""
    model, found = model_of(n), kinds(n)
    adapted = not is_zero(n["trained"].adapted)
    heads, latent = (s.whole + s.narrow, found["heads"][0][1]), found["latent"]
    for sort, counts in {
        "mixer": [heads, *latent],
        **{name: [mlp] for name, mlp in zip(MLPS, found["mlp"], strict=True)},
    }.items():
        asked: dict[str, list[Any]] = {"whole": [], "adapters": [], "packed": []}
        for count, make in counts:
            there = not is_zero(count)
            inside = passes.layer(model, Block(mixer=None, mlp=make()), TOKEN) if there else []
            asked["whole"].append(total(each.cost.params for each in inside))
            if adapted:
                beside = adapters_of(n, make()) if there else ()
                asked["adapters"].append(n["rank"] * total(each.there * (each.d_in + each.d_out) for each in beside))
                asked["packed"].append(less_in_nf4(n, make()) if there else 0)
        if sort == "sparse":
            of_experts = [
                each for _, make in counts for each in passes.layer(model, Block(mixer=None, mlp=make()), TOKEN)
            ]
            s.routed = total(each.cost.params for each in of_experts if each.split == "experts")
        for what, values in asked.items():
            if values:
                setattr(s, f"{what}_{sort}", _there(s, *values))


def _there(s: Any, *values: Any) -> Any:
    """The value of that sort of attention that the layers have; of one value that."""
    if len(values) == 1:
        return values[0]
    heads, queries, alone = values
    return where(s.whole + s.narrow > 0, heads, where(s.latent_queries > 0, queries, alone))


def if_many(s: Any, n: Mapping[str, Any], experts: Any = 1) -> Any:
    """Bytes of whole weights and gradients that a device holds beside its share, the most at once, where there are several devices. *experts*: the part of a
    layer's experts that it gathers."""
    adapted = n["trained"].adapted
    ends = _ends(s, n)
    layers = _row(s, n, experts)
    everything = where(n["tied"] > 0, gathered(layers, _one(*ends, s)), gathered([ends[0], *layers, ends[1]]))
    if is_zero(adapted):
        return everything
    before, behind = (Gathered(each.weights, reached=place == 1) for place, each in enumerate(ends))
    frozen = where(
        n["tied"] > 0,
        gathered(layers, Gathered(before.weights + behind.weights)),
        gathered([before, *layers, behind]),
    )
    return where(adapted > 0, frozen, everything)


def _group(s: Any, name: str, params: Any, n: Mapping[str, Any], packed: Any = 0, adapters: Any = 0) -> None:
    """Set of a group its ``_weights`` as they are gathered, and ``_gradients`` and ``_reduced``, its gradients in that format and as they are
    summed."""
    trained, states = n["trained"], n["states"]
    weights, own = states.gathers * params, params
    if not is_zero(trained.adapted):
        frozen = where(trained.packed > 0, 2 * params + packed, weights)
        weights = where(trained.adapted > 0, frozen + states.gathers * adapters, weights)
        own = where(trained.adapted > 0, adapters, params)
    for what, value in zip(FIELDS, (weights, states.gathers * own, states.reduces * own), strict=True):
        setattr(s, f"{name}_{what}", value)


def _named(s: Any, name: str) -> Gathered:
    return Gathered(*(getattr(s, f"{name}_{what}") for what in FIELDS))


def _row(s: Any, n: Mapping[str, Any], experts: Any) -> list[Gathered]:
    """Layers without experts and with them, one after another."""
    adapted = not is_zero(n["trained"].adapted)

    def whole(what: str, sort: str) -> Any:
        gated, plain, sparse = (getattr(s, f"{what}_{name}") for name in MLPS)
        return getattr(s, f"{what}_mixer") + (sparse if sort == "sparse" else where(s.gated_layers > 0, gated, plain))

    for sort in ("dense", "sparse"):
        more = [whole(what, sort) for what in ("packed", "adapters")] if adapted else []
        elsewhere = s.routed * (1 - experts) if sort == "sparse" and not same(experts, 1) else 0
        _group(s, sort, s.layer_norms + whole("whole", sort) - elsewhere, n, *more)
    without, found = n["layers"] - s.sparse_layers, []
    for place in range(2 * ROW):
        at_hand = without > place if place < ROW else s.sparse_layers <= 2 * ROW - 1 - place
        for what in FIELDS:
            setattr(s, f"row_{place}_{what}", where(at_hand, getattr(s, f"dense_{what}"), getattr(s, f"sparse_{what}")))
        found.append(_named(s, f"row_{place}"))
    return found


def _ends(s: Any, n: Mapping[str, Any]) -> tuple[Gathered, Gathered]:
    """What stands before the layers, and what stands after them, where all is trained."""
    parts = passes.through(model_of(n), TOKEN)
    s.table = total(each.cost.params for each in parts if each.role == "table")
    s.table_gradients = n["states"].gathers * s.table
    s.before = total(each.cost.params for each in parts if each.place == "before") + s.embedding_norm
    s.behind = total(each.cost.params for each in parts if each.place not in ("before", "layers"))
    states, trained = n["states"], n["trained"]
    for name in ("before", "behind"):
        own = getattr(s, name)
        whole = states.gathers * own
        weights = whole if is_zero(trained.adapted) else where(trained.packed > 0, 2 * own, whole)
        for what, value in zip(FIELDS, (weights, whole, states.reduces * own), strict=True):
            setattr(s, f"{name}_{what}", value)
    return _named(s, "before"), _named(s, "behind")


def _one(before: Gathered, behind: Gathered, s: Any) -> Gathered:
    """Both ends as the group that they are where they have the table in common."""
    both = {name: getattr(before, name) + getattr(behind, name) for name in FIELDS}
    return Gathered(**both, twice=s.table_gradients, late=before.gradients - s.table_gradients)
