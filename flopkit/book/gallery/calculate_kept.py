"""What a training step of `any_model` keeps for its backward pass, for `calculate_fit`.

All of it grows with the sequences on a device, but for the 16-bit copies of the weights that ``torch.autocast`` makes, which are there once. So
two straight lines over the batch say it: what stands behind the layers, and what a layer that is computed again brings back, are never there
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from flopkit.arithmetic import is_zero, maximum, total, where
from flopkit.book.gallery.any_model import (
    ACTS,
    MLPS,
    ONE,
    PLACES,
    POLICIES,
    Nothing,
    adapters_of,
    in_each_style,
    kinds,
    model_of,
)
from flopkit.charts.readings import pick
from flopkit.dtypes import nbytes
from flopkit.models import Block, LoRA, Model
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.parts import Run
from flopkit.models.training import activations, autocast
from flopkit.models.training.finetuning import training_of

__all__ = ["WAYS", "in_the_way", "kept", "of_their_sort"]

WAYS = ("flash", False)  # the kernel of attention, and no dropout
ADAPTERS = LoRA(rank=1, targets=("q_proj",))  # any: for what does not depend on where they stand


def kept(s: Any, n: Mapping[str, Any], run: Run) -> None:
    """Set the two lines: ``each_ends`` and ``each_again``, bytes a sequence, ``once_ends`` and ``once_again``, bytes beside them. The gradients of
    the loss, ``each_loss`` a sequence, are among the first.

    *run*: one sequence.
    """
    adapted, auto = n["trained"].adapted, n["states"].autocast
    _in_16_bits(s, n, run)
    ends, edge = where(n["embedded"] > 0, s.kept_normed, s.kept_bare), activations.boundary(model_of(n), run)
    each = [s.kept_mixer + s.kept_branch + s.kept_inside + getattr(s, f"kept_{name}") for name in MLPS]
    once: Any = (0, 0)
    if not is_zero(adapted):
        _by_adapters(s, n, run)
        each = [one + adapted * getattr(s, f"adapted_{name}") for name, one in zip(MLPS, each, strict=True)]
        ends = where(adapted > 0, s.adapted_ends, ends)
    if not is_zero(auto):
        _by_autocast(s, n, run)
        each = [one + auto * getattr(s, f"cast_{name}") for name, one in zip(MLPS, each, strict=True)]
        ends, edge = where(auto > 0, s.cast_ends, ends), (1 + auto) * edge
        matrices = auto * n["layers"] * s.cast_layer
        once = (
            matrices + auto * s.cast_heads,
            pick(n["recompute"], dict.fromkeys(POLICIES, matrices) | {"full": auto * s.cast_layer}),
        )
    for name, one in zip(MLPS, each, strict=True):
        setattr(s, f"layer_{name}", one)
    s.kept_edge, s.kept_ends = edge, ends
    under = _policies(s, n)
    s.kept_layers = pick(n["recompute"], {policy: there for policy, (there, _) in under.items()})
    s.kept_again = pick(n["recompute"], {policy: again for policy, (_, again) in under.items()})
    s.each_loss = activations.of_loss(model_of(n), run)
    s.each_ends, s.each_again = s.kept_layers + s.kept_ends + s.each_loss, s.kept_layers + s.kept_again
    s.once_ends, s.once_again = once


def _policies(s: Any, n: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Bytes of all layers, and those that come back, under each policy."""
    each, counts = [getattr(s, f"layer_{name}") for name in MLPS], [n[f"{name}_layers"] for name in MLPS]
    cores = [s.kept_core] * len(MLPS)
    return {policy: activations.under_policy(policy, counts, each, cores, s.kept_edge) for policy in POLICIES}


def _in_16_bits(s: Any, n: Mapping[str, Any], run: Run) -> None:
    """Set bytes that a layer of each sort keeps, and what stands behind them, where all is trained in 16 bits."""
    # a window changes nothing here, and all layers have the same sort of attention
    sorts = {"heads": s.whole + s.narrow, "queries": s.latent_queries, "alone": s.latent_alone}
    model = model_of(n)

    def of_branches(norm_kind: str, place: str) -> dict[str, Any]:
        around = replace(model, norm=norm_kind)
        mixer, branch = _around(around, place, run)
        ends = {"bare": around, "normed": replace(around, embedding_norm=True)}
        behind = {name: activations.of_ends(training_of(one, "all"), run, *WAYS) for name, one in ends.items()}
        return {"mixer": mixer, "branch": branch, **behind}

    def of_mixers(qk_norm: str) -> dict[str, Any]:
        made = kinds(n, qk_norm)
        found: dict[str, Any] = {}
        for (name, count), (_, make) in zip(sorts.items(), [made["heads"][0], *made["latent"]], strict=True):
            tensors = [] if is_zero(count) else make().kept(run, n["d_model"], *WAYS)
            found[name] = total(each.bytes for each in tensors)
            found[f"{name}_core"] = total(each.bytes for each in tensors if each.core)
        return found

    def of_mlps(act: str) -> dict[str, Any]:
        return dict(zip(MLPS, _of_mlps(n, run, act), strict=True))

    asked: list[tuple[tuple[str, ...], Callable[..., dict[str, Any]]]] = [
        (("norm_kind", "place"), of_branches), (("qk_norm",), of_mixers), (("act",), of_mlps)
    ]  # fmt: skip
    for names, ask in asked:
        for name, value in in_each_style({name: n[name] for name in names}, ask).items():
            setattr(s, f"kept_{name}", value)
    for name, what in (("inside", ""), ("core", "_core")):
        heads, queries, alone = (getattr(s, f"kept_{sort}{what}") for sort in sorts)
        setattr(s, f"kept_{name}", of_their_sort(s, heads, queries, alone))


def of_their_sort(s: Any, heads: Any, queries: Any, alone: Any) -> Any:
    """The value of that sort of attention that the layers have."""
    return where(s.whole + s.narrow > 0, heads, where(s.latent_queries > 0, queries, alone))


def _of_mlps(n: Mapping[str, Any], run: Run, act: str) -> list[Any]:
    """Bytes that the MLP of each sort keeps inside itself."""
    made = kinds(n, act=act)["mlp"]
    return [
        0 if is_zero(count) else total(each.bytes for each in make().kept(run, n["d_model"], *WAYS))
        for count, make in made
    ]


def _around(model: Model, place: str, run: Run) -> tuple[Any, Any]:
    """What a layer keeps around its mixer and around its MLP. In parallel, the MLP's norm or the input of that norm is the mixer's."""
    mixer, both = (
        activations.of_layer(model, Block(mixer=Nothing(), mlp=mlp, norms=PLACES[place]), run, *WAYS)
        for mlp in (None, Nothing())
    )
    return total(each.bytes for each in mixer), total(each.bytes for each in both[len(mixer) :])


def _by_adapters(s: Any, n: Mapping[str, Any], run: Run) -> None:
    """Set what a layer of each sort keeps more where adapters alone are trained (below 0: less), and what stands behind the layers.

    More: the numbers between the two matrices of each adapter. Less: what nothing but a frozen matrix reads.
    """
    found, narrow = kinds(n), nbytes(run.tokens * n["rank"], run.dtype)

    def count(branch: Branch) -> Any:
        return total(each.there for each in adapters_of(n, branch))

    sorts = (s.whole + s.narrow, found["heads"][0][1]), *found["latent"]
    s.adapters_of_mixer = of_their_sort(s, *(0 if is_zero(layers) else count(make()) for layers, make in sorts))
    for name, (layers, make) in zip(MLPS, found["mlp"], strict=True):
        branch = make()
        more = 0 if is_zero(layers) else narrow * (s.adapters_of_mixer + count(branch))
        if name == "sparse" and not is_zero(layers):
            frozen = [each for each in branch.kept(run, n["d_model"], *WAYS) if each.weights_of == ("experts",)]
            wide = nbytes(run.tokens * n["d_model"], run.dtype)
            own = pick(n["place"], {title: int(place != "parallel") for title, place in PLACES.items()})
            more = more - total(each.bytes for each in frozen) - where(n["shared_d_ff"] > 0, 0, own * wide)
        setattr(s, f"adapted_{name}", more)
    model = model_of(n)

    def behind(norm_kind: str) -> dict[str, Any]:
        around = replace(model, norm=norm_kind, blocks=model.blocks[:1])
        return {"ends": activations.of_ends(training_of(around, ADAPTERS), run, *WAYS)}

    s.adapted_ends = in_each_style({"norm_kind": n["norm_kind"]}, behind)["ends"]


def _by_autocast(s: Any, n: Mapping[str, Any], run: Run) -> None:
    """Set what a layer of each sort keeps more of a sequence under ``torch.autocast``, what stands behind the layers, and the 16-bit copies of
    the matrices of a layer and of the head. Experts and latent attention are refused before."""
    model, cast, wide = model_of(n), replace(run, autocast=True), nbytes(run.tokens * n["d_model"], run.dtype)
    s.cast_heads = autocast.of_heads(model, cast)
    # of the places that are known here, and of the sorts of norms, all keep as much more
    s.cast_around = total(_around(model, ONE, cast)) - total(_around(model, ONE, run))
    behind, usual = (activations.of_ends(training_of(model, "all"), each, *WAYS) for each in (cast, run))
    s.cast_ends = s.kept_bare + (behind - s.cast_heads - usual)
    matrices: list[Any] = []
    mixer = autocast.copies(kinds(n)["heads"][0][1](), cast, n["d_model"])
    for name, (count, make) in zip(MLPS, kinds(n)["mlp"], strict=True):
        readers, copied = (0, 0) if name == "sparse" else autocast.copies(make(), cast, n["d_model"])
        setattr(s, f"cast_{name}", s.cast_around + (mixer[0] + readers) * wide)
        matrices.append(where(count > 0, copied, 0))
    s.cast_layer = mixer[1] + total(matrices)


def in_the_way(s: Any, n: Mapping[str, Any], run: Run) -> None:
    """Set why a control has no effect on the memory of a step now: ``no_act``, ``no_embedded``, ``no_rank``."""
    batch, adapted, auto = n["batch"], n["trained"].adapted, n["states"].autocast
    gelu, relu = (_of_mlps(n, run, act) for act in ACTS)
    is_relu = pick(n["act"], {title: int(act == "relu") for title, act in ACTS.items()})
    larger, smaller = [], []
    for name, most, least in zip(MLPS, gelu, relu, strict=True):
        setattr(s, f"act_of_{name}", most - least)
        larger.append(getattr(s, f"layer_{name}") + is_relu * getattr(s, f"act_of_{name}"))
        smaller.append(larger[-1] - getattr(s, f"act_of_{name}"))

    def again(each: list[Any]) -> Any:
        there = [where(n[f"{name}_layers"] > 0, layer - s.kept_edge, 0) for name, layer in zip(MLPS, each, strict=True)]
        return reduce(maximum, there)

    def step(ends: Any, back: Any) -> Any:
        behind = batch * (s.kept_layers + ends + s.each_loss) + s.once_ends
        return maximum(behind, batch * (s.kept_layers + back) + s.once_again)

    moved = step(s.kept_ends, again(larger)) > step(s.kept_ends, again(smaller))
    s.act_matters = pick(n["recompute"], {"none": 1, "selective": 1, "full": where(moved, 1, 0)})
    s.no_act = where(
        s.sparse_layers < n["layers"],
        where(s.act_matters > 0, "", "What stands behind the layers keeps more than a layer that is computed again."),
        s.no_mlp,
    )
    normed = where(step(s.kept_normed, s.kept_again) > step(s.kept_bare, s.kept_again), 1, 0)
    s.embedded_matters = n["norm_weight"] + n["norm_bias"] + auto + where(adapted > 0, 0, normed)
    s.no_embedded = where(
        s.embedded_matters > 0, "", "It has no weights, and no more memory is needed with what it keeps."
    )
    s.no_rank = where(adapted > 0, "", "All parameters are trained: there are no adapters.")
