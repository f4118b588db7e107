"""The figure of the chapter on utilisation: tokens a second in, MFU out, and what usual mistakes make of it."""

from __future__ import annotations

from functools import reduce
from typing import Any

from flopkit.arithmetic import maximum, minimum, vega, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.devices import device
from flopkit.models.catalogue import load

__all__ = ["usual_mistakes", "utilisation_of"]

MODELS = {"llama-3-8b": "Llama-3-8B", "llama-3-70b": "Llama-3-70B", "llama-3.1-405b": "Llama-3.1-405B", "qwen2.5-7b": "Qwen2.5-7B",
          "mixtral-8x7b": "Mixtral-8x7B", "qwen3-30b-a3b": "Qwen3-30B-A3B", "deepseek-v3": "DeepSeek-V3"}  # fmt: skip
DEVICES = {
    name: (f"{title}, bf16", "bf16")
    for name, title in (
        ("h100-sxm", "H100 SXM"),
        ("h200", "H200"),
        ("b200", "B200"),
        ("a100-sxm-80gb", "A100 SXM"),
        ("mi300x", "MI300X"),
    )
}
A100 = float(device("a100-sxm-80gb").peak("bf16"))
FAR = 16  # a dot that is farther from the MFU than this factor stands at the edge, with an arrow
MISTAKES = (
    "sparse peak",
    "MACs for FLOPs",
    "peak of an A100",
    "hidden pairs counted",
    "scores left out",
    "embedding counted",
    "recompute, to the end",
    "recompute, early stop",
    "idle experts counted",
    "per-job rate, one peak",
    "per-GPU rate, all peaks",
)


def _model(name: str) -> dict[str, float]:
    """Multiply-adds of one token's forward pass by kind; the scores are those of one pair, and grow with the length.

    *spared* are those that a full recompute leaves out where it stops early.
    """
    macs = load(name).forward(seq=1).macs_by_kind
    to_the_end, early = (
        load(name).train_step(seq=1, recompute="full", early_stop=stop).checkpointed.flops for stop in (False, True)
    )
    found = {kind: float(macs.get(kind, 0)) for kind in ("products", "router", "head", "embedding", "idle")}
    return {**found, "pair": float(macs["scores"]), "spared": (to_the_end - early) / 2}


def _device(name: str, dtype: str) -> dict[str, float]:
    known = device(name)
    return {"peak": float(known.peak(dtype)), "limit": float(known.limit(dtype))}


def utilisation_of(s: Any, *, model: Any, rate: Any, count: Any, seq: Any, device: Any) -> None:
    """FLOPs of a training token, MFU, and the ratio that each mistake makes."""
    layers = model.products + model.router + model.pair * (seq + 1) / 2
    s.per_token = 6 * (layers + model.head)
    s.each = s.per_token * rate / count
    s.mfu = s.each / device.peak
    s.hidden = 1 + 6 * model.pair * (seq - 1) / 2 / s.per_token
    s.scores = 1 - 6 * model.pair * (seq + 1) / 2 / s.per_token
    s.embedding = 1 + 6 * model.embedding / s.per_token
    s.recompute = 1 + 2 * layers / s.per_token
    s.early_stop = s.recompute - 2 * model.spared / s.per_token
    s.idle_experts = 1 + 6 * model.idle / s.per_token
    s.ratio_a100 = device.peak / A100
    s.possible = where(s.each <= device.limit, "yes", "no")
    ratios = [s.hidden, s.recompute, s.idle_experts, s.ratio_a100, minimum(count, FAR)]
    s.most = reduce(maximum, ratios)
    s.last = maximum(1, s.mfu * s.most)
    s.first = minimum(1, s.mfu * reduce(minimum, [s.scores, 1 / minimum(count, FAR), 1 / 2]))
    margin = (s.last / s.first) ** 0.4  # a logarithmic axis: room for the words beside a dot, on a phone, too
    s.high, s.low = s.last * margin, s.first / margin


def usual_mistakes() -> Figure:
    """A measured rate of tokens, its MFU, and the MFU under each of the usual mistakes."""

    def row(r: Any, *, mistake: Any, count: Any, **_: Any) -> None:
        ratios = (
            1 / 2,
            1 / 2,
            r.ratio_a100,
            r.hidden,
            r.scores,
            r.embedding,
            r.recompute,
            r.early_stop,
            r.idle_experts,
            count,
            1 / count,
        )
        r.ratio = pick(mistake, dict(zip(MISTAKES, ratios, strict=True)))
        r.printed = r.mfu * r.ratio
        r.place = minimum(maximum(r.printed, r.first), r.last)
        r.beyond = where(r.printed > r.last, 1, where(r.printed < r.first, -1, 0))

    def chart(s: Any) -> Any:
        alt = need("altair")
        y = alt.Y(
            "mistake:N", sort=list(MISTAKES), title=None, axis=alt.Axis(labelLimit=150, domain=False, ticks=False)
        )
        scale = alt.Scale(type="log", domain=[alt.ExprRef(vega(s.low)), alt.ExprRef(vega(s.high))], nice=False)
        axis = alt.Axis(format=",~%", values=[10.0**power for power in range(-6, 5)], labelBound=True, labelFlush=24)
        x = {"title": "MFU that would be reported", "scale": scale, "axis": axis}
        tooltip = [
            alt.Tooltip("mistake:N", title="mistake"),
            alt.Tooltip("ratio:Q", title="times", format=".3f"),
            alt.Tooltip("printed:Q", title="MFU", format=".1%"),
        ]
        rows = s.rows
        shift = rows.mark_rule(color=theme.MUTED, strokeWidth=2).encode(
            y=y, x=alt.X("place:Q", **x), x2=alt.datum(alt.ExprRef(vega(s.mfu)))
        )
        dots = rows.mark_point(filled=True, size=75, opacity=1, color=theme.ORANGE).encode(
            y=y, x=alt.X("place:Q", **x), tooltip=tooltip
        )
        words = rows.transform_calculate(
            label="(datum.beyond < 0 ? '← ' : '') + (datum.ratio < 0.01 ? '×1/' + format(1 / datum.ratio, ',.0f') :"
            " '×' + format(datum.ratio, datum.ratio < 100 ? '.3~r' : ',.0f')) + (datum.beyond > 0 ? ' →' : '')"
        )
        look = {"baseline": "middle", "fontWeight": 600, "color": theme.INK}
        texts = [
            word
            for rule, place in (
                ("datum.beyond == 0 && datum.ratio >= 1", {"align": "left", "dx": 8}),
                ("datum.beyond == 0 && datum.ratio < 1", {"align": "right", "dx": -8}),
                ("datum.beyond != 0", {"dy": -10}),
            )
            for word in theme.words(
                words.transform_filter(rule), look | place, y=y, x=alt.X("place:Q", **x), text="label:N"
            )
        ]
        mfu = s.now(place=s.mfu, label="MFU")
        own = mfu.mark_rule(color=theme.BLUE, strokeWidth=2.5).encode(x=alt.X("place:Q", **x))
        bold = {"color": theme.BLUE, "fontWeight": 600}
        name = theme.words(mfu, bold, x=alt.X("place:Q", **x), y=alt.value(-8), text="label:N")
        whole = s.now(place=1).mark_rule(color=theme.INK, strokeDash=[4, 3]).encode(x=alt.X("place:Q", **x))
        return alt.layer(whole, shift, own, *name, *texts, dots)

    return Figure(
        name="usual-mistakes",
        title="Tokens a second in, MFU out, and eleven usual mistakes",
        alt="Training {model} at {rate} on {count} of the {device}, {seq}: the MFU is {mfu}. Eleven dots show what it would be called after each of "
        "the usual mistakes; the data table has their ratios. A mistake is the same distance on this logarithmic axis at every throughput.",
        model=utilisation_of,
        controls=[
            choice("model", "Model", {title: _model(name) for name, title in MODELS.items()}),
            slider("rate", "Throughput of the job", steps(256, 8388608, per_octave=2), value=51000, unit="tokens/s"),
            slider("count", "Devices", steps(1, 4096), value=8, unit="devices"),
            slider("seq", "Sequence length", steps(512, 131072), value=8192, unit="tokens"),
            choice("device", "Device", {title: _device(name, dtype) for name, (title, dtype) in DEVICES.items()}),
        ],
        presets={
            "Llama-3-8B, 8 H100": {"model": "Llama-3-8B", "rate": 51000, "count": 8, "seq": 8192, "device": "H100 SXM, bf16"},
            "The same, 128k tokens": {"model": "Llama-3-8B", "rate": 20000, "count": 8, "seq": 131072, "device": "H100 SXM, bf16"},
            "DeepSeek-V3, 2,048 H100": {"model": "DeepSeek-V3", "rate": 3157407, "count": 2048, "seq": 4096, "device": "H100 SXM, bf16"},
            "Too fast to be true": {"model": "Llama-3-8B", "rate": 30000, "count": 1, "seq": 8192, "device": "H100 SXM, bf16"},
        },
        readouts=[
            readout("mfu", "MFU", "%"),
            readout("each", "Each device", "FLOP/s"),
            readout("per_token", "FLOPs a token", "FLOPs"),
            readout("possible", "Possible at all", text={"yes": "yes", "no": "no: above the chip's limit"}),
        ],
        rows=along("mistake", MISTAKES, row),
        chart=chart,
        table=[column("mistake", "Mistake"), column("ratio", "Ratio", "×"), column("printed", "MFU", "%")],
        caption="MFU is under EXACT, over the dense peak; the dashed line is 100 %. Recompute repeats every layer's forward pass to its end, as in Megatron and today's torchtitan, or stops early, as PyTorch's own checkpoint does. "
        f"An arrow marks a dot that is farther away than a factor of {FAR}. The rates are examples, but DeepSeek's is published, for H800s, whose peak is 0.04 % less. "
        + peaks_note([(name, dtype) for name, (_, dtype) in DEVICES.items()]),
        height=380,
    )  # fmt: skip
