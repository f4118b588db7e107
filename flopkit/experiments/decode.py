"""Decoding with a KV cache: one new token for each sequence of a batch, at a short and a long context."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.decoder import Sizes, decoder
from flopkit.measuring.workloads import torch_dtype

TITLE = "Decoding by batch size"
PREDICTION = (
    "At batch 1 a step takes as long as reading the weights takes, whatever it computes: its MFU is far below 1 % of a GPU's peak. Up to "
    "the batch whose caches weigh as much as the weights, time hardly grows, so tokens/s grow with the batch; beyond it, both the time and "
    "the bytes grow with the batch, and at the long context no batch becomes compute-bound. On a GPU an eager step at a small batch "
    "waits for launches, and a CUDA graph of the same kernels is the faster the smaller the batch; on a CPU launches do not matter."
)


def sizes_of(bench: Bench) -> Sizes:
    """The model: on a GPU 8 of the 32 layers of llama-3-8b, which a T4 holds."""
    gpu = Sizes(layers=8, d_model=4096, heads=32, kv_heads=8, d_ff=14336, vocab=128256)
    cpu = Sizes(layers=4, d_model=1024, heads=16, kv_heads=4, d_ff=3584, vocab=8192)
    toy = Sizes(layers=2, d_model=64, heads=4, kv_heads=2, d_ff=128, vocab=256)
    return bench.pick(toy=toy, cpu=cpu, gpu=gpu)  # type: ignore[no-any-return]


def run(bench: Bench) -> Iterator[Record]:
    """Seconds of a step over the batch, at two contexts; on a CUDA device eager and as a CUDA graph. Where caches do not fit, no case."""
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
    bench: Bench, sizes: Sizes, net: Callable[[], Any], batch: int, context: int, mode: str, dtype: str
) -> Record:
    import torch

    kind = torch_dtype(dtype)

    def step(tokens: Any, caches: Any) -> Any:
        return net()(tokens, caches)

    def right(tokens: Any, caches: Any) -> Any:
        """The same in float64, one block at a time, as copies of all caches might not fit."""
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

    work = sizes.model().decode(context=context, batch=batch, weights=kind, kv=kind)
    params = {"batch": batch, "context": context, "mode": mode, "layers": sizes.layers, "d_model": sizes.d_model}
    return bench.case("decode", params, make, dtype, flops=work.flops, bytes=work.bytes, check=right, time_budget=3)


def captured(step: Callable[..., Any], tokens: Any, caches: Any) -> Callable[..., Any]:
    """*step* as a CUDA graph: its kernels are started by one launch, always on these caches."""
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
