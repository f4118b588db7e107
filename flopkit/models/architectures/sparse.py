"""Decoders whose layers see different tokens by rules of their own: DeepSeek-V3.2's chosen ones, Llama 4's chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.decoder_fields import experts_of, heads_of, in_turn
from flopkit.models.branches.block_sparse import BlockSparseAttention
from flopkit.models.branches.feed_forward import MLP, Experts
from flopkit.models.branches.latent_attention import LatentAttention
from flopkit.models.branches.mixers import Attention
from flopkit.models.branches.per_layer import DenseAndExperts, LayerGate, LayerInputs
from flopkit.models.branches.sparse import Indexer
from flopkit.models.files.config_fields import WHOLE, WINDOWED, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block
from flopkit.sizes import factor, short, size

__all__ = ["MODELS"]


def _deepseek_v32(c: Fields, name: str, shared: bool = False) -> Model:
    c.refuse(attention_bias=False, mlp_bias=False, moe_layer_freq=1)
    layers, sizes = c.need("layers"), c.all("heads", "q_lora", "kv_lora", "qk_nope", "qk_rope", "v_head_dim")
    indexer = Indexer(heads=c.need("index_n_heads"), head_dim=c.need("index_head_dim"), rotary=c.need("qk_rope"))
    runs = _indexers(c, layers) if shared else ["full"] * layers
    mixers = {
        "full": LatentAttention(**sizes, selected=c.need("index_topk"), indexer=indexer),
        "shared": LatentAttention(**sizes, selected=c.need("index_topk")),
    }
    experts = experts_of(c, shared_d_ff=c.count("n_shared_experts", 0, minimum=0) * c.need("expert_d_ff"))
    dense = MLP(d_ff=c.need("d_ff"), act=c.act())
    first = min(c.need("dense", minimum=0), layers)
    kinds = c.kinds("mlp_layer_types", layers, ("dense", "sparse"), ["dense"] * first + ["sparse"] * (layers - first))
    blocks = [
        Block(mixer=mixers[which], mlp=dense if kind == "dense" else experts)
        for which, kind in zip(runs, kinds, strict=True)
    ]
    return Model(name=name, **c.all("d_model", "vocab"), tied=c.flag("tie_word_embeddings"), **in_turn(blocks))


def _indexers(c: Fields, layers: int) -> list[str]:
    """Which layers choose tokens, and which take the choice of the layer before."""
    pattern = c.get("index_topk_pattern")
    if isinstance(pattern, str) and not c.listed("indexer_types"):
        usual = [{"F": "full", "S": "shared"}.get(each, each) for each in pattern]
    elif pattern is not None:
        usual = list(pattern)
    else:
        every, offset = c.count("index_topk_freq", 1), c.count("index_skip_topk_offset", 2, minimum=0)
        usual = ["full" if max(i - offset + 1, 0) % every == 0 else "shared" for i in range(layers)]
    found = c.kinds("indexer_types", layers, ("full", "shared"), usual)
    if found[0] != "full":
        raise ValueError("indexer_types: the first layer has no choice of another one to take, so it must be 'full'")
    return found


def _llama4(c: Fields, name: str) -> Model:
    layers = c.need("layers")
    every = c.count("no_rope_layer_interval", 4)
    turned = c.listed("no_rope_layers") or [int((i + 1) % every != 0) for i in range(layers)]
    usual = ["chunked_attention" if each else "full_attention" for each in turned]
    types = c.kinds("layer_types", layers, ("chunked_attention", "full_attention"), usual)
    step = c.count("interleave_moe_layer_step", 1)
    sparse = c.listed("moe_layers") if c.get("moe_layers") is not None else range(step - 1, layers, step)
    experts = experts_of(c, "d_ff", shared_d_ff=c.need("d_ff"))
    dense = MLP(d_ff=c.need("intermediate_size_mlp"), act=c.act())
    normed = "plain" if c.flag("use_qk_norm", True) else ""
    blocks = []
    for i, (turn, kind) in enumerate(zip(turned, types, strict=True)):
        chunk = c.get("attention_chunk_size") if kind == "chunked_attention" else None
        mixer = heads_of(
            c, c.flag("attention_bias"), chunk=chunk, rotary=None if turn else 0, qk_norm=normed if turn else ""
        )
        blocks.append(Block(mixer=mixer, mlp=experts if i in sparse else dense))
    return Model(name=name, **c.all("d_model", "vocab"), tied=c.flag("tie_word_embeddings"), **in_turn(blocks))


def _own_sizes(c: Fields, layer: int) -> dict[str, Any]:
    """What ``per_layer_config``, which transformers writes, says of a layer."""
    said = {int(key): value for key, value in c.inside("per_layer_config").items()}  # "05" in a model of more than ten
    own = Fields(said.get(layer, {}), c.kind)
    if odd := [key for key in own.fields if key not in ("head_dim", "num_key_value_heads")]:
        raise ValueError(f"per_layer_config: {odd[0]}={short(own.fields[odd[0]])} is not described here")
    names = {"head_dim": "head_dim", "num_key_value_heads": "kv_heads"}
    return {names[key]: own.need(names[key]) for key in own.fields}


def _gemma4(c: Fields, name: str) -> Model:
    if c.get("use_bidirectional_attention") == "all":
        raise ValueError("use_bidirectional_attention='all': flopkit supports gemma4_text only where text is causal")
    layers, shared = c.need("layers"), c.count("num_kv_shared_layers", 0, minimum=0)
    usual = [WHOLE if (i + 1) % 6 == 0 else WINDOWED for i in range(layers)]
    types = [*c.kinds("layer_types", layers, (WINDOWED, WHOLE), usual)[:-1], WHOLE]
    same = c.flag("attention_k_eq_v")
    wide = c.count("global_head_dim", 512)
    heads = c.get("num_global_key_value_heads") if same else None
    turned = c.inside("rope_parameters").get(WHOLE, {}).get("partial_rotary_factor", 0.25)
    of_all: dict[str, Any] = {"qk_norm": "head", "v_norm": True}
    whole = {"head_dim": wide, "values": "keys" if same else "own"}
    whole |= {"kv_heads": c.need("kv_heads") if heads is None else heads}
    narrow = {"head_dim": c.need("head_dim"), "window": c.need("window"), **c.all("kv_heads")}
    act, d_ff, dim = c.act(), c.need("d_ff"), c.count("hidden_size_per_layer_input", 0, minimum=0)
    gate = LayerGate(dim=dim, act=act) if dim else None
    blocks = []
    for i, kind in enumerate(types):
        reused = i >= layers - shared
        sizes = (whole if kind == WHOLE else narrow) | _own_sizes(c, i)
        sizes |= {"rotary": int(sizes["head_dim"] * factor("partial_rotary_factor", turned))} if kind == WHOLE else {}
        mixer = heads_of(c, c.flag("attention_bias"), **of_all, **sizes, reused=reused)
        mlp: Any = MLP(d_ff=d_ff * (2 if reused and c.flag("use_double_wide_mlp") else 1), act=act)
        if c.flag("enable_moe_block"):
            chosen = {"experts": c.need("experts"), "top_k": c.need("top_k_experts")}
            mixture = Experts(**chosen, d_ff=c.need("expert_d_ff"), act=act)
            mlp = DenseAndExperts(dense=mlp, experts=mixture)
        blocks.append(Block(mixer=mixer, mlp=mlp, last=gate, norms="both"))
    inputs = LayerInputs(dim=dim, layers=layers, vocab=c.need("vocab_size_per_layer_input")) if dim else None
    ends = c.all("d_model", "vocab") | {"tied": c.flag("tie_word_embeddings", True), "layer_inputs": inputs}
    return Model(name=name, **ends, **in_turn(blocks))


_OLDER = {
    "index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim", "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks", "index_local_blocks": "sparse_local_block",
}  # fmt: skip
"""What ``sparse_attention_config`` calls them; it wins."""


def _minimax_m3(c: Fields, name: str) -> Model:
    c.refuse(use_qk_norm=True, n_shared_experts=1, attention_output_gate=False, qk_norm_type="per_head")
    layers, older = c.need("layers"), c.inside("sparse_attention_config")
    index = {
        key: size(key, older[said], minimum=0) if said in older else c.need(key, minimum=0)
        for key, said in _OLDER.items()
    }
    if index["index_local_blocks"] != 1:
        raise ValueError(
            f"index_local_blocks={index['index_local_blocks']}: only 1, a query's own block, is described here"
        )
    whole, chosen = "full_attention", "minimax_m3_sparse"
    usual = [chosen if each else whole for each in older.get("sparse_attention_freq", [0] * layers)]
    types = c.kinds("layer_types", layers, (whole, chosen), usual)
    mlps = c.kinds(
        "mlp_layer_types",
        layers,
        ("sparse", "dense"),
        ["sparse" if each else "dense" for each in c.listed("moe_layer_freq") or [1] * layers],
    )
    sizes = {
        **c.all("heads", "kv_heads", "head_dim"),
        "qk_norm": "head",
        "rotary": c.turned("rotary_dim", c.rotary()),
    }
    narrow = {
        "index_heads": index["index_n_heads"],
        "index_dim": index["index_head_dim"],
        "block": index["index_block_size"],
    }
    mixers = {
        whole: Attention(**sizes),
        chosen: BlockSparseAttention(**sizes, **narrow, chosen=index["index_topk_blocks"]),
    }
    wide = {"d_ff": c.need("d_ff"), "shared_d_ff": c.need("shared_intermediate_size")}
    experts = Experts(**c.all("experts", "top_k"), **wide, act="swiglu_oai")
    kinds: dict[str, Any] = {"sparse": experts, "dense": MLP(d_ff=c.need("dense_intermediate_size"), act="swiglu_oai")}
    blocks = [Block(mixer=mixers[kind], mlp=kinds[mlp]) for kind, mlp in zip(types, mlps, strict=True)]
    return Model(name=name, **c.all("d_model", "vocab"), tied=c.flag("tie_word_embeddings"), **in_turn(blocks))


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "deepseek_v32": _deepseek_v32,
    "glm_moe_dsa": lambda c, name: _deepseek_v32(c, name, shared=True),
    "llama4_text": _llama4,
    "gemma4_text": _gemma4,
    "minimax_m3_vl_text": _minimax_m3,
}
