"""What stands around a branch: all that it does not change is the inner one's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit.models.caches import Rows, seen_rows
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.parts import Part, Run
from flopkit.training.memory import Kept

__all__ = ["Wrapped"]


@dataclass(frozen=True, kw_only=True)
class Wrapped(Branch):
    """A branch around another one."""

    branch: Any

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache of the branch."""
        found: dict[str, Any] = self.branch.cached(context, rows)
        return found

    def handed_on(self, run: Run) -> Any:
        """What the branch hands on."""
        return self.branch.handed_on(run)

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        """The parts of the branch."""
        found: list[Part] = self.branch.parts(run, d_model)
        return found

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """What the branch keeps."""
        found: list[Kept] = self.branch.kept(run, d_model, kernel, dropout)
        return found
