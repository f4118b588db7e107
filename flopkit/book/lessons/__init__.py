"""What a chapter needs around a number: a guess and its reveal, checked prose, checked exercises, verdicts.

>>> from flopkit.book.lessons import check, cites, derivation, predict, says, solution, verdict
>>> says("137.4 GFLOPs", 2 * 4096**3)

Nothing here needs an extension of Jupyter, and nothing heavy is imported before it is used.
"""

from flopkit.book.lessons.claims import claims, sources, verdict
from flopkit.book.lessons.exercises import NotYet, check, solution
from flopkit.book.lessons.formulas import derivation
from flopkit.book.lessons.prediction import predict
from flopkit.book.lessons.prose import cites, numbers_in, says

__all__ = [
    "NotYet",
    "check",
    "cites",
    "claims",
    "derivation",
    "numbers_in",
    "predict",
    "says",
    "solution",
    "sources",
    "verdict",
]
