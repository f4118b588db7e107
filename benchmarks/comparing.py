"""How often `Profile.compare` calls an unchanged program faster or slower, and how often it sees one that is a fifth faster.

python benchmarks/comparing.py           40 unchanged pairs and 20 changed ones, on this machine as busy as it is: ten minutes
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def training(layers):
    """A training step of that many layers, and their weights."""
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(layers)))
    optimizer, x = torch.optim.SGD(model.parameters(), 1e-3), torch.randn(128, 256)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def apart(before, after):
    """What the intervals of the two profiles say, which know nothing of what the machine did between them."""
    a, b = before.plain, after.plain
    half = math.hypot(a.seconds_ci[1] - a.seconds, b.seconds_ci[1] - b.seconds)
    return (
        "no difference seen" if abs(a.seconds - b.seconds) <= half else "faster" if a.seconds > b.seconds else "slower"
    )


def rows_comparing(unchanged=40, changed=20, seconds=1.0):
    """Pairs of profiles one after the other: of two models alike, of one and the same call, and of five layers and four."""
    import torch

    import flopkit as fk

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    kinds = {"two programs alike": (training(5), training(5)), "a fifth less": (training(5), training(4))}
    kinds["one and the same call"] = (training(5),) * 2
    for kind, steps in kinds.items():
        tries = changed if kind == "a fifth less" else unchanged // 2
        verdicts, others, naive, took, saved = [], [], [], [], []
        for _ in range(tries):
            before, after = (fk.profile(step, time_budget=seconds) for step in steps)
            start = time.perf_counter()
            [under, plain, *rows] = before.compare(after, time_budget=20 * seconds)
            took.append(time.perf_counter() - start)
            verdicts.append(plain["verdict"])
            others.append({under["verdict"], *(row["verdict"] for row in rows)} & {"faster", "slower"})
            saved.append(plain["saved"] / plain["before"])
            naive.append(apart(before, after))
        told = sum(each in ("faster", "slower") for each in verdicts)
        seen, by_one = verdicts.count("faster"), naive.count("faster")
        if kind == "a fifth less":
            said, beside, aim = (
                f"{seen} of {tries} seen",
                f"saved {100 * statistics.median(saved):.0f} % in the median; by the intervals of each profile {by_one}",
                "most",
            )
        else:
            alarms = sum(bool(each) for each in others)
            wrong = sum(each != "no difference seen" for each in naive)
            said = f"{told} of {tries} called faster or slower"
            beside, aim = f"by the intervals of each profile {wrong}; a row of an operator in {alarms}", "≤ 5 %"
        yield (
            f"`before.compare(after)`, {kind}, load {os.getloadavg()[0] / os.cpu_count():.1f} a core",
            said,
            f"{beside}; {statistics.fmean(took):.1f} s each",
            aim,
        )
    torch.set_num_threads(threads)


if __name__ == "__main__":
    for row in rows_comparing(*map(int, sys.argv[1:])):
        print(*row, sep=" | ", flush=True)
