"""The roofline: the least time of one operation on a device, and of a program, call by call."""

from flopkit.rooflines.bounds import Roofline, bound_by, roofline
from flopkit.rooflines.programs import Calls, ProgramBound, program_bound

__all__ = ["Calls", "Roofline", "ProgramBound", "bound_by", "roofline", "program_bound"]
