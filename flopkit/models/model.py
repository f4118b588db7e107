"""A whole model: what stands before the layers, the layers in their order, and what stands after them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flopkit.arithmetic import is_zero, maximum
from flopkit.conventions import total
from flopkit.cost import Cost
from flopkit.dtypes import DType
from flopkit.layers.convolutions import conv2d
from flopkit.layers.embeddings import embedding, learned_positions
from flopkit.layers.normalisations import layer_norm, rms_norm
from flopkit.models.parts import Part, Run, added, part, project
from flopkit.sizes import Flag, Size, choice, divides, flag, number, size

__all__ = ["Block", "Model", "Patches"]


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer: a mixer, in which tokens meet, and an MLP or a mixture of experts, each closed by a residual sum.

    Parameters
    ----------
    mixer : Any
        How tokens meet.
    mlp : Any, optional
        What each token goes through by itself. None: the layer has none.
    cross : Any, optional
        Attention to an encoder's output, between the two.
    norms : str, optional
        Where the norms stand: ``"pre"`` (before each branch), ``"post"`` (after each branch or sum), ``"both"``, or
        ``"parallel"``: one norm, and both branches read its output (PaLM).
    """

    mixer: Any
    mlp: Any = None
    cross: Any = None
    norms: str = "pre"

    def __post_init__(self) -> None:
        choice("norms", self.norms, ("pre", "post", "both", "parallel"))

    @property
    def branches(self) -> list[tuple[str, Any]]:
        """The mixer, the cross-attention and the MLP, those that there are, each with its name."""
        named = (("attention", self.mixer), ("cross", self.cross), ("mlp", self.mlp))
        return [(name, branch) for name, branch in named if branch is not None]


@dataclass(frozen=True, kw_only=True)
class Patches:
    """An image cut into square patches, each brought to the model's width by one matrix (ViT).

    Parameters
    ----------
    image, patch : int
        Pixels of a side of the image, and of a patch.
    channels : Size, optional
        Colours.
    """

    image: int
    patch: int
    channels: Size = 3

    def __post_init__(self) -> None:
        number("image", self.image)
        divides("patch", number("patch", self.patch), "image", self.image)

    @property
    def tokens(self) -> int:
        """Tokens of an image: its patches and a class token."""
        return (self.image // self.patch) ** 2 + 1


@dataclass(frozen=True, kw_only=True)
class Model:
    """A transformer as data: widths, the kinds of its layers, and what stands before and after them.

    Parameters
    ----------
    name : str
        What tables call it.
    d_model : Size
        Features of a token.
    vocab : Size, optional
        Words, or the classes of a model of images.
    blocks : tuple[tuple[Block, Size], ...]
        The kinds of layers, each with how many there are: ``((Block(…), 32),)``.
    order : tuple[int, ...], optional
        The kind of each layer in turn, as a place in *blocks*; for tables and comparisons, the numbers do not need it.
    norm : str, optional
        ``"rms"`` or ``"layer"``.
    norm_bias : Flag, optional
        Whether a layer norm adds a bias.
    final_norm : bool, optional
        Whether a norm stands after the last layer.
    tied : Flag, optional
        Whether the head's matrix is the embedding's table, whose parameters then count once.
    head : str, optional
        ``"tokens"``: a product with the vocabulary; ``"none"``: there is none; ``"mlm"``: a dense layer, an activation, a norm and a
        product with the tied table that has a bias (BERT); ``"classes"``: a dense layer for the first token alone (ViT).
    head_bias : Flag, optional
        Whether the head's product adds a bias.
    positions : Size, optional
        Rows of a table of learned positions. None: there is none.
    token_types : int, optional
        Rows of a table of token types (BERT), which is added.
    embedding_norm : bool, optional
        Whether a norm follows the embedding.
    causal : bool, optional
        Whether a token sees only those before it.
    encoder : Model, optional
        The encoder of an encoder-decoder; the rest describes the decoder. Their embedding is one.
    patches : Patches, optional
        What makes tokens of an image.
    mtp : Block, optional
        A layer for multi-token prediction: it joins the last layer's output and the next token's embedding by one matrix, and uses
        the head once more.
    source : str, optional
        Where the sizes come from.

    Examples
    --------
    >>> from flopkit.models import MLP, Attention, Block, Model
    >>> layer = Block(mixer=Attention(heads=4, kv_heads=2, head_dim=16), mlp=MLP(d_ff=96))
    >>> small = Model(name="small", d_model=64, vocab=100, blocks=((layer, 2),))
    >>> small.params == 2 * 100 * 64 + 2 * (64 * 16 * (2 * 4 + 2 * 2) + 3 * 64 * 96) + 5 * 64
    True
    """

    name: str
    d_model: Size
    vocab: Size = 1
    blocks: tuple[tuple[Block, Size], ...]
    order: tuple[int, ...] = ()
    norm: str = "rms"
    norm_bias: Flag = True
    final_norm: bool = True
    tied: Flag = False
    head: str = "tokens"
    head_bias: Flag = False
    positions: Size | None = None
    token_types: int = 0
    embedding_norm: bool = False
    causal: bool = True
    encoder: Model | None = None
    patches: Patches | None = None
    mtp: Block | None = None
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("d_model", "vocab"):
            object.__setattr__(self, name, size(name, getattr(self, name)))
        for name in ("tied", "norm_bias", "head_bias"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        choice("norm", self.norm, ("rms", "layer"))
        choice("head", self.head, ("tokens", "none", "mlm", "classes"))
        counted = tuple((block, size("layers", layers, minimum=0)) for block, layers in self.blocks)
        object.__setattr__(self, "blocks", counted)

    # -- what it is made of -----------------------------------------------------------------------------------

    @property
    def layers(self) -> Any:
        """How many layers there are, without those of the encoder."""
        return total(layers for _, layers in self.blocks)

    @cached_property
    def params(self) -> Any:
        """Trainable numbers, with input embedding and head; a tied table counts once."""
        return self._token.params

    @cached_property
    def active_params(self) -> Any:
        """Trainable numbers that work for a token: all but the experts that it does not choose."""
        return self.params - self._token.macs_by_kind.get("idle", 0)

    @property
    def _token(self) -> Cost:
        """The pass of a single token."""
        return self.forward() if self.patches else self.forward(seq=1)

    # -- the pass ---------------------------------------------------------------------------------------------

    def forward(self, *, seq: Size | None = None, batch: Size = 1, dtype: DType = "bf16") -> Cost:
        """The forward pass over *batch* sequences of *seq* tokens, the head on each of them.

        Parameters
        ----------
        seq : Size, optional
            Tokens of a sequence; of an encoder-decoder, in each of the two. A model of images knows it from the image.
        batch : Size, optional
            Sequences.
        dtype : DType, optional
            Number format of weights and activations, for the bytes.

        Returns
        -------
        Cost
            Of the whole batch, under EXACT. Its parts are the embedding, the layers of each kind, norm and head. Bytes: each operator
            by itself.

        Notes
        -----
        Not counted: the loss, dropout, soft caps of scores or logits, building masks and tables of angles, copies.
        """
        if seq is None:
            if self.patches is None:
                raise TypeError(f"{self.name}: seq= is missing, the tokens of a sequence, e.g. seq=4096")
            seq = self.patches.tokens
        seq, batch = size("seq", seq), size("batch", batch)
        run = Run(batch, seq, seq, causal=self.causal, dtype=dtype)
        if self.encoder is not None:
            run = replace(run, memory=seq)
        return Cost.total(f"{self.name}, forward", (each.cost for each in self.parts(run)))

    def parts(self, run: Run, *, head_tokens: Any = None) -> list[Part]:
        """The parts of a pass, each with the weights it reads and the numbers it leaves in the cache.

        *head_tokens*: how many tokens the head is for, all of them where it is None.
        """
        found = [] if self.encoder is None or not run.new_memory else self._encoded(run)
        found += self._entered(run)
        for kind, (block, layers) in enumerate(self.blocks):
            name = "layers" if len(self.blocks) == 1 else f"layers, kind {kind + 1}"
            found.append(_repeated(name, self._layer(block, run), layers))
        if self.final_norm:
            found.append(self._normed("norm", run))
        found += self._head(run, run.tokens if head_tokens is None else head_tokens)
        if self.mtp is not None:
            found.append(self._more_tokens(run))
        return found

    def layer(self, kind: int = 0, *, seq: Size, batch: Size = 1, dtype: DType = "bf16") -> Cost:
        """One layer of a *kind*, a place in `blocks`, by its parts."""
        run = Run(size("batch", batch), size("seq", seq), seq, causal=self.causal, memory=seq, dtype=dtype)
        return Cost.total("layer", (each.cost for each in self._layer(self.blocks[kind][0], run)))

    def _layer(self, block: Block, run: Run) -> list[Part]:
        found: list[Part] = []
        for place, (name, branch) in enumerate(block.branches):
            if block.norms in ("pre", "both") or (block.norms == "parallel" and place == 0):
                found.append(self._normed(f"{name}_norm", run))
            found += branch.parts(run, self.d_model)
            if block.norms == "both":
                found.append(self._normed(f"{name}_post_norm", run))
            found.append(added(f"{name}_sum", run, self.d_model))
            if block.norms == "post":
                found.append(self._normed(f"{name}_norm", run))
        return found

    def _normed(self, name: str, run: Run, tokens: Any = None) -> Part:
        rows = run.tokens if tokens is None else tokens
        if self.norm == "rms":
            return part(name, rms_norm(tokens=rows, d=self.d_model, dtype=run.dtype), rows)
        return part(name, layer_norm(tokens=rows, d=self.d_model, bias=self.norm_bias, dtype=run.dtype), rows)

    def _entered(self, run: Run) -> list[Part]:
        tokens, d_model = run.tokens, self.d_model
        if self.patches is not None:
            side = self.patches.image // self.patches.patch
            conv = conv2d(
                batch=run.batch, c_in=self.patches.channels, c_out=d_model, h_out=side, w_out=side, kernel=self.patches.patch,
                stride=self.patches.patch, bias=True, dtype=run.dtype,
            )  # fmt: skip
            conv = replace(conv, params_by_role={**conv.params_by_role, "position": d_model})  # the class token
            found = [part("patches", conv, run.batch * side * side)]
        else:
            table = embedding(tokens=tokens, vocab=self.vocab, d_model=d_model, dtype=run.dtype)
            kind = {"embedding": (1 - self.tied) * tokens * self.vocab * d_model}
            if not is_zero(self.tied):
                kind["tied"] = self.tied * tokens * self.vocab * d_model
            found = [part("embedding", replace(table, macs_by_kind=kind), tokens, weights=tokens * d_model)]
            if self.token_types:
                types = embedding(tokens=tokens, vocab=self.token_types, d_model=d_model, dtype=run.dtype)
                types = replace(types, macs_by_kind={}, params_by_role={"position": self.token_types * d_model})
                found.append(part("token_types", types, tokens))
        if self.positions is not None:
            rows = maximum(run.kv, self.positions) if run.q is not run.kv else self.positions
            learned = learned_positions(batch=run.batch, seq=run.q, positions=rows, d_model=d_model, dtype=run.dtype)
            found.append(part("positions", learned, tokens, weights=run.q * d_model))
        if self.embedding_norm:
            found.append(self._normed("embedding_norm", run))
        return found

    def _encoded(self, run: Run) -> list[Part]:
        assert self.encoder is not None
        inside = Run(run.batch, run.memory, run.memory, causal=False, dtype=run.dtype)
        found = self.encoder.parts(inside)
        table = found[0].cost  # the same as the decoder's
        found[0] = found[0]._replace(cost=replace(table, params_by_role={}))
        costs = [each.cost for each in found]
        return [Part(Cost.total("encoder", costs), total(each.weights for each in found))]

    def _head(self, run: Run, tokens: Any) -> list[Part]:
        d_model = self.d_model
        found: list[Part] = []
        if self.head == "none":
            return found
        if self.head == "classes":
            return [project("head", run, d_model, self.vocab, 1, tokens=run.batch)]
        if self.head == "mlm":
            found += [
                project("transform", run, d_model, d_model, 1, tokens=tokens),
                self._normed("transform_norm", run, tokens),
            ]
        product, rows, *_ = project("head", run, d_model, self.vocab, self.head_bias, tokens=tokens)
        macs = dict(product.macs_by_kind)
        macs["head"] = macs.pop("products")
        roles = dict(product.params_by_role)
        roles["head"] = (1 - self.tied) * roles.pop("weight")
        cost = replace(product, macs_by_kind=macs, params_by_role=roles)
        return [*found, Part(cost, rows, 0, f"2·tokens·{d_model}·{self.vocab}")]

    def _more_tokens(self, run: Run) -> Part:
        """The layer that predicts one token more, with two norms, a matrix that joins, a norm and the head once more."""
        assert self.mtp is not None
        inside = [self._normed(name, run) for name in ("token_norm", "hidden_norm")]
        inside.append(project("join", run, 2 * self.d_model, self.d_model))
        inside += self._layer(self.mtp, run)
        inside.append(self._normed("norm", run))
        inside += [
            each._replace(cost=replace(each.cost, params_by_role={})) for each in self._head(run, run.tokens)
        ]  # the same matrix
        return _repeated("mtp", inside, 1)

    # -- showing itself ---------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return self.name


def _repeated(name: str, parts: Iterable[Part], times: Any) -> Part:
    """Equal layers as one part."""
    parts = list(parts)
    cost = (Cost.total("layer", (each.cost for each in parts)) * times).named(name)
    return Part(cost, times * total(each.weights for each in parts), times * total(each.cache for each in parts))
