"""The figure of the chapter on memory-bound decode: tokens a second for one user and for all, by the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flopkit.arithmetic import ceil_div, maximum, minimum, reading, total, vega, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import device_choice, peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.dtypes import nbytes
from flopkit.models import Model, load
from flopkit.models.serving.serving_pass import Group, ServingPass, decoded
from flopkit.rooflines import bound_by

__all__ = ["decode_of_models", "decode_throughput"]

MODELS = {
    "Llama 3 8B": "llama-3-8b",
    "Llama 2 13B": "llama-2-13b",
    "Llama 3 70B": "llama-3-70b",
    "Qwen3 30B-A3B": "qwen3-30b-a3b",
    "DeepSeek-V3": "deepseek-v3",
    "Megatron 1T": "megatron-1t",
}
WEIGHTS = {"bf16": {"bits": 16}, "fp8 or int8": {"bits": 8}, "fp4 or int4": {"bits": 4}}
CACHE = {"bf16": {"bits": 16}, "fp8 or int8": {"bits": 8}}
HARDWARE = (
    ("h100-sxm", "bf16"), ("h100-sxm", "fp8"), ("h200", "bf16"), ("b200", "bf16"), ("b200", "fp8"), ("a100-sxm-80gb", "bf16"),
    ("mi300x", "bf16"), ("l4", "bf16"), ("rtx-4090", "bf16"),
)  # fmt: skip
LOWEST = 0.1  # tokens/s, of the axis
MOST = 4096  # users, of the axis


def drawn(title: str) -> Model:
    """The model of that title. One with learned positions, which end, is drawn without them, so that any context may be chosen."""
    return replace(load(MODELS[title]), positions=None)


def _each(model: Any, asked: Any) -> Any:
    """What *asked* gives for the chosen model: in the page a look-up among all of them."""
    if reading(model) == "plain":
        return asked(drawn(model))
    return pick(model, {title: asked(drawn(title)) for title in MODELS})


def _pass(model: Any, **sizes: Any) -> Callable[[Callable[[ServingPass], Any]], Any]:
    """A step of decoding of the chosen model: a function that asks it for something, in the page that of all of them."""
    if reading(model) == "plain":
        one = decoded(drawn(model), new=1, experts="most", **sizes)
        return lambda asked: asked(one)
    all_of_them = {title: decoded(drawn(title), new=1, experts="most", **sizes) for title in MODELS}
    return lambda asked: pick(model, {title: asked(each) for title, each in all_of_them.items()})


def _of(group: Group, what: str) -> Callable[[ServingPass], Any]:
    """FLOPs or bytes of the parts of a group; 0 where a model has none."""
    return lambda served: getattr(served.grouped().get(group), what, 0)


def _step(s: Any, *, model: Any, batch: Any, context: Any, weights: Any, cache: Any, device: Any, count: Any) -> None:
    """A step of decoding with *batch* users."""
    step = _pass(model, context=context, batch=batch, weights=weights, kv_cache=cache)
    s.flops = step(lambda served: served.cost.flops)
    s.bytes = step(lambda served: served.cost.bytes)
    peak, bandwidth = count * device.peak, count * device.bandwidth
    bound = bound_by(s.flops, s.bytes, peak, bandwidth)
    s.seconds = bound.seconds
    s.bound = bound.bound
    s.each = 1 / s.seconds
    s.all = batch / s.seconds
    s.low = maximum(s.each, LOWEST)  # as they are drawn
    s.high = maximum(s.all, LOWEST)
    # the parts of a group, in one format of weights, reach the ridge together: so the groups in order take as long as their parts
    s.experts_flops = step(_of("experts", "flops"))
    s.experts_bytes = step(_of("experts", "bytes"))
    s.cache_flops = step(_of("cache", "flops"))
    s.cache_bytes = step(_of("cache", "bytes"))
    s.dense_flops = s.flops - s.experts_flops - s.cache_flops
    s.dense_bytes = s.bytes - s.experts_bytes - s.cache_bytes
    groups = (s.dense_flops, s.dense_bytes), (s.experts_flops, s.experts_bytes), (s.cache_flops, s.cache_bytes)
    s.in_order = total(maximum(flops / peak, moved / bandwidth) for flops, moved in groups)
    s.each_in_order = 1 / s.in_order
    s.all_in_order = batch / s.in_order
    s.low_in_order = maximum(s.each_in_order, LOWEST)
    s.high_in_order = maximum(s.all_in_order, LOWEST)


def decode_of_models(
    s: Any, *, model: Any, batch: Any, context: Any, weights: Any, cache: Any, device: Any, count: Any
) -> None:
    """A step of decoding, the memory that it needs, and what no batch can pass."""
    _step(s, model=model, batch=batch, context=context, weights=weights, cache=cache, device=device, count=count)
    s.busy = s.flops / (count * device.peak) / s.seconds
    s.held = _each(model, lambda m: nbytes(m.params, weights))
    s.cached = _each(model, lambda m: m.kv_bytes(context=context, batch=1, dtype=cache))
    s.memory = s.held + batch * s.cached
    s.available = count * device.usable
    s.fits = where(s.memory <= s.available, "yes", "no")
    s.most = where(s.available > s.held, (s.available - s.held) / s.cached, 0)
    s.row = _each(model, lambda m: nbytes(m.d_model, weights))
    s.alone = s.flops / batch
    s.ceiling = minimum(count * device.bandwidth / (s.cached + s.row), count * device.peak / s.alone)
    s.limit = s.alone / (s.cached + s.row)
    s.ridge = device.peak / device.bandwidth
    s.reaches = where(s.limit > s.ridge, "with a large enough batch", "with no batch")
    # of experts a large batch reads all, so from there on the bytes grow by each user's alone
    sizes: dict[str, Any] = {"context": context, "batch": MOST, "weights": weights, "kv_cache": cache}
    s.read = _each(model, lambda m: m.decode(**sizes).bytes) - MOST * (s.cached + s.row)
    spare = where(s.limit > s.ridge, s.alone - s.ridge * (s.cached + s.row), 1)
    s.first = where(s.limit > s.ridge, s.ridge * s.read / spare, 0)  # the batch from which on a step is compute-bound
    # its dense layers alone: the weights are read once, and each user reads a row of the embedding
    ridge_row = s.ridge * s.row
    s.dense = ceil_div(s.ridge * (s.dense_bytes - batch * s.row) / (s.dense_flops / batch - ridge_row), 1)
    s.users = -ceil_div(-s.most, 1)  # rounded down
    s.top = 10 * maximum(s.ceiling, 1)  # of the axis


def one_batch(
    r: Any, *, users: Any, model: Any, batch: Any, context: Any, weights: Any, cache: Any, device: Any, count: Any
) -> None:
    """A point of the curves."""
    _step(r, model=model, batch=users, context=context, weights=weights, cache=cache, device=device, count=count)


def _beside(place: int, right: int, left: int) -> dict[str, Any]:
    """Where the name of a curve stands: right of *place* users, or left of it where the memory's or the compute's line would cross it."""
    met = " || ".join(f"({line} > {place} && {line} < {7 * place})" for line in ("most", "first"))
    sides = {"align": ("'left'", "'right'"), "dx": (6, -6), "dy": (right, left)}
    return {what: {"expr": f"{met} ? {there} : {here}"} for what, (here, there) in sides.items()}


def decode_throughput() -> Figure:
    """Tokens a second over the batch: for one user, for all, the ceiling of all, and the batch that still fits."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "users:Q",
            title="batch (users)",
            scale=alt.Scale(type="log", domain=[0.7, MOST], nice=False),
            axis=alt.Axis(values=[1, 4, 16, 64, 256, 1024, 4096], format=",d"),
        )
        y = {
            "title": "tokens/s (dense: at most)",
            "scale": alt.Scale(type="log", domain=[LOWEST, alt.ExprRef(vega(s.top))], nice=False),
            "axis": alt.Axis(values=[10.0**power for power in range(8)], format="~s", grid=True),
        }
        tooltip = [
            alt.Tooltip("users:Q", title="users", format=","),
            alt.Tooltip("each:Q", title="tokens/s for one", format=",.4~r"),
            alt.Tooltip("all:Q", title="tokens/s for all", format=",.4~r"),
            alt.Tooltip("bound:N", title="bound"),
            alt.Tooltip("all_in_order:Q", title="for all, in order", format=",.4~r"),
        ]
        marks = []
        for name, colour in (("high_in_order", theme.BLUE), ("low_in_order", theme.ORANGE)):
            apart = s.rows.mark_line(color=colour, strokeWidth=1.5, strokeDash=[4, 3])
            marks.append(apart.encode(x=x, y=alt.Y(f"{name}:Q", **y)))
        for name, colour in (("high", theme.BLUE), ("low", theme.ORANGE)):
            line = s.rows.mark_line(color=colour, strokeWidth=2.5).encode(x=x, y=alt.Y(f"{name}:Q", **y))
            dots = s.rows.mark_point(color=colour, size=24, filled=True, opacity=1).encode(
                x=x, y=alt.Y(f"{name}:Q", **y), tooltip=tooltip
            )
            marks += [line, dots]
        ceiling = (
            alt.Chart(alt.Data(values=[{"users": 1}, {"users": MOST}]))
            .transform_calculate(level=vega(maximum(s.ceiling, LOWEST)))
            .mark_line(color=theme.MUTED, strokeDash=[5, 4])
            .encode(x=x, y=alt.Y("level:Q", **y))
        )
        most, first = (minimum(maximum(users, 1), MOST) for users in (s.most, s.first))
        full, busy = (
            alt.Chart(alt.Data(values=[{"high": 0}, {"high": 1}]))
            .transform_calculate(users=vega(users), level=f"datum.high ? {vega(high)} : {low}")
            .transform_filter(when)
            .mark_line(color=theme.MUTED, strokeDash=dash)
            .encode(x=x, y=alt.Y("level:Q", **y))
            for users, low, high, when, dash in (
                (most, LOWEST, s.top / 4, "true", [2, 3]),  # each ends before the words of the other
                (first, 4 * LOWEST, s.top, f"first > 0 && first <= {MOST}", [8, 3]),
            )
        )
        here = s.now("all", "each", "high", "low", "bound", users=s.now_batch)
        now = [
            here.mark_point(size=170, filled=True, opacity=1, color=colour, stroke=theme.PAPER, strokeWidth=2).encode(
                x=x, y=alt.Y(f"{name}:Q", **y), tooltip=tooltip
            )
            for name, colour in (("high", theme.BLUE), ("low", theme.ORANGE))
        ]
        said: list[tuple[Any, str, dict[str, Any]]] = [
            (s.now(users=where(s.crowded, MOST, 1.15), level=maximum(s.ceiling, LOWEST), label="ceiling, all users"), "level",
             {"color": theme.MUTED, "align": {"expr": "crowded ? 'right' : 'left'"}, "dy": -8}),
            *(
                (s.now(users=users, level=level).transform_calculate(label=label), "level",
                 {"color": theme.MUTED, "align": {"expr": f"{name} > 60 ? 'right' : 'left'"}, "dx": {"expr": f"{name} > 60 ? -5 : 5"}})
                for name, users, level, label in (
                    ("most", most, 0.2, "most < 1 ? 'nothing fits' : 'memory full: ' + format(floor(most), ',')"),
                    ("first", first, s.top / 2, f"first > 0 ? 'compute-bound from ' + format(ceil(first), ',') + (first > {MOST} ? ' →' : '') : ''"),
                )
            ),
            *(
                (s.rows.transform_filter(f"datum.users == {place}").transform_calculate(label=f"'{label}'"), height,
                 {"color": colour, "fontWeight": 600, "fontSize": 13, **_beside(place, *dy)})
                for height, colour, label, place, dy in (("high", theme.BLUE, "all users", 16, (14, -14)), ("low", theme.ORANGE, "one user", 64, (-11, 16)))
            ),
        ]  # fmt: skip
        words = [
            word
            for rows, height, look in said
            for word in theme.words(rows, look, x=x, y=alt.Y(f"{height}:Q", **y), text="label:N")
        ]
        return alt.layer(ceiling, full, busy, *marks, *now, *words)

    def model(s: Any, *, batch: Any, **rest: Any) -> None:
        decode_of_models(s, batch=batch, **rest)
        s.now_batch = batch + 0
        # the name of the upper curve then stands where that of the ceiling would, or a line goes through both
        s.crowded = (s.most < 112) | ((s.first > 16) & (s.first < 112))

    claim = {
        "context": 2048,
        "cache": "bf16",
        "device": "H100 SXM5 80 GB, bf16",
        "count": 8,
        "model": "Megatron 1T",
        "batch": 1,
    }
    llama = {"weights": "bf16", "cache": "bf16", "device": "H100 SXM5 80 GB, bf16", "count": 8}
    return Figure(
        name="decode-throughput",
        title="What one user gets and what all get, by the batch",
        alt="Two curves over the batch, both axes logarithmic: tokens a second for one user, which falls, and for all users, which rises towards "
        "a dashed ceiling; below each a dashed one, with the layers in order; a dotted line marks the batch at which the memory is full, a dashed one the batch from which on a step is compute-bound. {model} on {count} × {device}, {context} each, weights in {weights}: with a "
        "batch of {batch}, one user gets at most {each} tokens a second and all together {all}, bound by {bound}; in order {each_in_order} and {all_in_order}. The ceiling is {ceiling}.",
        model=model,
        controls=[
            choice("model", "Model", list(MODELS), value="Llama 3 70B"),
            slider("batch", "Batch", steps(1, MOST), value=1, unit="users"),
            slider("context", "Context", steps(128, 131072), value=8192, unit="tokens"),
            choice("weights", "Weights stored in", WEIGHTS),
            choice("cache", "Cache stored in", CACHE),
            device_choice("device", "Device and number format", HARDWARE),
            slider("count", "Devices", steps(1, 16), value=8),
        ],
        presets={
            "One trillion, bf16": {**claim, "weights": "bf16"},
            "One trillion, 4 bits": {**claim, "weights": "fp4 or int4"},
            "One user": {**llama, "model": "Llama 3 70B", "context": 8192, "batch": 1},
            "A batch of 128": {**llama, "model": "Llama 3 70B", "context": 8192, "batch": 128},
            "Short contexts": {**llama, "model": "Llama 3 70B", "context": 512, "batch": 1024},
            "No grouped heads": {**llama, "model": "Llama 2 13B", "context": 4096, "batch": 64},
            "Latent attention": {
                **llama,
                "model": "DeepSeek-V3",
                "weights": "fp8 or int8",
                "context": 8192,
                "batch": 256,
                "count": 16,
            },
        },
        readouts=[
            readout("each", "Tokens/s for one user"),
            readout("all", "Tokens/s for all users"),
            readout("each_in_order", "For one user, in order"),
            readout("all_in_order", "For all users, in order"),
            readout("bound", "Bound", text={"compute": "compute", "memory": "memory"}),
            readout("busy", "Peak in use", "%"),
            readout("ceiling", "Ceiling for all users, tokens/s"),
            readout("dense", "Dense layers compute-bound from, users"),
            readout("users", "Users that fit"),
            readout(
                "reaches", "Compute-bound", text={name: name for name in ("with a large enough batch", "with no batch")}
            ),
            readout("memory", "Weights and caches, all devices", "B"),
            readout("fits", "Fits on all devices", text={"yes": "yes", "no": "no"}),
        ],
        rows=along("users", steps(1, MOST), one_batch),
        chart=chart,
        table=[
            column("users", "Batch"),
            column("each", "Tokens/s for one"),
            column("all", "Tokens/s for all"),
            column("seconds", "Step", "s"),
            column("in_order", "Step, in order", "s"),
            column("bound", "Bound"),
        ],
        caption="Upper bounds: the devices share the work evenly and communicate in no time, and attention reads for some users while the dense layers compute for others. "
        "Dashed: dense layers, experts and attention wait for each other. Of a mixture of experts, the most experts that the batch can choose are read, so "
        f"those curves are estimates. Llama 2 13B is made for 4,096 tokens, Megatron 1T for {load('megatron-1t').positions:,}. "
        f"Rates below 0.1 tokens/s are drawn at 0.1. {peaks_note(HARDWARE)}",
        height=320,
    )
