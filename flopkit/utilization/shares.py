"""MFU, HFU and MBU of work and a time."""

from __future__ import annotations

from typing import Any

from flopkit.utilization.gauges import of_bytes, of_flops

__all__ = ["hfu", "mbu", "mfu"]


def mfu(flops: Any, *, seconds: Any, device: Any, dtype: Any = None, count: Any = 1) -> Any:
    """Model FLOPs utilisation: what the mathematics asks for in a second, as a share of the peak.

        MFU = model FLOPs / (seconds · count · peak)

    Parameters
    ----------
    flops : Any
        The work of *count* devices in those *seconds*. A number of FLOPs; a `Cost` (what its convention counts, without
        recompute); a training step or a `Report` (its ``model_flops``). A report of one rank of a job has that rank's
        work, so it goes with ``count=1``.
    seconds : Any
        How long that took, by a clock that was read after the device had finished.
    device : Any
        A name, a `Device`, or anything with ``peak``, as in `roofline`. ``fk.device()`` is the current CUDA device.
    dtype : Any, optional
        The number format whose peak is met. None: ``"bf16"``; for a report each operator meets the peak of its own
        operands, and the share is Σ flops / peak over the formats, divided by the time. For a `Cost` and a training step formats may
        have names, too: ``{"linear": "fp8", "rest": "bf16"}``, by what the products multiply: ``"linear"`` (the layers' weights),
        ``"scores"`` (attention's two products), ``"router"``, ``"head"``. The share is that of the ideal time.
    count : Any, optional
        How many devices did the work together.

    Returns
    -------
    float
        A `Utilization`: a float that shows its convention. From NumPy arrays an array (a sweep), from SymPy symbols and
        Altair parameters an expression.

    Raises
    ------
    ValueError
        Above what the device can do at all (`Device.limit`), with the usual causes; for a report with operators that it does not know
        (``uncounted``), by whose FLOPs the share would be too small; for seconds that are not positive, NaN, a device or number format
        that is not known, and a format for which the device has no peak.
    TypeError
        For what is no number and has no FLOPs.

    Notes
    -----
    Not counted: recomputed work and the optimiser's (`hfu` has both), element-wise work (``vector_flops``). Where the work comes with a convention that counts a multiply-add as one, it is brought to two,
    as peaks have it. A plain number is taken as it is. The limit is checked where the numbers are known and the device has one.

    References
    ----------
    Chowdhery et al. 2022 (PaLM), appendix B.

    Examples
    --------
    PaLM 540B: 238,300 tokens/s on 6,144 TPU v4, each token 6N + 12·L·H·Q·T FLOPs. The paper prints 46.2 %.

    >>> import flopkit as fk
    >>> a_token = 6 * 540e9 + 12 * 118 * 48 * 256 * 2048
    >>> palm = fk.mfu(a_token * 238_300, seconds=1, device="tpu-v4", count=6144)
    >>> palm
    MFU 46.2 % of 6,144 × 275 TFLOP/s in bf16, Google TPU v4, FLOPs as given
    >>> f"{palm:.3f}", palm > 0.4
    ('0.462', True)

    A causal mask hides half of the scores. What the kernel skips counts under TORCH and not under EXACT:

    >>> scores = fk.attention(batch=8, q=8192, kv=8192, heads=32, head_dim=128, mask="causal")
    >>> fk.mfu(scores, seconds=0.01, device="h100-sxm")
    MFU 44.5 % of 989.4 TFLOP/s in bf16, NVIDIA H100 SXM5 80 GB, EXACT; 88.9 % under TORCH
    """
    return of_flops("MFU", "model_flops", flops, device, dtype, count).share(seconds)


def hfu(flops: Any, *, seconds: Any, device: Any, dtype: Any = None, count: Any = 1) -> Any:
    """Hardware FLOPs utilisation: what was executed in a second, as a share of the peak.

        HFU = executed FLOPs / (seconds · count · peak)

    Parameters
    ----------
    flops : Any
        As in `mfu`, but a training step and a `Report` give their ``hardware_flops``, recompute included, and a `Cost` all
        that its convention counts.
    seconds, device : Any
        As in `mfu`.
    dtype, count : Any, optional
        As in `mfu`.

    Returns
    -------
    float
        As in `mfu`.

    Raises
    ------
    ValueError or TypeError
        As in `mfu`.

    Notes
    -----
    Not counted: element-wise work. HFU is MFU where nothing
    is computed twice. ``recompute="none"`` is not enough for that: a flash kernel computes attention's scores again in its backward
    pass, which EXACT, TORCH and FVCORE count and an author's convention does not.

    References
    ----------
    Chowdhery et al. 2022 (PaLM), appendix B.

    Examples
    --------
    8 billion parameters, 10,000 tokens/s. Each parameter means 6 FLOPs a token, and 2 more where the whole forward pass is recomputed:

    >>> import flopkit as fk
    >>> fk.mfu(6 * 8e9 * 10_000, seconds=1, device="h100-sxm")
    MFU 48.5 % of 989.4 TFLOP/s in bf16, NVIDIA H100 SXM5 80 GB, FLOPs as given
    >>> fk.hfu(8 * 8e9 * 10_000, seconds=1, device="h100-sxm")
    HFU 64.7 % of 989.4 TFLOP/s in bf16, NVIDIA H100 SXM5 80 GB, FLOPs as given

    A step that recomputes nothing but what its flash kernel does:

    >>> step, took = fk.load("llama-3-8b").train_step(seq=8192, recompute="none"), {"seconds": 1, "device": "h100-sxm"}
    >>> [f"{share(step, **took):.4f}" for share in (fk.mfu, fk.hfu)]
    ['0.4262', '0.4351']
    >>> fk.mfu(step.under("PALM"), **took) == fk.hfu(step.under("PALM"), **took)
    True
    """
    return of_flops("HFU", "hardware_flops", flops, device, dtype, count).share(seconds)


def mbu(bytes: Any, *, seconds: Any, device: Any, count: Any = 1) -> Any:
    """Memory bandwidth utilisation: the bytes that must move in a second, as a share of the bandwidth.

        MBU = bytes / (seconds · count · bandwidth)

    Parameters
    ----------
    bytes : Any
        Compulsory traffic of *count* devices in those *seconds*: a number of bytes, or anything with ``bytes``, such as a
        `Cost` or a `Report`. In decoding: the weights and the KV cache, once a token.
    seconds : Any
        As in `mfu`.
    device : Any
        A name, a `Device`, or anything with ``bandwidth`` in bytes/s.
    count : Any, optional
        As in `mfu`.

    Returns
    -------
    float
        As in `mfu`.

    Raises
    ------
    ValueError
        Above 1.02 times the printed bandwidth, which is rounded; for a report with operators that it does not know; for seconds that are
        not positive, NaN, and a device that is not known.
    TypeError
        For what is no number and has no bytes.

    Notes
    -----
    Not counted: what a kernel moves beyond that, so the memory may be busier than this number says.

    References
    ----------
    Agarwal et al. 2023, LLM Inference Performance Engineering: Best Practices (Databricks).

    Examples
    --------
    Databricks' example: 14 GB of weights in 14 ms are 1 TB/s, 50 % of 2 TB/s.

    >>> import flopkit as fk
    >>> fk.mbu(14e9, seconds=14e-3, device="h100-pcie")
    MBU 50 % of 2 TB/s, NVIDIA H100 PCIe 80 GB
    """
    return of_bytes(bytes, device, count).share(seconds)
