"""Of which versions of a tool something is known: `since` one of them, and no more `until` another one."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Releases", "release"]


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version: what may follow them (a build, a post-release) and noughts at their end say nothing more here.

    >>> release("2.13.0+cpu") == release("2.13") < release("2.14.1")
    True
    """
    numbers = re.match(r"\d+(\.\d+)*", version)
    if numbers is None:
        raise ValueError(f"version={version!r}: must begin with numbers, such as '2.13.0'")
    return tuple(map(int, re.sub(r"(\.0+)+$", "", numbers[0]).split(".")))


@dataclass(frozen=True)
class Releases:
    """The versions *since* one, which is among them, *until* another, which is not; without *until* that one alone.

    >>> str(Releases("2.13.0", "2.15")), str(Releases("0.7.5"))
    ('2.13.0 and later, before 2.15', '0.7.5')
    """

    since: str
    until: str | None = None

    def __post_init__(self) -> None:
        if self.until is not None and release(self.since) >= release(self.until):
            raise ValueError(f"until={self.until!r}: must be later than since={self.since!r}")

    def __contains__(self, version: str | None) -> bool:
        if version is None:
            return False
        if self.until is None:
            return version.split("+")[0] == self.since.split("+")[0]
        return release(self.since) <= release(version) < release(self.until)

    def __str__(self) -> str:
        return self.since if self.until is None else f"{self.since} and later, before {self.until}"
