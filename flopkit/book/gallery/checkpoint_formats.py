"""The formats of whole checkpoints, as the calculator offers them, and which of them a ``quantization_config`` names."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from flopkit.models.storage import stored

__all__ = ["STORED", "in_roles", "rules"]


def _bits(dtype: str) -> float:
    """Bits of a weight with its share of the scale: all are binary fractions, which a float holds exactly."""
    width = Fraction(stored(dtype).bits)
    assert width == float(width)
    return float(width)


def _layers(bits: float) -> dict[str, float]:
    return {"experts": bits, "layers": bits, "rest": 16}


BLOCKS, TENSORS = "fp8 in blocks; bf16 tables", "fp8; bf16 tables"
NVFP4, AWQ, NF4 = "nvfp4, 4.5 bits; bf16 tables", "awq or gptq, 4.16 bits; bf16 tables", "nf4, 4.13 bits; bf16 tables"
MXFP4 = "mxfp4 experts, 4.25 bits; bf16 rest"
STORED = {
    **{name: {"experts": bits, "layers": bits, "rest": bits} for name, bits in {"bf16": 16, "fp8 or int8": 8, "fp4 or int4": 4}.items()},
    MXFP4: {"experts": _bits("mxfp4"), "layers": 16, "rest": 16},
    TENSORS: _layers(8),
    BLOCKS: _layers(_bits("fp8_block")),
    NVFP4: _layers(_bits("nvfp4")),
    AWQ: _layers(_bits("awq")),
    NF4: _layers(_bits("nf4")),
}  # fmt: skip
"""Bits of a weight of the experts, of the other matrices of the layers, and of embedding, head, routers, norms and biases."""


class _Width(NamedTuple):
    bits: Any


def in_roles(option: Any) -> dict[str, _Width]:
    """An option of `STORED` as `Model.decode` takes the formats of weights."""
    layers = _Width(option.layers)
    return {"experts": _Width(option.experts), "attention": layers, "mlp": layers, "rest": _Width(option.rest)}


UNREAD = {
    "which modules stay as they are": [
        "modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules",
    ],
    "the format of its cache": ["kv_cache_scheme", "kv_cache_quant_algo"],
}  # fmt: skip
"""Keys that no rule looks at, under what they say."""


def _rule(option: str, only: Mapping[str, tuple[Any, ...]], left: str = "") -> dict[str, Any]:
    """*option* stands for a file each key of which has one of the values in *only*, None being a key that is missing or null."""
    unread = {} if option == MXFP4 else UNREAD  # whose loader packs the experts alone, whatever the list says
    return {"option": option, "only": {key: list(each) for key, each in only.items()}, "left": left, "unread": unread}


def rules(control: str, label: str) -> Mapping[str, Any]:
    """What the box for a ``config.json`` asks: the first rule that a file meets says the option of a *control*, else none does.

    ``first``: the option of a file without quantisation. ``plain``: types of unquantised weights that have 16 bits.
    """
    blocks = {"weight_block_size": ([128, 128],), "expert_dtype": (None, "fp8"), "modules_to_convert": (None, [])}
    modelopt = {"quant_method": ("modelopt",), "quantization": (None,)}
    groups = {"bits": (4,), "group_size": (128,)}
    version = {"version": (None, "gemm", "GEMM", "gemv", "GEMV", "marlin", "exllama")}
    formats = {"checkpoint_format": (None, "gptq", "gptq_v2"), "is_marlin_format": (None, False)}
    gptq: dict[str, tuple[Any, ...]] = {
        "quant_method": ("gptq",),
        "lm_head": (None, False),
        "dynamic": (None, {}),
        **formats,
    }
    bits = {"load_in_4bit": (True,), "load_in_8bit": (None, False)}
    nf4 = {"bnb_4bit_quant_type": ("nf4", "fp4", None), "bnb_4bit_use_double_quant": (True,)}
    return {
        "control": control,
        "label": label,
        "first": next(iter(STORED)),
        "plain": [None, "bfloat16", "float16"],
        "rules": [
            _rule(MXFP4, {"quant_method": ("mxfp4",)}),
            _rule(BLOCKS, {"quant_method": ("fp8",), **blocks}),
            _rule(NVFP4, {"quant_algo": ("NVFP4", "W4A16_NVFP4"), **modelopt}),
            _rule(TENSORS, {"quant_algo": ("FP8",), **modelopt}),
            _rule(AWQ, {"quant_method": ("awq",), **version, **groups}),
            _rule(AWQ, {**gptq, **groups}, "the order of its groups"),
            _rule(NF4, {"quant_method": ("bitsandbytes", None), **bits, **nf4}),
        ],
    }
