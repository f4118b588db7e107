"""Models whose layers differ in kind: Mamba beside attention, MLPs and experts (Nemotron-H and its relatives)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopkit.models.architectures.decoder_fields import heads_of, in_turn
from flopkit.models.blocks import Block
from flopkit.models.config_fields import WHOLE, Fields
from flopkit.models.feed_forward import MLP, Experts
from flopkit.models.model import Model
from flopkit.models.recurrences import StateSpace

__all__ = ["LINEAR", "MODELS"]

LINEAR = "linear_attention"
"""What ``layer_types`` calls a layer with a state."""


def _renamed(c: Fields, old: str, new: str, minimum: int = 1) -> Any:
    """A number that older files have under another name, which comes first."""
    return c.count(old, c.need(new, minimum), minimum)


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
        raise ValueError(f"num_hidden_layers={said}: hybrid_override_pattern or layers_block_type has {len(kinds)} layers")
    c.refuse(attention_bias=False, sliding_window=None, mlp_hidden_act="relu2", mamba_hidden_act="silu", n_shared_experts=1)
    further = _nemotron_kinds(c, "mtp_hybrid_override_pattern", "mtp_layers_block_type", [WHOLE, "moe"])
    mlp: dict[str, Any] = {"act": "relu2", "gated": False}

    def experts() -> Experts:
        c.refuse(mlp_bias=False)
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
    layers = {kind: Block(**{"mixer": None, "mlp" if kind in ("moe", "mlp") else "mixer": it}) for kind, it in made.items()}
    if c.fields.get("num_nextn_predict_layers") and further == [WHOLE, "moe"]:
        c.mtp = Block(mixer=branches[WHOLE](), mlp=branches["moe"]())
    ends = c.all("d_model", "vocab") | {"tied": c.flag("tie_word_embeddings")}
    return Model(name=name, **ends, **in_turn([layers[kind] for kind in kinds]))


MODELS: dict[str, Callable[[Fields, str], Model]] = {"nemotron_h": _nemotron_h}
