"""Configurations of published models, as their ``config.json`` spells them, each with its source."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from flopkit.names import find

__all__ = ["config_names", "config_source", "hf_config"]


def config_names() -> list[str]:
    """The models whose configuration is known.

    >>> config_names()[:3]
    ['all-minilm-l6-v2', 'all-mpnet-base-v2', 'apertus-70b']
    """
    return sorted(_entries())


def hf_config(name: str) -> dict[str, Any]:
    """The configuration of *name*, for ``transformers.AutoConfig.for_model(**config)``: the fields that sizes and counts depend on.

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
    config: dict[str, Any] = json.loads(json.dumps(_entry(name)["config"]))  # the reader's own, lists in it too
    return config


def config_source(name: str) -> str:
    """Where the values of `hf_config` were read, and when.

    >>> config_source("deepseek-v3").split(",")[0]
    'transformers 5.23.0'
    """
    entry = _entry(name)
    return f"{entry['source']} ({entry['retrieved']})"


def _entry(name: str) -> dict[str, Any]:
    found: dict[str, Any] = _entries()[find(name, _entries(), "a model whose configuration is known")]
    return found


@cache
def _entries() -> dict[str, Any]:
    return dict(json.loads(files("flopkit").joinpath("data/hf_configs.json").read_text("utf-8")))
