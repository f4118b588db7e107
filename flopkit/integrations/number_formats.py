"""In which number format a trainer multiplies, for the peak that its MFU is divided by."""

from __future__ import annotations

from typing import Any

from flopkit.counter.modes import tf32_switches
from flopkit.devices import device as known_device

__all__ = ["of_lightning", "of_transformers"]

_MIXED = {"bf16-mixed": "bf16", "16-mixed": "fp16", "bf16-true": "bf16", "16-true": "fp16", "64-true": "fp64"}
_OF_WEIGHTS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


def of_transformers(args: Any, model: Any, device: Any) -> str:
    """The format of autocast, which ``bf16`` and ``fp16`` of the trainer's arguments or accelerate choose, else that of the weights."""
    mixed = "bf16" if args.bf16 else "fp16" if args.fp16 else getattr(args, "mixed_precision", "no")
    if mixed in ("bf16", "fp16"):
        return str(mixed)
    if mixed not in ("no", None):
        raise ValueError(
            f"the trainer's mixed precision is {mixed!r}: give dtype=, such as {{'linear': 'fp8', 'rest': 'bf16'}}"
        )
    return _of_weights(model, device)


def of_lightning(trainer: Any, module: Any, device: Any) -> str:
    """The format that the trainer's ``precision`` says; of ``"32-true"``, that of the weights."""
    precision = str(trainer.precision)
    if precision in _MIXED:
        return _MIXED[precision]
    if precision != "32-true":
        raise ValueError(
            f"the trainer's precision is {precision!r}: give dtype=, such as {{'linear': 'fp8', 'rest': 'bf16'}}"
        )
    return _of_weights(module, device)


def _of_weights(model: Any, device: Any) -> str:
    """That of the matrices; fp32 is tf32 where torch may round products and the device has it."""
    found = {str(each.dtype).removeprefix("torch.") for each in model.parameters() if each.ndim > 1}
    if len(found) != 1 or not found <= _OF_WEIGHTS.keys():
        raise ValueError(
            f"the weights are in {' and '.join(sorted(found)) or 'no format'}: give dtype=, the format of the products"
        )
    name = _OF_WEIGHTS[found.pop()]
    return "tf32" if name == "fp32" and tf32_switches()[0] and "tf32" in known_device(device).dtypes else name
