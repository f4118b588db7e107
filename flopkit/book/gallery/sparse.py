"""Figure of the chapter on experts: the time of a layer of experts, between the dense layer of its FLOPs and that of its bytes."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import ceil_div, maximum, minimum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import device_choice, peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.layers.experts import moe
from flopkit.models import hf_config

__all__ = ["sparse_and_dense", "time_of_experts"]

PAIRS = (("h100-sxm", "bf16"), ("h100-sxm", "fp8"), ("h200", "bf16"), ("b200", "bf16"), ("a100-sxm-80gb", "bf16"))
MANY = 2**24  # tokens, so many that every expert is read


def _sizes(name: str, width: str, experts: str) -> dict[str, int]:
    config = hf_config(name)
    return {
        "d_model": config["hidden_size"],
        "d_ff": config[width],
        "experts": config[experts],
        "top_k": config["num_experts_per_tok"],
    }


EXPERTS = {
    "DeepSeek-V3: 8 of 256": _sizes("deepseek-v3", "moe_intermediate_size", "n_routed_experts"),
    "Qwen3-30B-A3B: 8 of 128": _sizes("qwen3-30b-a3b", "moe_intermediate_size", "num_experts"),
    "Mixtral-8x7B: 2 of 8": _sizes("mixtral-8x7b", "intermediate_size", "num_local_experts"),
}
LINES = {
    "sparse_ms": ("experts", theme.ORANGE, [1, 0]),
    "active_ms": ("dense, active size", theme.BLUE, [6, 3]),
    "whole_ms": ("dense, full size", theme.GREEN, [2, 3]),
}
LAYERS = ("sparse", "active", "whole")


def time_of_experts(s: Any, *, sizes: Any, tokens: Any, gpus: Any, device: Any) -> None:
    """Least time of a layer of experts on one of several GPUs that share them, and of two dense layers on one GPU, without shared experts."""
    s.shared_by = minimum(gpus, sizes.experts)
    one: dict[str, Any] = {"d_model": sizes.d_model, "experts": 1, "top_k": 1, "dtype": device}
    sparse: dict[str, Any] = {
        "d_model": sizes.d_model, "d_ff": sizes.d_ff, "experts": sizes.experts, "top_k": sizes.top_k, "dtype": device,
    }  # fmt: skip
    kinds = {
        "sparse": (sparse, s.shared_by),
        "active": ({**one, "d_ff": sizes.top_k * sizes.d_ff}, 1),
        "whole": ({**one, "d_ff": sizes.experts * sizes.d_ff}, 1),
    }
    for name, (size, n) in kinds.items():
        layer = moe(tokens=tokens * n, **size)
        setattr(s, f"{name}_seconds", maximum(layer.flops / device.peak, layer.bytes / device.bandwidth) / n)
        setattr(s, f"{name}_ms", 1000 * getattr(s, f"{name}_seconds"))
        # bytes of the weights, bytes and FLOPs of a token more: from where on is it compute-bound?
        once, twice = moe(tokens=MANY * n, **size), moe(tokens=2 * MANY * n, **size)
        each = (twice.bytes - once.bytes) / (MANY * n)
        stored = (once.bytes - each * MANY * n) / n
        gained = once.flops / (MANY * n) / device.ridge - each
        setattr(s, f"{name}_knee", where(gained > 0, stored / where(gained > 0, gained, 1), 0))
        setattr(s, f"{name}_from", where(gained > 0, ceil_div(getattr(s, f"{name}_knee"), 1), "never"))
    s.sparse_rate = (
        6 * sizes.top_k * sizes.d_model * sizes.d_ff / device.peak
    )  # seconds of a token's FLOPs, without the router
    s.whole_rate = 6 * sizes.experts * sizes.d_model * sizes.d_ff / device.peak
    s.weights = sizes.experts / s.shared_by * 3 * sizes.d_model * sizes.d_ff * device.bits / 8
    # a row out and one back for each choice of another GPU's expert
    s.exchange = 2 * tokens * sizes.top_k * sizes.d_model * device.bits / 8 * (s.shared_by - 1) / s.shared_by
    s.over = s.sparse_seconds / s.active_seconds


def sparse_and_dense() -> Figure:
    """Tokens against the least time of a layer: experts, the dense layer of their active size, and that of all of them."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        wide, look = theme.log_scale(1, 262144), theme.log_scale(0.001, 100000)
        for each in (wide, look):
            each["axis"]["format"] = ",~g"
        x = alt.X("tokens:Q", title="tokens of a GPU", **wide)
        y = {"title": "least time of the layer (ms)", **look}
        lines = theme.curves(s.rows, LINES, "ms", {"clip": True}, x=x, y=alt.Y("ms:Q", **y))
        titles = {name: title for name, (title, *_) in LINES.items()}

        def marks(rows: Any, **mark: Any) -> Any:
            return (
                rows.transform_calculate(curve=f"({titles})[datum.result]")
                .mark_point(clip=True, **mark)
                .encode(
                    x=x,
                    y=alt.Y("ms:Q", **y),
                    color=alt.Color("curve:N"),
                    tooltip=[
                        alt.Tooltip("curve:N", title="layer"),
                        alt.Tooltip("tokens:Q", title="tokens", format=",.0f"),
                        alt.Tooltip("ms:Q", title="ms", format=".3~s"),
                    ],
                )
            )

        here = s.now("tokens", *LINES).transform_fold(list(LINES), as_=["result", "ms"])
        # where memory and arithmetic take equally long: the FLOPs of that many tokens at the peak
        knees = (
            s.now(**{name: getattr(s, f"{name}_knee") for name in LAYERS}, per=s.sparse_rate, full=s.whole_rate)
            .transform_fold(list(LAYERS), as_=["layer", "tokens"])
            .transform_filter("datum.tokens > 0")
            .transform_calculate(
                result="datum.layer + '_ms'",
                ms="1000 * datum.tokens * (datum.layer == 'whole' ? datum.full : datum.per)",
            )
        )
        return alt.layer(lines, marks(knees, size=150, filled=False, strokeWidth=2), marks(here, size=70))

    return Figure(
        name="sparse-and-dense",
        title="Experts read like a large dense layer, and compute like a small one",
        alt="Three lines, tokens to the right and the least time of a layer upwards, both logarithmic: the experts of {sizes} on {device}, the "
        "dense layer of their active size, and the dense layer of all of them. With few tokens the experts take as long as the full size, with many "
        "as long as the active size. Rings mark where each becomes compute-bound: the active size at {active_from} tokens, the experts at "
        "{sparse_from}. At {tokens} on each of {gpus} the experts take {sparse_seconds}, {over} the active size.",
        model=time_of_experts,
        controls=[
            choice("sizes", "Experts as in", EXPERTS),
            slider("tokens", "Tokens of a GPU", steps(1, 262144), value=128, unit="tokens"),
            slider("gpus", "GPUs that share the experts", steps(1, 64), value=1, unit="GPUs"),
            device_choice(pairs=PAIRS),
        ],
        readouts=[
            readout("sparse_seconds", "Experts", "s"),
            readout("active_seconds", "Dense, active size", "s"),
            readout("over", "Experts over active size", "×"),
            readout("active_from", "Active size is compute-bound from", "tokens"),
            readout("sparse_from", "Experts are compute-bound from", "tokens"),
            readout("weights", "Experts' weights on a GPU", "B"),
            readout("exchange", "A GPU sends and receives", "B"),
        ],
        rows=along("tokens"),
        chart=chart,
        table=[
            column("tokens", "Tokens", "tokens"),
            column("sparse_seconds", "Experts", "s"),
            column("active_seconds", "Dense, active size", "s"),
            column("whole_seconds", "Dense, full size", "s"),
        ],
        caption="One layer, forward pass, balanced load, without shared experts; each token is read and written once, and the experts read as many of "
        "their weights as the batch can reach. Full size: a dense layer as wide as all experts together. GPUs that share the experts each bring "
        "their own tokens, and there are no more of them than experts; the time leaves out the exchange. Rings: the least time changes from bytes to FLOPs. "
        + peaks_note(PAIRS),
        height=300,
    )
