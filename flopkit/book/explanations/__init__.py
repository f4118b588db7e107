"""What our recordings show of the predictions, and what probably explains those
that missed: a file a machine."""

from flopkit.book.explanations.epyc import EPYC
from flopkit.book.explanations.h200 import H200
from flopkit.book.explanations.machine import Machine
from flopkit.book.explanations.xeon import XEON

__all__ = ["EPYC", "H200", "MACHINES", "XEON", "Machine"]

MACHINES = (H200, XEON, EPYC)
