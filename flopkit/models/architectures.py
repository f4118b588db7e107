"""What each family of models says in its ``config.json``, and the layers that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.blocks import Block, Patches
from flopkit.models.config_fields import WHOLE, Fields
from flopkit.models.feed_forward import MLP, Experts
from flopkit.models.mixers import Attention
from flopkit.models.model import Model
from flopkit.models.recurrences import GatedDelta, StateSpace
from flopkit.models.transformer import transformer
from flopkit.names import hint
from flopkit.sizes import factor

__all__ = ["ARCHITECTURES", "NUMBERS", "SAME"]


def _common(c: Fields, **changed: Any) -> dict[str, Any]:
    """What nearly all decoders say in the same words."""
    found = c.all("vocab", "d_model", "layers", "heads")
    kv_heads = {"kv_heads": c.get("num_key_value_heads")} if "kv_heads" not in changed else {}
    found |= kv_heads | {"head_dim": c.get("head_dim"), "act": c.act()}
    found["d_ff"] = c.need("d_ff") if "d_ff" not in changed else None
    return found | {"tied": c.flag("tie_word_embeddings")} | changed


def _llama(c: Fields) -> dict[str, Any]:
    bias = c.flag("attention_bias")
    return _common(c, qkv_bias=bias, out_bias=bias, mlp_bias=c.flag("mlp_bias"))


def _mistral(c: Fields) -> dict[str, Any]:
    return _common(c, kv_heads=c.need("kv_heads")) | c.windows(c.need("layers"))


def _mixtral(c: Fields) -> dict[str, Any]:
    experts = c.all("experts", "top_k")
    window = c.windows(c.need("layers"))
    return _common(c, d_ff=None, kv_heads=c.need("kv_heads")) | experts | {"expert_d_ff": c.need("d_ff")} | window


def _qwen_window(c: Fields) -> dict[str, Any]:
    return c.windows(c.need("layers"), first="max_window_layers", switch="use_sliding_window")


def _qwen2(c: Fields) -> dict[str, Any]:
    return _common(c, qkv_bias=True) | _qwen_window(c)


def _qwen3(c: Fields) -> dict[str, Any]:
    bias = c.flag("attention_bias")
    head = {"head_dim": c.need("head_dim")}
    return _common(c, qkv_bias=bias, out_bias=bias, qk_norm="head", **head) | _qwen_window(c)


def _qwen2_moe(c: Fields) -> dict[str, Any]:
    layers = c.need("layers")
    # without a list, transformers 4 and 5 give the window to different layers
    window = c.windows(layers, switch="use_sliding_window", listed=True)
    shared = {"shared_gate": True, "shared_d_ff": c.need("shared_expert_intermediate_size", minimum=0)}
    attention = {"kv_heads": c.need("kv_heads"), "qkv_bias": c.flag("qkv_bias", True)}
    found = _common(c, **attention, **shared) | c.all("experts", "top_k", "expert_d_ff")
    return found | c.crossed(window, c.sparse(layers))


def _qwen3_moe(c: Fields) -> dict[str, Any]:
    layers, bias = c.need("layers"), c.flag("attention_bias")
    found = _common(c, kv_heads=c.need("kv_heads"), qkv_bias=bias, out_bias=bias, qk_norm="head")
    found |= c.all("experts", "top_k", "expert_d_ff")
    return found | c.crossed(c.windows(layers, switch="use_sliding_window"), c.sparse(layers))


def _gemma2(c: Fields) -> dict[str, Any]:
    c.refuse(use_bidirectional_attention=False)
    window = c.windows(c.need("layers"), every=2)
    tied, bias = c.flag("tie_word_embeddings", True), c.flag("attention_bias")
    heads = {"kv_heads": c.need("kv_heads"), "head_dim": c.need("head_dim")}
    found = _common(c, tied=tied, norms="both", **heads, qkv_bias=bias, out_bias=bias)
    return found | window


def _gemma3(c: Fields) -> dict[str, Any]:
    c.refuse(use_bidirectional_attention=False)
    window = c.windows(c.need("layers"), every=6, every_key=("sliding_window_pattern", "_sliding_window_pattern"))
    tied, bias = c.flag("tie_word_embeddings", True), c.flag("attention_bias")
    heads = {"kv_heads": c.need("kv_heads"), "head_dim": c.need("head_dim")}
    found = _common(c, tied=tied, norms="both", qk_norm="head", **heads, qkv_bias=bias, out_bias=bias)
    return found | window


def _olmo2(c: Fields) -> dict[str, Any]:
    c.refuse(attention_bias=False)
    return _common(c, norms="post", qk_norm="whole")


def _gpt_oss(c: Fields) -> dict[str, Any]:
    bias = c.flag("attention_bias", True)
    heads = {"kv_heads": c.need("kv_heads"), "head_dim": c.need("head_dim")}
    found = _common(c, d_ff=None, **heads, qkv_bias=bias, out_bias=bias, sinks=True, expert_bias=True)
    experts = c.all("experts", "top_k") | {"expert_d_ff": c.need("d_ff")}
    return found | experts | c.windows(c.need("layers"), every=2)


def _deepseek(c: Fields) -> dict[str, Any]:
    c.refuse(attention_bias=False, mlp_bias=False, moe_layer_freq=1)
    latent = c.all("kv_lora", "qk_nope", "qk_rope", "v_head_dim") | {"q_lora": c.get("q_lora_rank")}
    dense = c.dense_first(c.need("layers"), c.need("dense", minimum=0))
    experts = c.all("experts", "top_k", "expert_d_ff")
    shared = c.count("n_shared_experts", 0, minimum=0) * experts["expert_d_ff"]
    return _common(c, head_dim=None, kv_heads=None) | latent | experts | {"shared_d_ff": shared} | dense


def _gpt2(c: Fields) -> dict[str, Any]:
    c.refuse(add_cross_attention=False)
    d_model = c.need("d_model")
    found = c.all("vocab", "layers", "heads") | {"d_model": d_model, "d_ff": c.count("n_inner", 4 * d_model)}
    biases = dict.fromkeys(("mlp_bias", "qkv_bias", "out_bias"), True)
    last = {"tied": c.flag("tie_word_embeddings", True), "positions": c.need("n_positions")}
    return found | {"act": c.act("gelu_new"), "gated": False, "rotary": 0, "norm": "layer"} | biases | last


def _qwen3_next(c: Fields, name: str) -> Model:
    layers, period = c.need("layers"), c.count("full_attention_interval", 4)
    kinds = ("linear_attention", WHOLE)
    order = c.order(layers, kinds, [kinds[(i + 1) % period == 0] for i in range(layers)])
    c.refuse(attention_bias=False, mlp_only_layers=[], decoder_sparse_step=1)
    linear = GatedDelta(
        heads=c.need("linear_num_value_heads"), k_heads=c.need("linear_num_key_heads"), k_dim=c.need("linear_key_head_dim"),
        v_dim=c.need("linear_value_head_dim"), conv=c.need("linear_conv_kernel_dim"),
    )  # fmt: skip
    head_dim, turned = c.need("head_dim"), c.inside("rope_parameters").get("partial_rotary_factor")
    turned = factor("partial_rotary_factor", c.get("partial_rotary_factor", 0.25) if turned is None else turned)
    full = Attention(
        **c.all("heads", "kv_heads"), head_dim=head_dim, rotary=int(head_dim * turned), qk_norm="head", gate=True
    )  # fmt: skip
    experts = Experts(
        **c.all("experts", "top_k"), d_ff=c.need("expert_d_ff"), shared_d_ff=c.need("shared_expert_intermediate_size"), shared_gate=True
    )  # fmt: skip
    blocks = tuple((Block(mixer=mixer, mlp=experts), order.count(kind)) for kind, mixer in enumerate((linear, full)))
    return Model(
        name=name,
        **c.all("d_model", "vocab"),
        blocks=blocks,
        order=order,
        tied=c.flag("tie_word_embeddings"),
    )


def _mamba2(c: Fields, name: str) -> Model:
    mixer = StateSpace(
        **c.all("heads"), head_dim=c.need("head_dim"), state=c.need("state_size"), groups=c.need("n_groups"), conv=c.need("conv_kernel"),
        conv_bias=c.flag("use_conv_bias", True), bias=c.flag("use_bias"), chunk=c.count("chunk_size", 256),
    )  # fmt: skip
    tied = c.flag("tie_word_embeddings")
    return Model(name=name, **c.all("d_model", "vocab"), blocks=((Block(mixer=mixer), c.need("layers")),), tied=tied)


def _mpt(c: Fields, name: str) -> Model:
    c.refuse(no_bias=True, embedding_fraction=1.0)
    d_model, inside = c.need("d_model"), Fields(c.inside("attn_config"), c.kind)
    inside.refuse(attn_type="multihead_attention", qk_ln=False)
    return transformer(
        name=name, **c.all("vocab", "layers", "heads"), d_model=d_model, d_ff=c.count("expansion_ratio", 4) * d_model, act="gelu",
        gated=False, rotary=0, norm="layer", norm_bias=False, tied=c.flag("tie_word_embeddings", True),
        positions=None if inside.flag("alibi", True) else c.need("max_seq_len"),
    )  # fmt: skip


def _bert(c: Fields, name: str) -> Model:
    c.refuse(position_embedding_type="absolute", is_decoder=False)
    return transformer(
        name=name, **c.all("vocab", "d_model", "layers", "heads", "d_ff"), act=c.act("gelu"), gated=False, mlp_bias=True, qkv_bias=True,
        out_bias=True, rotary=0, norms="post", norm="layer", final_norm=False, embedding_norm=True, causal=False, head="mlm",
        head_bias=True, tied=c.flag("tie_word_embeddings", True), positions=c.need("max_position_embeddings"),
        token_types=c.need("type_vocab_size", minimum=0),
    )  # fmt: skip


def _t5(c: Fields, name: str) -> Model:
    act = str(c.get("feed_forward_proj", "relu"))
    gated = act.startswith("gated-")
    kinds = {"relu": "relu", "gated-gelu": "gelu_tanh", "gated-silu": "silu", "gelu": "gelu"}
    if act not in kinds:
        raise ValueError(f"feed_forward_proj={act!r} is not described here; {hint(act, kinds)}")
    heads, head_dim, buckets = c.need("heads"), c.need("head_dim"), c.need("relative_attention_num_buckets")
    sizes = {"heads": heads, "kv_heads": heads, "head_dim": head_dim, "rotary": 0}
    mlp = MLP(d_ff=c.need("d_ff"), act=kinds[act], gated=gated)
    common = c.all("d_model", "vocab") | {"tied": c.flag("tie_word_embeddings", True)}

    def stack(layers: int, cross: Any) -> dict[str, Any]:
        first, later = (
            Block(mixer=Attention(**sizes, position_buckets=rows), mlp=mlp, cross=cross) for rows in (buckets, 0)
        )
        return {"blocks": ((first, 1), (later, layers - 1)), "order": (0, *(1,) * (layers - 1))}

    layers = c.need("num_layers")
    encoder = Model(name="encoder", **common, **stack(layers, None), causal=False, head="none")
    cross = Attention(**sizes, cross=True)
    return Model(name=name, **common, **stack(c.count("num_decoder_layers", layers), cross), encoder=encoder)


def _vit(c: Fields, name: str) -> Model:
    patches = Patches(image=c.need("image_size"), patch=c.need("patch_size"), channels=c.count("num_channels", 3))
    classes = c.inside("id2label")
    return transformer(
        name=name, vocab=len(classes) if classes else c.need("classes"), **c.all("d_model", "layers", "heads", "d_ff"),
        act=c.act("gelu"), gated=False, mlp_bias=True, qkv_bias=c.flag("qkv_bias", True), out_bias=True, rotary=0, norm="layer",
        causal=False, head="classes", patches=patches, positions=patches.tokens,
    )  # fmt: skip


NUMBERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "llama": _llama, "mistral": _mistral, "mixtral": _mixtral, "qwen2": _qwen2, "qwen2_moe": _qwen2_moe, "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe, "gemma2": _gemma2, "gemma3_text": _gemma3, "olmo2": _olmo2, "gpt_oss": _gpt_oss, "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek, "gpt2": _gpt2,
}  # fmt: skip
"""What reads the numbers of `transformer` from the configuration of each ``model_type``."""


def _made_of(numbers: Callable[[Fields], dict[str, Any]]) -> Callable[[Fields, str], Model]:
    return lambda c, name: transformer(name=name, **numbers(c))


ARCHITECTURES: dict[str, Callable[[Fields, str], Model]] = {
    **{kind: _made_of(numbers) for kind, numbers in NUMBERS.items()},
    "mpt": _mpt, "bert": _bert, "t5": _t5, "vit": _vit, "qwen3_next": _qwen3_next, "mamba2": _mamba2,
}  # fmt: skip
"""What reads the configuration of each ``model_type``."""

SAME = {"kimi_k2": "deepseek_v3"}
"""Another name for the same layers."""
