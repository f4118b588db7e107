"""Number formats: torch's and NumPy's own sizes are the oracle."""

import numpy
import pytest
import torch

from flopkit.dtypes import bits, canonical, is_complex, names, nbytes, real

TORCH_FORMATS = [
    torch.complex128, torch.complex64, torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.uint16, torch.uint32, torch.uint64,
    torch.complex32,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TORCH_FORMATS, ids=str)
def test_torch_formats(dtype):
    assert bits(dtype) == bits(str(dtype)) == 8 * dtype.itemsize
    assert is_complex(dtype) == dtype.is_complex


@pytest.mark.parametrize(
    "name", ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "complex64"]
)
def test_numpy_formats(name):
    kind = getattr(numpy, name)
    assert bits(kind) == bits(numpy.dtype(kind)) == bits(name) == 8 * numpy.dtype(kind).itemsize


@pytest.mark.parametrize("spelled", ["bf16", "BF16", "bfloat16", "torch.bfloat16", "b-f-16", "BFloat 16"])
def test_spellings(spelled):
    assert canonical(spelled) == "bf16"


def test_names_are_canonical_and_widest_first():
    assert all(canonical(name) == name for name in names())
    assert [bits(name) for name in names()] == sorted((bits(name) for name in names()), reverse=True)


@pytest.mark.parametrize(("elements", "dtype", "right"), [
    (3, "fp4", 2), (4, "fp4", 2), (1, "int4", 1), (0, "fp4", 0), (3, "fp6", 3), (4, "fp6", 3), (5, "fp6", 4),
    (3, "fp8", 3), (3, "bf16", 6), (3, "complex64", 24), (2**70 + 1, "fp4", 2**69 + 1),
])  # fmt: skip
def test_packed_formats_round_up_to_whole_bytes(elements, dtype, right):
    assert nbytes(elements, dtype) == right and type(nbytes(elements, dtype)) is int


def test_a_width_may_be_a_parameter():
    import altair
    import vega

    from flopkit.arithmetic import vega as expression_of

    class Chosen:
        bits = altair.param(name="width", value=16)

    expression = expression_of(nbytes(3, Chosen()))
    assert [vega.evaluate(expression, {"width": width}) for width in (4, 8, 16, 32)] == [2, 3, 6, 12]


@pytest.mark.parametrize(
    ("wrong", "hint"), [("bf17", "bf16"), ("flaot32", "fp32"), ("fp9", "fp"), ("q", "known: bf16, fp16, fp32")]
)
def test_unknown_formats_have_near_names(wrong, hint):
    with pytest.raises(ValueError, match=f"dtype='{wrong}' is not a known number format; .*{hint}"):
        canonical(wrong)


def test_formats_of_real_numbers():
    assert real("fp8") == "fp8"
    with pytest.raises(ValueError, match="pass a real format"):
        real(torch.complex64)
