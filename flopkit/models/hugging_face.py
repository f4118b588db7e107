"""Models from the ``config.json`` of Hugging Face, read as a plain dictionary: no library is needed, and nothing is guessed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flopkit.models.feed_forward import MLP, Experts
from flopkit.models.mixers import Attention
from flopkit.models.model import Block, Model, Patches
from flopkit.models.numbers import transformer
from flopkit.models.recurrences import GatedDelta, StateSpace
from flopkit.names import hint

__all__ = ["KEYS", "families", "from_hf"]

KEYS: Mapping[str, tuple[str, ...]] = {
    "vocab": ("vocab_size",),
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim", "d_kv"),
    "d_ff": ("intermediate_size", "n_inner", "d_ff"),
    "window": ("sliding_window",),
    "q_lora": ("q_lora_rank",),
    "kv_lora": ("kv_lora_rank",),
    "qk_nope": ("qk_nope_head_dim",),
    "qk_rope": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "top_k": ("num_experts_per_tok",),
    "expert_d_ff": ("moe_intermediate_size",),
    "dense": ("first_k_dense_replace",),
    "tied": ("tie_word_embeddings",),
}
"""Our name of a number, and the keys under which a ``config.json`` may have it."""

_ACTS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu",
}  # fmt: skip


class _Config:
    """A configuration that names the field it lacks."""

    def __init__(self, fields: Mapping[str, Any], kind: str) -> None:
        self.fields, self.kind = fields, kind

    def get(self, key: str, default: Any = None) -> Any:
        value = self.fields.get(key)
        return default if value is None else value

    def need(self, name: str) -> Any:
        for key in KEYS.get(name, (name,)):
            if self.fields.get(key) is not None:
                return self.fields[key]
        keys = " or ".join(repr(key) for key in KEYS.get(name, (name,)))
        raise ValueError(f"the configuration of model_type={self.kind!r} lacks {keys}: give a whole config.json")

    def all(self, *names: str) -> dict[str, Any]:
        return {name: self.need(name) for name in names}

    def act(self, default: str = "silu") -> str:
        said = self.get("hidden_activation") or self.get("hidden_act") or self.get("activation_function") or default
        if said not in _ACTS:
            raise ValueError(f"activation {said!r} is not known here; {hint(str(said), _ACTS)}")
        return _ACTS[said]

    def refuse(self, **usual: Any) -> None:
        """What a family may say and is not described here."""
        for key, value in usual.items():
            if self.get(key, value) != value:
                raise ValueError(
                    f"{key}={self.fields[key]!r}: a {self.kind} with that is not described here, only {value!r}"
                )


def from_hf(config: Mapping[str, Any] | str | os.PathLike[str], mtp: bool = False) -> Model:
    """The model that a ``config.json`` describes.

    Parameters
    ----------
    config : Mapping[str, Any] or str or os.PathLike[str]
        The configuration as a dictionary, or the path of a ``config.json``.
    mtp : bool, optional
        Whether the layer for multi-token prediction is there, which training has and inference may leave out.

    Returns
    -------
    Model
        Of one of `flopkit.models.families`.

    Raises
    ------
    ValueError
        For a ``model_type`` that is not known, with near ones; for a field that is missing or has a value that is not described here;
        for *mtp* where ``num_nextn_predict_layers`` says that there is no such layer, or more than one.
    TypeError
        For what is neither a dictionary nor a path.
    FileNotFoundError
        Where there is no such file.

    Notes
    -----
    The values in a ``config.json`` are taken as they stand. A field that ``transformers`` would fill with a default of its own is an
    error where the model needs it and the default is not a rule (heads of keys and values as many as heads, size of a head the width
    by the heads). For a model of text and images the part for text is read.

    Examples
    --------
    >>> config = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    ...           "num_hidden_layers": 32, "num_attention_heads": 32}
    >>> from_hf(config).params
    6738415616
    """
    if isinstance(config, (str, os.PathLike)):
        path = Path(config)
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: there is no such file; give the path of a config.json, or load a model by its name: fk.load"
            )
        try:
            config = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(config, Mapping):
        raise TypeError(f"config={config!r:.60}: must be a dictionary or the path of a config.json")
    if isinstance(config.get("text_config"), Mapping):
        config = {**config["text_config"], **{k: v for k, v in config.items() if k == "tie_word_embeddings"}}
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise ValueError("the configuration has no 'model_type': give a whole config.json")
    family = _SAME.get(kind, kind)
    if family not in _FAMILIES:
        raise ValueError(f"model_type={kind!r} is not described here; {hint(kind, _FAMILIES)}")
    c = _Config(config, kind)
    model = _FAMILIES[family](c, str(config.get("_name_or_path") or kind))
    return replace(model, mtp=_mtp_layer(c, model)) if mtp else model


def _mtp_layer(c: _Config, model: Model) -> Block:
    """The layer for multi-token prediction, which is like the last one."""
    layers = c.get("num_nextn_predict_layers", c.get("num_mtp_layers", 0))
    if layers == 1:
        return model.blocks[-1][0]
    raise ValueError(
        "mtp=True: there is no layer for multi-token prediction"
        if not layers
        else f"num_nextn_predict_layers={layers!r}: more than one layer for multi-token prediction is not described here"
    )


def families() -> list[str]:
    """The values of ``model_type`` that `from_hf` reads.

    >>> "llama" in families()
    True
    """
    return sorted(_FAMILIES)


def _common(c: _Config, **changed: Any) -> dict[str, Any]:
    """What nearly all decoders say in the same words."""
    found = c.all("vocab", "d_model", "layers", "heads")
    found |= {"kv_heads": c.get("num_key_value_heads"), "head_dim": c.get("head_dim"), "act": c.act()}
    found["d_ff"] = c.need("d_ff") if "d_ff" not in changed else None
    return found | {"tied": bool(c.get("tie_word_embeddings", False))} | changed


def _layer_types(c: _Config, layers: int, rule: Callable[[int], bool]) -> tuple[int, tuple[int, ...]]:
    """How many layers are windowed, and the order: 0 where a layer is windowed, 1 where it is not. *rule* speaks where the list is missing."""
    types = c.get("layer_types") or ["sliding_attention" if rule(i) else "full_attention" for i in range(layers)]
    if len(types) != layers:
        raise ValueError(f"layer_types has {len(types)} entries for {layers} layers")
    if unknown := set(types) - {"sliding_attention", "full_attention"}:
        raise ValueError(f"layer_types: {sorted(unknown)[0]!r} is not described here")
    order = tuple(int(kind == "full_attention") for kind in types)
    return order.count(0), order


def _windows(c: _Config, layers: int, rule: Callable[[int], bool]) -> dict[str, Any]:
    window = c.get("sliding_window")
    if not window:
        return {}
    windowed, order = _layer_types(c, layers, rule)
    if windowed in (0, layers):
        return {"window": window} if windowed else {}
    return {"window": window, "windowed": windowed, "order": order}


def _llama(c: _Config, name: str) -> Model:
    bias = bool(c.get("attention_bias", False))
    return transformer(name=name, **_common(c, qkv_bias=bias, out_bias=bias, mlp_bias=bool(c.get("mlp_bias", False))))


def _mistral(c: _Config, name: str) -> Model:
    return transformer(name=name, **_common(c), **_windows(c, c.need("layers"), lambda _: True))


def _mixtral(c: _Config, name: str) -> Model:
    experts = c.all("experts", "top_k")
    window = _windows(c, c.need("layers"), lambda _: True)
    return transformer(name=name, **_common(c, d_ff=None), **experts, expert_d_ff=c.need("d_ff"), **window)


def _qwen_window(c: _Config) -> dict[str, Any]:
    if not c.get("use_sliding_window", False):
        return {}
    first = c.need("max_window_layers")
    return _windows(c, c.need("layers"), lambda i: i >= first)


def _qwen2(c: _Config, name: str) -> Model:
    return transformer(name=name, **_common(c, qkv_bias=True), **_qwen_window(c))


def _qwen3(c: _Config, name: str) -> Model:
    bias = bool(c.get("attention_bias", False))
    head = {"head_dim": c.need("head_dim")}
    return transformer(name=name, **_common(c, qkv_bias=bias, out_bias=bias, qk_norm="head", **head), **_qwen_window(c))


def _sparse(c: _Config, layers: int) -> dict[str, Any]:
    """Which layers have experts, of Qwen's two ways to say so."""
    only, step = c.get("mlp_only_layers", []), c.get("decoder_sparse_step", 1)
    order = tuple(int(i not in only and (i + 1) % step == 0) for i in range(layers))
    dense = order.count(0)
    return {"dense": dense, "order": order} if dense else {}


def _qwen2_moe(c: _Config, name: str) -> Model:
    c.refuse(use_sliding_window=False)
    layers = c.need("layers")
    found = _common(
        c,
        qkv_bias=bool(c.get("qkv_bias", True)),
        shared_gate=True,
        shared_d_ff=c.need("shared_expert_intermediate_size"),
    )
    return transformer(name=name, **found, **c.all("experts", "top_k", "expert_d_ff"), **_sparse(c, layers))


def _qwen3_moe(c: _Config, name: str) -> Model:
    c.refuse(use_sliding_window=False)
    bias = bool(c.get("attention_bias", False))
    found = _common(c, qkv_bias=bias, out_bias=bias, qk_norm="head")
    return transformer(name=name, **found, **c.all("experts", "top_k", "expert_d_ff"), **_sparse(c, c.need("layers")))


def _gemma2(c: _Config, name: str) -> Model:
    window = _windows(c, c.need("layers"), lambda i: i % 2 == 0)
    tied, bias = bool(c.get("tie_word_embeddings", True)), bool(c.get("attention_bias", False))
    found = _common(c, tied=tied, norms="both", head_dim=c.need("head_dim"), qkv_bias=bias, out_bias=bias)
    return transformer(name=name, **found, **window)


def _gemma3(c: _Config, name: str) -> Model:
    period = c.get("sliding_window_pattern") or c.get("_sliding_window_pattern") or 6
    window = _windows(c, c.need("layers"), lambda i: (i + 1) % period != 0)
    tied, bias = bool(c.get("tie_word_embeddings", True)), bool(c.get("attention_bias", False))
    found = _common(
        c, tied=tied, norms="both", qk_norm="head", head_dim=c.need("head_dim"), qkv_bias=bias, out_bias=bias
    )
    return transformer(name=name, **found, **window)


def _olmo2(c: _Config, name: str) -> Model:
    c.refuse(attention_bias=False)
    return transformer(name=name, **_common(c, norms="post", qk_norm="whole"))


def _gpt_oss(c: _Config, name: str) -> Model:
    bias = bool(c.get("attention_bias", True))
    found = _common(
        c, d_ff=None, head_dim=c.need("head_dim"), qkv_bias=bias, out_bias=bias, sinks=True, expert_bias=True
    )
    experts = c.all("experts", "top_k") | {"expert_d_ff": c.need("d_ff")}
    return transformer(name=name, **found, **experts, **_windows(c, c.need("layers"), lambda i: i % 2 == 0))


def _deepseek(c: _Config, name: str) -> Model:
    c.refuse(attention_bias=False, mlp_bias=False, moe_layer_freq=1)
    latent = c.all("kv_lora", "qk_nope", "qk_rope", "v_head_dim") | {"q_lora": c.get("q_lora_rank")}
    layers, first = c.need("layers"), c.need("dense")
    experts = c.all("experts", "top_k", "expert_d_ff")
    shared = c.get("n_shared_experts", 0) * experts["expert_d_ff"]
    found = _common(c, head_dim=None, kv_heads=None)
    order = (0,) * first + (1,) * (layers - first) if first else ()
    return transformer(name=name, **found, **latent, **experts, shared_d_ff=shared, dense=first, order=order)


def _qwen3_next(c: _Config, name: str) -> Model:
    layers, period = c.need("layers"), c.get("full_attention_interval", 4)
    types = c.get("layer_types") or [
        "full_attention" if (i + 1) % period == 0 else "linear_attention" for i in range(layers)
    ]
    order = tuple(int(kind == "full_attention") for kind in types)
    c.refuse(attention_bias=False, mlp_only_layers=[], decoder_sparse_step=1)
    linear = GatedDelta(
        heads=c.need("linear_num_value_heads"), k_heads=c.need("linear_num_key_heads"), k_dim=c.need("linear_key_head_dim"),
        v_dim=c.need("linear_value_head_dim"), conv=c.need("linear_conv_kernel_dim"),
    )  # fmt: skip
    head_dim, turned = c.need("head_dim"), c.get("rope_parameters", {}).get("partial_rotary_factor")
    turned = c.get("partial_rotary_factor", 0.25) if turned is None else turned
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
        tied=bool(c.get("tie_word_embeddings", False)),
    )


def _mamba2(c: _Config, name: str) -> Model:
    mixer = StateSpace(
        **c.all("heads"), head_dim=c.need("head_dim"), state=c.need("state_size"), groups=c.need("n_groups"), conv=c.need("conv_kernel"),
        conv_bias=bool(c.get("use_conv_bias", True)), bias=bool(c.get("use_bias", False)), chunk=c.get("chunk_size", 256),
    )  # fmt: skip
    tied = bool(c.get("tie_word_embeddings", False))
    return Model(name=name, **c.all("d_model", "vocab"), blocks=((Block(mixer=mixer), c.need("layers")),), tied=tied)


def _gpt2(c: _Config, name: str) -> Model:
    d_model = c.need("d_model")
    return transformer(
        name=name, **c.all("vocab", "layers", "heads"), d_model=d_model, d_ff=c.get("n_inner", 4 * d_model), act=c.act("gelu_new"),
        gated=False, mlp_bias=True, qkv_bias=True, out_bias=True, rotary=0, norm="layer", tied=bool(c.get("tie_word_embeddings", True)),
        positions=c.need("n_positions"),
    )  # fmt: skip


def _mpt(c: _Config, name: str) -> Model:
    c.refuse(no_bias=True, attn_type="multihead_attention", embedding_fraction=1.0)
    d_model, inside = c.need("d_model"), c.get("attn_config", {})
    return transformer(
        name=name, **c.all("vocab", "layers", "heads"), d_model=d_model, d_ff=c.get("expansion_ratio", 4) * d_model, act="gelu",
        gated=False, rotary=0, norm="layer", norm_bias=False, tied=bool(c.get("tie_word_embeddings", True)),
        positions=None if inside.get("alibi", True) else c.need("max_seq_len"),
    )  # fmt: skip


def _bert(c: _Config, name: str) -> Model:
    c.refuse(position_embedding_type="absolute", is_decoder=False)
    return transformer(
        name=name, **c.all("vocab", "d_model", "layers", "heads", "d_ff"), act=c.act("gelu"), gated=False, mlp_bias=True, qkv_bias=True,
        out_bias=True, rotary=0, norms="post", norm="layer", final_norm=False, embedding_norm=True, causal=False, head="mlm",
        head_bias=True, tied=bool(c.get("tie_word_embeddings", True)), positions=c.need("max_position_embeddings"),
        token_types=c.need("type_vocab_size"),
    )  # fmt: skip


def _t5(c: _Config, name: str) -> Model:
    act = str(c.get("feed_forward_proj", "relu"))
    gated = act.startswith("gated-")
    kinds = {"relu": "relu", "gated-gelu": "gelu_tanh", "gated-silu": "silu", "gelu": "gelu"}
    if act not in kinds:
        raise ValueError(f"feed_forward_proj={act!r} is not described here; {hint(act, kinds)}")
    heads, head_dim, buckets = c.need("heads"), c.need("head_dim"), c.need("relative_attention_num_buckets")
    sizes = {"heads": heads, "kv_heads": heads, "head_dim": head_dim, "rotary": 0}
    mlp = MLP(d_ff=c.need("d_ff"), act=kinds[act], gated=gated)
    common: dict[str, Any] = dict(
        d_model=c.need("d_model"), vocab=c.need("vocab"), tied=bool(c.get("tie_word_embeddings", True))
    )

    def stack(layers: int, cross: Any) -> dict[str, Any]:
        first, later = (
            Block(mixer=Attention(**sizes, position_buckets=rows), mlp=mlp, cross=cross) for rows in (buckets, 0)
        )
        return {"blocks": ((first, 1), (later, layers - 1)), "order": (0, *(1,) * (layers - 1))}

    layers = c.need("num_layers")
    encoder = Model(name="encoder", **common, **stack(layers, None), causal=False, head="none")
    cross = Attention(**sizes, cross=True)
    return Model(name=name, **common, **stack(c.get("num_decoder_layers", layers), cross), encoder=encoder)


def _vit(c: _Config, name: str) -> Model:
    patches = Patches(image=c.need("image_size"), patch=c.need("patch_size"), channels=c.get("num_channels", 3))
    return transformer(
        name=name, vocab=len(c.get("id2label", range(c.get("num_labels", 1000)))), **c.all("d_model", "layers", "heads", "d_ff"),
        act=c.act("gelu"), gated=False, mlp_bias=True, qkv_bias=bool(c.get("qkv_bias", True)), out_bias=True, rotary=0, norm="layer",
        causal=False, head="classes", patches=patches, positions=patches.tokens,
    )  # fmt: skip


_FAMILIES: dict[str, Callable[[_Config, str], Model]] = {
    "llama": _llama, "mistral": _mistral, "mixtral": _mixtral, "qwen2": _qwen2, "qwen2_moe": _qwen2_moe, "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe, "gemma2": _gemma2, "gemma3_text": _gemma3, "olmo2": _olmo2, "gpt_oss": _gpt_oss, "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek, "gpt2": _gpt2, "mpt": _mpt, "bert": _bert, "t5": _t5, "vit": _vit,
    "qwen3_next": _qwen3_next, "mamba2": _mamba2,
}  # fmt: skip

_SAME = {"kimi_k2": "deepseek_v3"}  # another name for the same layers
