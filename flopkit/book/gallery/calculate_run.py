"""How long, and what does it cost? A whole training run from tokens, devices and an MFU.

Controls beside those of `calculate_fit`, which it asks for the memory: ``tokens`` of the run (1e6 to 1e14; 15e12), ``share``, the MFU under
EXACT (0.01 to 1; 0.4), ``price``, dollars of an hour of a device (0.1 to 20; 2). A run has more devices than a step to begin with: 1,024.

Results: ``a_step_token``, FLOPs of a training token, forward and backward, under EXACT; ``run_flops``, of the whole run; ``run_seconds``,
``days`` (86,400 seconds) by the clock on the wall; ``device_hours`` of all devices together; ``megawatt_hours``, each device at the most
that its maker allows it (``watts``), all the time: an upper bound of the devices alone; ``dollars``; ``run_rate``, tokens/s in all;
``tokens_per_parameter``, of those that work for a token; ``chinchilla``, tokens for this model by Chinchilla's rule, 20 for each such parameter;
``rule_params`` and ``rule_tokens``, how that rule would split these FLOPs; ``run_answer``, a sentence with names of results in braces. And all results of `calculate_fit`. `Model.training` gives the same.

Not counted: restarts, evaluation, other lengths, failed runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit import conventions
from flopkit.arithmetic import is_zero, total, where
from flopkit.book.gallery.any_model import PLACES, adapters_of, kinds, model_of, sizes
from flopkit.book.gallery.calculate_fit import CLOSE, SPARE, fit
from flopkit.book.gallery.calculate_mfu import PASSES
from flopkit.charts.readings import pick
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.parts import Run
from flopkit.training.budgets import LAWS

__all__ = ["run"]

TAKES = "It takes {days} days: {device_hours} device-hours, or {dollars} dollars."
BARELY = " A step needs {memory} on each device, " + f"with {CLOSE}: see the first question."
TOO_LARGE = " But a step needs {memory} on each device, which is too much: see the first question."
RULE = 20  # tokens a parameter: Hoffmann et al. 2022, table 3


def run(s: Any, **c: Any) -> None:
    """Days, device-hours, energy and dollars of a training run, and whether a step of it fits."""
    fit(s, **c)
    device, count, tokens, length = c["device"], c["count"], c["tokens"], c["length"]
    _step(s, c, length)
    s.run_flops = tokens * s.a_step_token
    s.run_seconds = s.run_flops / (c["share"] * count * device.peak)
    s.days, s.device_hours = s.run_seconds / 86400, count * s.run_seconds / 3600
    s.megawatt_hours = count * device.watts * s.run_seconds / 3.6e9
    s.dollars = s.device_hours * c["price"]
    s.run_rate = tokens / s.run_seconds
    s.tokens_per_parameter, s.chinchilla = tokens / s.active, RULE * s.active
    rule = LAWS[0].a_token(s.run_flops)
    fitting = where((1 + SPARE) * s.memory > s.usable, TAKES + BARELY, TAKES)
    s.run_answer = where(s.memory <= s.usable, fitting, TAKES + TOO_LARGE)
    s.rule_params, s.rule_tokens = rule / 6, s.run_flops / rule


def _step(s: Any, c: Mapping[str, Any], length: Any) -> None:
    """Set FLOPs of a training token.

    Where adapters alone are trained, a frozen matrix has no gradient, so its matmul comes back once; attention's core comes back twice, and so
    do the adapters' matmuls. The input of the first layer needs no gradient.
    """
    n, adapted = sizes(s, c, length), c["trained"].adapted
    macs = model_of(n).forward(seq=length).macs_by_kind
    s.forward_flops = conventions.EXACT.flops(macs)
    s.core_flops = conventions.EXACT.flops({"scores": macs["scores"]})
    whole = PASSES * s.forward_flops / length
    if is_zero(adapted):
        s.a_step_token = whole
        return
    s.adapter_flops = 2 * length * s.adapters
    s.first_spared = _spared(s, n)
    frozen = 2 * s.forward_flops + s.core_flops + PASSES * s.adapter_flops
    s.a_step_token = where(adapted > 0, frozen / length - s.first_spared, whole)


def _spared(s: Any, n: Mapping[str, Any]) -> Any:
    """FLOPs a token of gradients of what the first layer reads, which nothing before it asks for."""
    found = kinds(n)
    mixers = [
        (s.whole + s.narrow, found["heads"][0]),
        *zip((s.latent_queries, s.latent_alone), found["latent"], strict=True),
    ]
    read = [(count, 0 if is_zero(count) else _of_input(n, make())) for count, (_, make) in mixers]
    beside = [(count, 0 if is_zero(count) else _of_input(n, make())) for count, make in found["mlp"]]
    in_parallel = pick(n["place"], {title: int(place.startswith("parallel")) for title, place in PLACES.items()})
    return 2 * (_first(read) + in_parallel * _first(beside))


def _first(sorts: list[tuple[Any, Any]]) -> Any:
    """The value of the first sort of which there are layers: those with experts stand behind those without."""
    (count, value), *rest = sorts
    return where(count > 0, value, _first(rest)) if rest else value


def _of_input(n: Mapping[str, Any], branch: Branch) -> Any:
    """Multiply-adds a token that give the gradient of what a branch reads."""
    adapters = (each.there * n["rank"] * each.d_in for each in adapters_of(n, branch) if each.reads_input)
    macs = [
        each.cost.macs_by_kind
        for each in branch.parts(Run(1, 1, 1), n["d_model"])
        if set(each.reads) <= {"input", "chances"} and each.reads
    ]
    return total((*adapters, *(found.get(kind, 0) for found in macs for kind in ("products", "router"))))
