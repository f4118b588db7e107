"""The lists of the page "Models that are read", from the readers themselves and from the
samples by which tests compare each of them with transformers."""

import sys
from functools import partial
from pathlib import Path

from book_ext.markdown_table import table
from flopkit.models import architectures
from flopkit.models.architectures.classes import ENDINGS
from flopkit.models.architectures.pictures import picture_types
from flopkit.models.files import text_parts

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "models"))
import picture_samples
from family_samples import merged

SAID = {  # what a class is for, in the order of the column
    "text": "text", "mlm": "masked words", "pretraining": "pretraining", "none": "no head", "sequence": "labels of sequences",
    "token": "labels of tokens", "answer": "answers", "choice": "choices", "image": "labels of images", "ctc": "letters of sound",
}  # fmt: skip


def count():
    """How many values of ``model_type`` are read."""
    shown = {name for value in globals().values() if isinstance(value, partial) for name in value.args}
    if missing := {module.__name__.rpartition(".")[2] for module in architectures.MODULES} - shown:
        raise ValueError(f"in no section of the page: {missing}; add a section, or the name to one")
    names = {*architectures.ARCHITECTURES, *architectures.SAME}
    more = _wholes() - names
    return (
        f"**{len(names) + len(more)} values of `model_type` are read**, {len(architectures.ARCHITECTURES)} of them by a description of their own, "
        f"{len(names) - len(architectures.ARCHITECTURES)} by that of another name. The other {len(more)} are models of text and more, such as `llava`: "
        "of these the part for text is read."
    )


def _section(*modules):
    """The families of some modules of readers: which have the same classes, and what is left out of the count."""
    files = [getattr(architectures, module) for module in modules]
    kinds = sorted({kind for module in files for name in ("NUMBERS", "MODELS") for kind in getattr(module, name, {})})
    groups = {}
    for kind in kinds:
        tasks = architectures.tasks(kind)
        groups.setdefault(", ".join(said for task, said in SAID.items() if task in tasks), []).append(kind)
    rows = [["`model_type`", "classes for"]]
    for classes, members in sorted(groups.items(), key=lambda group: -len(group[1])):
        rows.append([", ".join(map(_with_others, members)), classes])
    remarks = {}
    for kind in kinds:
        for remark in _apart(kind):
            remarks.setdefault(remark, []).append(f"`{kind}`")
    lines = [f"- {', '.join(members)}: {remark}" for remark, members in remarks.items()]
    return "\n".join([table(rows, left=2), "", *lines])


def _with_others(kind):
    others = sorted(other for other, family in architectures.SAME.items() if family == kind)
    return f"`{kind}`" + (f" (also {', '.join(f'`{each}`' for each in others)})" if others else "")


rms_norms = partial(_section, "decoders", "layer_by_layer", "relatives")
layer_norms = partial(_section, "gpts", "parallel")
remote_code = partial(_section, "remote")
other_attention = partial(_section, "sparse", "compressed", "alternating", "crossed")
states = partial(_section, "recurrent", "hybrids", "linear")
text_encoders = partial(_section, "encoders", "rotary_encoders")
encoder_decoders = partial(_section, "seq2seq")
picture_encoders = partial(_section, "vision", "stages")
sound_encoders = partial(_section, "sound")
two_towers = partial(_section, "dual")


def wholes():
    """The models of which the part for text is read."""
    return ", ".join(f"`{name}`" for name in sorted(_wholes()))


def _wholes():
    names = {*text_parts.TEXT_TYPES, *text_parts.FLAT}
    return names | {kind.removesuffix("_text") for kind in architectures.ARCHITECTURES if kind.endswith("_text")}


def endings():
    """What the ending of a class's name says."""
    rows = [["a class that ends in", "is read as a model for"]]
    rows += [[f"`{ending}`", SAID.get(task, task)] for ending, task in ENDINGS.items()]
    return table(rows, left=2)


def pictures():
    """One row for the types whose pictures may have any size, and one for the others."""
    rows = [["a pass of `Model.pictures` is for", "`model_type` of the whole"]]
    sizes = {
        "a picture of any size: `seq=` are its patches": True,
        "a picture of one size, or a tile of a picture": False,
    }
    for what, free in sizes.items():
        kinds = [kind for kind in picture_types() if picture_samples.of_any_size(kind) == free]
        rows.append([what, ", ".join(f"`{kind}`" for kind in kinds)])
    return table(rows, left=2)


def _apart(kind):
    found = []
    for kinds, reasons in merged("HARMLESS").items():
        if kind in kinds.split():
            found += [f"{why} ({_keys(keys)})." for why, keys in reasons.items() if "not counted" in why]
    besides = merged("BEYOND").get(kind)
    if besides is not None:
        found.append("in transformers " + " ".join((besides.__doc__ or "").split()))
    return found


def _keys(keys):
    return ", ".join(f"`{key}`" for key in keys.split())
