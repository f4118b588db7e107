"""Which part of a ``config.json`` of a model of text and more is its decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit.models.architectures import ARCHITECTURES, SAME, WHOLE
from flopkit.models.files.config_fields import KEYS, TEXT_PARTS, TIED, left_out
from flopkit.sizes import flag

__all__ = ["part_for_text", "says", "whole_types"]

TEXT_TYPES = {
    "aya_vision": "cohere2", "cohere2_vision": "cohere2", "deepseek_vl": "llama", "deepseek_vl_hybrid": "llama", "exaone4_5": "exaone4",
    "glm46v": "glm4v_text", "granite_speech": "granite", "idefics2": "mistral", "idefics3": "llama", "internvl": "qwen2",
    "janus": "llama", "kimi_k25": "deepseek_v3", "lfm2_vl": "lfm2", "lighton_ocr": "qwen3", "llava": "llama", "llava_next": "llama",
    "llava_next_video": "llama", "llava_onevision": "qwen2", "mistral3": "mistral", "mllama": "mllama_text_model",
    "ovis2": "qwen2", "paligemma": "gemma",
    "perception_lm": "llama", "qianfan_ocr": "qwen3", "qwen2_audio": "qwen2", "shieldgemma2": "gemma3_text", "smolvlm": "llama",
    "video_llama_3": "qwen2", "video_llava": "llama", "vipllava": "llama", "voxtral": "llama",
}  # fmt: skip
"""The ``model_type`` of the part for text, where a file leaves it out and it is not that of the whole with ``_text``."""

FLAT = {
    "qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "llava_llama": "llama", "llava_mistral": "mistral",
    "llava_qwen": "qwen2", "phi3_v": "phi3",
}  # fmt: skip
"""Models of which early files have the numbers of the decoder among those of the whole, and the ``model_type`` of that decoder."""

FLAT_CLASSES = {"llava": {"LlavaLlamaForCausalLM": "llama"}}
"""The same, where the class alone tells an early file from a later one."""

HANDED_ON = (
    "fast_vlm", "glm4v", "glm4v_moe", "glm_ocr", "hunyuan_vl", "llava", "llava_next_video", "llava_onevision", "minimax_m3_vl",
    "paddleocr_vl", "qwen2_5_vl", "qwen2_vl", "shieldgemma2", "video_llama_3",
)  # fmt: skip
"""Models that are tied where the part for text says so, whatever the whole says."""

OF_THE_PART = ("llama4", "vibevoice")
"""Models that are tied where the part for text says so, and not where the whole does."""

UNTIED = ("audioflamingo3", "musicflamingo", "qwen2_audio", "vibevoice_asr", "voxtral")
"""Models whose head transformers never ties, whatever a file says."""

LABELS = ("id2label", "num_labels", "_num_labels")

OLDER, PREFIX = "tie_embedding", "use_bidirectional_attention"


def part_for_text(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, list[str]]:
    """The configuration of the decoder, the ``model_type`` of the whole, and the parts that are left out.

    A configuration that is its own decoder comes back as it is, and so does one whose decoder is not found.

    Raises
    ------
    ValueError
        Where whole and part contradict each other on whether the head is the embedding's table.

    Examples
    --------
    >>> config = {"model_type": "llava_next", "text_config": {"hidden_size": 4096}, "vision_config": {}}
    >>> inner, outer, left = part_for_text(config)
    >>> inner["model_type"], outer, left
    ('llama', 'llava_next', ['vision_config'])
    """
    outer = config.get("model_type")
    outer = outer if isinstance(outer, str) else ""
    if outer in WHOLE:
        return config, outer, []
    inside = next((key for key in TEXT_PARTS if isinstance(config.get(key), Mapping)), None)
    own = any(key in config for key in KEYS["d_model"])
    parts = [
        key
        for key, value in config.items()
        if key.endswith("_config") and key != "quantization_config" and isinstance(value, Mapping)
    ]
    if SAME.get(outer, outer) in ARCHITECTURES and (own or inside is None):
        return config, outer, [key for key in parts if "hidden_size" in config[key]]
    if inside is None:
        kind = FLAT.get(outer) or _by_class(outer, config.get("architectures"))
        if kind is None or not own:
            return config, outer, []
        return (
            {**config, "model_type": kind},
            outer,
            [key for key in (*parts, "mm_vision_tower", "img_processor") if key in config],
        )
    left = [key for key in parts if key != inside]
    said = {"model_type": _type_of_part(outer), **config[inside]}
    if outer == "paligemma" and said.get(PREFIX) is True:  # of pictures and prompts; transformers says it in each file
        del said[PREFIX]
    said = {key: value for key, value in said.items() if key not in LABELS}  # a head reads those of the whole
    above = {key: config[key] for key in ("architectures", "_name_or_path", *LABELS) if key in config}
    tied = _tied(config, outer, inside)
    if outer in UNTIED and flag(TIED, tied.get(TIED, said.get(TIED, False))):
        raise ValueError(
            f"{TIED}=True: transformers does not tie the head of a {outer} to its embedding, whatever the file says; set it to false"
        )
    inner, _, more = part_for_text(said | above | tied)
    return inner, outer or str(inner.get("model_type")), left + more


def says(config: Mapping[str, Any], key: str) -> bool:
    """Whether a configuration, or a part of it for text, says something under a key.

    >>> says({"text_config": {"hidden_size": 8}}, "hidden_size"), says({"vision_config": {"hidden_size": 8}}, "hidden_size")
    (True, False)
    """
    inside = (config[part] for part in TEXT_PARTS if isinstance(config.get(part), Mapping))
    return config.get(key) is not None or any(says(each, key) for each in inside)


def _by_class(outer: str, classes: Any) -> str | None:
    first = classes[0] if isinstance(classes, list) and len(classes) == 1 else None
    return FLAT_CLASSES.get(outer, {}).get(first) if isinstance(first, str) else None


def _type_of_part(outer: str) -> str | None:
    kind = TEXT_TYPES.get(outer, f"{outer}_text")
    return kind if SAME.get(kind, kind) in ARCHITECTURES else None


def _tied(config: Mapping[str, Any], outer: str, inside: str) -> dict[str, Any]:
    """Whether the head is the embedding's table, as transformers has it: the whole says it, and the part where that is handed on.

    Nothing where transformers does not know the whole, and the file says it of the part alone or not at all.
    """
    if outer in OF_THE_PART:
        return {}
    if outer == "lfm2_vl" and (OLDER in config or OLDER in config[inside]):  # which wins where it stands
        part = {**config[inside]}
        part |= {TIED: part.pop(OLDER)} if OLDER in part else {}
        plain = {key: value for key, value in config.items() if key != OLDER} | {inside: part}
        found = _tied(plain | ({TIED: config[OLDER]} if OLDER in config else {}), outer, inside)
        return found | {OLDER: found[TIED]}
    within = config[inside].get(TIED)
    usual = None if SAME.get(outer, outer) in ARCHITECTURES else left_out(outer).get(TIED)
    handed = (
        left_out(str(config[inside].get("model_type") or _type_of_part(outer))).get(TIED) if within is None else within
    )
    if outer in HANDED_ON and handed is not None and flag(f"{inside}.{TIED}", handed):
        return {TIED: True}
    if config.get(TIED) is not None:
        return {TIED: config[TIED]}
    if usual is None:
        return {}
    if (within is not None and within != usual) or (within is None and usual and handed is False):
        saved_by = str(config.get("transformers_version") or "")
        if saved_by.startswith("4."):  # which asks the part, and leaves out what is a default
            return {TIED: handed}
        if within is None and saved_by.startswith("5."):
            return {TIED: usual}
        raise ValueError(_open(outer, inside, within, usual))
    return {TIED: usual}


def _open(outer: str, inside: str, within: Any, usual: Any) -> str:
    """What to say where a file leaves open whether the head is the embedding's table."""
    add = f"add it beside model_type={outer!r}: false where the checkpoint has a head of its own"
    if within is not None:
        return f"{TIED} is {within} in {inside}, and missing of the whole, where transformers takes {usual} for a {outer}; {add}"
    return (
        f"{TIED} is missing: transformers 5 takes {usual} for a {outer}, transformers 4 the default of its {inside}, "
        f"which is {not usual}, and no transformers_version says which of the two saved this file; {add}"
    )


def whole_types() -> dict[str, dict[str, Any]]:
    """What is known of each model of text and more, as data for a page without Python.

    *type*: the ``model_type`` of its decoder, where the file leaves it out; *flat*: where its numbers stand in the whole; *classes*: the
    same by the class that the file names; *tied*: what is taken where the whole does not say it; *handed*: whether the decoder's word
    on it is enough; *part*: whether nothing else is asked; *never*: whether a tie is refused.

    >>> whole_types()["llava_next"]
    {'type': 'llama', 'flat': None, 'classes': {}, 'tied': False, 'handed': False, 'part': False, 'never': False}
    """
    known = {*ARCHITECTURES, *SAME}
    usual = {kind.removesuffix("_text") for kind in known if kind.endswith("_text")} - known
    return {
        outer: {
            "type": _type_of_part(outer),
            "flat": FLAT.get(outer),
            "classes": FLAT_CLASSES.get(outer, {}),
            "tied": left_out(outer).get(TIED),
            "handed": outer in HANDED_ON,
            "part": outer in OF_THE_PART,
            "never": outer in UNTIED,
        }
        for outer in sorted({*TEXT_TYPES, *FLAT, *usual, *OF_THE_PART, *UNTIED})
    }
