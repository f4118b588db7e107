"""Which head a file asks for: ``architectures`` names a class, and a class's ending says what stands behind the last layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from flopkit.models.files.config_fields import class_names
from flopkit.models.files.unknown_types import BESIDE, WAY_OUT, UnknownTypeError, draft_model
from flopkit.models.model import Model
from flopkit.models.stacks.heads import Head
from flopkit.names import plain
from flopkit.sizes import short

__all__ = ["DECODER", "Tasks", "beginnings", "ended", "headless", "not_the_decoder_alone", "task_of", "with_head"]

Tasks: TypeAlias = Mapping[str, Callable[[Model, int], Model]]
"""What a family's classes end in, by task, each with what it makes of the model and the number of labels; the first where no class is named."""

ENDINGS = {
    "ForCausalLM": "text", "LMHeadModel": "text", "WithLMHeadModel": "text", "MTModel": "text", "ForConditionalGeneration": "text",
    "ForMaskedLM": "mlm", "ForPreTraining": "pretraining", "ForNextSentencePrediction": "next", "ForSequenceClassification": "sequence",
    "ForImageClassification": "image", "ForTokenClassification": "token", "ForQuestionAnswering": "answer",
    "ForMultipleChoice": "choice", "ForCTC": "ctc", "EncoderModel": "encoder", "DoubleHeadsModel": "two heads", "ChatModel": "text",
    "TextModel": "none", "Model": "none",
    "VisionModel": "none", "ForImageClassificationWithTeacher": "teacher", "ForObjectDetection": "detection",
    "TextModelWithProjection": "projection", "VisionModelWithProjection": "projection",
}  # fmt: skip
"""What the name of a class ends in, and the task it is for; longer endings come first."""

_LABELLED = ("sequence", "image", "token", "answer", "pretraining")
"""Tasks whose head is as wide as the file has labels."""

OTHER_NAMES = {
    "mpt": ("MPT",), "falcon": ("RW",), "RefinedWeb": ("RW", "Falcon"), "RefinedWebModel": ("RW", "Falcon"), "phi-msft": ("Phi",),
    "stablelm": ("StableLmEpoch", "StableLMEpoch"), "stablelm_epoch": ("StableLm",), "kimi_k2": ("DeepseekV3",),
    "internvl_chat": ("InternVL",), "llava": ("LlavaLlama",), "ministral3": ("Mistral3",), "new": ("New",), "mllama_text_model": ("Mllama",),
}  # fmt: skip
"""Beginnings of classes that transformers does not have, and that published files name."""


def beginnings(kind: str) -> tuple[str, ...]:
    """How the names of a type's classes begin, transformers' own and others that published files name."""
    return (*class_names(kind), *OTHER_NAMES.get(kind, ()))


def headless(model: Model) -> Model:
    """The same layers with nothing behind them."""
    return replace(model, head="none", head_bias=False, tied=False)


def with_head(model: Model, **head: Any) -> Model:
    """The same layers with another head, whose fields are given."""
    return replace(model, head=Head(**head), head_bias=False, tied=False)


DECODER: Tasks = {
    "text": lambda model, labels: model,
    "none": lambda model, labels: headless(model),
    "sequence": lambda model, labels: with_head(model, outputs=labels),
    "token": lambda model, labels: with_head(model, outputs=labels, bias=True),
    "answer": lambda model, labels: with_head(model, outputs=2, bias=True),
}
"""Decoders of transformers: all labels are products of every token, the sequence's, too."""


def task_of(kind: str, architectures: Any) -> str:
    """The task of the class that a file names; empty where it names none.

    Raises
    ------
    ValueError
        For a class of another ``model_type``, or one whose name says no task.

    Examples
    --------
    >>> task_of("bert", ["BertForSequenceClassification"]), task_of("llama", None)
    ('sequence', '')
    """
    if not architectures:
        return ""
    if not isinstance(architectures, list | tuple) or not all(isinstance(each, str) for each in architectures):
        raise TypeError(f"architectures={short(architectures)}: must be a list of names of classes")
    name = architectures[0].rpartition(".")[2]
    ending = next((each for each in sorted(ENDINGS, key=len, reverse=True) if name.endswith(each)), None)
    if re.search("eagle|draft|medusa|speculator", name.lower()):
        raise ValueError(draft_model(list(architectures)))
    known = beginnings(kind)
    begin = name.removesuffix(ending or "")
    mine = begin in known or plain(begin) == plain(kind)
    if ending is None or (not mine and any(plain(begin).startswith(plain(each)) for each in (*known, kind))):
        raise ValueError(f"architectures={short(architectures)}: this class of {kind} is not described here; {BESIDE}")
    if not mine:
        other = f"a class of model_type={kind!r} begins with {' or '.join(known) or kind}"
        raise ValueError(f"architectures={short(architectures)}: {other}; correct the one that is wrong")
    return ENDINGS[ending]


def not_the_decoder_alone(model: Model, kind: str, architectures: Any) -> None:
    """Refuse the class that keeps only the decoder of an encoder-decoder, whose layers here always read an encoder.

    Raises
    ------
    UnknownTypeError
        For ``"WhisperForCausalLM"`` and its like, with the way out.

    Examples
    --------
    >>> not_the_decoder_alone(Model(name="gpt", d_model=8, vocab=10, blocks=()), "gpt2", ["GPT2LMHeadModel"])
    """
    if model.encoder is not None and architectures and architectures[0].endswith("ForCausalLM"):
        raise UnknownTypeError(
            f"architectures={short(architectures)}: the decoder of a {kind} by itself is not described here; {WAY_OUT}"
        )


def ended(model: Model, kind: str, task: str, tasks: Tasks, labels: Callable[[], int]) -> Model:
    """*model* with the head of a *task*; empty: the first of the family's *tasks*."""
    if task and task not in tasks:
        known = ", ".join(dict.fromkeys(ending for ending, each in ENDINGS.items() if each in tasks))
        raise ValueError(f"architectures: this class of {kind} is not described here; classes that end in {known} are")
    task = task or next(iter(tasks))
    return tasks[task](model, labels() if task in _LABELLED else 0)
