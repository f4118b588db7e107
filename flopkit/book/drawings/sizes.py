"""Sizes that a drawing can show."""

from __future__ import annotations

__all__ = ["whole"]


def whole(drawing: str, name: str, size: object, least: int, most: int) -> int:
    """*size*, if it is a whole number from *least* to *most*."""
    if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= most:
        raise ValueError(
            f"{drawing}({name}={size!r}): give a whole number from {least} to {most:,}, so that it can be drawn"
        )
    return size
