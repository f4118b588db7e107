"""What training frameworks and servers print as FLOPs: their own formulas, read in their source, beside EXACT."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from flopkit import conventions, names, units
from flopkit.models import Model, load
from flopkit.models.branches.feed_forward import Experts
from flopkit.models.files.configs import hf_config
from flopkit.tables import Table

__all__ = ["MODELS", "Cause", "Trainer", "trainer", "trainer_names", "trainers"]

MODELS: Mapping[str, int] = MappingProxyType({"llama-3-8b": 8192, "qwen3-30b-a3b": 4096, "gpt-oss-120b": 4096})
"""The models of the comparison, and how many tokens a sequence has: dense, a mixture of experts, one with windows."""

_NOT_SILU = ("gpt-oss",)  # their gate is a SiLU with a factor and a limit, which frameworks call a quick GELU

_PAIRS: Mapping[
    str, Callable[[Any, Any], Any]
] = {  # of a layer that sees the whole sequence, and of one with a window of w < t
    "all": lambda t, w: t * t,
    "half": lambda t, w: t * t / 2,
    "visible": lambda t, w: t * (t + 1) / 2 if w is None or w >= t else t * w - w * (w - 1) / 2,
    "none": lambda t, w: 0,
    "min": lambda t, w: t * w,
    "half of min": lambda t, w: t * w / 2,
    "area": lambda t, w: t * w - w * w / 2,
}

_WORDS = {
    "embedding": "the input embedding as a matmul", "tied": "the tied table twice", "router": "no router", "head": "no head",
    "idle": "experts that a token does not use", "vectors": "norms and biases", "positions": "learned positions",
}  # fmt: skip

_SCORE_WORDS = {"all": "all scores", "half": "half of the scores", "none": "no scores", "visible": "visible scores"}  # fmt: skip


@dataclass(frozen=True)
class Cause:
    """A reason for a difference from EXACT.

    Attributes
    ----------
    text : str
        What counts differently.
    share : float
        The difference that it makes, as a share of EXACT; negative where less counts.
    """

    text: str
    share: float


@dataclass(frozen=True)
class Trainer:
    """How a framework counts the FLOPs that it prints.

    Parameters
    ----------
    name, title : str
        What `trainer` calls it, and what a page does.
    repository, commit, date, path, function : str
        What was read, and of when it is.
    does : str
        What the tool is for, and what it prints.
    formula : str
        What it counts, in words and symbols.
    fix : str
        What a reader can do today.
    counts : Mapping[str, float], optional
        Shares of kinds of work where they differ from EXACT, without the scores.
    scores, windows : str, optional
        Which pairs count in a layer that sees the whole sequence, and in one with a window.
    width : str, optional
        Of a score: ``"heads"``: heads · head dimension, or ``"d_model"``.
    gate : str, optional
        ``"silu only"``: a gated MLP with another activation counts two matrices of three.
    experts : str, optional
        ``"one MLP"``: experts count as one MLP of the width that a model's file calls intermediate_size.
    tied_head : float, optional
        The share of a head whose table is the embedding's.
    serves : bool, optional
        Whether it is a server: the forward pass of one prompt, with the head on its last token.
    models, also : tuple[str, ...], optional
        Models that it can count.

    Examples
    --------
    >>> verl = trainer("verl")
    >>> round(verl.flops_per_token("llama-3-8b", seq=8192) / 1e9, 2)
    54.62
    >>> [(cause.text, round(cause.share, 3)) for cause in verl.causes("llama-3-8b", seq=8192)][0]
    ('the input embedding as a matmul', 0.061)
    """

    name: str
    title: str
    repository: str
    commit: str
    date: str
    path: str
    function: str
    does: str
    formula: str
    fix: str
    counts: Mapping[str, float] = field(default_factory=dict)
    scores: str = "visible"
    windows: str = "as full"
    width: str = "heads"
    gate: str = ""
    experts: str = ""
    tied_head: float = 1
    serves: bool = False
    models: tuple[str, ...] = tuple(MODELS)
    also: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """Where the function stands, in the version that was read."""
        if self.repository.endswith("trainmeter"):
            return f"https://pypi.org/project/trainmeter/{self.commit}/"
        return f"{self.repository}/blob/{self.commit}/{self.path}"

    def flops_per_token(self, model: str, seq: int) -> float:
        """What it counts for a token of *seq*: of a training step, or of reading a prompt where it serves.

        Parameters
        ----------
        model : str
            A name of `load`, a decoder.
        seq : int
            Tokens of a sequence.

        Raises
        ------
        ValueError
            For a model that the tool does not count, or whose layers its formula does not know.
        """
        return self._exact(model, seq) + sum(amount for _, amount in self._differences(model, seq))

    def causes(self, model: str, seq: int) -> list[Cause]:
        """Why that is not EXACT: each reason with its share, the largest first. They sum to the whole difference.

        Parameters
        ----------
        model : str
            As for `flops_per_token`.
        seq : int
            As for `flops_per_token`.
        """
        exact = self._exact(model, seq)
        found = [Cause(text, amount / exact) for text, amount in self._differences(model, seq) if amount]
        return sorted(found, key=lambda cause: -abs(cause.share))

    def _exact(self, model: str, seq: int) -> float:
        return _exact(model, seq, self.serves)

    def _differences(self, model: str, seq: int) -> list[tuple[str, float]]:
        """Reasons and FLOPs a token, more or fewer than EXACT."""
        name = names.find(model, (*self.models, *self.also), f"a model that {self.title} counts", argument="model")
        the_model, passes = load(name), 1 if self.serves else 3
        kinds, each = _kinds(name, seq, self.serves), 2 * passes / seq
        exact = conventions.EXACT
        found = []
        for kind, words in _WORDS.items():
            share = self.counts.get(kind, exact.share(kind))
            if kind == "head" and the_model.tied:
                share *= self.tied_head
            found.append((words, (share - exact.share(kind)) * each * kinds.get(kind, 0)))
        found += self._scores(the_model, seq, each)
        if self.gate == "silu only" and name.startswith(_NOT_SILU):
            found.append(("two of an expert's three matrices", -each * _expert_macs(the_model, seq) / 3))
        if self.experts == "one MLP" and (routed := _expert_macs(the_model, seq)):
            width = hf_config(name)["intermediate_size"]
            one = 3 * seq * the_model.d_model * width * the_model.layers
            found.append(("experts as one MLP of intermediate_size", each * (one - routed)))
        return found

    def _scores(self, model: Model, seq: int, each: float) -> list[tuple[str, float]]:
        found = {"full": 0.0, "window": 0.0}
        for block, layers in model.blocks:
            mixer: Any = block.mixer
            window = mixer.window if mixer.window is not None and mixer.window < seq else None
            rule, reach = (self.scores, None) if window is None or self.windows == "as full" else (self.windows, window)
            width = model.d_model if self.width == "d_model" else mixer.heads * mixer.head_dim
            seen, counted = (
                mixer.heads * mixer.head_dim * _PAIRS["visible"](seq, window),
                width * _PAIRS[rule](seq, reach),
            )
            found["window" if window else "full"] += 2 * layers * each * (counted - seen)
        mixers: list[Any] = [block.mixer for block, _ in model.blocks]
        narrow = self.width == "d_model" and any(one.heads * one.head_dim != model.d_model for one in mixers)
        words = _SCORE_WORDS[self.scores] + (", as wide as the model" if narrow else "")
        windows = "windows ignored" if self.windows == "as full" else f"windows of {_WINDOW_WORDS[self.windows]} tokens"
        return [(words, found["full"]), (windows, found["window"])]


_WINDOW_WORDS = {
    "min": "min(T, W)",
    "half of min": "half of min(T, W)",
    "visible": "as many as are visible",
    "area": "W − W²/2T",
}


@cache
def _kinds(model: str, seq: int, serves: bool) -> Mapping[str, Any]:
    """Multiply-adds of a forward pass over one sequence, by kind."""
    cost = load(model).prefill(prompt=seq) if serves else load(model).forward(seq=seq)
    return dict(cost.macs_by_kind)


@cache
def _exact(model: str, seq: int, serves: bool) -> float:
    return float(conventions.EXACT.flops(_kinds(model, seq, serves))) * (1 if serves else 3) / seq


def _expert_macs(model: Model, seq: int) -> Any:
    """Multiply-adds of the experts that tokens choose, without their router."""
    experts = [(block.mlp, layers) for block, layers in model.blocks if isinstance(block.mlp, Experts)]
    return sum(3 * seq * model.d_model * mlp.d_ff * mlp.top_k * layers for mlp, layers in experts)


@cache
def _read() -> Mapping[str, Trainer]:
    text = (files("flopkit") / "data" / "trainers.toml").read_text("utf-8")
    lists = ("models", "also")
    found: dict[str, Any] = tomllib.loads(text)
    for entry in found.values():
        entry.update({key: tuple(entry[key]) for key in lists if key in entry})
    return MappingProxyType({name: Trainer(name, **entry) for name, entry in found.items()})


def trainer_names() -> list[str]:
    """The frameworks and servers whose formulas were read.

    >>> "torchtitan" in trainer_names()
    True
    """
    return list(_read())


def trainer(name: str) -> Trainer:
    """How a framework counts.

    Parameters
    ----------
    name : str
        One of `trainer_names`.

    Raises
    ------
    ValueError
        For a name that is not known, with near ones.

    Examples
    --------
    >>> trainer("olmo core").function
    'Transformer.num_flops_per_token'
    """
    return _read()[names.find(name, _read(), "a framework whose formula was read")]


def trainers(model: str, *, seq: int) -> Table:
    """What each framework prints for one model, in FLOPs per token of a training step.

    Parameters
    ----------
    model : str
        A name of `load`; one of those that the frameworks can count.
    seq : int
        Tokens of a sequence.

    Returns
    -------
    Table
        Columns: *framework*, *FLOPs* per token, *by EXACT* (their ratio), *why*. The smallest first.

    Raises
    ------
    ValueError
        For a model that none of them counts.

    Examples
    --------
    >>> table = trainers("llama-3-8b", seq=8192)
    >>> [(row["framework"], round(row["by EXACT"], 3)) for row in table if row["framework"] in ("MaxText", "TRL")]
    [('MaxText', 1.0), ('TRL', 1.186)]
    """
    known = dict.fromkeys(each for one in _read().values() for each in (*one.models, *one.also))
    name = names.find(model, known, "a model that the frameworks count", argument="model")
    rows: list[dict[str, Any]] = []
    for one in _read().values():
        if not one.serves and name in (*one.models, *one.also):
            flops = one.flops_per_token(name, seq)
            why = "; ".join(
                f"{cause.text} {100 * cause.share:+.1f} %"
                for cause in one.causes(name, seq)
                if abs(cause.share) >= 0.005
            )
            rows.append(
                {"framework": one.title, "FLOPs": flops, "by EXACT": flops / _exact(name, seq, False), "why": why}
            )
    rows.sort(key=lambda row: row["FLOPs"])
    formats = {"FLOPs": lambda value: units.format_value(value, "FLOPs"), "by EXACT": lambda value: f"{value:.3f}"}
    return Table(rows, caption=f"FLOPs per token of a training step of {name}, {seq:,} tokens", formats=formats)
