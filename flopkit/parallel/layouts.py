"""A layout: into how many parts a training step is divided, and along which axis."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from flopkit.parallel.clusters import Cluster
from flopkit.parallel.pipelines import SCHEDULES
from flopkit.sizes import choice, flag, number, short
from flopkit.training.steps import POLICIES

__all__ = ["REGATHER", "ZERO", "Layout", "the_layout"]

ZERO = {
    0: "each data-parallel rank has all weights, gradients and states of the optimiser",
    1: "the states of the optimiser are divided",
    2: "gradients are divided, too",
    3: "weights are divided, too, and gathered when they are used (FSDP)",
}
"""What data-parallel ranks divide among themselves (Rajbhandari et al. 2020)."""

REGATHER = {
    "all": "inputs of branches, and keys and values (Megatron-LM with Transformer Engine)",
    "context": "keys and values; a rank keeps inputs of branches whole (torchtitan: PyTorch's DTensor and its context_parallel)",
    "none": "nothing; a rank keeps both whole (gathers that PyTorch's autograd differentiates)",
}
"""What is gathered for the forward pass and again for the backward pass, for which a rank keeps its own part alone: inputs of branches (SP), keys and
values (CP). What a rank holds and what it sends both follow it."""

_DEGREES = ("tensor", "context", "pipeline", "data")


@dataclass(frozen=True)
class Layout:
    """How a training step is divided among devices.

    Parameters
    ----------
    tensor : int, optional
        Ranks that divide each layer's matrices (TP).
    context : int, optional
        Ranks that divide each sequence (CP).
    pipeline : int, optional
        Ranks that divide the layers (PP).
    data : int, optional
        Ranks that divide the batch (DP).
    expert : int, optional
        Ranks that divide the experts of a layer (EP): of the ``tensor · context · data`` ranks of a stage, not besides them.
    zero : int, optional
        What data-parallel ranks divide: 0 nothing, 1 the optimiser's states, 2 gradients, too, 3 weights, too, which are gathered when they are used.
    virtual : int, optional
        Virtual stages of a pipeline's rank (interleaving).
    micro_batch : int, optional
        Sequences of a rank that go through the model at once.
    sequence : bool, optional
        Whether the tensor-parallel ranks divide norms and sums, too, by tokens (SP).
    recompute : str, optional
        As in `Model.train_step`.
    schedule : str, optional
        Of the pipeline, as in `flopkit.parallel.pipeline`. With several virtual stages ``"1f1b"`` is interleaved.
    regather : str, optional
        What is gathered again for the backward pass, of which a rank keeps its own part alone. ``"all"``: inputs of branches (SP), and keys and values (CP), as
        in Megatron-LM with Transformer Engine. ``"context"``: keys and values; inputs of branches are kept whole, as PyTorch's DTensor does. ``"none"``: both are kept whole.

    Raises
    ------
    ValueError
        For a degree below 1, a stage of ZeRO above 3, experts' ranks that do not divide those of a stage, and virtual stages without a pipeline.
    TypeError
        For a degree that is no whole number, and *sequence* that is neither True nor False.

    References
    ----------
    Shoeybi et al. 2019, Korthikanti et al. 2022 (tensor and sequence; section 4.2.2 on what is gathered again), Narayanan et al. 2021 (pipeline), Rajbhandari
    et al. 2020 (ZeRO).

    Examples
    --------
    >>> llama_3 = Layout(tensor=8, pipeline=16, data=128, virtual=8)
    >>> llama_3.ranks, llama_3.micro_batches(2048)
    (16384, 16)
    """

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    zero: int = 1
    virtual: int = 1
    micro_batch: int = 1
    sequence: bool = True
    recompute: str = "none"
    schedule: str = "1f1b"
    regather: str = "all"

    def __post_init__(self) -> None:
        for name in (*_DEGREES, "expert", "virtual", "micro_batch"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        if isinstance(self.zero, (bool, float)) or self.zero not in ZERO:
            raise ValueError(f"zero={self.zero!r}: a stage of ZeRO is 0, 1, 2 or 3")
        object.__setattr__(self, "sequence", bool(flag("sequence", self.sequence)))
        choice("recompute", self.recompute, tuple(POLICIES))
        choice("schedule", self.schedule, tuple(SCHEDULES))
        choice("regather", self.regather, tuple(REGATHER))
        if self.virtual > 1 and self.pipeline == 1:
            raise ValueError(f"virtual={self.virtual}: virtual stages need a pipeline; give pipeline=, or virtual=1")
        if (self.tensor * self.context * self.data) % self.expert:
            raise ValueError(
                f"expert={self.expert}: must divide the tensor · context · data = {self.tensor * self.context * self.data} ranks of a stage"
            )

    @property
    def ranks(self) -> int:
        """``tensor · context · pipeline · data``: experts are divided among these, and multiply nothing."""
        return self.tensor * self.context * self.pipeline * self.data

    @property
    def order(self) -> str:
        """The schedule of the pipeline, ``"interleaved"`` for ``"1f1b"`` with several virtual stages."""
        return "interleaved" if self.schedule == "1f1b" and self.virtual > 1 else self.schedule

    def micro_batches(self, batch: int) -> int:
        """Micro-batches of each data-parallel rank in a step of *batch* sequences.

        Raises
        ------
        ValueError
            Where they do not divide.
        """
        batch = number("batch", batch)
        if batch % (self.data * self.micro_batch):
            least = self.data * self.micro_batch
            raise ValueError(
                f"batch={batch}: {self.data} data-parallel ranks with micro-batches of {self.micro_batch} need a multiple of {least}, such as {-(-batch // least) * least}"
            )
        return batch // (self.data * self.micro_batch)

    def in_node(self, cluster: Cluster, axis: str) -> int:
        """Ranks of one group along *axis* in a node, with tensor-parallel ranks next to each other, then context, then data, then pipeline.

        >>> from flopkit.parallel import cluster
        >>> layout = Layout(tensor=4, pipeline=2, data=16)
        >>> [layout.in_node(cluster("dgx-h100"), axis) for axis in ("tensor", "data", "pipeline")]
        [4, 2, 1]
        """
        inner = {"tensor": 1, "context": self.tensor, "data": self.tensor, "expert": 1}
        size = {"tensor": self.tensor, "context": self.context, "data": self.data * self.context, "expert": self.expert}
        inner["pipeline"] = self.tensor * self.context * self.data
        size["pipeline"] = self.pipeline
        most = max(1, cluster.per_node // inner[axis])
        while size[axis] % most:
            most -= 1
        return min(most, size[axis])

    def __str__(self) -> str:
        names = {"tensor": "TP", "context": "CP", "pipeline": "PP", "data": "DP", "expert": "EP"}
        degrees = [f"{short} {getattr(self, name)}" for name, short in names.items() if getattr(self, name) > 1]
        rest = [
            f"{field.name} {getattr(self, field.name)}"
            for field in fields(self)
            if field.name not in names and getattr(self, field.name) != field.default
        ]
        return ", ".join([*degrees, *rest]) or "one rank"


def the_layout(layout: Any) -> Layout:
    """A `Layout` as it is, and an error that says how to make one of anything else."""
    if not isinstance(layout, Layout):
        raise TypeError(f"layout={short(layout)}: must be a Layout, such as Layout(tensor=8, data=2)")
    return layout
