"""Sound as a wave that convolutions bring to tokens, and what the encoders behind them need of a layer: wav2vec 2.0,
HuBERT, WavLM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.convolutions import conv1d
from flopkit.layers.normalisations import group_norm, layer_norm
from flopkit.layers.pointwise import ACTIVATIONS, activation, residual, vector_work
from flopkit.models.branches.feed_forward import MLP
from flopkit.models.branches.mixers import Attention
from flopkit.models.stacks.parts import Part, Run, dense_part, part
from flopkit.sizes import Count, Flag, Size, check_fields, choice, number, short
from flopkit.training.memory import Kept

__all__ = ["GatedPositions", "NormedMLP", "Waves"]


@dataclass(frozen=True, kw_only=True)
class Waves:
    """Sound as a wave, which convolutions of one dimension make tokens of, a dense layer brings to the model's width, and
    one more convolution gives positions (wav2vec 2.0).

    FLOPs: ``2·batch·rows·c_in·c_out·kernel`` of each convolution. A pass is asked for tokens; the wave is the shortest that
    makes so many, each convolution reads ``(rows − 1)·stride + kernel`` rows for its own. Parameters: matrices, biases,
    norms, and of the positions' convolution a length for each place of its kernel (weight normalisation).

    Parameters
    ----------
    widths, kernels, strides : tuple[int, ...]
        Channels, width and stride of each convolution.
    bias : Flag, optional
        Whether these add a bias.
    norm : str, optional
        ``"group"``: the first has a norm of each channel over time; ``"layer"``: each has a layer norm.
    act : str, optional
        The activation behind each of them, and behind that of the positions.
    last_norm : Flag, optional
        Whether a layer norm stands before the dense layer.
    positions, groups : Size
        Kernel and groups of the positions' convolution.
    learned : Count, optional
        Vectors of the model's width that training alone uses: that of masked tokens.

    Notes
    -----
    The positions' convolution is padded by half its kernel on either side; where the kernel is even it makes a row more than
    there are tokens, which is cut off, and which counts.

    References
    ----------
    Baevski et al. 2020 (wav2vec 2.0), sections 2 and 4.2.
    """

    widths: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    bias: Flag = False
    norm: str = "group"
    act: str = "gelu"
    last_norm: Flag = True
    positions: Size
    groups: Size
    learned: Count = 0

    def __post_init__(self) -> None:
        check_fields(self)
        choice("norm", self.norm, ("group", "layer"))
        for name in ("widths", "kernels", "strides"):
            for place, each in enumerate(getattr(self, name)):
                number(f"{name}[{place}]", each)
        if not self.widths or not len(self.widths) == len(self.kernels) == len(self.strides):
            raise ValueError(
                f"widths={short(self.widths)} beside kernels={short(self.kernels)} and strides={short(self.strides)}: each convolution needs all three"
            )

    def samples(self, tokens: Any) -> Any:
        """Samples of the shortest wave that makes so many tokens.

        >>> base = Waves(widths=(512,) * 7, kernels=(10, 3, 3, 3, 3, 2, 2), strides=(5, 2, 2, 2, 2, 2, 2), positions=128, groups=16)
        >>> base.samples(49), base.samples(50)  # a second of 16,000 samples makes 49
        (15760, 16080)
        """
        return self._rows(tokens)[0]

    def _rows(self, tokens: Any) -> list[Any]:
        """Rows that each convolution reads, and those that the last one makes."""
        rows = [tokens]
        for kernel, stride in zip(reversed(self.kernels), reversed(self.strides), strict=True):
            rows.insert(0, (rows[0] - 1) * stride + kernel)
        return rows

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        """The convolutions, the dense layer, and the positions with their sum."""
        found, at = list[Part](), {"place": "before"}
        batch, c_in, rows = run.batch, 1, self._rows(run.q)[1:]
        for i, (width, kernel, stride, out) in enumerate(
            zip(self.widths, self.kernels, self.strides, rows, strict=True)
        ):
            sizes = {"batch": batch, "c_in": c_in, "c_out": width, "l_out": out, "kernel": kernel, "stride": stride}
            cost = conv1d(**sizes, bias=self.bias, dtype=run.dtype)
            fields: dict[str, Any] = {"role": "convolution", "reads": ("pixels",) if i == 0 else (), **at}
            found.append(
                part(f"conv{i + 1}", cost, batch * out, formula=f"2·batch·{out}·{c_in * kernel}·{width}", **fields)
            )
            if self.norm == "layer":
                found.append(
                    part(
                        f"conv{i + 1}_norm",
                        layer_norm(tokens=batch * out, d=width, dtype=run.dtype),
                        batch * out,
                        role="norm",
                        **at,
                    )
                )
            elif i == 0:
                norm = group_norm(batch=batch, channels=width, positions=out, groups=width, dtype=run.dtype)
                found.append(part("conv1_norm", norm, batch * out, role="norm", **at))
            act = activation(self.act, elements=batch * out * width, dtype=run.dtype)
            found.append(part(f"conv{i + 1}_act", act, batch * out, **at))
            c_in = width
        if self.last_norm:
            found.append(
                part(
                    "features_norm",
                    layer_norm(tokens=run.tokens, d=c_in, dtype=run.dtype),
                    run.tokens,
                    role="norm",
                    **at,
                )
            )
        found.append(dense_part("features_proj", run, c_in, d_model, True, **at))
        return [*found, *self._placed(run, d_model, at)]

    def _placed(self, run: Run, d_model: Any, at: dict[str, Any]) -> list[Part]:
        kernel, tokens = number("positions", self.positions), run.tokens
        out = run.q + 1 - kernel % 2
        cost = conv1d(
            batch=run.batch,
            c_in=d_model,
            c_out=d_model,
            l_out=out,
            kernel=kernel,
            groups=self.groups,
            bias=True,
            dtype=run.dtype,
        )
        weights = cost.params_by_role["weight"]
        roles = dict(cost.params_by_role) | {"norm": kernel, "position": self.learned * d_model}
        normed = vector_work("weights_norm", 3 * weights + 2 * kernel, 2 * nbytes(weights, run.dtype))
        acted = activation(self.act, elements=tokens * d_model, dtype=run.dtype)
        summed = residual(elements=tokens * d_model, dtype=run.dtype)
        formula = f"2·batch·{out}·{kernel}·{d_model}·{d_model}/{self.groups}"
        return [
            part("positions_weights", normed, tokens, **at),
            part("positions_conv", replace(cost, params_by_role=roles), tokens, formula=formula, role="convolution", **at),
            part("positions_act", acted, tokens, **at),
            part("positions_sum", summed, tokens, **at),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NormedMLP(MLP):
    """An MLP that begins with a layer norm of its own (adapters of the languages of MMS).

    Examples
    --------
    >>> adapter = NormedMLP(d_ff=16, act="relu", gated=False, bias=True)
    >>> sum(each.cost.params for each in adapter.parts(Run(1, 1, 1), 1280))
    44816
    """

    def parts(self, run: Run, d_model: Any, prefix: str = "", shared: bool = False) -> list[Part]:
        norm = layer_norm(tokens=run.tokens, d=d_model, dtype=run.dtype)
        fields: dict[str, Any] = {"role": "norm", "split": "sequence"}
        before = part(f"{prefix}own_norm", norm, run.tokens, reads=("input",), makes=("normed",), **fields)
        inside = super().parts(run, d_model, prefix, shared)
        return [
            before,
            *(each._replace(reads=tuple("normed" if it == "input" else it for it in each.reads)) for each in inside),
        ]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool, shared: bool = False) -> list[Kept]:
        raise ValueError(
            "what the backward pass of an adapter with a norm keeps is not known here; train_step counts its FLOPs"
        )


@dataclass(frozen=True, kw_only=True)
class GatedPositions(Attention):
    """Attention whose biases of positions are gated for each token and head (WavLM): a dense layer of 8 features reads each
    head's share of the input, and two sigmoids of their sums make a factor.

    FLOPs beside those of `Attention`: ``2·tokens·heads·head_dim·8``. Parameters: ``8·head_dim + 8 + heads``, and the table of
    biases where the layer has one.

    References
    ----------
    Chen et al. 2022 (WavLM), section III.A; Chi et al. 2022 (XLM-E), gated relative position bias.
    """

    def parts(self, run: Run, d_model: Any) -> list[Part]:
        rows = run.tokens * self.heads
        cost = dense_part("gate", run, self.head_dim, 8, True, tokens=rows).cost
        # three sums of either four features, a sigmoid each; a product and a difference; a product and a sum
        each = 6 + 2 * ACTIVATIONS["sigmoid"].flops + 4
        pairs = rows * run.kv  # the factor times each bias
        work = Cost(
            "positions_gate", vector_by_kind={"elementwise": each * rows + pairs}, bytes=nbytes(2 * pairs, run.dtype),
            params_by_role={"bias": self.heads},
        )  # fmt: skip
        flow: dict[str, Any] = {"reads": ("input",), "split": "sequence"}
        gates = part(
            "positions_gate_proj", cost, rows, role="product", formula=f"2·tokens·{self.heads}·{self.head_dim}·8",
            shape=(self.head_dim, 8), matrix="positions_gate_proj", makes=("position gates",), **flow,
        )  # fmt: skip
        found = super().parts(run, d_model)
        applied = part(
            "positions_gate", work, rows, reads=("position gates",), makes=("position gates",), split="sequence"
        )
        return [gates, applied, *found]

    def kept(self, run: Run, d_model: Any, kernel: str, dropout: bool) -> list[Kept]:
        raise ValueError(
            "what the backward pass of gated biases of positions keeps is not known here; train_step counts its FLOPs"
        )
