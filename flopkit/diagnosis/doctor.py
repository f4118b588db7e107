"""The doctor: what a log prints becomes MFU and HFU, and a reported MFU that differs gets the mistakes that would explain it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flopkit.devices import device as known_device
from flopkit.diagnosis.findings import Diagnosis
from flopkit.diagnosis.layouts import gap_at, gap_of
from flopkit.diagnosis.rates import degrees_of, rate_of
from flopkit.diagnosis.runs import OfFlops, OfModel
from flopkit.sizes import choice, number
from flopkit.training.steps import POLICIES

__all__ = ["doctor"]


def doctor(
    *, model: Any = None, seq: int | None = None, device: Any, dtype: Any = "bf16", count: int = 1, recompute: str = "none",
    trained: Any = None, lengths: Any = None, parallel: Any = None, reported: float | str | None = None,
    tokens_per_s: float | str | None = None, tokens_per_s_per_device: float | str | None = None, tflops_per_device: float | str | None = None,
    step_seconds: float | str | None = None, global_batch: int | None = None, tokens: float | str | None = None,
    device_hours: float | str | None = None, cluster: Any = None,
) -> Diagnosis:  # fmt: skip
    """MFU and HFU of a training run, whether it is possible, and what would explain the MFU that somebody reported.

        MFU = model FLOPs a token · tokens/s / (count · peak)

    Exactly one of five rates is given, as a log prints it: ``tokens_per_s``, ``tokens_per_s_per_device``, ``tflops_per_device``,
    ``step_seconds`` with ``global_batch``, or ``tokens`` with ``device_hours``.

    Parameters
    ----------
    model : Any, optional
        A name that `load` knows, a `Model`, or a Hugging Face config: the path of a ``config.json``, or a dict. It may be left out with
        *tflops_per_device*.
    seq : int, optional
        Tokens of a sequence. With *lengths* it may be left out; given, it is the context length that documents were packed into, which
        others may have taken for theirs.
    device : Any
        A name or a `Device`.
    dtype : Any, optional
        The number format of the products, which chooses the peak. Where they have several, by what they multiply: ``{"linear": "fp8",
        "rest": "bf16"}``; the keys are ``"linear"`` (the layers' weights), ``"scores"`` (attention's two products), ``"router"``,
        ``"head"`` and ``"rest"``. Then MFU is the ideal time, each format by its own peak, by the time that it takes.
    count : int, optional
        Devices of the job.
    recompute : str, optional
        ``"none"``, ``"selective"`` or ``"full"``, for HFU. Full is to the end of every layer; PyTorch's own checkpoint stops early, which is
        among the explanations.
    trained : Any, optional
        What is trained, as in `Model.train_step`: ``"all"``, ``"head"``, ``fk.models.LastLayers(…)`` or ``fk.LoRA(…)``. None: all.
    lengths : Any, optional
        The tokens of each document, as in `Model.train_step`, where sequences are packed of documents that do not see each other: all of
        the run's, or a sample. FLOPs a token are those of all these documents by their tokens.
    parallel : Any, optional
        The degrees of parallelism, ``{"tp": 4, "cp": 2, "pp": 1, "dp": 8, "ep": 1}``, of which *count* is a multiple. They change no MFU,
        and make mistakes about them plausible. With a `flopkit.parallel.Layout` and *global_batch*, the result has a ``gap``, too.
    reported : float or str, optional
        The MFU that somebody reported, or the HFU (``"HFU 41 %"``): a share below 1 (``0.41``), per cent from 10 on (``41``), text such as ``"5.6 %"``, which may be any,
        or TFLOP/s of a device (``"405 TFLOP/s"``). Its digits say how far off an explanation may be (0.4 is taken for 0.40).
    tokens_per_s, tokens_per_s_per_device : float or str, optional
        Training throughput of **all** *count* devices together, or of one. Text may be in sequences: ``"7.95 samples/s"``.
    tflops_per_device : float or str, optional
        10¹² FLOP/s of one device, as the log counts FLOPs: MFU is their share of the peak, and no mistake in counting them is sought.
    step_seconds : float or str, optional
        The time of a step; ``"5912.1 ms"``, ``"41.36 s/it"`` and ``"1.37 it/s"`` are understood.
    global_batch : int, optional
        Sequences of a step on all devices together, each of *seq* tokens; without *seq*, of as many as the documents have on average.
        It goes with *step_seconds*, and with any rate where *parallel* is a layout.
    tokens : float or str, optional
        Tokens of the whole run; ``"15T"`` is understood.
    device_hours : float or str, optional
        Hours of it, times devices.
    cluster : Any, optional
        Where a layout ran: a name that `flopkit.parallel.cluster` knows, or a `flopkit.parallel.Cluster`. None: NVIDIA's own
        (DGX) with the device, else the first of the data that has it.

    Raises
    ------
    TypeError
        For no rate and for two, for half of a pair, for a missing length or model.
    ValueError
        For a number from 1 to 10, which may be a share or per cent; for a name that is not known, a device that another maker makes, a number
        format that the device has no peak for, a unit of one device in a rate of all, degrees that do not divide *count*; a layout whose ranks are not *count*, or that does not fit the model or the batch; a device of which no
        cluster is known; and values that are not positive and finite.

    Notes
    -----
    Digits: text says them. Of a whole number zeros at the end may be digits or not, and both readings are tried (of 51,000 the rate is
    51,000, or 50,500 to 51,500). A float has the digits of its repr, three of them at least. A peak may have been rounded to three digits,
    and so may FLOP/s and FLOPs a token in between.
    Chance: each mistake has a prior (common, possible, rare) and a window of MFUs that it makes, which the digits widen. Mistakes explain in
    the order of prior by width, as long as their windows together hold at most 5 % of all MFUs that are printed with as many digits, from 5
    to 100 % and from 10 to 70 % alone, and 15 % of those of two digits. So at most that share of MFUs is explained that are due to anything else. What fits but comes
    later is among ``Diagnosis.near``, and so is what just misses.
    Mistakes that make the same ratio (a sparse peak, MACs for FLOPs) cannot be told apart by one number. Not considered: a wrong
    length but for the context's with *lengths*, padding that counts as tokens, three mistakes at once.

    Examples
    --------
    >>> run = dict(model="llama-3.1-8b", device="h100-sxm", count=8)
    >>> found = doctor(**run, tokens_per_s_per_device=6667, seq=8192, reported=0.39)
    >>> round(found.mfu, 3), found.verdict, found.explanations[0].name
    (0.347, 'possible', 'causal ×2: hidden pairs counted')

    Packed documents, and an MFU that takes the context length for theirs:

    >>> found = doctor(**run, tokens_per_s=8 * 6667, seq=8192, lengths=[512] * 12 + [2048], reported="34.7 %")
    >>> round(found.mfu, 3), found.explanations[0].name
    (0.308, "the context's 8,192 tokens for each document's")

    A log that prints TFLOP/s, and a colleague who divides by 2,000:

    >>> found = doctor(tflops_per_device=400, device="h100-sxm", reported="20 %")
    >>> round(found.mfu, 3), found.explanations[0].name, found.explanations[0].chance < 0.15
    (0.404, 'sparse peak', True)

    torchtitan's float8 run: the layers' weights multiply in fp8, all else in bf16.

    >>> formats = {"linear": "fp8", "rest": "bf16"}
    >>> round(doctor(**run, tokens_per_s_per_device=8532, seq=8192, dtype=formats).mfu, 3)
    0.263

    A layout, and where the step goes:

    >>> from flopkit.parallel import Layout
    >>> layout = Layout(tensor=4, pipeline=8, data=2, virtual=5)
    >>> found = doctor(model="llama-3-70b", device="h100-sxm", count=64, seq=8192, global_batch=256, parallel=layout, cluster="dgx-h100",
    ...                dtype=formats, tokens_per_s_per_device=1633)
    >>> found.gap.largest.name, found.gap.largest_known.name
    ('unexplained', 'products')
    """
    count, context = number("count", count), None if seq is None else number("seq", seq)
    choice("recompute", recompute, tuple(POLICIES))
    card, degrees = known_device(device), degrees_of(parallel, count)
    given = {
        "tokens_per_s": tokens_per_s, "tokens_per_s_per_device": tokens_per_s_per_device, "tflops_per_device": tflops_per_device,
        "step_seconds": step_seconds, "global_batch": global_batch, "tokens": tokens, "device_hours": device_hours,
    }  # fmt: skip
    asks = gap_of(parallel, cluster, card, model, context, lengths, count, global_batch, recompute, trained)
    if asks and step_seconds is None:
        given["global_batch"] = None
    if tflops_per_device is not None and lengths is None and (context is None or model is None):
        if recompute != "none" or trained is not None:
            raise TypeError(
                "recompute= and trained= need model= and seq=: TFLOP/s by themselves do not say what is computed"
            )
        run = OfFlops(card, dtype, count, rate_of(given, count, None))
    else:
        run = OfModel(model, context, lengths, recompute, trained, card, dtype, count, degrees, given)
    found = run.diagnosis(reported)
    return replace(found, gap=gap_at(run, asks)) if asks else found
