"""A model that is trained: its steps, and their memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from flopkit.arithmetic import brief, ceil_div, minimum, same, where
from flopkit.cost import Cost
from flopkit.dtypes import DType
from flopkit.models.branches.feed_forward import Experts
from flopkit.models.running import Running
from flopkit.models.training import activations, autocast
from flopkit.models.training.finetuning import LastLayers, adapted, training_of
from flopkit.models.training.lora import LoRA
from flopkit.models.training.recompute import Segments, computed_again, policy_name
from flopkit.models.training.sharded import gathered_bytes
from flopkit.sizes import Factor, Size, choice, offence, short, size
from flopkit.training.memory import OPTIMIZERS, PRECISIONS, Memory
from flopkit.training.runs import TrainingRun, run_of
from flopkit.training.steps import Step

__all__ = ["Trained"]

LENGTH = 8192  # tokens of a sequence of a training run, where none is given


class Trained(Running):
    """The training steps of a `Model`."""

    def trained_params(self, trained: str | LastLayers | LoRA = "all") -> Any:
        """How many numbers a step trains that is asked for with the same *trained*, as
        in `train_step`.

        >>> from flopkit import LoRA, load
        >>> load("gpt-3-175b").trained_params(LoRA(rank=8))  # 37.7 million in Hu et al. 2022, table 4
        37748736
        """
        return training_of(self, trained).params()

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
        lengths: Any = None, shards: Size = 1,
    ) -> Memory:  # fmt: skip
        """Memory of one training step over *batch* sequences of *seq* tokens, or over
        documents of the *lengths*, on one device.

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
            in fp32), ``"mixed-fp32-gradients"``, ``"mixed-both-gradients"`` (16-bit
            gradients beside their sum in fp32), ``"autocast"`` (``torch.autocast`` over
            fp32 weights, as transformers' ``Trainer`` with ``bf16=True``), ``"bf16"``,
            and for *shards* alone ``"fsdp"`` (fp32 weights, which are gathered in bf16,
            and gradients that are summed in fp32, as torchtitan's).
            Activations are fp32 with the first, and bf16 with the others; under
            autocast what runs between the branches is fp32, and each dense layer keeps
            its input and its matrix in 16 bits.
        optimizer : str, optional
            ``"adam"``, ``"adam-8bit"``, ``"adam-16bit"``, ``"momentum"`` or ``"sgd"``.
        kernel : str, optional
            ``"flash"``, or ``"math"``, which keeps the softmax of all scores, and of a
            layer with a state all that torch keeps.
        dropout : bool, optional
            Whether dropout stands behind each branch and, with ``"math"``, behind the
            softmax; its masks take a byte a position.
        trained : str | LastLayers | LoRA, optional
            As in `train_step`. The input of a frozen dense layer is not kept for it.
        lengths : Any, optional
            In the place of *seq*: the tokens of each document, as in `forward`. With a
            flash kernel every tensor has a row for each token, so what a document keeps
            is the same beside others as by itself, and padding is not there.
        shards : Size, optional
            Devices among which weights, gradients and optimiser are divided (FSDP,
            ZeRO-3). *batch* and *lengths* are those of one of them, which holds its share
            of the states, rounded up, and whole layers while it computes with them:
            ``Memory.gathered``, see `flopkit.training.gathered`. A layer is gathered by
            itself, what stands before the layers, and what stands after them; embedding
            and head together where they are tied. Layers are gathered in the weights'
            format of *precision*, and their gradients summed in that of gradients.

        Raises
        ------
        ValueError
            For a word that is not known, a number of layers that does not divide, or
            what is not known here: a fused kernel of layers with a state or for scores
            with learned biases (T5), segments of an encoder-decoder, *lengths* with
            ``"math"``, *shards* of encoder-decoders, of layers that share weights and of
            multi-token prediction; for ``"fsdp"`` on one device.

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
        A base of few bits (``"nf4"``) is divided and gathered as it is stored, with its
        scales, as torchtune does; bitsandbytes leaves the scales whole on each device.
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
        >>> load("llama-3-8b").train_memory(seq=8192, precision="fsdp", shards=8)
        llama-3-8b, training step, 1 of 8 shards: 68.04 GB, 48.4 GB of it activations; 76.45 GB with the gradients of the loss
        """
        policy = policy_name(recompute)
        for name, value, known in (
            ("precision", precision, PRECISIONS), ("optimizer", optimizer, OPTIMIZERS), ("kernel", kernel, ("flash", "math")),
        ):  # fmt: skip
            choice(name, value, tuple(known))
        among: Any = size("shards", shards)
        if precision == "fsdp" and offence(lambda devices: devices < 2, among):
            raise ValueError(
                "precision='fsdp' says what devices do that divide a model: give shards=, or another precision"
            )
        run = self._whole(seq, batch, "fp32" if precision == "fp32" else "bf16", lengths)
        if lengths is not None and kernel == "math":
            raise ValueError(
                f"kernel='math' beside lengths={short(lengths)}: how large its scores are says the layout of the documents in rows; "
                "give kernel='flash', or of rows that are padded their seq= and batch="
            )
        if precision == "autocast":
            autocast.check(self, trained)
            run = replace(run, autocast=True)
        training = training_of(self, trained)
        layers = activations.of_layers(training, run, recompute, kernel, dropout)
        weights, gradients, states = training.state_bytes(precision, optimizer)
        name = f"{self.name}, training step" + ("" if policy == "none" else f", recompute {policy}")
        ends = activations.of_ends(training, run, kernel, dropout)
        if precision == "autocast":
            ends = ends + autocast.cached(self, run, recompute)
        loss = activations.of_loss(self, run)
        whole = Memory(name, weights, gradients, states, layers.there, ends, layers.again, layers.kept, loss=loss)
        if same(among, 1):
            return whole
        share = {part: ceil_div(getattr(whole, part), among) for part in ("weights", "gradients", "optimizer")}
        gathered = where(among > 1, gathered_bytes(training, precision), 0)
        return replace(whole, name=f"{name}, 1 of {brief(among)} shards", gathered=gathered, **share)

    def training(
        self, *, tokens: Factor, device: Any, count: Size = 1, mfu: float | None = None, device_hours: float | None = None,
        hours: float | None = None, tokens_per_s: float | None = None, seq: Size | None = None, recompute: str | Segments = "none",
        trained: str | LastLayers | LoRA = "all", dtype: DType = "bf16", goodput: float = 1, price: float | None = None,
        watts: float | None = None,
    ) -> TrainingRun:  # fmt: skip
        """A whole training run: hours, device-hours, energy and money from an MFU, or the
        MFU from published hours.

            hours = tokens · FLOPs a token / (MFU · count · peak · goodput) / 3600

        Parameters
        ----------
        tokens : Factor
            Tokens of the run, such as ``15e12``.
        device : Any
            A name or a `Device`.
        count : Size, optional
            Devices.
        mfu, device_hours, hours, tokens_per_s : float, optional
            One of the four, which the others follow from: the share of the peak, under
            EXACT; hours of all devices together, and hours by the clock on the wall,
            both with what *goodput* leaves out; tokens a second of all devices.
        seq : Size, optional
            Tokens of a sequence. None: 8,192, or as many as the model has learned
            positions for.
        recompute : str | Segments, optional
            As in `train_step`; for the executed FLOPs.
        trained : str | LastLayers | LoRA, optional
            As in `train_step`.
        dtype : DType, optional
            The format whose peak counts.
        goodput : float, optional
            The share of the time on the wall in which steps are made that count: the rest
            goes to restarts, work that is lost with them, checkpoints and evaluation.
        price : float, optional
            Dollars of an hour of one device.
        watts : float, optional
            Watts of one device. None: the most that its maker allows (``Device.watts``), where
            that is known.

        Raises
        ------
        ValueError
            For none of the four or several, a share above 1, and a rate above what the
            device can do; for a model of images.

        Notes
        -----
        Not counted: other sequence lengths (a part at longer context, packed documents),
        the optimiser's and other element-wise work, experiments and failed runs.

        References
        ----------
        Chowdhery et al. 2022, appendix B, for MFU; Llama 3.1's model card for the example.

        Examples
        --------
        >>> from flopkit import load
        >>> llama = load("llama-3.1-8b")
        >>> run = llama.training(tokens=15e12, device="h100-sxm", count=1024, mfu=0.4)
        >>> f"{run.days:.1f} days, {run.device_hours:,.0f} hours of an H100"
        '22.1 days, 541,902 hours of an H100'
        >>> llama.training(tokens=15e12, device="h100-sxm", device_hours=1.46e6).mfu  # published
        MFU 14.8 % of 989.4 TFLOP/s in bf16, NVIDIA H100 SXM5 80 GB, EXACT; 16.7 % under TORCH
        """
        if self.patches is not None or self.encoder is not None or not self.one_length:
            raise ValueError(
                f"{self.name}: training= is for a model that reads text alone, and its tokens are not all; take train_step and flopkit.mfu"
            )
        if seq is None:
            longest = None if self.positions is None else self.positions - self.position_offset
            seq = LENGTH if longest is None else minimum(LENGTH, longest)
        step = self.train_step(seq=seq, recompute=recompute, trained=trained, dtype=dtype)
        speed = {"mfu": mfu, "device_hours": device_hours, "hours": hours, "tokens_per_s": tokens_per_s}
        return run_of(
            step, name=self.name, seq=seq, params=self.active_params, tokens=tokens, device=device, count=count, dtype=dtype,
            goodput=goodput, price=price, watts=watts, **speed,
        )  # fmt: skip

    def _capacity(self, capacity: Any) -> Any:
        """A capacity factor, which only experts have."""
        if capacity is not None and not any(isinstance(block.mlp, Experts) for block, _ in self.blocks):
            raise ValueError(f"capacity={capacity}: {self.name} has no experts, which alone have a capacity")
        return capacity
