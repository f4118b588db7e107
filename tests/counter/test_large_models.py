"""Models far larger than this machine, on meta: right to the last FLOP, in little memory."""

import json
import subprocess
import sys

import pytest

import flopkit as fk
from flopkit.models.files.configs import hf_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

TOKENS = 4096
RUN = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
import torch, transformers, flopkit as fk
from flopkit.models.files.configs import hf_config

def peak():
    try:  # of this program alone; ru_maxrss also knows the one that started it
        return 1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

config = transformers.AutoConfig.for_model(**hf_config(sys.argv[1]))
with torch.device("meta"):
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    ids = torch.zeros(1, int(sys.argv[2]), dtype=torch.long)
with fk.counting(strict=True) as report:
    model(input_ids=ids, labels=ids).loss.backward()
exact = report.under(fk.conventions.EXACT)
rows = {row["module"]: row["forward"] for row in report.by_module(depth=2)}
print(json.dumps({
    "params": sum(p.numel() for p in model.parameters()),
    "forward": report.forward.flops, "backward": report.backward.flops, "recompute": report.recompute.flops,
    "model": report.model_flops, "exact": exact.forward.flops, "coverage": report.coverage, "rows": rows,
    "peak": peak(),
}))
"""


@pytest.fixture(scope="module", params=["deepseek-v3", "llama-3-70b", "llama-3-8b", "mixtral-8x7b"])
def counted(request):
    """The model's name, its configuration and what was counted, in a process whose memory is its own."""
    run = [sys.executable, "-c", RUN, request.param, str(TOKENS)]
    found = subprocess.run(run, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
    return request.param, hf_config(request.param), json.loads(found.stdout.splitlines()[-1])


def llama(c, t):
    """Multiply-adds of a forward pass over *t* tokens: products, and the numbers that one query-key pair costs."""
    d, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    head = d // heads
    layer = d * heads * head + 2 * d * kv * head + heads * head * d
    mlp = 3 * d * c["intermediate_size"]
    products = t * (c["num_hidden_layers"] * (layer + mlp) + d * c["vocab_size"])
    return products, c["num_hidden_layers"] * heads * 2 * head


def mixtral(c, t):
    d, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    head = d // heads
    layer = d * heads * head + 2 * d * kv * head + heads * head * d
    experts = c["num_experts_per_tok"] * 3 * d * c["intermediate_size"] + d * c["num_local_experts"]
    products = t * (c["num_hidden_layers"] * (layer + experts) + d * c["vocab_size"])
    return products, c["num_hidden_layers"] * heads * 2 * head


def deepseek(c, t):
    d, heads = c["hidden_size"], c["num_attention_heads"]
    nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    queries = d * c["q_lora_rank"] + c["q_lora_rank"] * heads * (nope + rope)
    latents = d * (c["kv_lora_rank"] + rope) + c["kv_lora_rank"] * heads * (nope + value)
    attention = queries + latents + heads * value * d
    dense = 3 * d * c["intermediate_size"]
    active = c["num_experts_per_tok"] + c["n_shared_experts"]
    sparse = active * 3 * d * c["moe_intermediate_size"] + d * c["n_routed_experts"]
    first, layers = c["first_k_dense_replace"], c["num_hidden_layers"]
    products = t * (layers * attention + first * dense + (layers - first) * sparse + d * c["vocab_size"])
    return products, layers * heads * (nope + rope + value)


BY_HAND = {"llama-3-8b": llama, "llama-3-70b": llama, "mixtral-8x7b": mixtral, "deepseek-v3": deepseek}


def test_forward_to_the_last_flop(counted):
    name, config, found = counted
    products, per_pair = BY_HAND[name](config, TOKENS)
    assert found["forward"] == 2 * (products + TOKENS**2 * per_pair)
    assert found["exact"] == 2 * (products + TOKENS * (TOKENS + 1) // 2 * per_pair)


def test_backward_is_twice_the_forward_and_flash_does_the_scores_again(counted):
    name, config, found = counted
    assert found["backward"] == 2 * found["forward"]
    head = {
        "llama-3-8b": lambda c: c["hidden_size"] // c["num_attention_heads"],
        "llama-3-70b": lambda c: c["hidden_size"] // c["num_attention_heads"],
        "mixtral-8x7b": lambda c: c["hidden_size"] // c["num_attention_heads"],
        "deepseek-v3": lambda c: c["qk_nope_head_dim"] + c["qk_rope_head_dim"],
    }[name](config)
    assert found["recompute"] == 2 * config["num_hidden_layers"] * config["num_attention_heads"] * TOKENS**2 * head
    assert found["model"] == 3 * found["forward"]


def test_nothing_is_left_uncounted_and_little_memory_is_taken(counted):
    _, _, found = counted
    assert found["coverage"] == 1.0
    assert found["peak"] < 2e9, f"{found['peak'] / 1e9:.2f} GB"


def test_modules_are_named_as_in_the_model(counted):
    _name, config, found = counted
    head = 2 * TOKENS * config["hidden_size"] * config["vocab_size"]
    assert found["rows"]["lm_head"] == head
    assert found["rows"][""] == found["forward"]
    assert found["rows"]["model"] == found["forward"] - head


PARAMETERS = {
    "llama-3-8b": (8.03e9, 0.005e9),
    "llama-3-70b": (70.6e9, 0.05e9),
    "mixtral-8x7b": (46.7e9, 0.05e9),
    "deepseek-v3": (671e9, 0.5e9),
}


def test_it_is_the_model_that_it_is_called(counted):
    """Parameters as the makers print them: a wrong configuration would show here."""
    name, _, found = counted
    printed, half_a_digit = PARAMETERS[name]
    assert abs(found["params"] - printed) <= half_a_digit


def test_an_unknown_model_is_told_near_names():
    with pytest.raises(ValueError, match="did you mean .*llama-3-70b"):
        hf_config("llama-3-7b")
    assert fk.models.files.configs.hf_config("LLAMA_3.70B")["num_hidden_layers"] == 80
