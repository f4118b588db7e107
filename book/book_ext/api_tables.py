"""Tables of the API pages that list what flopkit's data hold: conventions, kinds of
work and of measurements, recipes of activations."""

from flopkit import conventions as named
from flopkit.conventions import KINDS, VECTOR_KINDS
from flopkit.layers.pointwise import ACTIVATIONS
from flopkit.recordings import MEASURED_KINDS, VERDICTS


def conventions():
    """Markdown: the conventions with a name, each with its source, those of papers and
    frameworks by letter behind flopkit's three."""
    found = [value for name in named.__all__ if isinstance(value := getattr(named, name), named.Convention)]
    found.sort(key=lambda convention: (convention not in (named.EXACT, named.TORCH, named.FVCORE), convention.name))
    return "\n".join(["| Name | Source |", "|:--|:--|", *(f"| `{each.name}` | {each.source} |" for each in found)])


def kinds():
    """Markdown: the kinds of multiply-adds, then those of element-wise work."""
    rows = [
        (kind.name, "`macs_by_kind`", f"{kind}{'' if kind.executed else ' (not executed)'}") for kind in KINDS.values()
    ]
    rows += [(kind.name, "`vector_by_kind`", kind) for kind in VECTOR_KINDS.values()]
    return table(("Kind", "In", "What it is"), rows)


def recordings():
    """Markdown: the kinds and the verdicts of published measurements."""
    rows = [(name, "kind", what) for name, what in MEASURED_KINDS.items()]
    return table(
        ("Name", "Column", "What it means"), rows + [(name, "verdict", what) for name, what in VERDICTS.items()]
    )


def activations():
    """Markdown: the element-wise FLOPs of each activation for one element, and what
    they are."""
    rows = [(name, recipe.flops, recipe.steps) for name, recipe in ACTIVATIONS.items()]
    return table(("Activation", "FLOPs", "Steps"), rows)


def table(head, rows):
    lines = [f"| {' | '.join(head)} |", "|:--|:--|:--|"]
    return "\n".join([*lines, *(f"| `{name}` | {second} | {what} |" for name, second, what in rows)])
