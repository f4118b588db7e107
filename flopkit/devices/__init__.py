"""What an accelerator can do at most: arithmetic by number format, memory bandwidth, and
who says so."""

from flopkit.derivations import Derivation, Limit
from flopkit.devices.accelerator import Device
from flopkit.devices.catalogue import device, device_names, fastest_mode, measured_device, memory_of

__all__ = ["Derivation", "Device", "Limit", "device", "device_names", "fastest_mode", "measured_device", "memory_of"]
