"""A model that runs: its passes, part by part, and what they come to."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from flopkit.cost import Cost, amount
from flopkit.dtypes import DType
from flopkit.models.display import model_table
from flopkit.models.stacks import passes
from flopkit.models.stacks.parts import Part, Run
from flopkit.models.stacks.stack import Stack
from flopkit.sizes import Size, lengths_of, offence, short, size
from flopkit.tables import Table

__all__ = ["Running"]


class Running(Stack):
    """The passes of a `Model`."""

    @cached_property
    def params(self) -> Any:
        """Trainable numbers, with input embedding and head; a tied table counts
        once."""
        return self._token.params

    @cached_property
    def active_params(self) -> Any:
        """Trainable numbers that work for a token: all but the experts that it does not
        choose."""
        return self.params - self.unused - self._token.macs_by_kind.get("idle", 0)

    @cached_property
    def _token(self) -> Cost:
        return passes.token(self)

    def forward(self, *, seq: Size | None = None, batch: Size = 1, dtype: DType = "bf16", lengths: Any = None) -> Cost:
        """The forward pass over *batch* sequences of *seq* tokens, or over documents of
        the *lengths*, the head on each token.

        Parameters
        ----------
        seq : Size, optional
            Tokens of a sequence; of an encoder-decoder, in each of the two. A model of
            images knows it from the image; a dual encoder (CLIP) reads *batch* texts of
            *seq* tokens, and as many images.
        batch : Size, optional
            Sequences; with *lengths*, how many times these documents are there.
        dtype : DType, optional
            Number format of weights and activations, for the bytes.
        lengths : Any, optional
            In the place of *seq*: the tokens of each document of a packed or ragged
            batch, in a list, an array or a tensor. A token sees its own document alone,
            in which positions, windows, chunks and states begin anew; how documents are
            laid out in rows makes no difference, and tokens of padding are not there.
            So FLOPs are the sum of ``forward(seq=s)`` over them, under every
            convention: TORCH counts all Σ s² positions of their score matrices, as
            it does for jagged tensors, and an author's preset takes each document's
            own length. Of an encoder-decoder: the lengths in each of the two.

        Returns
        -------
        Cost
            Of the whole batch, under EXACT. Its parts are the embedding, the layers of
            each kind, norm and head. Bytes: each operator by itself.

        Raises
        ------
        ValueError or TypeError
            For a bad size, both *seq* and *lengths* or neither, a model of images with
            *lengths*, a text longer than a table of positions.

        Notes
        -----
        Not counted: the loss, dropout, soft caps of scores or logits, building masks
        and tables of angles, copies, and factors that are fixed numbers and could be
        multiplied into weights (Granite's and Falcon-H1's multipliers).
        Bytes with *lengths*: weights and rows of positions are read once for all
        documents, and no scores are moved, as with a flash kernel.

        Examples
        --------
        >>> from flopkit import load
        >>> llama = load("llama-3-8b")
        >>> packed, whole = llama.forward(lengths=[512, 3584, 4096]), llama.forward(seq=8192)
        >>> packed.flops == sum(llama.forward(seq=s).flops for s in (512, 3584, 4096))
        True
        >>> round(whole.macs_by_kind["scores"] / packed.macs_by_kind["scores"], 2)  # of taking 8192 for each
        2.25
        """
        run = self._whole(seq, batch, dtype, lengths)
        return Cost.total(f"{self.name}, forward", (each.cost for each in self.parts(run)))

    def parts(self, run: Run) -> list[Part]:
        """The parts of a pass, each with the weights it reads and the numbers it leaves
        in the cache."""
        return passes.through(self, run)

    def layer(self, kind: int = 0, *, seq: Size, batch: Size = 1, dtype: DType = "bf16") -> Cost:
        """One layer of a *kind*, a place in ``blocks``, by its parts."""
        seq = size("seq", seq)
        run = Run(size("batch", batch), seq, seq, causal=self.causal, encoded=self.encoded(seq), dtype=dtype)
        return Cost.total("layer", (each.cost for each in passes.layer(self, self.blocks[kind][0], run)))

    def table(self, *, seq: Size | None = None, batch: Size = 1, dtype: DType = "bf16", lengths: Any = None) -> Table:
        """The forward pass over *batch* sequences of *seq* tokens, or over documents of
        the *lengths*, one row a part, the total last.

        Parameters
        ----------
        seq : Size, optional
            Tokens of a sequence, as in `forward`.
        batch : Size, optional
            Sequences.
        dtype : DType, optional
            Number format of weights and activations, for the bytes.
        lengths : Any, optional
            In the place of *seq*: the tokens of each document, as in `forward`.

        Returns
        -------
        Table
            Columns: *part*; *times*, how many equal ones there are; *formula*, the
            FLOPs of one of them in words of its sizes; *FLOPs*, *params* and *bytes* of
            all of them together; the *share* of the total's FLOPs. A row of layers
            comes before the rows of what is inside, which are set in; the column
            *level*, not shown, is 0 in rows that add up to the total. All under EXACT.

        Notes
        -----
        *tokens* in a formula are those of all sequences, *pairs* the query-key pairs of
        all sequences that the mask lets through.

        Examples
        --------
        >>> from flopkit import load
        >>> rows = load("llama-3-8b").table(seq=8192)
        >>> [row["part"] for row in rows if row["level"] == 0]
        ['embedding', 'layers', 'norm', 'head', 'total']
        >>> rows[3]["part"], rows[3]["times"], rows[3]["formula"]
        ('  q_proj', 32, '2·tokens·4096·4096')
        """
        run = self._whole(seq, batch, dtype, lengths)
        documents = "" if run.documents is None else f" in {amount(run.documents.count)} documents"
        caption = f"{self.name}, forward, {amount(run.batch)} × {amount(run.q)} tokens{documents}"
        return model_table(caption, self.parts(run))

    def _whole(self, seq: Any, batch: Any, dtype: Any, lengths: Any = None) -> Run:
        """*batch* sequences of *seq* tokens, or documents of the *lengths*, from the
        first to the last layer."""
        documents = None
        if lengths is not None:
            if seq is not None:
                raise ValueError(
                    f"seq={short(seq)} beside lengths={short(lengths)}: the tokens of each document take the place of seq; leave one out"
                )
            if self.patches is not None:
                raise ValueError(
                    f"lengths={short(lengths)}: an image has {self.patches.tokens} tokens in {self.name}; leave lengths= out"
                )
            documents = lengths_of(lengths)
            seq = documents.tokens
        if seq is None:
            if self.patches is None or self.patches.tokens is None:
                raise TypeError(
                    f"{self.name}: seq= is missing, the tokens of a sequence, e.g. seq=4096, or lengths=, those of each document"
                )
            seq = self.patches.tokens
        seq, batch = size("seq", seq), size("batch", batch)
        fixed = None if self.patches is None else self.patches.tokens
        if fixed is not None and offence(lambda given, tokens: given != tokens, seq, fixed):
            raise ValueError(f"seq={seq}: an image has {fixed} tokens in {self.name}; leave seq= out")
        if documents is not None and self.waves is not None:
            raise ValueError(f"lengths={short(lengths)}: {self.name} reads waves of one length; give seq=, its tokens")
        if documents is not None and self.encoder is not None and self.encoder.frames is not None:
            raise ValueError(
                f"lengths={short(lengths)}: each text of {self.name} has sound of its own, of one length; give seq=, or a call for each text"
            )
        encoded = self.encoded(seq)
        return Run(batch, seq, seq, causal=self.causal, encoded=encoded, dtype=dtype, documents=documents)
