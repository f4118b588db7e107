"""The library's calls for what the calculator says: a template for each task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit.book.gallery.calculate_fit import KEPT, TRAINED
from flopkit.book.gallery.calculate_layout import KEEPS, NODES, ZERO
from flopkit.book.gallery.calculate_serving import READS
from flopkit.book.gallery.calculator_model import sizes_in_python
from flopkit.book.gallery.checkpoint_formats import AWQ, BLOCKS, MXFP4, NF4, NVFP4, STORED, TENSORS
from flopkit.book.gallery.parallel_layout import MOST_IN_NODE
from flopkit.charts.code import MODEL, Code, Piece, literal, unless, value, when
from flopkit.charts.hardware import DEVICES, device_choice

__all__ = ["code"]


def _layers(dtype: str) -> str:
    return f'{{"experts": "{dtype}", "attention": "{dtype}", "mlp": "{dtype}", "rest": "bf16"}}'


_FORMATS = {
    "bf16": '"bf16"', "fp8 or int8": '"fp8"', "fp4 or int4": '"fp4"', MXFP4: '{"experts": "mxfp4", "rest": "bf16"}',
    TENSORS: _layers("fp8"), BLOCKS: _layers("fp8_block"), NVFP4: _layers("nvfp4"), AWQ: _layers("awq"), NF4: _layers("nf4"),
}  # fmt: skip
_OPTIONS = device_choice().options
_DEVICE = value("device", {option: f'"{name}"' for option, (name, _) in zip(_OPTIONS, DEVICES, strict=True)})
_DTYPE = value("device", {option: f'"{dtype}"' for option, (_, dtype) in zip(_OPTIONS, DEVICES, strict=True)})
_LINEAR: list[Piece] = [
    when("kv_lora", [0], '"q_proj", "k_proj", "v_proj", "o_proj"',
         [when("q_lora", [0], '"q_proj"', '"q_down", "q_up"'), ', "kv_down", "kv_up", "o_proj"']),
    when("experts", [0], [when("gated", [True], ', "gate_proj"'), ', "up_proj", "down_proj"'], [
        unless("dense", [0], [when("gated", [True], ', "gate_proj"'), ', "up_proj", "down_proj"']),
        unless("shared_d_ff", [0], [', "shared_gate_proj", "shared_up_proj", "shared_down_proj"',
                                    when("shared_gate", [True], ', "shared_gate"')]),
    ]),
]  # fmt: skip
_PLAIN, _, _QLORA = TRAINED
_ADAPTERS: list[Piece] = [
    unless("trained", [_PLAIN], [
        "targets = (", *_LINEAR, ")\nadapters = fk.LoRA(rank=", value("rank"), ", targets=targets",
        when("trained", [_QLORA], ', base="nf4"'), ")\n",
    ]),
]  # fmt: skip
_TRAINED = unless("trained", [_PLAIN], ", trained=adapters")
_BEGIN: list[Piece] = ["import flopkit as fk\n\nmodel = ", MODEL, "\n"]
_SERVING: list[Piece] = [
    'formats = {"weights": ', value("weights", {option: _FORMATS[option] for option in STORED}),
    ', "kv_cache": ', value("cache", {"bf16": '"bf16"', "fp8 or int8": '"fp8"'}), "}\n",
    'on = {"device": ', _DEVICE, ', "count": ', value("servers"), "}\n",
]  # fmt: skip
_COMPUTE: list[Piece] = [", compute=", _DTYPE, unless("experts", [0], [", experts=", value("chosen_by", {title: f'"{word}"' for title, word in READS.items()})])]  # fmt: skip

_STATES: list[Piece] = [
    ', precision="', value("states", {title: names[0] for title, names in KEPT.items()}), '", optimizer="', value("states", {title: names[1] for title, names in KEPT.items()}), '"',
]  # fmt: skip
_POLICY = value("recompute", {each: each for each in ("none", "selective", "full")})
_RATES = value("nodes", {title: f"link={literal(int(rates['link']))}, network={literal(int(rates['network']))}" for title, rates in NODES.items()})  # fmt: skip

CALLS: Mapping[str, list[Piece]] = {
    "fit": [
        *_BEGIN, *_ADAPTERS,
        "memory = model.train_memory(\n    seq=", value("length"), ", batch=", value("batch"), ', recompute="', _POLICY, '"', *_STATES,
        _TRAINED, unless("count", [1], [", shards=", value("count")]), ",\n)\nprint(memory.peak, fk.device(", _DEVICE, ").available)  # bytes on each device\n",
    ],
    "run": [
        *_BEGIN, *_ADAPTERS,
        "run = model.training(\n    tokens=", value("tokens"), ", device=", _DEVICE, ", dtype=", _DTYPE, ", count=", value("fleet"), ", mfu=", value("percent", over=100),
        ",\n    seq=", value("length"), ", price=", value("price"), _TRAINED, ",\n)\nprint(run.days, run.device_hours, run.dollars)\n",
    ],
    "layout": [
        *_BEGIN,
        "layout = fk.parallel.Layout(\n    tensor=", value("tensor"), ", context=", value("context_ranks"), ", pipeline=", value("pipeline"), ", data=", value("data_ranks"),
        unless("experts", [0], [", expert=", value("expert_ranks")]), unless("virtual", [1], [", virtual=", value("virtual")]),
        ",\n    zero=", value("zero", {title: str(fields["stage"]) for title, fields in ZERO.items()}), ", micro_batch=", value("micro_batch"), ', recompute="', _POLICY, '",\n)\n',
        'nodes = fk.parallel.Cluster("nodes", ', _DEVICE, f", per_node={MOST_IN_NODE}, ", _RATES, ")\n",
        "step = fk.parallel.step(\n    model, layout, nodes, seq=", value("length"), ", batch=", value("step_batch"), ", dtype=", _DTYPE, *_STATES,
        unless("keeps", [next(iter(KEEPS))], ", fused=True"), ",\n)\n",
        "print(step.seconds, step.mfu, step.parts, step.sent, step.memory.peak, step.fits)\n",
    ],
    "serve": [
        *_BEGIN, *_SERVING,
        "step = fk.serving.decode(model, **on, **formats, context=", value("context"), ", batch=", value("users"), *_COMPUTE, ")\n",
        "first = fk.serving.prefill(model, **on, **formats, prompt=", value("prompt"), *_COMPUTE, ")\n",
        "room = fk.serving.capacity(model, **on, **formats, context=", value("context"), ", block=1)\n",
        "print(step.tokens_per_s_per_user, step.tokens_per_s, first.seconds, room.sequences)\n",
    ],
    "utilisation": [
        *_BEGIN,
        "found = fk.doctor(\n    model=model, seq=", value("length"), ", tokens_per_s=", value("rate"), ", device=", _DEVICE, ", dtype=", _DTYPE, ", count=", value("count"),
        ', recompute="', _POLICY, '",\n)  # reported=0.4 names what explains another MFU\n',
        "step = model.train_step(seq=", value("length"), ")\n", 'others = {name: step.under(name).flops_per_token for name in ("TORCH", "PALM", "SIX_N")}\n',
    ],
}  # fmt: skip


def code(task: str, presets: Mapping[str, str], defaults: Mapping[str, Any], of_model: tuple[str, ...]) -> Code:
    """The template of a task. *presets*: names of models by their titles."""
    models = {title: f'fk.load("{name}")' for title, name in presets.items()}
    return Code(tuple(CALLS[task]), sizes_in_python(order=task in ("fit", "layout")), models, of_model, defaults)
