"""``doctor``: MFU of a run, and what explains an MFU that somebody reported."""

from __future__ import annotations

import argparse
import math
from typing import Any

from flopkit.cli import options
from flopkit.diagnosis import doctor, read_log
from flopkit.models.training.lora import LoRA
from flopkit.training.steps import POLICIES

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "doctor --tokens-per-s 9600 --model llama-2-7b --seq 4096 --device h100-sxm",
    "doctor --tokens-per-s 53336 --model llama-3.1-8b --seq 8192 --device h100-sxm --count 8 --reported 39%",
    "doctor mixtral-8x7b --seq 2048 --step-seconds 5.9121 --global-batch 128 --device h100-sxm --count 16 --reported 220.9TFLOP/s",
    "doctor --tflops-per-device 400 --device h100-sxm --reported 20%",
)


_RATES = {
    "tokens-per-s": "training throughput of all devices together: 53336 or 53.3k",
    "tokens-per-s-per-device": "training throughput per device",
    "tflops-per-device": "TFLOP/s per device, as the log counts FLOPs; no model is needed",
    "step-seconds": "time per step, with --global-batch: 5.91 or '5912.1 ms'",
    "global-batch": "sequences per step, over all devices",
    "tokens": "tokens of the whole run, with --device-hours: 15T",
    "device-hours": "hours of the run times devices",
}
_LOGS = (
    "Megatron-LM's, Megatron-Bridge's, NeMo's, torchtitan's, MaxText's, nanotron's, OLMo-core's, llm-foundry's, DeepSpeed's, nanoGPT's, nanochat's, "
    "transformers' Trainer's and others; add --global-batch where the line has only the time of a step"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What ``doctor`` takes."""
    parser.add_argument("named", nargs="?", metavar="model", help=options.PLACES)
    parser.add_argument("--model", help="the same, as an option")
    for option, text in _RATES.items():
        parser.add_argument(f"--{option}", metavar="N", help=text)
    parser.add_argument(
        "--log", metavar="LINE", help=f"a line of a training log, instead of a rate and of --reported: {_LOGS}"
    )
    parser.add_argument(
        "--seq",
        type=options.number,
        help="tokens per sequence; with --lengths, of the context that the documents are packed into",
    )
    parser.add_argument("--device", help="a name, such as h100-sxm")
    parser.add_argument(
        "--dtype", default="bf16", help="number format of the matmuls (default bf16), or several: linear=fp8,rest=bf16"
    )
    parser.add_argument("--count", type=options.number, default=1, help="devices of the job (default 1)")
    parser.add_argument(
        "--recompute", choices=tuple(POLICIES), default="none", help="what is recomputed, for the HFU (default none)"
    )
    parser.add_argument(
        "--lora",
        type=options.number,
        metavar="RANK",
        help="train only LoRA adapters of this rank, on the query and value projections",
    )
    parser.add_argument("--lengths", metavar="A,B,…", help="tokens of each document in a packed sequence: 512,512,2048")
    parser.add_argument("--parallel", metavar="tp=N,…", help="degrees of parallelism, tp, cp, pp, dp and ep: tp=4,cp=2")
    parser.add_argument("--reported", help="the MFU that somebody reported: 0.41, 41, 41%% or '405 TFLOP/s'")


def run(asked: argparse.Namespace) -> tuple[Any, Any]:
    """The MFU of the run that the options tell of, with its explanations."""
    names = [name for name in (asked.named, asked.model) if name is not None]
    given: dict[str, Any] = {
        name.replace("-", "_"): getattr(asked, name.replace("-", "_")) for name in (*_RATES, "reported")
    }
    if asked.log is not None:
        if any(value is not None for name, value in given.items() if name not in ("reported", "global_batch")):
            raise ValueError("--log has a rate: leave out the other one")
        given |= {name: value for name, value in read_log(asked.log).arguments.items() if given[name] is None}
    elif all(value is None for value in given.values()):
        raise ValueError(
            "a rate is missing: give --tokens-per-s, --tokens-per-s-per-device, --tflops-per-device, --step-seconds with "
            "--global-batch, --tokens with --device-hours, or --log 'LINE'; see python -m flopkit doctor --help"
        )
    flops_alone = given["tflops_per_device"] is not None and asked.seq is None and not names
    if len(names) != 1 and not flops_alone:
        raise ValueError("name one model, such as: doctor llama-3-8b --seq 8192 …" + f"; given: {names}" * bool(names))
    if asked.device is None:
        raise ValueError("--device is missing: a name, such as h100-sxm; python -m flopkit devices lists them")
    if isinstance(given["global_batch"], str):
        given["global_batch"] = options.whole("global-batch", given["global_batch"])
    more: dict[str, Any] = {name: getattr(asked, name) for name in ("seq", "device", "count", "recompute")}
    more["dtype"] = options.by_name("dtype", asked.dtype) if "=" in asked.dtype else asked.dtype
    more["trained"] = None if asked.lora is None else LoRA(rank=asked.lora)
    if asked.lengths is not None:
        more["lengths"] = [options.whole("lengths", each) for each in asked.lengths.split(",")]
    if asked.parallel is not None:
        more["parallel"] = {
            name: options.whole("parallel", each) for name, each in options.by_name("parallel", asked.parallel).items()
        }
    found = doctor(model=names[0] if names else None, **given, **more)
    listed = {
        what: [
            {"name": each.name, "ratio": each.ratio, "mfu": each.mfu, "why": each.why}
            | ({} if math.isnan(each.chance) else {"chance": each.chance})
            for each in getattr(found, what)
        ]
        for what in ("explanations", "near", "considered")
    }
    about = {
        "mfu": float(found.mfu),
        "hfu": None if found.hfu is None else float(found.hfu),
        "convention": found.convention,
    }
    about |= {"verdict": found.verdict, "reported": found.reported}
    return {**about, **listed}, found if found.reported or found.explanations else found.table()
