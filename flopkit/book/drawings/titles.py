"""Models under the names that people write: Llama-3-8B, where `flopkit.load` takes llama-3-8b."""

from __future__ import annotations

import re

__all__ = ["model_title"]

_WRITTEN = {
    "bert": "BERT", "deepseek": "DeepSeek", "gpt": "GPT", "gpt2": "GPT-2", "mpt": "MPT", "mt": "MT", "nlg": "NLG", "olmo": "OLMo",
    "oss": "oss", "palm": "PaLM", "vit": "ViT", "xl": "XL",
}  # fmt: skip
_SIZE = re.compile(r"(?:a|\d+x)?[\d.]+[bmt]")  # 8b, 8x7b, a22b


def model_title(name: str) -> str:
    """The name of a model as people write it.

    Examples
    --------
    >>> [model_title(name) for name in ("llama-3.1-405b", "gpt2", "deepseek-v3", "mixtral-8x7b")]
    ['Llama-3.1-405B', 'GPT-2', 'DeepSeek-V3', 'Mixtral-8x7B']
    """
    if name == "gpt-3-175b":  # the largest is meant where no size is said
        return "GPT-3"
    words = name.split("-")
    sizes = (
        re.sub(r"[abmt]", lambda letter: letter[0].upper(), word) if _SIZE.fullmatch(word) else "" for word in words
    )
    return "-".join(size or _WRITTEN.get(word) or word.capitalize() for word, size in zip(words, sizes, strict=True))
