"""Memory of a training step: weights, gradients, optimiser states, and what the forward pass keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from flopkit.arithmetic import Number, is_zero, maximum, ratio, total
from flopkit.cost import amount
from flopkit.tables import Table

__all__ = ["OPTIMIZERS", "PRECISIONS", "Kept", "Memory", "Precision", "state_bytes"]


class Precision(NamedTuple):
    """Bytes of a parameter: its weight, its gradient, a second copy in fp32 that the optimiser changes, one state of the optimiser, the sum of
    gradients that is kept beside them, and the weight in which products run, where that is another one."""

    weight: int
    gradient: int
    master: int
    state: int
    summed: int = 0
    cast: int = 0


PRECISIONS = {
    "fp32": Precision(4, 4, 0, 4),
    "mixed": Precision(2, 2, 4, 4),  # Rajbhandari et al. 2020, section 3.1: 2 + 2 + 12
    "mixed-fp32-gradients": Precision(2, 4, 4, 4),  # Megatron-Core, distributed optimizer: "bf16 parameters, fp32 gradients"
    "mixed-both-gradients": Precision(2, 2, 4, 4, 4),  # 16-bit gradients, and their fp32 sum over several passes
    "autocast": Precision(4, 4, 0, 4),  # torch.autocast; what it casts is there for a step and counts among the activations
    "bf16": Precision(2, 2, 0, 2),
    "fsdp": Precision(4, 4, 0, 4, cast=2),  # FSDP2's MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=fp32): layers are gathered in 16 bits
}  # fmt: skip
"""What is stored for a parameter: with Adam 16, 16, 18, 20, 16, 8 and 16 bytes."""

OPTIMIZERS = {
    "adam": (2, None),
    "adam-8bit": (2, 1),  # Dettmers et al. 2022: a byte a state; one fp32 number for each block of 2,048 is left out
    "adam-16bit": (2, 2),  # DeepSeek-V3, arXiv:2412.19437, section 3.3.3: moments in bf16
    "momentum": (1, None),
    "sgd": (0, None),
}
"""States a parameter, and the bytes of each where they are not the precision's."""


def state_bytes(precision: str, optimizer: str) -> tuple[int, int, int]:
    """Bytes a parameter for its weight, its gradient and the optimiser, the fp32 copy included.

    >>> state_bytes("mixed", "adam"), state_bytes("mixed", "adam-8bit")
    ((2, 2, 12), (2, 2, 6))
    """
    kind = PRECISIONS[precision]
    states, each = OPTIMIZERS[optimizer]
    return kind.weight, kind.gradient + kind.summed, kind.master + states * (kind.state if each is None else each)


class Kept(NamedTuple):
    """A tensor that the forward pass keeps for the backward pass, under the *name* that tables show.

    *core* ones lie inside attention, where selective recompute drops them. *weights_of*: the matrices of the layer, or the ``"core"``, whose
    weights' gradients alone read it; empty: others read it, too. *split*: how ranks of tensor and expert parallelism divide it, by tokens (where
    these ranks divide the sequence), by heads or features, or by experts. *remade*: whether norms and activations make it again from the rest.
    *tensor*: which one it is, of those that a saving of memory treats in another way.
    """

    name: str
    bytes: Number
    core: bool = False
    weights_of: tuple[str, ...] = ()
    split: Literal["tokens", "features", "experts"] = "features"
    remade: bool = False
    tensor: Literal["", "latent", "queries", "keys", "values", "heads", "experts' hidden", "experts' outputs"] = ""


@dataclass(frozen=True, repr=False)
class Memory:
    """Bytes that a training step needs at once.

    Parameters
    ----------
    name : str
        What it is, for tables.
    weights, gradients, optimizer : Number
        Bytes of the states of the model.
    layers : Number
        Activations of the layers that are there when the backward pass begins; of an encoder-decoder, those of both stacks, and the
        encoder's last norm and output.
    ends : Number
        Those of what stands before and after the layers, the log-probabilities of the loss among them.
    again : Number
        Activations that come back while the largest checkpointed part is computed again. By then those of *ends* are gone.
    kept : tuple[Kept, ...], optional
        What one layer keeps without recompute, the first kind of layer where there are several, of the decoder where there is an encoder.
    kept_by : str, optional
        Whose list *kept* is: ``"one layer"``, or ``"the network"`` where its layers are not equal.
    gathered : Number, optional
        Where each of several devices has a share of the states: whole layers, their whole gradients, and the buffers around them, the most
        at once, see `gathered`.
    loss : Number, optional
        The gradients inside the loss when the backward pass begins, beside all activations: that of the log-probabilities and that of the
        logits, both in fp32. A loss in chunks, or a fused one, has less of them.

    Notes
    -----
    Tensor and sequence parallelism, which divide activations, are not known here.
    ``total`` leaves the gradients of the loss out, as published lists do, and ``peak`` has them in: whether a step fits, `peak` says.
    Both are sums of the most that each part takes: all gradients, which the first backward pass makes one after another, beside all
    activations, which it frees, and beside the largest layers that are gathered.
    Not counted: other gradients of activations, work space of kernels, memory that the allocator holds and cannot use, the CUDA context,
    what a library for communication takes, and tensors that the program holds on to by itself (logits that it returns).

    Examples
    --------
    >>> import flopkit as fk
    >>> fk.load("llama-3-8b").train_memory(seq=8192, recompute="full")
    llama-3-8b, training step, recompute full: 135 GB, 6.484 GB of it activations; 143.4 GB with the gradients of the loss
    """

    name: str
    weights: Number
    gradients: Number
    optimizer: Number
    layers: Number
    ends: Number
    again: Number
    kept: tuple[Kept, ...] = ()
    kept_by: str = "one layer"
    gathered: Number = 0
    loss: Number = 0

    @property
    def states(self) -> Number:
        """Weights, gradients and optimiser: what does not depend on the batch."""
        return self.weights + self.gradients + self.optimizer

    @property
    def activations(self) -> Number:
        """The most that activations take at once: ``layers + max(ends, again)``."""
        return self.layers + maximum(self.ends, self.again)

    @property
    def total(self) -> Number:
        """States, activations, and whole layers that are gathered, the most of each."""
        return total([self.states, self.activations, self.gathered])

    @property
    def peak(self) -> Number:
        """The total, and the gradients of the loss where they are there at once with the most: ``layers + max(ends + loss, again)``."""
        activations = self.layers + maximum(self.ends + self.loss, self.again)
        return total([self.states, activations, self.gathered])

    def table(self) -> Table:
        """One row a part, the total last, and the peak behind it. Of the ends and what is computed again, only the larger one counts: they are never there together."""
        lines = [
            ("weights", self.weights), ("gradients", self.gradients), ("optimiser", self.optimizer),
            ("activations, layers", self.layers), ("activations, ends or recompute", maximum(self.ends, self.again)),
        ]  # fmt: skip
        if not is_zero(self.gathered):
            lines.append(("gathered layers", self.gathered))
        lines.append(("total", self.total))
        more = [] if is_zero(self.loss) else [("peak, with the gradients of the loss", self.peak)]
        return _table("part", lines, self.total, self.name, more)

    def layer_table(self) -> Table:
        """What one layer keeps (or whose list *kept* is), one row a tensor."""
        lines = [(each.name, each.bytes) for each in self.kept]
        whole = sum(number for _, number in lines)
        return _table("tensor", [*lines, ("total", whole)], whole, f"{self.name}: what {self.kept_by} keeps")

    def __repr__(self) -> str:
        return f"{self.name}: {amount(self.total, 'B')}, {amount(self.activations, 'B')} of it activations{self._says_peak()}"

    def _says_peak(self) -> str:
        return "" if is_zero(self.loss) else f"; {amount(self.peak, 'B')} with the gradients of the loss"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _table(
    first: str, lines: list[tuple[str, Number]], whole: Number, caption: str, beyond: Sequence[tuple[str, Number]] = ()
) -> Table:
    """*beyond*: rows that are more than the whole, so they have no share of it."""
    rows = [{first: name, "bytes": number, "share": ratio(number, whole)} for name, number in lines]
    rows += [{first: name, "bytes": number} for name, number in beyond]
    formats = {"bytes": partial(amount, unit="B"), "share": partial(amount, unit="%")}
    return Table(rows, caption=caption, formats=formats)
