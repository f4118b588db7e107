"""Formats in which checkpoints store numbers: plain ones, and blocks of few bits that
share a scale."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flopkit import dtypes
from flopkit.arithmetic import ceil_div
from flopkit.names import hint, plain

__all__ = ["DENSE", "Storage", "grouped", "nbytes", "storage_names", "stored"]

DENSE = "dense layers"  # what its loader packs; tables and heads stay as they are


@dataclass(frozen=True)
class Storage:
    """A format that stores a matrix in blocks, each with a scale of its own.

        bits = width · d_in · d_out + extra · ⌈d_in / block⌉ · ⌈d_out / rows⌉ + each_input · d_in

    Parameters
    ----------
    name : str
        What tables call it.
    width : int
        Bits of one number.
    block : int, optional
        Numbers of an output's row, along d_in, that share a scale. None: all of them.
    rows : int, optional
        Rows that share it.
    extra : Any, optional
        Bits of a block beside its numbers: its scale, its zero point, its minimum.
    each_input : int, optional
        Bits for each feature that comes in (GPTQ's order of groups).
    computes : str, optional
        The number format in which its products run. None: they have none of their own,
        and run in the format of the activations.
    packs : str, optional
        ``"dense layers"``: its quantiser leaves embedding, head and router alone. Empty:
        any matrix.
    source : str, optional
        Where the sizes come from.

    Notes
    -----
    Not counted: what a whole tensor has once (the fp32 scale of nvfp4, the offset of
    doubly quantised scales, tables of the 16 values of nf4), padding of files.

    Examples
    --------
    >>> stored("mxfp4").bits, stored("q4_0").bits, stored("awq").bits
    (Fraction(17, 4), Fraction(9, 2), Fraction(133, 32))
    >>> stored("mxfp4").nbytes(1, 2880, 5760)  # a matrix of 2880 × 5760
    8812800
    """

    name: str
    width: int
    block: int | None = None
    rows: int = 1
    extra: Any = 0
    each_input: int = 0
    computes: str | None = None
    packs: str = ""
    source: str = ""

    @property
    def bits(self) -> Fraction:
        """Bits of a number with its share of the scale, where all blocks are full.

        Raises
        ------
        ValueError
            Where a scale is for whole rows: the share depends on the matrix.
        """
        if self.block is None or self.each_input:
            raise ValueError(f"{self.name}: its bits a number depend on the matrix; ask Storage.nbytes")
        return self.width + Fraction(self.extra) / (self.block * self.rows)

    def nbytes(self, matrices: Any, d_in: Any, d_out: Any) -> Any:
        """Bytes of so many *matrices* of *d_in* × *d_out*, each rounded up."""
        groups = 1 if self.block is None else ceil_div(d_in, self.block)
        rows = d_out if self.rows == 1 else ceil_div(d_out, self.rows)
        extra = Fraction(self.extra)
        parts = extra.denominator  # so that all is counted in whole numbers of a part of a bit
        bits = parts * self.width * d_in * d_out + extra.numerator * groups * rows + parts * self.each_input * d_in
        return matrices * ceil_div(bits, 8 * parts)

    def __str__(self) -> str:
        return self.name


def _known() -> Iterator[Storage]:
    ocp = "OCP Microscaling Formats (MX) Specification v1.0, section 5: blocks of 32 with a scale of 8 bits"
    yield Storage("mxfp4", 4, 32, extra=8, source=ocp)
    yield Storage("mxfp6", 6, 32, extra=8, source=ocp)
    yield Storage("mxfp8", 8, 32, extra=8, computes="fp8", source=ocp)
    yield Storage("nvfp4", 4, 16, extra=8, computes="fp4", source="NVIDIA: blocks of 16 with a scale in e4m3")
    blocks = "DeepSeek-V3, arXiv:2412.19437, section 3.3: blocks of 128 × 128, an fp32 scale each"
    yield Storage("fp8_block", 8, 128, rows=128, extra=32, computes="fp8", source=blocks)
    tiles = "DeepSeek-V3, arXiv:2412.19437, section 3.3: tiles of 1 × 128, an fp32 scale each; the caches of DeepSeek-V3.2 in FlashMLA"
    yield Storage("fp8_tile", 8, 128, extra=32, computes="fp8", source=tiles)
    qlora = "Dettmers et al. 2023 (QLoRA), section 3: blocks of 64"
    twice = f"{qlora}, an 8-bit scale each, an fp32 number for 256 of these"
    for name in ("nf4", "bnb_fp4"):
        yield Storage(name, 4, 64, extra=Fraction(8) + Fraction(32, 256), packs=DENSE, source=twice)
        yield Storage(f"{name}_plain", 4, 64, extra=32, packs=DENSE, source=f"{qlora}, an fp32 scale each")
    llama_cpp = "llama.cpp, ggml-common.h: bytes of a block"
    for name, width, block, size in (
        ("q4_0", 4, 32, 18), ("q4_1", 4, 32, 20), ("q5_0", 5, 32, 22), ("q5_1", 5, 32, 24), ("q8_0", 8, 32, 34), ("q2_k", 2, 256, 84),
        ("q3_k", 3, 256, 110), ("q4_k", 4, 256, 144), ("q5_k", 5, 256, 176), ("q6_k", 6, 256, 210), ("iq4_nl", 4, 32, 18),
        ("iq4_xs", 4, 256, 136),
    ):  # fmt: skip
        yield Storage(name, width, block, extra=8 * size - width * block, source=llama_cpp)


_STORED = {each.name: each for each in _known()}
_PLAIN = {plain(name): each for name, each in _STORED.items()}
_OFTEN = ("bf16", "fp8", "mxfp4", "nvfp4", "nf4", "q4_k", "q8_0", "awq")  # what an error names first
_GROUPED = re.compile(r"(awq|gptq)(?:g(\d{1,5}))?")


def grouped(method: str, width: int = 4, group: int | None = 128) -> Storage:
    """AWQ's and GPTQ's format: groups along d_in, with an fp16 scale and a packed zero
    point; of GPTQ a number of 32 bits for each feature, which says its group.

    >>> str(grouped("awq")), str(grouped("gptq", 8, 64))
    ('awq', 'gptq_g64, 8 bits')
    """
    name = method if group == 128 else f"{method}_g{group}" if group else f"{method}, a scale a row"
    name += "" if width == 4 else f", {width} bits"
    source = "AutoAWQ and AutoGPTQ: qweight, qzeros, scales" + (", g_idx" if method == "gptq" else "")
    each = 32 if method == "gptq" else 0
    return Storage(name, width, group, extra=16 + width, each_input=each, packs=DENSE, source=source)


def storage_names() -> list[str]:
    """The formats of blocks that ``stored`` knows by name; awq and gptq take the size of a
    group: ``"awq_g64"``.

    >>> storage_names()[:4]
    ['mxfp4', 'mxfp6', 'mxfp8', 'nvfp4']
    """
    return [*_STORED, "awq", "gptq"]


def stored(dtype: Any, argument: str = "dtype", more: Iterable[str] = ()) -> Any:
    """The format in which numbers called *dtype* are stored: a `Storage` where they
    have scales, else the canonical name of a plain format.

    Parameters
    ----------
    dtype : Any
        A name, a `Storage`, ``torch.bfloat16``, or anything with a width in ``.bits``.
    argument : str, optional
        What the caller's argument is called.
    more : Iterable[str], optional
        What else the caller knows, for the error.

    Raises
    ------
    ValueError
        For a name that is not known, with near names.

    Notes
    -----
    Of arithmetic, ``"nvfp4"`` and ``"mxfp4"`` are other names of fp4, as in
    `Device.peak`; stored, they are blocks with their scales. ``"fp4"`` and ``"int4"``
    are four bits without scales.

    Examples
    --------
    >>> stored("bfloat16"), stored("Q4_K").name, stored("awq-g64").bits
    ('bf16', 'q4_k', Fraction(69, 16))
    """
    if isinstance(dtype, Storage) or (not isinstance(dtype, str) and hasattr(dtype, "bits")):
        return dtype
    if isinstance(dtype, str):
        key = plain(dtype)
        if key in _PLAIN:
            return _PLAIN[key]
        if (found := _GROUPED.fullmatch(key)) and found[2] != "0":
            return grouped(found[1], group=int(found[2] or 128))
    try:
        return dtypes.canonical(dtype)
    except ValueError:
        near = hint(str(dtype), dict.fromkeys([*_OFTEN, *dtypes.names(), *storage_names(), *more]))
        raise ValueError(f"{argument}={dtype!r} is not a known number format; {near}") from None


def nbytes(numbers: Any, dtype: Any) -> Any:
    """Bytes of so many *numbers* in a format that may have scales, all blocks full.

    >>> nbytes(64, "bf16"), nbytes(64, "q8_0")
    (128, 68)
    """
    found = stored(dtype)
    if not isinstance(found, Storage):
        return dtypes.nbytes(numbers, found)
    bits = found.bits
    return ceil_div(numbers * bits.numerator, 8 * bits.denominator)
