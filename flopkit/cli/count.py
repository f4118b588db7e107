"""``count``: FLOPs, parameters, weights and KV cache of a model."""

from __future__ import annotations

import argparse
import contextlib
from importlib.util import find_spec
from typing import Any, NamedTuple

from flopkit import units
from flopkit.arithmetic import ratio
from flopkit.cli import options
from flopkit.conventions import Convention, as_convention
from flopkit.devices import device
from flopkit.dtypes import nbytes
from flopkit.models.caches import cached_bytes
from flopkit.models.catalogue import any_model
from flopkit.models.checkpoints.weights import formats_of, weight_bytes
from flopkit.models.files.unknown_types import UnknownTypeError
from flopkit.models.formats import Formats
from flopkit.models.model import Model
from flopkit.models.training.lora import LoRA
from flopkit.models.vision import ConvNet
from flopkit.peers.of_transformers import built
from flopkit.serving import decode, largest_batch
from flopkit.tables import Table
from flopkit.training.steps import POLICIES

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "count llama-3-8b --seq 8192",
    "count config.json --seq 4096 --batch 8",
    "count llama-3-8b --seq 8192 --batch 16 --device h100-sxm",
    "count llama-3-8b --seq 8192 --train --recompute full --convention PALM",
    "count llama-3-8b --seq 2048 --train --lora 16",
    "count resnet50 --batch 64 --train",
)


_CLOSED = "by a closed form"


class Quantity(NamedTuple):
    """What a row says, and its unit: ``"FLOPs"``, ``"B"``, ``"s"``, ``"/s"``, or empty for a number of things and for words."""

    value: Any
    unit: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return "not known here"
        if isinstance(self.value, str):
            return self.value
        if self.unit == "/s":
            return f"{self.value:,.1f}"
        return units.si(self.value, self.unit) if self.unit else f"{self.value:,}"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What ``count`` takes."""
    parser.add_argument("model", help=options.PLACES)
    parser.add_argument("--seq", type=options.number, help="tokens per sequence")
    parser.add_argument(
        "--source",
        type=options.number,
        help="tokens that the encoder of an encoder-decoder reads, for the KV cache and decoding (default: as many as --seq)",
    )
    parser.add_argument("--batch", type=options.number, default=1, help="sequences or images (default 1)")
    parser.add_argument("--device", help="an accelerator, such as h100-sxm: also the least time of a decode step on it")
    for side in ("height", "width"):
        parser.add_argument(
            f"--{side}",
            type=options.number,
            help=f"{side} of an image in pixels, for a convolutional network (default 224)",
        )
    parser.add_argument(
        "--train",
        action="store_true",
        help="a training step instead of a forward pass, and its memory with Adam in mixed precision",
    )
    parser.add_argument(
        "--shards",
        type=options.number,
        metavar="N",
        help="devices that shard parameters, gradients and optimiser states (FSDP)",
    )
    parser.add_argument(
        "--recompute", choices=tuple(POLICIES), help="recomputation policy of the training step (default none)"
    )
    parser.add_argument(
        "--lora",
        type=options.number,
        metavar="RANK",
        help="train only LoRA adapters of this rank on the query and value projections",
    )
    parser.add_argument(
        "--weights",
        metavar="FORMAT",
        help="number format of the weights, for their bytes: bf16, fp8, mxfp4, nf4, q4_k_m, … (default: what the config.json says)",
    )
    parser.add_argument("--convention", default="EXACT", help="EXACT (default), TORCH, PALM, MEGATRON, SIX_N, …")


def run(asked: argparse.Namespace) -> tuple[Any, Table]:
    """What a closed form says of the model; where there is none, what counting transformers' own class gives."""
    for option in ("recompute", "lora", "shards"):
        if getattr(asked, option) is not None and not asked.train:
            raise ValueError(f"--{option} goes with --train: it does not affect a forward pass")
    convention = as_convention(asked.convention)
    try:
        model = any_model(asked.model)
    except UnknownTypeError as unknown:
        return _by_transformers(asked, convention, unknown)
    if asked.source is not None and (asked.train or not isinstance(model, Model) or not model.writes):
        raise ValueError("--source is for cache and decoding of an encoder-decoder, such as t5-base")
    sizes = _of_images(asked, model) if isinstance(model, ConvNet) else _of_sequences(asked, model)
    sizes["batch"] = asked.batch
    found: dict[str, Any] = {"model": str(model), "convention": str(convention), "answered by": _CLOSED, **sizes}
    found |= {"parameters": Quantity(model.params), "active": Quantity(model.active_params), "notes": list(model.notes)}
    if asked.train:
        how: dict[str, Any] = {"recompute": asked.recompute or "none"}
        how |= {} if asked.lora is None else {"trained": LoRA(rank=asked.lora)}
        step = model.train_step(**how, **sizes).under(convention)
        item, items = step.item
        found |= _of_step(step)
        found[f"FLOPs {item}"] = Quantity(ratio(step.model_flops, items), "FLOPs")
        if asked.lora is not None:
            found["trained"] = Quantity(model.trained_params(how["trained"]))
        found |= {} if asked.shards is None else {"shards": Quantity(asked.shards)}
        found["training memory"] = Quantity(_held(asked, model, **how, **sizes), "B")
    else:
        cost = model.forward(**sizes).under(convention)
        if isinstance(model, ConvNet):
            item, items = "an image", asked.batch
        else:
            item, items = "a token", asked.batch * (model.patches.tokens if model.patches else asked.seq)
        found |= {"FLOPs": Quantity(cost.flops, "FLOPs"), f"FLOPs {item}": Quantity(ratio(cost.flops, items), "FLOPs")}
    if isinstance(model, Model) and asked.weights is None and model.formats is not None and model.formats.unread:
        found["weights"] = Quantity(None, "B")
    else:
        stored = _stored(asked, model)
        held = weight_bytes(model, stored) if isinstance(model, Model) else nbytes(model.params, "bf16")
        found[f"weights in {stored}"] = Quantity(held, "B")
    if asked.device is not None:
        found |= _decoding(asked, model)
    elif isinstance(model, Model) and model.writes and not asked.train:
        found |= _cache(asked, model)
    what = "training step" if asked.train else "forward"
    size = f"{items // asked.batch:,} tokens" if item == "a token" else f"{sizes['height']} × {sizes['width']} pixels"
    return _printed(found, f"{model}, {what}: {asked.batch:,} × {size}, convention {convention}")


def _printed(found: dict[str, Any], caption: str) -> tuple[Any, Table]:
    caption = "; ".join([caption, found["answered by"], *found["notes"]])
    rows = [{"quantity": name, "value": str(said)} for name, said in found.items() if isinstance(said, Quantity)]
    plain = {name: said.value if isinstance(said, Quantity) else said for name, said in found.items()}
    return {name.replace(" ", "_"): value for name, value in plain.items()}, Table(rows, caption=caption)


def _stored(asked: argparse.Namespace, model: Model | ConvNet) -> Formats:
    """The formats of the weights that an option or the model's file gives, else bf16."""
    if isinstance(model, Model):
        return formats_of(model, asked.weights)
    if asked.weights is not None:
        raise ValueError(f"--weights is for transformers: of {model} the number formats are not read")
    return Formats()


def _cache(asked: argparse.Namespace, model: Model) -> dict[str, Quantity]:
    """Bytes of the cache where each text has as many tokens as asked. Those a token are keys and values of the text: states of recurrent layers
    and an encoder's output are as large at any length, and have rows of their own."""
    kind, pieces = model.cache_format(None), model.caches(asked.seq, source=asked.source)
    held = {piece: cached_bytes(numbers, kind, asked.batch) for piece, numbers in pieces.items()}
    found = {"KV cache": model.kv_bytes(context=asked.seq, batch=asked.batch, dtype=kind, source=asked.source)}
    found |= {f"KV cache, of it {piece}": held[piece] for piece in ("source", "states") if pieces[piece]}
    found |= {"KV cache a token": ratio(held["text"], asked.batch * asked.seq)}
    return {name: Quantity(bytes, "B") for name, bytes in found.items()}


def _decoding(asked: argparse.Namespace, model: Model | ConvNet) -> dict[str, Quantity]:
    """The cache, and the least time of a step of decoding at the end of each text.

    Where the card has no peak for the format of the weights, they are only stored in it.
    """
    if asked.train:
        raise ValueError("--device goes with a forward pass, for the time of decoding; of a training step: doctor")
    if not isinstance(model, Model) or not model.writes:
        raise ValueError(f"--device: {model} makes no text token by token, and this is the bound of such a step")
    card, stored = device(asked.device), _stored(asked, model)
    peaks = [each for each in stored.arithmetic() if each in card.dtypes]
    compute = max(peaks, key=card.peak, default="bf16" if "bf16" in card.dtypes else "fp16")
    bound = decode(
        model, card, context=asked.seq, batch=asked.batch, weights=stored, compute=compute, source=asked.source
    )
    found = _cache(asked, model) | {
        "decoding step, at least": Quantity(bound.seconds, "s"),
        "its parts in order, at least": Quantity(bound.in_order.seconds, "s"),
    }
    if bound.expected is not None and asked.batch > 1:
        found["its experts by chance, in order, at least"] = Quantity(bound.expected.in_order.seconds, "s")
    found["tokens a second, at most"] = Quantity(bound.tokens_per_s, "/s")
    if bound.available is not None:
        most = largest_batch(model, card, context=asked.seq, weights=stored, source=asked.source)
        found["texts that fit at once"] = Quantity(most)
        if not bound.fits:
            both = units.si(bound.memory, "B"), units.si(bound.available, "B")
            found["does not fit"] = Quantity(
                f"{both[0]} of weights and cache, {both[1]} of {'usable ' * bound.usable}memory"
            )
    return found


def _held(asked: argparse.Namespace, model: Any, **how: Any) -> Any:
    """Bytes of a training step on one device; None where they are not known and no shards are asked for."""
    if asked.shards is None:
        with contextlib.suppress(ValueError):  # linear attention and T5's biases: what they keep is not known here
            return model.train_memory(**how).peak
        return None
    if isinstance(model, ConvNet):
        raise ValueError(f"--shards: how {model} is divided among devices is not known here")
    return model.train_memory(shards=asked.shards, **how).peak


def _by_transformers(asked: argparse.Namespace, convention: Convention, unknown: UnknownTypeError) -> tuple[Any, Table]:
    """What transformers' own class does, for a type without a closed form."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise unknown
    for option in ("recompute", "lora", "shards", "device", "height", "width", "weights", "source"):
        if getattr(asked, option) is not None:
            raise ValueError(f"--{option} needs a closed form: {unknown}")
    made = built(asked.model)
    report = made.count(seq=asked.seq, batch=asked.batch, train=asked.train).under(convention)
    sizes: dict[str, Any] = {"seq": asked.seq, "batch": asked.batch}
    by = f"counted: {made.made_by}, for there is no closed form"
    found: dict[str, Any] = {"model": made.name, "convention": str(convention), "answered by": by, **sizes}
    found |= {
        "parameters": Quantity(made.params),
        "notes": [note for note in report.notes if not note.startswith(made.made_by)],
    }
    if asked.train:
        found |= _of_step(report)
    else:
        found["FLOPs"] = Quantity(report.model_flops, "FLOPs")
    if asked.seq is not None:
        found["FLOPs a token"] = Quantity(ratio(report.model_flops, asked.batch * asked.seq), "FLOPs")
    found["weights in bf16"] = Quantity(nbytes(made.params, "bf16"), "B")
    what = "training step" if asked.train else "forward"
    size = f"{asked.batch:,} × {'an input' if asked.seq is None else f'{asked.seq:,} tokens'}"
    return _printed(found, f"{made.name}, {what}: {size}, convention {convention}")


def _of_step(step: Any) -> dict[str, Quantity]:
    """FLOPs of a training step."""
    both = {"model FLOPs": step.model_flops, "hardware FLOPs": step.hardware_flops}
    return {name: Quantity(flops, "FLOPs") for name, flops in both.items()}


def _of_sequences(asked: argparse.Namespace, model: Model) -> dict[str, Any]:
    """The length that options give."""
    for side in ("height", "width"):
        if getattr(asked, side) is not None:
            raise ValueError(f"--{side} is for convolutional networks: {model} has no images of that size")
    if asked.seq is None and model.patches is None:
        most = None if model.positions is None else model.positions - model.position_offset
        short = f"--seq {most}: {model} has positions for no more" if most is not None and most < 4096 else "--seq 4096"
        raise ValueError(f"--seq is missing, the tokens of a sequence: e.g. {short}")
    return {"seq": asked.seq}


def _of_images(asked: argparse.Namespace, model: ConvNet) -> dict[str, Any]:
    """The size of images that options give."""
    if asked.seq is not None:
        raise ValueError(f"--seq: {model} reads images and no tokens; --height and --width are their size")
    return {side: 224 if getattr(asked, side) is None else getattr(asked, side) for side in ("height", "width")}
