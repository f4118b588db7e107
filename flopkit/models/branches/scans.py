"""The parts of a layer in which tokens meet by way of Mamba's selective scan, of a short convolution (LFM2), of lightning attention,
or of a gated linear recurrence (Griffin)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from flopkit.arithmetic import exact_div, is_zero, minimum
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.convolutions import conv1d
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.pointwise import ACTIVATIONS, activation, vector_work
from flopkit.layers.states import selective_scan, state_space
from flopkit.models.branches.recurrences import CORE, IN, NORM, OUT, convolved, moved, through_state
from flopkit.models.caches import Rows, seen_rows
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.parts import Part, Run, part, project
from flopkit.sizes import Flag, Size, check_fields, choice, divides
from flopkit.training.memory import Kept

__all__ = ["GatedRecurrence", "LightningAttention", "SelectiveScan", "ShortConv"]


@dataclass(frozen=True, kw_only=True)
class SelectiveScan(Branch):
    """A Mamba mixer with its projections, its convolution and its gate: see `flopkit.layers.states.selective_scan`.

    Parameters
    ----------
    channels : Size
        Features between its projections, each with a state.
    state : Size
        Numbers of the state of each channel.
    rank : Size
        Features from which the steps of all channels are made.
    conv : Size, optional
        Tokens that the convolution before it sees.
    conv_bias, bias : Flag, optional
        Whether the convolution and the projections in and out add a bias.
    norms : str, optional
        RMS norms of what makes the steps, of B and of C: ``""`` for none, ``"plain"`` without a weight (Falcon Mamba), ``"weighted"``
        (Jamba).
    """

    channels: Size
    state: Size
    rank: Size
    conv: Size = 4
    conv_bias: Flag = True
    bias: Flag = False
    norms: str = ""
    window: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_fields(self)
        choice("norms", self.norms, ("", "plain", "weighted"))

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache, however long the sequence: the states, and the last inputs of the convolution."""
        return {"states": self.states + self.conv * self.channels}

    @property
    def states(self) -> Any:
        """Numbers of the states of all channels."""
        return self.channels * self.state

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        core = selective_scan(batch=run.batch, seq=run.q, channels=self.channels, state=self.state, dtype=run.dtype)
        core = replace(
            core, params_by_role={"bias": self.states + self.channels}
        )  # decays, and the skip of each channel
        return [
            project("in_proj", run, d_model, 2 * self.channels, self.bias, **IN),
            convolved(run, self.channels, self.conv, self.conv_bias),
            project(
                "x_proj",
                run,
                self.channels,
                self.rank + 2 * self.state,
                reads=("mixed",),
                makes=("steps",),
                split="row",
            ),
            *self._normed(run),
            project("dt_proj", run, self.rank, self.channels, True, reads=("steps",), makes=("mixed",), split="column"),
            part(
                "selective_scan",
                core,
                run.tokens,
                **moved(self, run),
                formula=f"2·tokens·{self.channels}·{self.state}",
                **CORE,
            ),
            project("out_proj", run, self.channels, d_model, self.bias, **OUT),
        ]

    def _normed(self, run: Run) -> list[Part]:
        widths = {"dt_norm": self.rank, "b_norm": self.state, "c_norm": self.state} if self.norms else {}
        weight, fields = (
            self.norms == "weighted",
            {"role": "norm", "reads": ("steps",), "makes": ("steps",), "split": "none"},
        )
        costs = {name: rms_norm(tokens=run.tokens, d=d, weight=weight, dtype=run.dtype) for name, d in widths.items()}
        return [part(name, cost, run.tokens, **fields) for name, cost in costs.items()]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """Not known: a loop over tokens keeps all states, and a fused kernel computes them again."""
        raise ValueError(
            "what a selective scan (Mamba) keeps for its backward pass is not known here, so neither is the memory of training"
        )


@dataclass(frozen=True, kw_only=True)
class ShortConv(Branch):
    """A short convolution between two gates, with its projections (LFM2).

    Parameters
    ----------
    channels : Size
        Features between its projections, each convolved by itself.
    conv : Size, optional
        Tokens that the convolution sees.
    bias : Flag, optional
        Whether the convolution and the projections add a bias.
    """

    channels: Size
    conv: Size = 3
    bias: Flag = False
    window: ClassVar[None] = None
    states: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache, however long the sequence: the last inputs of the convolution."""
        return {"states": self.conv * self.channels}

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        def gate(name: str, makes: str) -> Part:
            numbers = run.tokens * self.channels
            cost: Cost = vector_work(name, numbers, 3 * nbytes(numbers, run.dtype))
            return part(name, cost, run.tokens, reads=("mixed",), makes=(makes,), split="inner")

        return [
            project("in_proj", run, d_model, 3 * self.channels, self.bias, **IN),
            gate("gate_in", "mixed"),
            convolved(run, self.channels, self.conv, self.bias)._replace(**moved(self, run)),
            gate("gate_out", "heads"),
            project("out_proj", run, self.channels, d_model, self.bias, **OUT),
        ]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """That of the convolution of torch, which runs on past the last token of each text."""
        wide = run.tokens * self.channels
        return [
            Kept("gates and inputs", nbytes(3 * wide, run.dtype)),
            Kept("convolution, input", nbytes(wide, run.dtype)),
            Kept(
                "convolution, output", nbytes((run.tokens + run.sequences * (self.conv - 1)) * self.channels, run.dtype)
            ),
            Kept("output of the gate", nbytes(wide, run.dtype), weights_of=("out_proj",)),
        ]


@dataclass(frozen=True, kw_only=True)
class LightningAttention(Branch):
    """Linear attention whose state decays by a factor that is fixed for each head, with a norm and a gate (MiniMax-01).

    Its products are those of `flopkit.state_space` in which each head has B and C of its own, as wide as its values.

    Parameters
    ----------
    heads, head_dim : Size
        Heads, and features of a query, a key and a value.
    chunk : Size, optional
        Tokens of a chunk, in training and prefill; a last one that is not full is padded, but for a text of a single chunk. Decode
        goes token by token.
    """

    heads: Size
    head_dim: Size
    chunk: Size = 256
    window: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_fields(self)

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache, however long the sequence: the states."""
        return {"states": self.states}

    @property
    def states(self) -> Any:
        """Numbers of the states of all heads."""
        return self.heads * self.head_dim * self.head_dim

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        inner = self.heads * self.head_dim
        core = self._core(run)
        act = activation("silu", elements=3 * run.tokens * inner, dtype=run.dtype)
        gate = activation("sigmoid", elements=run.tokens * inner, dtype=run.dtype)
        return [
            project("in_proj", run, d_model, 3 * inner, **IN),
            part("silu", act, run.tokens, reads=("mixed",), makes=("mixed",), split="inner"),
            part("lightning", core, run.tokens, **moved(self, run), formula="lightning attention", **CORE),
            part(
                "heads_norm",
                rms_norm(tokens=run.tokens, d=inner, dtype=run.dtype),
                run.tokens,
                **NORM | {"reads": ("heads",)},
            ),
            project("gate_proj", run, d_model, inner, **IN | {"makes": ("gate",)}),
            part("gate", gate, run.tokens, reads=("gate", "heads"), makes=("heads",), split="inner"),
            project("out_proj", run, inner, d_model, **OUT),
        ]

    def _core(self, run: Run) -> Cost:
        sizes = {"heads": self.heads, "head_dim": self.head_dim, "state": self.head_dim, "groups": self.heads}
        core = through_state(state_space, run, minimum(self.chunk, run.q), **sizes)
        if run.documents is None:
            return core
        width = self.heads * self.head_dim
        of_pairs = 2 * width * run.documents.filled_pairs(self.chunk)
        macs = of_pairs + 2 * width * self.head_dim * run.documents.filled(self.chunk)
        return replace(core, macs_by_kind={"products": run.batch * macs})

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """Not known."""
        raise ValueError(
            "what lightning attention keeps for its backward pass is not known here, so neither is the memory of training"
        )


@dataclass(frozen=True, kw_only=True)
class GatedRecurrence(Branch):
    """A recurrent block of Griffin: a convolution and a real-gated linear recurrent unit (RG-LRU), times a branch of its own.

    FLOPs: the three projections, the convolution, and two gates of block-diagonal matrices, ``2·2·tokens·channels·channels/blocks``.
    Vector FLOPs of the recurrence: 9 a token and channel, by equations 3 and 4 of the paper: the decay (a multiplication, an exponential),
    the root of one minus its square (three), the gated input times it (two), and the sum with the decayed state (two).

    Parameters
    ----------
    channels : Size
        Features between its projections, each with one number of state.
    blocks : Size
        Blocks of the gates' matrices.
    conv : Size, optional
        Tokens that the convolution sees.
    act : str, optional
        The activation of the branch that multiplies.

    References
    ----------
    De et al. 2024, Griffin, arXiv:2402.19427, section 2.4.
    """

    channels: Size
    blocks: Size
    conv: Size = 4
    act: str = "gelu_tanh"
    window: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_fields(self)
        choice("act", self.act, tuple(ACTIVATIONS))
        divides("blocks", self.blocks, "channels", self.channels)

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache, however long the sequence: the states, and the inputs of the convolution before the next one."""
        return {"states": self.states + (self.conv - 1) * self.channels}

    @property
    def states(self) -> Any:
        """Numbers of the states of all channels."""
        return self.channels

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        numbers = run.tokens * self.channels

        def element(name: str, flops: Any, inputs: int, params: Any = 0, **fields: Any) -> Part:
            cost = vector_work(name, flops * numbers, (inputs + 1) * nbytes(numbers, run.dtype))
            cost = cost if is_zero(params) else replace(cost, params_by_role={"bias": params})
            return part(name, cost, run.tokens, **{"split": "inner", "reads": ("mixed",), "makes": ("mixed",)} | fields)

        def gate(name: str) -> list[Part]:
            cost = conv1d(
                batch=run.batch, c_in=self.channels, c_out=self.channels, l_out=run.q, kernel=1, groups=self.blocks, bias=True, dtype=run.dtype
            )  # fmt: skip
            formula = f"2·tokens·{self.channels}·{exact_div(self.channels, self.blocks)}"
            fields: dict[str, Any] = {"reads": ("mixed",), "makes": ("mixed",), "split": "inner"}
            act = activation("sigmoid", elements=numbers, dtype=run.dtype)
            return [
                part(name, cost, run.tokens, formula=formula, role="convolution", **fields), part(f"{name}_sigmoid", act, run.tokens, **fields)
            ]  # fmt: skip

        act = activation(self.act, elements=numbers, dtype=run.dtype)
        return [
            project("gate_proj", run, d_model, self.channels, True, **IN | {"makes": ("gate",)}),
            part(self.act, act, run.tokens, reads=("gate",), makes=("gate",), split="inner"),
            project("in_proj", run, d_model, self.channels, True, **IN),
            convolved(run, self.channels, self.conv, True),
            *gate("input_gate"),
            *gate("recurrent_gate"),
            element("recurrence", 9, 3, self.channels, makes=("heads",))._replace(**moved(self, run)),
            element("gated", 1, 2, reads=("gate", "heads"), makes=("heads",)),
            project("out_proj", run, self.channels, d_model, True, **OUT),
        ]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """Not known."""
        raise ValueError(
            "what a gated linear recurrence keeps for its backward pass is not known here, so neither is the memory of training"
        )
