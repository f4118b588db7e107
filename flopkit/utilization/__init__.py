"""The share of a device's peak that a run reached: MFU, HFU and MBU, and a meter for training loops."""

from flopkit.utilization.gauges import Utilization
from flopkit.utilization.meters import Meter, StepTime
from flopkit.utilization.shares import hfu, mbu, mfu

__all__ = ["Meter", "StepTime", "Utilization", "hfu", "mbu", "mfu"]
