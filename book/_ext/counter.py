"""The table of the page on the counter: operators that no formula explains, by reason."""

from flopkit.counter.operators.unexplained import UNEXPLAINED


def unexplained():
    """Markdown: one row a reason."""
    reasons = {}
    for name, reason in UNEXPLAINED.items():
        reasons.setdefault(reason, []).append(name)
    rows = [f"| {reason} | {', '.join(f'`{name}`' for name in names)} |" for reason, names in reasons.items()]
    return "\n".join(["| why not | operators |", "|---|---|", *rows])
