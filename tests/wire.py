"""Sharded programs, what they send by closed form, and a recorder of collectives that shares nothing with the counter.

The recorder is a dispatch mode of its own. It knows an operator by a word in its name and takes the largest tensor around for the whole one,
and it lets a ring of chunks turn to find what a rank sends.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

dist = torch.distributed

# -- the recorder ----------------------------------------------------------------------------------------------------

WORDS = {  # in the name of an operator, without underscores; the first that fits
    "allreduce": "all-reduce", "allgather": "all-gather", "reducescatter": "reduce-scatter", "alltoall": "all-to-all",
    "broadcast": "broadcast", "send": "send", "recv": "receive",
}  # fmt: skip
NOTHING = ("wait", "wrap", "barrier", "copy", "chunk_cat", "split_with_sizes", "mesh_get")


def ring(kind, payload, ranks):
    """Bytes that one rank hands to the next, chunk by chunk."""
    if ranks == 1:
        return 0
    chunk, sent = Fraction(payload, ranks), Fraction(0)
    rounds = {
        "all-reduce": 2 * (ranks - 1),
        "all-gather": ranks - 1,
        "reduce-scatter": ranks - 1,
        "all-to-all": ranks - 1,
    }
    for _ in range(rounds.get(kind, 0)):
        sent += chunk
    return sent if kind in rounds else {"broadcast": payload, "send": payload, "receive": 0}[kind]


class Recorder(TorchDispatchMode):
    """Collectives in the order in which they were called: kind, ranks, payload, sent."""

    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any("DTensor" in kind.__name__ for kind in types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"):
            name = func._schema.name.split("::")[1]
            if not any(word in name for word in NOTHING):
                self.record(name.replace("_", ""), args, kwargs or {}, out)
        elif func.namespace == "fsdp":
            assert any(word in func._schema.name for word in NOTHING)
        return out

    def record(self, name, args, kwargs, out):
        kind = next(kind for word, kind in WORDS.items() if word in name)
        leaves = tree_leaves((args, kwargs))
        (group,) = [each for each in map(group_of, leaves) if each is not None]
        whole = max(
            sum(t.nbytes for t in tree_leaves(each) if isinstance(t, torch.Tensor))
            for each in (*args, *kwargs.values(), out)
        )
        sent = ring(kind, whole, group.size())
        splits = [
            each
            for each in args
            if isinstance(each, (list, tuple)) and len(each) == group.size() and isinstance(each[0], int)
        ]
        if kind == "all-to-all" and splits:  # what goes out is the second list for the functions, and the last for c10d
            out_of_here = splits[-1]
            held = [t for t in leaves if isinstance(t, torch.Tensor) and t.shape[:1] == (sum(out_of_here),)][-1]
            sent = sum(held[0].nbytes * rows for to, rows in enumerate(out_of_here) if to != group.rank())
            whole = held.nbytes
        self.calls.append((kind, group.size(), whole, sent))

    def totals(self):
        """By collective and ranks: calls, payload, sent."""
        found = {}
        for kind, ranks, payload, sent in self.calls:
            row = found.setdefault((kind, ranks), [0, 0, 0])
            for place, amount in enumerate((1, payload, sent)):
                row[place] += amount
        return {key: (calls, payload, round(sent)) for key, (calls, payload, sent) in found.items()}


def group_of(value):
    if isinstance(value, str):
        try:
            return dist.distributed_c10d._resolve_process_group(value)
        except Exception:
            return None
    if isinstance(value, dist.ProcessGroup):
        return value
    if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value._type()):
        return dist.ProcessGroup.unbox(value)
    return None


def totals(report):
    """A report's communication in the form of `Recorder.totals`."""
    found = Counter()
    for row in report.communication:
        found.update(
            {(row["collective"], row["ranks"], column): row[column] for column in ("calls", "payload", "sent")}
        )
    return {key[:2]: tuple(found[(*key[:2], column)] for column in ("calls", "payload", "sent")) for key in found}


# -- a model ---------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, d, heads, kv, size):
        super().__init__()
        self.size = size
        self.q, self.k = nn.Linear(d, heads * size, bias=False), nn.Linear(d, kv * size, bias=False)
        self.v, self.o = nn.Linear(d, kv * size, bias=False), nn.Linear(heads * size, d, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, -1, self.size).transpose(1, 2) for w in (self.q, self.k, self.v))
        y = self.core(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))

    def core(self, q, k, v, **more):
        return F.scaled_dot_product_attention(q, k, v, **more)


class Up(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.gate, self.up = nn.Linear(d, hidden, bias=False), nn.Linear(d, hidden, bias=False)
        self.down = nn.Linear(hidden, d, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """A rank's share of experts, *k* of all for each token: their rows go to them and come back, balanced."""

    def __init__(self, d, hidden, mine, k, group):
        super().__init__()
        self.mine, self.k, self.group = nn.ModuleList(Up(d, hidden) for _ in range(mine)), k, group

    def forward(self, x):
        from torch.distributed._functional_collectives import all_to_all_single_autograd as exchange

        rows = x.flatten(0, 1).repeat_interleave(self.k, 0)
        splits = [len(rows) // self.group.size()] * self.group.size()
        here = exchange(rows, splits, splits, self.group)
        done = torch.cat([expert(each) for expert, each in zip(self.mine, here.chunk(len(self.mine)), strict=True)])
        return exchange(done, splits, splits, self.group).view(*x.shape[:2], self.k, -1).sum(2)


class Block(nn.Module):
    def __init__(self, d, heads, kv, size, hidden):
        super().__init__()
        self.before, self.attention = nn.RMSNorm(d), Attention(d, heads, kv, size)
        self.between, self.mlp = nn.RMSNorm(d), Up(d, hidden)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Llama(nn.Module):
    """As Llama 3 is built: grouped heads, RMSNorm, SwiGLU, no biases, a head of its own."""

    def __init__(self, layers=2, d=64, heads=8, kv=8, size=8, hidden=96, vocabulary=128):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d)
        self.layers = nn.ModuleList(Block(d, heads, kv, size, hidden) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, vocabulary, bias=False)

    def forward(self, tokens):
        x = tokens if self.embedding is None else self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return x if self.head is None else self.head(self.norm(x))


def step(model, tokens):
    out = model(tokens)
    out = out.full_tensor() if hasattr(out, "full_tensor") else out
    F.cross_entropy(out.flatten(0, 1), tokens.flatten()).backward()


def again(function):
    """*function*, computed again in the backward pass, and to its end, as Megatron's checkpoint does; torch's stops once it has what it kept."""
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    def run(*args, **more):
        with set_checkpoint_early_stop(False):
            return checkpoint(function, *args, use_reentrant=False, **more)

    return run


def recomputed(model, policy):
    """The model under a recompute policy: of each layer all ("full"), or attention's core ("selective")."""
    for layer in model.layers:
        if policy == "full":
            layer.forward = again(layer.forward)
        if policy == "selective":
            layer.attention.core = again(layer.attention.core)
    return model


# -- how it is sharded -----------------------------------------------------------------------------------------------


def fully_sharded(model, mesh, **options):
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def tensor_parallel(model, mesh, branch=True):
    """Megatron's, of the blocks; *branch*: the gradient of a branch's input is reduced once, not once for each product."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )

    entry = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
    for layer in model.layers:
        plan = {f"attention.{name}": ColwiseParallel() for name in "qkv"} | {"attention.o": RowwiseParallel()}
        plan |= {"mlp.gate": ColwiseParallel(), "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}
        parallelize_module(layer, mesh, plan | ({"attention": entry, "mlp": entry} if branch else {}))
    return model


def sequence_parallel(model, mesh):
    """torchtitan's plan: what is not multiplied is divided by positions."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    parallelize_module(model, mesh, {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    })  # fmt: skip
    entry = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "before": SequenceParallel(), "between": SequenceParallel(), "attention": entry, "mlp": entry,
            **{f"attention.{name}": ColwiseParallel() for name in "qkv"}, "attention.o": RowwiseParallel(output_layouts=Shard(1)),
            "mlp.gate": ColwiseParallel(), "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
        })  # fmt: skip
    return model
