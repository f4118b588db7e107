"""Whole models on 1,024 simulated ranks, each in a process of its own: CPU time beside that of importing torch, and memory.

python benchmarks/simulating.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = {
    "Llama-3-8B under FSDP2": ("llama_8b", 32),
    "Llama-3-70B under TP 8 × FSDP2": ("llama_70b", 80),
    "Qwen3-30B-A3B's sizes under EP 64 and FSDP2": ("experts", 48),
}
RUN = """
import json, resource, sys, time, warnings
warnings.simplefilter("ignore")
import torch
before = time.process_time()
import test_ranks
start = time.perf_counter()
flops, sent, expected = test_ranks.run(sys.argv[1], int(sys.argv[2]))
assert sent == expected
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps([time.perf_counter() - start, time.process_time() - before, before, most]))
"""


def rows_simulating():
    """The table's rows."""
    paths = [ROOT, ROOT / "tests", ROOT / "tests" / "simulation"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    for what, (name, layers) in MODELS.items():
        done = subprocess.run(
            [sys.executable, "-c", RUN, name, str(layers)], env=env, capture_output=True, text=True, check=True
        )
        wall, busy, imported, most = json.loads(done.stdout.splitlines()[-1])
        yield (
            f"{what}, one of 1,024 ranks: built and a step counted",
            f"{wall:.0f} s, {busy / imported:.1f} times the CPU time of `import torch`",
            f"{most / 1e9:.2f} GB",
            "< 60 s, < 3 GB",
        )


if __name__ == "__main__":
    for row in rows_simulating():
        print("  ".join(row))
