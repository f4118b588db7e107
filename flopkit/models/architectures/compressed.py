"""Decoders whose attention reads compressed tokens: DeepSeek-V4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.decoder_fields import ends, experts_of, in_turn
from flopkit.models.branches.compressed import CompressedAttention, CompressedIndexer, Compressor
from flopkit.models.files.config_fields import WINDOWED, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block
from flopkit.models.stacks.streams import HyperConnections
from flopkit.sizes import factor, short, size

__all__ = ["MODELS"]

SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
_RATES = {SPARSE: 4, HEAVY: 128}
_RATIOS = {0: WINDOWED, 4: SPARSE, 128: HEAVY}  # what compress_ratios stands for


def _deepseek_v4(c: Fields, name: str) -> Model:
    c.refuse(attention_bias=False, mlp_bias=False, num_key_value_heads=1, n_shared_experts=1)
    layers, head_dim = c.need("layers"), c.need("head_dim")
    sizes = c.all("heads", "head_dim", "q_lora", "o_lora_rank", "o_groups", "window")
    sizes = {{"o_lora_rank": "o_lora", "o_groups": "groups"}.get(key, key): value for key, value in sizes.items()}
    near = CompressedAttention(**sizes, rotary=_turned(c, head_dim))
    heads, index_dim = c.need("index_n_heads"), c.need("index_head_dim")
    indexer = CompressedIndexer(heads=heads, head_dim=index_dim, selected=c.need("index_topk"))
    rates = _rates(c)
    mixers = {
        WINDOWED: near,
        SPARSE: replace(near, compressor=Compressor(rate=rates[SPARSE], series=2), indexer=indexer),
        HEAVY: replace(near, compressor=Compressor(rate=rates[HEAVY])),
    }
    hashed = min(c.count("num_hash_layers", 3, minimum=0), layers)
    c.kinds(
        "mlp_layer_types", layers, ("hash_moe", "moe"), ["hash_moe"] * hashed + ["moe"] * (layers - hashed), beyond=True
    )
    experts = experts_of(c, shared_d_ff=c.need("expert_d_ff"), act="swiglu_clamped")
    types = c.kinds("layer_types", layers, tuple(mixers), _types(c, layers), beyond=True)
    after = c.listed("compress_ratios")[
        layers:
    ]  # that of the layer for multi-token prediction, the window if it is not said
    c.mtp = Block(mixer=mixers[_RATIOS[after[0]] if after else WINDOWED], mlp=experts)
    streams = HyperConnections(count=c.need("hc_mult"), iterations=c.need("hc_sinkhorn_iters"))
    return Model(
        name=name, **ends(c), streams=streams, **in_turn([Block(mixer=mixers[kind], mlp=experts) for kind in types])
    )


def _turned(c: Fields, head_dim: Any) -> int:
    """Features of a head that are turned: a share, which an older file says as their number."""
    if (share := c.get("partial_rotary_factor")) is None:
        older = c.get("qk_rope_head_dim")
        share = 64 / 512 if older is None else size("qk_rope_head_dim", older, minimum=0) / head_dim
    return int(head_dim * factor("partial_rotary_factor", share))


def _rates(c: Fields) -> dict[str, Any]:
    """How many tokens become one, by the kind of a layer; older files say them one by one."""
    found = dict(_RATES if c.get("compress_rates") is None else c.inside("compress_rates"))
    for kind, older in ((SPARSE, "compress_rate_csa"), (HEAVY, "compress_rate_hca")):
        if (said := c.get(older)) is not None:
            found[kind] = said
    return {kind: size(f"compress_rates[{kind!r}]", found.get(kind)) for kind in _RATES}


def _types(c: Fields, layers: int) -> list[str]:
    """What an older file says by ``compress_ratios``, else two heavily compressed layers, and both kinds in turn."""
    if ratios := c.listed("compress_ratios"):
        if odd := [each for each in ratios if each not in _RATIOS]:
            raise ValueError(f"compress_ratios: {short(odd[0])} is not described here; 0, 4 and 128 are")
        return [_RATIOS[each] for each in ratios]
    return ([HEAVY] * 2 + [SPARSE if i % 2 else HEAVY for i in range(layers - 2)])[:layers]


MODELS: dict[str, Callable[[Fields, str], Model]] = {"deepseek_v4": _deepseek_v4}
