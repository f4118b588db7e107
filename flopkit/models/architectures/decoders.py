"""Decoders with RMS norms, dense and with experts: Llama and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flopkit.models.architectures.decoder_fields import common, experts_of, heads_of
from flopkit.models.branches.latent_attention import LatentAttention
from flopkit.models.files.config_fields import Fields
from flopkit.models.model import Model
from flopkit.models.transformer import transformer

__all__ = ["MODELS", "NUMBERS", "SAME"]


def _llama(c: Fields) -> dict[str, Any]:
    return common(c, attention=heads_of(c, c.flag("attention_bias")), bias=c.flag("mlp_bias"))


def _seed_oss(c: Fields) -> dict[str, Any]:
    biases = {"qkv_bias": c.flag("attention_bias", True), "out_bias": c.flag("attention_out_bias")}
    return common(c, attention=heads_of(c, **biases), bias=c.flag("mlp_bias"))


def _ernie4_5(c: Fields) -> dict[str, Any]:
    return common(c, attention=heads_of(c, c.flag("use_bias")), bias=c.flag("use_bias"))


def _hunyuan(c: Fields) -> dict[str, Any]:
    c.refuse(use_qk_norm=True, use_cla=False, mlp_bias=False)
    return common(c, attention=heads_of(c, c.flag("attention_bias"), qk_norm="head"))


def _mistral(c: Fields) -> dict[str, Any]:
    return common(c, attention=heads_of(c, **c.all("kv_heads"))) | c.windows(uniform=True)


def _phi3(c: Fields) -> dict[str, Any]:
    return common(c, attention=heads_of(c, rotary=c.rotary())) | c.windows(uniform=True)


def _ministral(c: Fields) -> dict[str, Any]:
    return common(c, attention=heads_of(c)) | c.windows(uniform=c.kind == "ministral3")


def _glm(c: Fields, norms: str) -> dict[str, Any]:
    """*norms*: where they stand."""
    qkv_bias = c.flag("attention_bias", True)
    return common(c, attention=heads_of(c, qkv_bias=qkv_bias, rotary=c.rotary(0.5)), norms=norms)


def _mixtral(c: Fields) -> dict[str, Any]:
    attention, experts = heads_of(c, **c.all("kv_heads")), experts_of(c, "d_ff")
    return common(c, mlp=False, attention=attention, experts=experts) | c.windows(uniform=True)


_QWEN: dict[str, Any] = {"switch": "use_sliding_window", "first": "max_window_layers"}


def _qwen2(c: Fields) -> dict[str, Any]:
    return common(c, attention=heads_of(c, qkv_bias=True)) | c.windows(**_QWEN)


def _qwen3(c: Fields) -> dict[str, Any]:
    attention = heads_of(c, c.flag("attention_bias"), qk_norm="head", **c.all("head_dim"))
    return common(c, attention=attention) | c.windows(**_QWEN)


def _qwen2_vl(c: Fields) -> dict[str, Any]:
    return common(c, attention=heads_of(c, qkv_bias=True, head_dim=c.head_dim(""))) | c.windows(**_QWEN)


def _qwen3_vl(c: Fields) -> dict[str, Any]:
    return common(c, attention=heads_of(c, c.flag("attention_bias"), qk_norm="head", **c.all("head_dim")))


def _qwen3_vl_moe(c: Fields) -> dict[str, Any]:
    attention = heads_of(c, c.flag("attention_bias"), qk_norm="head")
    return common(c, attention=attention, experts=experts_of(c)) | c.sparse()


def _qwen2_moe(c: Fields) -> dict[str, Any]:
    shared = {"shared_d_ff": c.need("shared_expert_intermediate_size"), "shared_gate": True}
    attention = heads_of(c, **c.all("kv_heads"), qkv_bias=c.flag("qkv_bias", True))
    # without a list, transformers 4 and 5 give the window to different layers
    layers = c.crossed(switch="use_sliding_window", listed=True)
    return common(c, attention=attention, experts=experts_of(c, **shared)) | layers


def _qwen3_moe(c: Fields) -> dict[str, Any]:
    attention = heads_of(c, c.flag("attention_bias"), **c.all("kv_heads"), qk_norm="head")
    return common(c, attention=attention, experts=experts_of(c)) | c.crossed(switch="use_sliding_window", uniform=True)


def _gemma1(c: Fields) -> dict[str, Any]:
    c.refuse(use_bidirectional_attention=False)
    attention = heads_of(c, c.flag("attention_bias"), **c.all("head_dim"))
    found = common(c, attention=attention, tied=c.flag("tie_word_embeddings", True))
    return found | {
        "act": "gelu_tanh" if found["act"] == "gelu" else found["act"]
    }  # early files say gelu for its tanh form


def _gemma(c: Fields, every: int, every_key: tuple[str, ...] = (), causal: bool = True, **more: Any) -> dict[str, Any]:
    if causal:
        c.refuse(use_bidirectional_attention=False)
    attention = heads_of(c, c.flag("attention_bias"), **c.all("kv_heads", "head_dim"), **more)
    found = common(c, attention=attention, tied=c.flag("tie_word_embeddings", True), norms="both")
    return found | c.windows(every=every, every_key=every_key)


def _gemma3(c: Fields, causal: bool = True) -> dict[str, Any]:
    return _gemma(c, 6, ("sliding_window_pattern", "_sliding_window_pattern"), causal, qk_norm="head")


def _gemma3_model(c: Fields, name: str) -> Model:
    """EmbeddingGemma hides no token; its window is half as wide, on either side of a token."""
    if not c.flag("use_bidirectional_attention"):
        return transformer(name=name, **_gemma3(c))
    model = transformer(name=name, **_gemma3(c, causal=False))
    seen = c.need("window") // 2

    def both_ways(mixer: Any) -> Any:
        return mixer if mixer.window is None else replace(mixer, window=None, reach=seen)

    blocks = tuple((replace(block, mixer=both_ways(block.mixer)), layers) for block, layers in model.blocks)
    return replace(model, blocks=blocks, causal=False)


def _olmo2(c: Fields) -> dict[str, Any]:
    c.refuse(attention_bias=False)
    return common(c, norms="post", attention=heads_of(c, qk_norm="whole"))


def _olmo3(c: Fields) -> dict[str, Any]:
    attention = heads_of(c, c.flag("attention_bias"), qk_norm="whole")
    return common(c, norms="post", attention=attention) | c.windows(every=4)


def _granitemoe(c: Fields) -> dict[str, Any]:
    experts = experts_of(c, "d_ff", shared_d_ff=c.count("shared_intermediate_size", 0, minimum=0))
    return common(c, mlp=False, attention=heads_of(c, c.flag("attention_bias")), experts=experts)


def _olmoe(c: Fields) -> dict[str, Any]:
    attention = heads_of(c, c.flag("attention_bias"), qk_norm="whole", head_dim=c.head_dim(""))
    return common(c, mlp=False, attention=attention, experts=experts_of(c, "d_ff"))


def _minimax_m2(c: Fields) -> dict[str, Any]:
    c.refuse(use_qk_norm=True)
    attention = heads_of(c, qk_norm="whole", rotary=c.turned("rotary_dim", c.rotary()))
    return common(c, mlp=False, attention=attention, experts=experts_of(c, "d_ff"))


def _gpt_oss(c: Fields) -> dict[str, Any]:
    attention = heads_of(c, c.flag("attention_bias", True), sinks=True, **c.all("kv_heads", "head_dim"))
    found = common(c, mlp=False, attention=attention, experts=experts_of(c, "d_ff", bias=True, act="swiglu_oai"))
    return found | c.windows(every=2)


def _deepseek(c: Fields) -> dict[str, Any]:
    c.refuse(attention_bias=False, mlp_bias=False, moe_layer_freq=1, use_mla=True)
    sizes = c.all("heads", "kv_lora", "qk_nope", "qk_rope", "v_head_dim") | {"q_lora": c.get("q_lora_rank")}
    shared = c.count("n_shared_experts", 0, minimum=0) * c.need("expert_d_ff")
    experts = experts_of(c, shared_d_ff=shared)
    return common(c, attention=c.made(LatentAttention, **sizes), experts=experts) | c.dense_first()


NUMBERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "llama": _llama, "mistral": _mistral, "mixtral": _mixtral, "qwen2": _qwen2, "qwen2_moe": _qwen2_moe, "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe, "gemma": _gemma1, "gemma2": lambda c: _gemma(c, 2),
    "gemma3_text": _gemma3,
    "olmo2": _olmo2, "olmo3": _olmo3, "olmoe": _olmoe, "gpt_oss": _gpt_oss, "deepseek_v2": _deepseek, "deepseek_v3": _deepseek,
    "phi3": _phi3, "qwen2_vl_text": _qwen2_vl, "qwen3_vl_text": _qwen3_vl, "qwen3_vl_moe_text": _qwen3_vl_moe,
    "ministral": _ministral, "granitemoe": _granitemoe, "seed_oss": _seed_oss, "ernie4_5": _ernie4_5,
    "hunyuan_v1_dense": _hunyuan, "minimax_m2": _minimax_m2, "glm": lambda c: _glm(c, "pre"), "glm4": lambda c: _glm(c, "both"),
}  # fmt: skip

MODELS: dict[str, Callable[[Fields, str], Model]] = {"gemma3_text": _gemma3_model}
"""Readers that branch on what they read, and so make a model at once."""

SAME = {
    "kimi_k2": "deepseek_v3", "exaone": "llama", "granite": "llama", "ministral3": "ministral", "qwen2_5_vl_text": "qwen2_vl_text",
    "granitemoeshared": "granitemoe",
}  # fmt: skip
