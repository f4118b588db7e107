"""PEFT: each way of tuning a small Llama, whose own weights want no gradient."""

from __future__ import annotations

import pytest
import torch
from whole_models import check

peft = pytest.importorskip("peft", reason="make zoo installs peft")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.zoo

SOME = {"target_modules": ["q_proj", "v_proj", "down_proj"]}
WAYS = {
    "LoRA": lambda: peft.LoraConfig(r=4, **SOME),
    "LoRA, dropout": lambda: peft.LoraConfig(r=4, lora_dropout=0.1, **SOME),
    "rsLoRA of all": lambda: peft.LoraConfig(r=4, use_rslora=True, target_modules="all-linear"),
    "DoRA": lambda: peft.LoraConfig(r=4, use_dora=True, **SOME),
    "PiSSA": lambda: peft.LoraConfig(r=4, init_lora_weights="pissa", **SOME),
    "LoHa": lambda: peft.LoHaConfig(r=4, **SOME),
    "LoKr": lambda: peft.LoKrConfig(r=4, **SOME),
    "AdaLoRA": lambda: peft.AdaLoraConfig(init_r=4, target_r=2, total_step=10, **SOME),
    "IA3": lambda: peft.IA3Config(feedforward_modules=["down_proj"], **SOME),
    "VeRA": lambda: peft.VeraConfig(r=4, target_modules=["q_proj", "o_proj"]),
    "OFT": lambda: peft.OFTConfig(r=0, oft_block_size=8, **SOME),
    "HRA": lambda: peft.HRAConfig(r=4, **SOME),
    "norms": lambda: peft.LNTuningConfig(target_modules=["input_layernorm", "norm"]),
    "biases and the head": lambda: peft.LoraConfig(r=4, bias="all", modules_to_save=["lm_head"], **SOME),
    "prompt": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "p-tuning": lambda: peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=4, encoder_hidden_size=16),
    "prefix": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
def test_counted(way):
    config = transformers.LlamaConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    model = peft.get_peft_model(transformers.LlamaForCausalLM(config), WAYS[way]())
    # LoHa has an `autograd.Function` of its own, whose backward pass the walk does not see.
    check(model, {"input_ids": torch.randint(99, (2, 12))}, backward=way != "LoHa")
