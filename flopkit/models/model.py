"""A whole model: what stands before the layers, the layers in their order, and what
stands after them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from flopkit.arithmetic import total
from flopkit.cost import Cost, amount
from flopkit.dtypes import DType
from flopkit.models import activations, passes
from flopkit.models.display import in_a_line, model_table, no_text, stack_sizes, summary
from flopkit.models.feed_forward import Experts
from flopkit.models.finetuning import LastLayers, adapted, training_of
from flopkit.models.formats import Weights
from flopkit.models.lora import LoRA
from flopkit.models.parts import Part, Run
from flopkit.models.recompute import Segments, computed_again, policy_name
from flopkit.models.stack import Stack
from flopkit.models.storage import nbytes
from flopkit.models.weights import formats_of, read_bytes, weight_bytes
from flopkit.sizes import Count, Factor, Size, choice, lengths_of, offence, short, size
from flopkit.tables import Table
from flopkit.training.memory import OPTIMIZERS, PRECISIONS, Memory
from flopkit.training.steps import Step

__all__ = ["Model"]


@dataclass(frozen=True, kw_only=True)
class Model(Stack):
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
        (ALBERT). Their FLOPs count for each layer, and so they do under a convention
        that counts parameters.
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
        the layers, and one out of them to the head (OPT-350m).
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
        What makes tokens of sound.
    pictures : Stack, optional
        Of a model of text and images, its tower of pictures and what brings their
        tokens to the decoder's width, as a `Model` of its own: its parameters are not
        among those of this one. `forward` there is for images; ``image_tokens`` of them
        go to the decoder. None: there is none, or it is not described here.
    mtp : Block, optional
        A layer for multi-token prediction: it joins the last layer's output and the
        next token's embedding by one matrix, and uses the head once more.
    layer_inputs : LayerInputs, optional
        An input of its own for each layer (Gemma 4).
    streams : HyperConnections, optional
        Where the residual stream is several ones (DeepSeek-V4), what joins them. None:
        it is one.
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

    @cached_property
    def params(self) -> Any:
        """Trainable numbers, with input embedding and head; a tied table counts
        once."""
        return passes.token(self).params

    @cached_property
    def active_params(self) -> Any:
        """Trainable numbers that work for a token: all but the experts that it does not
        choose."""
        return self.params - passes.token(self).macs_by_kind.get("idle", 0)

    def trained_params(self, trained: str | LastLayers | LoRA = "all") -> Any:
        """How many numbers a step trains that is asked for with the same *trained*, as
        in `train_step`.

        >>> from flopkit import LoRA, load
        >>> load("gpt-3-175b").trained_params(LoRA(rank=8))  # 37.7 million in Hu et al. 2022, table 4
        37748736
        """
        return training_of(self, trained).params()

    # -- the pass ---------------------------------------------------------------------------------------------

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
        and tables of angles, copies.
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

    def train_step(
        self, *, seq: Size | None = None, batch: Size = 1, recompute: str | Segments = "none", early_stop: bool = False,
        dtype: DType = "bf16", trained: str | LastLayers | LoRA = "all", capacity: Factor | None = None, lengths: Any = None,
    ) -> Step:  # fmt: skip
        """One training step over *batch* sequences of *seq* tokens, or over documents of
        the *lengths*.

        FLOPs: forward as `forward` counts it; backward, where all is trained, twice as
        much, since each product comes back as two (the first product of a model of
        images as one, for its input needs no gradient). Where a part is frozen, its
        weight has no gradient, and where nothing before it is trained, its input has
        none.
        Recompute: nothing (``"none"``), scores and values of attention
        (``"selective"``), the forward pass of every layer (``"full"``), or of all
        layers but those of the last segment (`Segments`), and besides the scores that
        a flash kernel computes again.

        Parameters
        ----------
        seq : Size, optional
            Tokens of a sequence, as in `forward`.
        batch : Size, optional
            Sequences, or how many times the documents are there.
        recompute : str or Segments, optional
            ``"none"``, ``"selective"``, ``"full"``, or segments of so many layers:
            ``fk.models.Segments(layers=4)``.
        early_stop : bool, optional
            Whether a checkpointed part is computed again only as far as the backward
            pass needs it, as PyTorch's non-reentrant checkpoint does: the last product
            of an MLP at its end is left out. The core of ``"selective"`` is counted
            whole in any case: Megatron's checkpoint runs it to its end, and so must one
            around a flash kernel.
        dtype : DType, optional
            Number format of weights and activations.
        trained : str | LastLayers | LoRA, optional
            ``"all"``; ``"head"``: the head alone; the last layers and what follows
            them: ``fk.models.LastLayers(2)``; or adapters (`LoRA`), with all else
            frozen. A layer without a backward pass is not computed again. A tied head
            trains the embedding, too.
        capacity : Factor, optional
            The capacity factor of experts, as in `flopkit.moe`. Rows that no token
            fills count as hardware FLOPs and not as model FLOPs. None: no limit, no
            padding.
        lengths : Any, optional
            In the place of *seq*: the tokens of each document, as in `forward`.
            `Step.packed` gives the same step over other documents.

        Examples
        --------
        >>> from flopkit import load
        >>> step = load("llama-3-8b").train_step(seq=8192, batch=2)
        >>> step.model_flops == 3 * load("llama-3-8b").forward(seq=8192, batch=2).flops
        True
        """
        policy = policy_name(recompute)
        run = replace(self._whole(seq, batch, dtype, lengths), capacity=self._capacity(capacity))
        training = training_of(self, trained)
        parts = adapted(self, run, training.lora)
        layers = [each for each in parts if each.place == "layers"]
        again = computed_again(layers, recompute, early_stop, training)

        def work(name: str, costs: Iterable[Cost]) -> Cost:
            found = Cost.total(name, list(costs))
            return Cost(name, macs_by_kind=found.macs_by_kind, vector_by_kind=found.vector_by_kind)

        backward, flash = training.backward(parts)
        return Step(
            name=f"{self.name}, training step",
            tokens=run.tokens,
            images=None if self.patches is None else run.batch,
            forward=Cost.total("forward", [each.cost for each in parts]),
            backward=backward,
            checkpointed=work(policy, again),
            scores_again=flash,
            outside=work("outside", (each.cost for each in parts if each.place != "layers")),
            full=recompute == "full",
            over=partial(
                self.train_step, recompute=recompute, early_stop=early_stop, dtype=dtype, trained=trained, capacity=capacity
            ),
        )  # fmt: skip

    def train_memory(
        self, *, seq: Size | None = None, batch: Size = 1, recompute: str | Segments = "none", precision: str = "mixed",
        optimizer: str = "adam", kernel: str = "flash", dropout: bool = False, trained: str | LastLayers | LoRA = "all",
    ) -> Memory:  # fmt: skip
        """Memory of one training step over *batch* sequences of *seq* tokens on one
        device.

        Weights, gradients and optimiser: their bytes a parameter by *precision* and
        *optimizer*; 16 for ``"mixed"`` and ``"adam"``. Frozen parameters have their
        weight alone.
        Activations: every tensor that some operator keeps for its backward pass, once:
        see `Memory.layer_table` for the list.

        Parameters
        ----------
        seq : Size, optional
            Tokens of a sequence, as in `forward`.
        batch : Size, optional
            Sequences.
        recompute : str or Segments, optional
            As in `train_step`. ``"full"`` keeps the input of every layer; `Segments`
            keep the inputs of all segments but the last, and all of the last.
        precision : str, optional
            ``"fp32"``, ``"mixed"`` (16-bit weights and gradients, a copy of the weights
            in fp32), ``"mixed-fp32-gradients"``, ``"bf16"``. Activations are bf16 in
            all but the first.
        optimizer : str, optional
            ``"adam"``, ``"adam-8bit"``, ``"momentum"`` or ``"sgd"``.
        kernel : str, optional
            ``"flash"``, or ``"math"``, which keeps the softmax of all scores, and of a
            layer with a state all that torch keeps.
        dropout : bool, optional
            Whether dropout stands behind each branch and, with ``"math"``, behind the
            softmax; its masks take a byte a position.
        trained : str | LastLayers | LoRA, optional
            As in `train_step`. The input of a frozen dense layer is not kept for it.

        Raises
        ------
        ValueError
            For a word that is not known, a number of layers that does not divide, or
            what is not known here: a fused kernel of layers with a state or for scores
            with learned biases (T5), segments of an encoder-decoder.

        Notes
        -----
        Not counted: see `Memory`.
        Mixtures of experts hold the tokens of the chosen experts, spread evenly or not,
        without padding.
        The lists of GPT, Llama, BERT, ViT and T5 layers, of latent attention and of
        experts agree to the byte with transformers' own modules, less what those keep
        beyond need (norms written out in steps, masks; the tests name it).
        Experts: the list is that of grouped products over the tokens in the order of
        their experts (``"grouped_mm"`` in transformers). A loop over the experts that
        adds up by ``index_add_`` keeps the chosen experts' weighted outputs besides,
        and ``"batched_mm"`` a copy of the matrices of each token's experts. Where the
        chosen probabilities are divided by their sum, that division keeps them once
        more.
        Latent attention: values are counted by themselves, as if they were copied out
        of what ``kv_up`` makes; without a copy they hold the keys beside them, heads ·
        qk_nope numbers a token, and the latent holds the rope key, qk_rope numbers.
        Layers with a state (gated delta rule, Mamba-2): with ``"math"`` the chunked
        algorithm as transformers writes it out in torch, its copies in fp32 among it. A
        fused kernel, which recomputes most of it, is not known here, nor is what other
        layers with a state keep (`SelectiveScan`, `LightningAttention`,
        `GatedRecurrence`, `SharedBlock`, a `GatedDelta` with *decay_rank*).
        The first layer with adapters is taken for one like the others: it keeps what
        leads to an input that needs no gradient, too.
        The layer for multi-token prediction counts among the ends: no policy computes
        it again.
        With ``"full"``, T5's learned biases are inputs of checkpoints and count among
        the layers; masks and tables of angles, which could be, do not count.

        References
        ----------
        Korthikanti et al. 2022, section 4: 34 + 5·heads·seq/d_model bytes a token,
        feature and layer of a GPT with dropout, and Rajbhandari et al. 2020, section 3,
        for the states.

        Examples
        --------
        >>> from flopkit import load
        >>> memory = load("llama-3-8b").train_memory(seq=8192)
        >>> memory.states == 16 * load("llama-3-8b").params
        True
        >>> full = load("llama-3-8b").train_memory(seq=8192, recompute="full")
        >>> round(memory.layers / full.layers, 1)
        20.5
        """
        policy = policy_name(recompute)
        for name, value, known in (
            ("precision", precision, PRECISIONS), ("optimizer", optimizer, OPTIMIZERS), ("kernel", kernel, ("flash", "math")),
        ):  # fmt: skip
            choice(name, value, tuple(known))
        run = self._whole(seq, batch, "fp32" if precision == "fp32" else "bf16")
        training = training_of(self, trained)
        layers = activations.of_layers(training, run, recompute, kernel, dropout)
        weights, gradients, states = training.state_bytes(precision, optimizer)
        name = f"{self.name}, training step" + ("" if policy == "none" else f", recompute {policy}")
        ends = activations.of_ends(training, run, kernel, dropout)
        return Memory(name, weights, gradients, states, layers.there, ends, layers.again, layers.kept)

    def prefill(
        self, *, prompt: Size, batch: Size = 1, weights: Weights | None = None, kv_cache: DType | None = None,
        prefix: Count = 0,
    ) -> Cost:  # fmt: skip
        """The pass over *batch* prompts that fills the cache; the head runs on the last
        token of each.

        Parameters
        ----------
        prompt : Size
            New tokens of a sequence.
        batch : Size, optional
            Sequences.
        weights : Weights, optional
            The format in which the weights are stored: a name (``"bf16"``, ``"fp8"``,
            ``"mxfp4"``, ``"nf4"``, ``"q4_k_m"``, …, blocks with their scales), or a
            name by role, ``{"experts": "mxfp4", "rest": "bf16"}``; `Formats` lists the
            roles and says what a format of blocks leaves alone. None: what the model's
            file says, else bf16.
        kv_cache : DType, optional
            The format of the cache. None: what the model's file says, else bf16.
        prefix : Count, optional
            Tokens of a sequence that lie in the cache already, from an earlier chunk or
            a prompt that others share.

        Returns
        -------
        Cost
            FLOPs under EXACT. Bytes: the weights that are read once and the cache, of
            which each number is read or written once; states of linear attention are
            read and written.

        Notes
        -----
        Not counted in the bytes: activations, logits among them, which can stay on the
        chip; scales of plain formats such as fp8 and int4 (formats of blocks have
        theirs). So the bytes are a lower bound.

        Examples
        --------
        >>> from flopkit import load
        >>> llama = load("llama-3-8b")
        >>> whole, first = llama.prefill(prompt=4096).flops, llama.prefill(prompt=2048).flops
        >>> whole == first + llama.prefill(prompt=2048, prefix=2048).flops - 2 * llama.d_model * llama.vocab  # one head is saved
        True
        """
        prompt, prefix = size("prompt", prompt), size("prefix", prefix, minimum=0)
        batch = size("batch", batch)
        return self._served("prefill", Run(batch, prompt, prompt + prefix), batch, weights, kv_cache)

    def decode(
        self, *, context: Size, batch: Size = 1, weights: Weights | None = None, kv_cache: DType | None = None,
        new: Size = 1,
    ) -> Cost:  # fmt: skip
        """One step of decoding: one new token for each of *batch* sequences.

        Parameters
        ----------
        context : Size
            Tokens of a sequence, the new ones included.
        batch : Size, optional
            Sequences.
        weights : Weights, optional
            The format of the weights, as in `prefill`.
        kv_cache : DType, optional
            That of the cache.
        new : Size, optional
            New tokens of each sequence: more than one where a step verifies drafted
            tokens. The head runs on each.

        Returns
        -------
        Cost
            FLOPs under EXACT; latent attention runs in its absorbed form. Bytes: as in
            `prefill`; of the experts, those of ``min(experts, batch·new·top_k)`` are
            read, the most that so many tokens can reach.

        Notes
        -----
        Not counted in the bytes: activations, logits among them; scales of plain
        formats.

        Examples
        --------
        >>> from flopkit import load
        >>> step = load("llama-3-8b").decode(context=8192)
        >>> step.bytes  # the weights without the table of the embedding, one row of it, and a cache of 1.07 GB
        16083599360
        >>> checkpoint = {"experts": "mxfp4", "rest": "bf16"}
        >>> load("gpt-oss-120b").decode(context=1, weights=checkpoint).bytes
        5002981632
        """
        tokens, whole = size("new", new), size("context", context)
        if offence(lambda part, all: part > all, tokens, whole):
            raise ValueError(f"new={new}: these tokens are part of the context={context}, which cannot be shorter")
        run = Run(size("batch", batch), tokens, whole, decode=True)
        return self._served("decode", run, run.tokens, weights, kv_cache)

    def weight_bytes(self, weights: Weights | None = None) -> Any:
        """Bytes of all weights, as a checkpoint has them; a tied table counts once.

        Parameters
        ----------
        weights : Weights, optional
            The format in which they are stored, as in `prefill`.

        Notes
        -----
        Not counted: names and shapes of the tensors in a file, its vocabulary, one
        number for a whole tensor (see `flopkit.models.Storage`).

        Examples
        --------
        >>> from flopkit import load
        >>> load("gpt-oss-120b").weight_bytes({"experts": "mxfp4", "rest": "bf16"})  # published: 65.25 GB
        65248815744
        >>> load("llama-3-8b").weight_bytes("nf4")  # QLoRA: embedding, head and norms in bf16
        5702295552
        """
        return weight_bytes(self, formats_of(self, weights))

    def kv_bytes(self, *, context: Size, batch: Size = 1, dtype: DType = "bf16") -> Any:
        """Bytes of the cache of *batch* sequences of *context* tokens.

        Keys and values of every layer; a layer with a window keeps min(context, window)
        tokens, latent attention a latent and a rope key.

        Parameters
        ----------
        context : Size
            Tokens of a sequence.
        batch : Size, optional
            Sequences.
        dtype : DType, optional
            Number format of the cache.

        Examples
        --------
        >>> from flopkit import load
        >>> load("llama-3-8b").kv_bytes(context=8192), load("deepseek-v3").kv_bytes(context=1)
        (1073741824, 70272)
        """
        self._of_text("cache")
        context, batch = size("context", context), size("batch", batch)
        # keys and values of an encoder's output are taken to be as long as the text here
        branches = ((branch, layers) for block, layers in self.blocks for branch in (block.mixer, block.cross))
        numbers = total(layers * branch.held(context) for branch, layers in branches if branch is not None)
        return nbytes(batch * numbers, dtype)

    def _served(self, name: str, run: Run, head_tokens: Any, weights: Any, cache: Any) -> Cost:
        self._of_text(name)
        if self.encoder is not None:
            run = replace(run, encoded=run.kv)
        formats = formats_of(self, weights)
        cache = self.cache_format(cache)
        found = passes.through(replace(self, mtp=None), run, head_tokens)
        read = read_bytes(self, formats, found)
        parts = [
            replace(each.cost, bytes=weights + nbytes(each.cache, cache), parts=())
            for each, weights in zip(found, read, strict=True)
        ]
        return Cost.total(f"{self.name}, {name}", parts)

    def cache_format(self, kv_cache: DType | None) -> Any:
        """The format of the cache: the one that is given, else what the model's file
        says, else bf16."""
        if kv_cache is not None:
            return kv_cache
        return "bf16" if self.formats is None or self.formats.kv_cache is None else self.formats.kv_cache

    def _of_text(self, name: str) -> None:
        if not self.writes:
            raise no_text(self, name)

    def _capacity(self, capacity: Any) -> Any:
        """A capacity factor, which only experts have."""
        if capacity is not None and not any(isinstance(block.mlp, Experts) for block, _ in self.blocks):
            raise ValueError(f"capacity={capacity}: {self.name} has no experts, which alone have a capacity")
        return capacity

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
        if documents is not None and self.encoder is not None and self.encoder.frames is not None:
            raise ValueError(
                f"lengths={short(lengths)}: each text of {self.name} has sound of its own, of one length; give seq=, or a call for each text"
            )
        encoded = None if self.encoder is None else self._encoded(seq)
        return Run(batch, seq, seq, causal=self.causal, encoded=encoded, dtype=dtype, documents=documents)

    def _encoded(self, seq: Any) -> Any:
        """Tokens of the encoder's output: as many as the decoder has, where sound does not say it."""
        return seq if self.encoder is None or self.encoder.frames is None else self.encoder.frames.tokens

    def parts(self, run: Run) -> list[Part]:
        """The parts of a pass, each with the weights it reads and the numbers it leaves
        in the cache."""
        return passes.through(self, run)

    def layer(self, kind: int = 0, *, seq: Size, batch: Size = 1, dtype: DType = "bf16") -> Cost:
        """One layer of a *kind*, a place in ``blocks``, by its parts."""
        encoded = self._encoded(seq)
        run = Run(size("batch", batch), size("seq", seq), seq, causal=self.causal, encoded=encoded, dtype=dtype)
        return Cost.total("layer", (each.cost for each in passes.layer(self, self.blocks[kind][0], run)))

    # -- showing itself ---------------------------------------------------------------------------------------

    def table(self, *, seq: Size | None = None, batch: Size = 1, dtype: DType = "bf16") -> Table:
        """The forward pass over *batch* sequences of *seq* tokens, one row a part, the
        total last.

        Parameters
        ----------
        seq : Size, optional
            Tokens of a sequence, as in `forward`.
        batch : Size, optional
            Sequences.
        dtype : DType, optional
            Number format of weights and activations, for the bytes.

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
        run = self._whole(seq, batch, dtype)
        return model_table(f"{self.name}, forward, {amount(run.batch)} × {amount(run.q)} tokens", self.parts(run))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return in_a_line(self, stack_sizes(self))

    def _repr_html_(self) -> str:
        return summary(self, stack_sizes(self))._repr_html_()
