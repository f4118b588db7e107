"""What `python -m flopkit run` costs a training step, once its counted steps are over."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ASKED = {
    "steps": 3, "every": 1, "device": "h100-sxm", "peak": None, "dtype": None, "convention": "TORCH", "uncompiled": True,
    "json": os.devnull, "passport": None, "flopkit": str(ROOT), "command": ["python", "train.py"],
}  # fmt: skip


def rows_attaching(seconds=20):
    """The same model and optimiser, with torch's hooks and without them step by step in turn, so that a drift falls on both; CPU time."""
    import torch
    from torch.optim.optimizer import _global_optimizer_pre_hooks as hooks_before, register_optimizer_step_pre_hook

    path = ROOT / "flopkit" / "integrations" / "on_path" / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("flopkit_on_path", path)
    on_path = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(on_path)
    for name, width, depth, tokens in (("small", 64, 2, 64), ("larger", 256, 4, 512)):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(width, width) for _ in range(depth)]
        model = torch.nn.Sequential(torch.nn.Embedding(512, width), *layers, torch.nn.Linear(width, 512))
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.randint(0, 512, (4, tokens // 4))

        def step(model=model, optimizer=optimizer, x=x):
            start = time.process_time()
            torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            return time.process_time() - start

        with tempfile.TemporaryDirectory() as folder:
            os.environ["FLOPKIT_RUN_FOLDER"] = folder
            hook = on_path.Hook(json.dumps(ASKED))
            del os.environ["FLOPKIT_RUN_FOLDER"]
            handle = register_optimizer_step_pre_hook(hook)
            for _ in range(30):
                step()
            assert hook.attachment.phase == "timing" and hook.attachment.step_rates.gauges
            mine = dict(hooks_before), dict(optimizer._optimizer_step_post_hooks)
            taken = {True: [], False: []}
            start, order = time.perf_counter(), random.Random(0)
            while time.perf_counter() - start < seconds:
                for attached in order.sample((True, False), 2):
                    for hooks, own in zip((hooks_before, optimizer._optimizer_step_post_hooks), mine, strict=True):
                        hooks.clear()
                        hooks.update(own if attached else {})
                    taken[attached].append(step())
            hooks_before.update(mine[0])
            handle.remove()
        plain = statistics.median(taken[False])
        more = statistics.median(one - other for one, other in zip(taken[True], taken[False], strict=True))
        yield (
            f"a {name} training step on the CPU, attached to by `python -m flopkit run`, after the counted ones",
            f"{100 * more / plain:+.2f} %",
            f"{1e6 * more:+.1f} µs over {1000 * plain:.2f} ms without it, CPU time, {len(taken[False]):,} pairs of steps",
            "< +0.5 %",
        )


if __name__ == "__main__":
    for row in rows_attaching():
        print(row)
