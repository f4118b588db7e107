"""Number formats: their names, and how many bytes a tensor of them takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from flopkit.arithmetic import ceil_div
from flopkit.names import hint, plain

if TYPE_CHECKING:
    import numpy
    import torch

__all__ = ["DType", "bits", "canonical", "format_of", "is_complex", "names", "nbytes", "real"]


class _HasBits(Protocol):
    @property
    def bits(self) -> Any: ...


if TYPE_CHECKING:
    DType: TypeAlias = str | type | _HasBits | numpy.dtype[Any] | torch.dtype
else:  # the same, for those who read annotations without loading either
    DType = str | type | _HasBits
"""A number format: a name such as ``"bf16"``, ``torch.bfloat16``, ``numpy.float32``, or anything with a width in ``.bits``."""

_OF_WIDTH = {  # tf32 is an arithmetic mode: the tensors are stored as fp32
    128: "complex128",
    64: "complex64 fp64 int64 uint64",
    32: "complex32 fp32 tf32 int32 uint32",
    16: "bf16 fp16 int16 uint16",
    8: "fp8 int8 uint8 bool",
    6: "fp6",
    4: "fp4 int4",
}
_BITS = {name: width for width, names in _OF_WIDTH.items() for name in names.split()}

_SPELLINGS = {
    "fp64": "float64 double",
    "fp32": "float32 float single",
    "tf32": "tfloat32",
    "bf16": "bfloat16",
    "fp16": "float16 half",
    # e8m0 is the scale of a block, without significand
    "fp8": "float8 e4m3 e5m2 float8e4m3fn float8e5m2 float8e4m3fnuz float8e5m2fnuz float8e8m0fnu fp8e4m3 fp8e5m2 mxfp8",
    "fp6": "float6 mxfp6",
    "fp4": "float4 nvfp4 mxfp4",
    "int64": "long",
    "int32": "int",
    "int16": "short",
    "complex32": "chalf",
    "complex64": "cfloat",
    "complex128": "cdouble",
}
_ALIASES = {spelled: name for name, spellings in _SPELLINGS.items() for spelled in spellings.split()}

_OFTEN = ("bf16", "fp16", "fp32", "fp8", "fp4", "int8", "tf32", "fp64")
_PYTHON = {float: "fp64", int: "int64", bool: "bool", complex: "complex128"}  # what torch and NumPy take them for


def names() -> list[str]:
    """The canonical names, widest first.

    >>> names()[:3]
    ['complex128', 'complex64', 'fp64']
    """
    return list(_BITS)


def _often(name: str) -> int:
    """Where an error lists *name*: first the formats that models are trained and served in."""
    return _OFTEN.index(name) if name in _OFTEN else len(_OFTEN)


def canonical(dtype: DType) -> str:
    """The canonical name of *dtype*: a name, ``torch.bfloat16`` or ``numpy.float32``.

    Raises
    ------
    ValueError
        For a format that is not known, with near names.

    Examples
    --------
    >>> canonical("bfloat16")
    'bf16'
    """
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    spelled = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    key = spelled if spelled in _BITS else plain(spelled.removeprefix("torch."))
    key = _ALIASES.get(key, key)
    if key not in _BITS:
        raise ValueError(
            f"dtype={dtype!r} is not a known number format; {hint(key, sorted(_BITS, key=_often), _ALIASES)}"
        )
    return key


_MADE_OF = {
    "complex32": "fp16", "complex64": "fp32", "complex128": "fp64", "quint8": "int8", "qint8": "int8", "qint32": "int32",
}  # fmt: skip


def format_of(dtype: str) -> str:
    """The format whose peak a product of numbers meets that torch calls *dtype*; fp32 where it has no name.

    >>> format_of("bfloat16"), format_of("complex64"), format_of("qint8")
    ('bf16', 'fp32', 'int8')
    """
    return _MADE_OF.get(dtype) or canonical(dtype or "fp32")


def bits(dtype: DType) -> Any:
    """Bits that one number takes in memory.

    Anything with ``.bits`` of its own is a format, too: so a figure can hold the width in a parameter.

    >>> bits("bf16"), bits("fp4")
    (16, 4)
    """
    own = getattr(dtype, "bits", None)
    return _BITS[canonical(dtype)] if own is None else own


def is_complex(dtype: DType) -> bool:
    """Whether *dtype* is complex: one multiply-add of such numbers is four real ones.

    >>> is_complex("complex64")
    True
    """
    return not hasattr(dtype, "bits") and canonical(dtype).startswith("complex")


def real(dtype: DType) -> Any:
    """*dtype*, where it is a format of real numbers: an operator that is only defined for those asks here.

    >>> real("bf16")
    'bf16'
    """
    if is_complex(dtype):
        raise ValueError(f"dtype={dtype!r}: this operator is defined for real numbers; pass a real format, e.g. 'fp32'")
    return dtype


def nbytes(elements: Any, dtype: DType) -> Any:
    """Bytes of a tensor of *elements* numbers; packed formats round up to whole bytes.

    >>> nbytes(3, "bf16"), nbytes(3, "int4")
    (6, 2)
    """
    width = bits(dtype)
    # equivalent: 8 -> 9 | 0 -> 1 (the same value, rounded up where nothing is to round)
    if isinstance(width, int) and width % 8 == 0:
        return elements * (width // 8)
    return ceil_div(elements * width, 8)
