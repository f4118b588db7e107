"""A transformer from a few numbers: a plain decoder in one call, and one value for what
belongs together, such as a mixture of experts or a window."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields, replace
from inspect import signature
from typing import Any

from flopkit.arithmetic import exact_div, is_zero, maximum, minimum
from flopkit.models.branches.feed_forward import MLP, Experts
from flopkit.models.branches.latent_attention import LatentAttention
from flopkit.models.branches.mixers import Attention
from flopkit.models.model import Model
from flopkit.models.stacks.blocks import Block
from flopkit.names import hint
from flopkit.sizes import Count, Flag, Size, check_fields, divides, offence, short, size

__all__ = ["WindowedLayers", "transformer"]


@dataclass(frozen=True)
class WindowedLayers:
    """A window of attention, and how many layers have it.

    Parameters
    ----------
    width : Size
        How many tokens a query sees, itself included.
    layers : Count, optional
        How many layers have the window. None: all.
    dense : Count, optional
        How many of these are dense, where a model has dense layers and experts.
    rotary : Count, optional
        Features of a head that these layers turn. None: as many as the others, which
        may turn none (Command A, EXAONE 4).
    """

    width: Size
    _: KW_ONLY
    layers: Count | None = None
    dense: Count | None = None
    rotary: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.layers is None and self.dense is not None:
            raise ValueError(f"{self}: all layers have it, the dense ones too; leave dense= out, or give layers=")


def transformer(
    *,
    name: str = "model",
    d_model: Size,
    vocab: Size,
    layers: Size,
    heads: Size | None = None,
    kv_heads: Size | None = None,
    head_dim: Size | None = None,
    rotary: Count | None = None,
    d_ff: Size | None = None,
    act: str = "silu",
    gated: bool = True,
    bias: Flag = False,
    norms: str = "pre",
    attention: Attention | LatentAttention | None = None,
    window: WindowedLayers | None = None,
    experts: Experts | None = None,
    dense: Count = 0,
    **rest: Any,
) -> Model:
    """A model of equal layers, of two kinds of layers, or of dense ones and mixtures of
    experts, each with and without a window.

    Parameters
    ----------
    name : str, optional
        What tables call it.
    d_model, vocab, layers : Size
        Features of a token, words, layers in all.
    heads, kv_heads, head_dim : Size, optional
        Query heads, heads of keys and values (None: as many), features of a head (None:
        d_model / heads).
    rotary : Count, optional
        Features of a head that are turned by their position. None: all.
    d_ff : Size, optional
        Hidden features of the MLP. A model whose layers are all mixtures of experts has
        none.
    act : str, optional
        The activation of the MLP, as `flopkit.activation` calls it.
    gated : bool, optional
        Whether the MLP has a third matrix.
    bias : Flag, optional
        Whether the dense layers of the MLP and the projections of *heads* add a bias.
    norms : str, optional
        As `Block` has it.
    attention : Attention or LatentAttention, optional
        In the place of *heads*, *kv_heads*, *head_dim* and *rotary*, where there is
        more to say.
    window : WindowedLayers, optional
        The window of the layers that have one.
    experts : Experts, optional
        The mixture of experts of all layers but the *dense* ones.
    dense : Count, optional
        Layers with an MLP in a model of experts. The places in ``order=`` are: dense
        layers with the window, dense ones without, experts with it, experts without,
        those of the four that there are.
    **rest : Any
        What else `Model` takes, such as norm, tied, positions, head and order.

    Raises
    ------
    ValueError or TypeError
        For a bad size, an argument that is not known, heads that do not divide, more
        layers of a kind than there are, what is missing or said twice.

    Examples
    --------
    >>> model = transformer(name="Llama-3-8B", d_model=4096, vocab=128256, layers=32, heads=32, kv_heads=8, d_ff=14336)
    >>> model.params
    8030261248
    >>> mixture = Experts(experts=8, top_k=2, d_ff=14336)
    >>> transformer(name="Mixtral", d_model=4096, vocab=32000, layers=32, heads=32, kv_heads=8, experts=mixture).params
    46702792704
    """
    _known(rest)
    for what, value, *classes in (
        ("attention", attention, Attention, LatentAttention), ("experts", experts, Experts), ("window", window, WindowedLayers),
    ):  # fmt: skip
        if value is not None and not isinstance(value, tuple(classes)):
            wanted = " or ".join(f"{each.__name__}(…)" for each in classes)
            raise TypeError(f"{what}={short(value)}: must be {wanted} of flopkit.models")
    d_model, layers, dense = size("d_model", d_model), size("layers", layers), size("dense", dense, minimum=0)
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "rotary": rotary}
    said = {what: value for what, value in sizes.items() if value is not None}
    if attention is not None and said:
        numbers = ", ".join(f"{what}={short(value)}" for what, value in said.items())
        raise ValueError(f"{numbers} beside attention={short(attention)}, which says it itself: leave one out")
    mixer: Any = attention or _of_heads(d_model, said, bias)
    plain = None if d_ff is None else MLP(d_ff=d_ff, act=act, gated=gated, bias=bias)
    sparse: Any = experts or plain
    if sparse is None or (plain is None and not is_zero(dense)):
        raise ValueError(f"{name}: d_ff is missing, the hidden features of its MLP")
    if plain is None and ((act, gated) != ("silu", True) or (attention and not is_zero(bias))):
        raise ValueError(f"act={act!r}, gated={gated}, bias={bias} belong to an MLP: give its d_ff=, or leave them out")
    if experts is None and not is_zero(dense):
        raise ValueError(f"dense={dense}: without experts= all layers are dense; leave it out")
    windowed: Any = 0
    narrow = mixer
    if window is not None:
        if mixer.window is not None or isinstance(mixer, LatentAttention):
            why = "latent attention has no window here" if mixer.window is None else "it has a window of its own"
            raise ValueError(f"window={window} beside attention={short(mixer)}: {why}; leave one out")
        turned = mixer.rotary if window.rotary is None else window.rotary
        narrow = replace(mixer, window=window.width, rotary=turned)
        if window.layers is None:
            mixer = narrow
        else:
            windowed = window.layers
    for what, count in (("dense", dense), ("window.layers", windowed)):
        if wrong := offence(lambda count, layers: count > layers, count, layers):
            raise ValueError(f"{what}={wrong[0]} is more than layers={wrong[1]}: give at most as many as there are")
    both = 0 if window is None or window.layers is None else _both(window, dense, layers)
    kinds = [(narrow, plain, both), (mixer, plain, dense - both), (narrow, sparse, windowed - both)]
    kinds += [(mixer, sparse, layers - (dense + windowed - both))]
    blocks = tuple((Block(mixer=m, mlp=f, norms=norms), count) for m, f, count in kinds if not is_zero(count))
    return Model(name=name, d_model=d_model, vocab=vocab, blocks=blocks, **rest)


def _of_heads(d_model: Any, said: dict[str, Any], bias: Any) -> Attention:
    if "heads" not in said:
        raise TypeError("heads is missing: give heads=, or attention= where there is more to say")
    heads = size("heads", said["heads"])
    if "head_dim" not in said:
        divides("heads", heads, "d_model", d_model)
        said = {"head_dim": exact_div(d_model, heads)} | said
    return Attention(**{"kv_heads": heads} | said, qkv_bias=bias, out_bias=bias)


def _both(window: Any, dense: Any, layers: Any) -> Any:
    """How many of the layers with a *window* are among the *dense* ones."""
    low, high = maximum(0, dense + window.layers - layers), minimum(dense, window.layers)
    if window.dense is None and (is_zero(dense) or is_zero(high - low)):
        return 0 if is_zero(dense) else low
    if window.dense is None:
        raise ValueError(f"window={window}: how many of its layers are among dense={short(dense)}? Give it dense= too")
    sizes = (window.dense, low, high, dense, window.layers, layers)
    if wrong := offence(lambda both, low, high, *_: (both < low) | (both > high), *sizes):
        them = "window.dense={} must be from {} to {} with dense={}, window.layers={} and layers={}"
        raise ValueError(them.format(*wrong))
    return window.dense


def _known(rest: dict[str, Any]) -> None:
    """Refuse what neither `transformer` nor `Model` takes."""
    model = [each.name for each in fields(Model) if each.name != "blocks"]
    if unknown := [name for name in rest if name not in model]:
        known = dict.fromkeys([*signature(transformer).parameters][:-1] + model)
        inside: Any = (("attention", LatentAttention), ("attention", Attention), ("experts", Experts))
        found = {each.name: f"{what}={kind.__name__}({each.name}=…)" for what, kind in inside for each in fields(kind)}
        elsewhere = {name: found[name] for name in found if name not in known}
        raise TypeError(f"transformer has no argument {unknown[0]!r}; {hint(unknown[0], known, elsewhere)}")
