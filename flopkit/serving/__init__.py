"""Serving a language model: what decoding and prefill take at least, how many users fit, and what drafted tokens bring."""

from flopkit.serving.batches import batch_at_ridge, intensity_limit
from flopkit.serving.bounds import Bound, decode, prefill
from flopkit.serving.capacity import Capacity, capacity, largest_batch
from flopkit.serving.requests import Request, request
from flopkit.serving.speculation import Speculation, expected_tokens, speculate

__all__ = [
    "Bound", "Capacity", "Request", "Speculation", "batch_at_ridge", "capacity", "decode", "expected_tokens", "intensity_limit",
    "largest_batch", "prefill", "request", "speculate",
]  # fmt: skip
