"""The page of predictions: what each experiment expected, what our recordings show of
it, and what probably explains a failure. Markdown."""

from book_ext.markdown_table import table
from book_ext.page_figures import embedded
from flopkit import units
from flopkit.book import gallery
from flopkit.book.explanations import EPYC, H200, MACHINES, XEON
from flopkit.book.explanations.h200 import held_by_chance, not_measured, undecided
from flopkit.experiments import NAMES, experiment
from flopkit.experiments.expectations import Confirmation, launch, weak


def chart():
    """Every tested part, against its limits."""
    return embedded(gallery.predictions_held())


def titled(machine):
    return machine.name[0].upper() + machine.name[1:]


def tally():
    """How many parts held on each machine, and how sure its cases are: a table, and a
    sentence on who measured."""
    found = {machine: [each for name in NAMES for each in machine.findings(name)] for machine in MACHINES}

    def row(title, count):
        return [title, *(str(count(machine)) for machine in MACHINES)]

    def parts(confirmation):
        def count(machine):
            with_it = [each for each in found[machine] if each.confirmation == confirmation]
            marked = sum(bool(each.weak) for each in with_it)
            return f"{len(with_it)}, {marked} of them marked" if marked else len(with_it)

        return count

    rows = [
        ["", *map(titled, MACHINES)],
        row("**Parts tested**", lambda machine: len(found[machine])),
        row(Confirmation.HELD, parts(Confirmation.HELD)),
        row(f"**{Confirmation.FAILED}**", parts(Confirmation.FAILED)),
        row(f"{Confirmation.NOT_CLEAR}", parts(Confirmation.NOT_CLEAR)),
        row(
            "of these, missed on unsteady or launch-bound cases",
            lambda machine: sum(bool(each.missed and each.doubt) for each in found[machine]),
        ),
        row("**Cases measured**", lambda machine: len(machine.recording.results)),
        row("unsteady", lambda machine: sum(not each["steady"] for each in machine.recording.results)),
        row("launch-bound", lambda machine: sum(launch(each) is not None for each in machine.recording.results)),
    ]
    return f"{_recorded()} {not_measured(H200)}\n\n{table(rows)}"


def _recorded():
    gpu, cpu, later = (
        (each.attribution["machine"], each.provenance["when"][:10])
        for each in (H200.recording, XEON.recording, EPYC.recording)
    )
    return (
        f"We recorded the experiments on an NVIDIA H200 ({gpu[0]}) on {gpu[1]}, in bf16, TF32 and fp32, and on {cpu[0]} on {cpu[1]}, in fp32. "
        f"The {len(EPYC.only)} youngest ones we recorded on {later[0]}, on {later[1]}."
    )


def recurs():
    """For each machine, what the parts that missed have in common."""
    return "\n\n".join(f"- **{machine.heading}.** {machine.lead}" for machine in MACHINES)


def results():
    """An experiment after the other: its prediction, what each machine showed of its
    parts and why, and all cases folded away."""
    lines = []
    for name in NAMES:
        asked = experiment(name)
        said = asked.prediction
        for words, meant in asked.meant.items():
            said = said.replace(words, f"{words} [meant: {meant}]")
        lines += [f"### {asked.title}", "", f"`{name}`. {said}", ""]
        for machine in MACHINES:
            if machine.asked(name):
                lines += [_findings(machine, name), "", *_why(machine, name)]
        for machine in MACHINES:
            if cases := machine.records(name):
                lines += [f"<details><summary>All cases on {machine.name}</summary>", "", _cases(cases), "", "</details>", ""]  # fmt: skip
    return "\n".join(lines)


def _findings(machine, name):
    if name in machine.missing:
        return f"{titled(machine)}: not measured. {machine.missing[name]}"
    rows = [["Predicted", f"{titled(machine)} (interval)", ""]]
    for each in machine.findings(name):
        word = f"**{each.confirmation}**" if each.confirmation == Confirmation.FAILED else each.confirmation
        others = "other values: " if each.confirmation == Confirmation.FAILED else ""
        marked = f" ({others}{each.weak})" * bool(each.weak)
        rows.append(
            [each.expected.says, each.seen, f"{word}: {each.doubt}" if each.missed and each.doubt else word + marked]
        )
    return table(rows, left=3)


def _why(machine, name):
    """What probably explains the parts that missed, what stays open, and what held by
    chance."""
    if name in machine.reasons:
        return [f"**Why, on {machine.name}.** {machine.reasons[name](machine)}", ""]
    open_or_chance = {"matmul_tiles": undecided, "backward_ratio": held_by_chance}
    return [open_or_chance[name](machine), ""] if name in open_or_chance and machine is H200 else []


def _cases(cases):
    shown = [["case", "time", "95 % interval", "FLOP/s", "bytes/s", ""]]
    several = len({each["dtype"] for each in cases}) > 1
    for case in cases:
        seconds, rates = case["seconds"], case["rates"]
        interval = f"{units.seconds(seconds['low'])} to {units.seconds(seconds['high'])}"
        flops, moved = units.si(rates["flops_per_s"], "FLOP/s"), units.si(rates["bytes_per_s"], "B/s")
        named = case["case"] + f", {case['dtype']}" * several
        shown.append([named, units.seconds(seconds["mean"]), interval, flops, moved, weak([case])])
    return table(shown)
