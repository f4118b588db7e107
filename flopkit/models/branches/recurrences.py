"""The parts of a layer in which tokens meet by way of a state: the gated delta rule
(Qwen3-Next) and Mamba-2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from flopkit.arithmetic import ceil_div, where
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.convolutions import conv1d
from flopkit.layers.normalisations import rms_norm
from flopkit.layers.states import gated_delta, state_space
from flopkit.models.caches import Rows, seen_rows
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.matrices import Matrix
from flopkit.models.stacks.parts import Part, Run, part, project
from flopkit.sizes import Flag, Size, check_fields
from flopkit.training.memory import Kept

__all__ = [
    "CORE",
    "IN",
    "NORM",
    "OUT",
    "GatedDelta",
    "StateSpace",
    "convolved",
    "moved",
    "through_state",
    "written_out",
]

IN: dict[str, Any] = {"reads": ("input",), "makes": ("mixed",), "split": "column"}
CORE: dict[str, Any] = {"role": "core", "reads": ("mixed",), "makes": ("heads",), "split": "inner"}
NORM: dict[str, Any] = {"role": "norm", "reads": ("heads", "mixed"), "makes": ("heads",), "split": "inner"}
OUT: dict[str, Any] = {"reads": ("heads",), "makes": ("output",), "split": "row", "unread": True}


def convolved(run: Run, channels: Any, kernel: Any, bias: Any) -> Part:
    """A causal convolution of each channel by itself."""
    cost = conv1d(
        batch=run.batch,
        c_in=channels,
        c_out=channels,
        l_out=run.q,
        kernel=kernel,
        groups=channels,
        bias=bias,
        dtype=run.dtype,
    )
    fields: dict[str, Any] = {"reads": ("mixed",), "makes": ("mixed",), "split": "inner"}
    formula = f"2·tokens·{channels}·{kernel}"
    return part("conv", cost, run.tokens, formula=formula, role="convolution", **fields)


def through_state(formula: Callable[..., Cost], run: Run, chunk: Any, **sizes: Any) -> Cost:
    """The core: chunks in training and prefill, of each document its own, and token by
    token in decode."""
    sizes = {"chunk": chunk, "algorithm": "recurrent" if run.decode else "chunked", "dtype": run.dtype} | sizes
    core = formula(batch=run.batch, seq=run.q, **sizes)
    if run.documents is None:
        return core
    chunks = formula(batch=run.batch * run.documents.chunks(chunk), seq=chunk, **sizes)
    return replace(core, macs_by_kind=chunks.macs_by_kind)


def written_out(kernel: str, what: str) -> None:
    if kernel == "flash":
        raise ValueError(
            f"kernel='flash': what a fused kernel keeps of {what} is not known here; give kernel='math', the algorithm written out in torch"
        )


def moved(mixer: Any, run: Run) -> dict[str, Any]:
    """Numbers of the cache that a pass moves, and that they are states: it writes all of
    them and, where tokens came before, reads the states, too."""
    numbers = run.batch * (mixer.held(run.kv) + where(run.kv > run.q, mixer.states, 0))
    return {"cache": numbers, "cached": (("states", numbers),)}


@dataclass(frozen=True, kw_only=True)
class GatedDelta(Branch):
    """A gated delta rule with its projections, its convolution and its gate: see
    `flopkit.gated_delta`.

    Parameters
    ----------
    heads, k_heads : Size
        Heads of values, and of queries and keys.
    k_dim, v_dim : Size
        Features of a query or key, and of a value.
    conv : Size, optional
        Tokens that the convolution before it sees.
    chunk : Size, optional
        Tokens of a chunk, in training and prefill. Decode goes token by token.
    decay_rank : Size, optional
        Each feature of a key decays by a factor of its own, which two matrices make by
        way of so many features (Kimi Linear). None: one factor a head, of one matrix.
    gate_rank : Size, optional
        Two matrices make the gate of the output by way of so many features. None: one
        does.
    """

    heads: Size
    k_heads: Size
    k_dim: Size
    v_dim: Size
    conv: Size = 4
    chunk: Size = 64
    decay_rank: Size | None = None
    gate_rank: Size | None = None
    window: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_fields(self)

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache, however long the sequence: the states, and the last
        inputs of the convolution."""
        return {"states": self.states + self.conv * self._channels}

    @property
    def states(self) -> Any:
        """Numbers of the states of all heads."""
        return self.heads * self.k_dim * self.v_dim

    @property
    def _channels(self) -> Any:
        return 2 * self.k_heads * self.k_dim + self.heads * self.v_dim

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        values = self.heads * self.v_dim
        sizes = {"heads": self.heads, "k_heads": self.k_heads, "k_dim": self.k_dim, "v_dim": self.v_dim}
        core = through_state(gated_delta, run, self.chunk, **sizes)
        fine = self.decay_rank is not None
        own = self.heads * (1 + self.k_dim) if fine else 2 * self.heads  # of the decay and the step of each head
        core = replace(core, params_by_role={"bias": own})
        norm = rms_norm(tokens=run.tokens * self.heads, d=self.v_dim, dtype=run.dtype)
        return [
            project("in_proj", run, d_model, self._channels + (values if self.gate_rank is None else 0), **IN),
            project("gates_proj", run, d_model, (1 if fine else 2) * self.heads, **IN),
            *self._by_way("decay", ("decay_down", "decay_up"), run, d_model, self.decay_rank, self.heads * self.k_dim),
            *self._by_way("gate", ("gate_down", "gate_up"), run, d_model, self.gate_rank, values),
            convolved(run, self._channels, self.conv, False),
            part(
                "gated_delta", core, run.tokens, matrix="core", **moved(self, run), formula="gated delta rule", **CORE
            ),
            part("gated_norm", norm, run.tokens, **NORM | {"split": "shared"}),  # one weight for all heads
            project("out_proj", run, values, d_model, **OUT),
        ]

    @staticmethod
    def _by_way(
        name: str, matrices: tuple[Matrix, Matrix], run: Run, d_model: Any, rank: Any, d_out: Any
    ) -> list[Part]:
        """Two matrices, the first of which is whole on each device."""
        if rank is None:
            return []
        down: dict[str, Any] = {"reads": ("input",), "makes": (f"{name}, narrow",), "split": "none"}
        up: dict[str, Any] = {"reads": (f"{name}, narrow",), "makes": ("mixed",), "split": "column"}
        first, second = matrices
        return [project(first, run, d_model, rank, **down), project(second, run, rank, d_out, **up)]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """That of the chunked algorithm written out in torch, as transformers 5.23 runs
        it without a kernel."""
        written_out(kernel, "the gated delta rule")
        if self.decay_rank is not None or self.gate_rank is not None:
            raise ValueError(
                "what a gated delta rule with a decay for each feature keeps is not known here, so neither is the memory of training"
            )
        tokens, chunks = run.tokens, ceil_div(run.q, self.chunk)
        each, padded = tokens * self.heads, run.batch * self.heads * chunks * self.chunk  # tokens and heads
        keys, values, channels = padded * self.k_dim, padded * self.v_dim, self._channels
        out = each * self.v_dim
        return [
            Kept("convolution, input", nbytes(tokens * channels, run.dtype)),
            Kept("convolution, output", nbytes(run.batch * (run.q + self.conv - 1) * channels, run.dtype)),
            Kept("weights of corrections", nbytes(each, run.dtype) + nbytes(padded, "fp32")),
            Kept("decays, of each token and head", nbytes(each + self.heads, "fp32")),
            Kept("decays, before their scale", nbytes(each + self.heads, "fp32"), weights_of=("core",)),
            Kept("norms of queries and keys, inputs", nbytes(2 * each * self.k_dim, "fp32")),
            Kept("norms of queries and keys, statistics", nbytes(2 * each, "fp32")),
            Kept("queries; keys, plain and weighted", nbytes(3 * keys, "fp32")),
            Kept("values", nbytes(values, "fp32")),
            Kept("decays, within a chunk", nbytes(padded * self.chunk, "fp32")),
            Kept("keys with keys and queries with keys, plain and decayed", nbytes(4 * padded * self.chunk, "fp32")),
            Kept("decays, to the ends of a chunk", nbytes(3 * padded + run.batch * self.heads * chunks, "fp32")),
            Kept("solutions of the triangular system", nbytes(values + keys, "fp32")),
            Kept("queries and keys, decayed", nbytes(keys + where(chunks > 1, keys, 0), "fp32")),
            Kept("states before each chunk", nbytes(run.batch * chunks * self.states, "fp32")),
            Kept("corrections", nbytes(values, "fp32")),
            Kept("gated norm, input", nbytes(out, "fp32")),
            Kept("gated norm, statistics", nbytes(each, "fp32")),
            Kept("gate, and what it multiplies", nbytes(2 * out, "fp32") + nbytes(out, run.dtype)),
            Kept("output of the heads", nbytes(out, run.dtype), weights_of=("out_proj",)),
        ]


@dataclass(frozen=True, kw_only=True)
class StateSpace(Branch):
    """A Mamba-2 mixer with its projections, its convolution and its gate: see
    `flopkit.state_space`.

    Parameters
    ----------
    heads, head_dim : Size
        Heads, and features of each.
    state : Size
        Numbers of the state for each feature.
    groups : Size, optional
        Groups of heads that share B and C.
    conv : Size, optional
        Tokens that the convolution before it sees.
    conv_bias, bias : Flag, optional
        Whether the convolution and the projections add a bias.
    chunk : Size, optional
        Tokens of a chunk, in training and prefill. Decode goes token by token.
    normed : bool, optional
        Whether an RMS norm follows the gate (Falcon-H1 has none).
    """

    heads: Size
    head_dim: Size
    state: Size
    groups: Size = 1
    conv: Size = 4
    conv_bias: Flag = True
    bias: Flag = False
    chunk: Size = 256
    normed: bool = True
    window: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_fields(self)

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache, however long the sequence: the states, and the last
        inputs of the convolution."""
        return {"states": self.states + self.conv * self._channels}

    @property
    def states(self) -> Any:
        """Numbers of the states of all heads."""
        return self.heads * self.head_dim * self.state

    @property
    def _channels(self) -> Any:
        return self.heads * self.head_dim + 2 * self.groups * self.state

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        inner = self.heads * self.head_dim
        sizes = {"heads": self.heads, "head_dim": self.head_dim, "state": self.state, "groups": self.groups}
        core = through_state(state_space, run, self.chunk, **sizes)
        core = replace(core, params_by_role={"bias": 3 * self.heads})  # decay, step and skip of each head
        norm = part("gated_norm", rms_norm(tokens=run.tokens, d=inner, dtype=run.dtype), run.tokens, **NORM)
        return [
            project("in_proj", run, d_model, inner + self._channels + self.heads, self.bias, **IN),
            convolved(run, self._channels, self.conv, self.conv_bias),
            part(
                "state_space",
                core,
                run.tokens,
                matrix="core",
                **moved(self, run),
                formula="state space, Mamba-2",
                **CORE,
            ),
            *([norm] if self.normed else []),
            project("out_proj", run, inner, d_model, self.bias, **OUT),
        ]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        """That of the chunked algorithm written out in torch, as transformers 5.23 runs
        it without a kernel: it repeats B and C
        for each head, and lays out anew what a product reads (but for some of it where
        the text is a single chunk)."""
        written_out(kernel, "Mamba-2")
        if not self.normed:
            raise ValueError(
                "what Mamba-2 without a norm keeps for its backward pass is not known here, so neither is the memory of training"
            )
        tokens, chunks, inner = run.tokens, ceil_div(run.q, self.chunk), self.heads * self.head_dim
        padded = run.batch * chunks * self.chunk
        each, wide, among = padded * self.heads, padded * inner, padded * self.heads * self.chunk
        own = ("core",)
        copies = 0 if run.dtype == "fp32" else 1  # of what is not fp32 and enters arithmetic in fp32
        return [
            Kept("projections: gate, inputs, steps", nbytes(tokens * (inner + self._channels + self.heads), run.dtype)),
            Kept("convolution, output", nbytes(run.batch * (run.q + self.conv - 1) * self._channels, run.dtype)),
            Kept("steps", nbytes(2 * tokens * self.heads, run.dtype) + nbytes(tokens * self.heads, "fp32")),
            Kept("inputs", nbytes(tokens * inner, "fp32")),
            Kept("inputs, for the skip", nbytes(wide, "fp32"), weights_of=own),
            Kept("inputs times their steps, twice laid out", nbytes(2 * wide, "fp32")),
            Kept("decays, of each head", nbytes(self.heads, "fp32")),
            Kept("decays, and steps for them", nbytes((copies * tokens + 1) * self.heads, "fp32"), weights_of=own),
            Kept("decays, within a chunk", nbytes(among, "fp32")),
            Kept("decays, to the ends of a chunk", nbytes(2 * each, "fp32")),
            Kept("decays, between chunks", nbytes(run.batch * self.heads * (chunks + 1) * (chunks + 1), "fp32")),
            Kept("B and C for each head, plain, decayed and laid out", nbytes(5 * each * self.state, "fp32")),
            Kept("scores, plain and decayed", nbytes(2 * among, "fp32")),
            Kept("states, of each chunk and before it", nbytes(run.batch * (2 * chunks + 1) * self.states, "fp32")),
            Kept("what C takes of the states", nbytes(wide, "fp32")),
            Kept("gate, and what it multiplies", nbytes((1 + copies) * tokens * inner + wide, "fp32")),
            Kept("gated norm, input", nbytes(tokens * inner, "fp32")),
            Kept("gated norm, statistics", nbytes(tokens * self.groups, "fp32")),
            Kept("output of the heads", nbytes(tokens * inner, run.dtype), weights_of=("out_proj",)),
        ]
