"""Vega's expression language, as far as flopkit's formulas use it: a strict reading in Python, and Vega itself."""

from __future__ import annotations

import ast
import html
import math
import operator
import re
from typing import Any

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
COMPARISONS = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
FUNCTIONS = {"max": max, "min": min, "ceil": math.ceil, "floor": math.floor, "pow": math.pow, "log": math.log}


def evaluate(expression: str, signals: dict[str, float]) -> float:
    """The value of *expression*, every number a double as in JavaScript. Raises on anything formulas do not use."""
    tree = ast.parse(re.sub(r"\bif\(", "if_(", expression), mode="eval")

    def value(node: ast.AST) -> Any:
        if isinstance(node, ast.Expression):
            return value(node.body)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(node.value)
        if isinstance(node, ast.Name):
            return float(signals[node.id])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            return COMPARISONS[type(node.ops[0])](value(node.left), value(node.comparators[0]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            arguments = [value(argument) for argument in node.args]
            if node.func.id == "if_":
                return arguments[1] if arguments[0] else arguments[2]
            return float(FUNCTIONS[node.func.id](*arguments))
        raise ValueError(f"{ast.dump(node)} in {expression!r} is no part of the language that formulas use")

    return value(tree)


def in_vega(signals: dict[str, float], expressions: list[str]) -> list[float]:
    """What Vega itself makes of *expressions*: one drawing, a line of text for each."""
    import vl_convert

    spec = {
        "$schema": "https://vega.github.io/schema/vega/v6.json",
        "signals": [{"name": name, "value": value} for name, value in signals.items()]
        + [{"name": f"result_{i}", "update": expression} for i, expression in enumerate(expressions)],
        "marks": [
            {"type": "text", "encode": {"enter": {"text": {"signal": f"'<' + {i} + '=' + result_{i} + '>'"}}}}
            for i in range(len(expressions))
        ],
    }
    drawn = html.unescape(vl_convert.vega_to_svg(spec))
    results = {int(i): float(number) for i, number in re.findall(r"<(\d+)=([^>]*)>", drawn)}
    return [results[i] for i in range(len(expressions))]
