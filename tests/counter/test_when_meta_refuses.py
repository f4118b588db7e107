"""What the page *What the counter counts* says of programs that meta refuses: torch's errors, and the ways out."""

import pytest
import torch

import flopkit as fk

transformers = pytest.importorskip("transformers")
SIZES = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)


def llama(device=None):
    torch.manual_seed(0)  # so that what is generated does not end early
    with torch.device(device or "cpu"):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)), torch.ones(1, 8, dtype=torch.long)


def step(model, x):
    model.train()
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()  # the older name is going
    return fk.count(lambda: model(x, labels=x, use_cache=False).loss.backward())


def test_generation_on_meta_is_a_loop():
    model, x = llama("meta")
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"Tensor.item\(\) cannot be called on meta tensors"):
        fk.count(model.generate, x, max_new_tokens=4, do_sample=False)

    def steps(model, x):
        out = model(x, use_cache=True)
        for _ in range(3):
            out = model(x[:, :1], past_key_values=out.past_key_values, use_cache=True)

    with torch.no_grad():
        looped = fk.count(steps, model, x)
        model, x = llama()
        generated = fk.count(model.generate, x, max_new_tokens=4, do_sample=False)
    logits_of_the_prompt = 2 * 7 * SIZES["hidden_size"] * SIZES["vocab_size"]  # of its last token both have them
    assert looped.model_flops == generated.model_flops + logits_of_the_prompt


def test_checkpoints_of_transformers_run_on_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with pytest.raises(RuntimeError, match=r"Tensor.item\(\) cannot be called on meta tensors"):
        step(*llama("meta"))
    with FakeTensorMode():
        fake = step(*llama())
    real = step(*llama())
    assert fake.model_flops == real.model_flops and fake.recompute.flops == real.recompute.flops > 0


def test_a_mixture_of_experts_in_bfloat16():
    sizes = dict(SIZES, num_local_experts=4)

    def counted(dtype):
        with torch.device("meta"), torch.no_grad():
            model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes)).to(dtype)
            return fk.count(model, torch.ones(1, 8, dtype=torch.long))

    with pytest.raises(RuntimeError, match="BF16 type|to be BFloat16"):
        counted(torch.float32)
    assert counted(torch.bfloat16).flops > 0
