"""A training step on many devices: seconds, where they go, what is sent, and the memory of a rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit import units
from flopkit.models import Model
from flopkit.models.catalogue import the_model
from flopkit.parallel.clusters import Cluster, cluster as the_cluster
from flopkit.parallel.layouts import Layout, the_layout
from flopkit.parallel.plans import Plan, Setting
from flopkit.tables import Table
from flopkit.training.memory import Memory

__all__ = ["ParallelStep", "step"]


@dataclass(frozen=True, repr=False)
class ParallelStep:
    """One training step on a layout.

    ``seconds`` is the least time; ``parts`` says where it goes, on the rank that sets the pace; ``sent`` is bytes that this rank sends, by reason, those
    that hide behind arithmetic, too; ``memory`` is that of the rank with the most, and ``fits`` whether a device has room for its peak, None where its memory is not known; ``supposes`` what
    the numbers rest on.
    """

    model: str
    layout: Layout
    cluster: Cluster
    seq: int
    batch: int
    seconds: float
    mfu: float
    hfu: float
    parts: dict[str, float]
    sent: dict[str, Any]
    memory: Memory
    fits: bool | None
    supposes: tuple[str, ...] = ()

    def table(self) -> Table:
        """One row a part of the time: seconds, share of the step, bytes that the rank sends for it."""
        rows = [
            {"part": name, "seconds": seconds, "share": seconds / self.seconds, "sent": self.sent.get(name, 0)}
            for name, seconds in self.parts.items()
        ]
        rows.append({"part": "step", "seconds": self.seconds, "share": 1.0, "sent": sum(self.sent.values())})
        formats = {
            "seconds": units.seconds,
            "share": units.percent,
            "sent": lambda v: units.si(float(v), "B") if v else "",
        }
        return Table(rows, caption=str(self), formats=formats)

    def __str__(self) -> str:
        fits = {True: "which fits", False: "which does not fit", None: "of a memory that is not known"}[self.fits]
        return (
            f"{self.model} on {self.layout.ranks:,} × {self.cluster.device.name} ({self.layout}): at least {units.seconds(self.seconds)}, "
            f"at most {100 * self.mfu:.3g} % MFU, {units.si(float(self.memory.peak), 'B')} a rank, {fits}"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def step(
    model: Model | str, layout: Layout, cluster: Cluster | str, *, seq: int, batch: int, precision: str = "mixed-fp32-gradients", optimizer: str = "adam",
    kernel: str = "flash", dropout: bool = False, fused: bool = False, overlap: tuple[str, ...] = ("data", "pipeline"), dtype: str = "bf16",
    dispatch_bytes: int = 2, combine_bytes: int = 2, expert_nodes: int | str | None = None, memory: float | None = None, mla_up_proj: bool = False,
    activations: str = "as computed", weigh_inside: bool = False,
    fp8_copies: float = 0,
) -> ParallelStep:  # fmt: skip
    """A training step of *batch* sequences of *seq* tokens on a layout: the least time, and the memory of the fullest rank.

    Arithmetic runs at the peak, links and network cards at their rate, times the cluster's efficiencies; with all at 1 the time is a bound for programs that
    send what is listed here. A mixture of experts whose ranks lie in several nodes can send less than an all-to-all: *expert_nodes*.

        seconds = m · (arithmetic + what waits) + bubble + what the gradients' exchange leaves

    Per layer and micro-batch of b sequences on c context-parallel ranks, S = 2·b·seq/c·d_model bytes:

    - tensor: an all-reduce of S for each branch, forward and backward (with full recompute once more), or a gather and a reduce-scatter (SP). With SP and
      ``regather="all"`` a gather of S more for each branch and the head, in the backward pass. A branch whose experts lie on other ranks (EP) has none of
      these with ``regather="all"``, but for its shared expert: each rank sends its own tokens, as in Megatron-LM with an expert tensor parallelism of 1; else
      they are gathered and summed like others', as in torchtitan. Branches side by side (GPT-J, Falcon) have one all-reduce forward, and one backward for each
      input that is not the other's.
    - context: a gather of keys and values forward and, unless ``regather="none"``, backward, and a reduce-scatter of their gradients. Full recompute
      gathers once more, and unless ``regather="none"`` selective does, too.
    - expert: two all-to-alls of top_k rows a token, forward and backward, and two more with full recompute.
    - pipeline: S / tensor to the next stage and back, for each stage of a rank; the first stage sends only on, the last only back.
    - data: gradients are reduced, with ZeRO-1 and 2 weights are gathered, with ZeRO-3 weights are gathered twice in each micro-batch.

    ``sent`` has these bytes of the rank that sets the pace: what PyTorch sends, to the byte, under DDP (with ``no_sync`` but for the last
    micro-batch: ZeRO-0), FSDP2 with ``reshard_after_forward=True`` (ZeRO-3), or ``False`` and one micro-batch (ZeRO-2), tensor parallelism
    of blocks, embedding and head (``regather="context"``), keys and values that are gathered (``regather="none"``), balanced experts, and each rank of a pipeline.
    The second gather of a branch's input runs beside arithmetic, whatever *overlap* says: Megatron-LM starts it before the product whose result does
    not need it (Korthikanti et al. 2022, section 4.2.2).

    Parameters
    ----------
    model : Model or str
        A decoder, or its name.
    layout : Layout
        The degrees.
    cluster : Cluster or str
        Where it runs.
    seq, batch : int
        Tokens of a sequence, sequences of a step on all devices.
    precision, optimizer, kernel : str, optional
        As in `Model.train_memory`.
    dropout : bool, optional
        As there.
    fused : bool, optional
        Whether a layer keeps neither the outputs of its norms nor what the activation makes, which a program can compute again from what it keeps.
    overlap : tuple[str, ...], optional
        What runs beside arithmetic, of ``"tensor"``, ``"context"``, ``"expert"``, ``"pipeline"`` and ``"data"``. The exchange of gradients hides behind one micro-batch at most.
    dtype : str, optional
        The format whose peak counts.
    dispatch_bytes, combine_bytes : int, optional
        Bytes of a number on the way to the experts and back.
    expert_nodes : int or str, optional
        Nodes in which a token's experts lie at most (node-limited routing): it goes to each of them once over the network, and inside of them over links
        to each of its experts, as DeepEP and HybridEP send it. ``"expected"``: in as many as there are on average where all experts are equally likely. None: each of
        its experts gets it over the network, if it is in another node, as an all-to-all sends it. 1 is the least that a mixture can ask of the network.
    memory : float, optional
        Bytes of a device that a step may take. None: what is usable of the device's memory, where that is known, else all of it.
    mla_up_proj : bool, optional
        Whether latent attention keeps its latents before their norms, and makes the norms' outputs, queries, keys and values from them again
        (DeepSeek-V3, section 3.2.3; ``--recompute-modules mla_up_proj`` of Megatron-Core).
    activations : str, optional
        How a layer keeps what its backward pass reads: ``"as computed"``, or ``"deepseek-v3"``: inputs of linear layers and of SwiGLU in experts in 8 bits,
        what attention makes in 12, and a scale of 4 bytes for each 128 of them.
    weigh_inside : bool, optional
        Whether the router's weights multiply what the experts' down projections read, as in Megatron-Core, and not what experts make, which is then kept for
        the gradient of the weights.

    fp8_copies : float, optional
        Bytes a number that FP8 training holds of the layers' matrices beside their weights, from one micro-batch to the next: 2 on Hopper, a copy and its transpose;
        1 on Blackwell with scales of tensors; 2 and their scales, 2.0625, with MXFP8, which is quantised along rows and along columns (Transformer Engine, issue 1880,
        and its guide to low precision). Routers, embedding and head have none. Programs that keep no 16-bit weights beside them (``--fp8-param-gather``) hold 2 bytes less.

    Returns
    -------
    ParallelStep

    Raises
    ------
    ValueError
        For degrees that do not divide heads, key-value heads, layers, experts or the batch, models of which it is not known what divides, multi-token prediction with
        tensor-parallel ranks or ZeRO-3, ``precision="autocast"``, *fused* where *regather* keeps the outputs of norms, and experts' ranks beside tensor-parallel ones without SP.
    TypeError
        For what is no layout, number or switch where one is wanted.

    Notes
    -----
    ``memory`` is that of the pipeline's fullest rank, by the peak; its name says which, counted from 0. The first rank holds most micro-batches, but may have fewer
    layers than the second. Interleaved stages that are not equal are held as the schedule has them at its fullest moment.
    The gradients of the loss (``Memory.loss``) are there on the last rank, of one micro-batch, of a part of the logits: tensor-parallel ranks divide
    these by words, context-parallel ones by tokens. They are counted as on one device: PyTorch's ``loss_parallel`` has one fp32 copy of the logits more, and
    Megatron-LM's loss writes its gradient over what it kept. With ``"gpipe"`` the last rank keeps ends of all micro-batches; but for one they count among the layers.
    Of layers that ZeRO-3 gathers, each tensor-parallel rank is taken to hold an equal part.
    Multi-token prediction (``fk.load("deepseek-v3", mtp=True)``): its layer is the last of the last rank, where a pipeline counts it as one of the layers, and is never
    recomputed. Without DualPipe, whose first rank has the last stage, too, that rank has a second embedding for it (``mtp`` in Megatron-LM's pipeline layouts;
    DeepSeek-V3, section 3.2.3); the sum of the two embeddings' gradients is not among what is sent.
    Of DeepSeek-V3's savings these are not here: the moving average of its weights is in the host's memory and takes nothing of a device;
    that DualPipe's two ranks with the same stage could share the optimiser's states is not said, and each has its own.
    Of a pipeline with several ranks in a node all messages are taken to stay in it, also those few that leave: the bound is looser there.
    Sent besides: where FSDP2's rows do not divide, each parameter of a layer is filled up to ranks · ⌈rows / ranks⌉ rows; a loss of divided
    logits reduces three fp32 numbers a token; gradients of norms that are divided by tokens are reduced over the tensor-parallel ranks. FSDP2's
    default gathers embedding, norm and head once. A ring of context-parallel ranks sends in its backward pass, besides keys and values, their
    gradients in fp32.
    Full recompute runs each layer's forward pass to its end, as ``use_reentrant=True`` and Megatron-LM do. PyTorch's ``use_reentrant=False`` stops early: it
    leaves out the last sum of a layer whose output no gradient needs.
    A program that adds up the outputs of branches side by side only after each was reduced, such as transformers' plans, sends twice as much for them; GPT-J's
    own (mesh-transformer-jax) adds them up first, as is counted here.
    Not counted: latency (the cluster's is 0 unless it is given), the optimiser's time, element-wise work, uneven loads of experts, padding of the
    vocabulary, which rank of the network shares a switch with which. Micro-batches of a causal context-parallel sequence are taken as balanced.
    A rank of a pipeline waits for the ranks before it, interleaved for the first of their virtual stages, with the times that those have. Where only the ends have
    fewer layers this is what the schedule takes, else it may take longer.

    Examples
    --------
    >>> found = step("llama-3.1-405b", Layout(tensor=8, pipeline=16, data=128, virtual=8), "llama-3", seq=8192, batch=2048)
    >>> found.layout.ranks, found.mfu > 0.41  # printed: 41 %
    (16384, True)
    """
    setting = Setting(
        the_model(model), the_cluster(cluster), seq, batch, precision, optimizer, kernel, dropout, fused, overlap, dtype, dispatch_bytes, combine_bytes,
        expert_nodes, memory, mla_up_proj, activations, weigh_inside, fp8_copies,
    )  # fmt: skip
    plan = Plan(setting, the_layout(layout))
    return of_plan(plan, plan.memory())


def of_plan(plan: Plan, held: Memory) -> ParallelStep:
    """The step of a plan whose fullest rank holds *held*."""
    setting, layout, found = plan.setting, plan.layout, plan.times()
    available = found.seconds * layout.ranks * setting.peak
    return ParallelStep(
        model=setting.model.name, layout=layout, cluster=setting.cluster, seq=setting.seq, batch=setting.batch, seconds=found.seconds,
        mfu=setting.batch * plan.numbers.model_flops / available, hfu=found.executed / available, parts=found.parts, sent=found.sent, memory=held,
        fits=fits(plan, held), supposes=plan.supposes(),
    )  # fmt: skip


def fits(plan: Plan, held: Memory) -> bool | None:
    """Whether a device has room for what its rank holds, the gradients of the loss among it; None where its memory is not known."""
    return None if plan.setting.room is None else bool(held.peak <= plan.setting.room)
