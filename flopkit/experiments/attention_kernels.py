"""Attention by each kernel that torch has for the device, over the length of the
sequence, with and without a causal mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from flopkit import machine
from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span
from flopkit.layers.attentions import attention

TITLE = "Attention kernels: math, memory-efficient, flash"
PREDICTION = (
    "All kernels compute the same products. Math writes the scores to memory and reads them again, so its time follows its bytes and grows with "
    "the square of the length from the start; a fused kernel keeps them on the chip. On an H200 in bf16 flash is 2 to 4 times faster than math "
    "at 4096 tokens and reaches a third to two thirds of the dense peak. A causal mask halves the time of flash at long sequences, for it "
    "skips the blocks that the mask hides; math computes all pairs and takes no less time than without a mask. On a CPU flash is 1.5 to 3 times "
    "faster than math."
)
FLASH = {"kernel": "flash", "tokens": 4096, "causal": False}
EXPECTATIONS = {
    "gpu": (
        Expectation(
            "math grows with the square: 16× for four times the tokens, within a quarter", (12, 20),
            "time of 4,096 tokens over 1,024", lambda of: [_took(of, "math", 4096) / _took(of, "math", 1024)],
        ),
        Expectation(
            "flash is 2 to 4 times as fast as math at 4,096 tokens", (2, 4), "time of math over flash",
            lambda of: [_took(of, "math", 4096) / _took(of, "flash", 4096)],
        ),
        Expectation(
            "it reaches a third to two thirds of the dense peak there", (1 / 3, 2 / 3), "of the data sheet's",
            lambda of: [of.rate(**FLASH) / of.peak(**FLASH)], " %",
        ),
        Expectation(
            "a causal mask halves the time of flash at long sequences, within a fifth", (0.4, 0.6),
            "4,096 and 16,384 tokens", lambda of: _masked(of, "flash", 4096, 16384),
        ),
        Expectation(
            "math takes no less time with a mask, within a tenth", (0.9, math.inf),
            "1,024 and 4,096 tokens", lambda of: _masked(of, "math", 1024, 4096),
        ),
    ),
    "cpu": (
        Expectation(
            "math grows with the square: 4× for twice the tokens, within a quarter", (3, 5),
            "time of 1,024 and 2,048 tokens, over half of them",
            lambda of: [_took(of, "math", 2 * n) / _took(of, "math", n) for n in (512, 1024)],
        ),
        Expectation(
            "flash is 1.5 to 3 times as fast as math", (1.5, 3), "512, 1,024 and 2,048 tokens",
            lambda of: [_took(of, "math", n) / _took(of, "flash", n) for n in (512, 1024, 2048)],
        ),
        Expectation(
            "a causal mask halves the time of flash at long sequences, within a fifth", (0.4, 0.6),
            "2,048 tokens", lambda of: _masked(of, "flash", 2048),
        ),
        Expectation(
            "math takes no less time with a mask, within a tenth", (0.9, math.inf),
            "512, 1,024 and 2,048 tokens", lambda of: _masked(of, "math", 512, 1024, 2048),
        ),
    ),
}  # fmt: skip


def _took(of: Cases, kernel: str, tokens: int, causal: bool = False) -> Span:
    return of.seconds(kernel=kernel, tokens=tokens, causal=causal)


def _masked(of: Cases, kernel: str, *lengths: int) -> list[Span]:
    """The time with a causal mask over that without."""
    return [_took(of, kernel, n, True) / _took(of, kernel, n) for n in lengths]


SHARE = 1 / 8  # of the memory that the scores of "math" may take, in fp32, at most: it holds several such matrices
BLOCK = 128  # queries that the check takes at once


def run(bench: Bench) -> Iterator[Record]:
    """FLOP/s and bytes/s by kernel, length and mask. *extra* has the FLOPs of the pairs
    that the mask lets through.

    Math stops where its scores would take more than an eighth of the memory.
    """
    batch, heads, head_dim = bench.pick(toy=(1, 2, 8), cpu=(1, 8, 64), gpu=(4, 32, 128))
    dtype = bench.dtypes[0]
    room = SHARE * (machine.memory(bench.device) or math.inf)
    for tokens in bench.pick(toy=(16, 32), cpu=(512, 1024, 2048), gpu=(1024, 4096, 16384)):
        for kernel in kernels(bench, dtype):
            for causal in (False, True):
                if kernel == "math" and 4 * batch * heads * tokens**2 > room:
                    continue
                attend = bench.random(sdpa(kernel, causal), dtype, *[(batch, heads, tokens, head_dim)] * 3)
                sizes = {"batch": batch, "heads": heads, "head_dim": head_dim}
                params = {"kernel": kernel, "causal": causal, "tokens": tokens, **sizes}
                seen = attention(q=tokens, kv=tokens, mask="causal" if causal else "full", **sizes)
                extra = {"model_flops": seen.flops}
                yield bench.case("attention_kernels", params, attend, dtype, check=_by_blocks(causal), extra=extra)


def kernels(bench: Bench, dtype: str) -> tuple[str, ...]:
    """The kernels of `scaled_dot_product_attention` that run here: on CUDA, flash is
    for half precision and capability 8.0 or more."""
    if bench.device.type != "cuda":
        return ("math", "flash")
    import torch

    major, _minor = torch.cuda.get_device_capability(bench.device)
    return ("math", "efficient", "flash") if major >= 8 and dtype in ("bf16", "fp16") else ("math", "efficient")


def sdpa(kernel: str, causal: bool) -> Callable[..., Any]:
    """Attention of queries, keys and values by one kernel and no other: where it cannot
    run, torch raises RuntimeError."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    backend = {
        "math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
    }[kernel]  # fmt: skip

    def attend(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return attend


def _by_blocks(causal: bool) -> Callable[..., Any]:
    """Attention written out in float64, for as many queries at a time as leave room for
    their scores: fused kernels take no float64."""

    def right(q: Any, k: Any, v: Any) -> Any:
        import torch

        q, k, v = q.double(), k.double(), v.double()
        found = []
        for start in range(0, q.shape[-2], BLOCK):
            scores = q[..., start : start + BLOCK, :] @ k.mT / q.shape[-1] ** 0.5
            if causal:
                hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(start + 1)
                scores = scores.masked_fill(hidden, float("-inf"))
            found.append(scores.softmax(-1) @ v)
        return torch.cat(found, -2)

    return right
