"""What the readers of picture parts share: towers cut short, projectors, switches of their configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flopkit.models.files.config_fields import ACTS, Fields
from flopkit.models.model import Model
from flopkit.models.stacks.ends import Dense, End, EndNorm
from flopkit.sizes import choice, divides, number, short, size

__all__ = ["act_of", "as_far_as", "handed", "merger", "read_layers", "square", "taken", "then", "width_of"]


def as_far_as(whole: Model, layers: Any, norm: bool) -> Model:
    """The first *layers* of a tower, and the *norm* behind them; the parameters of the rest are there, and do no work."""
    if not 0 < layers <= whole.layers:
        raise ValueError(f"{whole.name}: {layers} layers are read of {whole.layers}")
    part = replace(whole, blocks=((whole.blocks[0][0], layers),), ends=(), final_norm=whole.final_norm and norm)
    unread = whole.params - part.params
    return replace(part, unused=part.unused + unread)


def then(model: Model, *ends: End) -> Model:
    """A tower, and what stands behind it."""
    return replace(model, ends=(*model.ends, *ends))


def act_of(c: Fields, key: str) -> str:
    """The activation of a projector."""
    return ACTS[choice(key, c.get(key, "gelu"), tuple(ACTS))]


def taken(c: Fields, key: str, usual: int) -> Any:
    """A whole number under *key*; where it is missing, what transformers takes, which is noted."""
    if c.get(key) is None:
        c.taken[key] = usual
        return usual
    return c.need(key)


def read_layers(c: Fields, whole: Model, usual: Any) -> tuple[int, int]:
    """How many layers of a tower run, and the outputs of how many of them stand side by side: what ``vision_feature_layer`` says.

    A number is a place among the outputs of the embedding and of all layers, counted from the end where it is negative.
    """
    said = c.get("vision_feature_layer", usual)
    places = list(said) if isinstance(said, list | tuple) else [said]
    layers = number("layers", whole.layers)
    for place in places:
        if isinstance(place, bool) or not isinstance(place, int) or not -layers - 1 <= place <= layers:
            raise ValueError(f"vision_feature_layer={short(said)}: {short(place)} is no place among {layers} layers")
    return max(place % (layers + 1) for place in places), len(places)


def width_of(key: str, made: Any, width: Any) -> Any:
    """Features that a picture part makes, which are those of the decoder."""
    if made != width:
        raise ValueError(f"{key}={short(made)} beside a decoder of {short(width)} features")
    return made


def square(key: str, side: Any) -> int:
    """Patches of a square of so many on a side, which become one token."""
    return int(number(key, size(key, side))) ** 2


def handed(model: Model, group: int) -> Any:
    """Tokens of an image of fixed size, of which each is a square of *group* patches."""
    assert model.patches is not None and model.patches.grid is not None
    side, wide = model.patches.grid
    edge = round(group**0.5)
    if side != wide:
        raise ValueError(f"{model.name}: {side}×{wide} patches are no square")
    divides("patches of a token, on a side", edge, "patches of a side", side)
    return (side // edge) ** 2


def merger(d: Any, group: int, width: Any, norm: str, name: str = "merger", after: bool = False) -> tuple[End, ...]:
    """A norm and two dense layers that make one token of *group*; *after*: the norm is of these together."""
    normed = EndNorm(name=f"{name}_norm", norm=norm, width=group * d if after else d, group=group if after else 1)
    return (normed, Dense(name=name, d_in=group * d, widths=(group * d, width), act="gelu", group=group, place="after"))
