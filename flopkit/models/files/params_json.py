"""Meta's and Mistral's ``params.json``, in the words of a ``config.json``.

Sources: ``ModelArgs`` and ``FeedForward`` in meta-llama/llama-models, models/llama3/args.py and model.py;
``TransformerArgs`` in mistralai/mistral-inference, src/mistral_inference/args.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit.sizes import factor, short, size

__all__ = ["as_config", "is_params"]

_BOTH = {
    "dim",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "vocab_size",
    "norm_eps",
    "rope_theta",
    "max_batch_size",
    "max_seq_len",
}
_META = _BOTH | {"multiple_of", "ffn_dim_multiplier", "use_scaled_rope"}
_MISTRAL = _BOTH | {
    "head_dim", "hidden_dim", "moe", "sliding_window", "_sliding_window", "model_type", "tied_embeddings", "yarn",
    "max_position_embeddings",
}  # fmt: skip
_TIED = {(2048, 16, 128_256), (3072, 28, 128_256)}
"""Width, layers and words of Llama 3.2 1B and 3B, the only ones of Meta's whose head is the embedding."""


def is_params(config: Mapping[str, Any]) -> bool:
    """Whether a dictionary is such a file; ``norm_eps`` tells it from an old DistilBERT's, which has a *dim*, too.

    >>> is_params({"dim": 4096, "n_layers": 32, "n_heads": 32, "norm_eps": 1e-5})
    True
    """
    return {"dim", "n_layers", "n_heads", "norm_eps"} <= set(config)


def as_config(params: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What a ``params.json`` says, as a ``config.json`` would, and what was taken for what it does not say.

    Meta's file has no width of the MLP: it is ``multiple_of · ⌈ffn_dim_multiplier · (2 · 4·dim / 3) / multiple_of⌉``,
    each factor rounded down in turn.

    Raises
    ------
    ValueError
        For a key that is not known here: a picture part, adapters, latent attention.

    Examples
    --------
    >>> config, _ = as_config({"dim": 4096, "ffn_dim_multiplier": 1.3, "multiple_of": 1024, "n_heads": 32, "n_kv_heads": 8,
    ...                        "n_layers": 32, "norm_eps": 1e-5, "vocab_size": 128256})
    >>> config["model_type"], config["intermediate_size"]
    ('llama', 14336)
    """
    mistral = "hidden_dim" in params or params.get("model_type") is not None
    known = _MISTRAL if mistral else _META
    unknown = sorted(key for key, value in params.items() if key not in known and value is not None)
    if unknown:
        of = "Mistral's" if mistral else "Meta's"
        raise ValueError(f"{short(unknown[0])} of {of} params.json is not described here; give the model's config.json")
    common = {
        "hidden_size": _whole(params, "dim"), "num_hidden_layers": _whole(params, "n_layers"),
        "num_attention_heads": _whole(params, "n_heads"),
        "num_key_value_heads": _whole(params, "n_heads" if params.get("n_kv_heads") is None else "n_kv_heads"),
        "hidden_act": "silu",
    }  # fmt: skip
    found, notes = (_mistral if mistral else _meta)(params)
    return common | found, notes


def _meta(params: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    d_model, multiple = _whole(params, "dim"), _whole(params, "multiple_of")
    d_ff = 2 * 4 * d_model // 3
    if params.get("ffn_dim_multiplier") is not None:
        d_ff = int(factor("ffn_dim_multiplier", params["ffn_dim_multiplier"]) * d_ff)
    notes = []
    if params.get("vocab_size") == -1:  # the tokenizer's, in the files of Llama 1 and 2
        notes.append("vocab_size=-1: 32000, the tokenizer of Llama 1 and 2")
    vocab = 32_000 if notes else _whole(params, "vocab_size")
    tied = (d_model, _whole(params, "n_layers"), vocab) in _TIED
    if tied:
        notes.append(
            "the head is the embedding, as in the config.json of Llama 3.2 1B and 3B: params.json does not say it"
        )
    found = {"model_type": "llama", "vocab_size": vocab, "intermediate_size": multiple * -(-d_ff // multiple)}
    return found | {"tie_word_embeddings": tied}, tuple(notes)


def _mistral(params: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    if params.get("model_type", "transformer") != "transformer":
        raise ValueError(
            f"model_type={short(params['model_type'])} of Mistral's params.json is not described here; "
            "give the model's config.json"
        )
    window = params.get("sliding_window", params.get("_sliding_window"))
    found = {
        "model_type": "mistral", "vocab_size": _whole(params, "vocab_size"), "intermediate_size": _whole(params, "hidden_dim"),
        "head_dim": _whole(params, "head_dim"), "tie_word_embeddings": params.get("tied_embeddings") or False,
        "sliding_window": None if window is None else size("sliding_window", window),
    }  # fmt: skip
    if (moe := params.get("moe")) is None:
        return found, ()
    if not isinstance(moe, Mapping) or set(moe) != {"num_experts", "num_experts_per_tok"}:
        raise ValueError(
            f"moe={short(moe)} of Mistral's params.json is not described here; give the model's config.json"
        )
    experts = {"num_local_experts": moe["num_experts"], "num_experts_per_tok": moe["num_experts_per_tok"]}
    return found | {"model_type": "mixtral"} | experts, ()


def _whole(params: Mapping[str, Any], key: str) -> Any:
    if params.get(key) is None:
        raise ValueError(f"params.json lacks {key!r}: add it")
    return size(key, params[key])
