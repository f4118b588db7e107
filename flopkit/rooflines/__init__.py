"""The roofline: the least time of one operation on a device, and of a program, call by call."""

from flopkit.rooflines.bounds import Roofline, bound_by, roofline
from flopkit.rooflines.programs import Calls, Timing, timing_of

__all__ = ["Calls", "Roofline", "Timing", "bound_by", "roofline", "timing_of"]
