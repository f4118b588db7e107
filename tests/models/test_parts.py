"""What parts say of themselves agrees with how devices share a layer."""

from dataclasses import replace
from functools import cache

import pytest
from models.test_families import described

import flopkit as fk
from flopkit.models import families
from flopkit.models.stacks import passes
from flopkit.models.stacks.parts import SPLITS, Run
from flopkit.models.training.lora import LoRA

NAMES = [
    "gpt2",
    "llama-3-8b",
    "mixtral-8x7b",
    "deepseek-v3",
    "gemma-2-9b",
    "olmo-2-7b",
    "palm-540b",
    "gpt-oss-20b",
    "t5-base",
    "bert-base",
]


@cache
def model_of(name):
    return fk.load(name) if name in NAMES else fk.from_hf(described(name))


def layers(model, steps=(False, True)):
    """The parts of each kind of layer, in training and in a step of decoding."""
    for stack in (model, *([model.encoder] if model.encoder else [])):
        blocks = [*(block for block, _ in stack.blocks), *([stack.mtp] if stack.mtp else [])]
        for decode in steps if stack.causal else (False,):
            run = Run(2, 1 if decode else 16, 16, causal=stack.causal, decode=decode, encoded=16)
            yield from (passes.layer(stack, block, run) for block in blocks)


@pytest.mark.parametrize("name", [*NAMES, *families()])
def test_what_is_divided_is_joined_again_in_each_branch(name):
    """What column parts make is read by parts that are divided, too, until one row part (or experts) makes the branch's output."""
    for parts in layers(model_of(name)):
        apart = set()
        for part in parts:
            assert part.split in SPLITS
            read = set(part.reads) & apart
            if part.split in ("inner", "shared", "row"):
                assert read or not part.reads, part.cost.name
            else:
                assert not read, part.cost.name
            if part.split in ("column", "inner", "shared"):
                apart |= set(part.makes)
            if part.role == "sum":
                assert not {"stream", "output"} & apart
                apart = set()
        products = [part for part in parts if part.role == "product" and "output" in part.makes]
        assert {part.split for part in products} <= {"row", "sequence"}  # the gate of a shared expert has one output


@pytest.mark.parametrize("name", [*NAMES, *families()])
def test_each_part_reads_what_is_there(name):
    for parts in layers(model_of(name), steps=(False,)):
        there = {"stream", "start", "input", "encoded", "positions"}  # those of DeBERTa's table, which all layers read
        for part in parts:
            assert set(part.reads) <= there, part.cost.name
            there |= set(part.makes)
        assert "stream" in parts[-1].makes


def test_biases_of_row_parts_and_norms_are_whole_on_each_device():
    """GPT-2 by hand: of the output's bias and of the MLP's second one each device has all; of the others its share."""
    d = 768
    [(block, _)] = fk.load("gpt2").blocks
    parts = {part.cost.name: part for part in passes.layer(fk.load("gpt2"), block, Run(1, 8, 8))}
    assert parts["q_proj"].divided == parts["q_proj"].cost.params == d * d + d
    assert parts["o_proj"].divided == d * d == parts["o_proj"].cost.params - d
    assert parts["up_proj"].divided == 4 * d * d + 4 * d
    assert parts["down_proj"].divided == 4 * d * d == parts["down_proj"].cost.params - d
    assert parts["attention_norm"].divided == parts["mlp_sum"].divided == 0


def test_of_an_adapter_the_matrix_beside_divided_features_is_divided():
    model = fk.load("llama-3-8b")
    run = Run(1, 8, 8)
    lora = LoRA(rank=4, targets=("k_proj", "down_proj"))
    parts = {part.cost.name: part for part in lora.beside(passes.layer(model, model.blocks[0][0], run), run)}
    assert parts["k_proj_lora"].divided == 4 * 1024
    assert parts["down_proj_lora"].divided == 4 * 14336
    assert parts["down_proj_lora"].cost.params == 4 * (14336 + 4096)


def test_heads_share_the_weight_of_a_norm_of_each_head_and_not_that_of_a_norm_of_all():
    attention = fk.models.Attention(heads=4, kv_heads=2, head_dim=16, qk_norm="head")
    small = fk.models.transformer(d_model=64, vocab=96, layers=1, d_ff=96, attention=attention)
    [(block, _)] = small.blocks
    for norm, divided in (("head", 0), ("whole", 64)):
        one = replace(block, mixer=replace(block.mixer, qk_norm=norm))
        [found] = [part for part in passes.layer(small, one, Run(1, 8, 8)) if part.cost.name == "q_norm"]
        assert found.divided == divided
