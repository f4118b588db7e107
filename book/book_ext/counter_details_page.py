"""The table of the page on the counter: operators that no formula explains, by
reason."""

from flopkit.counter.formulas.unknown import UNEXPLAINED

OF_TESTS = "only torch's own tests"  # how the reason begins that concerns no program of a reader's
OF_COMPILER = "only torch's compiler"


def unexplained():
    """Markdown: one row a reason, those that a program may meet first."""
    reasons = {}
    for name, reason in UNEXPLAINED.items():
        if not reason.startswith(OF_TESTS):
            reasons.setdefault(reason, []).append(name)
    rows = [
        f"| {reason[0].upper()}{reason[1:]} | {', '.join(f'`{name}`' for name in reasons[reason])} |"
        for reason in sorted(reasons, key=lambda reason: reason.startswith(OF_COMPILER))
    ]
    return "\n".join(["| Reason | Operators |", "|---|---|", *rows])
