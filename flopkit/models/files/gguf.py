"""The header of a GGUF file, llama.cpp's format: its keys in the words of a ``config.json``, and how many numbers its tensors hold.

Weights are not read. Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (format and keys); names of file types and of
tensors: gguf-py/gguf/constants.py in ggml-org/llama.cpp.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from flopkit.sizes import short

__all__ = ["FAMILIES", "Header", "header", "read"]

FAMILIES: Mapping[str, str] = {
    "llama": "llama", "qwen2": "qwen2", "qwen2moe": "qwen2_moe", "qwen3": "qwen3", "qwen3moe": "qwen3_moe", "gemma": "gemma",
    "gemma2": "gemma2", "gemma3": "gemma3_text", "phi3": "phi3",
}  # fmt: skip
"""The ``general.architecture`` of a file, and the ``model_type`` of the same layers; a llama with experts is a mixtral."""

_FORMATS = (
    "F32", "F16", "Q4_0", "Q4_1", "Q4_1 and F16", "", "", "Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S",
    "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ3_M",
    "IQ2_S", "IQ2_M", "IQ4_XS", "IQ1_M", "BF16", "", "", "", "TQ1_0", "TQ2_0", "MXFP4_MOE", "NVFP4", "Q1_0",
)  # fmt: skip
"""What the numbers of ``general.file_type`` stand for; nothing where support was removed."""

_PLAIN = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_MOST = 1 << 16  # entries of a list that is kept; of a longer one, such as the words, the length is
_TABLES = re.compile(r"(.*\.)?(rope_freqs|rope_factors_long|rope_factors_short)\.weight")  # angles, and nothing learned


class Header(NamedTuple):
    """The keys of a file, and the shape of each tensor, with the dimension that runs fastest first."""

    fields: Mapping[str, Any]
    tensors: Mapping[str, tuple[int, ...]]


class _Reader:
    """A file in one byte order, read from its beginning."""

    def __init__(self, file: BinaryIO, order: str) -> None:
        self.file, self.order = file, order

    def number(self, code: str) -> Any:
        form = self.order + code
        data = self.file.read(struct.calcsize(form))
        try:
            return struct.unpack(form, data)[0]
        except struct.error:
            raise ValueError("the file ends before its header does") from None

    def text(self) -> str:
        length = self.number("Q")
        if length > _MOST << 8:
            raise ValueError(f"a text of {length:,} bytes in its header")
        return self.file.read(length).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind in _PLAIN:
            return self.number(_PLAIN[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            raise ValueError(f"a value of type {kind}, which the format does not know")
        inner, length = self.number("I"), self.number("Q")
        if inner in _PLAIN and length > _MOST:
            self.file.seek(length * struct.calcsize(self.order + _PLAIN[inner]), 1)
            return range(length)
        if inner == _TEXT:
            for _ in range(length):
                self.file.seek(self.number("Q"), 1)
            return range(length)
        return [self.value(inner) for _ in range(length)]


def header(path: Path) -> Header:
    """What stands before the weights of a file, of version 2 or 3, little-endian or big-endian.

    Raises
    ------
    ValueError
        For another version, and for a file that ends too early.
    """
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError("no GGUF file")
        first = file.read(4)
        order = "<" if int.from_bytes(first, "little") < 1 << 16 else ">"
        reader = _Reader(file, order)
        version = int.from_bytes(first, "little" if order == "<" else "big")
        if version not in (2, 3):
            raise ValueError(f"version {version} of GGUF: versions 2 and 3 are read here; convert the file anew")
        tensors, fields = reader.number("Q"), reader.number("Q")
        found = {reader.text(): reader.value(reader.number("I")) for _ in range(fields)}
        shapes: dict[str, tuple[int, ...]] = {}
        for _ in range(tensors):
            name, dimensions = reader.text(), reader.number("I")
            if dimensions > 8:
                raise ValueError(f"a tensor of {dimensions} dimensions in its header")
            shapes[name] = tuple(reader.number("Q") for _ in range(dimensions))
            reader.number("I"), reader.number("Q")  # its number format, and where it begins
        return Header(found, shapes)


def read(path: Path) -> tuple[dict[str, Any], tuple[str, ...], int]:
    """The configuration of a file, notes, and how many numbers its tensors hold.

    Raises
    ------
    ValueError
        For an architecture that is not described here, for adapters and parts of models, and for one of several files
        where the others do not lie beside it.
    """
    try:
        fields, tensors = header(path)
        tensors = {**tensors, **_other_files(path, fields)}
        config = _config(fields, tensors)
    except ValueError as error:
        raise ValueError(f"{path}: a GGUF file: {error}") from None
    kind = fields.get("general.file_type")
    name = _FORMATS[kind] if isinstance(kind, int) and 0 <= kind < len(_FORMATS) else ""
    notes = (f"the file's weights are {name or f'of file_type {kind}'} (GGUF)",) if kind is not None else ()
    return config, notes, sum(prod(shape) for name, shape in tensors.items() if not _TABLES.fullmatch(name))


def _other_files(path: Path, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors in the other files of a model that lies in several."""
    count = fields.get("split.count", 1)
    if count <= 1:
        return {}
    found: dict[str, tuple[int, ...]] = {}
    for number in range(1, count + 1):
        name = re.sub(r"-\d{5}-of-\d{5}(?=\.gguf$)", f"-{number:05}-of-{count:05}", path.name)
        if not (part := path.with_name(name)).is_file():
            raise ValueError(
                f"one of {count} files, and {name} does not lie beside it; a model's layers are in all of them"
            )
        found |= header(part).tensors
    return found


def _config(fields: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    arch, kind = str(fields.get("general.architecture")), fields.get("general.type", "model")
    if kind != "model" or arch == "clip":
        raise ValueError(
            f"its general.type is {short('mmproj' if arch == 'clip' else kind)}: a part of a model; give the model's"
        )
    if arch not in FAMILIES:
        base = next(
            (fields[key] for key in ("general.base_model.0.repo_url", "general.repo_url") if key in fields), None
        )
        raise ValueError(
            f"its general.architecture {short(arch)} is not described here, only {', '.join(FAMILIES)}; give the config.json "
            f"of the model that it was made of{f', {base}' if base else ''}"
        )
    if "token_embd.weight" not in tensors:
        raise ValueError("it has no token_embd.weight: a file of words without weights; give the model's")

    def said(key: str) -> Any:
        return fields.get(f"{arch}.{key}")

    def need(key: str) -> Any:
        if (value := said(key)) is None:
            raise ValueError(f"it lacks {arch}.{key}")
        if isinstance(value, (list, range)):
            if len(set(value)) != 1:
                raise ValueError(f"{arch}.{key} differs from layer to layer, which is not described here")
            return value[0]
        return value

    heads, d_model = need("attention.head_count"), need("embedding_length")
    head_dim = said("attention.key_length") or (said("rope.dimension_count") if arch == "llama" else None)
    if (values := said("attention.value_length")) not in (None, head_dim):
        raise ValueError(f"{arch}.attention.value_length={values} differs from the length of keys, {head_dim}")
    config = {
        "model_type": FAMILIES[arch], "vocab_size": tensors["token_embd.weight"][-1], "hidden_size": d_model,
        "num_hidden_layers": need("block_count"), "num_attention_heads": heads,
        "num_key_value_heads": heads if said("attention.head_count_kv") is None else need("attention.head_count_kv"),
        "tie_word_embeddings": "output.weight" not in tensors,
        "hidden_act": "gelu_pytorch_tanh" if arch.startswith("gemma") else "silu",
    }  # fmt: skip
    config |= {"intermediate_size": need("feed_forward_length")} if said("feed_forward_length") is not None else {}
    if head_dim is not None or d_model % heads == 0:
        config["head_dim"] = d_model // heads if head_dim is None else head_dim
    return config | _of_family(arch, said, tensors, config)


def _of_family(arch: str, said: Any, tensors: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """What the families say besides."""
    found: dict[str, Any] = {}
    if said("expert_count"):
        experts = "num_local_experts" if arch == "llama" else "num_experts"
        found |= {experts: said("expert_count"), "num_experts_per_tok": said("expert_used_count")}
        found |= {"model_type": "mixtral", "sliding_window": None} if arch == "llama" else {}
        if arch != "llama":
            found |= {"moe_intermediate_size": said("expert_feed_forward_length"), "decoder_sparse_step": 1}
        found |= (
            {"shared_expert_intermediate_size": said("expert_shared_feed_forward_length") or 0}
            if arch == "qwen2moe"
            else {}
        )
    elif arch == "llama":
        found |= {"attention_bias": "blk.0.attn_q.bias" in tensors, "mlp_bias": "blk.0.ffn_up.bias" in tensors}
    if arch == "phi3" and said("rope.dimension_count") and (head_dim := config.get("head_dim")):
        found["partial_rotary_factor"] = said("rope.dimension_count") / head_dim
    window = said("attention.sliding_window")
    if arch in ("gemma2", "gemma3", "phi3", "llama") and window is not None:
        found["sliding_window"] = window or None
        found |= {"model_type": "mistral"} if arch == "llama" and window and not said("expert_count") else {}
    pattern = said("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        found["layer_types"] = ["sliding_attention" if each else "full_attention" for each in pattern]
    return found
