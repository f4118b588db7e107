"""The fields of a ``config.json``: our names for them, and a reader that names the one that is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit.names import hint

__all__ = ["KEYS", "Fields"]

KEYS: Mapping[str, tuple[str, ...]] = {
    "vocab": ("vocab_size",),
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim", "d_kv"),
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
    "tied": ("tie_word_embeddings",),
}
"""Our name of a number, and the keys under which a ``config.json`` may have it."""

_ACTS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu",
}  # fmt: skip


class Fields:
    """A configuration that names the field it lacks."""

    def __init__(self, fields: Mapping[str, Any], kind: str) -> None:
        self.fields, self.kind = fields, kind

    def get(self, key: str, default: Any = None) -> Any:
        value = self.fields.get(key)
        return default if value is None else value

    def need(self, name: str) -> Any:
        for key in KEYS.get(name, (name,)):
            if self.fields.get(key) is not None:
                return self.fields[key]
        keys = " or ".join(repr(key) for key in KEYS.get(name, (name,)))
        raise ValueError(f"the configuration of model_type={self.kind!r} lacks {keys}: give a whole config.json")

    def all(self, *names: str) -> dict[str, Any]:
        return {name: self.need(name) for name in names}

    def act(self, default: str = "silu") -> str:
        said = self.get("hidden_activation") or self.get("hidden_act") or self.get("activation_function") or default
        if said not in _ACTS:
            raise ValueError(f"activation {said!r} is not known here; {hint(str(said), _ACTS)}")
        return _ACTS[said]

    def refuse(self, **usual: Any) -> None:
        """What a family may say and is not described here."""
        for key, value in usual.items():
            if self.get(key, value) != value:
                raise ValueError(
                    f"{key}={self.fields[key]!r}: a {self.kind} with that is not described here, only {value!r}"
                )
