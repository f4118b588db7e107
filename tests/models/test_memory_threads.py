"""Memory of training as people meet it: numbers of public threads and of tools that print them."""

import pytest

import flopkit as fk
from flopkit.models.storage import stored
from flopkit.training import PRECISIONS

GIB, MIB = 2**30, 2**20
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def states(model, **how):
    return fk.load(model).train_memory(seq=1, **how).states


def test_zero_3_of_a_7b_model_on_four_gpus():
    """DeepSpeed, issue 4527: 6805M parameters, the largest layer 131M: 29.01 GB a GPU, which are GiB: 18 bytes a parameter by 4, and 4 bytes of
    the largest layer. With the optimiser offloaded (axolotl, issue 1129: 6738M, Llama-2-7B) weights by 4 and that layer: 3.63 GB."""
    llama = fk.load("llama-2-7b")
    layer = 4 * 32_000 * 4096  # DeepSpeed takes a module for a layer
    share = llama.train_memory(seq=1, precision="mixed-fp32-gradients", shards=4)
    assert f"{(share.states * 6805e6 / llama.params + layer) / GIB:.2f}" == "29.01"
    assert round(llama.params / 1e6) == 6738 and f"{(share.weights + layer) / GIB:.2f}" == "3.63"


def test_full_fine_tuning_of_70b():
    """huggingface/blog, issue 2245: "300 GB or 500 GB?" Bf16 throughout takes 564 GB, mixed precision 1,129."""
    assert states("llama-3.1-70b", precision="bf16") == pytest.approx(564.4e9, abs=5e7)
    assert states("llama-3.1-70b") == pytest.approx(1128.9e9, abs=5e7)


def test_7b_in_fp32_does_not_fit_80_gb():
    """meta-llama/llama-cookbook, issue 413: weights, gradients and Adam's states in fp32 are 107.8 GB."""
    assert states("llama-2-7b", precision="fp32") == pytest.approx(107.8e9, abs=5e7)
    assert fk.training.largest_batch(fk.load("llama-2-7b"), "a100-sxm-80gb", seq=512, precision="fp32") == 0


def test_bytes_a_parameter_that_threads_name():
    """huggingface/accelerate, issue 2659, and Azure/MS-AMP, issue 173: 16, 18 or 20? Each is right for other gradients."""
    params = fk.load("llama-2-7b").params
    found = {name: states("llama-2-7b", precision=name, shards=1 + (name == "fsdp")) / params for name in PRECISIONS}
    assert [found[name] for name in ("mixed", "mixed-fp32-gradients", "mixed-both-gradients", "autocast")] == [
        16,
        18,
        20,
        16,
    ]
    assert found["fsdp"] == 8  # of two devices each


def test_7b_with_sgd_in_bf16():
    """meta-pytorch/torchtune, pull request 389: 27 GB, 13.51 of weights and 13.5 of gradients."""
    found = fk.load("llama-2-7b").train_memory(seq=1, precision="bf16", optimizer="sgd")
    assert f"{found.states / 1e9:.2f}" == "26.95" and found.optimizer == 0


def test_logits_of_a_large_vocabulary():
    """unslothai/unsloth, issue 824: 16,384 tokens run out of memory with Llama-3-8B at an allocation of 7.83 GiB (the fp32 logits), not with
    Llama-2-7B. What the ends keep beside them is the last norm's and the head's input, 2 · 16,384 · 4,096 · 2 bytes."""
    lora = fk.LoRA(rank=16, base="nf4")
    ends = {
        name: fk.load(name).train_memory(seq=16_384, recompute="full", trained=lora).ends
        for name in ("llama-3-8b", "llama-2-7b")
    }
    assert f"{16_384 * 128_256 * 4 / GIB:.2f}" == "7.83"
    assert ends["llama-3-8b"] - ends["llama-2-7b"] == 16_384 * (128_256 - 32_000) * 4
    assert f"{ends['llama-3-8b'] / GIB:.2f}" == "7.95"


def test_activations_of_256_tokens():
    """jiaweizzhao/GaLore, issue 57: a figure shows 2 GB of activations for 256 tokens of a 7B model; PyTorch keeps 1.21 GiB."""
    found = fk.load("llama-2-7b").train_memory(seq=256, precision="bf16")
    assert f"{found.activations / GIB:.2f}" == "1.21"


@pytest.mark.parametrize(("model", "MB"), [("llama-2-7b", 5048), ("llama-2-13b", 8476)])
def test_the_base_of_qlora_is_less_than_its_paper_measured(model, MB):
    """Dettmers et al. 2023, section 2 and figure 6, bitsandbytes, issue 790: 5,048 and 8,476 MB for LLaMA's 7B and 13B, "why not 3.5 and 6.5
    GB?" Blocks of 4 bits and doubly quantised scales, 4.127 bits, embedding and head in 16: 3,866 MB of 7B; the rest are buffers."""
    llama = fk.load(model)
    base = llama.train_memory(seq=1, trained=fk.LoRA(rank=16, base="nf4")).weights - 2 * llama.trained_params(
        fk.LoRA(rank=16)
    )
    vectors = (2 * llama.layers + 1) * llama.d_model
    ends = 2 * llama.vocab * llama.d_model
    dense = llama.params - ends - vectors
    assert base == dense * (4 + 8 / 64 + 32 / 64 / 256) / 8 + 2 * (ends + vectors)
    assert 0.7 * MB < base / 1e6 < MB


def test_the_base_of_qlora_by_role():
    """Llama-2-7B: 3,686 MiB; with an fp32 scale each 64 numbers, 4.5 bits, 288 MiB more. Llama-3-8B, adapters on all dense layers: 5.70 GB
    and 0.08 of adapters; four bits for all would be 4.1."""
    both = [
        fk.load("llama-2-7b").train_memory(seq=1, trained=fk.LoRA(rank=1, base=base)).weights
        - 2 * fk.load("llama-2-7b").trained_params(fk.LoRA(rank=1))
        for base in ("nf4", "nf4_plain")
    ]
    assert int(both[0] / MIB) == 3686 and round((both[1] - both[0]) / MIB) == 288
    llama, lora = fk.load("llama-3-8b"), fk.LoRA(rank=16, targets=ALL, base="nf4")
    adapters = 2 * llama.trained_params(lora)
    weights = llama.train_memory(seq=512, recompute="full", precision="bf16", trained=lora).weights
    assert f"{(weights - adapters) / 1e9:.2f}" == "5.70" and f"{adapters / 1e9:.2f}" == "0.08"
    four = fk.LoRA(rank=16, targets=ALL, base="int4")
    assert f"{(llama.train_memory(seq=512, trained=four).weights - adapters) / 1e9:.2f}" == "4.02"


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        ("attention", ALL[:4]),
        (("mlp",), ALL[4:]),
        (("attention", "mlp"), ALL),
        (("mlp", "q_proj", "up_proj"), ("q_proj", *ALL[4:])),
    ],
)
def test_targets_by_role(targets, names):
    """Llama-3-8B: r · (d_in + d_out) for each of so many dense layers; the step and its memory are those of the names."""
    llama = fk.load("llama-3-8b")
    sizes = {
        "q_proj": 8192,
        "k_proj": 5120,
        "v_proj": 5120,
        "o_proj": 8192,
        "gate_proj": 18432,
        "up_proj": 18432,
        "down_proj": 18432,
    }
    role, name = fk.LoRA(rank=16, targets=targets), fk.LoRA(rank=16, targets=names)
    assert llama.trained_params(role) == 32 * 16 * sum(sizes[each] for each in names)
    steps = [llama.train_step(seq=64, trained=each) for each in (role, name)]
    assert steps[0].backward.flops == steps[1].backward.flops
    held = [llama.train_memory(seq=64, trained=each) for each in (role, name)]
    assert (held[0].states, held[0].activations) == (held[1].states, held[1].activations)


def test_a_role_that_a_model_has_not_is_refused():
    with pytest.raises(ValueError, match="targets='mlp': mixtral-8x7b .*by role attention$"):
        fk.load("mixtral-8x7b").trained_params(fk.LoRA(rank=8, targets="mlp"))  # its experts are no dense layers
    with pytest.raises(ValueError, match="targets='all-linear': .*by role attention and mlp$"):
        fk.load("llama-3-8b").train_step(seq=8, trained=fk.LoRA(rank=8, targets="all-linear"))


@pytest.mark.parametrize(
    ("name", "d_out", "held"),
    [
        ("nf4", 4096, 8_388_608 + 262_144 + 4096), ("nf4", 11_008, 22_544_384 + 704_512 + 11_008),
        ("nf4_plain", 4096, 8_388_608 + 1_048_576), ("nf4_plain", 11_008, 22_544_384 + 2_818_048),
    ],
)  # fmt: skip
def test_blocks_of_bitsandbytes(name, d_out, held):
    """Read off Params4bit of bitsandbytes 0.50.2 on a CPU, for 4,096 × d_out: data, scales (uint8 with compress_statistics, else fp32), and the
    fp32 scales of these. Its tables of values (64 bytes, with a second one 1,024) and an offset of 4 are not counted."""
    assert stored(name).nbytes(1, 4096, d_out) == held
