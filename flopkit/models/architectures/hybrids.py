"""Models whose layers differ in kind: Mamba beside attention, MLPs and experts (Nemotron-H and its relatives)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flopkit.arithmetic import ceil_div
from flopkit.models.architectures.decoder_fields import experts_of, heads_of, in_turn
from flopkit.models.branches.feed_forward import MLP, Experts
from flopkit.models.branches.mixers import Attention
from flopkit.models.branches.recurrences import StateSpace
from flopkit.models.branches.scans import SelectiveScan
from flopkit.models.branches.shared_blocks import SharedBlock
from flopkit.models.files.config_fields import WHOLE, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block, Parallel
from flopkit.sizes import divides, short

__all__ = ["LINEAR", "MODELS"]

LINEAR = "linear_attention"
"""What ``layer_types`` calls a layer with a state."""


def _renamed(c: Fields, old: str, new: str) -> Any:
    """A number that older files have under another name, which comes first."""
    return c.count(old, c.need(new))


_SIGNS = {"M": LINEAR, "*": WHOLE, "E": "moe", "-": "mlp"}
_FORMER = {"mamba": LINEAR, "attention": WHOLE}


def _nemotron_kinds(c: Fields, pattern: str, listed: str, usual: list[str]) -> list[str]:
    """The kind of each layer: what is *listed*, else the signs of a *pattern*."""
    signs = c.get(pattern, "")
    types = c.listed(listed) or [_SIGNS.get(sign, sign) for sign in signs] or usual
    kinds = [_FORMER.get(each, each) for each in types]
    if unknown := [each for each in kinds if each not in _SIGNS.values()]:
        raise ValueError(f"{listed}, {pattern}: {unknown[0]!r} is not described here")
    return kinds


def _nemotron_h(c: Fields, name: str) -> Model:
    kinds = _nemotron_kinds(c, "hybrid_override_pattern", "layers_block_type", [LINEAR, "moe", WHOLE, "mlp"])
    said = c.fields.get("num_hidden_layers")
    if said is not None and said != len(kinds):
        raise ValueError(
            f"num_hidden_layers={said}: hybrid_override_pattern or layers_block_type has {len(kinds)} layers"
        )
    c.refuse(attention_bias=False, sliding_window=None, mlp_hidden_act="relu2", mamba_hidden_act="silu")
    c.refuse(tie_word_embeddings=False)  # its own code ties them, transformers does not
    further = _nemotron_kinds(c, "mtp_hybrid_override_pattern", "mtp_layers_block_type", [WHOLE, "moe"])
    mlp: dict[str, Any] = {"act": "relu2", "gated": False}

    def experts() -> Experts:
        c.refuse(mlp_bias=False, n_shared_experts=1)
        sizes = {"experts": c.need("n_routed_experts"), "top_k": c.need("top_k"), "d_ff": c.need("expert_d_ff")}
        shared = c.need("moe_shared_expert_intermediate_size")
        return Experts(**sizes, shared_d_ff=shared, latent=c.count("moe_latent_size", 0, minimum=0), **mlp)

    def mamba() -> StateSpace:
        return StateSpace(
            heads=c.need("mamba_num_heads"), head_dim=c.need("mamba_head_dim"), state=c.need("ssm_state_size"),
            groups=_renamed(c, "mamba_n_groups", "n_groups"), conv=_renamed(c, "mamba_d_conv", "conv_kernel"),
            conv_bias=c.flag("mamba_conv_bias", c.flag("use_conv_bias", True)), bias=c.flag("use_bias"),
            chunk=_renamed(c, "mamba_chunk_size", "chunk_size"),
        )  # fmt: skip

    branches: dict[str, Callable[[], Any]] = {
        LINEAR: mamba,
        WHOLE: lambda: heads_of(c, rotary=0, **c.all("head_dim", "kv_heads")),
        "moe": experts,
        "mlp": lambda: MLP(d_ff=c.need("d_ff"), bias=c.flag("mlp_bias"), **mlp),
    }
    made = {kind: branches[kind]() for kind in dict.fromkeys(kinds)}
    layers = {
        kind: Block(**{"mixer": None, "mlp" if kind in ("moe", "mlp") else "mixer": it}) for kind, it in made.items()
    }
    if c.fields.get("num_nextn_predict_layers") and further == [WHOLE, "moe"]:
        c.mtp = Block(mixer=branches[WHOLE](), mlp=branches["moe"]())
    return Model(**_ends(c, name), **in_turn([layers[kind] for kind in kinds]))


def _mamba2(c: Fields, inner: Any, **more: Any) -> StateSpace:
    """Mamba-2 in the words of Bamba, with so many *inner* features."""
    heads, said = c.need("mamba_n_heads"), c.get("mamba_d_head", "auto")
    divides("mamba_n_heads", heads, "inner features", inner)
    if said not in ("auto", inner // heads):
        raise ValueError(f"mamba_d_head={short(said)}: {heads} heads of {inner} features have {inner // heads}")
    return StateSpace(
        heads=heads, head_dim=inner // heads, state=c.need("mamba_d_state"), groups=c.need("mamba_n_groups"), conv=c.need("mamba_d_conv"),
        conv_bias=c.flag("mamba_conv_bias", True), bias=c.flag("mamba_proj_bias"), chunk=c.need("mamba_chunk_size"), **more,
    )  # fmt: skip


def _ends(c: Fields, name: str) -> dict[str, Any]:
    return c.all("d_model", "vocab") | {"name": name, "tied": c.flag("tie_word_embeddings")}


def _granite(c: Fields, name: str) -> Model:
    layers = c.need("layers")
    kinds = [_FORMER.get(each, each) for each in c.listed("layer_types") or [LINEAR] * layers]
    if len(kinds) != layers or not set(kinds) <= {LINEAR, WHOLE}:
        raise ValueError(f"layer_types: must name {layers} layers, each {LINEAR} or {WHOLE}")
    turned = {} if _positions(c) == "rope" else {"rotary": 0}
    mixers: dict[str, Callable[[], Any]] = {
        LINEAR: lambda: _mamba2(c, c.need("mamba_expand") * c.need("d_model")),
        WHOLE: lambda: heads_of(c, c.flag("attention_bias"), **turned),
    }
    made = {kind: mixers[kind]() for kind in dict.fromkeys(kinds)}
    shared = c.need("shared_intermediate_size")
    mlp = experts_of(c, "d_ff", shared_d_ff=shared) if c.need("experts", 0) else MLP(d_ff=shared, act=c.act())
    return Model(**_ends(c, name), **in_turn([Block(mixer=made[kind], mlp=mlp) for kind in kinds]))


def _positions(c: Fields) -> str:
    """How positions enter attention: turned, or not at all."""
    said = c.get("position_embedding_type", "nope")
    if said not in ("rope", "nope"):
        raise ValueError(f"position_embedding_type={short(said)} is not described here: 'rope' and 'nope' are")
    return str(said)


def _bamba(c: Fields, name: str) -> Model:
    c.refuse(hidden_act="silu")
    layers, whole = c.need("layers"), c.listed("attn_layer_indices")
    half = {"rotary": c.head_dim() // 2}
    attention = heads_of(c, c.flag("attention_bias"), **c.all("kv_heads"), **half)
    mamba = _mamba2(c, c.need("mamba_expand") * c.need("d_model"))
    mlp = MLP(d_ff=c.need("d_ff"), bias=c.flag("mlp_bias"))
    return Model(
        **_ends(c, name), **in_turn([Block(mixer=attention if i in whole else mamba, mlp=mlp) for i in range(layers)])
    )


def _falcon_h1(c: Fields, name: str) -> Model:
    c.refuse(hidden_act="silu")
    if c.flag("projectors_bias") != c.flag("mamba_proj_bias"):
        raise ValueError(
            "projectors_bias beside another mamba_proj_bias is not described here: one bias for both projections is"
        )
    inner = c.need("mamba_expand") * c.need("d_model") if c.get("mamba_d_ssm") is None else c.need("mamba_d_ssm")
    mamba = _mamba2(c, inner, normed=c.flag("mamba_rms_norm"))
    mixer = Parallel(branches=(heads_of(c, c.flag("attention_bias"), **c.all("kv_heads")), mamba))
    mlp = MLP(d_ff=c.need("d_ff"), bias=c.flag("mlp_bias"))
    return Model(**_ends(c, name), blocks=((Block(mixer=mixer, mlp=mlp), c.need("layers")),))


def _jamba(c: Fields, name: str) -> Model:
    c.refuse(hidden_act="silu")
    d_model, said = c.need("d_model"), c.get("mamba_dt_rank", "auto")
    mamba = SelectiveScan(
        channels=c.need("mamba_expand") * d_model, state=c.need("mamba_d_state"), conv=c.need("mamba_d_conv"), norms="weighted",
        rank=ceil_div(d_model, 16) if said == "auto" else c.need("mamba_dt_rank"), conv_bias=c.flag("mamba_conv_bias", True),
        bias=c.flag("mamba_proj_bias"),
    )  # fmt: skip
    attention = heads_of(c, **c.all("kv_heads"), rotary=0)
    dense, sparse = MLP(d_ff=c.need("d_ff")), experts_of(c, "d_ff") if c.need("experts") > 1 else None

    def there(what: str, i: int) -> bool:
        return bool(i % c.need(f"{what}_layer_period") == c.need(f"{what}_layer_offset", minimum=0))

    blocks = [
        Block(mixer=attention if there("attn", i) else mamba, mlp=sparse if sparse and there("expert", i) else dense)
        for i in range(c.need("layers"))
    ]
    return Model(**_ends(c, name), **in_turn(blocks))


_ZAMBA2 = [LINEAR, *([LINEAR] * 5 + ["hybrid"]) * 7, *[LINEAR] * 4, "hybrid", *[LINEAR] * 3, "hybrid", *[LINEAR] * 2]


def _zamba2(c: Fields, name: str) -> Model:
    kinds = [_FORMER.get(each, each) for each in c.listed("layers_block_type") or _ZAMBA2]
    if len(kinds) != c.need("layers") or not set(kinds) <= {LINEAR, "hybrid"}:
        raise ValueError(f"layers_block_type: must name {c.need('layers')} layers, each {LINEAR} or hybrid")
    c.refuse(tie_word_embeddings=True)  # else transformers does not share the blocks, either
    d_model, heads, mamba_heads = c.need("d_model"), c.need("heads"), c.need("n_mamba_heads")
    inner = c.need("mamba_expand") * d_model
    divides("num_attention_heads", heads, "twice the width", 2 * d_model)
    divides("n_mamba_heads", mamba_heads, "inner features", inner)
    c.refuse(
        attention_hidden_size=2 * d_model, attention_head_dim=2 * d_model // heads, mamba_headdim=inner // mamba_heads,
        hybrid_layer_ids=[i for i, kind in enumerate(kinds) if kind == "hybrid"],
    )  # fmt: skip
    kv_heads, bias, adapters = (
        c.count("num_key_value_heads", heads),
        c.flag("add_bias_linear"),
        c.flag("use_shared_attention_adapter"),
    )
    if adapters and kv_heads != heads:
        raise ValueError(
            f"num_key_value_heads={kv_heads}: with use_shared_attention_adapter there are as many as num_attention_heads={heads}"
        )
    turned: dict[str, Any] = {} if c.flag("use_mem_rope") else {"rotary": 0}
    mamba = StateSpace(
        heads=mamba_heads, head_dim=inner // mamba_heads, state=c.need("mamba_d_state"), groups=c.need("mamba_ngroups"),
        conv=c.need("mamba_d_conv"), bias=bias, chunk=c.need("chunk_size"),
    )  # fmt: skip
    shared = SharedBlock(
        attention=Attention(heads=heads, kv_heads=kv_heads, head_dim=2 * d_model // heads, **turned), mamba=mamba, rank=c.need("adapter_rank"),
        mlp=MLP(d_ff=c.count("intermediate_size", 4 * d_model), act=c.act("gelu"), bias=bias), adapters=3 if adapters else 0,
    )  # fmt: skip
    blocks, own = [], c.need("num_mem_blocks")
    for i, kind in enumerate(kinds):
        later = kinds[:i].count("hybrid") >= own
        blocks.append(Block(mixer=mamba if kind == LINEAR else replace(shared, first=not later)))
    return Model(**_ends(c, name), **in_turn(blocks))


MODELS: dict[str, Callable[[Fields, str], Model]] = {
    "nemotron_h": _nemotron_h, "granitemoehybrid": _granite, "bamba": _bamba, "falcon_h1": _falcon_h1, "jamba": _jamba,
    "zamba2": _zamba2,
}  # fmt: skip
