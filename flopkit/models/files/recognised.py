"""Files that lie beside a ``config.json`` and are none: what each is, by its keys or its first bytes, and what to give instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flopkit import units
from flopkit.models.files.unknown_types import draft_model
from flopkit.sizes import short

__all__ = ["instead_of_json", "typed", "unwrapped", "weights"]

CONFIG = "give the config.json of the model"


def weights(head: bytes) -> str:
    """What a file of weights is, by its first bytes; nothing for another file.

    >>> weights(b"\\x80\\x02}q\\x00")
    'a pickle: weights or another object of Python, which is not opened here; give the config.json beside it'
    """
    beside = "give the config.json beside it"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return f"a safetensors file: weights; {beside}"
    if head[:2] == b"PK":
        return (
            f"a zip file, such as torch.save writes (pytorch_model.bin): weights, which are not opened here; {beside}"
        )
    if head[:1] == b"\x80" and 2 <= int.from_bytes(head[1:2], "little") <= 5:
        return f"a pickle: weights or another object of Python, which is not opened here; {beside}"
    if head[:4] == b"\x89HDF":
        return f"an HDF5 file (tf_model.h5): weights; {beside}"
    if head[:4] in (b"ggml", b"tjgg", b"lmgg", b"fmgg"):
        return f"a GGML file, older than GGUF: convert it, or {CONFIG}"
    return ""


def instead_of_json(data: bytes, place: int) -> str:
    """What a text is that is no JSON, and what to do; nothing where that is not seen. *place*: the first sign that does not fit.

    >>> instead_of_json(b'{"a": 1,}', 8)
    'a comma stands before a closing bracket: remove it'
    >>> instead_of_json(b"{'a': True}", 1)
    'this is a dictionary of Python: pass it itself, fk.from_hf({…})'
    """
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    if text.startswith("version https://git-lfs"):
        return "this is a pointer of Git LFS: git lfs pull brings the file"
    if text.lstrip()[:1] == "<":
        return "this is a page of the web: download the file itself, such as …/resolve/main/config.json"
    if text[place:].lstrip()[:1] in ("}", "]") and text[:place].rstrip().endswith(","):
        return "a comma stands before a closing bracket: remove it"
    if text[place:].startswith(("//", "/*", "#")):
        return "JSON has no comments: remove them"
    if text[place:].startswith(("'", "True", "False", "None")):
        return "this is a dictionary of Python: pass it itself, fk.from_hf({…})"
    if not text.strip():
        return "there is nothing in it"
    if text.lstrip().startswith("```"):
        return "it stands between signs of Markdown: remove them"
    left = text[place:].strip()
    if text.lstrip()[:1] in ("{", "[") and (not left or (left[0] == '"' and left.count('"') == 1)):
        return "the file ends early: copy it again"
    return ""


def unwrapped(config: Any, given: str = "") -> Mapping[str, Any]:
    """The configuration in what a file holds, with an error for what holds none.

    A list with one dictionary and ``{"config": {…}}``, as the Hub's API answers, hold one.

    >>> unwrapped([{"config": {"model_type": "llama", "hidden_size": 4096}}])["model_type"]
    'llama'
    """
    if isinstance(config, list) and config and all(isinstance(each, Mapping) for each in config):
        if {"path", "type"} <= set(config[0]):
            raise ValueError(
                f"this is modules.json, the parts of a sentence-transformers model; {CONFIG}, which lies beside it"
            )
        if len(config) == 1:
            return unwrapped(config[0], given)
        raise ValueError(f"this is a list of {len(config)} dictionaries: give one of them")
    if not isinstance(config, Mapping):
        raise TypeError(f"config={given or short(config)}: must be a dictionary or the path of a config.json")
    inner = config.get("config")
    if isinstance(inner, Mapping) and not isinstance(config.get("model_type"), str):
        said = config.get("modelId") or config.get("id")
        if said and not _sized(inner):
            raise ValueError(
                f"this is what the Hub's API says of {short(said)}, whose config has no sizes, only "
                f"{', '.join(map(repr, inner)) or 'nothing'}; give the model's config.json, or fk.from_hf({str(said)!r})"
            )
        return unwrapped(inner, given)
    whole = isinstance(config.get("model_type"), str)
    if any(key in config for key in _DRAFTS):
        raise ValueError(draft_model(config.get("architectures")))
    for keys, what in (*_TYPED, *(() if whole else _SIZED)):
        if set(keys) <= set(config):
            raise ValueError(what)
    for keys, text in _KNOWN:
        sized = _sized(config) and (whole or isinstance(text, str))  # old files have no model_type
        if set(keys) <= set(config) and not sized:
            raise ValueError(text if isinstance(text, str) else text(config))
    return config


def typed() -> list[tuple[list[str], str]]:
    """Keys that together tell a file with a ``model_type`` that is none of a model by itself, and what it is.

    >>> typed()[0][0]
    ['draft_vocab_size']
    """
    return [*(([key], draft_model(None)) for key in _DRAFTS), *(([*keys], what) for keys, what in _TYPED)]


def _sized(config: Mapping[str, Any]) -> bool:
    """Whether a configuration has sizes, in itself or in a part."""
    widths = (
        "hidden_size",
        "n_embd",
        "d_model",
        "dim",
        "emb_dim",
        "embed_dim",
        "hidden_sizes",
        "embed_dims",
        "hidden_dim",
    )
    inner = (value for value in config.values() if isinstance(value, Mapping))
    return any(key in config for key in widths) or any(any(key in each for key in widths) for each in inner)


def _index(config: Mapping[str, Any]) -> str:
    about = config.get("metadata")
    total = about.get("total_size") if isinstance(about, Mapping) else None
    size = f", {units.si(total, 'B')} in all" if isinstance(total, (int, float)) else ""
    return f"this is the index of weights in several files{size}; {CONFIG}, which lies beside it"


def _adapter(config: Mapping[str, Any]) -> str:
    kind, rank = config.get("peft_type"), config.get("r")
    base = config.get("base_model_name_or_path")
    said = f"an adapter ({short(kind)}{f', r={rank}' if isinstance(rank, int) else ''})" if kind else "an adapter"
    lora = f" Its training step: model.train_step(seq=…, trained=fk.LoRA(rank={rank}))" if isinstance(rank, int) else ""
    return f"this is {said} of {short(base) if base else 'a model that it does not name'}: give that model.{lora}"


def _pipeline(config: Mapping[str, Any]) -> str:
    parts = {
        key: value[-1] for key, value in config.items() if isinstance(value, list) and len(value) == 2 and value[-1]
    }
    listed = ", ".join(f"{key}/ ({name})" for key, name in parts.items()) or "other folders"
    text = next((f"; {key}/config.json can be given" for key in parts if key.startswith("text_encoder")), "")
    return f"this is model_index.json, a {short(config['_class_name'])} of diffusers made of {listed}{text}; count others by fk.count(model, *inputs)"


def _class_name(config: Mapping[str, Any]) -> str:
    if any(isinstance(value, list) and len(value) == 2 and isinstance(value[-1], str) and key.islower()
           and value[0] in ("diffusers", "transformers") for key, value in config.items()):  # fmt: skip
        return _pipeline(config)
    return (
        f"this configures a {short(config['_class_name'])} of diffusers, which has no closed form here; build it from this "
        "file, and count it: fk.count(model, *inputs)"
    )


def _timm(config: Mapping[str, Any]) -> str:
    name = str(config["architecture"])
    known = _OF_TIMM.get(name.partition(".")[0], "")
    said = (
        f"load it by its name: fk.load({known!r}), with 1,000 classes"
        if known
        else ("build it by timm, and count it: fk.count(timm.create_model(…), images)")
    )
    return f"this is timm's config.json of a {short(name)}, which names no sizes; {said}"


_OF_TIMM = {
    name: name for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "vgg11", "vgg13", "vgg16", "vgg19", "efficientnet_b0")
} | {"mobilenetv2_100": "mobilenet_v2", "vit_base_patch16_224": "vit-b-16"}  # fmt: skip
"""What timm calls models that `flopkit.load` has under a name, with the same parameters."""


_DRAFTS = ("draft_vocab_size", "eagle_config", "dflash_config", "speculators_config")
"""Keys of which one tells a draft model."""

_TYPED = (
    (("model_config", "context_window_size"), f"this is mlc-chat-config.json, in MLC's words; {CONFIG} that it was compiled from"),
    (("model_format", "model_family"), "this is what Ollama says of a GGUF file; give the GGUF file, or the config.json of the model"),
)  # fmt: skip
"""Keys that tell a file for another program that has a model_type, and what to say."""

_SIZED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("pretrained_config", "build_config"), f"this is config.json of an engine of TensorRT-LLM; {CONFIG} that it was built from"),
    (("moe_inter_dim", "dim"), f"this is for DeepSeek's own inference code; {CONFIG}, which lies beside its weights"),
    (("experts_per_token", "swiglu_limit"), f"this is original/config.json of a gpt-oss, in other words; {CONFIG}, one folder above"),
    (("ssm_cfg", "d_model"), f"this is for the code of state-spaces/mamba; {CONFIG} in transformers' words, such as that of state-spaces/mamba-130m-hf"),
    (("embed_dim", "vision_cfg", "text_cfg"), "this is for open_clip, in other words; give the config.json of the same model in transformers' words, or count it: fk.count(model, images, text)"),
)  # fmt: skip
"""Keys that tell a file with sizes in it that is for another program, and what to say."""

_TOKENIZER = f"this is tokenizer_config.json, about words and not about sizes; {CONFIG}, which lies beside it"
_GENAI = f"this is genai_config.json, of ONNX Runtime; {CONFIG} that it was exported from"
_QUANTIZED = f"this is about formats and not about sizes; {CONFIG}, which lies beside it"
_PREPROCESSOR = (
    f"this is preprocessor_config.json, about the inputs and not about sizes; {CONFIG}, which lies beside it"
)
_GENERATION = f"this is generation_config.json, about sampling and not about sizes; {CONFIG}, which lies beside it"
_KNOWN: tuple[tuple[tuple[str, ...], str | Callable[[Mapping[str, Any]], str]], ...] = (
    (("weight_map",), _index),
    (("base_model_name_or_path",), _adapter),
    (("peft_type",), _adapter),
    (("_class_name",), _class_name),
    (("architecture", "pretrained_cfg"), _timm),
    (("architecture", "num_classes"), _timm),
    (("image_processor_type",), _PREPROCESSOR),
    (("feature_extractor_type",), _PREPROCESSOR),
    (("do_resize", "image_mean"), _PREPROCESSOR),
    (
        ("added_tokens", "pre_tokenizer"),
        f"this is tokenizer.json, about words and not about sizes; {CONFIG}, which lies beside it",
    ),
    (("added_tokens_decoder",), _TOKENIZER),
    (("chat_template",), _TOKENIZER),
    (("tokenizer_class", "model_max_length"), _TOKENIZER),
    (("_from_model_config",), _GENERATION),
    (("do_sample",), _GENERATION),
    (("model", "search"), _GENAI),
    (("general.architecture",), "this is the metadata of a GGUF file; give the GGUF file itself"),
    (
        ("pooling_mode_mean_tokens",),
        f"this is 1_Pooling/config.json of sentence-transformers, about a mean; {CONFIG}, one folder above",
    ),
    (
        ("producer", "quantization"),
        f"this is hf_quant_config.json, about formats and not about sizes; {CONFIG}, which lies beside it",
    ),
    (("w_bit", "q_group_size"), _QUANTIZED),
    (("bits", "group_size", "desc_act"), _QUANTIZED),
    (("log_history", "global_step"), f"this is trainer_state.json, about a run and not about sizes; {CONFIG}"),
)
"""Keys that tell such a file, and what to say."""
