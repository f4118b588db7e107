"""What to say of a configuration without a closed form: its ``model_type`` by name, true relatives, and the way out.

Nearness of letters misleads here: an mllama is no llama, and a bart is no bert. So a name is only suggested where a slip
of the keyboard lies between, and relatives stand in a table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

from flopkit.models.files.config_fields import in_transformers, type_of_class
from flopkit.names import plain
from flopkit.sizes import short

__all__ = ["BESIDE", "ELSEWHERE", "WAY_OUT", "UnknownTypeError", "draft_model", "unknown_type", "without_type"]

WAY_OUT = "count it by transformers itself: fk.count_hf(config, seq=…), which needs pip install torch transformers"


BESIDE = (
    "where its code lies beside the checkpoint, build it on torch's meta device by AutoModelForCausalLM.from_config(…, "
    "trust_remote_code=True), and count it: fk.count(model, ids)"
)
"""How to count what only the code of its repository builds."""

ELSEWHERE = f"transformers 5.23 does not have it, which fk.count_hf would ask; a newer one may; {BESIDE}"
"""The same for a type that transformers does not have."""

RELATIVES = {
    "minimax_text_01": "the same layers in transformers' own words are a minimax (MiniMax-Text-01-hf has such a file)",
    "minimax_m1": "the same layers in transformers' own words are a minimax",
}
"""What else describes a type's layers."""


def draft_model(classes: Any) -> str:
    """What to say of a draft model of speculative decoding, with its *classes*.

    >>> draft_model(["LlamaForCausalLMEagle3"])[:53]
    'this configures a draft model of speculative decoding'
    """
    named = f" ({short(classes[0])})" if isinstance(classes, list) and classes else ""
    return (
        f"this configures a draft model of speculative decoding{named}, which reads hidden states of the model that it drafts for, "
        "and is not described here; build it by its own code, and count it: fk.count(draft, *inputs)"
    )


class UnknownTypeError(ValueError):
    """A configuration whose ``model_type`` has no closed form here.

    >>> str(UnknownTypeError("model_type='x' is not described here"))
    "model_type='x' is not described here"
    """


def unknown_type(kind: str, whole: Mapping[str, Any], known: Collection[str]) -> UnknownTypeError:
    """The error for a *kind* that is not *known*, which stands in a *whole* configuration or in a part of it.

    >>> print(unknown_type("lfm2", {"model_type": "lfm2"}, ["llama", "olmo2"]))
    model_type='lfm2' is not described here; count it by transformers itself: fk.count_hf(config, seq=…), which needs
    pip install torch transformers.
    flopkit.models.families() lists what is described
    >>> str(unknown_type("lama", {}, ["llama"])).split("; ")[1]
    'did you mean llama?'
    >>> str(unknown_type("minimax_m1", {}, ["llama"])).split("; ")[1]
    "the same layers in transformers' own words are a minimax"
    """
    outer, part = whole.get("model_type"), _part(whole, kind)
    said = f"model_type={short(kind)}"
    if part and isinstance(outer, str):
        said = f"model_type={short(outer)} (its {part}: {short(kind)})"
    if kind == "resnet" and (name := _torchvision(whole)):
        return UnknownTypeError(
            f"{said} is not described here as a file; its sizes are those of torchvision: fk.load({name!r}), or {WAY_OUT}"
        )
    near = _slip(kind, known)
    if near:
        return UnknownTypeError(f"{said} is not described here; did you mean {near}?")
    listed = "flopkit.models.families() lists what is described"
    relative = f"; {RELATIVES[kind]}" if kind in RELATIVES else ""
    way = WAY_OUT if in_transformers(outer if isinstance(outer, str) else kind) else ELSEWHERE
    return UnknownTypeError(f"{said} is not described here{relative}; {way}. {listed}")


def _torchvision(config: Mapping[str, Any]) -> str:
    """The network of torchvision that a ResNet's file describes, but for its classes; nothing where it is another one."""
    kind, depths = config.get("layer_type", "bottleneck"), config.get("depths", [3, 4, 6, 3])
    widths = [256, 512, 1024, 2048] if kind == "bottleneck" else [64, 128, 256, 512]
    usual = {
        "hidden_sizes": widths if kind == "bottleneck" else None,
        "embedding_size": 64,
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": False,
    }
    if any(config.get(key, value) != (widths if key == "hidden_sizes" else value) for key, value in usual.items()):
        return ""
    names = {"bottleneck": {(3, 4, 6, 3): "resnet50", (3, 4, 23, 3): "resnet101", (3, 8, 36, 3): "resnet152"}, "basic": {(2, 2, 2, 2): "resnet18", (3, 4, 6, 3): "resnet34"}}  # fmt: skip
    return names.get(str(kind), {}).get(tuple(depths) if isinstance(depths, list) else (), "")


def without_type(whole: Mapping[str, Any]) -> ValueError:
    """The error for a configuration, or a part of one, that has no ``model_type``.

    >>> print(without_type({"hidden_size": 768, "num_hidden_layers": 12, "type_vocab_size": 2}))
    the configuration has no 'model_type': files older than transformers 3 have none: write it in, such as
    "model_type": "bert"
    >>> print(without_type({"hidden_size": 768}))
    the configuration has no 'model_type': give a whole config.json
    """
    outer = whole.get("model_type")
    parts = [key for key, value in whole.items() if isinstance(value, Mapping) and "model_type" not in value]
    if isinstance(outer, str) and parts:
        part = next((key for key in parts if key in ("text_config", "language_config", "llm_config")), parts[0])
        way = WAY_OUT if in_transformers(outer) else ELSEWHERE
        return UnknownTypeError(f"model_type={short(outer)} (its {part} has none) is not described here; {way}")
    widths, depths = (
        ("hidden_size", "n_embd", "d_model", "dim", "emb_dim"),
        ("num_hidden_layers", "n_layer", "n_layers"),
    )
    if all(any(key in whole for key in keys) for keys in (widths, depths)):
        said = next((f", by its architectures {each}" for each in _listed(whole.get("architectures"))), "")
        likely = _likely(whole)
        such = (
            f', such as "model_type": "{likely}"{said}' if likely else f", where flopkit.models.families() has it{said}"
        )
        return ValueError(
            f"the configuration has no 'model_type': files older than transformers 3 have none: write it in{such}"
        )
    return ValueError("the configuration has no 'model_type': give a whole config.json")


def _likely(whole: Mapping[str, Any]) -> str:
    """The type that a file without one may be of, by its class or by a key that few others have."""
    named = whole.get("architecture") or next(iter(_listed(whole.get("architectures"))), "")
    if isinstance(named, str) and named:
        return type_of_class(named)
    keys = {
        "num_hidden_groups": "albert", "ln_type": "albert", "pos_att_type": "deberta-v2", "n_ctx": "gpt2",
        "sinusoidal_pos_embds": "distilbert", "embedding_size": "", "type_vocab_size": "bert", "d_ff": "t5",
    }  # fmt: skip
    return next((kind for key, kind in keys.items() if key in whole), "")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _part(whole: Mapping[str, Any], kind: str) -> str:
    """The key of the part that has a *kind*, with a dot between keys where a part lies in another."""

    def inside(config: Mapping[str, Any], before: str, depth: int) -> Iterator[str]:
        for key, value in config.items():
            if isinstance(value, Mapping) and depth:
                if value.get("model_type") == kind:
                    yield f"{before}{key}"
                yield from inside(value, f"{before}{key}.", depth - 1)

    return next(inside(whole, "", 3), "")


def _slip(kind: str, known: Collection[str]) -> str:
    """The one that *kind* is a slip of the keyboard of: the same signs but for case, separators, doubled ones, their order."""
    meant = _signs(kind)
    return next(
        (name for name in known if any(one == other for one, other in zip(_signs(name), meant, strict=True))), ""
    )


@cache
def _signs(name: str) -> tuple[str, str]:
    """Its signs without what is doubled, and in order behind the first."""
    signs = plain(name)
    return re.sub(r"(.)\1+", r"\1", signs), signs[:1] + "".join(sorted(signs))
