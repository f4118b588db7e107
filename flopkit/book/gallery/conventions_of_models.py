"""The figure of the page on conventions: a training token of a model under every convention that has a name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from typing import Any

from flopkit.arithmetic import maximum, minimum, reading, vega, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.conventions import EXACT, KINDS, PRESETS, Convention
from flopkit.models import Model, load

__all__ = ["FAMILIES", "alike", "answers", "conventions_compared", "included"]

PASSES = 3  # the products of a training step: one forward pass, and twice as much to go back
MODELS = {
    "Llama-3-8B": "llama-3-8b", "Llama-3-70B": "llama-3-70b", "Llama-3.1-405B": "llama-3.1-405b", "Qwen2.5-7B": "qwen2.5-7b",
    "Qwen3-32B": "qwen3-32b", "Qwen3-30B-A3B": "qwen3-30b-a3b", "Mistral-7B": "mistral-7b", "Mixtral-8x7B": "mixtral-8x7b",
    "Gemma-2-9B": "gemma-2-9b", "Gemma-3-27B": "gemma-3-27b", "OLMo-2-7B": "olmo-2-7b", "gpt-oss-120b": "gpt-oss-120b",
    "DeepSeek-V3": "deepseek-v3", "Kimi-K2": "kimi-k2", "GPT-2": "gpt2", "GPT-3": "gpt-3-175b", "Chinchilla": "chinchilla-70b",
    "PaLM-540B": "palm-540b",
}  # fmt: skip
OF_LENGTH = ("scores", "hidden", "pairs")  # what a token does of these grows with its sequence
CONSTANT = tuple(kind for kind in KINDS if kind not in (*OF_LENGTH, "recompute", "padding"))
LONGEST = 2.3  # of the bars that are drawn whole, in training tokens as EXACT counts them
FAMILIES = (("They add up products", False), ("They start from 6N", True))
SCORES = {(1, 0): "visible", (1, 1): "all", (0.5, 0.5): "half", (0, 0): "none"}
SHARES = {
    "softmax": "pairs", "head": "head", "embedding": "embedding", "tied table twice": "tied", "router": "router", "norms and biases": "vectors",
    "learned positions": "positions", "idle experts": "idle",
}  # fmt: skip


def answers(each: Convention) -> dict[str, str]:
    """What a convention counts beside the products of the layers, by question.

    >>> answers(EXACT)["scores"], answers(EXACT)["softmax"], answers(EXACT)["head"]
    ('visible', '–', '✓')
    """
    shares = {question: "✓" if getattr(each, kind) else "–" for question, kind in SHARES.items()}
    return {"MAC": f"{each.fma}", "scores": SCORES[each.scores, each.hidden], **shares}


def included(each: Convention) -> list[str]:
    """The questions that it answers with yes.

    >>> included(PRESETS["TORCH"])
    ['head', 'router']
    """
    return [question for question, answer in answers(each).items() if answer == "✓"]


def alike(of_parameters: bool) -> dict[str, Convention]:
    """A family's conventions, the names of those with the same answers joined; those of a family start from the number of parameters if they
    count norms like weights.

    >>> list(alike(True))[0]
    'PALM, TORCHTITAN_2024'
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, each in PRESETS.items():
        if bool(each.vectors) is of_parameters:
            groups.setdefault(tuple(answers(each).values()), []).append(name)
    return {", ".join(names): PRESETS[names[0]] for names in groups.values()}


def _told(each: Convention) -> str:
    worth = "a multiply-add as one FLOP" if each.fma == 1 else "a multiply-add as two FLOPs"
    found = {"all": "all scores", "visible": "the visible scores", "half": "half of the scores", "none": "no scores"}
    return ", ".join(["products of the layers", found[answers(each)["scores"]], *included(each)]) + f"; {worth}"


def token_by_kind(s: Any, *, model: Any, length: Any) -> None:
    """Multiply-adds of a token's forward pass by kind, and the training token as EXACT counts it."""
    s.too_long = where(
        length > model.most, "{model} has learned positions for fewer tokens: choose a shorter sequence.", ""
    )
    in_page = reading(model.name) == "altair"
    forward = {
        title: each.forward(seq=length if each.positions is None else minimum(length, each.positions))
        for title, each in _models().items()
        if in_page or title == model.name
    }
    for kind in OF_LENGTH:
        of = {title: each.macs_by_kind.get(kind, 0) for title, each in forward.items()}
        setattr(s, f"of_{kind}", pick(model.name, of) / minimum(length, model.most))
    kinds = {kind: getattr(model, kind) for kind in CONSTANT} | {kind: getattr(s, f"of_{kind}") for kind in OF_LENGTH}
    for i, each in enumerate(_rows().values()):
        setattr(s, f"count_{i}", PASSES * each.flops(kinds))
    s.exact = PASSES * EXACT.flops(kinds)
    s.end = LONGEST * s.exact
    s.longest = minimum(s.end, reduce(maximum, [getattr(s, f"count_{i}") for i in range(len(_rows()))]))


@cache
def _models() -> dict[str, Model]:
    return {title: load(name) for title, name in MODELS.items()}


@cache
def _rows() -> dict[str, Convention]:
    return {name: each for _, of_parameters in FAMILIES for name, each in alike(of_parameters).items()}


def _constants(model: Model) -> Mapping[str, Any]:
    """Multiply-adds of a single token, of the kinds that do not depend on the length, and how many positions there are."""
    one = model.forward(seq=1).macs_by_kind
    return {kind: one.get(kind, 0) for kind in CONSTANT} | {"most": model.positions or 2**62}


def conventions_compared() -> Figure:
    """A training token of a model, counted under every convention that has a name."""
    rows, of_parameters = _rows(), list(alike(True))
    fields = {title: _constants(each) for title, each in _models().items()}

    def row(r: Any, *, name: Any, **_: Any) -> None:
        r.flops = pick(name, {label: getattr(r, f"count_{i}") for i, label in enumerate(rows)})
        r.against = r.flops / r.exact
        r.drawn = minimum(r.flops, r.end)
        r.counts = pick(name, {label: _told(each) for label, each in rows.items()})

    def chart(s: Any) -> Any:
        alt = need("altair")
        axis = alt.Axis(
            labelLimit=0, labelOverlap=False, labelColor=theme.INK, labelFontSize=11, domain=False, ticks=False,
            labelExpr=r"replace(datum.label, /^(\w+)(_\d+), \1_/, '$1$2, _')",  # two years of one name
        )  # fmt: skip
        y = alt.Y("name:N", sort=list(rows), title=None, axis=axis)
        x = alt.X(
            "giga:Q", title="GFLOPs per token",
            scale=alt.Scale(domain=[0, alt.ExprRef(f"1.35 * {vega(s.longest)} / 1e9")], nice=False),
            axis=alt.Axis(format=",~r", tickCount=4, labelBound=True),
        )  # fmt: skip
        found = s.rows.transform_calculate(
            giga="datum.drawn / 1e9", whole="datum.flops / 1e9", ours="datum.name === 'EXACT'",
            said="format(datum.against, datum.against < 10 ? '.2f' : '.1f') + '×' + (datum.drawn < datum.flops ? ' →' : '')",
        )  # fmt: skip
        tooltip = [
            alt.Tooltip("name:N", title="convention"), alt.Tooltip("whole:Q", title="GFLOPs", format=",.5~r"),
            alt.Tooltip("against:Q", title="by EXACT", format=".4~r"), alt.Tooltip("counts:N"),
        ]  # fmt: skip
        colour = alt.condition("datum.ours", alt.value(theme.ORANGE), alt.value(theme.BLUE))
        ink = alt.condition("datum.ours", alt.value(theme.ORANGE), alt.value(theme.INK))
        return alt.layer(
            found.mark_bar(height={"band": 0.7}).encode(x=x, y=y, color=colour, tooltip=tooltip),
            *theme.words(found, {"align": "left", "dx": 4, "fontSize": 11}, x=x, y=y, text="said:N", color=ink),
        )

    return Figure(
        name="conventions-compared",
        title="One training token under every convention",
        alt="A bar for each convention: the FLOPs of a training token of {model}, in sequences of {length}, and how many times EXACT's {exact} they are. The data "
        "table lists them, with what each counts.",
        model=token_by_kind,
        refused="too_long",
        controls=[
            choice("model", "Model", fields),
            slider("length", "Sequence length", steps(128, 131072), value=8192, unit="tokens"),
        ],
        presets={
            "Llama-3-8B, 8,192 tokens": {"model": "Llama-3-8B", "length": 8192},
            "GPT-2, 1,024 tokens": {"model": "GPT-2", "length": 1024},
            "DeepSeek-V3, 4,096 tokens": {"model": "DeepSeek-V3", "length": 4096},
        },
        readouts=[readout("exact", "A training token (EXACT)", "FLOPs")],
        rows=along("name", list(rows), row),
        chart=chart,
        table=[
            column("name", "Convention"), column("flops", "FLOPs of a training token", "FLOPs"), column("against", "By EXACT", "×"),
            column("counts", "Counts"),
        ],
        caption="Forward and backward, nothing recomputed. Names on one line count the same; "
        f"the last {len(of_parameters)} start from 6N. An arrow (→) marks a bar that leaves the chart. "
        "Point at a bar to read what it counts.",
        height=380,
    )  # fmt: skip
