"""The clock: how long a call takes, how certain the time is, and whether it is physically possible."""

from flopkit.measuring.measurement import Measurement
from flopkit.measuring.running import measure

__all__ = ["Measurement", "measure"]
