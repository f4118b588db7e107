"""The calculator: a decoder with every number as a control, and a box into which a ``config.json`` is pasted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit.arithmetic import vega
from flopkit.book.gallery.any_model import (
    COUNTS,
    LAYER,
    LAYER_NO_BIAS,
    NORMS,
    ONE,
    PLACES,
    POLICIES,
    QK_NORMS,
    RMS,
    TWO,
    cost_of_a_model,
    one_convention,
)  # fmt: skip
from flopkit.book.gallery.checkpoint_formats import STORED, rules
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.hardware import DEVICES, device_choice, peaks_note
from flopkit.charts.packages import need
from flopkit.charts.panel import Control, Paste, along, choice, column, grouped, readout, slider, steps, switch
from flopkit.models import LatentAttention, load
from flopkit.models.architectures import ARCHITECTURES, NUMBERS, SAME, reader_file
from flopkit.models.config_fields import TEXT_PARTS, Fields
from flopkit.models.config_table import Value, reader_table, when
from flopkit.models.configs import hf_config
from flopkit.models.text_parts import whole_types
from flopkit.training.memory import state_bytes

__all__ = ["calculator", "settings_of"]

STATES = {
    title: dict(zip(("weight", "gradient", "optimizer"), state_bytes(*kept_in), strict=True))
    for title, kept_in in {
        "16: mixed, Adam": ("mixed", "adam"),
        "18: the same, fp32 gradients": ("mixed-fp32-gradients", "adam"),
        "10: mixed, 8-bit Adam": ("mixed", "adam-8bit"),
        "8: all bf16, Adam": ("bf16", "adam"),
    }.items()
}
PRESETS = {
    "Llama-3-8B": "llama-3-8b", "Llama-3.1-405B": "llama-3.1-405b", "Qwen2.5-7B": "qwen2.5-7b", "Qwen3-32B": "qwen3-32b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b", "Mistral-7B": "mistral-7b", "Mixtral-8x7B": "mixtral-8x7b", "Gemma-2-9B": "gemma-2-9b",
    "Gemma-3-27B": "gemma-3-27b", "OLMo-2-7B": "olmo-2-7b", "gpt-oss-120b": "gpt-oss-120b", "DeepSeek-V3": "deepseek-v3", "GPT-2": "gpt2",
}  # fmt: skip
RATE = 51000  # tokens/s of the first on eight H100s, an MFU of a third: an example, which the others follow
LENGTH = 8192
WINDOW = 4096  # where the control stands as long as no layer has one
_WHY = {
    "encoders": "is an encoder, which makes no text token by token: this figure has no control for that",
    "rotary_encoders": "is an encoder, which makes no text token by token: this figure has no control for that",
    "seq2seq": "has an encoder and a decoder: this figure has no control for the encoder",
    "vision": "reads images: this figure has no control for patches",
    "recurrent": "has layers with a state: this figure has no control for them",
}  # by the file of its reader
_REST = "has layers for which this figure has no control"
UNABLE = {
    kind: f"A {kind} {_WHY.get(reader_file(SAME.get(kind, kind)), _REST)}. In Python fk.from_hf reads it."
    for kind in (*ARCHITECTURES, *SAME)
    if SAME.get(kind, kind) not in NUMBERS
}
WEIGHTS = "Weights stored in"
CACHES = {"bf16": {"bits": 16}, "fp8 or int8": {"bits": 8}}


def settings_of(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The controls of an architecture from the numbers that `flopkit.models.transformer` takes.

    A control that has no effect on this architecture is left where it stands.
    """
    n, attention = numbers, numbers["attention"]
    found = {name: n[name] for name in ("d_model", "layers", "vocab", "tied")} | {"heads": attention.heads}
    found |= {"norm": _norm_of(n), "place": TWO if n.get("norms") == "both" else ONE}
    found |= {"positions": n.get("positions", 0)}
    if isinstance(found["positions"], Value):
        found["length"] = Value(least=[Value(now="length"), found["positions"]])
    if n.get("d_ff") is not None:
        found |= {"d_ff": n["d_ff"], "gated": n.get("gated", True), "mlp_bias": n.get("bias", False)}
    if isinstance(attention, LatentAttention):
        found |= {name: getattr(attention, name) for name in ("kv_lora", "qk_nope", "qk_rope", "v_head_dim")}
        found["q_lora"] = 0 if attention.q_lora is None else attention.q_lora
    else:
        found |= {"kv_lora": 0, "kv_heads": attention.kv_heads, "head_dim": attention.head_dim}
        found |= {name: _switch(getattr(attention, name)) for name in ("qkv_bias", "out_bias", "sinks")}
        found["qk_norm"] = next(title for title, name in QK_NORMS.items() if name == attention.qk_norm)
        found |= {"window": WINDOW, "windowed": 0}
        if (window := n.get("window")) is not None:
            windowed = n["layers"] if window.layers is None else window.layers
            found |= {"window": when(window.width, window.width, WINDOW), "windowed": windowed}
    if (experts := n.get("experts")) is None:
        return found | {"experts": 0}
    found |= {name: getattr(experts, name) for name in ("experts", "top_k", "shared_d_ff")}
    found |= {"expert_d_ff": experts.d_ff, "dense": n.get("dense", 0)}
    return found | {"shared_gate": _switch(experts.shared_gate), "expert_bias": _switch(experts.bias)}


def _switch(flag: Any) -> Any:
    return flag if isinstance(flag, Value) else bool(flag)


def _norm_of(n: Mapping[str, Any]) -> str:
    if n.get("norm", "rms") == "rms":
        return RMS
    return LAYER if n.get("norm_bias", True) else LAYER_NO_BIAS


def _preset(name: str) -> dict[str, Any]:
    config = hf_config(name)
    kind = config["model_type"]
    found = settings_of(NUMBERS[kind](Fields(config, kind)))
    length = found["positions"] or LENGTH
    return found | {"rate": _rate(name, length), "length": length}


def _rate(name: str, length: int) -> int:
    """Tokens/s with the MFU that the first model has at RATE, to two digits."""
    first = load(next(iter(PRESETS.values()))).train_step(seq=LENGTH)
    return int(float(f"{RATE * first.flops_per_token / load(name).train_step(seq=length).flops_per_token:.1e}"))


def _controls(start: Mapping[str, Any]) -> list[Control]:
    def size(name: str, label: str, lo: int, hi: int, fine: int = 2, **more: Any) -> Control:
        value = more.pop("value", start.get(name))
        return slider(name, label, steps(lo, hi, fine), value=value, **more)

    def count(name: str, label: str, lo: int, hi: int, fine: int = 2, **more: Any) -> Control:
        """The same with a 0, for none."""
        return slider(name, label, [0, *steps(lo, hi, fine)], value=more.pop("value", start.get(name)), **more)

    def flag(name: str, label: str, **more: Any) -> Control:
        return switch(name, label, bool(start.get(name, False)), **more)

    return [
        *grouped("Run", [
            size("length", "Sequence length", 128, 1048576, 1, value=LENGTH, unit="tokens"),
            size("batch", "Sequences on each device", 1, 64, 1, value=1),
            device_choice("device", "Device and number format", DEVICES),
            size("count", "Devices", 1, 16384, 1, value=8),
            size("rate", "Training tokens/s, in all", 64, 16777216, 2, value=RATE),
            choice("recompute", "Recompute", list(POLICIES)),
            choice("states", "Training state, bytes per parameter", STATES),
        ]),
        *grouped("Decoding", [
            size("users", "Batch in decoding", 1, 4096, 1, value=1, unit="users"),
            choice("weights", WEIGHTS, STORED),
            choice("cache", "Cache stored in", CACHES),
        ]),
        *grouped("Sizes", [
            size("d_model", "Width of the model", 256, 32768),
            size("layers", "Layers", 1, 256),
            size("heads", "Query heads", 1, 256),
            size("kv_heads", "Key-value heads", 1, 256, idle="in_latent"),
            size("head_dim", "Width of a head", 16, 512, idle="in_latent"),
            size("d_ff", "Width of the MLP", 256, 131072, idle="no_mlp"),
            flag("gated", "Gated MLP", idle="no_mlp"),
            size("vocab", "Vocabulary", 1024, 524288),
            flag("tied", "Embedding and head share a table"),
        ]),
        *grouped("Norms, biases, positions", [
            choice("norm", "Norms", list(NORMS), value=start["norm"]),
            choice("place", "Norms of a branch", list(PLACES), value=start["place"]),
            choice("qk_norm", "Norms of queries and keys", list(QK_NORMS), value=start["qk_norm"], idle="in_latent"),
            flag("qkv_bias", "Bias of queries, keys, values", idle="in_latent"),
            flag("out_bias", "Bias of attention’s output", idle="in_latent"),
            flag("mlp_bias", "Bias of the MLP", idle="no_mlp"),
            flag("sinks", "A learned sink for each head", idle="in_latent"),
            count("positions", "Learned positions", 512, 1048576, 1),
        ]),
        *grouped("Windows", [
            count("windowed", "Layers with a window", 1, 256, idle="no_windowed"),
            size("window", "Window", 16, 131072, 1, unit="tokens", idle="no_window"),
        ]),
        *grouped("Experts", [
            count("experts", "Experts", 2, 512, 1),
            size("top_k", "Experts of a token", 1, 64, 1, value=2, idle="no_experts"),
            size("expert_d_ff", "Width of an expert", 64, 65536, value=2048, idle="no_experts"),
            count("shared_d_ff", "Width of the shared expert", 64, 65536, value=0, idle="no_experts"),
            flag("shared_gate", "The shared expert has a gate", idle="no_shared"),
            flag("expert_bias", "Bias of router and experts", idle="no_experts"),
            count("dense", "Layers without experts", 1, 256, value=0, idle="no_experts"),
        ]),
        *grouped("Latent attention", [
            count("kv_lora", "Latent of keys and values", 64, 4096),
            count("q_lora", "Latent of queries", 64, 4096, value=0, idle="no_latent"),
            size("qk_nope", "Width of a key without position", 16, 512, value=128, idle="no_latent"),
            size("qk_rope", "Width of a key with position", 8, 256, value=64, idle="no_latent"),
            size("v_head_dim", "Width of a value", 16, 512, value=128, idle="no_latent"),
        ]),
    ]  # fmt: skip


def _chart(s: Any) -> Any:
    alt = need("altair")
    y = alt.Y("name:N", sort=list(COUNTS), title=None, axis=alt.Axis(labels=False, domain=False, ticks=False))
    x = {
        "title": "GFLOPs of a training token, and its MFU",
        "scale": alt.Scale(domain=[0, alt.ExprRef(f"{vega(s.end)} / 1e9")], nice=False),
        "axis": alt.Axis(format=",~r", tickCount=5, labelBound=True),
    }
    rows = s.rows.transform_calculate(
        giga="datum.flops / 1e9",
        length="datum.drawn / 1e9",
        said="format(datum.giga, ',.4~r') + ' GFLOPs, ' + format(100 * datum.share, ',.3~r') + ' %' + (datum.drawn < datum.flops ? ' →' : '')",
        ours="datum.name === 'EXACT: visible pairs'",
    )
    bars = rows.mark_bar(height=10, yOffset=9).encode(
        y=y,
        x=alt.X("length:Q", **x),
        color=alt.condition("datum.ours", alt.value(theme.BLUE), alt.value(theme.SKY)),
        tooltip=[
            alt.Tooltip("name:N", title="count"),
            alt.Tooltip("giga:Q", title="GFLOPs of a token", format=",.5~r"),
            alt.Tooltip("against:Q", title="by EXACT", format=".3f"),
            alt.Tooltip("share:Q", title="MFU", format=".1%"),
        ],
    )
    left, right = ({"dy": -7, "baseline": "middle", "align": side} for side in ("left", "right"))
    ink = alt.condition("datum.ours", alt.value(theme.BLUE), alt.value(theme.INK))
    names = theme.words(rows, left, y=y, x=alt.value(0), text="name:N", color=ink)
    end = alt.value({"expr": "width"})
    said = theme.words(rows, {**right, "fontWeight": 600}, y=y, x=end, text="said:N", color=ink)
    return alt.layer(bars, *names, *said)


def calculator() -> Figure:
    """What a model costs: a transformer with every number as a control, or a pasted config.json."""
    presets = {title: _preset(name) for title, name in PRESETS.items()}
    yes_no = {"yes": "yes", "no": "no"}
    return Figure(
        name="calculator",
        title="Parameters, FLOPs, memory and speed of a model",
        alt="Bars for a training token of a model with {params} parameters, {active} of them active, at {length}: its FLOPs as seven conventions "
        "count them, with the MFU that each gives; the data table lists them. Under EXACT it is {a_token}, and {rate} tokens/s on {count} × "
        "{device} are an MFU of {mfu}. A training step takes {memory} on each device; fits: {fits}. A step of decoding takes {decode_seconds} "
        "at the roof, bound by {bound}.",
        model=cost_of_a_model,
        refused="refused",
        paste=Paste(
            "Paste a config.json of Hugging Face here",
            reader_table(settings_of),
            UNABLE,
            TEXT_PARTS,
            whole_types(),
            rules("weights", WEIGHTS),
        ),
        controls=_controls(presets["Llama-3-8B"]),
        presets=presets,
        readouts=[
            readout("params", "Parameters"),
            readout("active", "Active for a token"),
            readout("a_token", "A training token", "FLOPs"),
            readout(
                "possible",
                "This rate is possible",
                text={
                    "below the peak": "in theory: below the peak",
                    "above the peak": "not in practice: above the peak",
                    "no": "no: above the limit",
                },
            ),
            readout("mfu", "MFU (EXACT)", "%"),
            readout("hfu", "HFU (EXACT)", "%"),
            readout("weights_held", "Weights, each device", "B"),
            readout("gradients_held", "Gradients, each device", "B"),
            readout("optimizer_held", "Optimiser, each device", "B"),
            readout("activations", "Activations, each device", "B"),
            readout("memory", "Training, each device", "B"),
            readout("fits", "Training fits on each device", text=yes_no),
            readout("decode_seconds", "Decoding, a step at the roof", "s"),
            readout("bound", "Bound", text={"compute": "compute", "memory": "memory"}),
            readout("decode_rate", "All users at the roof, tokens/s"),
            readout("serving", "Weights and cache, all devices", "B"),
            readout("serves", "Serving fits on all devices", text=yes_no),
        ],
        rows=along("name", list(COUNTS), one_convention),
        chart=_chart,
        table=[
            column("name", "Convention"),
            column("flops", "FLOPs of a training token", "FLOPs"),
            column("against", "By EXACT", "×"),
            column("share", "MFU", "%"),
        ],
        caption="A training token is counted forward and backward, and nothing twice. MFU is its FLOPs at the throughput that you set, over the dense peak. "
        "That throughput is an example, not a measurement: a model of the list comes with one that takes a third of the peak of eight H100s. Set yours. "
        "An arrow (→) marks a bar that leaves the chart. HFU adds recompute, and the scores that flash "
        "attention computes again. Memory as Model.train_memory counts it; weights, gradients and optimiser are shared evenly by all devices "
        "(ZeRO-3, FSDP), activations are those of one device’s sequences. Decoding with a context of the same length, spread evenly over all "
        "devices, which exchange data in no time. So the time of a step is a lower bound, except for a mixture of experts: we let a batch read as many experts as it could choose. "
        + peaks_note(DEVICES),
        height=330,
    )
