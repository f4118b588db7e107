"""``train``: a whole training run in hours, device-hours, energy and dollars."""

from __future__ import annotations

import argparse
from typing import Any

from flopkit.cli import options
from flopkit.models.catalogue import any_model
from flopkit.models.model import Model
from flopkit.models.training.lora import LoRA
from flopkit.training.steps import POLICIES

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "train llama-3.1-8b --tokens 15e12 --device h100-sxm --count 1024 --mfu 0.4 --price 2",
    "train llama-3.1-8b --tokens 15e12 --device h100-sxm --device-hours 1.46e6",
    "train llama-3.1-8b --tokens 15e12 --device h100-sxm --mfu 40% --budgets",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What ``train`` takes."""
    parser.add_argument("model", help=options.PLACES)
    parser.add_argument("--tokens", type=options.amount, required=True, help="tokens of the run, such as 15e12 or 15T")
    parser.add_argument("--device", required=True, help="a name, such as h100-sxm")
    parser.add_argument("--count", type=options.number, default=1, help="devices (default 1)")
    parser.add_argument(
        "--mfu",
        type=options.share,
        help="model FLOPs utilisation, 0.4 or 40%%; or give one of the next three, which imply it",
    )
    parser.add_argument("--device-hours", type=options.amount, help="device-hours of the run: implies the MFU")
    parser.add_argument("--hours", type=options.amount, help="wall-clock hours of the run: implies the MFU")
    parser.add_argument("--tokens-per-s", type=options.amount, help="tokens/s of all devices together: implies the MFU")
    parser.add_argument(
        "--seq",
        type=options.number,
        help="tokens per sequence (default 8192, or as many as the model has learned positions)",
    )
    parser.add_argument(
        "--recompute", choices=tuple(POLICIES), default="none", help="what is recomputed, for the HFU (default none)"
    )
    parser.add_argument("--lora", type=options.number, metavar="RANK", help="train only LoRA adapters of this rank")
    parser.add_argument("--dtype", default="bf16", help="number format of the matmuls (default bf16)")
    parser.add_argument(
        "--goodput",
        type=options.share,
        default=1,
        help="share of the time that is spent on steps that are kept (default 1)",
    )
    parser.add_argument("--price", type=float, help="dollars per device-hour")
    parser.add_argument("--watts", type=float, help="watts per device (default: the maker's limit, where it is known)")
    parser.add_argument("--budgets", action="store_true", help="also show how scaling laws would split the same FLOPs")


def run(asked: argparse.Namespace) -> tuple[Any, Any]:
    """The run that the options tell of."""
    model = any_model(asked.model)
    if not isinstance(model, Model):
        raise ValueError(
            f"{model} reads images: a run is told in tokens; count {model} --train has the FLOPs of a step"
        )
    names = (
        "tokens",
        "device",
        "count",
        "mfu",
        "device_hours",
        "hours",
        "tokens_per_s",
        "seq",
        "recompute",
        "dtype",
        "goodput",
    )
    how: dict[str, Any] = {name: getattr(asked, name) for name in (*names, "price", "watts")}
    how["trained"] = "all" if asked.lora is None else LoRA(rank=asked.lora)
    run = model.training(**how)
    about = {
        name: getattr(run, name)
        for name in ("name", "device", "tokens", "seq", "count", "flops", "hardware_flops", "goodput")
    }
    about |= {"convention": "EXACT", "mfu": float(run.mfu), "hfu": float(run.hfu)}
    numbers = ("tokens_per_s", "hours", "days", "device_hours", "kilowatt_hours", "dollars", "tokens_per_parameter")
    about |= {name: getattr(run, name) for name in numbers}
    if not asked.budgets:
        return about, run.table()
    return {**about, "budgets": list(run.budgets())}, f"{run.table()}\n\n{run.budgets()}"
