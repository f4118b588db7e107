"""A small configuration of each family, in a file for each kind of family.

``SMALL``: the configuration; ``CLASSES``: transformers' class for it, where it is not that of a decoder; ``INPUTS``: what its forward pass takes,
where that is more than tokens; ``BEYOND``: FLOPs that transformers' code does beside the algorithm; ``HARMLESS``: keys that change nothing of what
is counted, and why; ``DEVICES``: types whose code asks for values, and so cannot run on meta; ``NOT_ON_META``: tasks whose class does not run on
meta, of which parameters alone are compared; ``CAST``: types of which some parameters have to
be brought to bf16, and why; ``EAGER``: types whose attention is written out; ``NOT_BY_LAYER``: types whose layers cannot be laid beside transformers' one by one.
"""

from collections import ChainMap
from importlib import import_module
from pathlib import Path

FILES = [
    import_module(f"family_samples.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))
    if path.stem != "sizes"
]


def merged(name):
    """The entries of all files under *name*; what two files say of one type counts as a mistake."""
    found = [vars(each)[name] for each in FILES if name in vars(each)]
    keys = [key for each in found for key in each]
    assert len(keys) == len(set(keys)), name
    return dict(ChainMap(*found))
