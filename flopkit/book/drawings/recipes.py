"""The memory of one GPU under recipes of a training step, each with as many sequences as fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, GREEN, INK, MUTED, ORANGE
from flopkit.devices import device as find, memory_of
from flopkit.models import load
from flopkit.units import count, percent, si

__all__ = ["CHEAP", "CHUNK", "RECIPES", "Recipe", "cheap_bytes", "fitted_sequences", "loss_bytes"]

CHEAP = ("attention, input", "mlp, input", "activated gate", "down, input")
"""What a layer keeps and its norms and its activation function make again, without a matmul."""
CHUNK = 1024
"""Tokens that go through head and loss at a time, where the loss is in chunks."""


def cheap_bytes(kept: Iterable[Any]) -> Any:
    """Bytes of CHEAP, of what a layer keeps."""
    return sum(each.bytes for each in kept if each.name in CHEAP)


def loss_bytes(ends: Any, logits: Any, at_once: Any) -> Any:
    """Bytes of head and loss at their peak: *ends* without logits, and three fp32 tensors of *logits* bytes a token, for the tokens
    that are there *at_once*: the log-probabilities, their gradient, and that of the logits."""
    return ends + 3 * logits * at_once


@dataclass(frozen=True)
class Recipe:
    """What a training step keeps: with *chunk*, the loss of so many tokens at a time; with *cheap*, nothing that needs no matmul."""

    title: str
    recompute: str = "none"
    cheap: bool = False
    chunk: int | None = None

    def memory(self, model: Any, seq: int, batch: int, gpus: int) -> dict[str, float]:
        """Bytes of the states and of the layers on one of the GPUs that share the states, and the larger of head and loss at their peak and of a layer that runs again."""
        size = model.train_memory(seq=seq, batch=batch, recompute=self.recompute)
        layers = size.layers
        if self.cheap:
            layers -= model.layers * cheap_bytes(size.kept)
        tokens, logits = seq * batch, 4 * model.vocab
        at_once = tokens if self.chunk is None else min(self.chunk, tokens)
        ends = loss_bytes(size.ends - logits * tokens, logits, at_once)  # of which train_memory counts one tensor
        held = {"states": size.states / gpus, "layers": layers}
        return {**held, "loss": ends} if ends >= size.again else {**held, "again": size.again}

    def sequences(self, model: Any, seq: int, memory: float, gpus: int) -> int:
        """How many fit at most."""
        batch = 0
        while sum(self.memory(model, seq, batch + 1, gpus).values()) <= memory:
            batch += 1
        return batch


RECIPES = (
    Recipe("no recompute"),
    Recipe("loss in chunks", chunk=CHUNK),
    Recipe("loss in chunks, norms and SwiGLU again", cheap=True, chunk=CHUNK),
    Recipe("a checkpoint around every layer", recompute="full"),
    Recipe("a checkpoint around every layer, loss in chunks", recompute="full", chunk=CHUNK),
)
COLOURS = {"states": MUTED, "layers": BLUE, "loss": ORANGE, "again": GREEN}
WORDS = {
    "states": "weights, gradients, Adam",
    "layers": "layers",
    "loss": "head and loss",
    "again": "or, if larger, the layer that runs again",
}
LONG, HIGH, ROW = 292.0, 18.0, 46.0  # pixels of the whole memory, of a bar, of a row


def fitted_sequences(model: str = "llama-3-8b", device: str = "h100-sxm", gpus: int = 8, seq: int = 8192) -> Drawing:
    """The memory of a GPU under five recipes, with as many sequences as fit, when several GPUs share the states.

    Parameters
    ----------
    model : str, optional
        A name that `flopkit.load` knows, of a model whose layers have a gated MLP and no experts.
    device : str, optional
        A name that `flopkit.device` knows.
    gpus : int, optional
        How many share weights, gradients and the optimiser's states, 1 to 64.
    seq : int, optional
        Tokens of a sequence, 1,024 to 65,536.

    Raises
    ------
    ValueError
        For other numbers, for a model without a gated MLP, and where not even the states and one sequence fit.

    Examples
    --------
    >>> fitted_sequences().title
    'Chunking the loss turns 4 sequences into 19 under checkpoints; alone it fits no second one'
    """
    whole("fitted_sequences", "gpus", gpus, 1, 64)
    whole("fitted_sequences", "seq", seq, 1024, 65536)
    found, gpu = load(model), find(device)
    memory = memory_of(gpu)
    if {each.name for each in found.train_memory(seq=1).kept}.isdisjoint({"activated gate"}):
        raise ValueError(f"fitted_sequences(model={model!r}): give a model whose layers have a gated MLP")
    fit = [recipe.sequences(found, seq, memory, gpus) for recipe in RECIPES]
    if fit[-1] == 0:
        raise ValueError(
            f"fitted_sequences({model!r}, {device!r}, gpus={gpus}, seq={seq}): not one sequence fits; take more GPUs or a shorter one"
        )
    canvas = Canvas(len(RECIPES) * ROW + 112)
    told = []
    for row, (recipe, most) in enumerate(zip(RECIPES, fit, strict=True)):
        y, x = row * ROW, 1.0
        canvas.text(0, y + 9, recipe.title, anchor="start")
        parts = recipe.memory(found, seq, most, gpus) if most else {"states": found.train_memory(seq=seq).states / gpus}
        for name, size in parts.items():
            wide = LONG * size / memory
            canvas.box(x, y + 20, wide, HIGH, name=f"{name} of {row}", colour=COLOURS[name], fill=0.7, edge=0, round=0)
            x += wide
        canvas.text(358, y + 20 + HIGH / 2, count(most), anchor="end", bold=True, size=16, name="fit")
        used = sum(parts.values()) / memory
        told.append(f"{recipe.title}: {count(most)} fit, in {percent(used)} of the memory")
    bottom = len(RECIPES) * ROW
    canvas.line(1 + LONG, 4, 1 + LONG, bottom, colour=INK, dash=True, name="memory")
    canvas.text(1 + LONG, bottom + 8, f"{si(memory, 'B')} usable", anchor="end", colour=MUTED)
    canvas.text(358, bottom + 8, "fit", anchor="end", colour=MUTED)
    for i, (name, colour) in enumerate(COLOURS.items()):
        canvas.box(0, bottom + 26 + 20 * i, 14, 14, name="key", colour=colour, fill=0.7, edge=0)
        shared = f", shared by {gpus} GPUs" if name == "states" and gpus > 1 else ""
        canvas.text(20, bottom + 33 + 20 * i, WORDS[name] + shared, anchor="start", colour=MUTED)
    alone, plain, both = fit[1] - fit[0], fit[3], fit[4]
    title = f"Chunking the loss turns {count(plain)} sequences into {count(both)} under checkpoints"
    title += f"; alone it fits {'no second one' if fit[:2] == [1, 1] else count(alone) + ' more'}"
    return Drawing(
        "fitted-sequences",
        title,
        f"The memory of one of {gpus} {gpu.title} that train {model_title(model)}, with as many sequences of {count(seq, 'tokens')} as fit. {'; '.join(told)}.",
        [canvas],
    )
