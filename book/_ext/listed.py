"""Tables of the API pages that list what flopkit's data hold: kinds of work, and recipes of activations."""

from flopkit.conventions import KINDS, VECTOR_KINDS
from flopkit.layers.pointwise import ACTIVATIONS


def kinds():
    """Markdown: the kinds of multiply-adds, then those of element-wise work."""
    rows = [(kind, "`macs_by_kind`", what) for kind, what in KINDS.items()]
    rows += [(kind, "`vector_by_kind`", what) for kind, what in VECTOR_KINDS.items()]
    return table(("Kind", "In", "What it is"), rows)


def activations():
    """Markdown: the element-wise FLOPs of each activation for one element, and what they are."""
    rows = [(name, recipe.flops, recipe.steps) for name, recipe in ACTIVATIONS.items()]
    return table(("Activation", "FLOPs", "Steps"), rows)


def table(head, rows):
    lines = [f"| {' | '.join(head)} |", "|:--|:--|:--|"]
    return "\n".join([*lines, *(f"| `{name}` | {second} | {what} |" for name, second, what in rows)])
