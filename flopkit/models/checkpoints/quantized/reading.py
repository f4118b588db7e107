"""The formats of a model's weights, from ``quantization_config`` and ``dtype`` of its
``config.json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from flopkit import dtypes
from flopkit.models.architectures import SAME
from flopkit.models.checkpoints.quantized.methods import METHODS, NotRead, Plan, Said
from flopkit.models.checkpoints.quantized.modules import HEAD, ByLayer, Matrices, dense_parts, unknown_entries
from flopkit.models.formats import Formats, Otherwise
from flopkit.models.stacks.stack import Stack
from flopkit.models.storage import Storage
from flopkit.sizes import short

__all__ = ["METHODS", "formats_in"]

BARE_ROUTERS = frozenset(
    ["deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "dots1", "glm4_moe", "glm4_moe_lite", "glm4v_moe_text", "glm_moe_dsa",
     "gpt_oss", "kimi_linear", "mellum", "mimo_v2_flash", "nemotron_h", "qwen3_5_moe_text"]
)  # fmt: skip
"""Types whose router is a bare matrix in the code that quantised them (transformers 4.57, or 5 where a type is younger; DeepSeek's and Moonshot's
own), and no Linear."""

TWO_HALVES = ("longcat_flash",)
"""Types of which a layer has two attentions and two MLPs, and is two layers here."""

_DEFAULT = "bf16"
_FLOATS = ("fp64", "fp32", "bf16", "fp16")


def formats_in(
    config: Mapping[str, Any], model: Stack, text: Mapping[str, Any] | None = None
) -> tuple[Formats | None, tuple[str, ...]]:
    """The formats that a configuration says its weights have, and what of it is not read.

    Parameters
    ----------
    config : Mapping[str, Any]
        The whole ``config.json``.
    model : Stack
        The model that it describes.
    text : Mapping[str, Any], optional
        Its part for text, where it has one: asked where the whole says nothing.

    Returns
    -------
    Formats or None
        None where the weights are bf16, or it does not say.
    tuple[str, ...]
        Notes: what was taken for what does not stand there, and a method that is not
        read, whose bytes are then refused unless a format is given.

    Examples
    --------
    >>> from flopkit import load
    >>> formats_in({"quantization_config": {"quant_method": "mxfp4"}}, load("gpt-oss-20b"))
    (Formats: mxfp4 (experts), bf16 (rest), ())
    >>> formats_in({"torch_dtype": "float16"}, load("llama-2-7b"))
    (Formats: fp16, ())
    """
    both = (config, text or {})
    base, notes = _dtype(_first(both, "dtype", "torch_dtype"))
    unquantised = None if base == _DEFAULT else Formats(rest=base)
    said = _first(both, "quantization_config", "compression_config", "quantization")
    if said is None:
        return unquantised, notes
    method = said.get("quant_method") if isinstance(said, Mapping) else None
    if method is None and isinstance(said, Mapping) and ("load_in_4bit" in said or "load_in_8bit" in said):
        method = "bitsandbytes"  # as transformers takes it
    elif method is None and isinstance(said, Mapping) and "quant_algo" in said:
        method = "modelopt"  # a word of nobody else
    elif method is None and isinstance(said, Mapping) and {"group_size", "bits"} <= set(said):
        method = "mlx"
    what = (
        f"quantization_config of method {short(method)}"
        if isinstance(said, Mapping)
        else f"quantization_config={short(said)}"
    )
    why = ""
    if isinstance(method, str) and method in METHODS:
        try:
            if method == "fp8" and (experts := _first(both, "expert_dtype")) is not None:
                said = {"expert_dtype": experts, **said}
            plan = METHODS[method](Said(said, base))
            kind = str((text or config).get("model_type"))
            found, more = _formats(plan, model, base, SAME.get(kind, kind))
            return found, (*notes, *plan.notes, *more)
        except (NotRead, ValueError) as error:
            why = f" ({error})"
    unread = f"{what} is not read{why}"
    return Formats(rest=base, unread=unread), (*notes, f"{unread}: bytes of weights need weights=")


def _first(configs: Iterable[Mapping[str, Any]], *keys: str) -> Any:
    """What stands under one of the *keys* in the first of the *configs* that has it."""
    said = (config[key] for config in configs for key in keys if config.get(key) is not None)
    return next(said, None)


def _dtype(said: Any) -> tuple[str, tuple[str, ...]]:
    """The format of unquantised weights, and a note where it is none."""
    if said is None:
        return _DEFAULT, ()
    try:
        if isinstance(said, str) and (found := dtypes.canonical(said)) in _FLOATS:
            return found, ()
    except ValueError:
        pass
    return _DEFAULT, (f"dtype {short(said)} is not read: weights are counted as {_DEFAULT}",)


def _formats(plan: Plan, model: Stack, base: str, family: str) -> tuple[Formats, tuple[str, ...]]:
    """The formats of each role, and of the parts of some layers that have another one."""
    places: dict[int, list[int]] = {}
    for layer, kind in enumerate(order := model.layer_order("quantization_config")):
        places.setdefault(kind, []).append(layer)
    ignored = ByLayer(plan.ignore)
    groups = [
        (None if targets is None or "Linear" in targets else ByLayer(targets), packed)
        for targets, packed in plan.groups
    ]
    lists = [ignored, *(entries for entries, _ in groups if entries is not None)]
    if family in TWO_HALVES and any(entries.own for entries in lists):
        raise NotRead(f"it names layers of a {family} by number, each of which is two here")
    alike: dict[int, dict[Any, list[int]]] = {}  # layers of a kind of which the lists say the same
    for kind, layers in places.items():
        for layer in layers:
            alike.setdefault(kind, {}).setdefault(tuple(entries.key(layer) for entries in lists), []).append(layer)
    found: list[tuple[Matrices, Counter[Any]]] = []
    for part in (parts := dense_parts(model, family)):
        counted: Counter[Any] = Counter()
        for layers in alike.get(part.kind, {}).values():
            bare = family in BARE_ROUTERS and part.names.matrix == "router"  # no module, which nothing packs
            counted[base if bare else _packed(plan, part, layers[0], ignored, groups, base)] += len(layers)
        found.append((part, counted))
    roles: dict[str, Counter[Any]] = {}
    for part, counted in found:
        roles.setdefault(part.role, Counter()).update(counted)
    usual = {role: counted.most_common(1)[0][0] for role, counted in roles.items()}
    others = [
        Otherwise(part.kind, part.names.matrix, layers, packed)
        for part, counted in found
        for packed, layers in counted.items()
        if packed != usual[part.role]
    ]
    if others and model.encoder is not None:
        raise NotRead("some layers of an encoder-decoder have another format than the rest")
    head = base
    if plan.head and not any(plan.matches(entry, name) for entry in plan.ignore for name in HEAD):
        head = next((packed for targets, packed in plan.groups if _is_for_head(plan, targets)), base)
    by_role = {role: packed for role, packed in usual.items() if role != "rest"}
    targets = [each for targets, _ in plan.groups for each in targets or () if each != "Linear"]
    if odd := unknown_entries(targets, parts, len(order), plan.matches):
        raise NotRead(f"{short(odd[0])} is packed, which is no part that is known here")
    unknown = unknown_entries(plan.ignore, parts, len(order), plan.matches)
    notes = (
        f"quantization_config leaves out {', '.join(map(short, unknown[:3]))}{' …' * (len(unknown) > 3)}, which is no part that is known here",
    )
    formats = Formats(
        rest=base,
        **by_role,
        head=head,
        embedding=head if plan.tables else None,
        norms=base,
        others=tuple(others),
        compute=_compute(plan, usual, others, base),
        kv_cache=plan.kv_cache,
    )
    return formats, notes if unknown else ()


def _packs(plan: Plan, role: str) -> bool:
    return role == "experts" if plan.experts_alone else role != "router" or plan.router


def _packed(
    plan: Plan, part: Matrices, layer: int, ignored: ByLayer, groups: list[tuple[ByLayer | None, Any]], base: str
) -> Any:
    """The format of a part in one *layer*."""

    def named(entries: ByLayer) -> bool:
        return part.names.named_by(entries.of(layer), layer, plan.matches)

    if not _packs(plan, part.role) or named(ignored):
        return base
    of_these = [packed for entries, packed in groups if entries is not None and named(entries)]
    if part.role == "experts" and plan.experts is not None:
        of_these.append(plan.experts)
    return next(iter([*of_these, *(packed for entries, packed in groups if entries is None)]), base)


def _is_for_head(plan: Plan, targets: Iterable[str] | None) -> bool:
    return (
        targets is None or "Linear" in targets or any(plan.matches(entry, name) for entry in targets for name in HEAD)
    )


def _compute(plan: Plan, usual: Mapping[str, Any], others: list[Otherwise], base: str) -> str | None:
    """The one format in which packed products run; None where there are several."""
    if plan.compute is not None:
        return plan.compute
    packed = [each for each in (*usual.values(), *(other.format for other in others)) if each != base]
    used = {each.computes if isinstance(each, Storage) else each for each in packed}
    return used.pop() if len(used) == 1 else None
