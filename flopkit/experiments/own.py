"""An experiment on the reader's own machine: what they have recorded, or a short run
now."""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator
from functools import cache
from itertools import islice
from typing import Any

from tqdm import tqdm

from flopkit import machine
from flopkit.experiments.bench import Bench
from flopkit.experiments.catalogue import experiment
from flopkit.measuring.ceilings import ceilings
from flopkit.recordings.cases import Case, records
from flopkit.sizes import number, positive

__all__ = ["here", "short_run"]

QUICK = 6.0  # s in which ceilings are found, where none are kept: enough for a figure, not for a verdict


def here(
    name: str, *, limit: float = 10.0, time_budget: float = 0.3, scale: str | None = None, cases: int | None = None
) -> list[Case]:
    """What an experiment gives on this machine: the reader's own recording of it where
    there is one, else a short run.

    A short run has one case at least, and is not kept. ``python -m flopkit record``
    measures at length and keeps. A case that cannot run here, such as a compiled one
    without a C++ compiler, ends the run too: a warning says so.

    Parameters
    ----------
    name : str
        Name of the experiment.
    limit : float, optional
        Seconds that all cases may take: none is begun that would pass them if it took
        as long as the longest so far.
    time_budget : float, optional
        Seconds of a case.
    scale : str, optional
        ``"toy"``, ``"cpu"`` or ``"gpu"``: how large the cases are. None: by the device.
    cases : int, optional
        How many cases a short run has, the experiment's first ones. None: all that
        there is time for.

    Returns
    -------
    list[Case]
        Records with ``.whose``, and with ``.ceilings`` of this machine: those that are
        kept, else quick ones.

    Examples
    --------
    >>> {case.owner for case in here("matmul_sizes", limit=0.1, time_budget=0.02, scale="toy")}
    {'yours'}
    """
    chosen = experiment(name)
    if cases is not None:
        cases = number("cases", cases)
    if kept := records(chosen.name, owner="yours"):
        return kept
    run = islice(short_run(chosen.name, limit=limit, time_budget=time_budget, scale=scale), cases)
    found: list[Case] = []
    try:
        for case in tqdm(run, desc=f"{chosen.name}, here", unit="case", leave=False, delay=2.0):
            found.append(case)  # one by one: what is measured before an error stays
    except Exception as error:
        if not found:
            raise
        last = str(error).strip().partition("\n")[0]
        warnings.warn(f"{name}: ended after {len(found)} cases, {type(error).__name__}: {last}", stacklevel=2)
    return found


def short_run(
    name: str, *, limit: float = 10.0, time_budget: float = 0.3, scale: str | None = None
) -> Generator[Case, None, bool]:
    """The same run whether a recording is kept or not, case by case, for those who show
    what there is so far.

    It begins with the ceilings of this machine where none are kept, some six seconds. It returns whether the limit ended it.
    The other parameters are those of `here`.

    Parameters
    ----------
    scale : str, optional
        ``"toy"``, ``"cpu"`` or ``"gpu"``. None: by the device.

    Examples
    --------
    >>> run = short_run("matmul_sizes", time_budget=0.02, scale="toy")
    >>> next(run)["case"]
    'n=16, data=normal'
    """
    positive("limit", limit, "seconds", zero=True)
    chosen, bench = experiment(name), Bench(scale=scale, time_budget=time_budget)
    own = _ceilings(bench)
    whose = f"yours: {own['title']}, a short run"
    start = begun = time.monotonic()
    longest = 0.0
    for record in chosen.run(bench):
        longest = max(longest, time.monotonic() - begun)
        yield Case(record, "yours", whose, own["title"], own)
        begun = time.monotonic()
        if begun + longest - start > limit:
            return True
    return False


def _ceilings(bench: Bench) -> dict[str, Any]:
    """Those that are kept of this device, else quick ones."""
    kept, threads = machine.read_ceilings(bench.device), machine.threads(bench.device)
    return dict(kept or _quick(bench.device.type, bench.dtypes, threads))


@cache
def _quick(device: str, dtypes: tuple[str, ...], threads: int | None) -> dict[str, Any]:
    """Ceilings for the figures of this session, measured once."""
    return ceilings(device, dtypes=dtypes, time_budget=QUICK, keep=False).record()
