"""The calculator by task: does it fit, how long does it take, how do devices share a step, how fast does it answer, what is my MFU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flopkit.arithmetic import where
from flopkit.book.gallery.any_model import POLICIES, once
from flopkit.book.gallery.calculate_fit import STATES, TRAINED, fit
from flopkit.book.gallery.calculate_layout import KEEPS, NODES, ZERO, layout
from flopkit.book.gallery.calculate_mfu import COUNTS, one_convention, utilisation
from flopkit.book.gallery.calculate_run import run
from flopkit.book.gallery.calculate_serving import CACHES, READS, serve
from flopkit.book.gallery.calculator_charts import (
    FLEETS,
    PARTS,
    PARTS_OF_STEP,
    USERS,
    bars,
    days_over_devices,
    memory_bar,
    one_fleet,
    one_part,
    one_part_of_step,
    so_many_users,
    speed_over_users,
    step_and_memory,
)
from flopkit.book.gallery.calculator_code import code
from flopkit.book.gallery.calculator_model import PRESETS, UNABLE, box, presets, settings_of, size_controls
from flopkit.book.gallery.checkpoint_formats import STORED
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import DEVICES, device_choice
from flopkit.charts.panel import Control, Shown, along, choice, column, grouped, readout, slider, steps
from flopkit.charts.tasks import Tasks

__all__ = ["PRESETS", "UNABLE", "calculator", "run_controls", "settings_of"]

START = "Llama-3-8B"
WEIGHTS = "Weights stored in"
PER_GPU = 6667  # tokens/s of Llama-3.1-8B: torchtitan on eight H100s, FSDP, torch.compile, selective recompute
RATE = 8 * PER_GPU
SERVING = ["users", "context", "prompt", "device", "servers", "weights", "cache", "chosen_by"]
ANSWER = "In a sentence"
YES_NO = {"yes": "yes", "no": "no"}
BOUNDS = {"compute": "compute", "memory": "memory"}


def about(name: str, label: str, unit: str = "", instead: str = "") -> Shown:
    """A read-out in three digits: no sum or bound of this page is worth more."""
    return readout(name, label, unit, instead=instead, digits=3)


def run_controls() -> dict[str, Control]:
    """What is asked of a model, by name: the controls of all tasks but for its sizes."""
    found = [
        slider("length", "Sequence length", steps(128, 1048576), value=8192, unit="tokens"),
        slider("batch", "Sequences on each device", steps(1, 64), value=1),
        device_choice("device", "Device and number format", DEVICES),
        slider("count", "Devices", steps(1, 16384), value=8),
        choice("recompute", "Recompute", list(POLICIES)),
        choice("states", "Training state, bytes per trained parameter", STATES),
        choice("trained", "What is trained", TRAINED),
        slider("rank", "Rank of the adapters", steps(1, 1024), value=16, idle="no_rank"),
        slider("tokens", "Tokens", [digit * 10**power for power in range(6, 15) for digit in (1, 2, 5)], value=15 * 10**12),
        slider("fleet", "Devices of the run", steps(1, 16384), value=1024),
        slider("percent", "MFU in percent (EXACT)", [1, 2, 5, 7.5, *range(10, 85, 5)], value=40),
        slider("price", "Dollars per hour of a device", [0.1, 0.2, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 15, 20], value=2),
        slider("tensor", "Tensor-parallel (TP)", steps(1, 64), value=1, unit="ranks"),
        slider("context_ranks", "Context-parallel (CP)", steps(1, 64), value=1, unit="ranks"),
        slider("pipeline", "Pipeline (PP)", steps(1, 64), value=1, unit="ranks"),
        slider("data_ranks", "Data-parallel (DP)", steps(1, 4096), value=64, unit="ranks"),
        slider("expert_ranks", "Expert-parallel (EP)", steps(1, 256), value=1, unit="ranks", idle="no_experts"),
        slider("virtual", "Virtual stages of a rank", steps(1, 16), value=1, unit="virtual stages"),
        choice("zero", "ZeRO divides", ZERO, value="3: weights, too", idle="no_zero"),
        slider("step_batch", "Sequences of a step, all devices", steps(1, 16384), value=128, unit="sequences"),
        slider("micro_batch", "Micro-batch", steps(1, 16), value=1, unit="sequences"),
        choice("keeps", "A layer keeps", KEEPS),
        choice("nodes", "Nodes of 8: links, network", NODES, idle="no_nodes"),
        slider("users", "Users at once", steps(1, 4096), value=8),
        slider("context", "Context of each user", steps(128, 1048576), value=32768, unit="tokens"),
        slider("prompt", "Prompt of a user", steps(16, 1048576), value=8192, unit="tokens"),
        slider("servers", "Devices that serve", steps(1, 1024), value=1),
        choice("weights", WEIGHTS, STORED),
        choice("cache", "Cache stored in", CACHES),
        choice("chosen_by", "Experts that a step reads", list(READS), idle="no_choice"),
        slider("rate", "Training tokens/s, in all", steps(64, 16777216, 2), value=RATE),
    ]  # fmt: skip
    return {control.name: control for control in found}


def _asked(
    ask: Callable[..., None], shown: Iterable[str], every: Mapping[str, Control], **calls: str
) -> Callable[..., None]:
    """*ask* with the *shown* controls; the others stand where they start. *calls*: what the question calls a control, and its name here."""
    fixed = {name: control.read(control.value) for name, control in every.items() if name not in set(shown)}

    def model(s: Any, **c: Any) -> None:
        here = {**fixed, **c}
        here["share"] = here["percent"] / 100
        ask(s, **{**here, **{name: here[ours] for name, ours in calls.items()}})
        once(s, no_embedded=where(s.norm_weight + s.norm_bias > 0, "", "It has no weights."))
        once(s, all_active=where(s.active < s.params, "", "all of them"))

    return model


def calculator() -> Tasks:
    """What a model costs, by what you want to know: memory, a training run, serving, or an MFU. Its sizes come from a name or a config.json."""
    known = presets()
    every = run_controls()
    sizes = {each.name: each for each in size_controls(known[START])}

    def figure(
        word: str, ask: Callable[..., None], groups: Mapping[str, Sequence[str]], without: Sequence[str] = (), calls: Mapping[str, str] = {}, **more: Any
    ) -> Figure:  # fmt: skip
        shown = [name for names in groups.values() for name in names]
        controls = [
            control
            for heading, names in groups.items()
            for control in grouped(heading, [every[name] for name in names])
        ]
        controls += [each for name, each in sizes.items() if name not in without]
        return Figure(
            name=f"calculator-{word}", controls=controls, presets={title: {name: value for name, value in found.items() if name not in without} for title, found in known.items()},
            presets_label="Model", refused="refused", model=_asked(ask, [*shown, *(set(sizes) - set(without))], every | sizes, **calls),
            code=code(word, PRESETS, {name: control.value for name, control in (every | sizes).items()}, tuple(sizes)), **more,
        )  # fmt: skip

    asked_of_serving = _asked(so_many_users, [*SERVING, *(set(sizes) - {"act"})], every | sizes, count="servers")
    figures = {
        "fit": figure(
            "fit", fit,
            {"Training": ["trained", "rank", "recompute", "length", "batch", "device", "count", "states"]},
            title="Does it fit?",
            alt="A bar of one device’s memory in a training step of a model with {params} parameters on {count} × {device}: {weights_held} of weights, "
            "{gradients_held} of gradients, {optimizer_held} of the optimiser, {activations} of activations with the gradients of the loss and {gathered} of gathered layers are {memory}. "
            "Lines stand at what the card has and at what programs can use, {usable}. {fit_answer}",
            readouts=[
                readout("fit_answer", ANSWER, sentence=True),
                about("memory", "All on each device", "B"),
                about("usable", "Usable by programs", "B"),
                readout("most_batch", "Sequences that fit on each"),
                readout("least_count", "Devices needed for this batch", instead="no_count"),
                about("weights_held", "Weights, each device (1/{count})", "B"),
                about("gradients_held", "Gradients, each device (1/{count})", "B"),
                about("optimizer_held", "Optimiser, each device (1/{count})", "B"),
                about("activations", "Activations and loss, each device", "B"),
                about("gathered", "Gathered layers, each device", "B"),
                readout("params", "Parameters"),
                readout("trained_params", "Trained parameters", instead="all_trained"),
            ],
            rows=along("part", list(PARTS), one_part), chart=memory_bar, height=170,
            table=[column("part", "On each device"), column("bytes", "Bytes", "B"), column("share", "Share", "%")],
            caption="Leave 15 % of the sum free, for what cannot be counted.",
        ),
        "run": figure(
            "run", run,
            {"The run": ["tokens", "percent", "device", "fleet", "price", "length", "trained", "rank"], "Memory of a step": ["recompute", "batch", "states"]},
            calls={"count": "fleet"},
            title="How long and what does it cost?",
            alt="A line of days over the number of devices at an MFU of {percent} percent, falling; a second one for the tokens of Chinchilla’s rule. "
            "{tokens} tokens on {fleet} × {device}. {run_answer}",
            readouts=[
                readout("run_answer", ANSWER, sentence=True),
                about("days", "Days on the wall"),
                about("device_hours", "Hours of all devices together"),
                about("dollars", "Dollars"),
                about("megawatt_hours", "MWh of the devices alone, at most"),
                about("run_rate", "Tokens/s, all devices"),
                about("run_flops", "The whole run", "FLOPs"),
                about("tokens_per_parameter", "Tokens per active parameter"),
                about("memory", "Memory, each device", "B"),
            ],
            rows=along("devices", FLEETS, one_fleet), chart=days_over_devices, height=330,
            table=[column("devices", "Devices"), column("on_these", "Days"), column("by_rule", "Days for 20 tokens per parameter")],
            caption="No better than the MFU that you set, and without restarts, evaluation and failed runs.",
        ),
        "layout": figure(
            "layout", layout,
            {"The layout": ["tensor", "context_ranks", "pipeline", "data_ranks", "expert_ranks", "virtual", "zero"],
             "The step": ["length", "step_batch", "micro_batch", "recompute", "keeps", "states", "device", "nodes"]},
            title="How do many GPUs share a step?",
            alt="Two bars for a training step: {tensor} tensor-parallel, {context_ranks} context-parallel, {pipeline} in the pipeline, {data_ranks} data-parallel, "
            "in all {devices}, {device}. One has the seconds by part, at least {seconds}, of which {part_bubble} are bubble and {exposed} exposed communication; MFU is at most {mfu}. The other "
            "has the memory of the fullest rank, {memory}, with the device’s limit. {layout_answer}",
            readouts=[
                readout("layout_answer", ANSWER, sentence=True),
                about("seconds", "A step, at least", "s"),
                about("mfu", "MFU, at most", "%"),
                about("memory", "Memory, fullest rank", "B"),
                about("exposed", "Communication, exposed", "s"),
                about("part_bubble", "Bubble", "s"),
                about("sent", "Sent by a device", "B"),
                about("gpu_flops", "FLOPs of a device", "FLOPs"),
                about("tokens_per_s", "Tokens/s, all, at most"),
                readout("devices", "Devices", "devices"),
                readout("micro_batches", "Micro-batches of a rank"),
            ],
            rows=along("part", list(PARTS_OF_STEP), one_part_of_step), chart=step_and_memory, height=290,
            table=[column("part", "Part"), column("taken", "Seconds", "s"), column("share", "Of the step", "%"), column("bytes", "Sent", "B"), column("wire", "On the way", "s")],
            caption="A bound: matmuls at the peak, links at their full rate, no latency, and no rank late.",
        ),
        "serve": figure(
            "serve", serve,
            {"Serving": SERVING},
            without=("act",), calls={"count": "servers"},
            title="How fast does it answer, and to how many?",
            alt="Two lines over the number of users at a context of {context}, as far as they fit: tokens/s of all users, rising, and of each, falling. "
            "On {servers} × {device}: {serve_answer} First token of a prompt of {prompt}, at least: {first_seconds}.",
            readouts=[
                readout("serve_answer", ANSWER, sentence=True),
                about("each_rate", "Tokens/s, each user, at most", instead="no_rate"),
                about("decode_rate", "Tokens/s, all users, at most", instead="no_rate"),
                about("first_seconds", "First token, at least", "s", instead="no_first"),
                readout("most_users", "Users that fit, at most"),
                about("decode_seconds", "A step, at least", "s", instead="no_rate"),
                readout("decode_bound", "A step is bound by", text=BOUNDS),
                about("stored", "Weights, all devices", "B"),
                about("cached", "Cache of all users, all devices", "B"),
                about("serving_each", "Both, each device (1/{servers})", "B"),
            ],
            rows=along("users", USERS, asked_of_serving), chart=speed_over_users, height=330,
            table=[column("users", "Users"), column("each_rate", "Tokens/s, each", instead="none"), column("decode_rate", "Tokens/s, all", instead="none"), column("serving", "Weights and cache", "B"), column("serves", "Fits", text=YES_NO)],
            caption="A bound: devices share the work evenly and exchange data in no time.",
        ),
        "utilisation": figure(
            "utilisation", utilisation,
            {"Your run": ["rate", "count", "device", "length", "recompute"]},
            without=("act",),
            title="What is my MFU, and why is theirs different?",
            alt="Bars for a training token of a model with {params} parameters (active: {active}), at {length}: its FLOPs as seven conventions "
            "count them, with the MFU that each gives; the data table lists them. Under EXACT it is {a_token}. At {rate} tokens/s on {count} × {device}: {mfu_answer}",
            readouts=[
                readout("mfu_answer", ANSWER, sentence=True),
                readout("mfu", "MFU (EXACT)", "%", instead="no_mfu"),
                readout("hfu", "HFU (EXACT)", "%", instead="no_mfu"),
                readout("a_token", "A training token", "FLOPs"),
                readout("params", "Parameters"),
                readout("active", "Active for a token", instead="all_active"),
            ],
            rows=along("name", list(COUNTS), one_convention), chart=bars, height=330,
            table=[column("name", "Convention"), column("flops", "FLOPs of a training token", "FLOPs"), column("against", "By EXACT", "×"), column("share", "MFU", "%", instead="no_share")],
            caption="Set the tokens/s of your own run: they stay when you choose another model. An arrow (→) marks a bar that leaves the chart.",
        ),
    }  # fmt: skip
    return Tasks(
        name="calculator",
        title="What do you want to know?",
        figures=figures,
        paste=box("A model’s name, such as llama-3-70b, or the contents of a config.json", WEIGHTS),
    )
