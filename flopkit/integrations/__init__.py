"""MFU, HFU and tokens/s in the logs of a training loop: callbacks for Hugging Face's ``Trainer`` and for Lightning, and a meter for plain loops.

The callbacks are fetched when they are first used, so this needs neither framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopkit.integrations.loops import LoopMeter

if TYPE_CHECKING:
    from flopkit.integrations.of_lightning import LightningCallback as LightningCallback
    from flopkit.integrations.of_transformers import TransformersCallback as TransformersCallback

__all__ = ["LightningCallback", "LoopMeter", "TransformersCallback"]

_HOMES = {"TransformersCallback": "of_transformers", "LightningCallback": "of_lightning"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flopkit.integrations' has no attribute {name!r}; there is {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(f"flopkit.integrations.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
