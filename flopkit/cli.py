"""The command line: what a device can do, what a model costs, what a reported MFU means, and what this machine does.

The same functions as in Python, `device`, `load`, `from_hf`, `doctor`, `experiments.record`. Results go to standard output, as tables or, with ``--json``, as
one JSON object. Bad input is one line on standard error, and the exit code is 2; where some experiments failed, or a count differs from the
hardware's counters, it is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

from flopkit import machine, names, units
from flopkit.__about__ import __version__
from flopkit.arithmetic import ratio
from flopkit.conventions import Convention, as_convention
from flopkit.devices import device, device_names
from flopkit.diagnosis import doctor
from flopkit.dtypes import nbytes
from flopkit.experiments import NAMES, Bench, experiment, record, under_counters
from flopkit.experiments.bench import SCALES
from flopkit.experiments.suite import chosen
from flopkit.measuring.ceilings import ceilings
from flopkit.measuring.hardware import checking, ncu
from flopkit.models.catalogue import any_model
from flopkit.models.formats import Formats
from flopkit.models.lora import LoRA
from flopkit.models.model import Model
from flopkit.models.unknown_types import UnknownTypeError
from flopkit.models.vision import ConvNet
from flopkit.models.weights import formats_of, weight_bytes
from flopkit.peers.of_transformers import built
from flopkit.recordings import shown_records
from flopkit.rooflines import roofline
from flopkit.tables import Table
from flopkit.training.steps import POLICIES

__all__ = ["main"]

_CLOSED = "by a closed form"
_PLACES = (
    "a name that flopkit knows (llama-3-8b); a Hub id (org/name), of which the config.json alone is fetched; the path of a "
    "config.json, of a folder with one, of Meta's or Mistral's params.json, of a GGUF file"
)
_COUNT = (
    "FLOPs, parameters, weights and KV cache of a model. A closed form answers; for a type without one, transformers' own "
    "class is built without memory and counted, where torch and transformers are installed. The output says which."
)
_EXAMPLES = {
    "": "python -m flopkit devices\npython -m flopkit count llama-3-8b --seq 8192\n"
    "python -m flopkit doctor --tokens-per-s 9600 --model llama-2-7b --seq 4096 --device h100-sxm --reported 0.46",
    "devices": "python -m flopkit devices\npython -m flopkit devices h100-sxm\npython -m flopkit devices h200 --json",
    "count": "python -m flopkit count llama-3-8b --seq 8192\npython -m flopkit count config.json --seq 4096 --batch 8\n"
    "python -m flopkit count llama-3-8b --seq 8192 --batch 16 --device h100-sxm\n"
    "python -m flopkit count llama-3-8b --seq 8192 --train --recompute full --convention PALM\n"
    "python -m flopkit count llama-3-8b --seq 2048 --train --lora 16\n"
    "python -m flopkit count resnet50 --batch 64 --train",
    "doctor": "python -m flopkit doctor --tokens-per-s 9600 --model llama-2-7b --seq 4096 --device h100-sxm\n"
    "python -m flopkit doctor --tokens-per-s 53336 --model llama-3.1-8b --seq 8192 --device h100-sxm --count 8 --reported 39%",
    "measure": "python -m flopkit measure matmul_sizes --scale toy\npython -m flopkit measure matmul_sizes --scale toy --json",
    "record": "python -m flopkit record --list\npython -m flopkit record --only matmul_sizes --scale toy --out mine.json",
    "counters": "python -m flopkit counters --list\npython -m flopkit counters --list --json",
}  # fmt: skip


LONGEST = 2000  # characters of an error: what somebody gave may be a whole file


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as those of the functions are."""

    def error(self, message: str) -> Any:
        raise ValueError(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 where experiments failed or counts differ, 2 where the input is wrong, 130 where the user stopped it.

    Parameters
    ----------
    argv : Sequence[str], optional
        The arguments. None: those of the program.

    Examples
    --------
    >>> main(["count", "gpt2", "--seq", "1024", "--convention", "SIX_N"])
    gpt2, forward: 1 × 1,024 tokens, convention SIX_N; by a closed form
    quantity          value
    parameters        124,439,808
    active            124,439,808
    FLOPs             254.9 GFLOPs
    FLOPs a token     248.9 MFLOPs
    weights in bf16   248.9 MB
    KV cache          37.75 MB
    KV cache a token  36.86 kB
    0
    """
    try:
        asked = _parser().parse_args(argv)
        result, table = asked.run(asked)
        text = json.dumps(result, ensure_ascii=False, indent=1, default=float) if asked.json else str(table)
        print(_harmless(text), flush=True)
    except BrokenPipeError:  # a reader such as head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, TypeError, ArithmeticError, OSError, RecursionError, ImportError, MemoryError) as error:
        said = " ".join(str(error).split()) or "not enough memory"
        said = said if len(said) <= LONGEST else f"{said[: LONGEST // 2]} … {said[-LONGEST // 2 :]}"
        print(_harmless(f"flopkit: {said}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"flopkit: {stop or 'interrupted'}", file=sys.stderr)
        return 130
    return 1 if getattr(asked, "failed", False) else 0


def _harmless(text: str) -> str:
    """*text* as a terminal can show it: what would move its cursor, set its title or turn the line round is spelled out, as JSON spells it."""
    return re.sub(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", lambda odd: f"\\u{ord(odd[0]):04x}", text
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m flopkit", description="Every FLOP accounted for.", **_help(""))
    parser.add_argument("--version", action="version", version=f"flopkit {__version__}")
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="devices | count | doctor | measure | record | counters"
    )

    def command(name: str, text: str, run: Any) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text, **_help(name))
        added.set_defaults(run=run)
        added.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
        return added

    devices = command("devices", "Peaks and bandwidths of accelerators.", _devices)
    devices.add_argument("name", nargs="?", help="one device, with its number formats and its source; without it, all")

    count = command("count", _COUNT, _count)
    count.add_argument("model", help=_PLACES)
    count.add_argument("--seq", type=int, help="tokens of a sequence")
    count.add_argument("--batch", type=int, default=1, help="sequences or images (default 1)")
    count.add_argument("--device", help="an accelerator, such as h100-sxm: the least time of a step of decoding on it")
    for side in ("height", "width"):
        count.add_argument(f"--{side}", type=int, help="pixels of an image, of a convolutional network (default 224)")
    count.add_argument(
        "--train",
        action="store_true",
        help="a training step, its memory with Adam in mixed precision; not a forward pass",
    )
    count.add_argument(
        "--recompute", choices=tuple(POLICIES), help="recomputation policy of the training step (default none)"
    )
    count.add_argument(
        "--lora",
        type=int,
        metavar="RANK",
        help="train only LoRA adapters of this rank on the query and value projections",
    )
    count.add_argument(
        "--weights",
        metavar="FORMAT",
        help="the format of the weights, for their bytes: bf16, fp8, mxfp4, nf4, q4_k_m, … (default: what the config.json says)",
    )
    count.add_argument("--convention", default="EXACT", help="EXACT (default), TORCH, PALM, MEGATRON, SIX_N, …")

    ask = command("doctor", "MFU of a run, and what explains an MFU that somebody reported.", _doctor)
    ask.add_argument("named", nargs="?", metavar="model", help=_PLACES)
    ask.add_argument("--model", help="the same, as an option")
    ask.add_argument("--tokens-per-s", type=float, required=True, help="training throughput of all devices together")
    ask.add_argument("--seq", type=int, required=True, help="tokens of a sequence")
    ask.add_argument("--device", required=True, help="a name, such as h100-sxm")
    ask.add_argument("--dtype", default="bf16", help="number format of the products (default bf16)")
    ask.add_argument("--count", type=int, default=1, help="devices of the job (default 1)")
    ask.add_argument("--recompute", choices=tuple(POLICIES), default="none", help="for HFU (default none)")
    ask.add_argument("--reported", help="an MFU that somebody reported: 0.41, 41 or 41%%")

    measure = command(
        "measure", "Run one experiment without saving it, or measure and save this machine's ceilings.", _measure
    )
    measure.add_argument("experiment", help=f"ceilings, or one of {', '.join(NAMES)}")
    keep = command("record", "The experiments on this machine, kept in a file; a second run goes on with it.", _record)
    keep.add_argument(
        "--out", metavar="FILE", help="the recording (default: in the folder where the book looks for yours)"
    )
    keep.add_argument("--only", metavar="A,B", help="names of experiments (default: all)")
    keep.add_argument("--list", action="store_true", help="the experiments and their predictions; measure nothing")
    for option, text in (("who", "who measured"), ("machine", "which machine"), ("licence", "who may show it")):
        keep.add_argument(f"--{option}", help=f"{text}, for a recording that others will see")
    watch = command(
        "counters", "Counted FLOPs beside what the hardware's own counters saw: Nsight Compute, GPM, perf.", _counters
    )
    watch.add_argument("--list", action="store_true", help="the cases on a GPU and what is accepted; run nothing")
    watch.add_argument(
        "--out", metavar="FOLDER", help="where Nsight Compute's files go (default: beside your recordings)"
    )
    watch.add_argument(
        "--step",
        choices=tuple(under_counters.STEPS),
        help="a training step instead of the cases, operator by operator; ncu needs about half a second for each",
    )
    watch.add_argument("--read", metavar="FOLDER", help="read such files again, from any machine; no GPU is needed")
    for added in (measure, keep, watch):
        added.add_argument("--device", choices=("cpu", "cuda"), help="default: the CUDA device where there is one")
    for added in (measure, keep):
        added.add_argument("--scale", choices=tuple(SCALES), help="how large the cases are (default: by the device)")
        added.add_argument("--time-budget", type=float, metavar="S", help="seconds of a case (default: by the scale)")
    return parser


def _help(name: str) -> dict[str, Any]:
    examples = "examples:\n" + "\n".join(f"  {line}" for line in _EXAMPLES[name].splitlines())
    return {"epilog": examples, "formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}


def _devices(asked: argparse.Namespace) -> tuple[Any, Table]:
    if asked.name is not None:
        card = device(asked.name)
        rows = {
            dtype: {"peak": card.peak(dtype), "ridge": card.ridge(dtype), "limit": float(card.limit(dtype))}
            for dtype in card.dtypes
        }
        about = {"name": card.name, "title": card.title, "bandwidth": card.bandwidth, "memory": card.memory}
        return {**about, "formats": rows, "source": card.source, "notes": card.notes}, card.table()
    peaks = ("fp16", "bf16", "fp8")
    found = [
        {"name": card.name}
        | {dtype: card.peak(dtype) if dtype in card.dtypes else None for dtype in peaks}
        | {"bandwidth": card.bandwidth, "memory": card.memory}
        for card in map(device, device_names())
    ]
    rate = {name: lambda value: units.si(value, "FLOP/s") for name in peaks}
    formats = {**rate, "bandwidth": lambda value: units.si(value, "B/s"), "memory": lambda value: units.si(value, "B")}
    return found, Table(found, caption="Dense peaks, bandwidths and memories", formats=formats)


def _count(asked: argparse.Namespace) -> tuple[Any, Table]:
    for option in ("recompute", "lora"):
        if getattr(asked, option) is not None and not asked.train:
            raise ValueError(f"--{option} goes with --train: it does not affect a forward pass")
    convention = as_convention(asked.convention)
    try:
        model = any_model(asked.model)
    except UnknownTypeError as unknown:
        return _by_transformers(asked, convention, unknown)
    sizes = _of_images(asked, model) if isinstance(model, ConvNet) else _of_sequences(asked, model)
    sizes["batch"] = asked.batch
    found: dict[str, Any] = {"model": str(model), "convention": str(convention), "answered by": _CLOSED, **sizes}
    found |= {"parameters": model.params, "active": model.active_params, "notes": list(model.notes)}
    if asked.train:
        how: dict[str, Any] = {"recompute": asked.recompute or "none"}
        how |= {} if asked.lora is None else {"trained": LoRA(rank=asked.lora)}
        step = model.train_step(**how, **sizes).under(convention)
        item, items = step.item
        found |= {"model FLOPs": step.model_flops, "hardware FLOPs": step.hardware_flops}
        found[f"FLOPs {item}"] = ratio(step.model_flops, items)
        if asked.lora is not None:
            found["trained"] = model.trained_params(how["trained"])
        found["training memory"] = None
        with contextlib.suppress(ValueError):  # linear attention and T5's biases: what they keep is not known here
            found["training memory"] = model.train_memory(**how, **sizes).total
    else:
        cost = model.forward(**sizes).under(convention)
        if isinstance(model, ConvNet):
            item, items = "an image", asked.batch
        else:
            item, items = "a token", asked.batch * (model.patches.tokens if model.patches else asked.seq)
        found |= {"FLOPs": cost.flops, f"FLOPs {item}": ratio(cost.flops, items)}
    stored = _stored(asked, model)
    found[f"weights in {stored}"] = (
        weight_bytes(model, stored) if isinstance(model, Model) else nbytes(model.params, "bf16")
    )
    if asked.device is not None:
        found |= _decoding(asked, model)
    elif isinstance(model, Model) and model.writes and not asked.train:
        found |= _cache(asked, model)
    what = "training step" if asked.train else "forward"
    size = f"{items // asked.batch:,} tokens" if item == "a token" else f"{sizes['height']} × {sizes['width']} pixels"
    return _printed(found, f"{model}, {what}: {asked.batch:,} × {size}, convention {convention}", sizes)


def _printed(found: dict[str, Any], caption: str, sizes: dict[str, Any]) -> tuple[Any, Table]:
    caption = "; ".join([caption, found["answered by"], *found["notes"]])
    about = ("model", "convention", "answered by", "notes", *sizes)
    rows = [{"quantity": name, "value": _shown(name, value)} for name, value in found.items() if name not in about]
    return {key.replace(" ", "_"): value for key, value in found.items()}, Table(rows, caption=caption)


def _stored(asked: argparse.Namespace, model: Model | ConvNet) -> Formats:
    """The formats of the weights that an option or the model's file gives, else bf16."""
    if isinstance(model, Model):
        return formats_of(model, asked.weights)
    if asked.weights is not None:
        raise ValueError(f"--weights is for transformers: of {model} the number formats are not read")
    return Formats()


def _cache(asked: argparse.Namespace, model: Model) -> dict[str, Any]:
    """Bytes of keys and values where each text has as many tokens as asked; states of linear attention are none."""
    held = model.kv_bytes(context=asked.seq, batch=asked.batch, dtype=model.cache_format(None))
    return {"KV cache": held, "KV cache a token": ratio(held, asked.batch * asked.seq)}


def _decoding(asked: argparse.Namespace, model: Model | ConvNet) -> dict[str, Any]:
    """The cache, and the least time of a step of decoding at the end of each text.

    Where the card has no peak for the format of the weights, they are only stored in it.
    """
    if asked.train:
        raise ValueError("--device goes with a forward pass, for the time of decoding; of a training step: doctor")
    if not isinstance(model, Model) or not model.writes:
        raise ValueError(f"--device: {model} makes no text token by token, and this is the bound of such a step")
    card, stored = device(asked.device), _stored(asked, model)
    step = model.decode(context=asked.seq, batch=asked.batch, weights=stored)
    peaks = [each for each in stored.arithmetic() if each in card.dtypes]
    bound = roofline(step, card, dtype=max(peaks, key=card.peak, default="bf16" if "bf16" in card.dtypes else "fp16"))
    found = _cache(asked, model) | {"decoding step, at least": bound.seconds}
    found["tokens a second, at most"] = asked.batch / bound.seconds
    held = weight_bytes(model, stored) + found["KV cache"]
    if card.memory is not None and held > card.memory:
        found["does not fit"] = f"{units.si(held, 'B')} of weights and cache, {units.si(card.memory, 'B')} of memory"
    return found


def _by_transformers(asked: argparse.Namespace, convention: Convention, unknown: UnknownTypeError) -> tuple[Any, Table]:
    """What transformers' own class does, for a type without a closed form."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise unknown
    for option in ("recompute", "lora", "device", "height", "width", "weights"):
        if getattr(asked, option) is not None:
            raise ValueError(f"--{option} needs a closed form: {unknown}")
    made = built(asked.model)
    report = made.count(seq=asked.seq, batch=asked.batch, train=asked.train).under(convention)
    sizes: dict[str, Any] = {"seq": asked.seq, "batch": asked.batch}
    by = f"counted: {made.made_by}, for there is no closed form"
    found: dict[str, Any] = {"model": made.name, "convention": str(convention), "answered by": by, **sizes}
    found |= {"parameters": made.params, "notes": [note for note in report.notes if not note.startswith(made.made_by)]}
    if asked.train:
        found |= {"model FLOPs": report.model_flops, "hardware FLOPs": report.hardware_flops}
    else:
        found["FLOPs"] = report.model_flops
    if asked.seq is not None:
        found["FLOPs a token"] = ratio(report.model_flops, asked.batch * asked.seq)
    found["weights in bf16"] = nbytes(made.params, "bf16")
    what = "training step" if asked.train else "forward"
    size = f"{asked.batch:,} × {'an input' if asked.seq is None else f'{asked.seq:,} tokens'}"
    return _printed(found, f"{made.name}, {what}: {size}, convention {convention}", sizes)


def _of_sequences(asked: argparse.Namespace, model: Model) -> dict[str, Any]:
    """The length that options give."""
    for side in ("height", "width"):
        if getattr(asked, side) is not None:
            raise ValueError(f"--{side} is for convolutional networks: {model} has no images of that size")
    if asked.seq is None and model.patches is None:
        raise ValueError("--seq is missing, the tokens of a sequence: e.g. --seq 4096")
    return {"seq": asked.seq}


def _of_images(asked: argparse.Namespace, model: ConvNet) -> dict[str, Any]:
    """The size of images that options give."""
    if asked.seq is not None:
        raise ValueError(f"--seq: {model} reads images and no tokens; --height and --width are their size")
    return {side: 224 if getattr(asked, side) is None else getattr(asked, side) for side in ("height", "width")}


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "not known here"
    if "FLOPs" in name:
        return units.si(value, "FLOPs")
    if isinstance(value, str):
        return value
    if "at least" in name or "at most" in name:
        return units.si(value, "s") if "at least" in name else f"{value:,.1f}"
    return units.si(value, "B") if any(word in name for word in ("cache", "memory", "weights")) else f"{value:,}"


def _doctor(asked: argparse.Namespace) -> tuple[Any, Any]:
    names = [name for name in (asked.named, asked.model) if name is not None]
    if len(names) != 1:
        raise ValueError("name one model, such as: doctor llama-3-8b --seq 8192 …" + f"; given: {names}" * bool(names))
    wanted = {name: value for name, value in vars(asked).items() if name not in ("run", "json", "named")}
    found = doctor(**{**wanted, "model": names[0]})
    listed = {
        what: [{"name": each.name, "ratio": each.ratio, "mfu": each.mfu, "why": each.why} for each in getattr(found, what)]
        for what in ("explanations", "considered")
    }  # fmt: skip
    about = {"mfu": float(found.mfu), "hfu": float(found.hfu), "convention": "EXACT"}
    about |= {"verdict": found.verdict, "reported": found.reported}
    return {**about, **listed}, found if found.reported or found.explanations else found.table()


def _measure(asked: argparse.Namespace) -> tuple[Any, Any]:
    if names.find(asked.experiment, (*NAMES, "ceilings"), "an experiment", argument="experiment") == "ceilings":
        if asked.scale is not None:
            raise ValueError("--scale goes with an experiment: it does not apply to ceilings")
        roof = ceilings(asked.device, time_budget=asked.time_budget)
        return roof.record(), roof
    one = experiment(asked.experiment)
    bench = Bench(asked.device, asked.scale, time_budget=asked.time_budget)
    found = list(tqdm(one.run(bench), desc=one.name, unit="case", leave=False, disable=None))
    caption = f"{one.title}, on {machine.title(bench.device)}. Predicted: {one.prediction}"
    return {"experiment": one.name, "prediction": one.prediction, "results": found}, shown_records(found, caption)


def _record(asked: argparse.Namespace) -> tuple[Any, Table]:
    wanted = chosen(None if asked.only is None else asked.only.split(","))
    if asked.list:
        listed = [
            {"experiment": name, "title": (one := experiment(name)).title, "predicted": one.prediction}
            for name in wanted
        ]
        return listed, Table(listed, caption=f"{len(listed)} experiments")
    about = {name: text for name in ("who", "machine", "licence") if (text := getattr(asked, name)) is not None}
    how = {"device": asked.device, "scale": asked.scale, "time_budget": asked.time_budget}
    device = machine.title(machine.place(asked.device))
    path = _named("out", asked.out) or machine.folder() / f"{'-'.join(re.findall('[a-z0-9]+', device.lower()))}.json"
    suite = record(path, only=wanted, attribution=about, **how)
    rows: list[dict[str, Any]] = [
        {
            "experiment": name,
            "cases": len(cases := [each for each in suite.recording.results if each["experiment"] == name]),
            "refused": sum(each["verdict"] != "ok" for each in cases),
            "failed": suite.failed.get(name, ""),
        }
        for name in wanted
    ]
    asked.failed = bool(suite.failed)
    said = {"file": str(path), "device": suite.recording.device, "new": suite.new, "experiments": rows}
    return said, Table(rows, caption=f"{path}: {suite.recording!r}; {suite.new} of them new")


def _named(option: str, path: str | None) -> str | None:
    """A path that an option names; nothing is no path, as where a variable of the shell is not set."""
    if path is not None and not path.strip():
        raise ValueError(f"--{option} {path!r}: names no file or folder")
    return path


def _counters(asked: argparse.Namespace) -> tuple[Any, Table]:
    if asked.list:
        cases = checking.expected()
        return cases, Table(
            cases, caption=f"{len(cases)} cases on a GPU: executed by its counters / counted by flopkit"
        )
    for option in ("read", "out"):
        _named(option, getattr(asked, option))
    if asked.step or (asked.read and under_counters.is_step(Path(asked.read))):
        kept = Path(asked.read or asked.out or machine.folder() / "counters" / asked.step)
        step = under_counters.compared(kept) if asked.read else under_counters.check(kept, asked.step)
        return step, under_counters.shown(step)
    found = [ncu.compared(Path(asked.read))] if asked.read else checking.against_hardware(asked.device, asked.out)
    asked.failed = not checking.agreed(found)
    return found, checking.shown(found)
