"""Two cores of an EPYC, on which the youngest experiments were recorded: what probably
explains each prediction that missed on them, with the numbers of their recording."""

from __future__ import annotations

from flopkit.book.explanations.machine import Machine

__all__ = ["EPYC"]

EPYC = Machine(
    device="epyc",
    scale="cpu",
    name="two cores of an EPYC",
    heading="Two cores of an EPYC: bytes as predicted, times among other programs",
    lead="What processes send does not depend on what else runs. How long they take does: other programs ran beside, and most of these times never "
    "became steady.",
    digits=3,
    missing={},
    only=("strategies", "wire"),
)


@EPYC.explains
def wire(of: Machine) -> str:
    size = {"numbers": 2**20, "megabits": 10000}
    return (
        f"An all-reduce of 4 MB took {of.time('wire', **size)} on a wire that needs {of.si(8 * 4 * 2**20 / 1e10, 's')} for its bytes. We had "
        "expected that copying and adding would take longer than the wire, and come on top of it. Probably they run while the wire sends."
    )
