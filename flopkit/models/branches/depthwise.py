"""A depthwise convolution over the patches of an image, and an MLP behind it: ConvNeXt's block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flopkit.dtypes import nbytes
from flopkit.layers.convolutions import conv2d
from flopkit.layers.normalisations import layer_norm
from flopkit.layers.pointwise import vector_work
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.parts import Part, Run, part
from flopkit.sizes import Size, check_fields
from flopkit.training.memory import Kept

__all__ = ["DepthwiseMLP"]


@dataclass(frozen=True, kw_only=True)
class DepthwiseMLP(Branch):
    """A depthwise convolution, a layer norm and an MLP of two dense layers, in one branch (ConvNeXt).

    Parameters
    ----------
    side : Size
        Patches of a side of the image.
    d_ff : Size
        Hidden features of the MLP.
    kernel : int, optional
        The convolution's, odd; the image is padded so that it keeps its size.
    act : str, optional
        The activation, as `flopkit.activation` calls it.
    response_norm : bool, optional
        Whether each hidden feature is multiplied by its share of the image's response (ConvNeXt V2).

    Notes
    -----
    FLOPs of the convolution: ``2·tokens·d_model·kernel²``, taps on padding among them.
    Of the response norm, vector FLOPs alone: a square and a sum for each number of the norm over the image, a mean over the features and a
    division for each feature, and three operations and a sum for each number.
    `Model.train_memory` refuses it.

    References
    ----------
    Liu et al. 2022, A ConvNet for the 2020s; Woo et al. 2023, ConvNeXt V2, section 3.2.

    Examples
    --------
    >>> from flopkit.models.stacks.parts import Run
    >>> parts = DepthwiseMLP(side=7, d_ff=3072).parts(Run(1, 49, 49), 768)
    >>> parts[0].cost.flops == 2 * 49 * 768 * 7**2
    True
    """

    side: Size
    d_ff: Size
    kernel: int = 7
    act: str = "gelu"
    response_norm: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kernel % 2 != 1:
            raise ValueError(f"kernel={self.kernel}: must be odd, so that the image keeps its size")

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        of_rows: dict[str, Any] = {"h_out": self.side, "w_out": self.side, "kernel": self.kernel, "dtype": run.dtype}
        conv = conv2d(batch=run.sequences, c_in=d_model, c_out=d_model, groups=d_model, bias=True, **of_rows)
        norm = layer_norm(tokens=run.tokens, d=d_model, dtype=run.dtype)
        made = {"reads": ("convolved",), "makes": ("normed",), "role": "norm"}
        found = [
            part("dwconv", conv, run.tokens, reads=("stream",), makes=("convolved",), role="product"),
            part("branch_norm", norm, run.tokens, **made),
        ]
        mlp = MLP(d_ff=self.d_ff, act=self.act, gated=False, bias=True).parts(run, d_model)
        *before, last = [
            each._replace(reads=tuple("normed" if it == "input" else it for it in each.reads)) for each in mlp
        ]
        found += before
        if self.response_norm:
            found.append(self._response(run))
        return [*found, last]

    def _response(self, run: Run) -> Part:
        numbers, features = run.tokens * self.d_ff, run.sequences * self.d_ff
        work = vector_work("response_norm", 6 * numbers + 2 * features, 2 * nbytes(numbers, run.dtype))
        cost = replace(work, params_by_role={"norm": self.d_ff, "bias": self.d_ff})
        # Devices that divide the features exchange one sum an image for the mean.
        return part("response_norm", cost, run.tokens, role="norm", reads=("hidden",), makes=("hidden",), split="inner")

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        raise ValueError(
            "what the backward pass of ConvNeXt's blocks keeps is not known here; train_step counts its FLOPs"
        )
