"""One process among those of a run: its rank, what it says, and what it leaves for the others."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["RankOfRun", "at_the_end_of_a_child"]


class RankOfRun:
    """This process: rank 0 speaks, on standard error or in a *file* of JSON lines; the others leave their counts in a *folder*."""

    def __init__(self, folder: str, file: str | None) -> None:
        self._folder, self._file = Path(folder), file
        self.look()

    def look(self) -> None:
        """See again which rank this is: a program may join its job late."""
        self.rank, self.world = _rank()

    def tell(self, event: str, facts: dict[str, Any], line: str) -> None:
        """A line on the terminal, or in the file of JSON lines."""
        if self.rank:
            return
        if self._file is None:
            self.say(line)
            return
        about = {"event": event, "time": time.time(), "pid": os.getpid(), "rank": self.rank, **facts}
        with Path(self._file).open("a", encoding="utf-8") as file:
            file.write(json.dumps(about, ensure_ascii=False, default=float) + "\n")

    def say(self, text: str) -> None:
        """A line on standard error, of rank 0."""
        if not self.rank and sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # closed by the program, or by who read it
                print(f"flopkit: {text}", file=sys.stderr, flush=True)

    def leave(self, facts: dict[str, Any]) -> None:
        """Leave the FLOPs of a step for rank 0."""
        left = {"rank": self.rank, **{name: facts.get(name) for name in ("model_flops", "hardware_flops")}}
        with contextlib.suppress(OSError):  # the command may have ended before this process
            (self._folder / f"{os.getpid()}.json").write_text(json.dumps(left, default=float), "utf-8")

    def of_all(self) -> list[dict[str, Any]]:
        """What the processes of this machine have counted, rank by rank."""
        found = [json.loads(path.read_text("utf-8")) for path in self._folder.glob("*.json")]
        return sorted(found, key=lambda each: each["rank"])

    def own(self, name: str) -> str:
        """*name*, which a second process of the command gets with its own number."""
        try:
            (self._folder / "passport").open("x").close()
        except FileExistsError:  # of another process of this command
            return f"{name}-{os.getpid()}"
        except OSError:  # the command has ended before this process
            return name
        return name


def at_the_end_of_a_child(end: Callable[[], None]) -> None:
    """Have *end* called in a process that multiprocessing has started, which may end without Python's usual end."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, end, exitpriority=0)


def _rank() -> tuple[int, int]:
    """This process among those of the job."""
    if "RANK" in os.environ and os.environ["RANK"].isdigit():
        return int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", "1"))
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
