"""A language model in plain torch, of the shapes of a Llama: what `decode` runs, and of
what `checkpointing` and `gpt_step` measure a step.

It leaves out rotary positions, which hold no product, and dropout. `take_step` is for
the networks of `cnns`, too.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flopkit.experiments.bench import Bench, Record
from flopkit.measuring.workloads import torch_dtype
from flopkit.models.files.hugging_face import from_hf
from flopkit.models.model import Model

__all__ = ["DecoderSizes", "decoder", "next_token_loss", "step_case", "take_step"]


@dataclass(frozen=True)
class DecoderSizes:
    """The sizes of a model: ``DecoderSizes(layers=2, d_model=64, …).model()`` counts what
    ``decoder(sizes, …)`` runs.

    >>> DecoderSizes(layers=2, d_model=64, heads=4, kv_heads=2, d_ff=128, vocab=256).model().params
    106816
    """

    layers: int
    d_model: int
    heads: int
    kv_heads: int
    d_ff: int
    vocab: int

    def model(self) -> Model:
        """The closed forms."""
        return from_hf(
            {
                "model_type": "llama", "num_hidden_layers": self.layers, "hidden_size": self.d_model, "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads, "intermediate_size": self.d_ff, "vocab_size": self.vocab,
                "tie_word_embeddings": False,
            }
        )  # fmt: skip


def decoder(sizes: DecoderSizes, device: Any, dtype: Any) -> Any:
    """The model as a module: ``net(tokens)`` gives logits; ``caches=`` decodes one
    token, ``checkpointed=`` computes blocks again."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    d, head = sizes.d_model, sizes.d_model // sizes.heads
    split = [d, sizes.kv_heads * head, sizes.kv_heads * head]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
            self.qkv, self.out = nn.Linear(d, sum(split), bias=False), nn.Linear(d, d, bias=False)
            self.gate_up = nn.Linear(d, 2 * sizes.d_ff, bias=False)
            self.down = nn.Linear(sizes.d_ff, d, bias=False)

        def forward(self, x: Any, cache: Any = None) -> Any:
            q, k, v = (
                part.unflatten(-1, (-1, head)).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(split, -1)
            )
            if cache is None:
                seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            else:  # the new token takes the last place; the heads that share a key stand as rows, so that no kernel copies the cache
                cache[0][:, :, -1:], cache[1][:, :, -1:] = k, v
                rows = q.reshape(len(q), sizes.kv_heads, -1, head)
                seen = functional.scaled_dot_product_attention(rows, *cache).reshape(q.shape)
            x = x + self.out(seen.transpose(1, 2).flatten(-2))
            gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
            return x + self.down(functional.silu(gate) * up)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(sizes.vocab, d)
            self.blocks = nn.ModuleList(Block() for _ in range(sizes.layers))
            self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, sizes.vocab, bias=False)

        def forward(self, tokens: Any, caches: Any = None, checkpointed: bool = False) -> Any:
            x = self.embedding(tokens)
            for i, block in enumerate(self.blocks):
                if checkpointed:
                    x = checkpoint(block, x, use_reentrant=False)
                else:
                    x = block(x, None if caches is None else caches[i])
            return self.head(self.norm(x))

    with torch.device(device):
        return Decoder().to(dtype)


def next_token_loss(net: Any, tokens: Any, checkpointed: bool = False) -> Any:
    """The loss of predicting each of *tokens*, (batch, seq + 1), from those before it:
    seq predictions a sequence."""
    from torch.nn import functional

    logits = net(tokens[:, :-1], checkpointed=checkpointed)
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def take_step(loss: Any, weights: Any, optimizer: Any = None) -> Any:
    """The gradients of a loss and, where there is an optimiser, its step. Gives the
    loss without its graph."""
    import torch

    if optimizer is None:
        torch.autograd.grad(loss, list(weights))
    else:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()


def step_case(
    bench: Bench, experiment: str, params: Mapping[str, Any], sizes: DecoderSizes, dtype: str, *, checkpointed: bool = False,
    compiled: bool = False, updated: bool = False, time_budget: float | None = None, extra: Mapping[str, Any] | None = None,
) -> Record:  # fmt: skip
    """Measure a training step on random tokens, *batch* and *seq* of the params; with
    AdamW, if the weights are *updated*. Its loss is checked."""
    import torch

    batch, seq = params["batch"], params["seq"]
    net = functools.cache(lambda: decoder(sizes, bench.device, torch_dtype(dtype)))

    def right(tokens: Any) -> Any:
        return next_token_loss(copy.deepcopy(net()).double(), tokens)

    def make() -> tuple[Any, ...]:
        runs, weights = torch.compile(net()) if compiled else net(), list(net().parameters())
        # a rate of zero: all of the work, and the weights stay for the check
        optimizer = torch.optim.AdamW(weights, lr=0.0) if updated else None

        def step(tokens: Any) -> Any:
            with torch.enable_grad():
                return take_step(next_token_loss(runs, tokens, checkpointed), weights, optimizer)

        return step, torch.randint(sizes.vocab, (batch, seq + 1), device=bench.device)

    kept = {"model_flops": sizes.model().train_step(seq=seq, batch=batch).model_flops, **(extra or {})}
    return bench.case(experiment, params, make, dtype, check=right, time_budget=time_budget, extra=kept)
