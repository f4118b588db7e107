"""Decoding with a KV cache: one new token for each sequence of a batch, at a short and
a long context."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.decoder import DecoderSizes, decoder
from flopkit.experiments.expectations import Cases, Expectation
from flopkit.experiments.pairs import Span
from flopkit.measuring.workloads import torch_dtype

TITLE = "Decoding by batch size"
PREDICTION = (
    "At batch 1 a step takes as long as reading the weights takes, whatever it computes: its MFU is far below 1 % of a GPU's peak. Up to "
    "the batch whose caches weigh as much as the weights, time hardly grows, so tokens/s grow with the batch; beyond it, both the time and "
    "the bytes grow with the batch, and at the long context no batch becomes compute-bound. On a GPU an eager step at a small batch "
    "waits for launches, and a CUDA graph of the same kernels is the faster the smaller the batch; on a CPU launches do not matter."
)
READS = "at batch 1 a step takes as long as reading the weights: at least three quarters of the bandwidth"
FLAT = "time hardly grows while the caches weigh less than the weights: less than 1.5×"
NOT_BUSY = "at the long context no batch that we ran is compute-bound: less than half of the peak"
EXPECTATIONS = {
    "gpu": (
        Expectation(
            READS, (0.75, 1.1), "as a graph, contexts of 1,024 and 8,192",
            lambda of: [of.bandwidth(**_graph(1, context)) for context in (1024, 8192)], " %",
        ),
        Expectation(
            "its MFU is far below 1 %: less than half of that", (0, 0.005), "of the data sheet's peak, the same two",
            lambda of: [of.rate(**_graph(1, context)) / of.peak(**_graph(1, context)) for context in (1024, 8192)], " %",
        ),
        Expectation(
            FLAT, (0, 1.5), "64 sequences over one, context of 1,024; 16 over one, context of 8,192",
            lambda of: [of.seconds(**_graph(n, at)) / of.seconds(**_graph(1, at)) for n, at in ((64, 1024), (16, 8192))],
        ),
        Expectation(
            "beyond that the time grows like the bytes, within a quarter", (0.8, 1.25),
            "bytes/s of 256 sequences over 64, context of 1,024; of 64 over 16, context of 8,192",
            lambda of: [of.bandwidth(**_graph(n, at)) / of.bandwidth(**_graph(n // 4, at)) for n, at in ((256, 1024), (64, 8192))],
        ),
        Expectation(
            NOT_BUSY, (0, 0.5), lambda of: "{} and {} sequences".format(*_ends(of, 8192)),
            lambda of: [of.speed(**_graph(n, 8192)) for n in _ends(of, 8192)], " %",
        ),
        Expectation(
            "an eager step at a small batch waits for launches: a CUDA graph is at least a tenth faster", (1.1, math.inf),
            "time eager over as a graph, one sequence, contexts of 1,024 and 8,192",
            lambda of: [_gain(of, 1, context) for context in (1024, 8192)],
        ),
        Expectation(
            "a graph helps more the smaller the batch", (1, math.inf),
            "its gain over that at four times the batch: 1, 4, 16 and 64 sequences at a context of 1,024; 1, 4 and 16 at 8,192",
            lambda of: [
                _gain(of, n, at) / _gain(of, 4 * n, at) for at, batches in ((1024, (1, 4, 16, 64)), (8192, (1, 4, 16))) for n in batches
            ],
        ),
    ),
    "cpu": (
        Expectation(
            READS, (0.75, 1.1), "contexts of 256 and 2,048",
            lambda of: [of.bandwidth(batch=1, context=context) for context in (256, 2048)], " %",
        ),
        Expectation(
            FLAT, (0, 1.5), "16 sequences over one, context of 256",
            lambda of: [of.seconds(batch=16, context=256) / of.seconds(batch=1, context=256)],
        ),
        Expectation(
            NOT_BUSY, (0, 0.5), lambda of: "{} and {} sequences".format(*_ends(of, 2048)),
            lambda of: [of.speed(batch=n, context=2048) for n in _ends(of, 2048)], " %",
        ),
    ),
}  # fmt: skip


def _graph(batch: int, context: int) -> dict[str, Any]:
    return {"batch": batch, "context": context, "mode": "graph"}


def _gain(of: Cases, batch: int, context: int) -> Span:
    """The time of the eager step over that of the graph."""
    graph = _graph(batch, context)
    return of.seconds(**{**graph, "mode": "eager"}) / of.seconds(**graph)


def _ends(of: Cases, context: int) -> tuple[int, int]:
    """The smallest and the largest batch."""
    batches = [each["params"]["batch"] for each in of.records if each["params"]["context"] == context]
    return min(batches), max(batches)


def sizes_of(bench: Bench) -> DecoderSizes:
    """The model: on a GPU 8 of the 32 layers of llama-3-8b, which a T4 holds."""
    gpu = DecoderSizes(layers=8, d_model=4096, heads=32, kv_heads=8, d_ff=14336, vocab=128256)
    cpu = DecoderSizes(layers=4, d_model=1024, heads=16, kv_heads=4, d_ff=3584, vocab=8192)
    toy = DecoderSizes(layers=2, d_model=64, heads=4, kv_heads=2, d_ff=128, vocab=256)
    return bench.pick(toy=toy, cpu=cpu, gpu=gpu)  # type: ignore[no-any-return]


def run(bench: Bench) -> Iterator[Record]:
    """Seconds of a step over the batch, at two contexts; on a CUDA device eager and as
    a CUDA graph. Where caches do not fit, no case."""
    sizes, dtype = sizes_of(bench), bench.dtypes[0]
    net = functools.cache(lambda: decoder(sizes, bench.device, torch_dtype(dtype)))
    most = bench.pick(toy=2**7, cpu=2**15, gpu=2**19)
    if bench.device.type == "cuda":  # the weights, the caches and the check's copy of them
        import torch

        token = sizes.model().kv_bytes(context=1)
        most = min(most, (torch.cuda.get_device_properties(bench.device).total_memory - 2**33) // (3 * token))
    for context in bench.pick(toy=(8, 32), cpu=(256, 2048), gpu=(1024, 8192)):
        for batch in bench.pick(toy=(1, 4), cpu=(1, 2, 4, 8, 16, 32), gpu=(1, 4, 16, 64, 256)):
            for mode in ("eager", "graph") if bench.device.type == "cuda" else ("eager",):
                if batch * context <= most:
                    yield _case(bench, sizes, net, batch, context, mode, dtype)


def _case(
    bench: Bench, sizes: DecoderSizes, net: Callable[[], Any], batch: int, context: int, mode: str, dtype: str
) -> Record:
    import torch

    kind = torch_dtype(dtype)

    def step(tokens: Any, caches: Any) -> Any:
        return net()(tokens, caches)

    def right(tokens: Any, caches: Any) -> Any:
        """The same in float64, one block at a time, as copies of all caches might not
        fit."""
        whole = net()
        x = copy.deepcopy(whole.embedding).double()(tokens)
        for block, cache in zip(whole.blocks, caches, strict=True):
            x = copy.deepcopy(block).double()(x, [each.double() for each in cache])
        return copy.deepcopy(whole.head).double()(copy.deepcopy(whole.norm).double()(x))

    def make() -> tuple[Any, ...]:
        net()
        shape = (batch, sizes.kv_heads, context, sizes.d_model // sizes.heads)
        caches = [[torch.randn(shape, device=bench.device, dtype=kind) for _ in "kv"] for _ in range(sizes.layers)]
        tokens = torch.randint(sizes.vocab, (batch, 1), device=bench.device)
        return (step if mode == "eager" else captured(step, tokens, caches)), tokens, caches

    work = sizes.model().decode(context=context, batch=batch, weights=kind, kv_cache=kind)
    params = {"batch": batch, "context": context, "mode": mode, "layers": sizes.layers, "d_model": sizes.d_model}
    return bench.case("decode", params, make, dtype, flops=work.flops, bytes=work.bytes, check=right, time_budget=3)


def captured(step: Callable[..., Any], tokens: Any, caches: Any) -> Callable[..., Any]:
    """*step* as a CUDA graph: its kernels are started by one launch, always on these
    caches."""
    import torch

    given = tokens.clone()
    # A capture wants what the first calls set up to be there already, by calls on another stream.
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(given, caches)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(given, caches)

    def replayed(tokens: Any, caches: Any) -> Any:
        given.copy_(tokens)
        graph.replay()
        return out

    return replayed
