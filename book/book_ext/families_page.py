"""The tables of the page "Models that are read", from the readers themselves and from the
samples by which tests compare each of them with transformers."""

import sys
from pathlib import Path

from book_ext.markdown_table import table
from flopkit.models import architectures
from flopkit.models.architectures.classes import DECODER, ENDINGS

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "models"))
from family_samples import merged

SAID = {  # what a class is for, in the order of the column
    "text": "text", "mlm": "masked words", "pretraining": "pretraining", "none": "no head", "sequence": "sequences", "token": "tokens",
    "answer": "answers", "choice": "choices", "image": "images",
}  # fmt: skip
UNCOUNTED = "not counted"


def count():
    """How many values of ``model_type`` are read."""
    names = {*architectures.ARCHITECTURES, *architectures.SAME}
    return f"**{len(names)} values of `model_type` are read**, {len(architectures.ARCHITECTURES)} of them by a description of their own."


def families():
    """One row a family: other names, classes, and what is left out of the count."""
    rows = [["`model_type`", "the same layers", "classes", "not counted, or done besides by transformers"]]
    for kind in sorted(architectures.ARCHITECTURES):
        others = sorted(other for other, family in architectures.SAME.items() if family == kind)
        tasks = architectures.tasks(kind)
        classes = ", ".join(said for task, said in SAID.items() if task in tasks)
        if tasks is DECODER:
            classes = "of a decoder"
        rows.append([f"`{kind}`", ", ".join(f"`{each}`" for each in others), classes, "; ".join(_apart(kind))])
    return table(rows, left=4)


def endings():
    """What the ending of a class's name says."""
    rows = [["a class that ends in", "is read as a model for"]]
    rows += [[f"`{ending}`", SAID.get(task, task)] for ending, task in ENDINGS.items()]
    return table(rows, left=2)


def _apart(kind):
    found = []
    for kinds, reasons in merged("HARMLESS").items():
        if kind in kinds.split():
            found += [f"{why.split(' that ')[0]} ({_keys(keys)})" for why, keys in reasons.items() if UNCOUNTED in why]
    besides = merged("BEYOND").get(kind)
    if besides is not None:
        found.append((besides.__doc__ or "").split("\n")[0].rstrip("."))
    return filter(None, found)


def _keys(keys):
    return ", ".join(f"`{key}`" for key in keys.split())
