"""A training step by phases: what the mathematics asks for (model FLOPs), and what a program executes (hardware FLOPs)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from flopkit.arithmetic import Number, ratio, total
from flopkit.conventions import Convention, as_convention
from flopkit.cost import Cost, amount
from flopkit.tables import Table

__all__ = ["POLICIES", "Step"]

POLICIES = {
    "none": "everything that the backward pass needs is kept",
    "selective": "attention's core, scores and values, is recomputed",
    "full": "every layer's forward pass is recomputed, embedding and head are not",
}
"""What of the forward pass is recomputed in the backward pass."""


@dataclass(frozen=True, repr=False)
class Step:
    """One training step of a whole model: a forward pass, a backward pass, and what is recomputed in it.

        model FLOPs = forward + backward
        hardware FLOPs = forward + backward + recompute + padding

    Parameters
    ----------
    name : str
        What it is, for tables.
    tokens : Number or None
        Tokens of the whole batch. None: the network has none, as a convolutional one.
    forward, backward : Cost
        The two passes. Backward is two products for each of the forward pass where everything is trained.
    checkpointed : Cost
        What the recompute policy recomputes.
    scores_again : Cost
        The scores that a flash kernel recomputes in its backward pass. EXACT, TORCH and FVCORE count them, an author's convention
        does not.
    outside : Cost, optional
        Work outside of the layers, which the policy "full" does not repeat, but for a convention that says so
        (LLM_FOUNDRY).
    full : bool, optional
        Whether that is the policy.
    images : Number, optional
        Images of the batch, where the network is one of images.
    over : Callable[..., Step], optional
        Makes the same step over documents of other ``lengths=``: see `packed`.

    Notes
    -----
    Not counted: the loss, the optimiser (its work is element-wise), element-wise work of the backward pass, gradient accumulation,
    communication.

    References
    ----------
    Chowdhery et al. 2022, appendix B, for the two numerators; Korthikanti et al. 2022 for selective recompute.

    Examples
    --------
    >>> import flopkit as fk
    >>> step = fk.load("llama-3-8b").train_step(seq=8192, recompute="full")
    >>> step.model_flops, round(step.hardware_flops / step.model_flops, 3)
    (421651971833856, 1.334)
    """

    name: str
    tokens: Number | None
    forward: Cost
    backward: Cost
    checkpointed: Cost
    scores_again: Cost
    outside: Cost = field(default_factory=Cost)
    full: bool = False
    images: Number | None = None
    over: Callable[..., Step] | None = field(default=None, compare=False, repr=False)

    @property
    def convention(self) -> Convention:
        """The convention of all its numbers."""
        return self.forward.convention

    @property
    def recompute(self) -> Cost:
        """What is recomputed: by the policy and, where the convention counts that, by a flash kernel."""
        parts = [self.checkpointed]
        if self.convention.recompute:
            parts.append(self.scores_again)
        if self.convention.outside_again and self.full:
            parts.append(self.outside)
        return Cost.total("recompute", parts)

    @property
    def padding(self) -> Cost:
        """Rows of experts that a capacity adds and no token fills, in all passes.

        Negative if more rows are dropped than added. Counted where a flash kernel's
        recompute is.
        """
        passes = (self.forward, self.backward, self.checkpointed) if self.convention.recompute else ()
        rows = total(each.macs_by_kind.get("padding", 0) for each in passes)
        return Cost("padding", macs_by_kind={"products": rows}, convention=self.convention)

    @property
    def model_flops(self) -> Number:
        """FLOPs that the mathematics asks for: forward and backward, nothing twice. The numerator of MFU."""
        return self.forward.flops + self.backward.flops

    @property
    def hardware_flops(self) -> Number:
        """FLOPs that are executed: model FLOPs, the recompute and the padding of experts. The numerator of HFU."""
        return self.model_flops + self.recompute.flops + self.padding.flops

    @property
    def flops_per_token(self) -> Number:
        """Model FLOPs by tokens."""
        if self.tokens is None:
            raise ValueError(f"{self.name}: no tokens go through this network; flops_per_image has its FLOPs an image")
        return ratio(self.model_flops, self.tokens)

    @property
    def flops_per_image(self) -> Number:
        """Model FLOPs by images.

        >>> import flopkit as fk
        >>> fk.load("resnet50").train_step(batch=64).flops_per_image
        24299077632.0
        """
        if self.images is None:
            raise ValueError(f"{self.name}: no images go through this network; flops_per_token has its FLOPs a token")
        return ratio(self.model_flops, self.images)

    @property
    def item(self) -> tuple[str, Any]:
        """What FLOPs are told by, ``"a token"`` or ``"an image"``, and how many there are."""
        return ("an image", self.images) if self.tokens is None else ("a token", self.tokens)

    def under(self, convention: Convention | str) -> Step:
        """The same step as *convention* counts it.

        >>> import flopkit as fk
        >>> step = fk.load("llama-3-8b").train_step(seq=8192)
        >>> step.under("SIX_N").flops_per_token == 6 * fk.load("llama-3-8b").params
        True
        """
        convention = as_convention(convention)
        phases = ("forward", "backward", "checkpointed", "scores_again", "outside")
        return replace(self, **{phase: getattr(self, phase).under(convention) for phase in phases})

    def packed(self, lengths: Any) -> Step:
        """The same step, of the same model and under the same convention, over documents of these *lengths*.

        Parameters
        ----------
        lengths : Any
            The tokens of each document, as `Model.train_step` takes them.

        Raises
        ------
        ValueError or TypeError
            For a step that no model of text has made, and lengths that are no whole numbers of at least 1.

        Examples
        --------
        >>> import flopkit as fk
        >>> step = fk.load("llama-3-8b").train_step(seq=8192, recompute="full").under("MEGATRON")
        >>> step.packed([512, 3584]).hardware_flops == sum(step.packed([s]).hardware_flops for s in (512, 3584))
        True
        """
        if self.over is None:
            raise ValueError(
                f"{self.name}: which model this is a step of is not known; give lengths= to its train_step"
            )
        return self.over(lengths=lengths).under(self.convention)

    def table(self) -> Table:
        """One row a phase, then model FLOPs and hardware FLOPs, each with its FLOPs a token or an image and its share of the
        model FLOPs."""
        item, items = self.item
        each = f"FLOPs {item}"
        lines = [
            ("forward", self.forward.flops), ("backward", self.backward.flops), ("recompute", self.recompute.flops),
            *([("padding", self.padding.flops)] if "padding" in self.forward.macs_by_kind else []), ("model FLOPs", self.model_flops), ("hardware FLOPs", self.hardware_flops),
        ]  # fmt: skip
        rows = [
            {
                "phase": name,
                "FLOPs": flops,
                each: ratio(flops, items),
                "of model FLOPs": ratio(flops, self.model_flops),
            }
            for name, flops in lines
        ]
        formats = {
            "FLOPs": partial(amount, unit="FLOPs"),
            each: partial(amount, unit="FLOPs"),
            "of model FLOPs": partial(amount, unit="%"),
        }
        return Table(rows, caption=f"{self.name}, convention {self.convention}", formats=formats)

    def __repr__(self) -> str:
        model, hardware = (amount(n, "FLOPs") for n in (self.model_flops, self.hardware_flops))
        return f"{self.name}: {model} of the model, {hardware} executed [{self.convention}]"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
