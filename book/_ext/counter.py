"""The table of the page on the counter: operators that no formula explains, by reason."""

from flopkit.counter.operators.unexplained import UNEXPLAINED

INTERNAL = ("torch's own tests", "torch's compiler")  # how the reasons begin that concern no program of a reader's


def unexplained():
    """Markdown: one row a reason, those that a program may meet first."""
    reasons = {}
    for name, reason in UNEXPLAINED.items():
        reasons.setdefault(reason, []).append(name)
    rows = [
        f"| {reason} | {', '.join(f'`{name}`' for name in reasons[reason])} |"
        for reason in sorted(reasons, key=lambda reason: reason.startswith(INTERNAL))
    ]
    return "\n".join(["| why not | operators |", "|---|---|", *rows])
