"""The parts of a layer in which tokens meet by way of a state: the gated delta rule (Qwen3-Next) and Mamba-2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from flopkit.arithmetic import where
from flopkit.layers.convolutions import conv1d
from flopkit.layers.normalisations import rms_norm
from flopkit.models.parts import Part, Run, part, project
from flopkit.models.states import gated_delta, state_space
from flopkit.sizes import Flag, Size, flag, size

__all__ = ["GatedDelta", "StateSpace"]


def _convolved(run: Run, channels: Any, kernel: Any, bias: Any) -> Part:
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
    return part("conv", cost, run.tokens, formula=f"2·tokens·{channels}·{kernel}")


def _moved(mixer: GatedDelta | StateSpace, run: Run) -> Any:
    """Numbers of the cache that a pass moves: it writes all of them and, where tokens came before, reads the states, too."""
    return run.batch * (mixer.held(run.kv) + where(run.kv > run.q, mixer.states, 0))


@dataclass(frozen=True, kw_only=True)
class GatedDelta:
    """A gated delta rule with its projections, its convolution and its gate: see `flopkit.models.states.gated_delta`.

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
    """

    heads: Size
    k_heads: Size
    k_dim: Size
    v_dim: Size
    conv: Size = 4
    chunk: Size = 64
    window: ClassVar[None] = None

    def __post_init__(self) -> None:
        for name in ("heads", "k_heads", "k_dim", "v_dim", "conv", "chunk"):
            object.__setattr__(self, name, size(name, getattr(self, name)))

    def held(self, context: Any) -> Any:
        """Numbers in the cache, however long the sequence: the states, and the last inputs of the convolution."""
        return self.states + self.conv * self._channels

    @property
    def states(self) -> Any:
        """Numbers of the states of all heads."""
        return self.heads * self.k_dim * self.v_dim

    @property
    def _channels(self) -> Any:
        return 2 * self.k_heads * self.k_dim + self.heads * self.v_dim

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        values = self.heads * self.v_dim
        core = gated_delta(
            batch=run.batch, seq=run.q, heads=self.heads, k_heads=self.k_heads, k_dim=self.k_dim, v_dim=self.v_dim, chunk=self.chunk,
            algorithm="recurrent" if run.absorbed else "chunked", dtype=run.dtype,
        )  # fmt: skip
        core = replace(core, params_by_role={"bias": 2 * self.heads})  # the decay and the step of each head
        norm = rms_norm(tokens=run.tokens * self.heads, d=self.v_dim, dtype=run.dtype)
        return [
            project("in_proj", run, d_model, self._channels + values),
            project("gates_proj", run, d_model, 2 * self.heads),
            _convolved(run, self._channels, self.conv, False),
            part("gated_delta", core, run.tokens, cache=_moved(self, run), formula="gated delta rule"),
            part("gated_norm", norm, run.tokens),
            project("out_proj", run, values, d_model),
        ]


@dataclass(frozen=True, kw_only=True)
class StateSpace:
    """A Mamba-2 mixer with its projections, its convolution and its gate: see `flopkit.models.states.state_space`.

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
    """

    heads: Size
    head_dim: Size
    state: Size
    groups: Size = 1
    conv: Size = 4
    conv_bias: Flag = True
    bias: Flag = False
    chunk: Size = 256
    window: ClassVar[None] = None

    def __post_init__(self) -> None:
        for name in ("heads", "head_dim", "state", "groups", "conv", "chunk"):
            object.__setattr__(self, name, size(name, getattr(self, name)))
        for name in ("conv_bias", "bias"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))

    def held(self, context: Any) -> Any:
        """Numbers in the cache, however long the sequence: the states, and the last inputs of the convolution."""
        return self.states + self.conv * self._channels

    @property
    def states(self) -> Any:
        """Numbers of the states of all heads."""
        return self.heads * self.head_dim * self.state

    @property
    def _channels(self) -> Any:
        return self.heads * self.head_dim + 2 * self.groups * self.state

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        inner = self.heads * self.head_dim
        core = state_space(
            batch=run.batch, seq=run.q, heads=self.heads, head_dim=self.head_dim, state=self.state, groups=self.groups, chunk=self.chunk,
            algorithm="recurrent" if run.absorbed else "chunked", dtype=run.dtype,
        )  # fmt: skip
        core = replace(core, params_by_role={"bias": 3 * self.heads})  # decay, step and skip of each head
        return [
            project("in_proj", run, d_model, inner + self._channels + self.heads, self.bias),
            _convolved(run, self._channels, self.conv, self.conv_bias),
            part("state_space", core, run.tokens, cache=_moved(self, run), formula="state space, Mamba-2"),
            part("gated_norm", rms_norm(tokens=run.tokens, d=inner, dtype=run.dtype), run.tokens),
            project("out_proj", run, inner, d_model, self.bias),
        ]
