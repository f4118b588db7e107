"""A whole model: what stands before the layers, the layers in their order, and what
stands after them."""

from __future__ import annotations

from dataclasses import dataclass

from flopkit.models.display import in_a_line, stack_sizes, summary
from flopkit.models.serving.served import Served
from flopkit.models.training.trained import Trained

__all__ = ["Model"]


@dataclass(frozen=True, kw_only=True)
class Model(Trained, Served):
    """A transformer as data: widths, the kinds of its layers, and what stands before
    and after them.

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
    shared : bool, optional
        Whether all layers of a kind have the same parameters, which then count once
        (ALBERT). Their FLOPs count for each layer; a convention that counts parameters
        counts them once.
    order : tuple[int, ...], optional
        The kind of each layer in turn, as a place in *blocks*; for tables and
        comparisons, the numbers do not need it.
    norm : str, optional
        ``"rms"`` or ``"layer"``.
    norm_weight : Flag, optional
        Whether a layer norm has a weight (OLMo's have none).
    norm_bias : Flag, optional
        Whether a layer norm adds a bias.
    final_norm : bool, optional
        Whether a norm stands after the last layer.
    tied : Flag, optional
        Whether the head's matrix is the embedding's table, whose parameters then count
        once.
    head : str or Head, optional
        ``"tokens"``: a product with the vocabulary; ``"none"``: there is none;
        ``"mlm"``: a dense layer, an activation, a norm and a product with the tied
        table that has a bias (BERT); ``"classes"``: a dense layer for the first token
        alone (ViT); or a `Head` with its sizes.
    head_bias : Flag, optional
        Whether the head's product adds a bias.
    second_head : Head, optional
        A head for labels beside the other one (BERT's pretraining).
    unused : Count, optional
        Parameters that no forward pass uses: a second bias of untied words (BERT), a
        head for contacts (ESM).
    positions : Size, optional
        Rows of a table of learned positions. None: there is none.
    position_offset : Count, optional
        The first rows of this table that no token reads: RoBERTa's 514 rows are for
        512 tokens, and OPT's are two more, too.
    token_types : int | tuple[int, ...], optional
        Rows of a table of token types (BERT), or of several, which are added.
    embedding_norm : bool, optional
        Whether a norm follows the embedding.
    embedding_dim : Size, optional
        Features of the embedding's tables, where a dense layer behind them (and behind
        their norm) makes *d_model* of them (ALBERT, ELECTRA). None: *d_model*, and there
        is no such layer.
    embedding_bias : Flag, optional
        Whether this layer adds a bias.
    word_dim : Size, optional
        Features of a word's vector where they are not *d_model*: a matrix leads into
        the layers, and one out of them to the head (OPT-350m). The tables of positions
        keep *d_model*, so it does not go with *embedding_dim*.
    causal : bool, optional
        Whether a token sees only those before it.
    encoder : Stack, optional
        The encoder of an encoder-decoder; the rest describes the decoder. Their
        embedding is one.
    ends : tuple[End, ...], optional
        What stands between the last norm and the head: poolers, heads of several
        layers, a second tower.
    patches : Patches, optional
        What makes tokens of an image.
    frames : Frames, optional
        What makes tokens of sound, of a spectrogram.
    waves : Waves, optional
        What makes tokens of sound, of the wave itself (wav2vec 2.0).
    pictures : Stack, optional
        Of a model of text and images, its tower of pictures and what brings their
        tokens to the decoder's width, as a `Model` of its own: its parameters are not
        among those of this one. `forward` there is for images, or for the tiles into
        which a picture is cut; ``tokens_for`` an image of so many patches go to the
        decoder, ``image_tokens`` where all have one size. None: there is none, or it
        is not described here.
    mtp : Block, optional
        A layer for multi-token prediction: it joins the last layer's output and the
        next token's embedding by one matrix, and uses the head once more.
    layer_inputs : LayerInputs, optional
        An input of its own for each layer (Gemma 3n and 4).
    streams : HyperConnections or AlternatingUpdates, optional
        Where the residual stream is several ones (DeepSeek-V4; Gemma 3n), what joins
        them. None: it is one.
    formats : Formats, optional
        The formats in which its file stores the weights. None: it does not say.
    source : str, optional
        Where the sizes come from.
    notes : tuple[str, ...], optional
        What a reader of its configuration took for what does not stand there.

    Examples
    --------
    >>> from flopkit.models import MLP, Attention, Block, Model
    >>> layer = Block(mixer=Attention(heads=4, kv_heads=2, head_dim=16), mlp=MLP(d_ff=96))
    >>> small = Model(name="small", d_model=64, vocab=100, blocks=((layer, 2),))
    >>> small.params == 2 * 100 * 64 + 2 * (64 * 16 * (2 * 4 + 2 * 2) + 3 * 64 * 96) + 5 * 64
    True
    """

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return in_a_line(self, stack_sizes(self))

    def _repr_html_(self) -> str:
        return summary(self, stack_sizes(self))._repr_html_()
