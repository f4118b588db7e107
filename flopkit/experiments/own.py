"""An experiment on the reader's own machine: what they have recorded, or a short run now."""

from __future__ import annotations

import time
from typing import Any

from tqdm import tqdm

from flopkit import machine
from flopkit.experiments.bench import Bench
from flopkit.experiments.catalogue import experiment
from flopkit.measuring.ceilings import ceilings
from flopkit.recordings.shelves import Case, records

__all__ = ["here"]

QUICK = 6.0  # s in which ceilings are found, where none are kept: enough for a figure, not for a verdict


def here(name: str, *, limit: float = 12.0, time_budget: float = 0.3, scale: str | None = None) -> list[Case]:
    """What an experiment gives on this machine: the reader's own recording of it where there is one, else a short run.

    The run ends with the case in which *limit* is passed; it is not kept. ``python -m flopkit record`` measures at length and keeps.

    Parameters
    ----------
    name : str
        Name of the experiment.
    limit : float, optional
        Seconds after which no new case is begun.
    time_budget : float, optional
        Seconds of a case.
    scale : str, optional
        ``"toy"``, ``"cpu"`` or ``"gpu"``: how large the cases are. None: by the device.

    Returns
    -------
    list[Case]
        Records with ``.whose``, and with ``.ceilings`` of this machine: those that are kept, else quick ones.

    Examples
    --------
    >>> {case.owner for case in here("matmul_sizes", limit=0.1, time_budget=0.02, scale="toy")}
    {'yours'}
    """
    chosen = experiment(name)
    kept = records(chosen.name, owner="yours")
    if kept:
        return kept
    bench = Bench(scale=scale, time_budget=time_budget)
    found, start = [], time.monotonic()
    with tqdm(desc=f"{chosen.name}, here", unit="case", leave=False, delay=2.0) as bar:
        for record in chosen.run(bench):
            found.append(record)
            bar.update()
            if time.monotonic() - start > limit:
                break
    own = _ceilings(bench)
    whose = f"yours: {own['title']}, a short run"
    return [Case(record, "yours", whose, own["title"], own) for record in found]


def _ceilings(bench: Bench) -> dict[str, Any]:
    """Those that are kept of this device, else quick ones."""
    kept = machine.read_ceilings(bench.device.type)
    if kept is None:
        kept = ceilings(bench.device.type, dtypes=bench.dtypes, time_budget=QUICK, keep=False).record()
    return dict(kept)
