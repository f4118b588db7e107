"""A transformer from a few numbers: what a ``config.json`` says, and what the controls
of a calculator hold."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import exact_div, is_zero, maximum, same
from flopkit.models.blocks import Block
from flopkit.models.feed_forward import MLP, Experts
from flopkit.models.mixers import Attention, LatentAttention
from flopkit.models.model import Model
from flopkit.sizes import Count, Flag, Size, choice, divides, offence, size

__all__ = ["transformer"]


def transformer(
    *,
    name: str = "model",
    d_model: Size,
    vocab: Size,
    layers: Size,
    heads: Size,
    kv_heads: Size | None = None,
    head_dim: Size | None = None,
    d_ff: Size | None = None,
    act: str = "silu",
    gated: bool = True,
    mlp_bias: Flag = False,
    qkv_bias: Flag = False,
    out_bias: Flag = False,
    qk_norm: str = "",
    rotary: Count | None = None,
    sinks: Flag = False,
    position_keys: Flag = False,
    window: Size | None = None,
    windowed: Count | None = None,
    q_lora: Size | None = None,
    kv_lora: Size | None = None,
    qk_nope: Size | None = None,
    qk_rope: Size | None = None,
    v_head_dim: Size | None = None,
    experts: Size | None = None,
    top_k: Size | None = None,
    expert_d_ff: Size | None = None,
    shared_d_ff: Count = 0,
    shared_gate: Flag = False,
    expert_bias: Flag = False,
    dense: Count = 0,
    dense_windowed: Count | None = None,
    norms: str = "pre",
    **rest: Any,
) -> Model:
    """A model of equal layers, of two kinds of layers, or of dense ones and mixtures of
    experts, each with and without a window.

    Parameters
    ----------
    name : str, optional
        What tables call it.
    d_model, vocab, layers, heads : Size
        Features of a token, words, layers in all, query heads.
    kv_heads : Size, optional
        Heads of keys and values. None: as many as *heads*.
    head_dim : Size, optional
        Features of a head. None: d_model / heads.
    d_ff : Size, optional
        Hidden features of the MLP. A model whose layers are all mixtures of experts has
        none.
    act : str, optional
        The activation, as `flopkit.activation` calls it.
    gated : bool, optional
        Whether MLPs and experts have a third matrix.
    mlp_bias, qkv_bias, out_bias : Flag, optional
        Whether the dense layers of the MLP, the projections to queries, keys and
        values, and the output projection add a bias.
    qk_norm : str, optional
        As `Attention` has it.
    rotary : Count, optional
        Features of a head that are turned by their position. None: all.
    sinks : Flag, optional
        Whether each head has a learned sink in its softmax.
    position_keys : Flag, optional
        As `Attention` has it.
    window : Size, optional
        The window of the layers that have one.
    windowed : Count, optional
        How many layers have the window. None: all of them.
    q_lora, kv_lora, qk_nope, qk_rope, v_head_dim : Size, optional
        As `LatentAttention` has them; where *kv_lora* is given, the layers are of that
        sort.
    experts, top_k, expert_d_ff : Size, optional
        Experts to choose from, chosen for each token, and hidden features of each, in
        all layers but *dense* ones.
    shared_d_ff : Count, optional
        Hidden features of the MLP that all tokens share.
    shared_gate, expert_bias : Flag, optional
        Whether the shared MLP has a gate, and whether router and experts add biases.
    dense : Count, optional
        Layers with an MLP in a model of experts.
    dense_windowed : Count, optional
        How many of them have the window, where only some layers have one. The places in
        ``order=`` are then: dense layers with the window, dense ones without, experts
        with it, experts without, those of the four that there are.
    norms : str, optional
        As `Block` has it.
    **rest : Any
        What else `Model` takes, such as norm, tied, positions, head and order.

    Raises
    ------
    ValueError or TypeError
        For a bad size, heads that do not divide, more windowed or dense layers than
        there are, both without *dense_windowed*, a number that is missing.

    Examples
    --------
    >>> model = transformer(name="Llama-3-8B", d_model=4096, vocab=128256, layers=32, heads=32, kv_heads=8, d_ff=14336)
    >>> model.params
    8030261248
    """
    layers, heads = size("layers", layers), size("heads", heads)
    d_model = size("d_model", d_model)
    if kv_lora is not None:
        if window is not None:
            raise ValueError(f"{name}: window={window} together with kv_lora: latent attention has no window here")
        mixer: Any = LatentAttention(
            heads=heads,
            q_lora=q_lora,
            **_given(kv_lora=kv_lora, qk_nope=qk_nope, qk_rope=qk_rope, v_head_dim=v_head_dim),
        )
        narrow = mixer
    else:
        if head_dim is None:
            divides("heads", heads, "d_model", d_model)
            head_dim = exact_div(d_model, heads)
        made: dict[str, Any] = dict(
            heads=heads, kv_heads=heads if kv_heads is None else kv_heads, head_dim=head_dim, qkv_bias=qkv_bias, out_bias=out_bias,
            qk_norm=qk_norm, rotary=rotary, sinks=sinks, position_keys=position_keys,
        )  # fmt: skip
        mixer, narrow = Attention(**made), Attention(**made, window=window)
    windowed = 0 if window is None else layers if windowed is None else size("windowed", windowed, minimum=0)
    dense = size("dense", dense, minimum=0)
    for what, count in (("windowed", windowed), ("dense", dense)):
        if wrong := offence(lambda count, layers: count > layers, count, layers):
            raise ValueError(f"{what}={wrong[0]} is more than layers={wrong[1]}")
    plain = None if d_ff is None else MLP(d_ff=d_ff, act=act, gated=gated, bias=mlp_bias)
    if experts is None:
        sparse: Any = plain
        dense = 0
    else:
        sparse = Experts(
            **_given(experts=experts, top_k=top_k, d_ff=expert_d_ff), shared_d_ff=shared_d_ff, shared_gate=shared_gate, bias=expert_bias,
            gated=gated,
        )  # fmt: skip
    if sparse is None or (plain is None and not is_zero(dense)):
        raise ValueError(f"{name}: d_ff is missing, the hidden features of its MLP")
    choice("norms", norms, ("pre", "post", "both", "parallel"))
    both = 0 if dense_windowed is None else size("dense_windowed", dense_windowed, minimum=0)
    least = 0 if dense_windowed is None else maximum(0, dense + windowed - layers)
    if wrong := offence(lambda n, low, d, w: n < low or n > min(d, w), both, least, dense, windowed):
        raise ValueError(
            f"dense_windowed={wrong[0]} cannot be with dense={wrong[2]}, windowed={wrong[3]} and layers={layers}"
        )
    if same(windowed, layers):
        mixer, windowed = narrow, 0
    if is_zero(windowed):
        kinds = [(mixer, plain, dense), (mixer, sparse, layers - dense)]
    elif is_zero(dense):
        kinds = [(narrow, sparse, windowed), (mixer, sparse, layers - windowed)]
    elif dense_windowed is None:
        raise ValueError(
            f"{name}: of windowed={windowed} and dense={dense} layers, how many are both? give dense_windowed"
        )
    else:
        kinds = [(narrow, plain, both), (mixer, plain, dense - both)]
        kinds += [(narrow, sparse, windowed - both), (mixer, sparse, layers - dense - windowed + both)]
    blocks = tuple(
        (Block(mixer=m, mlp=f, norms=norms), count) for m, f, count in kinds if f is not None and not is_zero(count)
    )  # fmt: skip
    return Model(name=name, d_model=d_model, vocab=vocab, blocks=blocks, **rest)


def _given(**sizes: Any) -> dict[str, Any]:
    """*sizes*, none of which may be missing."""
    if missing := [name for name, value in sizes.items() if value is None]:
        there = ", ".join(name for name in sizes if name not in missing)
        raise ValueError(f"{', '.join(missing)} missing: to be given together with {there or 'the others'}")
    return sizes
