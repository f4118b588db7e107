"""Arithmetic element by element: which operators do it, how many FLOPs one output element takes, and what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flopkit.counter.calls import OpCall, numel, tensors
from flopkit.counter.work import Work, elementwise
from flopkit.layers.pointwise import ACTIVATIONS

_MEAN = 1  # torch's number for reduction="mean"


class Recipe(NamedTuple):
    """Vector FLOPs of one output element, and how they come about; a function of the call where an argument decides."""

    flops: int | Callable[[OpCall], int]
    steps: str


def _scaled(name: str, without: int) -> Callable[[OpCall], int]:
    """One multiplication more where the factor *name* is not 1."""

    def flops(call: OpCall) -> int:
        factor = call.get(name, call.get("scalars", 1))
        return without + (not (isinstance(factor, (int, float)) and factor == 1))

    return flops


def _gelu(exact: int, tanh: int) -> Callable[[OpCall], int]:
    return lambda call: tanh if call.get("approximate") == "tanh" else exact


# What is not in this table and is called pointwise by torch counts one: an add, a multiply, a compare, a logical or bitwise
# operation, one evaluation of the function the operator is named after. In-place, `out=` and `_foreach_` forms count as
# the operator itself does.
_ROWS = {
    # numbers that stay what they are
    "neg copysign": Recipe(0, "a change of sign"),
    "abs": Recipe(0, "a change of sign (of a complex number: two multiplies, add, square root)"),
    # sums and products
    "add sub rsub": Recipe(_scaled("alpha", 1), "add or subtract; and multiply where alpha is not 1"),
    "_add_relu": Recipe(_scaled("alpha", 2), "add, compare; and multiply where alpha is not 1"),
    "addcmul addcdiv": Recipe(_scaled("value", 2), "multiply or divide, add; and multiply where value is not 1"),
    "lerp": Recipe(3, "start + weight·(end − start): subtract, multiply, add"),
    "div": Recipe(lambda call: 1 + (call.get("rounding_mode") is not None), "divide; and round where rounding_mode is given"),
    "floor_divide": Recipe(2, "divide, round"),
    "remainder fmod": Recipe(4, "x − y·floor(x/y), or trunc: divide, round, multiply, subtract"),
    "frac": Recipe(2, "round, subtract"),
    "rsqrt": Recipe(2, "square root, divide"),
    "hypot": Recipe(4, "two multiplies, add, square root"),
    "ldexp": Recipe(2, "power of two, multiply"),
    "_masked_scale native_dropout_backward": Recipe(2, "two multiplies"),
    # bounds
    "clamp": Recipe(lambda call: sum(call.get(name) is not None for name in ("min", "max")), "a compare for each bound that is given"),
    "heaviside hardtanh hardshrink hardtanh_backward hardshrink_backward softshrink_backward": Recipe(2, "two compares"),
    "nan_to_num": Recipe(3, "three compares"),
    # logarithms
    "logaddexp logaddexp2": Recipe(5, "compare, subtract, exponential, logarithm, add"),
    "logit": Recipe(3, "log(x/(1 − x)): subtract, divide, logarithm"),
    "logit_backward": Recipe(3, "g/(x·(1 − x)): subtract, multiply, divide"),
    "xlogy special_xlog1py special_entr": Recipe(2, "logarithm, multiply"),
    "sinc": Recipe(3, "multiply, sine, divide"),
    # activations (those of `flopkit.layers` below)
    "gelu": Recipe(_gelu(ACTIVATIONS["gelu"].flops, ACTIVATIONS["gelu_tanh"].flops),
                   f"{ACTIVATIONS['gelu'].steps}; approximate='tanh': {ACTIVATIONS['gelu_tanh'].steps}"),
    "softshrink": Recipe(3, "two compares, subtract"),
    "prelu _prelu_kernel rrelu_with_noise leaky_relu_backward": Recipe(2, "compare, multiply"),
    "elu": Recipe(4, "compare, exponential, subtract, multiply"),
    "celu": Recipe(5, "compare, divide, exponential, subtract, multiply"),
    "softplus": Recipe(5, "compare, multiply, exponential, logarithm, divide"),
    "mish": Recipe(4, "x·tanh(log(1 + exp(x))): exponential, logarithm, tanh, multiply"),
    "log_sigmoid_forward": Recipe(4, "min(x, 0) − log(1 + exp(−|x|)): compare, exponential, logarithm, subtract"),
    "glu": Recipe(4, "a·sigmoid(b): exponential, add, divide, multiply"),
    "native_dropout _fused_dropout": Recipe(lambda call: 0 if call.get("train") is False else 2,
        "compare, multiply (the random number itself is not counted); a copy in evaluation"),
    # their gradients; g is the gradient of the output
    "sigmoid_backward": Recipe(3, "g·y·(1 − y): subtract, two multiplies"),
    "tanh_backward": Recipe(3, "g·(1 − y²): multiply, subtract, multiply"),
    "silu_backward": Recipe(8, "g·s·(1 + x·(1 − s)), s = 1/(1 + exp(−x)): three for s, subtract, add, three multiplies"),
    "gelu_backward": Recipe(_gelu(11, 18),
        "g·(Φ(x) + x·φ(x)): four for Φ, four for φ (two multiplies, exponential, multiply), multiply, add, multiply; "
        "approximate='tanh': twelve multiplies, tanh, four adds, subtract"),
    "_prelu_kernel_backward": Recipe(3, "compare, a multiply for each gradient"),
    "hardswish_backward": Recipe(5, "g·(x/3 + ½): two compares, divide, add, multiply"),
    "hardsigmoid_backward": Recipe(3, "g/6: two compares, divide"),
    "rrelu_with_noise_backward": Recipe(lambda call: 1 if call["training"] else 2,
        "multiply; in evaluation, where the noise is a number, compare and multiply"),
    "elu_backward": Recipe(lambda call: 3 if call["is_result"] else 4 + (call["input_scale"] != 1),
        "compare, exponential, two multiplies, one more where input_scale is not 1; from the result y: compare, y + α, multiply"),
    "softplus_backward": Recipe(6, "g·z/(1 + z), z = exp(β·x): compare, multiply, exponential, add, divide, multiply"),
    "log_sigmoid_backward": Recipe(5, "compare, add, divide, subtract, multiply"),
    "mish_backward": Recipe(15, "g·(t + x·s·(1 − t²)), t = tanh(softplus(x)): six for t, as where there is no kernel for it, three for s, "
        "four multiplies, subtract, add"),
    # losses, before they are summed
    "binary_cross_entropy_backward": Recipe(lambda call: 6 + (call["weight"] is not None) + (call["reduction"] == _MEAN),
        "g·(p − y)/(p·(1 − p)): two subtracts, multiply, compare, multiply, divide; a weight, and the mean, are a multiply more"),
    "mse_loss_backward": Recipe(3, "2g·(x − y)/n: subtract, two multiplies"),
    "smooth_l1_loss_backward": Recipe(6, "subtract, two compares, divide, two multiplies"),
    "huber_loss_backward": Recipe(5, "subtract, two compares, two multiplies"),
    "soft_margin_loss_backward": Recipe(7, "z = exp(−x·y); g·y·z/(1 + z)/n: four multiplies, exponential, add, divide"),
    # quantisation
    "quantize_per_tensor quantize_per_channel": Recipe(5, "divide, round, add, two compares"),
    "quantize_per_tensor_dynamic": Recipe(7, "minimum and maximum: two compares; divide, round, add, two compares"),
    "dequantize": Recipe(2, "subtract, multiply"),
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": Recipe(7, "divide, round, add, two compares, subtract, multiply"),
    # what torch does not tag as element-wise
    "batch_norm_elemt quantized_batch_norm": Recipe(lambda call: 2 + (call["weight"] is not None) + (call["bias"] is not None),
        "subtract, multiply, and the scale and shift"),
    "_compute_linear_combination": Recipe(lambda call: 2 * int(call["coefficients"].shape[1]), "multiply and add for each of the terms"),
    "linalg_cross": Recipe(3, "two multiplies, subtract"),
    "__irshift__": Recipe(1, "shift"),
    "_standard_gamma_grad _dirichlet_grad": Recipe(1, "one evaluation"),
    "_amp_update_scale": Recipe(3, "two compares, multiply"),
}  # fmt: skip
_LAYERS = "relu relu6 leaky_relu sigmoid tanh silu hardswish hardsigmoid"
RECIPES: Mapping[str, Recipe] = {
    **{name: Recipe(ACTIVATIONS[name].flops, ACTIVATIONS[name].steps) for name in _LAYERS.split()},
    **{name: recipe for names, recipe in _ROWS.items() for name in names.split()},
}

# Of a complex number, where it is not twice the FLOPs of a real one.
COMPLEX = {"mul": 6, "div": 11, "abs": 4, "reciprocal": 5, "eq": 2, "ne": 2, "sgn": 6, "angle": 1}


def _complex_flops(name: str, call: OpCall, flops: int) -> int:
    """FLOPs of one element that is complex, where *flops* are those of a real one."""
    if name in ("mul", "div"):
        # equivalent: 2 -> 3 (products and quotients have two)
        for factor in call.args[:2]:
            kind = getattr(next(tensors(factor), None), "dtype", None)
            if not (kind.is_complex if kind is not None else isinstance(factor, complex)):
                return 2  # a complex number by a real one
    return COMPLEX.get(name, 2 * flops)


# -- which operators do it ------------------------------------------------------------------------------------

# Pointwise by torch's own tag, and yet no arithmetic is done: numbers are copied, chosen or filled in. See `memory`.
NO_ARITHMETIC = frozenset("clone copy where masked_fill conj_physical _conj_physical zero".split())

# Named like operators that work element by element, and don't.
_REDUCING = ("norm", "max", "powsum", "mm")


def plain(name: str) -> str:
    """The operator's name without namespace, ``_`` of the in-place form and ``_foreach_``.

    >>> plain("aten::_foreach_addcdiv_"), plain("aten::__and__")
    ('addcdiv', '__and__')
    """
    short = name.partition("::")[2].removesuffix("_functional")
    return (short if short.endswith("__") else short.removesuffix("_")).removeprefix("_foreach_")


def is_pointwise(func: Any, name: str) -> bool:
    """Whether the operator works element by element: by torch's own tag, of this overload or of another, or by our table."""
    import torch

    short = plain(name)
    if torch.Tag.pointwise in func.tags:
        return True
    if not name.startswith(("aten::", "quantized::")):  # somebody else's operator may have any name
        return False
    if short in RECIPES:
        return True
    if name.startswith("aten::_foreach_"):
        return short not in _REDUCING
    packet = getattr(torch.ops.aten, short, None) if name.startswith("aten::") else None
    return packet is not None and any(torch.Tag.pointwise in getattr(packet, each).tags for each in packet.overloads())


def vector_formula(func: Any, name: str) -> Callable[[OpCall], Work] | None:
    """The formula of an element-wise operator; None where it is none."""
    short = plain(name)
    if short in NO_ARITHMETIC or not is_pointwise(func, name):
        return None
    recipe = RECIPES.get(short, Recipe(1, "one operation"))

    def work(call: OpCall) -> Work:
        flops = recipe.flops(call) if callable(recipe.flops) else recipe.flops
        if any(t.dtype.is_complex for t in tensors(call.args)):
            flops = _complex_flops(short, call, flops)
        # The elements are those of the result or, where nothing is returned, of what is changed in place.
        lists = "_foreach_" in call.name
        results = list(tensors(call.out)) or list(tensors(call.args[0])) if lists else (call.outputs or call.inputs)[:1]
        return elementwise(flops * sum(map(numel, results)), call.bytes())

    return work
