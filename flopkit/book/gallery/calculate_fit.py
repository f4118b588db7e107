"""Does it fit? The memory of a training step on each device.

Controls beside those of `any_model`: ``length``, tokens of a sequence (128 to 1,048,576; 8,192); ``batch``, sequences on each device (1 to 64;
1); ``device`` (`device_choice`); ``count``, devices (1 to 16,384; 8); ``recompute`` (of `POLICIES`); ``states`` (of `STATES`); ``trained`` (of
`TRAINED`); ``rank`` of the adapters (1 to 1,024; 16), on all dense layers of the model's layers, as peft's ``"all-linear"`` has them: neither
routers nor experts, which transformers keeps as stacked parameters.

Results, in bytes on each device: ``weights_held``, ``gradients_held``, ``optimizer_held``, each the devices' even share (FSDP, ZeRO-3);
``activations`` of the device's own sequences, with the gradients of the loss; ``gathered``, whole layers and their gradients that several devices gather (0 of one);
``memory``, the sum; ``card``, the device's memory, and ``usable`` of it; ``spare_memory``, what is left of that (below 0: missing). ``fits``: ``"yes"`` or ``"no"``; ``verdict``: ``"fits"``, ``"close"``, with less
than `SPARE` of the sum to spare, or ``"no"``. ``most_batch``: the
largest number of sequences on each device that fits, 0 if none does. ``least_count``: the least number of such devices on which *batch*
sequences each fit, 0 if no number is enough, since activations are not shared. ``trained_params``: numbers that are trained. A sentence or "":
``no_count``, that no number of devices is enough; ``all_trained``, that no parameter is frozen; ``no_rank``, ``no_act``, ``no_embedded``, why a control has no effect. ``fit_answer``: all
this in a sentence, with the names of controls and results in braces.

`Model.train_memory` gives the same as its ``peak``, with ``shards=`` for *count*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flopkit.arithmetic import ceil_div, is_zero, maximum, minimum, total, where
from flopkit.book.gallery.any_model import MLPS, PLACES, idle, refuse, sizes
from flopkit.book.gallery.calculate_gathered import if_many, in_layers
from flopkit.book.gallery.calculate_kept import in_the_way, kept
from flopkit.charts.readings import pick
from flopkit.models.stacks.parts import Run
from flopkit.training.memory import PRECISIONS, state_bytes

__all__ = ["ALL", "CLOSE", "KEPT", "SPARE", "STATES", "TRAINED", "fit", "verdict"]


def _states_of(precision: str, optimizer: str) -> dict[str, int]:
    kind = PRECISIONS[precision]
    found = dict(zip(("weight", "gradient", "optimizer"), state_bytes(precision, optimizer), strict=True))
    more = {"gathers": kind.cast or kind.weight, "reduces": kind.gradient}
    return found | more | {"autocast": int(precision == "autocast"), "several": int(precision == "fsdp")}


KEPT = {
    "16: mixed, Adam": ("mixed", "adam"),
    "16: FSDP2 over fp32, Adam": ("fsdp", "adam"),
    "16: autocast over fp32, Adam": ("autocast", "adam"),
    "18: mixed, fp32 gradients": ("mixed-fp32-gradients", "adam"),
    "20: mixed, both gradients": ("mixed-both-gradients", "adam"),
    "10: mixed, 8-bit Adam": ("mixed", "adam-8bit"),
    "8: all bf16, Adam": ("bf16", "adam"),
}
"""Precision and optimiser, as `Model.train_memory` names them, by what the reader sees."""

STATES = {title: _states_of(*kept_in) for title, kept_in in KEPT.items()}
"""Bytes of a parameter that is trained: its weight, its gradient, the optimiser's; those of a weight that is gathered and of a gradient that is
summed; whether products run under ``torch.autocast``; and whether only several devices do this."""

TRAINED = {
    "all parameters": {"adapted": 0, "packed": 0},
    "LoRA on all linear layers": {"adapted": 1, "packed": 0},
    "QLoRA: the same over nf4": {"adapted": 1, "packed": 1},
}
"""Whether adapters alone are trained, and whether the frozen weights of the layers are stored in nf4."""


SPARE = 0.15
"""Of the sum: what it takes to be sure. The measured run on the calculator's page took 14 % more."""
CLOSE = f"less than {100 * SPARE:.0f} % to spare"
FITS = "It fits: {memory} of {usable} on each device. Largest batch on each: {most_batch}. Fewest devices for a batch of {batch}: {least_count}."
BARELY = (
    f"It fits with {CLOSE}: "
    "{memory} of {usable} on each device. Real runs take more: recompute, shorten the sequences or add devices."
)
TOO_FEW = "It does not fit: {memory} on each device, of which {usable} are usable. By this sum, {least_count} devices would be enough."
NEVER = (
    "It fits on no number of devices: activations, here {activations}, and gathered layers are not shared, and a device has {usable}. "
    "Recompute more, take fewer or shorter sequences, or divide them by tensor parallelism (third question)."
)


class _All(NamedTuple):
    adapted: int = 0
    packed: int = 0


ALL = _All()
"""The first of `TRAINED` for a figure that has no control for it."""


def fit(s: Any, **c: Any) -> None:
    """Memory of a training step on each device, whether it fits, and the largest batch and the fewest devices with which it does."""
    length, batch, count, device = c["length"], c["batch"], c["count"], c["device"]
    n = sizes(s, c, length)
    _refuse(s, c)
    idle(s, c, length)
    in_layers(s, n)
    _states(s, n)
    one = Run(1, length, length)
    kept(s, n, one)
    s.activations = maximum(batch * s.each_ends + s.once_ends, batch * s.each_again + s.once_again)
    s.weights_held, s.gradients_held, s.optimizer_held = (
        ceil_div(each, count) for each in (s.weights_all, s.gradients_all, s.optimizer_all)
    )
    s.states_all = s.weights_all + s.gradients_all + s.optimizer_all
    s.gathered_if_many = if_many(s, n)
    s.gathered = where(count > 1, s.gathered_if_many, 0)
    s.memory = s.weights_held + s.gradients_held + s.optimizer_held + s.activations + s.gathered
    s.card, s.usable = 1 * device.memory, 1 * device.usable
    s.spare_memory = s.usable - s.memory
    s.fits = where(s.memory <= s.usable, "yes", "no")
    left = s.usable - (s.memory - s.activations)
    most = minimum((left - s.once_ends) / s.each_ends, (left - s.once_again) / s.each_again)
    s.most_batch = maximum(-ceil_div(-most, 1), 0)
    s.least_count = _fewest(s, c["states"].several)
    s.no_count = where(s.least_count > 0, "", "no number is enough")
    s.all_trained = where(c["trained"].adapted > 0, "", "all of them")
    s.verdict = verdict(s.memory, s.usable)
    fitting = where((1 + SPARE) * s.memory > s.usable, BARELY, FITS)
    s.fit_answer = where(s.memory <= s.usable, fitting, where(s.least_count > 0, TOO_FEW, NEVER))
    in_the_way(s, n, one)


def verdict(memory: Any, usable: Any) -> Any:
    """Whether a sum of bytes fits, fits with less than `SPARE` of it left, or does not fit."""
    return where(memory > usable, "no", where((1 + SPARE) * memory > usable, "close", "fits"))


def _fewest(s: Any, together: Any) -> Any:
    """The least number of devices; *together*: whether one alone cannot do this."""
    s.left_for_states = s.usable - s.activations - s.gathered_if_many
    s.about = maximum(ceil_div(s.states_all, maximum(s.left_for_states, 1)), 2)
    rounded = total(ceil_div(each, s.about) for each in (s.weights_all, s.gradients_all, s.optimizer_all))
    several = where(s.left_for_states > 0, s.about + where(rounded > s.left_for_states, 1, 0), 0)
    alone = s.states_all + s.activations + where(together > 0, s.usable, 0) <= s.usable
    return where(alone, 1, several)


def _refuse(s: Any, c: Mapping[str, Any]) -> None:
    only = "Under autocast it is known here what plain attention and MLPs keep,"
    auto, others = c["states"].autocast, {title: int(at not in ("pre", "both")) for title, at in PLACES.items()}
    refuse(
        s, c, "length",
        (auto * c["trained"].adapted > 0, "Under autocast it is known here what a step keeps that trains all parameters, not adapters."),
        (where(c["count"] > 1, 0, c["states"].several) > 0, "FSDP2 casts weights that several devices share: set more than one device."),
        (auto * c["experts"] > 0, f"{only} not experts."),
        (auto * c["kv_lora"] > 0, f"{only} not latent attention."),
        (auto * pick(c["place"], others) > 0, f"{only} each behind a norm, not before it and not in parallel."),
        (auto * c["embedded"] > 0, f"{only} not a norm behind the embedding."),
    )  # fmt: skip


# --- weights, gradients, optimiser ---------------------------------------------------------------------------------------------------------


def _states(s: Any, n: Mapping[str, Any]) -> None:
    """Set bytes of the states on all devices together."""
    adapted, packed, states = n["trained"].adapted, n["trained"].packed, n["states"]
    frozen: Any = 0
    if is_zero(adapted):
        s.trained_params = 1 * s.params
    else:
        s.adapters, less = (
            n["layers"] * getattr(s, f"{what}_mixer")
            + total(n[f"{name}_layers"] * getattr(s, f"{what}_{name}") for name in MLPS)
            for what in ("adapters", "packed")
        )
        s.in_nf4 = 2 * s.params + less
        s.trained_params = where(adapted > 0, s.adapters, s.params)
        frozen = where(adapted > 0, where(packed > 0, s.in_nf4, states.weight * s.params), 0)
    s.weights_all = frozen + states.weight * s.trained_params
    s.gradients_all, s.optimizer_all = states.gradient * s.trained_params, states.optimizer * s.trained_params
