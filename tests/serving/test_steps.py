"""A step of decoding: FLOPs as the program is counted that does it, bytes and cache by hand."""

import pytest
import torch

import flopkit as fk

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

BATCH, CONTEXT = 2, 24
SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 8}
PROGRAMS = {
    "many heads": ("llama", {"num_key_value_heads": 4}),
    "grouped heads": ("llama", {"num_key_value_heads": 2}),
    "one head of keys": ("llama", {"num_key_value_heads": 1}),
    "experts": ("qwen3_moe", {"num_key_value_heads": 2, **EXPERTS}),
    "a window": ("mistral", {"num_key_value_heads": 2, "sliding_window": 8}),
}


@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_step_is_what_a_program_does(name, new):
    """With its cache, for one new token a sequence, and for three at once, as where drafted tokens are verified."""
    kind, sizes = PROGRAMS[name]
    config = transformers.AutoConfig.for_model(kind, **SIZES, **sizes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        cache = transformers.DynamicCache()  # of all tokens, in the layers with a window too
        model(input_ids=torch.zeros(BATCH, CONTEXT - new, dtype=torch.long), past_key_values=cache, use_cache=True)
        tokens = torch.zeros(BATCH, new, dtype=torch.long)
    report = fk.count(lambda: model(input_ids=tokens, past_key_values=cache, use_cache=True))
    ours = fk.from_hf(config.to_dict()).decode(context=CONTEXT, batch=BATCH, new=new)
    assert ours.under("TORCH").flops == report.flops
    if name == "a window":  # the program computes all scores and hides those before the window
        hidden = BATCH * 2 * (new * CONTEXT - fk.visible_pairs(q=new, kv=CONTEXT, mask=fk.window(8)))
        assert report.flops - ours.flops == hidden * 4 * 4 * 8


def test_latent_attention_is_absorbed_and_caches_latents():
    """DeepSeek-V3: each score is 512 + 64 wide, each value 512; 576 numbers of cache a layer and token, whatever the heads."""
    model = fk.load("deepseek-v3")
    longer, shorter = (model.decode(context=n) for n in (4001, 4000))
    assert longer.flops - shorter.flops == 2 * 61 * 128 * (512 + 64 + 512)
    assert longer.bytes - shorter.bytes == model.kv_bytes(context=1) == 61 * (512 + 64) * 2


@pytest.mark.parametrize(
    ("batch", "new", "read"), [(1, 1, 8), (3, 1, 24), (3, 2, 48), (15, 1, 120), (16, 1, 128), (400, 1, 128)]
)
def test_few_tokens_read_few_experts(batch, new, read):
    """qwen3-30b-a3b: 48 layers of 128 experts, each 3 · 2,048 · 768 weights, 8 chosen by a token."""
    model = fk.load("qwen3-30b-a3b")
    expert = 3 * 2048 * 768
    moved = model.decode(context=100, batch=batch, new=new).bytes - batch * model.kv_bytes(context=100)
    others = (
        model.params - 151936 * 2048 - 48 * 128 * expert + batch * new * 2048
    )  # of the embedding's table a row a token
    assert moved == 2 * (others + 48 * read * expert)


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    [("deepseek-v3", "70.272"), ("qwen2.5-72b", "327.680"), ("llama-3.1-405b", "516.096")],
)
def test_cache_of_a_token_as_deepseek_prints_it(name, kilobytes):
    """Zhao et al. 2025, arXiv:2505.09343, table 1, bf16."""
    assert f"{fk.load(name).kv_bytes(context=1) / 1e3:.3f}" == kilobytes


def test_a_window_bounds_the_cache():
    """gpt-oss-120b: 18 of its 36 layers keep 128 tokens, each of 8 heads of 64."""
    model = fk.load("gpt-oss-120b")
    row = 2 * 8 * 64 * 2
    assert model.kv_bytes(context=128) == 36 * 128 * row
    assert model.kv_bytes(context=10_000) == 18 * (128 + 10_000) * row


def test_one_head_of_keys_needs_a_cache_that_much_smaller():
    """PaLM 540B has 48 query heads and one head of keys and values, 256 wide, in 118 layers."""
    assert fk.load("palm-540b").kv_bytes(context=1) == 118 * 2 * 256 * 2


def test_new_tokens_are_part_of_the_context():
    with pytest.raises(ValueError, match="new=9: these tokens are part of the context=8"):
        fk.load("llama-3-8b").decode(context=8, new=9)
