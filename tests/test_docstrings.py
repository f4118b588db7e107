"""Docstrings say what the code says: their sections are numpydoc's, their parameters and types are the signature's."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import pytest
from formulas import public_formulas
from numpydoc.docscrape import NumpyDocString

import flopkit as fk

GIVEN = ("Report", "UncountedError")  # a function gives them; nobody calls them
EXPLAINED = (
    "arithmetic",
    "sizes",
    "dtypes",
    "conventions",
    "cost",
    "tables",
    "layers",
    "training",
    "tally",
    "recordings",
)
PUBLIC = {name: thing for name in fk.__all__ if callable(thing := getattr(fk, name)) and name not in GIVEN}


def modules():
    for found in pkgutil.walk_packages(fk.__path__, "flopkit."):
        if "gallery" not in found.name and not found.ispkg:
            yield importlib.import_module(found.name)


def callables():
    """Functions, classes and their methods that are written in flopkit and have a docstring, by their full names."""
    for module in modules():
        for name, thing in vars(module).items():
            if (inspect.isfunction(thing) or inspect.isclass(thing)) and thing.__module__ == module.__name__:
                yield f"{module.__name__}.{name}", thing
                for inner, method in vars(thing).items() if inspect.isclass(thing) else ():
                    method = getattr(method, "__func__", method)  # of a class method
                    if inspect.isfunction(method):
                        yield f"{module.__name__}.{name}.{inner}", method


DOCUMENTED = {name: thing for name, thing in callables() if thing.__doc__}
LISTED = [name for name, thing in DOCUMENTED.items() if "Parameters\n" in inspect.getdoc(thing)]
EXAMPLES = [
    name
    for name, thing in DOCUMENTED.items()
    if name.split(".")[1] in EXPLAINED
    and inspect.isfunction(thing)
    and name.rpartition(".")[2] in getattr(inspect.getmodule(thing), "__all__", ())
]


def listed(thing):
    """The docstring's parameters one by one: name, type and description."""
    entries = NumpyDocString(inspect.getdoc(thing))["Parameters"]
    return [(name, entry.type, " ".join(entry.desc)) for entry in entries for name in entry.name.split(", ")]


def others(thing):
    """The parameters that a docstring leaves to another one: of a class, to its base; of a function, to one of its room,
    where the other's are the same."""
    refers = re.search(r"The other parameters are those of `(\w+)`\.", " ".join(inspect.getdoc(thing).split()))
    if refers is None:
        return set()
    if inspect.isclass(thing):
        assert refers[1] == thing.__base__.__name__
        return set(thing.__base__.__dataclass_fields__)
    room = ".".join(thing.__module__.split(".")[:2])
    other = getattr(importlib.import_module(room), refers[1], None) or getattr(fk, refers[1])
    named = {name for name, *_ in listed(other)}
    mine, theirs = inspect.signature(thing).parameters, inspect.signature(other).parameters
    same = {name for name in mine.keys() & theirs.keys() & named if mine[name] == theirs[name]}
    return same - {name for name, *_ in listed(thing)}


def expected(thing):
    """The signature's parameters: name, with its stars, and type, as it is annotated; but for those that are described elsewhere."""
    elsewhere = others(thing)
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.name in ("self", "cls", *elsewhere) or parameter.name.startswith("_"):
            continue
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        annotation = str(parameter.annotation).strip("'\"")
        if parameter.default is not parameter.empty:
            annotation = annotation.removesuffix(" | None") + ", optional"
        yield stars + parameter.name, annotation


def problems(thing):
    found, wanted = listed(thing), list(expected(thing))
    if [name for name, _, _ in found] != [name for name, _ in wanted]:
        return [f"lists {[name for name, _, _ in found]}, takes {[name for name, _ in wanted]}"]
    wrong = [
        f"{n}: {t!r} is {w!r}" for (n, t, _), (_, w) in zip(found, wanted, strict=True) if t.replace(" or ", " | ") != w
    ]
    return wrong + [f"{n}: {d!r} is no sentence" for n, _, d in found if not re.match(r"[^a-z].*[.?]$", d)]


@pytest.mark.parametrize("name", sorted({*LISTED, *(f"fk.{name}" for name in PUBLIC)}))
def test_parameters_are_those_of_the_signature(name):
    thing = PUBLIC[name.removeprefix("fk.")] if name.startswith("fk.") else DOCUMENTED[name]
    if inspect.signature(thing).parameters:
        assert problems(thing) == []


@pytest.mark.parametrize("name", sorted({*EXAMPLES, *(f"fk.{name}" for name in PUBLIC)}))
def test_every_public_function_has_an_example(name):
    thing = PUBLIC[name.removeprefix("fk.")] if name.startswith("fk.") else DOCUMENTED[name]
    assert ">>> " in inspect.getdoc(thing)


def test_what_has_a_section_is_no_running_text():
    """What raises, what it is from and what comes back stand under headings."""
    loose = re.compile(r"^(Raises |Source: |Returns (?!-))", re.M)
    assert [name for name, thing in DOCUMENTED.items() if loose.search(inspect.getdoc(thing))] == []


@pytest.mark.parametrize("name", sorted(public_formulas()))
def test_every_formula_says_what_it_counts_and_what_not(name):
    text = inspect.getdoc(public_formulas()[name])
    if sibling := re.search(r"See Also\n-+\n(\w+)", text):  # which says the rest
        assert "FLOPs" in text
        text += inspect.getdoc(public_formulas()[sibling[1]])
    for part in ("FLOPs:", "Bytes", "Parameters", "Not counted:", "Raises\n"):
        assert part in text, f"{name} does not say {part}"


def example(tokens: fk.Cost, *, bias: bool = False) -> None:
    """An example.

    Parameters
    ----------
    tokens : Cost
        Rows.
    bias : bool, optional
        Whether there is one.
    """


@pytest.mark.parametrize(
    "was, becomes",
    [
        ("bias : bool, optional", "biased : bool, optional"),
        ("bias : bool, optional", "bias : bool"),
        ("bias : bool, optional", "bias : str, optional"),
        ("Whether there is one.", "whether there is one."),
        ("Whether there is one.", "Whether there is one"),
        ("tokens : Cost\n        Rows.\n    ", ""),
    ],
)
def test_what_is_wrong_is_seen(monkeypatch, was, becomes):
    monkeypatch.setattr(example, "__annotations__", {**example.__annotations__, "tokens": "Cost"})
    assert problems(example) == []
    monkeypatch.setattr(example, "__doc__", example.__doc__.replace(was, becomes))
    assert problems(example) != []


@pytest.mark.parametrize(
    "is_there",
    [
        "The other parameters are those of `capacity`.",
        "device : Any\n        A name or a `Device`.\n    ",  # capacity may be given none
    ],
)
def test_what_another_docstring_does_not_say_is_missed(monkeypatch, is_there):
    thing = fk.serving.largest_batch
    assert problems(thing) == [] and is_there in thing.__doc__
    monkeypatch.setattr(thing, "__doc__", thing.__doc__.replace(is_there, ""))
    assert problems(thing) != []
