"""How an image becomes tokens: the part of a pass that stands before the layers of a model of images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flopkit.layers.convolutions import conv2d
from flopkit.layers.products import dense
from flopkit.models.stacks.blocks import Patches
from flopkit.models.stacks.parts import Part, Run, part

__all__ = ["patched"]


def patched(patches: Patches, d_model: Any, run: Run) -> Part:
    """The matrix that each patch goes through; the learned tokens are among its parameters."""
    taps = patches.channels * patches.patch**2
    if patches.grid is None:
        rows = run.tokens - run.batch * (patches.extra + patches.registers)
        cost = dense(tokens=rows, d_in=taps, d_out=d_model, bias=patches.bias, dtype=run.dtype)
        seen = "tokens"
    else:
        (h_in, w_in), (h_out, w_out) = patches.sides, patches.grid
        rows = run.batch * h_out * w_out
        cost = conv2d(
            batch=run.batch, c_in=patches.channels, c_out=d_model, h_out=h_out, w_out=w_out, kernel=patches.patch,
            stride=patches.patch, bias=patches.bias, h_in=h_in, w_in=w_in, dtype=run.dtype,
        )  # fmt: skip
        seen = f"batch·{h_out * w_out}"
    vectors = patches.extra + patches.registers + patches.learned
    cost = replace(cost, params_by_role={**cost.params_by_role, "position": vectors * d_model})
    formula = f"2·{seen}·{taps}·{d_model}"
    fields: dict[str, Any] = {"formula": formula, "role": "convolution", "reads": ("pixels",), "place": "before"}
    return part("patches", cost, rows, tokens=run.tokens, **fields)
