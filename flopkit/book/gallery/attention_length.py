"""The figure of the crossing: at which length the attention core costs as much as the rest of its layer."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import ceil_div, where
from flopkit.book.gallery.attention import EIGHT, FOUR, HEADS, MASKS, MHA, NO_WINDOW, SHARING, band, shared
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.layers.attention_layers import mla, multi_head_attention
from flopkit.layers.attentions import attention
from flopkit.layers.products import dense
from flopkit.models import hf_config

__all__ = ["attention_crossing", "core_and_rest"]

LAYERS: dict[str, dict[str, int]] = {
    name: {"qk": sizes["qk"], "v": sizes["v"], "latent": 0}
    for name, sizes in HEADS.items()
    if sizes["qk"] == sizes["v"]
} | {"192, values 128 (latent)": {"qk": 192, "v": 128, "latent": 1}}


def core_and_rest(
    s: Any, *, length: Any, mask: Any, span: Any, d_model: Any, heads: Any, sharing: Any, head: Any, d_ff: Any, mlp: Any
) -> None:
    """FLOPs of one transformer layer for one token of a sequence of *length*: the attention core, and all else."""
    kv_heads = shared(s, heads, where(head.latent == 1, 1, sharing))
    s.one_latent = where(head.latent == 1, "All heads share one latent.", s.alone)
    s.no_window = where(mask == "window", "", NO_WINDOW)
    sizes: dict[str, Any] = {"batch": 1, "q": length, "kv": length, "heads": heads, "kv_heads": kv_heads}
    sizes |= {"head_dim": head.qk, "v_head_dim": head.v}
    core = where(mask == "full", attention(**sizes).flops, attention(**sizes, mask=band(mask, span, length)).flops)
    s.core = core / length
    s.torch = attention(**sizes).flops / length
    s.projections = where(
        head.latent == 1, latent_projections(d_model, heads), projections(d_model, heads, kv_heads, head.qk)
    )
    s.rest = s.projections + mlp * dense(tokens=1, d_in=d_model, d_out=d_ff).flops
    s.share = s.core / (s.core + s.rest)
    s.share_torch = s.torch / (s.torch + s.rest)
    s.equal = length * s.rest / s.torch  # pairs of a token whose core costs as much as the rest of the layer
    s.inside = 2 * s.equal - 1  # a causal token has (T + 1)/2 pairs on average
    spare = where(span > s.equal, span - s.equal, 1)
    s.beyond = span * (span - 1) / (2 * spare)  # past the window it has w − w(w − 1)/2T
    s.in_window = where(s.inside <= span, s.inside, where(span > s.equal, s.beyond, 0))
    s.meets = where(mask == "full", s.equal, where(mask == "window", s.in_window, s.inside))
    s.crossing = where(s.meets > 0, ceil_div(s.meets, 1), "never")
    s.crossing_torch = ceil_div(s.equal, 1)


def projections(d_model: Any, heads: Any, kv_heads: Any, head_dim: Any) -> Any:
    """FLOPs per token of the matmuls to queries, keys and values, and of the output's."""
    whole = multi_head_attention(batch=1, q=1, kv=1, d_model=d_model, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    return _without_core(whole)


def latent_projections(d_model: Any, heads: Any) -> Any:
    """The same for the latent attention of DeepSeek-V3, brought up to keys and values of every head."""
    config = hf_config("deepseek-v3")
    latent = {"q_lora": config["q_lora_rank"], "kv_lora": config["kv_lora_rank"], "v_head_dim": config["v_head_dim"]}
    latent |= {"qk_nope": config["qk_nope_head_dim"], "qk_rope": config["qk_rope_head_dim"]}
    return _without_core(mla(batch=1, q=1, kv=1, d_model=d_model, heads=heads, **latent))


def _without_core(layer: Any) -> Any:
    parts = [part.flops for part in layer.parts if part.macs_by_kind.get("products") is not None]
    total = parts[0]
    for more in parts[1:]:
        total = total + more
    return total


def attention_crossing() -> Figure:
    """At which length the attention core costs as much as the rest of its layer."""
    lengths = steps(256, 1048576)
    stops = sorted({*steps(256, 1048576, per_octave=2), 26624, 53247})  # where Llama-3-8B's two curves meet the line

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = alt.X(
            "length:Q",
            title="length of the sequence (tokens)",
            scale=alt.Scale(type="log", domain=[180, 1048576], nice=False),
            axis=alt.Axis(values=[256, 1024, 4096, 16384, 65536, 262144, 1048576], format=",d"),
        )
        y = alt.Y("flops:Q", title="FLOPs per token of a layer", **theme.log_scale(5e4, 3e11))

        tooltip = [
            alt.Tooltip("length:Q", title="tokens", format=","),
            alt.Tooltip("flops:Q", title="FLOPs", format=".4~s"),
        ]

        curves = {
            "rest": ("projections and MLP", theme.GREEN, [1, 0]),
            "torch": ("core, all pairs", theme.MUTED, [5, 4]),
            "core": ("core, visible pairs", theme.BLUE, [1, 0]),
        }
        lines = theme.curves(s.rows, curves, "flops", {"clip": True}, x=x, y=y, tooltip=tooltip)

        def met(at: Any, colour: str) -> Any:
            there = s.now(length=at, flops=s.rest).transform_filter("datum.length >= 256 && datum.length <= 1048576")
            return there.mark_point(filled=False, size=90, strokeWidth=2, color=colour).encode(
                x=x, y=y, tooltip=tooltip
            )

        here = s.now("length", flops=s.core).transform_calculate(label="format(datum.length, ',') + ' tokens'")
        # right of the dot below its line, near the right edge left of it above
        place = {"align": ("right", "left"), "dx": (-12, 12), "dy": (-14, 14)}
        side = {what: {"expr": f"length > 16384 ? {far!r} : {near!r}"} for what, (far, near) in place.items()}
        look = {"color": theme.ORANGE, "fontWeight": 600, "fontSize": 13, **side}
        return alt.layer(
            lines,
            met(s.equal, theme.MUTED),
            met(s.meets, theme.BLUE),
            *theme.words(here, look, x=x, y=y, text="label:N"),
            here.mark_point(size=190, stroke=theme.PAPER, strokeWidth=2).encode(x=x, y=y, tooltip=tooltip),
        )

    def sizes(name: str) -> dict[str, Any]:
        config = hf_config(name)
        d_model, heads, d_ff = (config[k] for k in ("hidden_size", "num_attention_heads", "intermediate_size"))
        return {"d_model": d_model, "heads": heads, "d_ff": d_ff}

    llama = {"mask": "causal", "sharing": FOUR, "head": "128", "mlp": "three matmuls (gated)", **sizes("llama-3-8b")}
    gpt_2 = {"length": 1024, "d_model": 768, "heads": 12, "d_ff": 3072}
    return Figure(
        name="attention-crossing",
        title="At which length does the core cost as much as the rest of its transformer layer?",
        alt="A log-log plot of FLOPs per token over the length of the sequence. The projections and the MLP are a flat line at {rest}, because "
        "they cost the same per token at any length. The attention core rises in proportion to the length; under a window it levels off. With mask {mask} and "
        "{length} it takes {core}, {share} of the transformer layer. It equals the flat line at {crossing_torch} if all pairs count, and if only the "
        "visible pairs do, at: {crossing}.",
        model=core_and_rest,
        controls=[
            slider("length", "Length", stops, value=8192, unit="tokens"),
            choice("mask", "Mask", MASKS, value="causal"),
            slider("span", "Width of the window", steps(128, 131072), value=4096, unit="tokens", idle="no_window"),
            slider("d_model", "Width of the model", steps(512, 16384, per_octave=2), value=4096),
            slider("heads", "Query heads", steps(4, 128), value=32),
            choice("sharing", "Key-value heads", SHARING, value=FOUR, idle="one_latent"),
            choice("head", "Head dimension", LAYERS, value="128"),
            slider("d_ff", "Width of the MLP", steps(1024, 65536, per_octave=2), value=14336),
            choice("mlp", "MLP", {"three matmuls (gated)": 3, "two matmuls": 2}),
        ],
        presets={
            "Llama-3-8B": llama,
            "Llama-3-70B": {**llama, **sizes("llama-3-70b"), "sharing": EIGHT},
            "Mistral-7B, window of 4,096": {**llama, "mask": "window", "span": 4096},
            "DeepSeek-V3": {**llama, **sizes("deepseek-v3"), "sharing": MHA, "head": "192, values 128 (latent)"},
            "GPT-2": {**llama, **gpt_2, "sharing": MHA, "head": "64", "mlp": "two matmuls"},
        },
        readouts=[
            readout("core", "Core, visible pairs", "FLOPs"),
            readout("torch", "Core, all pairs", "FLOPs"),
            readout("rest", "Projections and MLP", "FLOPs"),
            readout("share", "Core's share", "%"),
            readout("share_torch", "Share, all pairs", "%"),
            readout("crossing", "Equal at", "tokens"),
            readout("crossing_torch", "Equal, all pairs", "tokens"),
        ],
        rows=along("length", lengths),
        chart=chart,
        table=[
            column("length", "Length", "tokens"),
            column("core", "Core, visible pairs", "FLOPs"),
            column("torch", "Core, all pairs", "FLOPs"),
            column("rest", "Projections and MLP", "FLOPs"),
            column("share", "Core's share", "%"),
        ],
        caption="Forward FLOPs of one layer per token, on average over the sequence. “Visible pairs” "
        "is EXACT; “all pairs” is TORCH, which ignores masks and windows. The output head, "
        "norms, softmax and DeepSeek-V3's router are left out; its nine active experts are as wide as one MLP of 18,432, and its latents are expanded.",
        refused="uneven",
    )
