"""Decoding: the step counts what the closed forms say, gives what a whole pass gives, and its graph starts what it captured."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from flopkit.experiments import Bench, decode
from flopkit.experiments.decoder import DecoderSizes, decoder

TOY = DecoderSizes(layers=2, d_model=64, heads=4, kv_heads=2, d_ff=128, vocab=256)


@pytest.fixture(scope="module")
def records(toy):
    return {(r["params"]["batch"], r["params"]["context"]): r for r in toy("decode")[1]}


def by_hand(batch, context):
    """Products of a token with the weights of two layers and the head; scores and values over the context; two FLOPs each."""
    weights = 2 * (64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 128) + 64 * 256
    return 2 * batch * (weights + 2 * 2 * context * 64)


def test_counts(records):
    assert list(records) == [(1, 8), (4, 8), (1, 32), (4, 32)]
    for (batch, context), each in records.items():
        assert each["counted"]["flops"] == by_hand(batch, context)
        assert each["verdict"] == "ok" and each["error"] < 1e-5


def test_the_step_runs_what_is_counted():
    import flopkit as fk

    net = decoder(TOY, "cpu", torch.float32)
    caches = [[torch.randn(4, 2, 32, 16) for _ in "kv"] for _ in range(2)]
    with torch.no_grad():
        assert fk.count(net, torch.zeros(4, 1, dtype=torch.int64), caches).under("EXACT").flops == by_hand(4, 32)


def test_bytes_are_the_weights_and_the_caches(records):
    """A batch adds rows of the embedding and caches, a context caches alone: 2 layers of keys and values, 2 heads of 16."""
    cache = 4 * 2 * 2 * 2 * 16
    bytes = {key: each["counted"]["bytes"] for key, each in records.items()}
    assert bytes[1, 32] - bytes[1, 8] == 24 * cache and bytes[4, 32] - bytes[4, 8] == 4 * 24 * cache
    assert bytes[4, 8] - bytes[1, 8] == 3 * (8 * cache + 4 * 64)


def test_a_decoded_token_is_that_of_the_whole_pass():
    """The caches of a pass over eight tokens; the last is decoded again, and its place in the caches is filled by the step."""
    torch.manual_seed(0)
    net = decoder(TOY, "cpu", torch.float64)
    tokens = torch.randint(256, (3, 8))
    caches, hooks = [], []
    for block in net.blocks:
        parts = lambda module, given, out: caches.append(
            [part.unflatten(-1, (-1, 16)).transpose(1, 2).clone() for part in out.split([64, 32, 32], -1)[1:]]
        )
        hooks.append(block.qkv.register_forward_hook(parts))
    with torch.no_grad():
        whole = net(tokens)
        for hook in hooks:
            hook.remove()
        for cache in caches:
            for part in cache:
                part[:, :, -1] = 7.0
        torch.testing.assert_close(net(tokens[:, -1:], caches)[:, 0], whole[:, -1])


class Card:
    """A stand-in for `torch.cuda`: a graph runs again what was called while it was captured."""

    total_memory = 16 * 2**30

    def __init__(self):
        self.graphs = []
        card = self

        class Graph:
            def __init__(self):
                self.replayed = 0
                card.graphs.append(self)

            def replay(self):
                self.replayed += 1

        stream = SimpleNamespace(wait_stream=lambda other: None)
        self.cuda = {
            "Stream": lambda: stream, "current_stream": lambda: stream, "stream": lambda stream: nullcontext(), "CUDAGraph": Graph,
            "graph": lambda graph: nullcontext(), "get_device_properties": lambda device: self,
        }  # fmt: skip


@pytest.fixture
def card(monkeypatch):
    found = Card()
    for name, value in found.cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return found


def test_a_graph_takes_the_tokens_to_where_it_was_captured(card):
    seen = []
    replayed = decode.captured(lambda tokens, caches: seen.append(tokens) or tokens, torch.zeros(2, 1), None)
    assert len(seen) == 4 and all(each is seen[0] for each in seen)  # three calls to warm up, one that is captured
    out = replayed(torch.full((2, 1), 5.0), None)
    assert out is seen[0] and out.eq(5).all() and card.graphs[0].replayed == 1


def test_on_a_gpu_only_what_fits(card, monkeypatch):
    """Eager and as a graph, on a card of 16 GiB: half of it for weights, the rest for the caches and their copies."""
    monkeypatch.setattr(Bench, "dtypes", ("bf16",))
    monkeypatch.setattr(decode, "_case", lambda bench, sizes, net, *case: case)
    bench = Bench("cpu", "gpu")
    bench.device = SimpleNamespace(type="cuda")
    cases = list(decode.run(bench))
    assert [case[:3] for case in cases[:4]] == [
        (1, 1024, "eager"),
        (1, 1024, "graph"),
        (4, 1024, "eager"),
        (4, 1024, "graph"),
    ]
    assert max(batch * context for batch, context, *_ in cases) * 32 * 2**10 * 3 <= 8 * 2**30
    card.total_memory = 80 * 2**30
    assert (256, 1024, "eager", "bf16") in list(decode.run(bench))
