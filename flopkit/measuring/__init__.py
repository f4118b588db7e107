"""The clock: how long a call really takes, how sure that is, and whether it can be."""

from flopkit.measuring.measurement import Measurement
from flopkit.measuring.running import measure

__all__ = ["Measurement", "measure"]
