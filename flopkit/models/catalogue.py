"""The models that flopkit knows by name: ``fk.load("llama-3-8b")``."""

from __future__ import annotations

from dataclasses import replace

from flopkit.models.configs import config_names, config_source, hf_config
from flopkit.models.hugging_face import from_hf
from flopkit.models.model import Model
from flopkit.names import find

__all__ = ["load", "model_names"]


def model_names() -> list[str]:
    """The models that `load` knows.

    >>> "llama-3-8b" in model_names()
    True
    """
    return config_names()


def load(name: str, mtp: bool = False) -> Model:
    """A published model by its name.

    Parameters
    ----------
    name : str
        One of `model_names`; case, spaces, ``_``, ``-`` and ``.`` do not matter.
    mtp : bool, optional
        Whether the layers for multi-token prediction are there, which training has and inference may leave out.

    Returns
    -------
    Model
        Its ``source`` says where the sizes were read.

    Raises
    ------
    ValueError
        For a name that is not known, with near ones; for *mtp* of a model that has no such layer.
    TypeError
        For what is no name.

    Examples
    --------
    >>> model = load("Llama 3 8B")
    >>> model.params
    8030261248
    >>> model.forward(seq=8192).flops
    140550657277952
    """
    found = find(name, model_names(), "a known model")
    model = replace(from_hf(hf_config(found)), name=found, source=config_source(found))
    if not mtp:
        return model
    if found != "deepseek-v3":
        raise ValueError(f"mtp=True: {found} has no layer for multi-token prediction")
    return replace(model, mtp=model.blocks[-1][0])
