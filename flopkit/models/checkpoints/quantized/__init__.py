"""What a ``config.json`` says of the formats in which its weights are stored."""

from flopkit.models.checkpoints.quantized.reading import METHODS, formats_in

__all__ = ["METHODS", "formats_in"]
