"""The backward pass by cases: which gradients a layer has to compute, and what each of them costs.

A layer that multiplies an input by a weight has three tensors and three products. Forward makes the output of input and weight; the
gradient of the input is made of the output's gradient and the weight; the gradient of the weight of the input and the output's gradient.
Every multiply-add of the forward pass, ``y += x·w``, comes back as one of each: ``dx += dy·w`` and ``dw += x·dy``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flopkit.arithmetic import Number, is_zero
from flopkit.cost import Cost
from flopkit.dtypes import DType, is_complex, nbytes
from flopkit.layers.attentions import SOFTMAX_KIND, Mask, attention, visible_pairs
from flopkit.layers.convolutions import conv2d
from flopkit.layers.products import dense
from flopkit.sizes import Flag, Size, Sizes, checked, choice

__all__ = ["attention_backward", "conv2d_backward", "dense_backward"]

# Element-wise FLOPs of a pair, on the way back through the softmax.
THROUGH_SOFTMAX = 5  # multiply and add for the row's sum of probability times gradient; subtract, multiply; scale
FLASH_SOFTMAX = 3  # the same without the sum, which a fused kernel takes from the output instead
ROW_SUM = 2  # that sum: multiply and add, for each number of the output
SCORES_AGAIN = 3  # the probability from the score: scale, subtract, exponential


@checked
def dense_backward(
    *, tokens: Size, d_in: Size, d_out: Size, bias: Flag = False, input: Flag = True, weight: Flag = True, dtype: DType = "bf16",
) -> Cost:  # fmt: skip
    """The backward pass of a dense layer: the gradients that are wanted.

    FLOPs: ``2·tokens·d_in·d_out`` for the gradient of the *input*, dX = dY·Wᵀ, and as many for that of the *weight*, dW = Xᵀ·dY.
    Vector FLOPs: ``tokens·d_out`` additions for the gradient of a *bias*, which is a sum over the tokens.
    Bytes: each of the two products reads two of the three tensors X, W, Y (or its gradient) and writes the third, as the forward
    product does: ``tokens·d_in + d_in·d_out + tokens·d_out`` numbers. The bias's sum reads dY and writes *d_out* numbers.

    Parameters
    ----------
    tokens, d_in, d_out : Size
        The sizes of the layer, as in `dense`.
    bias : Flag, optional
        Whether there is a bias to be trained.
    input : Flag, optional
        Whether anything below the layer is trained, so that its input needs a gradient.
    weight : Flag, optional
        Whether the weight is trained. Each of the three switches may be a parameter that holds 1 or 0.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        For a size that is not a whole number of at least 1.

    Notes
    -----
    Not counted: adding the gradient to one that is there already, the optimiser.

    References
    ----------
    Goodfellow et al. 2016, section 6.5.6.

    Examples
    --------
    >>> layer = {"tokens": 64, "d_in": 4096, "d_out": 16384}
    >>> dense_backward(**layer).flops == 2 * dense(**layer).flops
    True
    >>> dense_backward(**layer, input=False).flops == dense(**layer).flops  # the first layer
    True
    """
    forward = dense(tokens=tokens, d_in=d_in, d_out=d_out, dtype=dtype)
    return _gradients("dense, backward", forward, tokens * d_out, d_out, bias, input, weight, dtype)


@checked
def conv2d_backward(
    *, batch: Size, c_in: Size, c_out: Size, h_out: Size, w_out: Size, kernel: Sizes, groups: Size = 1, stride: Sizes = 1, dilation: Sizes = 1,
    h_in: Size | None = None, w_in: Size | None = None, bias: Flag = False, input: Flag = True, weight: Flag = True, dtype: DType = "bf16",
) -> Cost:  # fmt: skip
    """The backward pass of a convolution: the gradients that are wanted.

    FLOPs: ``2·batch·c_out·h_out·w_out·(c_in/groups)·taps`` for the gradient of the *input*, and as many for that of the *weight*. An
    output meets the inputs of its own group only, and so does its gradient: both are divided by *groups*.
    Vector FLOPs: ``batch·c_out·h_out·w_out`` additions for the gradient of a *bias*.
    Bytes: each gradient by itself, as in `dense_backward`; an operator that computes both at once reads dY once.

    Parameters
    ----------
    batch, c_in, c_out : Size
        Images, channels in, channels out.
    h_out, w_out : Size
        Rows and columns of the output.
    kernel : Sizes
        An int, or a pair (height, width), as in `conv2d`.
    groups : Size, optional
        Independent groups of channels.
    stride, dilation : Sizes, optional
        As *kernel*.
    h_in, w_in : Size, optional
        Rows and columns of the input, for the bytes. None: output times stride.
    bias, input, weight : Flag, optional
        What is trained, as in `dense_backward`.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        As `conv2d` does.

    Notes
    -----
    Not counted: what Winograd and the like save; products with zeros between the pixels of a strided gradient, which some kernels do.

    References
    ----------
    Dumoulin and Visin 2016, section 4 (the gradient of the input is a transposed convolution).

    Examples
    --------
    >>> depthwise = {"batch": 1, "c_in": 16, "c_out": 16, "h_out": 56, "w_out": 56, "kernel": 3, "groups": 16}
    >>> conv2d_backward(**depthwise).flops == 2 * conv2d(**depthwise).flops
    True
    """
    forward = conv2d(
        batch=batch, c_in=c_in, c_out=c_out, h_out=h_out, w_out=w_out, kernel=kernel, groups=groups, stride=stride, dilation=dilation,
        h_in=h_in, w_in=w_in, dtype=dtype,
    )  # fmt: skip
    outputs = batch * c_out * h_out * w_out
    return _gradients("conv2d, backward", forward, outputs, c_out, bias, input, weight, dtype)


def _gradients(
    name: str, forward: Cost, outputs: Number, biases: Number, bias: Number, input: Any, weight: Any, dtype: Any
) -> Cost:
    """Two products as large as the one that *forward* is, and the sum over *outputs* that is the bias's gradient."""
    product = replace(forward, params_by_role={})
    parts = [
        (product * input).named("input gradient"),
        (product * weight).named("weight gradient"),
    ]
    if not is_zero(bias):
        parts.append(
            Cost(
                "bias gradient",
                vector_by_kind={"elementwise": bias * outputs * (2 if is_complex(dtype) else 1)},
                bytes=nbytes(bias * outputs, dtype) + nbytes(bias * biases, dtype),
            )
        )
    return Cost.total(name, parts)


@checked
def attention_backward(
    *, batch: Size, q: Size, kv: Size, heads: Size, head_dim: Size, kv_heads: Size | None = None, v_head_dim: Size | None = None, mask: Mask = "full",
    kernel: str = "flash", dtype: DType = "bf16"
) -> Cost:  # fmt: skip
    """The backward pass of the attention core, all of whose inputs need a gradient.

    FLOPs: ``2·batch·heads·pairs·2·(head_dim + v_head_dim)``: four products for the two of the forward pass, since both factors of each
    are activations: dV = Pᵀ·dO and dP = dO·Vᵀ, then dQ = dS·K and dK = dSᵀ·Q. A fused kernel kept no scores and computes them again;
    that part of the cost, "computed again", is executed and is none of the model's FLOPs. ``"flash"``, as FlashAttention does it, in one
    pass: ``2·batch·heads·pairs·head_dim``, five products in all, and where values are as long as keys 2.5 times the forward pass.
    ``"flex"``, as FlexAttention's Triton kernel does it, in two passes, one for dQ and one for dK and dV, each with scores and dP of
    its own: ``2·batch·heads·pairs·(2·head_dim + v_head_dim)``, seven products, 3.5 times.
    Vector FLOPs: 5 a pair for ``"math"``; 3 a pair and 2 for each number of the output for a fused kernel, and again 3 a pair for the
    scores; ``"flex"`` does both 3 twice.
    Bytes: a fused kernel reads Q, K, V, the output and its gradient and writes three gradients, each once; with a window it reads only
    the visible rows of K and V, but writes all rows of their gradients. ``"math"`` moves the ``batch·heads·q·kv`` scores seven times
    besides.

    Parameters
    ----------
    batch : Size
        Sequences.
    q, kv : Size
        Queries and keys of each sequence.
    heads, head_dim : Size
        Query heads, and the size of a query or key.
    kv_heads : Size, optional
        Heads of K and V where fewer (GQA, MQA). None: as many as *heads*.
    v_head_dim : Size, optional
        Size of a value where it differs. None: *head_dim*.
    mask : Mask, optional
        ``"full"``, ``"causal"`` (aligned bottom-right) or ``fk.window(w)``, as in `attention`.
    kernel : str, optional
        ``"flash"``, ``"flex"`` or ``"math"``: how much is computed again, or that the scores were kept.
    dtype : DType, optional
        Number format of all tensors, for the bytes.

    Raises
    ------
    ValueError or TypeError
        As `attention` does.

    Notes
    -----
    Not counted: the log-sum of each row that a fused kernel keeps; where query heads share a head of K and V (GQA), adding up what each
    of them has for dK and dV, if the kernel does not do so while it multiplies; the projections, whose backward pass is
    `dense_backward`'s.

    References
    ----------
    Dao et al. 2022, appendix B; github.com/Dao-AILab/flash-attention, issue 1525 (two products forward, five backward);
    flex_backwards.py.jinja, the template of torch 2.13 (seven).

    Examples
    --------
    >>> core = {"batch": 1, "q": 4096, "kv": 4096, "heads": 32, "head_dim": 128, "mask": "causal"}
    >>> [attention_backward(**core, kernel=kernel).flops / attention(**core).flops for kernel in ("math", "flash", "flex")]
    [2.0, 2.5, 3.5]
    """
    choice("kernel", kernel, ("flash", "flex", "math"))
    sizes: dict[str, Any] = {
        "batch": batch, "q": q, "kv": kv, "heads": heads, "head_dim": head_dim, "kv_heads": kv_heads, "v_head_dim": v_head_dim,
    }  # fmt: skip
    forward = attention(**sizes, mask=mask, dtype=dtype)
    every_row = attention(**sizes, mask="full", dtype=dtype).bytes  # a gradient has them all, hidden rows as zeros
    v_head_dim = head_dim if v_head_dim is None else v_head_dim
    seen = visible_pairs(q, kv, mask)
    pairs = {"scores": batch * heads * seen}
    if "hidden" in forward.macs_by_kind:
        pairs["hidden"] = batch * heads * (q * kv - seen)
    fused = kernel != "math"
    each = FLASH_SOFTMAX if fused else THROUGH_SOFTMAX
    vector = {SOFTMAX_KIND[kind]: each * n for kind, n in pairs.items()}
    if fused:
        vector["elementwise"] = ROW_SUM * batch * heads * q * v_head_dim
    gradients = Cost(
        "gradients",
        macs_by_kind={kind: 2 * macs for kind, macs in forward.macs_by_kind.items()},
        vector_by_kind=vector,
        bytes=(forward.bytes if fused else every_row)
        + every_row
        + (0 if fused else 7 * nbytes(batch * heads * q * kv, dtype)),
    )
    if not fused:
        return Cost.total("attention, backward", [gradients])
    length, each = (
        (head_dim, SCORES_AGAIN) if kernel == "flash" else (2 * head_dim + v_head_dim, 2 * SCORES_AGAIN + FLASH_SOFTMAX)
    )
    again = Cost(
        "computed again",
        macs_by_kind={kind: n * length for kind, n in pairs.items()},
        vector_by_kind={SOFTMAX_KIND[kind]: each * n for kind, n in pairs.items()},
    )
    return Cost.total("attention, backward", [gradients, again])
