"""Serving a language model: what decoding and prefill take at least, how many users fit, and what drafted tokens bring."""

from flopkit.serving.batches import batch_at_ridge, intensity_limit, largest_batch
from flopkit.serving.bounds import Bound, decode, prefill
from flopkit.serving.speculation import Speculation, expected_tokens, speculate

__all__ = [
    "Bound", "Speculation", "batch_at_ridge", "decode", "expected_tokens", "intensity_limit", "largest_batch", "prefill", "speculate",
]  # fmt: skip
