"""Sizes that a file has in other words than its family, beside the default that would stand in for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit.models.files.config_fields import Fields

__all__ = ["SAME_SIZE", "in_other_words"]

SAME_SIZE = (
    ("hidden_size", "d_model", "n_embd", "n_embed", "hidden_dim", "embed_dim", "emb_dim", "model_dim", "dim"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    ("intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size", "ffn_embed_dim", "ffn_hidden_dim", "intermediate_dim"),
    ("num_key_value_heads", "n_kv_heads", "num_kv_heads", "num_query_groups", "n_query_groups"),
    ("vocab_size", "n_vocab", "padded_vocab_size", "vocabulary_size"),
)  # fmt: skip
"""What files call one size, each family in one or two of these words."""

OF_OTHER_TOOLS = ("model_config", "pretrained_config", "hf_config")
"""Parts in which other tools, MLC and TensorRT-LLM among them, keep the sizes of a model."""


def in_other_words(c: Fields) -> None:
    """Refuse a file where a default was taken for a size that stands there under another name, or in a part that is not read.

    Raises
    ------
    ValueError
        With both names, and the value.

    Examples
    --------
    >>> c = Fields({"hidden_dim": 1024}, "bloom", {"hidden_size": 64})
    >>> c.need("d_model")
    64
    >>> in_other_words(c)
    Traceback (most recent call last):
    ...
    ValueError: hidden_size is missing, and hidden_dim=1024 stands here, which is no key of a bloom: call it hidden_size
    """
    parts = {f"{key}.": c.fields[key] for key in OF_OTHER_TOOLS if isinstance(c.fields.get(key), Mapping)}
    for key in c.taken:
        words = next((words for words in SAME_SIZE if key in words), ())
        for place, part in {"": c.fields, **parts}.items():
            for word in words:
                if (
                    (key, place) != (word, "")
                    and (place or word not in c.left_out)
                    and _is_another(part, word, c.taken[key])
                ):
                    what = "which is not read there" if place else f"which is no key of a {c.kind}"
                    raise ValueError(
                        f"{key} is missing, and {place}{word}={part[word]} stands here, {what}: call it {key}"
                    )


def _is_another(part: Mapping[str, Any], word: str, taken: Any) -> bool:
    """Whether a size stands under a word that is not the one that was *taken*."""
    said = part.get(word)
    return isinstance(said, int) and not isinstance(said, bool) and said != taken
