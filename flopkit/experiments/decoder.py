"""A language model in plain torch, of the shapes of a Llama: what `decode`, `checkpointing` and `gpt_step` run.

It leaves out rotary positions, which hold no product, and dropout. `take_step` is for the networks of `cnns`, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit.models.hugging_face import from_hf
from flopkit.models.model import Model

__all__ = ["Sizes", "decoder", "next_token_loss", "take_step"]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model: ``Sizes(layers=2, d_model=64, …).model()`` counts what ``decoder(sizes, …)`` runs.

    >>> Sizes(layers=2, d_model=64, heads=4, kv_heads=2, d_ff=128, vocab=256).model().params
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


def decoder(sizes: Sizes, device: Any, dtype: Any) -> Any:
    """The model as a module: ``net(tokens)`` gives logits; ``caches=`` decodes one token, ``checkpointed=`` computes blocks again."""
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
    """The loss of predicting each of *tokens*, (batch, seq + 1), from those before it: seq predictions a sequence."""
    from torch.nn import functional

    logits = net(tokens[:, :-1], checkpointed=checkpointed)
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def take_step(loss: Any, weights: Any, optimizer: Any = None) -> Any:
    """The gradients of a loss and, where there is an optimiser, its step. Gives the loss without its graph."""
    import torch

    if optimizer is None:
        torch.autograd.grad(loss, list(weights))
    else:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()
