"""The fields of a ``config.json``: our names for them, and a reader that names the one that is missing.

What a family says is read in two ways: `Fields` gives the numbers of one configuration, and `flopkit.models.files.config_table` notes which keys
a reader asks for, so that a page without Python can do the same. So a reader asks here, and does not branch on what it gets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from flopkit import sizes
from flopkit.models.stacks.blocks import Block
from flopkit.models.transformer import WindowedLayers
from flopkit.names import hint

__all__ = [
    "ACTS", "ACT_KEYS", "KEYS", "MOST_LAYERS", "TEXT_PARTS", "TIED", "WHOLE", "WINDOWED", "Fields", "class_names", "in_transformers", "left_out", "type_of_class",
]  # fmt: skip

T = TypeVar("T")
KEYS: Mapping[str, tuple[str, ...]] = {
    "vocab": ("vocab_size",),
    "dim": ("dim", "hidden_size"),
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim", "d_kv"),
    "positions": ("n_positions", "max_position_embeddings"),
    "d_ff": ("intermediate_size", "n_inner", "d_ff"),
    "window": ("sliding_window",),
    "q_lora": ("q_lora_rank",),
    "kv_lora": ("kv_lora_rank",),
    "qk_nope": ("qk_nope_head_dim",),
    "qk_rope": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "top_k": ("num_experts_per_tok",),
    "expert_d_ff": ("moe_intermediate_size",),
    "dense": ("first_k_dense_replace",),
}
"""Our name of a number, and the keys under which a ``config.json`` may have it."""

ONE = ("d_model", "layers", "heads", "d_ff", "experts")
"""Numbers of which a file may not name two: which of its keys counts is another one in each family."""


@cache
def _defaults() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files("flopkit").joinpath("data/hf_defaults.json").read_text("utf-8"))["types"]
    return found


OWN_CODE = ("exaone",)
"""Types whose code lies beside their checkpoints, with defaults of its own: nothing is taken for what a file leaves out."""


def left_out(kind: str, family: str = "") -> Mapping[str, Any]:
    """What transformers takes for the keys that a ``config.json`` of this ``model_type`` leaves out, where that is a value and no rule.

    ``null`` is another thing than a missing key. *family*: whose defaults hold where transformers does not know *kind*.

    >>> left_out("mistral")["num_key_value_heads"], left_out("llama").get("num_key_value_heads")
    (8, None)
    """
    other = {} if kind in OWN_CODE else _defaults().get(family)
    found: Mapping[str, Any] = (_defaults().get(kind) or other or {"keys": {}})["keys"]
    return found


def in_transformers(kind: str) -> bool:
    """Whether transformers has this ``model_type``.

    >>> in_transformers("clipseg"), in_transformers("minimax_text_01")
    (True, False)
    """
    return kind in _defaults()


def class_names(kind: str) -> tuple[str, ...]:
    """How transformers' classes for a ``model_type`` begin.

    >>> class_names("qwen2_moe")
    ('Qwen2Moe',)
    """
    return tuple(_defaults().get(kind, {"classes": ()})["classes"])


def type_of_class(name: str) -> str:
    """The ``model_type`` of a class of transformers; empty for one of another library.

    >>> type_of_class("AlbertForMaskedLM"), type_of_class("Qwen2MoeForCausalLM"), type_of_class("OpenMoeForCausalLM")
    ('albert', 'qwen2_moe', '')
    """
    known = (
        (begin, kind) for kind, entry in _defaults().items() for begin in entry["classes"] if name.startswith(begin)
    )
    return max(((len(begin), kind) for begin, kind in known if _ends_a_class(name[len(begin) :])), default=(0, ""))[1]


def _ends_a_class(rest: str) -> bool:
    return rest.startswith(("For", "Model", "LMHead", "TextModel", "VisionModel", "MTModel"))


LAYERS = (*KEYS["layers"], "num_decoder_layers")
MOST_LAYERS = 10_000
"""More layers are a slip of the keyboard, and readers list them one by one."""

TIED = "tie_word_embeddings"
"""Whether embedding and head share a table, of which a note tells where a file does not: no other switch changes as much."""

WINDOWED, WHOLE = "sliding_attention", "full_attention"
"""What ``layer_types`` calls a layer with a window, and one without."""

TEXT_PARTS = ("text_config", "language_config", "llm_config", "decoder_config", "thinker_config")
"""Under which key a model of text and more keeps the configuration of its decoder."""

ACT_KEYS = ("hidden_activation", "hidden_act", "activation_function")
ACTS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu",
    "relu2": "relu2", "gelu_fast": "gelu_tanh", "gelu_python": "gelu", "quick_gelu": "quick_gelu",
}  # fmt: skip


class Fields:
    """A configuration that names the field it lacks.

    *left_out* has what is taken for keys that are missing; ``taken`` notes which of these a reader asked for, switches and words apart,
    and whether embedding and head share a table.
    *labels*: the classes that the file names, two where it names none, as transformers has it.
    *mtp*: the layer for multi-token prediction, where a reader knows it; else it is like the last one.
    """

    def __init__(self, fields: Mapping[str, Any], kind: str, left_out: Mapping[str, Any] | None = None) -> None:
        self.fields, self.kind = fields, kind
        self.left_out, self.taken = left_out or {}, dict[str, Any]()
        self.mtp: Block | None = None

    @property
    def labels(self) -> int:
        if named := self.inside("id2label"):
            return len(named)
        key = next((key for key in ("num_labels", "_num_labels") if self.fields.get(key) is not None), "num_labels")
        found: int = self.count(key, 2)
        return found

    def said(self, key: str) -> Any:
        """What stands under a key, None for nothing."""
        if key in self.left_out and key not in self.fields:
            value = self.left_out[key]
            if not isinstance(value, bool | str):
                self.taken[key] = value
            return value
        return self.fields.get(key)

    def get(self, key: str, default: Any = None) -> Any:
        value = self.said(key)
        return default if value is None else value

    def flag(self, key: str, default: bool = False) -> Any:
        found = bool(sizes.flag(key, self.get(key, default)))
        if key == TIED and self.fields.get(key) is None:
            self.taken[key] = found
        return found

    def needed(self, key: str) -> Any:
        """A switch that must be there."""
        return self.flag(self.key(key))

    def demand(self, name: str) -> None:
        """Refuse a file without a number that is only read where another says so."""
        self.need(name)

    def half(self, number: Any) -> Any:
        """Half of a number, which must be even."""
        sizes.divides("2", 2, "a number of two parts", number)
        return number // 2

    def count(self, key: str, default: Any, minimum: int = 1) -> Any:
        """A whole number that may be missing."""
        return self.limited(key, sizes.size(key, self.get(key, default), minimum=minimum))

    def need(self, name: str, minimum: int = 1) -> Any:
        """A whole number that must be there."""
        key = self.key(name)
        return self.limited(key, sizes.size(key, self.said(key), minimum=minimum))

    def limited(self, key: str, value: Any) -> Any:
        """A number under *key*, which is no number of layers that nobody meant."""
        if key in LAYERS and value > MOST_LAYERS:
            raise ValueError(f"{key}={sizes.short(value)}: a model of more than {MOST_LAYERS:,} layers is not read")
        return value

    def head_dim(self, key: str = "head_dim") -> Any:
        """Features of a head: what stands under a key, else the width by the heads."""
        if (said := self.get(key)) is not None:
            return said
        sizes.divides("heads", self.need("heads"), "d_model", self.need("d_model"))
        return self.need("d_model") // self.need("heads")

    def rotary(self, usual: float = 1.0) -> Any:
        """Features of a head that are turned by their position: the share under ``partial_rotary_factor``, or what is *usual*."""
        inside = self.inside("rope_scaling") or self.inside("rope_parameters")
        share = next((each for each in (inside, self.fields) if each.get("partial_rotary_factor") is not None), {})
        part = sizes.factor("partial_rotary_factor", share.get("partial_rotary_factor", usual))
        turned = int(self.head_dim() * part)
        return turned + turned % 2  # in pairs

    def turned(self, key: str, usual: Any = None) -> Any:
        """Features of a head that are turned by their position, under a *key* that says how many; None: all of them."""
        said = self.get(key, usual)
        if said is not None and self.count(key, said) % 2:
            raise ValueError(f"{key}={said}: features are turned in pairs, so it must be even")
        return said

    def made(self, kind: type[T], **numbers: Any) -> T:
        """A value of a *kind*, such as `Attention`, of what was read."""
        return kind(**numbers)

    def listed(self, key: str) -> list[Any]:
        """A list that may be missing."""
        value = self.get(key, [])
        if not isinstance(value, list | tuple):
            raise TypeError(f"{key}={sizes.short(value)}: must be a list")
        return list(value)

    def inside(self, key: str) -> Mapping[str, Any]:
        """A configuration in the configuration, which may be missing."""
        value = self.get(key, {})
        if not isinstance(value, Mapping):
            raise TypeError(f"{key}={sizes.short(value)}: must be a dictionary")
        return value

    def key(self, name: str) -> str:
        """The key under which a number stands, or an error that names all that it may have."""
        keys = KEYS.get(name, (name,))
        numbers = {key: self.fields[key] for key in keys if name in ONE and isinstance(self.fields.get(key), int)}
        if len(set(numbers.values())) > 1:
            said = " and ".join(f"{key}={value}" for key, value in numbers.items())
            raise ValueError(f"{said} are two numbers for one size: leave out the one that is wrong")
        for key in (key for key in self.strange(name) if key in numbers):
            own = next(other for other in keys if other in self.left_out)
            if numbers[key] != self.left_out[own] and own not in self.fields:
                raise ValueError(
                    f"{own} is missing, and {key}={numbers[key]} stands here, which is no key of a {self.kind}: call it {own}"
                )
        # what the file says under any name comes first
        for key in (*(key for key in keys if key in self.fields), *keys):
            if self.said(key) is not None:
                return key
        raise ValueError(
            f"the configuration of model_type={self.kind!r} lacks {' or '.join(map(repr, keys))}: add it; "
            "transformers' AutoConfig shows the default that it would use"
        )

    def strange(self, name: str) -> list[str]:
        """Keys of a number that are those of other families alone: this one's are among its defaults, and most read the first, too."""
        keys = KEYS.get(name, ()) if name in ONE and name != "experts" else ()
        return (
            [key for key in keys[1:] if key not in self.left_out] if any(key in self.left_out for key in keys) else []
        )

    def all(self, *names: str) -> dict[str, Any]:
        return {name: self.need(name) for name in names}

    def act(self, default: str = "silu", *named: str) -> str:
        """The activation, as `flopkit.activation` calls it; *named*: the keys that may say it, where they are others."""
        keys = named or ACT_KEYS
        key = next((key for key in keys if self.fields.get(key) is not None), "")
        key = key or next((key for key in keys if self.said(key) is not None), "activation")
        said = default if self.said(key) is None else self.said(key)
        if not isinstance(said, str):
            raise TypeError(f"{key}={sizes.short(said)}: must be the name of an activation, such as {default!r}")
        if said not in ACTS:
            raise ValueError(f"activation {sizes.short(said)} is not known here; {hint(said, ACTS)}")
        return ACTS[said]

    def renamed(self, **names: str) -> Fields:
        """The same configuration, with what stands under an older name under the one that counts: the older name comes first."""
        found = copy(self)
        older = {new: self.fields[old] for new, old in names.items() if self.fields.get(old) is not None}
        found.fields = {**self.fields, **older}
        return found

    def written(self, *keys: str | tuple[str, ...]) -> None:
        """A type that transformers does not have takes nothing that it does not say; *keys*: what it must say besides its sizes.

        Of several keys together one is enough, even with nothing under the others.
        """
        self.left_out = {}
        for each in keys:
            first, *others = (each,) if isinstance(each, str) else each
            if not any(other in self.fields for other in others):
                self.key(first)

    def either(self, test: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """What one of the two finds: *then* where *test* is true."""
        return then() if test else otherwise()

    def there(self, key: str) -> Any:
        """Whether a file has a key, be it with nothing under it."""
        return key in self.fields

    def unasked(self, find: Callable[[], T]) -> T:
        """What *find* gives; a form of numbers does not ask for it, such as how many features are turned."""
        return find()

    def fixed(self, key: str, usual: Any) -> Any:
        """A switch or a number for which a form of numbers knows *usual* alone."""
        return self.flag(key, usual) if isinstance(usual, bool) else self.count(key, usual)

    def must(self, key: str, right: Any, why: str = "") -> Any:
        """The one number that can stand under a key, or nothing."""
        if (said := self.get(key, right)) != right:
            raise ValueError(f"{key}={sizes.short(said)}: {why or f'in a {self.kind}'} it must be {right}")
        return right

    def windows(
        self, *, every: int = 0, every_key: tuple[str, ...] = (), first: str = "", switch: str = "", listed: bool = False,
        uniform: bool = False, rotary: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Which layers have a window: those that ``layer_types`` lists, else those from number *first* on, but each *every*-th.

        *first*, *every_key*: keys of these numbers. *switch*: the key of a flag without which no layer has one. *listed*: nothing
        but ``layer_types`` says it. *uniform*: transformers' class reads no ``layer_types``, and all layers have the window; a list that
        says otherwise is refused. *rotary*: features of a head that these layers turn, where it is another number than that of the rest.
        """
        window = None if switch and not self.flag(switch) else self.get("sliding_window")
        if not window:  # 0 is for none, too
            self.windowless(self.listed("layer_types"))
            return {}
        if uniform and WHOLE in self.listed("layer_types"):
            why = f"transformers' class of {self.kind} reads no layer_types and gives each layer the window; sliding_window=null is for none"
            raise ValueError(f"layer_types: {WHOLE!r} beside sliding_window={sizes.short(window)}: {why}")
        if listed and self.key("layer_types") and not self.listed("layer_types"):
            raise ValueError(f"layer_types=[]: must say of each layer whether it has the window, in a {self.kind}")
        layers = self.need("layers")
        start = self.need(first, minimum=0) if first else 0
        if not self.fields.get("layer_types"):
            every = next((self.count(key, every) for key in every_key if self.fields.get(key) is not None), every)
        usual = [i >= start and not (every and (i + 1) % every == 0) for i in range(layers)]
        order = self.order(layers, (WINDOWED, WHOLE), [WINDOWED if each else WHOLE for each in usual])
        if order.count(0):
            window = sizes.size("sliding_window", window)
        if order.count(0) in (0, layers):
            return {"window": WindowedLayers(window, rotary=rotary)} if order.count(0) else {}
        return {"window": WindowedLayers(window, layers=order.count(0), rotary=rotary), "order": order}

    def windowless(self, types: list[Any]) -> None:
        """Refuse *types* of layers with a window where there is none: transformers raises, or its flash attention has none and its masks do."""
        if WINDOWED in types:
            why = "sliding_window is null, or use_sliding_window is off; correct the one that is wrong"
            raise ValueError(f"layer_types: {WINDOWED!r}, and no window: {why}")

    def kinds(self, key: str, layers: int, known: tuple[str, ...], usual: list[str], beyond: bool = False) -> list[str]:
        """What a list says of each layer, else what is *usual*; *beyond*: whether it may go on, with layers that are passed over."""
        found = self.listed(key) or usual
        found = found[:layers] if beyond else found
        if len(found) != layers:
            raise ValueError(f"{key} has {len(found)} entries for {layers} layers")
        if odd := [each for each in found if each not in known]:
            raise ValueError(f"{key}: {sizes.short(odd[0])} is not described here; {', '.join(known)} are")
        return found

    def order(self, layers: int, kinds: tuple[str, ...], usual: list[str]) -> tuple[int, ...]:
        """The kind of each layer, as a place in *kinds*: what ``layer_types`` lists, else what is *usual*."""
        return tuple(map(kinds.index, self.kinds("layer_types", layers, kinds, usual)))

    def sparse(self) -> dict[str, Any]:
        """Which layers have no experts, of Qwen's two ways to say so."""
        only, step = self.listed("mlp_only_layers"), self.count("decoder_sparse_step", 1)
        order = tuple(int(i not in only and (i + 1) % step == 0) for i in range(self.need("layers")))
        return {"dense": order.count(0), "order": order} if order.count(0) else {}

    def crossed(self, **how: Any) -> dict[str, Any]:
        """What `windows` and `sparse` find, where both may tell layers apart."""
        windows, sparse = self.windows(**how), self.sparse()
        if not ("order" in windows and "order" in sparse):
            return windows | sparse
        places = list(zip(sparse["order"], windows["order"], strict=True))
        kinds = sorted(set(places))  # dense with the window, dense without, experts with it, experts without
        window = replace(windows["window"], dense=places.count((0, 0)))
        return sparse | {"window": window, "order": tuple(map(kinds.index, places))}

    def dense_first(self) -> dict[str, Any]:
        """The first layers have no experts."""
        first, layers = self.need("dense", minimum=0), self.need("layers")
        return {"dense": first, "order": (0,) * min(first, layers) + (1,) * (layers - first) if first else ()}

    def refuse(self, **usual: Any) -> None:
        """Values that a family allows and flopkit does not support."""
        for key, value in usual.items():
            if (said := self.get(key, value)) != value:
                raise ValueError(f"{key}={sizes.short(said)}: flopkit supports {self.kind} only with {key}={value!r}")
