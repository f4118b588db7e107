"""Configurations of published models, as their ``config.json`` spells them, each with its source."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from flopkit.names import find

__all__ = ["config_names", "config_source", "hf_config"]

_FOLDER = files("flopkit") / "data" / "hf_configs"


def config_names() -> list[str]:
    """The models whose configuration is known.

    >>> config_names()
    ['deepseek-v3', 'llama-3-70b', 'llama-3-8b', 'mixtral-8x7b']
    """
    return sorted(entry.name.removesuffix(".json") for entry in _FOLDER.iterdir() if entry.name.endswith(".json"))


def hf_config(name: str) -> dict[str, Any]:
    """The configuration of *name*, for ``transformers.AutoConfig.for_model(**config)``.

    Parameters
    ----------
    name : str
        One of `config_names`; case, spaces, ``_``, ``-`` and ``.`` do not matter.

    Raises
    ------
    ValueError
        For a model that is not known, with near names.
    TypeError
        For what is no name.

    Examples
    --------
    >>> config = hf_config("Llama 3 70B")
    >>> config["num_hidden_layers"], config["num_key_value_heads"]
    (80, 8)
    """
    return dict(_entry(name)["config"])


def config_source(name: str) -> str:
    """Where the values of `hf_config` were read, and when.

    >>> config_source("deepseek-v3").split(",")[0]
    'transformers 5.23.0'
    """
    entry = _entry(name)
    return f"{entry['source']} ({entry['retrieved']})"


def _entry(name: str) -> dict[str, Any]:
    found = find(name, config_names(), "a model whose configuration is known")
    return dict(json.loads((_FOLDER / f"{found}.json").read_text("utf-8")))
