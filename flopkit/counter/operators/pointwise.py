"""Arithmetic outside of contractions: element by element, along a row, or in an optimiser's step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.counter.calls import Call, numel, tensors
from flopkit.counter.work import Work, elementwise
from flopkit.layers.pointwise import ACTIVATIONS, SOFTMAX_FLOPS

__all__ = ["EACH_INPUT", "EACH_OUTPUT", "NO_ARITHMETIC", "is_pointwise", "vector_formula"]

# FLOPs of one output element. An operator that torch calls pointwise and that is not in the table counts 1.
EACH_OUTPUT: dict[str, int] = {
    **{
        name: ACTIVATIONS[name].flops
        for name in ("relu", "leaky_relu", "sigmoid", "tanh", "silu", "hardswish", "hardsigmoid")
    },
    "gelu": ACTIVATIONS["gelu"].flops,
    "addcmul": 3,
    "addcdiv": 3,
    "lerp": 3,
    "softplus": 3,
    "elu": 4,
    "celu": 4,
    "selu": 4,
    "mish": 5,
    "log_sigmoid_forward": 4,
    "hardtanh": 2,
    "clamp": 2,
    "hypot": 4,
    "logaddexp": 4,
    "sinc": 3,
    "xlogy": 2,
    "rsqrt": 2,
    "native_dropout": 2,
    "_fused_dropout": 2,
    "sigmoid_backward": 3,
    "tanh_backward": 3,
    "silu_backward": 6,
    "gelu_backward": 9,
    "threshold_backward": 1,
    "leaky_relu_backward": 2,
    "hardtanh_backward": 2,
    "hardswish_backward": 5,
    "hardsigmoid_backward": 2,
    "elu_backward": 4,
    "softplus_backward": 4,
    "native_dropout_backward": 2,
    "_softmax_backward_data": 4,
    "_log_softmax_backward_data": 4,
    "mse_loss": 3,
    "mse_loss_backward": 3,
    "smooth_l1_loss": 5,
    "huber_loss": 5,
    "binary_cross_entropy": 6,
    "binary_cross_entropy_with_logits": 7,
    "upsample_bilinear2d": 8,
    "_upsample_bilinear2d_aa": 8,
    "upsample_bicubic2d": 40,
    "grid_sampler_2d": 16,
    "_unsafe_view": 0,
    "_softmax": SOFTMAX_FLOPS,
    "_safe_softmax": SOFTMAX_FLOPS,
    "_log_softmax": SOFTMAX_FLOPS,
    "_fused_adam_": 14,
}

# FLOPs of one input element: reductions and what walks over rows.
EACH_INPUT: dict[str, int] = {
    **dict.fromkeys(
        "sum nansum prod mean amax amin aminmax max min argmax argmin all any cumsum cumprod cummax cummin logcumsumexp "
        "count_nonzero trace median nanmedian mode _cummax_helper _cummin_helper".split(),
        1,
    ),
    **dict.fromkeys("norm linalg_vector_norm _weight_norm_interface".split(), 2),
    **dict.fromkeys("var std var_mean std_mean".split(), 4),
    "logsumexp": 4,
    "native_layer_norm": 7,
    "native_group_norm": 7,
    "native_batch_norm": 7,
    "_native_batch_norm_legit": 7,
    "_native_batch_norm_legit_no_training": 4,
    "_batch_norm_with_update": 7,
    "_batch_norm_no_update": 4,
    "cudnn_batch_norm": 7,
    "miopen_batch_norm": 7,
    "batch_norm_backward": 11,
    "native_batch_norm_backward": 11,
    "cudnn_batch_norm_backward": 11,
    "native_layer_norm_backward": 11,
    "native_group_norm_backward": 11,
    "_fused_rms_norm": 4,
    "rms_norm": 4,
    "_fused_rms_norm_backward": 9,
    "max_pool2d_with_indices_backward": 1,
    "nll_loss_forward": 1,
    "nll_loss2d_forward": 1,
    "sort": 1,
    "topk": 1,
    "kthvalue": 1,
    "bincount": 1,
    "histc": 1,
    "renorm": 3,
}

# Pointwise by torch's own tag, and yet no arithmetic is done: numbers are copied, chosen, filled or compared for no result.
NO_ARITHMETIC = frozenset(
    "clone copy copy_ _to_copy to fill fill_ zero zero_ positive alias lift_fresh lift_fresh_copy where masked_fill masked_fill_ "
    "conj_physical conj_physical_ _conj_physical real imag _foreach_copy_ _foreach_zero_ ones_like zeros_like full_like empty_like "
    "rand_like randn_like view_as_real view_as_complex bernoulli bernoulli_ normal_ uniform_ random_ exponential_ native_dropout_mask "
    "polar complex angle_ copysign_ deg2rad_".split()
)


def _short(name: str) -> str:
    return name.removeprefix("aten::")


def is_pointwise(func: Any, name: str) -> bool:
    """Whether torch tags the operator as pointwise."""
    import torch

    return torch.Tag.pointwise in func.tags or _short(name).startswith("_foreach_")


def vector_formula(func: Any, name: str) -> Callable[[Call], Work] | None:
    """The formula of an element-wise operator or a reduction; None where it is neither."""
    if not name.startswith(("aten::", "prims::")):
        return _each_output(1) if is_pointwise(func, name) else None
    short = _short(name)
    plain = short.removesuffix("_")
    if short in NO_ARITHMETIC or plain in NO_ARITHMETIC:
        return None
    if plain in EACH_INPUT:
        return _each_input(EACH_INPUT[plain])
    if plain in EACH_OUTPUT:
        return _each_output(EACH_OUTPUT[plain])
    if plain.startswith("_foreach_"):
        each = EACH_OUTPUT.get(plain.removeprefix("_foreach_"), 1)
        return lambda call: elementwise(each * sum(map(numel, _list(call))), call.bytes())
    if is_pointwise(func, name):
        return _each_output(1)
    return None


def _list(call: Call) -> list[Any]:
    """The tensors that a foreach operator writes: its result, or its first argument."""
    return list(tensors(call.out)) or list(tensors(call.args[0]))


def _each_output(flops: int) -> Callable[[Call], Work]:
    def work(call: Call) -> Work:
        results = call.outputs
        return elementwise(flops * (numel(results[0]) if results else 0), call.bytes())

    return work


def _each_input(flops: int) -> Callable[[Call], Work]:
    def work(call: Call) -> Work:
        inputs = call.inputs
        return elementwise(flops * (numel(inputs[0]) if inputs else 0), call.bytes())

    return work
