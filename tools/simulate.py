"""Run every stopping rule on every simulated clock and write flopkit/book/data/stopping_rules.csv: half an hour on one core.

python tools/simulate.py
"""

from __future__ import annotations

import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from flopkit.book.simulation import RULES, RUNS, RUNS_SAME_TIME, SAME_TIME, Clock, Simulated, clocks  # noqa: E402

TARGET = ROOT / "flopkit" / "data" / "stopping_rules.csv"
VALUES = ("bias", "low", "high", "half", "covered", "seconds")
HEAD = f"""\
# What each stopping rule tells of each simulated clock, in {RUNS} runs, or in {RUNS_SAME_TIME} with the same time: flopkit/book/simulation.py says how. Written by tools/simulate.py.
# drift, states: shares; settles, hold, seconds: s; bias, low, high, half: shares of the true mean; covered: share of the runs.
# same_time: yes where each rule is given 4.5 s (SAME_TIME), no where it has its defaults (RULES).
"""


def trials(rule: str, clock: Clock, runs: int = RUNS, first: int = 0, same_time: bool = False) -> dict[str, float]:
    """What *rule* tells of *clock* in many runs, beside the truth: all shares, and seconds.

    The first run has the seed *first*, the next has the next. What comes back: ``bias`` (mean error), ``low`` and ``high`` (a twentieth of the
    errors are below and above), ``half`` (mean half interval), ``covered`` (runs whose interval has the truth in it), ``seconds`` (mean time of a run).
    """
    stop = (SAME_TIME if same_time else RULES)[rule]
    found = [stop(Simulated(clock, seed)) for seed in range(first, first + runs)]
    errors = sorted(each.told / clock.mean - 1 for each in found)
    edge = len(errors) // 20
    return {
        "bias": statistics.fmean(errors),
        "low": errors[edge],
        "high": errors[-1 - edge],
        "half": statistics.fmean(each.half / clock.mean for each in found),
        "covered": sum(abs(each.told - clock.mean) <= each.half for each in found) / runs,
        "seconds": statistics.fmean(each.spent for each in found),
    }


def line(case: tuple[Clock, str, bool]) -> str:
    clock, rule, same_time = case
    found = trials(rule, clock, RUNS_SAME_TIME if same_time else RUNS, same_time=same_time)
    drawn = f"{clock.drift:g},{clock.settles:g},{clock.states:g},{clock.hold:g},{'yes' if clock.spikes else 'no'}"
    name = f'"{rule}"' if "," in rule else rule
    return f"{drawn},{'yes' if same_time else 'no'},{name}," + ",".join(f"{found[value]:.5f}" for value in VALUES)


def main() -> None:
    cases = [(clock, rule, same_time) for same_time in (False, True) for clock in clocks() for rule in RULES]
    with ProcessPoolExecutor() as pool:
        lines = list(pool.map(line, cases, chunksize=1))
    names = ",".join(("drift", "settles", "states", "hold", "spikes", "same_time", "rule", *VALUES))
    TARGET.write_text(HEAD + names + "\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
