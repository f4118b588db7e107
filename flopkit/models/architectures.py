"""What each family of models says in its ``config.json``, and the layers that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.blocks import Block, Patches
from flopkit.models.config_fields import WHOLE, Fields
from flopkit.models.feed_forward import MLP, Experts
from flopkit.models.mixers import Attention, LatentAttention
from flopkit.models.model import Model
from flopkit.models.recurrences import GatedDelta, StateSpace
from flopkit.models.transformer import transformer
from flopkit.names import hint
from flopkit.sizes import factor

__all__ = ["ARCHITECTURES", "NUMBERS", "SAME"]


def _common(c: Fields, *, mlp: bool = True, **changed: Any) -> dict[str, Any]:
    """What nearly all decoders say in the same words; *mlp*: whether a layer can be without experts."""
    act = c.act()
    plain = {"d_ff": c.need("d_ff"), "act": act} if mlp else {}
    return c.all("vocab", "d_model", "layers") | {"tied": c.flag("tie_word_embeddings")} | plain | changed


def _heads(c: Fields, bias: Any = False, **said: Any) -> Attention:
    """Attention, with a *bias* in all its projections or in none, where nothing else is *said*."""
    sizes = {"heads": c.need("heads"), "qkv_bias": bias, "out_bias": bias}
    sizes |= {} if "kv_heads" in said else {"kv_heads": c.count("num_key_value_heads", c.need("heads"))}
    sizes |= {} if "head_dim" in said else {"head_dim": c.head_dim()}
    return c.made(Attention, **sizes | said)


def _experts(c: Fields, d_ff: str = "expert_d_ff", **more: Any) -> Experts:
    c.refuse(hidden_act="silu")
    return c.made(Experts, **c.all("experts", "top_k"), d_ff=c.need(d_ff), **more)


def _llama(c: Fields) -> dict[str, Any]:
    return _common(c, attention=_heads(c, c.flag("attention_bias")), bias=c.flag("mlp_bias"))


def _mistral(c: Fields) -> dict[str, Any]:
    return _common(c, attention=_heads(c, **c.all("kv_heads"))) | c.windows()


def _mixtral(c: Fields) -> dict[str, Any]:
    attention, experts = _heads(c, **c.all("kv_heads")), _experts(c, "d_ff")
    return _common(c, mlp=False, attention=attention, experts=experts) | c.windows()


_QWEN: dict[str, Any] = {"switch": "use_sliding_window", "first": "max_window_layers"}


def _qwen2(c: Fields) -> dict[str, Any]:
    return _common(c, attention=_heads(c, qkv_bias=True)) | c.windows(**_QWEN)


def _qwen3(c: Fields) -> dict[str, Any]:
    attention = _heads(c, c.flag("attention_bias"), qk_norm="head", **c.all("head_dim"))
    return _common(c, attention=attention) | c.windows(**_QWEN)


def _qwen2_moe(c: Fields) -> dict[str, Any]:
    shared = {"shared_d_ff": c.need("shared_expert_intermediate_size", minimum=0), "shared_gate": True}
    attention = _heads(c, **c.all("kv_heads"), qkv_bias=c.flag("qkv_bias", True))
    # without a list, transformers 4 and 5 give the window to different layers
    layers = c.crossed(switch="use_sliding_window", listed=True)
    return _common(c, attention=attention, experts=_experts(c, **shared)) | layers


def _qwen3_moe(c: Fields) -> dict[str, Any]:
    attention = _heads(c, c.flag("attention_bias"), **c.all("kv_heads"), qk_norm="head")
    return _common(c, attention=attention, experts=_experts(c)) | c.crossed(switch="use_sliding_window")


def _gemma(c: Fields, every: int, every_key: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    c.refuse(use_bidirectional_attention=False)
    attention = _heads(c, c.flag("attention_bias"), **c.all("kv_heads", "head_dim"), **more)
    found = _common(c, attention=attention, tied=c.flag("tie_word_embeddings", True), norms="both")
    return found | c.windows(every=every, every_key=every_key)


def _olmo2(c: Fields) -> dict[str, Any]:
    c.refuse(attention_bias=False)
    return _common(c, norms="post", attention=_heads(c, qk_norm="whole"))


def _gpt_oss(c: Fields) -> dict[str, Any]:
    attention = _heads(c, c.flag("attention_bias", True), sinks=True, **c.all("kv_heads", "head_dim"))
    found = _common(c, mlp=False, attention=attention, experts=_experts(c, "d_ff", bias=True))
    return found | c.windows(every=2)


def _deepseek(c: Fields) -> dict[str, Any]:
    c.refuse(attention_bias=False, mlp_bias=False, moe_layer_freq=1)
    sizes = c.all("heads", "kv_lora", "qk_nope", "qk_rope", "v_head_dim") | {"q_lora": c.get("q_lora_rank")}
    shared = c.count("n_shared_experts", 0, minimum=0) * c.need("expert_d_ff")
    experts = _experts(c, shared_d_ff=shared)
    return _common(c, attention=c.made(LatentAttention, **sizes), experts=experts) | c.dense_first()


def _gpt2(c: Fields) -> dict[str, Any]:
    c.refuse(add_cross_attention=False)
    sizes = {"kv_heads": c.need("heads"), "head_dim": c.head_dim(""), "rotary": 0}
    mlp = {"d_ff": c.count("n_inner", 4 * c.need("d_model")), "act": c.act("gelu_new"), "gated": False, "bias": True}
    ends = {"tied": c.flag("tie_word_embeddings", True), "positions": c.need("n_positions"), "norm": "layer"}
    return c.all("vocab", "layers", "d_model") | {"attention": _heads(c, True, **sizes)} | mlp | ends


def _qwen3_next(c: Fields, name: str) -> Model:
    layers, period = c.need("layers"), c.count("full_attention_interval", 4)
    kinds = ("linear_attention", WHOLE)
    order = c.order(layers, kinds, [kinds[(i + 1) % period == 0] for i in range(layers)])
    c.refuse(attention_bias=False, mlp_only_layers=[], decoder_sparse_step=1)
    linear = GatedDelta(
        heads=c.need("linear_num_value_heads"), k_heads=c.need("linear_num_key_heads"), k_dim=c.need("linear_key_head_dim"),
        v_dim=c.need("linear_value_head_dim"), conv=c.need("linear_conv_kernel_dim"),
    )  # fmt: skip
    turned = c.inside("rope_parameters").get("partial_rotary_factor")
    turned = factor("partial_rotary_factor", c.get("partial_rotary_factor", 0.25) if turned is None else turned)
    sizes = c.all("kv_heads", "head_dim") | {"rotary": int(c.need("head_dim") * turned)}
    full = _heads(c, qk_norm="head", gate=True, **sizes)
    experts = _experts(c, shared_d_ff=c.need("shared_expert_intermediate_size"), shared_gate=True)
    blocks = tuple((Block(mixer=mixer, mlp=experts), order.count(kind)) for kind, mixer in enumerate((linear, full)))
    ends = c.all("d_model", "vocab") | {"tied": c.flag("tie_word_embeddings")}
    return Model(name=name, **ends, blocks=blocks, order=order)


def _mamba2(c: Fields, name: str) -> Model:
    c.refuse(hidden_act="silu")
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
        name=name, **c.all("vocab", "d_model", "layers", "heads", "d_ff"), act=c.act("gelu"), gated=False, bias=True, rotary=0,
        norms="post", norm="layer", final_norm=False, embedding_norm=True, causal=False, head="mlm",
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
    sizes = {"kv_heads": c.need("heads"), "head_dim": c.head_dim(""), "rotary": 0}
    return transformer(
        name=name, vocab=len(classes) if classes else c.need("classes"), **c.all("d_model", "layers", "d_ff"),
        attention=_heads(c, True, qkv_bias=c.flag("qkv_bias", True), **sizes), act=c.act("gelu"), gated=False, bias=True, norm="layer",
        causal=False, head="classes", patches=patches, positions=patches.tokens,
    )  # fmt: skip


NUMBERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "llama": _llama, "mistral": _mistral, "mixtral": _mixtral, "qwen2": _qwen2, "qwen2_moe": _qwen2_moe, "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe, "gemma2": lambda c: _gemma(c, 2),
    "gemma3_text": lambda c: _gemma(c, 6, ("sliding_window_pattern", "_sliding_window_pattern"), qk_norm="head"),
    "olmo2": _olmo2, "gpt_oss": _gpt_oss, "deepseek_v2": _deepseek, "deepseek_v3": _deepseek, "gpt2": _gpt2,
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
