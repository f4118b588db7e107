"""Models from the ``config.json`` of Hugging Face, read as a plain dictionary: no library is needed, and nothing is guessed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flopkit.models.architectures import ARCHITECTURES, SAME, tasks
from flopkit.models.architectures.classes import ended, not_the_decoder_alone, task_of
from flopkit.models.architectures.pictures import pictures_of
from flopkit.models.checkpoints.quantized import formats_in
from flopkit.models.files.config_fields import TIED, Fields, left_out
from flopkit.models.files.config_files import configuration
from flopkit.models.files.misnamed import SAME_SIZE, in_other_words
from flopkit.models.files.text_parts import part_for_text, says
from flopkit.models.files.unknown_types import WAY_OUT, UnknownTypeError, unknown_type, without_type
from flopkit.models.model import Model
from flopkit.models.stacks import passes
from flopkit.models.stacks.blocks import Block
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
    keys and values and the window among them: then it is what ``transformers`` takes for this family. ``Model.notes`` says so of sizes and
    of ``tie_word_embeddings``; of other switches and of words (a bias, an activation) it does not. For a
    model of text and images the part for text is read. ``quantization_config`` and ``dtype`` (``torch_dtype``) give ``Model.formats``; a
    method that is not read is a note, and then bytes of weights are refused where no *weights* are given.

    Examples
    --------
    >>> config = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    ...           "num_hidden_layers": 32, "num_attention_heads": 32}
    >>> from_hf(config).params
    6738415616
    """
    given = configuration(config)
    with given.naming():
        if isinstance(config, (str, os.PathLike)):
            _whole_file(given.config)
        model = _read(given.config, mtp)
        _of_one_token(model, given.config.get("model_type"))
    return given.finished(model)


def _of_one_token(model: Model, kind: Any) -> None:
    """Refuse sizes of which no layer can be made, while it is known where they stand."""
    try:
        passes.token(model)
    except ValueError as error:
        raise ValueError(f"model_type={kind!r}: these sizes cannot be built: {error}") from None


def _whole_file(config: Mapping[str, Any]) -> None:
    """Refuse a file that names a type and none of its sizes."""
    kind = config.get("model_type")
    sizes = left_out(kind, SAME.get(kind, kind)) if isinstance(kind, str) else {}
    known = {*sizes, *(word for words in SAME_SIZE for word in words)}
    if sizes and not any(key in known or isinstance(value, Mapping) for key, value in config.items()):
        raise ValueError(f"model_type={kind!r} stands here without any size: give a whole config.json")


def _read(config: Mapping[str, Any], mtp: bool) -> Model:
    """The model that a configuration describes, where it is a dictionary with a ``model_type``."""
    whole = config
    config, outer, others = part_for_text(config)
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise without_type(whole)
    family = SAME.get(kind, kind)
    if family not in ARCHITECTURES:
        raise unknown_type(kind, whole, {*ARCHITECTURES, *SAME})
    task = task_of(outer if whole.get("architectures") else kind, config.get("architectures"))
    c = Fields(config, kind, left_out(kind, family))
    layers = ARCHITECTURES[family](c, str(config.get("_name_or_path") or kind))
    in_other_words(c)
    not_the_decoder_alone(layers, kind, config.get("architectures"))
    known = tasks(family)
    if outer == "qwen3_asr":  # its aligner's head has no bias
        known = {**known, "token": known["sequence"]}
    model = ended(layers, kind, task, known, lambda: c.labels)
    if outer != kind and not (model.causal and "text" in tasks(family)):
        why = f"its part for text, a {kind!r}, is no decoder, and nothing by itself"
        raise UnknownTypeError(f"model_type={outer!r} is not described here: {why}; {WAY_OUT}")
    if c.fields.get("is_causal") is not None and not c.flag("is_causal"):
        _no_windows(model)
        model = replace(model, causal=False)
    if TIED in config and not says(whole, TIED):
        c.taken[TIED] = config[TIED]
    taken = {key: value for key, value in c.taken.items() if key != TIED or model.head != "none"}
    notes = [f"{key} is missing: {value}, as transformers takes it" for key, value in taken.items()]
    if others:
        pictures = pictures_of(whole, model.d_model)
        if pictures is None:
            notes.append(f"the part for text of a {outer}: {', '.join(others)} is not counted")
        else:
            model = replace(model, pictures=pictures)
            counted = f"vision_config, {pictures.params:,} parameters, is Model.pictures, and not counted here"
            notes.append(f"the part for text of a {outer}: {counted}")
            if rest := [key for key in others if key != "vision_config"]:
                notes.append(f"{', '.join(rest)} is not counted")
    elif outer != kind:
        notes.append(f"the part for text of a {outer}: what the model has beside it is not counted")
    if outer == "paligemma":
        notes.append("pictures and prompts, which see each other in both directions, count as causal, as answers are")
    formats, more = formats_in(whole, model, config)
    notes += more
    last = _mtp_layer(c, model) if flag("mtp", mtp) else model.mtp
    return replace(model, formats=formats, notes=(*model.notes, *notes), mtp=last)


def _no_windows(model: Model) -> None:
    """Refuse layers that see a part of the tokens before them, where those after them are not hidden."""
    for block, _ in model.blocks:
        for what in ("window", "chunk"):
            if (width := getattr(block.mixer, what, None)) is not None:
                raise ValueError(
                    f"is_causal=False beside a {what} of {width} tokens: what such layers see is not described here"
                )


def _mtp_layer(c: Fields, model: Model) -> Block:
    """The layer for multi-token prediction, which is like the last one where a reader does not say another."""
    keys = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
    layers = next((found for key in keys if (found := c.fields.get(key)) is not None), 0)  # a file that has one says so
    last = c.mtp or model.blocks[model.order[-1] if model.order else -1][0]
    if layers == 1 and (last.mixer is None or last.mlp is None):
        raise ValueError(
            "mtp=True: what the layer for multi-token prediction of this model consists of is not described here"
        )
    if layers == 1:
        return last
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
