"""Other names of the models that flopkit knows: their ids on the Hugging Face Hub, and what people call them.

An id stands for a model only where its publisher has put out the same architecture under it: fine-tunes of the publisher's own, such as
``-Instruct``, whose ``config.json`` has the same sizes. Others' fine-tunes, and later versions with other sizes, are not among them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from flopkit.names import plain

__all__ = ["alias_of", "spellings"]


class Family(NamedTuple):
    """Who publishes the models of a family, and which endings name the same architecture."""

    publishers: tuple[str, ...]
    endings: tuple[str, ...] = ()


FAMILIES: Mapping[str, Family] = {
    "llama-2": Family(("meta-llama",), ("hf", "chat-hf")),
    "llama-3": Family(("meta-llama",), ("instruct",)),
    "codellama": Family(("codellama", "meta-llama")),
    "qwen2": Family(("Qwen",), ("instruct",)),
    "qwen2.5": Family(("Qwen",), ("instruct",)),
    "qwen3": Family(("Qwen",)),
    "qwen3-vl": Family(("Qwen",), ("instruct", "thinking")),
    "qwen3-next": Family(("Qwen",), ("instruct", "thinking")),
    "qwen3-coder": Family(("Qwen",), ("instruct",)),
    "gemma": Family(("google",), ("it", "pt")),
    "deepseek": Family(("deepseek-ai",), ("base", "chat")),
    "kimi": Family(("moonshotai",), ("instruct", "base")),
    "gpt-oss": Family(("openai",)),
    "gpt2": Family(("openai-community",)),
    "gpt-neo": Family(("EleutherAI",)),
    "gpt-j": Family(("EleutherAI",)),
    "pythia": Family(("EleutherAI",), ("deduped",)),
    "falcon": Family(("tiiuae",), ("instruct",)),
    "opt": Family(("facebook",)),
    "bart": Family(("facebook",)),
    "nllb": Family(("facebook",)),
    "bloom": Family(("bigscience",)),
    "phi": Family(("microsoft",)),
    "deberta": Family(("microsoft",)),
    "smollm": Family(("HuggingFaceTB",), ("instruct", "base")),
    "tinyllama": Family(("TinyLlama",)),
    "starcoder2": Family(("bigcode",)),
    "glm": Family(("zai-org", "THUDM"), ("base",)),
    "minimax": Family(("MiniMaxAI",)),
    "exaone": Family(("LGAI-EXAONE",)),
    "aya": Family(("CohereLabs", "CohereForAI")),
    "ernie": Family(("baidu",), ("pt", "base-pt")),
    "olmo": Family(("allenai",)),
    "roberta": Family(("FacebookAI",)),
    "xlm-roberta": Family(("FacebookAI",)),
    "bert": Family(("google-bert",)),
    "distilbert": Family(("distilbert",)),
    "modernbert": Family(("answerdotai",)),
    "nomic": Family(("nomic-ai",)),
    "bge": Family(("BAAI",)),
    "all-": Family(("sentence-transformers",)),
    "t5": Family(("google-t5",)),
    "flan-t5": Family(("google",)),
    "whisper": Family(("openai",)),
    "clip": Family(("openai",)),
    "vit": Family(("google",)),
    "nemotron": Family(("nvidia",)),
    "mistral": Family(("mistralai",)),
    "mixtral": Family(("mistralai",)),
    "stablelm": Family(("stabilityai",)),
    "ministral": Family(("mistralai",)),
    "qwq": Family(("Qwen",)),
    "qwen1.5": Family(("Qwen",), ("chat",)),
    "seed-oss": Family(("ByteDance-Seed",), ("base", "instruct")),
    "apertus": Family(("swiss-ai",), ("2509", "instruct-2509")),
    "jamba": Family(("ai21labs",)),
    "dbrx": Family(("databricks",), ("base", "instruct")),
    "hunyuan": Family(("tencent",), ("instruct", "pretrain")),
    "mimo": Family(("XiaomiMiMo",)),
    "minicpm": Family(("openbmb",)),
    "falcon3": Family(("tiiuae",), ("base", "instruct")),
    "siglip": Family(("google",)),
    "dinov3": Family(("facebook",), ("pretrain-lvd1689m",)),
    "gte": Family(("thenlper",)),
    "e5": Family(("intfloat",)),
    "solar": Family(("upstage",)),
}
"""By how the names begin; the longest beginning counts."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "llama-3-8b": ("Meta-Llama-3-8B", "Meta-Llama-3-8B-Instruct"),
    "llama-3-70b": ("Meta-Llama-3-70B", "Meta-Llama-3-70B-Instruct"),
    "llama-3.1-8b": ("Meta-Llama-3.1-8B", "Meta-Llama-3.1-8B-Instruct"),
    "llama-3.1-70b": ("Meta-Llama-3.1-70B", "Meta-Llama-3.1-70B-Instruct"),
    "llama-3.1-405b": ("Meta-Llama-3.1-405B", "Meta-Llama-3.1-405B-Instruct"),
    "llama-4-scout": ("Llama-4-Scout-17B-16E", "Llama-4-Scout-17B-16E-Instruct"),
    "llama-4-maverick": ("Llama-4-Maverick-17B-128E", "Llama-4-Maverick-17B-128E-Instruct"),
    "mistral-7b": ("Mistral-7B-v0.1", "Mistral-7B-Instruct-v0.1"),
    "mixtral-8x7b": ("Mixtral-8x7B-v0.1", "Mixtral-8x7B-Instruct-v0.1"),
    "mixtral-8x22b": ("Mixtral-8x22B-v0.1",),
    "tinyllama-1.1b": ("tinyllama", "TinyLlama-1.1B-Chat-v1.0"),
    "olmo-2-7b": ("OLMo-2-1124-7B", "OLMo-2-1124-7B-Instruct"),
    "olmo-2-13b": ("OLMo-2-1124-13B", "OLMo-2-1124-13B-Instruct"),
    "olmo-2-32b": ("OLMo-2-0325-32B", "OLMo-2-0325-32B-Instruct"),
    "olmo-7b": ("OLMo-7B-hf",),
    "bert-base": ("bert-base-uncased",),
    "bert-large": ("bert-large-uncased",),
    "distilbert-base": ("distilbert-base-uncased",),
    "vit-b-16": ("vit-base-patch16-224",),
    "bloom-176b": ("bloom",),
    "deepseek-v3": ("DeepSeek-V3-0324",),
    "deepseek-r1": ("DeepSeek-R1-0528",),
    "mistral-7b-v0.3": ("Mistral-7B-Instruct-v0.3",),
    "mistral-large-2": ("Mistral-Large-Instruct-2407", "Mistral-Large-Instruct-2411", "mistral-large-2-123b"),
    "ministral-3-8b": ("Ministral-3-8B-Base-2512", "Ministral-3-8B-Instruct-2512"),
    "qwen3-coder-480b-a35b": ("qwen3-coder-480b",),
    "qwen3-next-80b-a3b": ("qwen3-next", "qwen3-next-80b"),
    "kimi-linear-48b-a3b": ("kimi-linear", "kimi-linear-48b"),
    "dbrx": ("dbrx-132b",),
    "jamba-1.5-mini": ("AI21-Jamba-1.5-Mini",),
    "solar-10.7b": ("SOLAR-10.7B-v1.0", "SOLAR-10.7B-Instruct-v1.0"),
    "olmoe-1b-7b": ("OLMoE-1B-7B-0924", "OLMoE-1B-7B-0924-Instruct", "OLMoE-1B-7B-0125", "OLMoE-1B-7B-0125-Instruct"),
    "olmo-3-32b": ("Olmo-3-1125-32B", "Olmo-3-32B-Think"),
    "nemotron-nano-9b-v2": ("NVIDIA-Nemotron-Nano-9B-v2",),
    "nemotron-nano-12b-v2": ("NVIDIA-Nemotron-Nano-12B-v2",),
    "nemotron-h-8b": ("Nemotron-H-8B-Base-8K",),
    "e5-mistral-7b": ("e5-mistral-7b-instruct",),
}
"""Other names than those that the endings make."""


def alias_of(text: str, known: Collection[str]) -> str:
    """The one of the *known* names that another name, or an id on the Hub, stands for, else nothing.

    >>> alias_of("Qwen/Qwen2.5-7B-Instruct", ["qwen2.5-7b"]), alias_of("somebody/Qwen2.5-7B", ["qwen2.5-7b"])
    ('qwen2.5-7b', '')
    """
    publisher, _, name = text.rpartition("/")
    meant = _names(tuple(known)).get(plain(name), "")
    if not meant:
        return ""
    family = _family(meant)
    own = family is not None and publisher.lower() in (each.lower() for each in family.publishers)
    return meant if own or not publisher else ""


def spellings(known: Collection[str]) -> dict[str, str]:
    """Everything that stands for one of the *known* names, without what `plain` leaves out: names, other names, ids on the Hub.

    >>> found = spellings(["qwen2.5-7b"])
    >>> found["qwen257b"], found["qwen/qwen257binstruct"]
    ('qwen2.5-7b', 'qwen2.5-7b')
    """
    found = dict(_names(tuple(known)))
    for spelled, name in list(found.items()):
        family = _family(name)
        for publisher in family.publishers if family else ():
            found[f"{plain(publisher)}/{spelled}"] = name
    return found


def _family(name: str) -> Family | None:
    begin = max((each for each in FAMILIES if name.startswith(each)), key=len, default=None)
    return None if begin is None else FAMILIES[begin]


@lru_cache(maxsize=4)
def _names(known: tuple[str, ...]) -> dict[str, str]:
    """What each spelling stands for: asked for with every name that is loaded."""
    found = {plain(each): each for each in known}
    for name in known:
        family = _family(name)
        others = [f"{name}-{ending}" for ending in (family.endings if family else ())]
        for other in (*others, *NAMES.get(name, ())):
            found.setdefault(plain(other), name)
    return found
