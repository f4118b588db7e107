"""GGUF files for tests, written by the format's description: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

Names of tensors: gguf-py/gguf/constants.py in ggml-org/llama.cpp.
"""

import re
import struct

TYPES = {"u8": (0, "B"), "i32": (5, "i"), "u32": (4, "I"), "f32": (6, "f"), "bool": (7, "?"), "u64": (10, "Q")}
NAMES = {
    "embed_tokens": "token_embd", "lm_head": "output", "norm": "output_norm", "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp", "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}  # fmt: skip
GEMMA = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip


class U64(int):
    """A number that is written with eight bytes."""


def text(value, order):
    data = value.encode()
    return struct.pack(order + "Q", len(data)) + data


def value(given, order):
    """Type and value, as a file has them."""
    if isinstance(given, str):
        return struct.pack(order + "I", 8) + text(given, order)
    if isinstance(given, list):
        inner = [value(each, order) for each in given]
        kind = inner[0][:4]
        return (
            struct.pack(order + "I", 9)
            + kind
            + struct.pack(order + "Q", len(given))
            + b"".join(each[4:] for each in inner)
        )
    name = (
        "bool"
        if isinstance(given, bool)
        else "f32"
        if isinstance(given, float)
        else "u64"
        if isinstance(given, U64)
        else "u32"
    )
    kind, code = TYPES[name]
    return struct.pack(order + "I", kind) + struct.pack(order + code, given)


def written(path, fields, tensors, version=3, order="<"):
    """A file of keys, and of names and shapes (torch's, the fastest last) without weights."""
    parts = [b"GGUF", struct.pack(order + "IQQ", version, len(tensors), len(fields))]
    parts += [text(key, order) + value(each, order) for key, each in fields.items()]
    for name, shape in tensors.items():
        dims = list(reversed(shape))
        parts.append(text(name, order) + struct.pack(f"{order}I{len(dims)}QIQ", len(dims), *dims, 12, 0))
    path.write_bytes(b"".join(parts) + bytes(64))
    return path


def tensors(model, gemma=False):
    """The tensors of a model of transformers under llama.cpp's names; tied ones once."""
    names = NAMES | (GEMMA if gemma else {})
    found = {}
    for name, parameter in model.named_parameters():
        inner = re.sub(r"^model\.", "", name)
        layer, shape = re.match(r"layers\.(\d+)\.", inner), tuple(parameter.shape)
        inner = re.sub(r"^layers\.\d+\.", "", inner)
        part, _, kind = inner.rpartition(".")
        if kind not in ("weight", "bias"):
            part, kind = inner, "weight"
        before = f"blk.{layer[1]}." if layer else ""
        if part == "mlp.experts.gate_up_proj":  # one tensor in transformers, two there
            for half in ("gate", "up"):
                found[f"{before}ffn_{half}_exps.weight"] = (shape[0], shape[1] // 2, shape[2])
        else:
            found[f"{before}{names[part]}.{kind}"] = shape
    return found
