"""Models from the ``config.json`` of Hugging Face, read as a plain dictionary: no library is needed, and nothing is guessed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flopkit.models.architectures import ARCHITECTURES, SAME, WHOLE, tasks
from flopkit.models.architectures.classes import ended, task_of
from flopkit.models.architectures.pictures import pictures_of
from flopkit.models.blocks import Block
from flopkit.models.config_fields import TEXT_PARTS, Fields, left_out
from flopkit.models.config_files import configuration
from flopkit.models.model import Model
from flopkit.models.quantized import formats_in
from flopkit.models.unknown_types import WAY_OUT, UnknownTypeError, unknown_type, without_type
from flopkit.sizes import flag

__all__ = ["families", "from_hf"]


def from_hf(config: Mapping[str, Any] | str | os.PathLike[str], mtp: bool = False) -> Model:
    """The model that a ``config.json`` describes.

    Parameters
    ----------
    config : Mapping[str, Any] or str or os.PathLike[str]
        The configuration as a dictionary; the path of a ``config.json``, of Meta's or Mistral's ``params.json``, of a GGUF
        file, or of a folder with one of them; or a Hub id, ``"org/name"``, whose ``config.json`` is looked up in the local
        cache, then by ``huggingface_hub`` on the Hub. Weights are never read.
    mtp : bool, optional
        Whether the layer for multi-token prediction is there, which training has and inference may leave out.

    Returns
    -------
    Model
        Of one of `flopkit.models.families`.

    Raises
    ------
    ValueError
        For a ``model_type`` that is not known, with a way out; for a file that is something else; for a field that is
        missing or has a value that is not described here;
        for *mtp* where ``num_nextn_predict_layers`` says that there is no such layer, or more than one.
    TypeError
        For what is neither a dictionary nor a path, a size that is no whole number, a switch that is neither true nor false.
    OSError
        Where there is no such file, and where the Hub does not answer or does not have it.

    Notes
    -----
    The values in a ``config.json`` are taken as they stand. A field that ``transformers`` would fill with a default of its own is an
    error where the model needs it and the default is no rule (size of a head: the width by the heads). Some fields may be missing, heads of
    keys and values and the window among them: then it is what ``transformers`` takes for this family, and ``Model.notes`` says so. For a
    model of text and images the part for text is read. ``quantization_config`` and ``dtype`` (``torch_dtype``) give ``Model.formats``; a
    method that is not read is a note, and then weights count as if they were not quantised.

    Examples
    --------
    >>> config = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    ...           "num_hidden_layers": 32, "num_attention_heads": 32}
    >>> from_hf(config).params
    6738415616
    """
    given = configuration(config)
    with given.naming():
        model = _read(given.config, mtp)
    return given.finished(model)


def _read(config: Mapping[str, Any], mtp: bool) -> Model:
    """The model that a configuration describes, where it is a dictionary with a ``model_type``."""
    whole = config
    config, outer, others = _part_for_text(config)
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise without_type(whole)
    family = SAME.get(kind, kind)
    if family not in ARCHITECTURES:
        raise unknown_type(kind, whole, {*ARCHITECTURES, *SAME})
    task = task_of(outer, config.get("architectures"))
    c = Fields(config, kind, left_out(kind, family))
    model = ended(
        ARCHITECTURES[family](c, str(config.get("_name_or_path") or kind)), kind, task, tasks(family), lambda: c.labels
    )
    if outer != kind and not model.causal:
        why = f"its part for text, a {kind!r}, is no decoder, and nothing by itself"
        raise UnknownTypeError(f"model_type={outer!r} is not described here: {why}; {WAY_OUT}")
    if c.fields.get("is_causal") is not None and not c.flag("is_causal"):
        model = replace(model, causal=False)
    notes = [f"{key} is missing: {value}, as transformers takes it" for key, value in c.taken.items()]
    if others:
        pictures = pictures_of(whole, model.d_model)
        if pictures is None:
            notes.append(f"the part for text of a {outer}: {', '.join(others)} is not counted")
        else:
            model = replace(model, pictures=pictures)
            counted = f"vision_config, {pictures.params:,} parameters, is Model.pictures, and not counted here"
            notes.append(f"the part for text of a {outer}: {counted}")
            if more := [key for key in others if key != "vision_config"]:
                notes.append(f"{', '.join(more)} is not counted")
    formats, more = formats_in(whole, model, config)
    notes += more
    last = _mtp_layer(c, model) if flag("mtp", mtp) else model.mtp
    return replace(model, formats=formats, notes=(*model.notes, *notes), mtp=last)


def _part_for_text(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, list[str]]:
    """The configuration of the part for text, the ``model_type`` of the whole, and the parts that are left out."""
    outer = config.get("model_type")
    outer = outer if isinstance(outer, str) else ""
    others = [
        key
        for key, value in config.items()
        if key.endswith("_config") and isinstance(value, Mapping) and "hidden_size" in value
    ]
    if SAME.get(outer, outer) in ARCHITECTURES:
        return config, outer, [] if SAME.get(outer, outer) in WHOLE else others
    inside = next((key for key in TEXT_PARTS if isinstance(config.get(key), Mapping)), None)
    if inside is None:
        return config, outer, []
    left = [
        key
        for key, value in config.items()
        if key.endswith("_config") and isinstance(value, Mapping) and key not in (inside, "quantization_config")
    ]
    above = {key: config[key] for key in ("tie_word_embeddings", "architectures", "_name_or_path") if key in config}
    inner, _, more = _part_for_text({"model_type": TEXT_TYPES.get(outer), **config[inside]} | above)
    return inner, outer or str(inner.get("model_type")), left + more


TEXT_TYPES = {"llava": "llama", "llava_next": "llama", "mistral3": "mistral"}
"""The ``model_type`` of the part for text, where a file leaves it out."""


def _mtp_layer(c: Fields, model: Model) -> Block:
    """The layer for multi-token prediction, which is like the last one."""
    layers = (
        c.fields.get("num_nextn_predict_layers", c.fields.get("num_mtp_layers")) or 0
    )  # a file that has one says so
    if layers == 1:
        return model.blocks[-1][0]
    raise ValueError(
        "mtp=True: there is no layer for multi-token prediction"
        if not layers
        else f"num_nextn_predict_layers={layers!r}: more than one layer for multi-token prediction is not described here"
    )


def families() -> list[str]:
    """The values of ``model_type`` that `from_hf` reads, each family once (it knows kimi_k2 for a deepseek_v3).

    >>> "llama" in families()
    True
    """
    return sorted(ARCHITECTURES)
