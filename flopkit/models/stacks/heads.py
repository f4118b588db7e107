"""What stands behind the last layer: a product with the vocabulary, labels, a pooler, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit.arithmetic import is_zero
from flopkit.sizes import Count, Flag, Size, check_fields, choice

__all__ = ["HEADS", "Head"]

HEADS = ("tokens", "none", "mlm", "classes")


@dataclass(frozen=True, kw_only=True)
class Head:
    """A head: a product with the vocabulary or with labels, for each token or once for
    a sequence, with a dense layer before it or without.

    Parameters
    ----------
    outputs : Count, optional
        Labels. None: the words of the vocabulary, by the embedding's table where the
        model is tied; 0: no product behind the dense layer (a pooler).
    each : str, optional
        ``"token"``, or ``"sequence"``: it reads one token of each sequence.
    bias : Flag, optional
        Whether the product adds a bias.
    dense : Flag, optional
        Whether a dense layer stands before it.
    dense_dim : Size, optional
        Its output features. None: the model's width.
    dense_bias : Flag, optional
        Whether it adds a bias.
    act : str, optional
        The activation behind the dense layer, as `flopkit.activation` calls it; empty
        for none.
    norm : bool, optional
        Whether a norm like the model's follows.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from flopkit import load
    >>> from flopkit.models import Head
    >>> llama = load("llama-3-8b")
    >>> reward = replace(llama, head=Head(outputs=1, bias=False))
    >>> llama.params - reward.params == (llama.vocab - 1) * llama.d_model
    True
    """

    outputs: Count | None = None
    each: str = "token"
    bias: Flag = False
    dense: Flag = False
    dense_dim: Size | None = None
    dense_bias: Flag = True
    act: str = ""
    norm: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        choice("each", self.each, ("token", "sequence"))
        if self.outputs is None and self.each == "sequence":
            raise ValueError("each='sequence' is for labels: give outputs=, or leave it out for the words")

    @property
    def words(self) -> bool:
        """Whether it is a product with the vocabulary."""
        return self.outputs is None

    def width(self, d_model: Any) -> Any:
        """Features that its product reads."""
        return d_model if is_zero(self.dense) or self.dense_dim is None else self.dense_dim

    def rows(self, batch: Any, tokens: Any) -> Any:
        """How many tokens it reads, of *tokens* in *batch* sequences."""
        return tokens if self.each == "token" else batch
