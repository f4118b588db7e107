"""The formulas that docstrings print, evaluated: each gives what the function gives."""

import inspect
import random
import re

import pytest
from formulas import FORMULAS

WHAT = {"FLOPs": "flops", "Vector FLOPs": "vector_flops", "Bytes": "bytes", "Parameters": "params"}
# What is a part of the whole, and what no size stands for.
IN_PART = {
    ("multi_head_attention", "FLOPs"),
    ("moe", "FLOPs"),
    ("embedding", "Bytes"),
    ("activation relu", "Vector FLOPs"),
}
WITH = {("dense", "Vector FLOPs"): {"bias": True}}
NUMBER = 2  # bytes of a number in bf16


def printed():
    """(name, what, formula) of every formula, once for each function."""
    functions = {}
    for name, formula in FORMULAS.items():
        functions.setdefault(formula.function, name)
    for function, name in functions.items():
        text = re.sub(r"\s+", " ", inspect.getdoc(function))
        head = re.match(r"[^.]*?: ``([^`]+)`` FLOPs", text)
        found = [("FLOPs", head[1])] if head else []
        found += re.findall(r"(?<![\w] )(Vector FLOPs|FLOPs|Bytes|Parameters): ``([^`]+)``", text)
        found += [("Vector FLOPs", each) for each in re.findall(r"FLOPs: none\. Vector FLOPs: ``([^`]+)``", text)]
        yield from ((name, what, formula) for what, formula in dict(reversed(found)).items())


PRINTED = sorted(printed())


def value(name, what, formula, seed):
    """(what is printed, what is computed) at sizes that are drawn."""
    about, given = FORMULAS[name], WITH.get((name, what), {})
    sizes = about.draw(random.Random(seed), 12)
    known = {key: one.default for key, one in inspect.signature(about.function).parameters.items()} | sizes | given
    known |= {"pairs": known.get("q", 0) * known.get("kv", 0)}  # of the mask that hides nothing
    for key, other in {"kv_heads": "heads", "v_head_dim": "head_dim", "kv_new": "kv"}.items():
        if known.get(key, 0) is None:
            known[key] = known[other]
    if "kernel" in sizes:
        known |= {f"k_{axis}": sizes["kernel"] for axis in "dhw"}
    printed = eval(formula.replace("·", "*").replace("−", "-"), {}, known)
    return printed * (NUMBER if what == "Bytes" else 1), getattr(about.cost(sizes, **given), WHAT[what])


@pytest.mark.parametrize(("name", "what", "formula"), [each for each in PRINTED if each[:2] not in IN_PART])
def test_a_printed_formula_is_the_one_that_runs(name, what, formula):
    for seed in range(5):
        printed, computed = value(name, what, formula, seed)
        assert printed == computed


def test_the_search_finds_what_it_should():
    found = {each[:2] for each in PRINTED}
    assert IN_PART | WITH.keys() <= found
    assert {
        ("matmul", "Bytes"),
        ("conv1d", "FLOPs"),
        ("conv3d", "FLOPs"),
        ("attention", "FLOPs"),
        ("softmax", "Vector FLOPs"),
    } <= found
    assert len(found - IN_PART) >= 30
    printed, computed = value("matmul", "FLOPs", "3·batch·m·k·n", 0)
    assert printed != computed
