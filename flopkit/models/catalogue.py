"""The models that flopkit knows by name: ``fk.load("llama-3-8b")``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from os import PathLike
from typing import Any, overload

from flopkit.models.branches.mixers import Attention
from flopkit.models.files.aliases import alias_of
from flopkit.models.files.config_files import is_place
from flopkit.models.files.configs import config_names, config_source, hf_config
from flopkit.models.files.hub import catalogue_name, looks_like_id
from flopkit.models.files.hugging_face import from_hf
from flopkit.models.model import Model
from flopkit.models.transformer import transformer
from flopkit.models.vision import ConvNet, cnn_names
from flopkit.models.vision.networks import Name
from flopkit.names import find, hint, plain
from flopkit.sizes import short

__all__ = ["any_model", "load", "model_names", "the_model"]


def model_names() -> list[str]:
    """The models that `load` knows, sorted: language models, encoders and convolutional networks.

    One that is not among them is read by `from_hf` from its ``config.json``.

    >>> [name for name in model_names() if name.startswith("llama-3-")]
    ['llama-3-70b', 'llama-3-8b']
    >>> "gpt-3-175b" in model_names(), "resnet50" in model_names()
    (True, True)
    """
    return sorted([*config_names(), *_tables()[0], *cnn_names()])


# To a type checker a name that is no literal stands for a transformer, as most do.
@overload
def load(name: Name) -> ConvNet: ...  # type: ignore[overload-overlap]
@overload
def load(name: str, mtp: bool = False) -> Model: ...
def load(name: str, mtp: bool = False) -> Model | ConvNet:
    """A published model by its name.

    Parameters
    ----------
    name : str
        One of `model_names`, or its id on the Hugging Face Hub, with ``-Instruct`` and the like where that is the
        same architecture; case, spaces, ``_``, ``-`` and ``.`` do not matter.
    mtp : bool, optional
        Whether the layer for multi-token prediction is there, which training has and inference may leave out.

    Returns
    -------
    Model or ConvNet
        A transformer, or a convolutional network. Its ``source`` says where the sizes
        were read.

    Raises
    ------
    ValueError
        For a name that is not known, with at most eight near ones and the other ways to a model; for *mtp* of a model that has no such layer.
    TypeError
        For what is no name.

    Examples
    --------
    >>> model = load("Llama 3 8B")
    >>> model.params
    8030261248
    >>> model.forward(seq=8192).flops
    140550657277952
    >>> load("meta-llama/Meta-Llama-3-8B-Instruct") == model
    True
    >>> load("ResNet-50").forward(batch=64).flops
    523415584768
    """
    known = model_names()
    found = (isinstance(name, str) and alias_of(name, known)) or _found(name, known)
    tables, likes = _tables()
    if mtp and found in (*tables, *cnn_names()):
        raise ValueError(f"{found}: mtp=True: there is no layer for multi-token prediction")
    if found in cnn_names():
        return ConvNet(name=found)
    if found in tables:
        numbers = dict(tables[found])
        source, retrieved, like = numbers.pop("source"), numbers.pop("retrieved"), numbers.pop("like", None)
        made = {name: Attention(**each) if name == "attention" else each for name, each in numbers.items()}
        return transformer(name=found, source=f"{source} ({retrieved})", **(likes[like] if like else {}) | made)
    try:
        model = from_hf(hf_config(found), mtp=mtp)
    except ValueError as error:
        raise ValueError(f"{found}: {error}") from None
    return replace(model, name=found, source=config_source(found))


_READ = "a config.json, or what stands in one, is read by fk.from_hf(…)"
_FILE = re.compile(r"[/\\]|\.(json|gguf)$", re.IGNORECASE)


def _found(name: Any, known: list[str]) -> str:
    """The name that is meant, or an error with near ones and the other ways."""
    if isinstance(name, (Mapping, PathLike)):
        raise TypeError(f"name={short(name)}: fk.load takes the name of a model; {_READ}")
    other = name if isinstance(name, str) and looks_like_id(name) else "org/name"
    ways = f"fk.from_hf({other!r}) reads another model's config.json, fk.models.transformer(…) takes its numbers"
    if isinstance(name, str) and (near := catalogue_name(name)) and plain(near) != plain(name):
        raise ValueError(f"name={name!r} is not a known model; did you mean {near}? {ways}")
    if isinstance(name, str) and not looks_like_id(name) and _FILE.search(name):
        raise ValueError(
            f"name={short(name)} looks like the place of a file, and fk.load takes the name of a model; {_READ}"
        )
    if isinstance(name, str) and looks_like_id(name):
        near = hint(name.rpartition("/")[2], known)
        raise ValueError(f"name={name!r} is not a known model; {near}{'' if near.endswith('?') else ';'} {ways}")
    try:
        return find(name, known, "a known model", listed="fk.model_names()")
    except ValueError as error:
        raise ValueError(f"{error}{'' if str(error).endswith('?') else ';'} {ways}") from None


def the_model(model: Any) -> Model:
    """`any_model`, where what is asked needs tokens.

    Raises
    ------
    ValueError
        For a convolutional network, which has none, with what to ask instead.

    Examples
    --------
    >>> the_model("gpt2").params == the_model(hf_config("gpt2")).params
    True
    """
    found = any_model(model)
    if isinstance(found, ConvNet):
        raise ValueError(
            f"{found} reads images: it has no tokens and generates no text; for its MFU: "
            f"fk.mfu(fk.load({found.name!r}).train_step(batch=64), seconds=…, device=…)"
        )
    return found


def any_model(model: Any) -> Model | ConvNet:
    """A model by its name, by its ``config.json`` (its place, or what stands in it), or as it is.

    A Hub id that `load` knows is that model, as in `load`: nothing is asked of the Hub.

    >>> any_model("ResNet-50") == any_model(load("resnet50"))
    True
    >>> any_model("openai/gpt-oss-120b").formats
    Formats: mxfp4 (experts), bf16 (rest)
    """
    if isinstance(model, (Model, ConvNet)):
        return model
    if isinstance(model, str):  # a name is no file that happens to be here
        known = model_names()
        config = plain(model) not in map(plain, known) and not alias_of(model, known) and is_place(model)
    else:
        config = isinstance(model, (Mapping, PathLike))
    return from_hf(model) if config else load(model)


@cache
def _tables() -> tuple[dict[str, Any], dict[str, Any]]:
    """The models that have no config.json, and what several of them share."""
    tables = tomllib.loads(files("flopkit").joinpath("data/models.toml").read_text("utf-8"))
    return tables, tables.pop("like")
