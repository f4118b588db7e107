"""Language models as trees of layers: the decoder that Llama is, from the sizes in its ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flopkit.arithmetic import exact_div
from flopkit.cost import Cost
from flopkit.dtypes import DType
from flopkit.layers.attention_layers import multi_head_attention
from flopkit.layers.embeddings import embedding, rotary
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.pointwise import activation, residual
from flopkit.layers.products import dense
from flopkit.models.configs import hf_config
from flopkit.sizes import Flag, Size, flag, size

__all__ = ["Decoder", "decoder"]


@dataclass(frozen=True)
class Decoder:
    """Equal layers of attention (rotary, grouped heads) and a gated MLP, an RMS norm before each: Llama and its like.

    Parameters
    ----------
    name : str
        What a table calls it.
    vocab, d_model, d_ff : Size
        Words, features of a token, hidden features of the MLP.
    layers : Size
        How many layers.
    heads, kv_heads, head_dim : Size
        Query heads, heads of keys and values, features of each.
    tied : Flag, optional
        Whether the head's matrix is the embedding's table, whose parameters then count once.

    Examples
    --------
    >>> small = Decoder("small", vocab=100, d_model=64, d_ff=96, layers=2, heads=4, kv_heads=2, head_dim=16)
    >>> small.forward(seq=8).params == 2 * 100 * 64 + 2 * (64 * 16 * (2 * 4 + 2 * 2) + 3 * 64 * 96) + 5 * 64
    True
    """

    name: str
    vocab: Size
    d_model: Size
    d_ff: Size
    layers: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    tied: Flag = False

    def __post_init__(self) -> None:
        for name in ("vocab", "d_model", "d_ff", "layers", "heads", "kv_heads", "head_dim"):
            object.__setattr__(self, name, size(name, getattr(self, name)))
        object.__setattr__(self, "tied", flag("tied", self.tied))

    def layer(self, *, seq: Size, batch: Size = 1, dtype: DType = "bf16") -> Cost:
        """One layer, forward, over *batch* sequences of *seq* tokens; its parts are named as in ``transformers``.

        Notes
        -----
        Not counted: a cache, and what a program copies to join heads.

        Examples
        --------
        >>> [part.name for part in decoder("llama-3-8b").layer(seq=8192).parts][:6]
        ['input_layernorm', 'q_proj', 'k_proj', 'v_proj', 'rotary', 'attention']
        """
        seq, batch = size("seq", seq), size("batch", batch)
        tokens, d_model, d_ff = batch * seq, self.d_model, self.d_ff

        def norm(name: str) -> Cost:
            return rms_norm(tokens=tokens, d=d_model, dtype=dtype).named(name)

        def project(name: str, d_in: Any, d_out: Any) -> Cost:
            return dense(tokens=tokens, d_in=d_in, d_out=d_out, dtype=dtype).named(name)

        *qkv, core, out = multi_head_attention(
            batch=batch, q=seq, kv=seq, d_model=d_model, heads=self.heads, kv_heads=self.kv_heads,
            head_dim=self.head_dim, mask="causal", dtype=dtype,
        ).parts  # fmt: skip
        turned = rotary(batch=batch, seq=seq, heads=self.heads + self.kv_heads, head_dim=self.head_dim, dtype=dtype)
        add = residual(elements=tokens * d_model, dtype=dtype)
        mlp = [project("gate_proj", d_model, d_ff), project("up_proj", d_model, d_ff)]
        mlp += [activation("swiglu", elements=tokens * d_ff, dtype=dtype), project("down_proj", d_ff, d_model)]
        attention = [norm("input_layernorm"), *qkv, turned, core, out, add]
        return Cost.total("layer", [*attention, norm("post_attention_layernorm"), *mlp, add])

    def forward(self, *, seq: Size, batch: Size = 1, dtype: DType = "bf16") -> Cost:
        """The forward pass over *batch* sequences of *seq* tokens, the head on each of them.

        The head's product is of the kind ``"head"``, the look-up of the kind ``"embedding"``.

        >>> forward = decoder("llama-3-8b").forward(seq=8192)
        >>> forward.params, forward.flops
        (8030261248, 140550657277952)
        """
        tokens = size("batch", batch) * size("seq", seq)
        norm = rms_norm(tokens=tokens, d=self.d_model, dtype=dtype).named("norm")
        product = dense(tokens=tokens, d_in=self.d_model, d_out=self.vocab, dtype=dtype).named("lm_head")
        head = replace(
            product, macs_by_kind={"head": product.macs}, params_by_role={"head": (1 - self.tied) * product.params}
        )
        table = embedding(tokens=tokens, vocab=self.vocab, d_model=self.d_model, dtype=dtype).named("embed_tokens")
        layers = (self.layer(seq=seq, batch=batch, dtype=dtype) * self.layers).named("layers")
        return Cost.total(f"{self.name}, forward", [table, layers, norm, head])


_SPELLED = {  # in a config.json
    "vocab": "vocab_size",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
}


def decoder(model: str | Mapping[str, Any]) -> Decoder:
    """The decoder that a ``config.json`` describes.

    Parameters
    ----------
    model : str or Mapping[str, Any]
        A name in `flopkit.models.config_names`, or a configuration as ``transformers`` writes it.

    Raises
    ------
    ValueError
        For a name that is not known, and for what `Decoder` is not: another ``model_type`` than ``"llama"``, or layers with
        a bias.

    Examples
    --------
    >>> llama = decoder("Llama 3 8B")
    >>> llama.layers, llama.d_model, llama.d_ff, llama.kv_heads
    (32, 4096, 14336, 8)
    """
    config = model if isinstance(model, Mapping) else hf_config(model)
    if config.get("model_type") != "llama":
        raise ValueError(f"model_type={config.get('model_type')!r}: only 'llama' is described here")
    for bias in ("attention_bias", "mlp_bias"):
        if config.get(bias):
            raise ValueError(f"{bias}={config[bias]!r}: a decoder's layers have no bias here")
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"hidden_act={config['hidden_act']!r}: a decoder's MLP is gated by silu here")
    if missing := [name for name in _SPELLED.values() if name not in config]:
        raise ValueError(f"the configuration lacks {', '.join(missing)}: give a whole config.json")
    heads = config["num_attention_heads"]
    return Decoder(
        model if isinstance(model, str) else "decoder",
        **{size: config[name] for size, name in _SPELLED.items()},
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim")
        or exact_div(size("hidden_size", config["hidden_size"]), size("num_attention_heads", heads)),
        tied=bool(config.get("tie_word_embeddings")),
    )
