"""The clock: how long a call takes, how certain the time is, and whether it is physically possible."""

from flopkit.measuring.ceilings import Ceilings
from flopkit.measuring.measurement import Judgement, Measurement
from flopkit.measuring.running import measure

__all__ = ["Ceilings", "Judgement", "Measurement", "measure"]
