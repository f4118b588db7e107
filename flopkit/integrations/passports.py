"""The passport of a run: what ran, on what, and how well, as JSON and as a page of Markdown."""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from flopkit import machine, units
from flopkit.__about__ import __version__
from flopkit.integrations.step_rates import in_words

__all__ = ["as_markdown", "line", "of", "write"]

_OPERATORS = 8  # in the page
_LIBRARIES = "torch transformers accelerate deepspeed lightning pytorch_lightning torchtitan megatron".split()


def of(run: Any) -> dict[str, Any]:
    """All that is known of a run at its end."""
    found: dict[str, Any] = {
        "command": run.asked["command"],
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "models": run.models,
        "optimizer": run.optimizer,
        "step": _step(run),
        "device": _device(run),
        "run": _run(run),
        "memory": _memory(run.device_type),
        "versions": _versions(),
        "notes": list(dict.fromkeys(each for each in (run.why_not, run.no_share, *run.notes) if each)),
    }
    process = run.process
    if process.world > 1:
        found["ranks"] = {"world": process.world, "rank": process.rank, "on_this_machine": process.of_all()}
    return found


def _step(run: Any) -> dict[str, Any]:
    """What one step does."""
    counted = [run.first_counted + place for place in range(len(run.watched))] if run.watched else []
    found: dict[str, Any] = {"counted": counted if run.cycle or run.why_not else []}
    if not run.cycle:
        return found
    rates, report = run.step_rates, run.cycle[-1].report.under(run.asked["convention"])
    rows = [row for row in report.by_op().rows if row["flops"]][:_OPERATORS]
    kept = ("operator", "phase", "kernel", "calls", "flops", "model_flops", "bytes")
    return {
        **found, "repeat": found["counted"][-len(run.cycle):], **rates.facts, "tokens": rates.tokens, "samples": rates.samples,
        "by_op": [{name: row[name] for name in kept if name in row} for row in rows],
    }  # fmt: skip


def _device(run: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": run.device_type}
    if run.device_type in ("cpu", "cuda"):
        found["name"] = machine.title(run.device_type)
    if run.step_rates is not None and run.step_rates.gauges:
        gauge, device = run.step_rates.gauges[0], run.step_rates.peak_device
        found |= {
            "peak": gauge.peak,
            "formats": list(gauge.formats),
            "peak_of": gauge.title,
            "peak_source": device.source,
        }
    return found


def _run(run: Any) -> dict[str, Any]:
    """The time, the mean over all timed steps and the median of its lines."""
    found: dict[str, Any] = {"steps": run.step, "timed": run.clock.timed}
    if run.clock.timed:
        found |= run.rates(run.clock.mean_seconds)
        if run.clock.seconds:
            median = run.rates(statistics.median(run.clock.seconds))
            found["median_of_lines"] = {name: median[name] for name in ("seconds", "mfu", "hfu") if name in median}
    return found


def _memory(kind: str) -> dict[str, Any]:
    """The most that was in use."""
    if kind == "cuda":
        cuda = sys.modules["torch"].cuda
        return {"most_allocated": cuda.max_memory_allocated(), "most_reserved": cuda.max_memory_reserved()}
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return {}
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"most_resident": most * (1 if sys.platform == "darwin" else 1024)}


def _versions() -> dict[str, Any]:
    found: dict[str, Any] = {"flopkit": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        if (version := getattr(sys.modules.get(name), "__version__", None)) is not None:
            found[name] = str(version)
    cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    return found | ({"cuda": cuda} if cuda else {})


def line(run: Any, passport: dict[str, Any]) -> str:
    """The run in a line."""
    about = passport["run"]
    steps = units.count(run.steps_seen, "optimiser steps")
    if "seconds" not in about:
        return f"{steps}; {'; '.join(passport['notes']) or 'none after the counted ones, so there is no time'}"
    ranks = f", rank 0's of {run.process.world}" if run.process.world > 1 else ""
    why = f"; {run.why_not or run.no_share}" if run.why_not or run.no_share else ""
    return f"{steps}, mean of {about['timed']:,}: {in_words(about)}{ranks}{why}"


def as_markdown(passport: dict[str, Any]) -> str:
    """The page.

    Examples
    --------
    >>> page = as_markdown(
    ...     {"command": ["python", "train.py"], "when": "2026-11-29", "models": [], "optimizer": None, "step": {"counted": []},
    ...      "device": {"type": "cpu"}, "run": {"steps": 2, "timed": 0}, "memory": {}, "versions": {"python": "3.12"}, "notes": ["why"]}
    ... )
    >>> print(page.splitlines()[0])
    # `python train.py`
    """
    step, run, device = passport["step"], passport["run"], passport["device"]
    rows: list[tuple[str, Any]] = []
    for model in (each for each in passport["models"] if each["trained"]):
        shard = " (of this rank's shard)" if model["sharded"] else ""
        around = f" in {', '.join(model['in'])}" if model["in"] else ""
        size = f"{model['parameters']:,}, trained {model['trained']:,}{shard}, in {', '.join(model['dtypes'])}"
        rows += [("model", f"{model['class']}{around}"), ("parameters", size)]
    rows.append(("optimiser", passport["optimizer"]))
    if "model_flops" in step:
        model, executed = (units.si(step[name], "FLOPs") for name in ("model_flops", "hardware_flops"))
        did = "the same" if len(step["counted"]) < 3 else f"what step {step['repeat'][-1]} did"
        did = f"what the last {len(step['repeat'])} did, on average" if len(step["repeat"]) > 1 else did
        counted = f"steps {', '.join(map(str, step['counted']))}; all others are taken to do {did}"
        rows += [
            ("a step", f"{model} of the model, {executed} executed"),
            ("convention", step["convention"]),
            ("counted", counted),
        ]
        rows += [(f"{item} a step", f"{step[item]:,.6g}") for item in ("tokens", "samples") if step[item] is not None]
        rows += [
            ("NOT COUNTED", f"{row['operator']}, {units.count(row['calls'], 'calls')}") for row in step["uncounted"]
        ]
    rows.append(("device", device.get("name", device["type"])))
    if "peak" in device:
        formats = f" in {' and '.join(device['formats'])}" if device["formats"] else ""
        rows.append(("peak", f"{units.si(device['peak'], 'FLOP/s')}{formats}, {device['peak_of']}"))
        rows.append(("peak's source", device["peak_source"]))
    rows.append(("steps", f"{run['steps']:,}, timed {run['timed']:,}"))
    if "seconds" in run:
        between = "with data, evaluations and checkpoints between the steps"
        rows.append(("seconds a step", f"{units.seconds(run['seconds'])}, {between}"))
        rows += [(name.upper(), units.percent(run[name])) for name in ("mfu", "hfu") if name in run]
        if "model_flops_per_s" in run:
            rows.append(("FLOP/s of the model", units.si(run["model_flops_per_s"], "FLOP/s")))
        per_s = {item: run.get(f"{item}_per_s") for item in ("tokens", "samples")}
        rows += [(f"{item}/s", f"{rate:,.1f}") for item, rate in per_s.items() if rate is not None]
    if ranks := passport.get("ranks"):
        rows.append(("ranks", f"{ranks['world']:,}; all numbers are those of rank {ranks['rank']}"))
    rows += [(name.replace("_", " "), units.si(value, "B")) for name, value in passport["memory"].items()]
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in passport["versions"].items())))
    rows.append(("when", passport["when"]))
    lines = [
        f"# `{' '.join(passport['command'])}`",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows),
    ]
    if step.get("by_op"):
        lines += ["", "| operator | phase | calls | FLOPs |", "|---|---|---:|---:|"]
        for row in step["by_op"]:
            lines.append(
                f"| {row['operator']} | {row['phase']} | {row['calls']:,} | {units.si(row['flops'], 'FLOPs')} |"
            )
    lines += ["", *(f"- {note}" for note in (*passport["notes"], *step.get("notes", ())))]
    return "\n".join(lines).rstrip() + "\n"


def write(name: str, passport: dict[str, Any]) -> None:
    """Write ``NAME.json`` and ``NAME.md``."""
    machine.write_whole(Path(f"{name}.json"), json.dumps(passport, ensure_ascii=False, indent=1, default=float) + "\n")
    machine.write_whole(Path(f"{name}.md"), as_markdown(passport))
