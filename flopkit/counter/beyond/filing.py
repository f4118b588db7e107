"""What other counters go by, added up at the end: calls of layers and of functions, of those that were put down by place."""

from __future__ import annotations

from typing import Any

from flopkit.counter.beyond import called, layers, plain
from flopkit.counter.ledger import Ledger

__all__ = ["file"]


def file(ledger: Ledger, layer_calls: dict[Any, int], function_calls: dict[Any, int]) -> None:
    """Add what stands in *ledger* by place to the calls of layers and of functions."""
    layers.file(ledger.layers_at, layer_calls)
    called.file(ledger.functions_at, function_calls)
    plain.file(ledger.plain_at, layer_calls, function_calls)
