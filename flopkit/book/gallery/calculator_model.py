"""The model of the calculator: a decoder with every size as a control, read from a ``config.json``, a name, or a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flopkit.book.gallery.any_model import ACTS, NORMS, PLACES, QK_NORMS
from flopkit.book.gallery.checkpoint_formats import rules
from flopkit.charts.code import Piece, above, unless, value, when
from flopkit.charts.panel import WITHIN, Control, Paste, choice, grouped, slider, steps, switch
from flopkit.models import Attention, LatentAttention, config_names, model_names
from flopkit.models.architectures import ARCHITECTURES, FORMS, NUMBERS, SAME, reader_file
from flopkit.models.files.aliases import spellings
from flopkit.models.files.config_fields import ACTS as MODEL_ACTS, TEXT_PARTS, Fields
from flopkit.models.files.config_table import Value, reader_table, when as when_read
from flopkit.models.files.configs import hf_config
from flopkit.models.files.misnamed import OF_OTHER_TOOLS, SAME_SIZE
from flopkit.models.files.recognised import typed
from flopkit.models.files.text_parts import whole_types

__all__ = [
    "PRESETS",
    "SIZES",
    "UNABLE",
    "box",
    "names_of_models",
    "presets",
    "settings_of",
    "size_controls",
    "sizes_in_python",
]

OTHER_ACT = next(iter(ACTS))
PRESETS = {
    "Llama-3-8B": "llama-3-8b", "Llama-3-70B": "llama-3-70b", "Llama-3.1-405B": "llama-3.1-405b", "Qwen2.5-7B": "qwen2.5-7b",
    "Qwen3-8B": "qwen3-8b", "Qwen3-32B": "qwen3-32b", "Qwen3-30B-A3B": "qwen3-30b-a3b", "Mistral-7B": "mistral-7b",
    "Mixtral-8x7B": "mixtral-8x7b", "Gemma-2-9B": "gemma-2-9b", "Gemma-3-27B": "gemma-3-27b", "OLMo-2-7B": "olmo-2-7b",
    "gpt-oss-120b": "gpt-oss-120b", "DeepSeek-V3": "deepseek-v3",
}  # fmt: skip
WINDOW = 4096  # where the control stands as long as no layer has one
LENGTHS = ("length", "context", "prompt")
"""Controls that learned positions limit."""
SIZES = "The model’s sizes"
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
    if SAME.get(kind, kind) not in FORMS
}


def settings_of(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The controls of an architecture from the numbers that `flopkit.models.transformer` takes.

    A control that has no effect on this architecture is left where it stands.
    """
    n, attention = numbers, numbers["attention"]
    beyond(n)
    found = {name: n[name] for name in ("d_model", "layers", "vocab", "tied")} | {"heads": attention.heads}
    found |= {"norm": _norm_of(n), "place": _titled(PLACES, n.get("norms", "pre"))}
    found |= {"head_bias": _switch(n.get("head_bias", False)), "embedded": _switch(n.get("embedding_norm", False))}
    found |= {"positions": n.get("positions", 0)}
    if isinstance(found["positions"], Value):
        longest = found["positions"] - n.get("position_offset", 0)
        found |= {name: Value(least=[Value(now=name), longest]) for name in LENGTHS}
    if n.get("d_ff") is not None:
        found |= {"d_ff": n["d_ff"], "gated": n.get("gated", True), "mlp_bias": n.get("bias", False)}
        found |= {"act": _titled(ACTS, n["act"], **dict.fromkeys(set(MODEL_ACTS.values()) - {"relu"}, OTHER_ACT))}
    if isinstance(attention, LatentAttention):
        found |= {name: getattr(attention, name) for name in ("kv_lora", "qk_nope", "qk_rope", "v_head_dim")}
        found["q_lora"] = 0 if attention.q_lora is None else attention.q_lora
    else:
        found |= {"kv_lora": 0, "kv_heads": attention.kv_heads, "head_dim": attention.head_dim}
        found |= {name: _switch(getattr(attention, name)) for name in ("qkv_bias", "out_bias", "sinks")}
        found["qk_norm"] = _titled(QK_NORMS, attention.qk_norm)
        found |= {"window": WINDOW, "windowed": 0}
        if (window := n.get("window")) is not None:
            windowed = n["layers"] if window.layers is None else window.layers
            found |= {"window": when_read(window.width, window.width, WINDOW), "windowed": windowed}
    if (experts := n.get("experts")) is None:
        return found | {"experts": 0}
    found |= {name: getattr(experts, name) for name in ("experts", "top_k", "shared_d_ff")}
    found |= {"expert_d_ff": experts.d_ff, "dense": n.get("dense", 0)}
    return found | {"shared_gate": _switch(experts.shared_gate), "expert_bias": _switch(experts.bias)}


def _switch(flag: Any) -> Any:
    return flag if isinstance(flag, Value) else bool(flag)


def _titled(titles: Mapping[str, str], said: Any, **more: str) -> Any:
    """The option of a control for a word of the reader's, or for a word that a configuration will hold."""
    options = {name: title for title, name in titles.items()} | more
    return said.named(options.__getitem__) if isinstance(said, Value) else options[said]


def _norm_of(n: Mapping[str, Any]) -> str:
    kind = n.get("norm", "rms")
    weight, bias = n.get("norm_weight", True), kind == "layer" and n.get("norm_bias", True)
    return next(title for title, norm in NORMS.items() if norm == (kind, weight, bias))


_SAID = {
    "d_model", "layers", "vocab", "tied", "attention", "norm", "norm_weight", "norm_bias", "norms", "positions", "position_offset", "d_ff",
    "act", "gated", "bias", "window", "experts", "dense", "order", "head_bias", "embedding_norm",
}  # fmt: skip
_OF_ATTENTION = {"heads", "kv_heads", "head_dim", "qkv_bias", "out_bias", "sinks", "qk_norm", "rotary", "window"}


def beyond(n: Mapping[str, Any]) -> None:
    """Refuse numbers of a reader that no control has."""
    usual = {"final_norm": True, "word_dim": None}
    parts = {"": ({name: said for name, said in n.items() if name not in usual or said != usual[name]}, _SAID)}
    if isinstance(n["attention"], Attention):
        plain = vars(Attention(heads=1, kv_heads=1, head_dim=1))
        said = {name: each for name, each in vars(n["attention"]).items() if name not in plain or each != plain[name]}
        parts["attention."] = (said, _OF_ATTENTION)
    for part, (said, known) in parts.items():
        if unknown := sorted(set(said) - known):
            raise ValueError(f"{part}{unknown[0]}={said[unknown[0]]!r}: the figure has no control for it")


def presets() -> dict[str, dict[str, Any]]:
    """The sizes of each model of the list, by its title."""
    return {title: _sizes(name) for title, name in PRESETS.items()}


def _sizes(name: str) -> dict[str, Any]:
    config = hf_config(name)
    kind = config["model_type"]
    return settings_of(NUMBERS[kind](Fields(config, kind)))


def names_of_models() -> list[str]:
    """Models whose sizes the controls have: decoders with a head that reads out words."""
    known = {name: hf_config(name) for name in config_names()}
    return [
        name
        for name, config in known.items()
        if SAME.get(config["model_type"], config["model_type"]) in FORMS
        and str(config.get("architectures", [""])[0]) != "MistralModel"  # an encoder of sentences
    ]


def box(label: str, weights: str) -> Paste:
    """The box for a name or a ``config.json``. *weights*: the label of the control that a ``quantization_config`` sets."""
    names = names_of_models()
    others = {text: name for text, name in spellings(model_names()).items() if name in names}
    return Paste(
        label, reader_table(settings_of), UNABLE, TEXT_PARTS, whole_types(), rules("weights", weights),
        {name: hf_config(name) for name in names}, others, {"sizes": SAME_SIZE, "parts": OF_OTHER_TOOLS, "typed": typed()},
    )  # fmt: skip


def size_controls(start: Mapping[str, Any], without: Sequence[str] = ()) -> list[Control]:
    """All sizes of a model, under one heading, but for those that make no difference to what is asked."""

    def size(name: str, label: str, lo: int, hi: int, fine: int = 2, **more: Any) -> Control:
        value = more.pop("value", start.get(name))
        return slider(name, label, steps(lo, hi, fine), value=value, **more)

    def count(name: str, label: str, lo: int, hi: int, fine: int = 2, **more: Any) -> Control:
        """The same with a 0, for none."""
        return slider(name, label, [0, *steps(lo, hi, fine)], value=more.pop("value", start.get(name)), **more)

    def flag(name: str, label: str, **more: Any) -> Control:
        return switch(name, label, bool(start.get(name, False)), **more)

    found = [
        *grouped(SIZES, [
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
        *grouped(f"{SIZES}{WITHIN}Norms, biases, positions", [
            choice("norm", "Norms", list(NORMS), value=start["norm"]),
            choice("place", "Norms of a branch", list(PLACES), value=start["place"]),
            choice("qk_norm", "Norms of queries and keys", list(QK_NORMS), value=start["qk_norm"], idle="in_latent"),
            flag("qkv_bias", "Bias of queries, keys, values", idle="in_latent"),
            flag("out_bias", "Bias of attention’s output", idle="in_latent"),
            flag("mlp_bias", "Bias of the MLP", idle="no_mlp"),
            choice("act", "Activation of the MLP", list(ACTS), value=start["act"], idle="no_act"),
            flag("head_bias", "Bias of the head"),
            flag("embedded", "A norm behind the embedding", idle="no_embedded"),
            flag("sinks", "A learned sink for each head", idle="in_latent"),
            count("positions", "Learned positions", 512, 1048576, 1),
        ]),
        *grouped(f"{SIZES}{WITHIN}Windows", [
            count("windowed", "Layers with a window", 1, 256, idle="no_windowed"),
            size("window", "Window", 16, 131072, 1, unit="tokens", idle="no_window"),
        ]),
        *grouped(f"{SIZES}{WITHIN}Experts", [
            count("experts", "Experts", 2, 512, 1),
            size("top_k", "Experts of a token", 1, 64, 1, value=2, idle="no_experts"),
            size("expert_d_ff", "Width of an expert", 64, 65536, value=2048, idle="no_experts"),
            count("shared_d_ff", "Width of the shared expert", 64, 65536, value=0, idle="no_experts"),
            flag("shared_gate", "The shared expert has a gate", idle="no_shared"),
            flag("expert_bias", "Bias of router and experts", idle="no_experts"),
            count("dense", "Layers without experts", 1, 256, value=0, idle="no_experts"),
        ]),
        *grouped(f"{SIZES}{WITHIN}Latent attention", [
            count("kv_lora", "Latent of keys and values", 64, 4096),
            count("q_lora", "Latent of queries", 64, 4096, value=0, idle="no_latent"),
            size("qk_nope", "Width of a key without position", 16, 512, value=128, idle="no_latent"),
            size("qk_rope", "Width of a key with position", 8, 256, value=64, idle="no_latent"),
            size("v_head_dim", "Width of a value", 16, 512, value=128, idle="no_latent"),
        ]),
    ]  # fmt: skip
    return [control for control in found if control.name not in without]


def _flags(*names: str) -> list[Piece]:
    """Switches that are on, as arguments."""
    return [when(name, [True], f", {name}=True") for name in names]


def _order() -> Piece:
    """The order of layers of several kinds, of which those with a window and those without experts come first."""

    def then(*counts: Sequence[Piece]) -> list[Piece]:
        kinds: list[Piece] = [
            piece for i, count in enumerate(counts) for piece in (" + " * (i > 0), f"({i},) * ", *count)
        ]
        return ["    order=", *kinds, ",\n"]

    def less(name: str, other: str) -> list[Piece]:
        return ["(", value(name), " - ", value(other), ")"]

    windows = then([value("windowed")], less("layers", "windowed"))
    dense = then([value("dense")], less("layers", "dense"))
    narrower = then([value("windowed")], less("dense", "windowed"), less("layers", "dense"))
    wider = then([value("dense")], less("windowed", "dense"), less("layers", "windowed"))
    both = above("dense", "windowed", narrower, [above("windowed", "dense", wider, dense)])
    windowed: list[Piece] = [above("layers", "windowed", windows, "")]
    with_windows = when("experts", [0], windowed, [when("dense", [0], windowed, [both])])
    alone = when("experts", [0], "", [unless("dense", [0], dense)])
    return when("kv_lora", [0], [when("windowed", [0], [alone], [with_windows])], [alone])


def sizes_in_python(order: bool = False) -> tuple[Piece, ...]:
    """`flopkit.models.transformer` with the sizes as the controls have them, as text. *order*: where that of its layers matters."""
    heads: list[Piece] = [
        "attention=fk.models.Attention(heads=", value("heads"), ", kv_heads=", value("kv_heads"), ", head_dim=", value("head_dim"),
        unless("qk_norm", ["none"], [", qk_norm=", value("qk_norm", {title: f'"{name}"' for title, name in QK_NORMS.items()})]),
        *_flags("qkv_bias", "out_bias", "sinks"), "),\n",
    ]  # fmt: skip
    latent: list[Piece] = [
        "attention=fk.models.LatentAttention(heads=", value("heads"), ", kv_lora=", value("kv_lora"),
        unless("q_lora", [0], [", q_lora=", value("q_lora")]),
        ", qk_nope=", value("qk_nope"), ", qk_rope=", value("qk_rope"), ", v_head_dim=", value("v_head_dim"), "),\n",
    ]  # fmt: skip
    act = when("act", ["ReLU"], ', act="relu"', [when("gated", [True], "", ', act="gelu"')])
    mlp: list[Piece] = [
        "    d_ff=", value("d_ff"), when("gated", [False], ", gated=False"), act, when("mlp_bias", [True], ", bias=True"), ",\n"
    ]  # fmt: skip
    experts: list[Piece] = [
        "    experts=fk.models.Experts(experts=", value("experts"), ", top_k=", value("top_k"), ", d_ff=", value("expert_d_ff"),
        unless("shared_d_ff", [0], [", shared_d_ff=", value("shared_d_ff"), *_flags("shared_gate")]),
        when("expert_bias", [True], ", bias=True"), "),\n", unless("dense", [0], ["    dense=", value("dense"), ",\n"]),
    ]  # fmt: skip
    both: list[Piece] = [", dense=", above("windowed", "dense", [value("dense")], [value("windowed")])]
    windows: list[Piece] = [
        "    window=fk.models.WindowedLayers(", value("window"), ", layers=",
        above("windowed", "layers", [value("layers")], [value("windowed")]),
        unless("experts", [0], [unless("dense", [0], both)]), "),\n",
    ]  # fmt: skip
    norms = {title: f'"{norm.kind}"' for title, norm in NORMS.items()}
    norm: list[Piece] = [
        "    norm=", value("norm", norms),
        value("norm", {title: (", norm_weight=False" if not norm.weight else "") + (", norm_bias=False" if norm.kind == "layer" and not norm.bias else "")
                       for title, norm in NORMS.items()}),
        ", norms=", value("place", {title: f'"{name}"' for title, name in PLACES.items()}), ",\n",
    ]  # fmt: skip
    seen: list[Piece] = [unless("windowed", [0], windows)]
    chosen: list[Piece] = [unless("dense", [0], mlp), *experts]
    return (
        "fk.models.transformer(\n    d_model=", value("d_model"), ", layers=", value("layers"), ", vocab=", value("vocab"),
        ", tied=", value("tied"), ",\n    ", when("kv_lora", [0], heads, latent),
        when("experts", [0], mlp, chosen),
        when("kv_lora", [0], seen), *norm,
        *([_order()] if order else []),
        unless("positions", [0], ["    positions=", value("positions"), ",\n"]),
        when("head_bias", [True], "    head_bias=True,\n"), when("embedded", [True], "    embedding_norm=True,\n"), ")",
    )  # fmt: skip
