"""The formulas of training frameworks and servers, each written from its source on the sizes of a config.json, and without flopkit.

Where and in which version each was read stands in flopkit/data/trainers.toml. All give FLOPs per token: of forward and backward of a sequence
of t tokens, and for servers of reading one prompt.
"""

from types import SimpleNamespace


def sizes(config):
    """A config.json by the letters of the formulas below."""
    c = config
    h = c.get("hidden_size", c.get("n_embd"))
    heads = c.get("num_attention_heads", c.get("n_head"))
    layers = c.get("num_hidden_layers", c.get("n_layer"))
    q = c.get("head_dim") or h // heads
    experts = c.get("num_experts") or c.get("num_local_experts") or 0
    windowed = [kind == "sliding_attention" for kind in c.get("layer_types") or ["full_attention"] * layers]
    return SimpleNamespace(
        h=h, heads=heads, layers=layers, q=q, kv=c.get("num_key_value_heads", heads), v=c["vocab_size"], experts=experts,
        k=c.get("num_experts_per_tok", 0), f=c.get("intermediate_size") or 4 * h, e=c.get("moe_intermediate_size") or c.get("intermediate_size"),
        tied=c.get("tie_word_embeddings", True), w=c.get("sliding_window"), windowed=windowed,
        gated="n_embd" not in c, quick_gelu=c["model_type"] == "gpt_oss", type=c["model_type"],
    )  # fmt: skip


def _attention(s):
    return s.h * s.q * (2 * s.heads + 2 * s.kv)


def _mlp(s, matrices=3):
    return matrices * s.h * (s.k * s.e if s.experts else s.f)


def megatron_lm(s, t):
    """transformer_flops in num_floating_point_operations: `swiglu` is not set for a quick GEGLU, and windows are not looked at."""
    mlp = _mlp(s, 2 if s.quick_gelu else 3)
    core = s.q * s.heads / 2 * 2
    return 3 * 2 * (s.layers * (mlp + _attention(s)) + s.h * s.v) + 3 * 2 * s.layers * core * t


def megatron_bridge(s, t):
    flops = 3 * 2 * (s.layers * (_mlp(s) + _attention(s)) + s.h * s.v)
    for windowed in s.windowed:
        context = s.w - s.w * (s.w - 1) / (2 * t) if windowed and s.w < t else t / 2
        flops += 3 * 2 * s.q * s.heads * context * 2
    return flops


def torchtitan(s, t):
    """6 · parameters that work for a token + 6 · layers · heads · (both head dimensions) · t."""
    norms = 2 * s.h * s.layers + s.h + (2 * s.q * s.layers if s.type == "qwen3_moe" else 0)
    biases = 0
    if s.type == "gpt_oss":  # qkv, output, sinks; router and experts, of which top-k of all count
        biases = s.layers * (s.q * (s.heads + 2 * s.kv) + s.h + s.heads)
        biases += s.layers * (s.experts + s.k * (2 * s.e + s.h))
    matmuls = s.layers * (_attention(s) + _mlp(s) + s.h * s.experts) + s.h * s.v
    return 6 * (matmuls + norms + biases) + 6 * s.layers * s.heads * 2 * s.q * t


def maxtext(s, t):
    forward = s.layers * (2 * _attention(s) + 2 * _mlp(s) + 2 * s.h * s.experts) + 2 * s.h * s.v
    for windowed in s.windowed:
        pairs = 4 * (t * min(s.w, t) - 0.5 * min(s.w, t) ** 2) if windowed else 4 * t * t / 2
        forward += pairs * s.heads * s.q / t
    return 3 * forward


def nemo_rl(s, t):
    if s.type == "llama":
        return (
            s.layers * s.h**2 * (12 + 12 * s.kv / s.heads + 18 * s.f / s.h + 6 * t / s.h + 6 * s.v / (s.layers * s.h))
        )
    assert s.type == "qwen3_moe", "a class without a formula raises there"
    attention = 6 * s.layers * (2 * s.heads * s.q * s.h + 2 * s.kv * s.q * s.h + t * s.heads * s.q * 2 * 0.5)
    return attention + 6 * s.layers * s.h * 3 * s.f + 6 * s.h * s.v  # intermediate_size, with a top-k of one


def olmo_core(s, t):
    flops = 6 * s.h * s.v + 6 * s.h  # the head and its norm
    for windowed in s.windowed:
        flops += 6 * (_attention(s) + _mlp(s) + s.h * s.experts)
        flops += 12 * s.heads * s.q * (min(s.w, t) if windowed else t)
    return flops


def verl(s, t):
    dense = s.layers * (_mlp(s) + _attention(s) + s.h * s.experts) + 2 * s.v * s.h
    squares = sum(t * (min(t, s.w) if windowed else t) for windowed in s.windowed)
    return 6 * dense + 6 * squares * s.q * s.heads / t


def trl(s, t):
    layer = 2 * _attention(s) + 4 * s.heads * s.q * t + 2 * _mlp(s) + 2 * s.h * s.experts
    return 3 * (s.layers * layer + 2 * s.v * s.h + (0 if s.tied else 2 * s.v * s.h))


def nanochat(s, t):
    matmuls = s.layers * (_attention(s) + _mlp(s)) + s.h * s.v
    return 6 * matmuls + 12 * s.layers * s.heads * s.q * t


def _gpt2_params(s, vocab, positions):
    layer = 12 * s.h**2 + 13 * s.h
    return vocab * s.h + positions * s.h + s.layers * layer + 2 * s.h


def nanogpt(s, t):
    return 6 * _gpt2_params(s, s.v, 0) + 12 * s.layers * s.heads * s.q * t


def llm_c(s, t):
    return 6 * _gpt2_params(s, 50_304, 1024) + 6 * s.layers * s.h * t


def vllm(s, t):
    flops = 2 * s.h * s.v / t  # for the last token
    for windowed in s.windowed:
        flops += 2 * (_attention(s) + _mlp(s)) + 2 * 2 * s.heads * s.q * (min(t, s.w) if windowed else t)
    return flops


def sglang(s, t):
    return s.layers * (2 * _attention(s) + 6 * s.h * s.f) + 4 * s.heads * s.q * s.layers * (t + 1) / 2


FORMULAS = {
    "megatron-lm": megatron_lm, "megatron-bridge-26.04": megatron_lm, "megatron-bridge": megatron_bridge, "torchtitan": torchtitan,
    "maxtext": maxtext, "nemo-rl": nemo_rl, "olmo-core": olmo_core, "verl": verl, "trl": trl, "nanochat": nanochat, "nanogpt": nanogpt,
    "llm.c": llm_c, "vllm": vllm, "sglang": sglang,
}  # fmt: skip
