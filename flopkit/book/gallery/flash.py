"""The figure of the chapter on fusion: least time and bytes of attention over the length, kernel by kernel and as one flash kernel."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import maximum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import device_choice, peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.attentions import attention
from flopkit.layers.pointwise import softmax, vector_work
from flopkit.layers.products import matmul
from flopkit.training.backward import attention_backward

__all__ = ["eager_and_flash", "eager_kernels", "flash_lengths"]

HEADS = 32
PASSES = {"forward": 0, "forward and backward": 1}


def eager_kernels(*, tokens: Any, head_dim: Any, heads: Any, dtype: Any) -> tuple[list[Cost], list[Cost]]:
    """Attention without a mask as separate kernels, forward and backward; each reads its tensors from memory and writes its result there.

    Forward: scores, softmax, output. Backward: the gradients of values and of the softmax's result, the softmax's own, those of queries
    and of keys. The scores, or a tensor as large, move 4 times and 7 times.

    Examples
    --------
    >>> forward, backward = eager_kernels(tokens=1024, head_dim=64, heads=1, dtype="bf16")
    >>> sum(forward).bytes == attention(batch=1, q=1024, kv=1024, heads=1, head_dim=64, kernel="math").bytes
    True
    """
    to_scores = heads * matmul(m=tokens, k=head_dim, n=tokens, dtype=dtype)
    from_scores = heads * matmul(m=tokens, k=tokens, n=head_dim, dtype=dtype)
    weights = softmax(rows=heads * tokens, columns=tokens, dtype=dtype)
    through = vector_work("softmax_backward", 5 * heads * tokens**2, 3 * nbytes(heads * tokens**2, dtype))
    return [to_scores, weights, from_scores], [from_scores, to_scores, through, from_scores, from_scores]


def flash_lengths(s: Any, *, tokens: Any, head_dim: Any, passes: Any, device: Any) -> None:
    """The attention core of one sequence with 32 heads: FLOPs, bytes and least time by separate kernels and by a flash kernel."""
    sizes: dict[str, Any] = {"tokens": tokens, "head_dim": head_dim, "heads": HEADS, "dtype": device}
    forward, backward = eager_kernels(**sizes)

    def both(of: Any) -> Any:
        return sum(map(of, forward)) + passes * sum(map(of, backward))

    s.eager_flops = both(lambda each: each.flops)
    s.eager_bytes = both(lambda each: each.bytes)
    s.eager = both(lambda each: maximum(each.flops / device.peak, each.bytes / device.bandwidth))
    s.eager_traffic = s.eager_bytes / device.bandwidth
    core: dict[str, Any] = {
        "batch": 1,
        "q": tokens,
        "kv": tokens,
        "heads": HEADS,
        "head_dim": head_dim,
        "dtype": device,
    }
    there, back = attention(**core), attention_backward(**core)
    s.flash_flops = there.flops + passes * back.flops
    s.flash_bytes = there.bytes + passes * back.bytes
    s.flash = maximum(there.flops / device.peak, there.bytes / device.bandwidth) + passes * maximum(
        back.flops / device.peak, back.bytes / device.bandwidth
    )
    s.flash_traffic = s.flash_bytes / device.bandwidth
    s.faster = s.eager / s.flash
    s.fewer = s.eager_bytes / s.flash_bytes
    s.more = s.flash_flops / s.eager_flops - 1
    s.flash_bound = where(s.flash > s.flash_traffic * 1.000001, "compute", "memory")
    s.scores = nbytes(HEADS * tokens**2, device)


def eager_and_flash() -> Figure:
    """Attention by separate kernels and by a flash kernel: least time over the length, and the part of it that is bytes."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "tokens:Q",
            title="length of the sequence (tokens)",
            scale=alt.Scale(type="log", domain=[200, 65536], nice=False),
            axis=alt.Axis(values=[256, 1024, 4096, 16384, 65536], format=",d"),
        )
        scale = theme.log_scale(1e-7, 30)
        scale["axis"]["labelExpr"] = "replace(format(datum.value, '~s'), regexp('([mµ]?)$'), ' $1s')"  # 1 µs, 10 s
        y = alt.Y("seconds:Q", title="least time", **scale)
        tooltip = [
            alt.Tooltip("tokens:Q", title="tokens", format=","),
            alt.Tooltip("seconds:Q", title="seconds", format=".3~s"),
        ]

        def curve(result: str, **look: Any) -> Any:
            return (
                s.rows.transform_calculate(seconds=f"datum.{result}")
                .mark_line(clip=True, **look)
                .encode(x=x, y=y, tooltip=tooltip)
            )

        def dot(result: str, words: str, colour: str, dy: int) -> list[Any]:
            """A dot, and the name of its line at the line's end."""
            here = s.now("tokens", seconds=getattr(s, result))
            end = s.rows.transform_filter("datum.tokens == 65536").transform_calculate(
                seconds=f"datum.{result}", label=f"'{words}'"
            )
            look = {"color": colour, "fontWeight": 600, "align": "right", "dy": dy}
            round_ = here.mark_point(size=150, color=colour, stroke=theme.PAPER, strokeWidth=2)
            return [*theme.words(end, look, x=x, y=y, text="label:N"), round_.encode(x=x, y=y, tooltip=tooltip)]

        dashed = s.now(tokens=256, seconds=6.0, label="dashed: time of the bytes")
        thin = {"strokeDash": [4, 3], "strokeWidth": 1.5}
        return alt.layer(
            curve("eager_traffic", color=theme.ORANGE, **thin),
            curve("flash_traffic", color=theme.BLUE, **thin),
            curve("eager", color=theme.ORANGE),
            curve("flash", color=theme.BLUE),
            *dot("eager", "separate kernels", theme.ORANGE, -16),
            *dot("flash", "flash", theme.BLUE, 26),
            *theme.words(dashed, {"color": theme.MUTED, "align": "left", "dx": 4}, x=x, y=y, text="label:N"),
        )

    return Figure(
        name="eager-and-flash",
        title="A flash kernel saves the bytes of the scores, but no matmul",
        alt="A log-log plot of least time over the length of the sequence, for the attention core with 32 heads of {head_dim}, {passes}, on "
        "{device}. Separate kernels and the flash kernel each have a solid line, and below it or on it a dashed one for the time that their "
        "bytes take. At {tokens}, separate kernels move {eager_bytes} and take {eager}; the flash kernel executes {more} more FLOPs, moves "
        "{flash_bytes} and takes {flash}, so it is {faster} as fast. It is limited by {flash_bound}.",
        model=flash_lengths,
        controls=[
            slider("tokens", "Length", steps(256, 65536, per_octave=2), value=4096, unit="tokens"),
            slider("head_dim", "Head dimension", steps(32, 256), value=128),
            choice("passes", "Passes", PASSES, value="forward and backward"),
            device_choice(),
        ],
        readouts=[
            readout("eager", "Separate kernels, least time", "s"),
            readout("flash", "Flash, least time", "s"),
            readout("faster", "Least times, ratio", "×"),
            readout("eager_bytes", "Separate kernels, bytes", "B"),
            readout("flash_bytes", "Flash, bytes", "B"),
            readout("more", "Flash, more FLOPs", "%"),
            readout("flash_bound", "Flash limited by"),
            readout("scores", "Scores in memory", "B"),
        ],
        rows=along("tokens", steps(256, 65536)),
        chart=chart,
        table=[
            column("tokens", "Tokens", "tokens"),
            column("eager_bytes", "Separate kernels", "B"),
            column("flash_bytes", "Flash", "B"),
            column("eager", "Separate, least time", "s"),
            column("flash", "Flash, least time", "s"),
            column("faster", "Ratio", "×"),
        ],
        caption="One sequence, 32 heads, no mask, in the number format of the device. Dashed: bytes divided by the bandwidth; for separate "
        "kernels with heads of up to 128 it coincides with the solid line. Each separate kernel takes as long as its FLOPs or its bytes; flash "
        "is counted with its least bytes. Exponentials and launches are left out. " + peaks_note(),
    )
