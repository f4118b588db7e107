"""How much arithmetic, or how many bytes, a published measurement stands for: the rate that a peak is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from flopkit.dtypes import names as number_formats
from flopkit.layers.convolutions import conv2d
from flopkit.layers.positions import conv_output
from flopkit.layers.products import matmul
from flopkit.models import Model, cnn, cnn_names, load, model_names
from flopkit.names import plain

__all__ = ["Rate", "rate"]

Row = Mapping[str, Any]

# Passes of a network in units of its forward pass: each product has two gradients.
_PASSES = {"inference": 1, "backward": 2, "training": 3}

# The same sizes under another name: what differs does not change the products.
_SAME = {
    "resnet50-v1.5": "resnet50",
    "llama-3.1-8b": "llama-3-8b",
    "llama-3.1-70b": "llama-3-70b",
    "llama-3.3-70b": "llama-3-70b",
}


class Rate(NamedTuple):
    """FLOP/s or bytes/s of a whole job, and how its work was counted."""

    value: float
    unit: str
    counted: str


def rate(row: Row) -> Rate | None:
    """What a row's value comes to, all devices together; None where the work is not known.

    >>> rate({"kind": "matmul", "unit": "ms", "value": 2, "count": 1, "m": 1000, "k": 1000, "n": 1000})
    Rate(value=1000000000000.0, unit='FLOP/s', counted='2·m·n·k')
    """
    if row["unit"].startswith(("TFLOP/s", "GB/s")):
        scale, unit = (1e12, "FLOP/s") if row["unit"].startswith("T") else (1e9, "B/s")
        return Rate(row["value"] * scale * _jobs(row), unit, "as the source prints it")
    unit = "B/s" if row["kind"] == "decode" else "FLOP/s"
    work = _weights(row) if row["kind"] == "decode" else _flops(row)
    if work is None or row["unit"].startswith("min"):
        return None
    amount, each, counted = work
    batch = row.get("batch")
    tokens = batch and row.get("seq") and batch * row["seq"]
    if row["unit"] == "ms":
        items = {"call": 1, "image": batch, "sequence": batch, "token": tokens}[each]
        return Rate(amount * items / (row["value"] / 1e3), unit, counted) if items else None
    return Rate(amount * row["value"] * _jobs(row), unit, counted)


def _jobs(row: Row) -> int:
    return int(row["count"]) if row["unit"].endswith("/GPU") else 1


def _flops(row: Row) -> tuple[float, str, str] | None:
    """FLOPs of one call, one image or one token."""
    if row["kind"] == "matmul":
        return matmul(m=row["m"], k=row["k"], n=row["n"]).flops, "call", "2·m·n·k"
    if row["kind"] == "convolution":
        return _convolution(row).flops, "call", "as a convolution is defined; each gradient as the forward pass"
    passes = _PASSES.get(row["kind"])
    times = "" if passes == 1 else f"{passes} × "
    if passes and row.get("gmacs"):
        return passes * 2e9 * row["gmacs"], "image", f"{times}2 × gmacs of the source"
    if passes and (network := _network(row["workload"])) and row.get("image", 224) == 224:
        return passes * _image(network), "image", f"{times}flopkit.models.vision.cnn({network!r})"
    if (model := _model(row["workload"])) is None:
        return None
    seq = row.get("seq")
    pairs = f"causal attention over {seq:,} tokens" if seq else "without attention: no length is stated"
    where = f"{model}, {pairs}"
    if passes:
        flops, each = passes * _token(model, seq or 1), "token"
        if not row["unit"].startswith(("tokens", "ms")):  # sequences a second
            flops, each = flops * (seq or 0), "sequence"
        return (flops, each, f"{times}the forward pass of {where}") if flops else None
    if row["kind"] == "prefill":
        return _token(model, seq or 1, head=False), "token", f"the layers of {where}"
    if row["kind"] == "serving" and row.get("prompt") and row.get("output"):
        share = (row["prompt"] + row["output"]) / row["output"]  # prompts are read, but not in the throughput
        return share * _token(model, 1, head=False), "token", f"the layers of {model}, without attention, prompts too"
    return None


def _weights(row: Row) -> tuple[float, str, str] | None:
    """Bytes of the weights, which a device reads for each token of one sequence."""
    if row.get("bandwidth_GBps"):
        amount = row["bandwidth_GBps"] * 1e9 * row["count"] / row["value"]
        return amount, "token", "weights × tokens a second, as the source prints it"
    for column, size in (("weights_GB", 1e9), ("weights_GiB", 2**30)):
        if row.get(column):
            return row[column] * size, "token", f"{column} of the source"
    model = _model(row["workload"])
    if row["unit"] != "tokens/s" or model is None or row["precision"] not in number_formats():
        return None
    step = load(model).decode(context=1, weights=row["precision"])
    return step.bytes, "token", f"flopkit.load({model!r}).decode(context=1, weights={row['precision']!r})"


@cache
def _network(workload: str) -> str | None:
    known = {plain(name): name for name in cnn_names()}
    return known.get(plain(_SAME.get(workload, workload)))


@cache
def _model(workload: str) -> str | None:
    """A decoder that flopkit can load: of others a row does not say enough, such as the lengths of an encoder-decoder."""
    name = workload if workload in model_names() else _SAME.get(workload)
    return name if name in model_names() and _is_decoder(name) else None


@cache
def _image(network: str) -> int:
    return int(cnn(network, batch=1).flops)


@cache
def _is_decoder(name: str) -> bool:
    model = load(name)
    return isinstance(model, Model) and model.causal and model.encoder is None and model.patches is None


@cache
def _token(model: str, seq: int, head: bool = True) -> float:
    """FLOPs of a forward pass over *seq* tokens, a token; *head*: the product with the vocabulary on each of them."""
    cost = load(model).forward(seq=seq)
    return float(cost.flops - (0 if head else 2 * cost.macs_by_kind["head"])) / seq


def _convolution(row: Row) -> Any:
    def positions(axis: str) -> Any:
        kernel, stride, padding = (row[f"{word}_{axis}"] for word in ("kernel", "stride", "padding"))
        return conv_output(size_in=row[f"{axis}_in"], kernel=kernel, stride=stride, padding=padding)

    kernel = (row["kernel_h"], row["kernel_w"])
    return conv2d(
        batch=row["batch"], c_in=row["c_in"], c_out=row["c_out"], h_out=positions("h"), w_out=positions("w"), kernel=kernel
    )  # fmt: skip
