"""Counting beside not counting: the same program plain, under flopkit, under torch's counter, and under the fastest peer.

    python benchmarks/counting.py

The four take turns in one run, on one thread; each has its least time of several rounds, which is what a busy machine disturbs least.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import sys
import time
import tracemalloc
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

LAYERS, LENGTH, TINY = 32, 4096, 2000
REMEMBERED = ": 31 of its 32 layers have the shapes of the first, and on meta a known shape is not worked out again"


def resnet50(images=1):
    """ResNet-50, forward, on the CPU. One image is the hardest case: a counter's work does not grow with the batch."""
    import torch
    import torchvision

    return torchvision.models.resnet50().eval(), torch.randn(images, 3, 224, 224)


def llama_8b():
    """The shape of Llama-3-8B: 32 layers, 4,096 tokens, on meta."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, width=4096, heads=32, kv_heads=8, hidden=14336):
            super().__init__()
            self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
            self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.k, self.v = (nn.Linear(width, kv_heads * self.head, bias=False) for _ in range(2))
            self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
            self.down = nn.Linear(hidden, width, bias=False)

        def forward(self, x):
            batch, length, width = x.shape
            y = self.before(x)
            q = self.q(y).view(batch, length, self.heads, self.head).transpose(1, 2)
            k, v = (p(y).view(batch, length, self.kv_heads, self.head).transpose(1, 2) for p in (self.k, self.v))
            core = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.o(core.transpose(1, 2).reshape(batch, length, width))
            y = self.after(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    with torch.device("meta"):
        model = nn.Sequential(*[Layer() for _ in range(LAYERS)]).to(torch.bfloat16)
        return model, torch.empty(1, LENGTH, 4096, dtype=torch.bfloat16)


def tiny():
    """A loop of tiny operators."""
    import torch
    from torch import nn

    class Loop(nn.Module):
        def forward(self, x):
            for _ in range(TINY):
                torch.add(x, x)
            return x

    return Loop(), torch.ones(4, 4)


def counters():
    """What runs a model under each counter; a peer that is not installed is left out."""
    from torch.utils.flop_counter import FlopCounterMode

    import flopkit as fk
    from flopkit.peers import installed

    def plain(model, x):
        model(x)

    def flopkit(model, x):
        fk.count(model, x)

    def torch_counter(model, x):
        with FlopCounterMode(display=False):
            model(x)

    found = {"plain": plain, "flopkit": flopkit, "torch": torch_counter}
    thop = installed.load("ultralytics-thop")
    if thop is not None:
        found["ultralytics-thop"] = lambda model, x: thop.profile(model, inputs=(x,), verbose=False)
    return found


def measured(make, rounds):
    """Seconds of each, the least of *rounds*."""
    import torch

    model, x = make()
    runs, taken = counters(), {}
    with torch.no_grad():
        for turn in range(rounds + 1):
            names = [*runs][turn % len(runs) :] + [*runs][: turn % len(runs)]  # each is the first in its turn
            for name in names:
                run = runs[name]
                gc.collect()
                start = time.perf_counter()
                run(model, x)
                if turn:  # the first round loads and warms
                    taken.setdefault(name, []).append(time.perf_counter() - start)
    return {name: min(times) for name, times in taken.items()}


def rows_counter(rounds=20):
    """The table's rows."""
    import torch

    torch.set_num_threads(1)
    programs = {
        "ResNet-50 forward on the CPU, one image": (resnet50, "≤ 1.2× plain, ≤ torch's"),
        "ResNet-50 forward on the CPU, eight images": (lambda: resnet50(8), "≤ 1.2× plain, ≤ torch's"),
        f"Llama-3-8B's shape, {LENGTH:,} tokens, forward on meta": (llama_8b, "≤ 1.2× plain, ≤ torch's"),
        f"{TINY:,} additions of 4 × 4": (tiny, "≤ torch's"),
    }
    for what, (make, aim) in programs.items():
        taken = measured(make, rounds)
        others = ", ".join(
            f"{name} {taken[name] / taken['plain']:.2f}×" for name in taken if name not in ("plain", "flopkit")
        )
        why = REMEMBERED if make is llama_8b else ""
        yield f"{what}, counted", f"{taken['flopkit'] / taken['plain']:.2f}× plain{why}", others, aim
    yield memory()


def memory(steps=1000):
    """What 1,000 training steps under one count leave behind."""
    import torch

    import flopkit as fk

    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.ones(8, 16)

    def step():
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    sizes = []
    with fk.counting() as report:
        tracemalloc.start()
        for number in range(steps):
            step()
            if number % 100 == 99:
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert report.backward.flops == steps * 2 * 2 * 8 * 16 * 16 * 4 - steps * 2 * 8 * 16 * 16
    growth = statistics.median(b - a for a, b in itertools.pairwise(sizes)) / 100
    return (
        f"memory after {steps:,} training steps, counted",
        f"{growth:.0f} B a step",
        f"{sizes[-1] / 1e6:.1f} MB in all",
        "no growth",
    )


if __name__ == "__main__":
    for row in rows_counter():
        print("  ".join(row))
